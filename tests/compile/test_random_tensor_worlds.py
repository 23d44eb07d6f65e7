"""Random programs over tensors whose world is changed between calls: see random_tensor_worlds.py, also for how to run a seed alone.

SMELT_MUTATIONS_FIRST is the first seed, SMELT_TENSOR_WORLDS_COUNT how many there are.
"""

import os
import subprocess
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
FIRST = int(os.environ.get("SMELT_MUTATIONS_FIRST", "0"))
COUNT = int(os.environ.get("SMELT_TENSOR_WORLDS_COUNT", "60"))


@pytest.mark.slow
def test_random_tensor_worlds():
    middle = FIRST + COUNT // 2
    started = [subprocess.Popen([sys.executable, os.path.join(HERE, "random_tensor_worlds.py"), str(first), str(last), "eager"],
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, "PYTHONHASHSEED": "0"})
               for first, last in ((FIRST, middle), (middle, FIRST + COUNT))]
    outputs = [process.communicate()[0] for process in started]
    for process, output in zip(started, outputs, strict=True):
        last = output.strip().splitlines()[-1] if output.strip() else ""
        assert process.returncode == 0 and last.startswith("0 of "), output[-6000:]
