"""On a processor with AVX-512: kernels, PyTorch's or both made for AVX2 give what they give there."""

import os
import pathlib
import subprocess
import sys

import pytest

from smelt import _native

ROOT = pathlib.Path(__file__).parents[2]
ENVIRONMENTS = {
    "kernels": {"SMELT_CPU_TARGET": "avx2"},
    "both": {"SMELT_CPU_TARGET": "avx2", "ATEN_CPU_CAPABILITY": "avx2"},
    "torch": {"ATEN_CPU_CAPABILITY": "avx2"},
}
# Of each kind something: zeros in vectors and behind them, products and in-place ops, kernels of all shapes, a step of training.
SAMPLE = ("tests/ops/test_special_values.py", "tests/record/test_overlap.py", "tests/compile/test_native.py")


def python(environment, *arguments):
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, timeout=900
    )


@pytest.mark.skipif(_native.cpu_target() != "avx512", reason="the processor has no AVX-512")
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_the_target_is_taken(name):
    found = python(ENVIRONMENTS[name], "-c", "import smelt; print(smelt._native.cpu_target())")
    assert found.stdout.strip() == ("avx512" if name == "torch" else "avx2"), found.stderr


def test_no_kernels_are_wanted():
    code = "import smelt, torch; f = smelt.compile(lambda x: (x + 1).sin()); f(torch.ones(9)); print(f(torch.ones(9)).sum() > 0, smelt._native.cpu_target())"
    found = python({"SMELT_CPU_TARGET": "none"}, "-c", code)
    assert found.stdout.split() == ["tensor(True)", "none"], found.stderr


@pytest.mark.slow
@pytest.mark.skipif(_native.cpu_target() != "avx512", reason="the processor has no AVX-512")
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_a_sample_of_the_tests(name):
    found = python(ENVIRONMENTS[name], "-m", "pytest", "-q", "-x", "-m", "not slow", "-p", "no:cacheprovider", *SAMPLE)
    assert found.returncode == 0, found.stdout[-4000:]
