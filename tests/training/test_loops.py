"""What loops around a compiled model do: batches of another size, accumulation, autocast, frozen parts, numbers that
change. And what stays in memory meanwhile."""

import copy
import pathlib
import sys

import generated
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import smelt

sys.path.append(str(pathlib.Path(__file__).parents[2] / "bench"))
from measure import peak_bytes  # noqa: E402

pytestmark = pytest.mark.skipif(not generated.HAS_KERNELS, reason="built without LLVM")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Linear(12, 24), nn.BatchNorm1d(24)
        self.second, self.drop, self.head = nn.Linear(24, 24), nn.Dropout(0.3), nn.Linear(24, 4)

    def forward(self, x):
        x = F.relu(self.norm(self.first(x)))
        return self.head(self.drop(F.gelu(self.second(x))))


def assert_equal_states(a, b, near=1e-5):
    for (name, x), (_, y) in zip(a.state_dict().items(), b.state_dict().items(), strict=True):
        torch.testing.assert_close(x, y, rtol=near, atol=near, msg=lambda text: f"{name}: {text}")
    for x, y in zip(a.parameters(), b.parameters(), strict=True):
        assert (x.grad is None) == (y.grad is None)
        if x.grad is not None:
            assert (x.grad.dtype, x.grad.stride()) == (y.grad.dtype, y.grad.stride())
            torch.testing.assert_close(x.grad, y.grad, rtol=near, atol=near)


def both(run, make=Net):
    """The same run of an eager and of a compiled model."""
    torch.manual_seed(0)
    eager = make()
    model = copy.deepcopy(eager)
    compiled = smelt.compile(model)
    outcomes = []
    for module, call in ((eager, eager), (model, compiled)):
        torch.manual_seed(1)
        outcomes.append(run(module, call))
    assert_equal_states(model, eager)
    return outcomes


def test_a_last_smaller_batch():
    data = TensorDataset(torch.randn(70, 12), torch.randint(4, (70,)))

    def run(module, call):
        optimizer = torch.optim.SGD(module.parameters(), lr=0.05)
        before = smelt.stats()["recompiles"]
        for _ in range(3):
            for x, y in DataLoader(data, batch_size=16, shuffle=True):
                optimizer.zero_grad()
                F.cross_entropy(call(x), y).backward()
                optimizer.step()
        return smelt.stats()["recompiles"] - before

    assert both(run)[1] <= 1


def test_gradients_of_several_backwards_add_up():
    def run(module, call):
        optimizer = torch.optim.SGD(module.parameters(), lr=0.05)
        for _ in range(4):
            optimizer.zero_grad(set_to_none=False)
            for _ in range(3):
                (call(torch.randn(8, 12)).square().mean() / 3).backward()
            optimizer.step()

    both(run)


def test_frozen_parts_change_from_epoch_to_epoch():
    def run(module, call):
        for frozen in (("first",), ("first", "norm"), (), ("head",)):
            for name, part in module.named_children():
                part.requires_grad_(name not in frozen)
            for _ in range(3):
                module.zero_grad()
                call(torch.randn(8, 12)).square().mean().backward()

    both(run)


@pytest.mark.parametrize("around", ("model", "loss"))
def test_autocast_around_the_compiled_part(around):
    make = lambda: nn.Sequential(nn.Linear(12, 24), nn.LayerNorm(24), nn.GELU(), nn.Linear(24, 4))  # noqa: E731

    def run(module, call):
        seen = []
        for _ in range(3):
            module.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                y = call(torch.randn(8, 12))
                if around == "loss":
                    loss = F.cross_entropy(y, torch.zeros(8, dtype=torch.long))
            if around == "model":
                loss = y.float().square().mean()
            loss.backward()
            seen.append(loss.detach())
            assert all(p.grad.dtype == torch.float32 for p in module.parameters())
        return seen, [p.grad.clone() for p in module.parameters()]

    torch.manual_seed(0)
    eager = make()
    compiled = smelt.compile(copy.deepcopy(eager))
    outcomes = []
    for call in (eager, compiled):
        torch.manual_seed(1)
        outcomes.append(run(call, call))
    torch.testing.assert_close(outcomes[1], outcomes[0], rtol=3e-2, atol=3e-2)


def test_a_number_that_changes():
    """It is an input of the graph: other values are no other program."""

    def weigh(x, w, alpha):
        return (torch.sigmoid(x @ w) * alpha).square() + w.sum() * x

    compiled = smelt.compile(weigh)
    x, w = torch.randn(6, 6, requires_grad=True), torch.randn(6, 6, requires_grad=True)
    segments = None
    for i, alpha in enumerate((0.5, 0.25, 3.0, -1.5, 0.125)):
        seen = []
        for call in (weigh, compiled):
            y = call(x, w, alpha)
            seen.append([y, *torch.autograd.grad(y.sum(), (x, w), retain_graph=True)])
        torch.testing.assert_close(seen[1], seen[0])
        if i:
            assert y.grad_fn.name() == "SmeltBackward"
            assert segments == (segments := smelt.stats()["segments"]) or i == 1
        segments = smelt.stats()["segments"]
        slope = [torch.autograd.grad(call(x, w, alpha).sum(), x, create_graph=True)[0] for call in (weigh, compiled)]
        twice = [torch.autograd.grad(s.sum(), w)[0] for s in slope]
        torch.testing.assert_close(twice[1], twice[0])


def test_statistics_change_between_forward_and_double_backward():
    """What batch norm wrote matters to no gradient, so a second forward before the backward is no error."""

    def run(module, call):
        x = torch.randn(8, 12, requires_grad=True)
        call(x)
        for _ in range(3):
            first = call(x)
            call(x)
            (slope,) = torch.autograd.grad(first.sum(), x, create_graph=True)
            module.zero_grad()
            slope.square().sum().backward()

    both(run, lambda: nn.Sequential(nn.Linear(12, 8), nn.BatchNorm1d(8), nn.Tanh()))


# -- memory


def saved_bytes(call, *inputs):
    """What is alive after a forward, the output included."""
    call(*inputs)
    out = []
    return peak_bytes(lambda: None, lambda: out.append(call(*inputs)), "cpu")


class Gated(nn.Module):
    """Eager saves both factors and the dropout's noise, each as wide as the activations."""

    def forward(self, x, y):
        return F.dropout((x * y + x) * F.relu(y), 0.5).sum(1)


def test_cheap_results_are_not_kept():
    x, y = torch.randn(512, 512, requires_grad=True), torch.randn(512, 512, requires_grad=True)
    compiled = smelt.compile(Gated())
    compiled(x, y)
    # One byte per element of the mask, and the sums.
    assert saved_bytes(compiled, x, y) < 1.1 * 512 * 512
    assert saved_bytes(Gated(), x, y) > 12 * 512 * 512


class Deep(nn.Module):
    def __init__(self, width=256, depth=8):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))

    def forward(self, x):
        for layer in self.layers:
            x = F.gelu(layer(x))
        return x


def test_the_backward_frees_as_it_goes():
    torch.manual_seed(0)
    eager = Deep()
    compiled = smelt.compile(copy.deepcopy(eager))
    x = torch.randn(1024, 256)

    def step(call):
        call.zero_grad()
        call(x).sum().backward()

    step(compiled)
    peaks = [peak_bytes(lambda: step(call), lambda: step(call), "cpu") for call in (compiled, eager)]
    assert peaks[0] <= peaks[1]


def test_a_retained_graph_keeps_what_it_saved():
    torch.manual_seed(0)
    model = Deep(16, 3)
    compiled = smelt.compile(model)
    x = torch.randn(4, 16)
    for _ in range(3):
        y = compiled(x).sum()
        first = torch.autograd.grad(y, list(model.parameters()), retain_graph=True)
        second = torch.autograd.grad(y, list(model.parameters()))
        for a, b in zip(first, second):
            assert torch.equal(a, b)
        with pytest.raises(RuntimeError, match="second time"):
            y.backward()


@pytest.mark.parametrize("calls", (1, 2, 3))
def test_statistics_do_not_outdate_what_an_earlier_call_saved(calls):
    """A critic with batch norm is called for real and for made up data before one backward pass."""
    def make():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))
    plain, model = make(), make()
    compiled = smelt.compile(model)
    for i in range(3):
        for run in (plain, compiled):
            torch.manual_seed(i)
            version = run[1].running_mean._version
            sum(run(torch.randn(6, 4)).square().mean() for _ in range(calls)).backward()
            assert run[1].running_mean._version == version
        for a, b in zip([*plain.parameters(), *plain.buffers()], [*model.parameters(), *model.buffers()]):
            torch.testing.assert_close(a, b)
            if a.grad is not None:
                torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-5)
