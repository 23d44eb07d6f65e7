"""Every op of PyTorch's OpInfo database, recorded and run, against eager: see opinfo_check.py.

SMELT_OPINFO_ALL=1 takes every sample, otherwise a fixed few of each op. For a single op: run.py --op NAME.
"""

import opinfo_pool
import pytest


@pytest.mark.slow
def test_every_op_is_recorded_and_runs_like_eager(capsys):
    outcomes = opinfo_pool.run_cases(opinfo_pool.all_cases())
    with capsys.disabled():
        print("\n" + opinfo_pool.report(outcomes))
    failed = [" ".join(case) for case, outcome in outcomes.items() if outcome["status"] == "failed"]
    assert not failed
    assert opinfo_pool.rate(outcomes) >= 0.95
