"""Random programs whose world is changed between calls: see random_mutations.py, also for how to run a seed alone.

SMELT_MUTATIONS_FIRST is the first seed, SMELT_MUTATIONS_COUNT how many there are.
"""

import os
import subprocess
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
FIRST = int(os.environ.get("SMELT_MUTATIONS_FIRST", "0"))
COUNT = int(os.environ.get("SMELT_MUTATIONS_COUNT", "2000"))
WORKERS = max(2, os.cpu_count() or 2)


@pytest.mark.slow
def test_random_mutations():
    share = -(-COUNT // WORKERS)
    started = []
    for start in range(FIRST, FIRST + COUNT, share):
        command = [sys.executable, os.path.join(HERE, "random_mutations.py"), str(start),
                   str(min(start + share, FIRST + COUNT))]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                        env={**os.environ, "PYTHONHASHSEED": "0"}))
    outputs = [process.communicate()[0] for process in started]
    for process, output in zip(started, outputs, strict=True):
        last = output.strip().splitlines()[-1] if output.strip() else ""
        assert process.returncode == 0 and last.startswith("0 of "), output[-6000:]
