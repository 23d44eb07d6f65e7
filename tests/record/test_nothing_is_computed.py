"""smelt.record computes nothing: no op of the function is run, whoever defined it."""

import subprocess
import sys

import pytest
import torch

import smelt


class Counted:
    def __init__(self, name, meta):
        self.calls = 0
        self.library = torch.library.Library(f"smelt_recorded_{name}", "DEF")
        self.library.define("op(Tensor x) -> Tensor")
        self.library.impl("op", self.compute, "CPU")
        if meta == "meta":
            self.library.impl("op", torch.empty_like, "Meta")
        if meta == "fake":
            torch.library.register_fake(f"smelt_recorded_{name}::op", torch.empty_like, lib=self.library)
        self.op = getattr(torch.ops, f"smelt_recorded_{name}").op

    def compute(self, x):
        self.calls += 1
        return x * 2


@pytest.mark.parametrize("meta", ["meta", "fake"])
def test_an_op_is_not_run_while_it_is_recorded(meta):
    counted, x = Counted(meta, meta), torch.randn(3, 4)
    graph = smelt.record(lambda x: counted.op(x.sin()).cos() + counted.op(x).sum(), x)
    assert counted.calls == 0
    for i in range(1, 4):
        torch.testing.assert_close(graph.run(x), (x.sin() * 2).cos() + (x * 2).sum())
        assert counted.calls == 2 * i


def test_dynamic_sizes():
    counted = Counted("dynamic", "meta")
    graph = smelt.record(lambda x: counted.op(x) + 1, torch.randn(3, 4), dynamic_shapes=[{0: "batch"}])
    assert counted.calls == 0
    x = torch.randn(7, 4)
    torch.testing.assert_close(graph.run(x), x * 2 + 1)


def test_without_a_fake_kernel_it_is_refused():
    counted = Counted("unknown", None)
    with pytest.raises(smelt.RecordError, match="smelt_recorded_unknown::op.*register_fake"):
        smelt.record(lambda x: counted.op(x), torch.randn(3))
    assert counted.calls == 0


def test_ops_are_never_merged_dropped_or_reordered():
    order = []
    library = torch.library.Library("smelt_recorded_order", "DEF")
    library.define("note(Tensor x, int tag) -> Tensor")
    library.impl("note", lambda x, tag: order.append(tag) or x + tag, "CPU")
    library.impl("note", lambda x, tag: torch.empty_like(x), "Meta")
    note = torch.ops.smelt_recorded_order.note

    def function(x):
        note(x, 1)
        b = note(x, 2)
        c = note(x, 2)
        note(c, 3)
        return b + c

    x = torch.randn(3)
    graph = smelt.record(function, x)
    assert order == []
    torch.testing.assert_close(graph.run(x), (x + 2) * 2)
    assert order == [1, 2, 2, 3]


# Ops that neither a rule of smelt's nor a C++ meta kernel types are refused, and not run either.
UNTYPED = {
    "matrix_exp": lambda x: torch.linalg.matrix_exp(x),
    "bilinear": lambda x: torch.nn.functional.bilinear(x, x, torch.ones(2, 3, 3)),
    "multinomial": lambda x: torch.multinomial(x.abs(), 2),
    "fft": lambda x: torch.fft.fft2(x).real,
    "grid": lambda x: torch.nn.functional.grid_sample(x[None, None], torch.zeros(1, 2, 2, 2), align_corners=False),
}


@pytest.mark.parametrize("program", UNTYPED)
def test_no_contents_are_invented(program):
    before = smelt.stats()
    assert "shapes_probe" not in before
    x = torch.rand(3, 3) + 0.1
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        try:
            smelt.record(UNTYPED[program], x)
        except smelt.RecordError:
            pass
    fills = [event.name for event in profile.events() if event.name in ("aten::fill_", "aten::zero_", "aten::rand")]
    assert not fills


LSTM = """
import torch, smelt
torch.backends.mkldnn.verbose(1).__enter__()
layer, x = torch.nn.LSTM(4, 5), torch.randn(3, 2, 4)
print("recorded", flush=True)
graph = smelt.record(layer, x)
print("compiled", flush=True)
compiled = smelt.compile(layer)
for _ in range(2):
    compiled(x)[0].sum().backward()
"""


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="oneDNN computes it")
def test_a_library_is_not_asked_by_running_it():
    """What oneDNN's LSTM keeps for its gradient only oneDNN knows; it runs as often as eager runs it."""
    done = subprocess.run([sys.executable, "-c", LSTM], capture_output=True, text=True, check=True)
    recorded, compiled = done.stdout.split("compiled\n")
    assert "exec,cpu,rnn" not in recorded
    assert compiled.count("exec,cpu,rnn") == 4


def test_a_kernel_is_not_run_for_its_message():
    """What no rule knows, and PyTorch's kernel for tensors without memory finds nothing wrong with, is refused."""
    x = torch.randn(4, 4)
    with pytest.raises(smelt.RecordError):
        smelt.record(lambda x: torch.linalg.eig(x).eigenvalues.nonzero(), x)
