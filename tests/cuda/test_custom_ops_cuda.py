"""On a GPU no kernel is run on contents that the program does not have: an assertion on the device ends the process's use of it."""

import pytest
import torch

import smelt

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("replacement", [False, True])
def test_multinomial(dtype, replacement):
    def sample(weights):
        return torch.multinomial(weights.softmax(-1), 2, replacement=replacement) + 1

    compiled, weights = smelt.compile(sample), torch.randn(4, 8, device="cuda", dtype=dtype)
    for seed in range(4):
        torch.manual_seed(seed)
        want = sample(weights)
        torch.manual_seed(seed)
        assert torch.equal(compiled(weights), want)
    graph = smelt.record(sample, weights)
    torch.manual_seed(0)
    want = sample(weights)
    torch.manual_seed(0)
    assert torch.equal(graph.run(weights), want)
    torch.cuda.synchronize()


def test_an_op_runs_as_often_as_in_eager():
    calls = []
    library = torch.library.Library("smelt_counted_cuda", "DEF")
    library.define("op(Tensor x) -> Tensor")
    library.impl("op", lambda x: calls.append(x.sum().item()) or x + 1, "CUDA")
    library.impl("op", torch.empty_like, "Meta")

    def function(x):
        y = torch.ops.smelt_counted_cuda.op(x * 2)
        return y * 3 if y.sum().item() > 0 else y * 5

    compiled = smelt.compile(function)
    for sign in (1.0, 1.0, -1.0, 1.0, -1.0):
        x = torch.full((2,), sign, device="cuda")
        calls.clear()
        got = compiled(x)
        assert len(calls) == 1
        torch.testing.assert_close(got, function(x))
