"""smelt.reset() in the middle of a compiled call: what the call uses is not freed under it."""

import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).parent


def test_reset_in_the_middle_of_a_call():
    # Freed memory is overwritten, so that what is used after it was freed is wrong for sure.
    environment = dict(os.environ, PYTHONMALLOC="malloc", MALLOC_PERTURB_="165")
    done = subprocess.run(
        [sys.executable, HERE / "resets_check.py"], env=environment, capture_output=True, text=True, check=False
    )
    last = done.stdout.splitlines()[-1:]
    assert done.returncode == 0 and last == ["done"], (last, done.stderr[-3000:])
