"""Every shape rule against PyTorch, on calls made from the op's schema; see schema_calls.py."""

import json
import pathlib
import subprocess
import sys

import pytest
from shape_check import ROWS

# Arguments of these that do not fit together make PyTorch write or read outside of the tensors.
FRAGILE = ("embedding", "_pad1d_backward", "_pad2d_backward", "pool2d_backward", "pool3d_backward", "batch_norm",
           "_with_indices_backward", "convolution", "nll_loss", "_attention", "gelu_backward", "_transformer_encoder",
           "l1_loss_backward", "softmax_backward_data")  # fmt: skip


class Fuzzer:
    """The process that makes the calls, started again after it died."""

    def __init__(self):
        self.process = None

    def check(self, name):
        """What is wrong with the rule, as text; None where PyTorch crashed."""
        if self.process is None:
            self.start()
        self.process.stdin.write(name + "\n")
        self.process.stdin.flush()
        ruled, answer = self.process.stdout.readline(), self.process.stdout.readline()
        if not answer:
            self.process.wait()
            self.process = None
            return None if ruled else f"{name}: the rule crashed"
        found = json.loads(answer)
        return "\n".join((found["mismatches"] + found["unnoticed"])[:1])

    def start(self):
        program = pathlib.Path(__file__).with_name("schema_calls.py")
        self.process = subprocess.Popen(
            [sys.executable, program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def stop(self):
        if self.process is not None:
            self.process.stdin.close()
            self.process.wait()


@pytest.mark.slow
def test_arguments_from_schema():
    fuzzer = Fuzzer()
    # PyTorch has none of smelt's own ops to compare with; test_random_words.py is about those.
    names = [name for name in sorted(ROWS) if not name.startswith("smelt::") and not any(word in name for word in FRAGILE)]
    answers = {name: fuzzer.check(name) for name in names}
    fuzzer.stop()
    crashed = [name for name, answer in answers.items() if answer is None]
    print(f"{len(answers)} ops; eager crashed, skipped: {', '.join(crashed) or 'none'}")
    wrong = [answer for answer in answers.values() if answer]
    assert not wrong, "\n".join(wrong)
    assert len(crashed) < 10
