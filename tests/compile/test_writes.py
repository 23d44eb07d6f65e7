"""Programs that change tensors of the caller: what kernels store in place, and what the caller can tell."""

import copy

import generated
import pytest
import torch
from native_check import check
from torch import nn
from torch.profiler import ProfilerActivity, profile

import smelt

BACKENDS = pytest.mark.parametrize("backend", ("native", "interpret"))
KERNELS = pytest.mark.skipif(not generated.HAS_KERNELS, reason="built without LLVM")


def stored(graph):
    """How many inputs kernels of a recorded graph store into."""
    return graph.program().count(" into ")


def taken(call, least):
    """The blocks of at least so many bytes that a call takes from PyTorch's allocator."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        call()
    events = profiled.profiler.kineto_results.events()
    return [event.nbytes() for event in events if event.name() == "[memory]" and event.nbytes() >= least]


def normal(*shapes):
    def make():
        generator = torch.Generator().manual_seed(0)
        return tuple(torch.randn(shape, generator=generator) for shape in shapes)
    return make


# -- in-place code compiled


def chain(x, y):
    x.mul_(2).add_(y)
    x.sigmoid_()
    return (x * y).sum(-1)


def swap(x, y):
    old = x.clone()
    x.copy_(y)
    y.copy_(old)
    return x - y


def transposed(x, y):
    x.add_(x.t())
    return x + y


def running(x, y):
    x.lerp_(y.softmax(-1), 0.1)
    y.sub_(x)
    return y.relu()


def returned(x, y):
    y.copy_(x.exp())
    return y, y.t()


def softmax_in_place(x, y):
    x.copy_(torch.softmax(x, -1))
    return y * 2


def before_a_call(x, y):
    x.add_(1)
    y.add_(x @ x)
    return y.tanh()


def columns(x, y):
    x.t().copy_(y)
    return x.sum()


@BACKENDS
@pytest.mark.parametrize("function", (chain, swap, transposed, running, returned, softmax_in_place, before_a_call, columns))
def test_in_place_code(function, backend):
    check(function, normal((40, 40), (40, 40)), backend=backend)


@KERNELS
def test_kernels_store_in_place():
    compiled = smelt.compile(chain)
    x, y = normal((300, 300), (300, 300))()
    before = smelt.stats()["ops_native"]
    with torch.no_grad():
        compiled(x, y)
        assert smelt.stats()["ops_native"] > before, "a graph of kernels"
        compiled(x, y)
        blocks = taken(lambda: compiled(x, y), x.nbytes)
    assert blocks == []


@KERNELS
def test_what_would_be_copied_is_left_to_the_ops():
    def called(x):
        x.lgamma_()
        return x * 2

    def one_row(cache, row):
        cache[3].copy_(row)
        return cache.sum()

    def some_rows(table, rows):
        table.index_add_(0, torch.tensor([3, 3, 150]), rows)
        return table.sum()
    cases = (called, normal(20000)), (one_row, normal((100, 100), (100,))), (some_rows, normal((200, 100), (3, 100)))
    for function, inputs in cases:
        smelt.reset()
        before = smelt.stats()["ops_native"]
        check(function, inputs)
        assert smelt.stats()["ops_native"] == before, function


@KERNELS
@pytest.mark.parametrize("dim", (0, 1))
def test_a_running_sum_is_stored_in_place(dim):
    def function(x):
        x.cumsum_(dim)
        return x * 2
    smelt.reset()
    before = smelt.stats()["ops_native"]
    check(function, normal((150, 200)))
    assert smelt.stats()["ops_native"] != before


def test_two_arguments_on_one_memory():
    def function(x, y):
        x.add_(1)
        y.mul_(2)
        return x + y

    def overlapping():
        base = torch.arange(12.0)
        return base[:8], base[4:]
    compiled = smelt.compile(function)
    for make in (normal(8, 8), overlapping, normal(8, 8), overlapping):
        mine, theirs = make(), make()
        with torch.no_grad():
            assert torch.equal(compiled(*mine), function(*theirs))
        assert all(torch.equal(a, b) for a, b in zip(mine, theirs))


# -- what autograd and the caller can tell


@BACKENDS
def test_versions(backend):
    def function(x, y):
        x.add_(1)
        y[:, :2].zero_()
        return x * 1
    compiled = smelt.compile(function, backend=backend)
    for _ in range(3):
        x, y = torch.randn(4, 4), torch.randn(4, 4)
        view = x[1:]
        before = x._version, y._version, view._version
        with torch.no_grad():
            compiled(x, y)
        assert x._version > before[0] and y._version > before[1] and view._version > before[2]


def test_a_change_of_a_saved_tensor_is_noticed():
    scale = torch.ones(8)

    def update():
        scale.mul_(2)
    graph = smelt.record(update, backend="native")
    assert stored(graph) == 1 or not generated.HAS_KERNELS
    x = torch.randn(8, requires_grad=True)
    loss = (x * scale).sum()
    graph.run()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_inference_tensors():
    def function(x):
        x.add_(1)
        return x * 2
    with torch.inference_mode():
        x = torch.zeros(4)
        compiled = smelt.compile(function)
        for i in range(3):
            assert torch.equal(compiled(x), torch.full((4,), 2.0 * (i + 1)))
    y = torch.zeros(4)
    graph = smelt.record(lambda t: t.add_(1), y, backend="native")
    with pytest.raises(RuntimeError, match="inference tensor outside InferenceMode"):
        graph.run(x)
    value = 3.0 if generated.HAS_KERNELS else 4.0  # eager's own op refuses when it has written
    assert torch.equal(x, torch.full((4,), value))
    with torch.inference_mode():
        graph.run(x)
    assert torch.equal(x, torch.full((4,), value + 1))


@pytest.mark.parametrize("backend", ("eager", "native", "interpret"))
def test_a_failed_run_has_changed_nothing(backend):
    table, counts = torch.randn(10, 4), torch.zeros(3, 4)

    def function(index):
        counts.add_(table[index])
        return counts.sum()
    graph = smelt.record(function, torch.tensor([1, 2, 3]), backend=backend)
    before = counts.clone(), counts._version
    with pytest.raises(IndexError):
        graph.run(torch.tensor([1, 2, 30]))
    assert torch.equal(counts, before[0]) and counts._version == before[1]
    graph.run(torch.tensor([1, 2, 3]))
    torch.testing.assert_close(counts, table[1:4])


# -- optimizers


def model():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.Tanh(), nn.Linear(32, 24))
    for p in net.parameters():
        p.grad = torch.randn_like(p)
    return net


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, 0.1, foreach=False),
    "sgd foreach": lambda p: torch.optim.SGD(p, 0.1, weight_decay=0.01, foreach=True),
    "sgd fused": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, fused=True),
    "momentum": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.01, foreach=False),
    "momentum foreach": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True, foreach=True),
    "adam fused": lambda p: torch.optim.Adam(p, 0.01, weight_decay=0.1, fused=True),
    "adamw fused": lambda p: torch.optim.AdamW(p, 0.01, amsgrad=True, fused=True),
}


def pair(name):
    mine = model()
    theirs = copy.deepcopy(mine)
    for a, b in zip(mine.parameters(), theirs.parameters()):
        b.grad = a.grad.clone()
    return (mine, OPTIMIZERS[name](mine.parameters())), (theirs, OPTIMIZERS[name](theirs.parameters()))


def assert_same_state(mine, theirs):
    (net, optimizer), (other, other_optimizer) = mine, theirs
    for p, q in zip(net.parameters(), other.parameters()):
        torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(p.grad, q.grad, rtol=1e-5, atol=1e-6)
        for name, value in other_optimizer.state[q].items():
            torch.testing.assert_close(optimizer.state[p][name], value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("backend", ("native", "interpret"))
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizer_steps(name, backend):
    mine, theirs = pair(name)
    for _, optimizer in (mine, theirs):
        optimizer.step()
    graph = smelt.record(lambda: mine[1].step() and None, backend=backend)
    for _ in range(3):
        graph.run()
        theirs[1].step()
        assert_same_state(mine, theirs)


@KERNELS
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_step_takes_no_memory(name):
    (net, optimizer), _ = pair(name)
    optimizer.step()
    graph = smelt.record(lambda: optimizer.step() and None, backend="native")
    assert "smelt::write" in graph.program()
    changed = sum(line.count("smelt::write") for line in graph.program().splitlines())
    assert stored(graph) == changed
    graph.run()
    assert taken(graph.run, min(p.nbytes for p in net.parameters())) == []


@KERNELS
def test_clipped_step_is_one_pass_per_parameter():
    mine, theirs = pair("momentum foreach")

    def step(net, optimizer):
        norm = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        return norm
    step(*mine)
    step(*theirs)
    graph = smelt.record(lambda: step(*mine), backend="native")
    for _ in range(3):
        torch.testing.assert_close(graph.run(), step(*theirs))
        assert_same_state(mine, theirs)
    updates = [line for line in graph.program().splitlines() if " into " in line]
    parameters = len(list(mine[0].parameters()))
    assert len(updates) <= parameters
    assert stored(graph) == 3 * parameters, "parameter, momentum and gradient"


@pytest.mark.parametrize("backend", ("native", "interpret"))
def test_training_step(backend):
    def step(net, optimizer, x, y):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(net(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        optimizer.step()
        return loss.detach()
    mine, theirs = pair("adam fused")
    data = torch.randn(5, 16), torch.randn(5, 24)
    step(*mine, *data)
    step(*theirs, *data)
    graph = smelt.record(lambda x, y: step(*mine, x, y), *data, backend=backend)
    for _ in range(3):
        data = torch.randn(5, 16), torch.randn(5, 24)
        torch.testing.assert_close(graph.run(*data), step(*theirs, *data), rtol=1e-4, atol=1e-5)
        assert_same_state(mine, theirs)


@BACKENDS
def test_running_statistics(backend):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3), nn.BatchNorm2d(4))
    other = copy.deepcopy(net)
    compiled = smelt.compile(net, backend=backend)
    for _ in range(3):
        x = torch.randn(2, 3, 12, 12)
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), other(x), rtol=1e-4, atol=1e-4)
        for a, b in zip(net.buffers(), other.buffers()):
            torch.testing.assert_close(a, b)


# -- ops in place that change what a tensor looks like, and change it back


NO_CHANGES = {
    "squeeze_": lambda x: x.squeeze_(),
    "squeeze_ a dimension": lambda x: x.squeeze_(0),
    "t_ twice": lambda x: x.t_().t_(),
    "unsqueeze_, squeeze_": lambda x: x.unsqueeze_(0).squeeze_(0),
    "transpose_ with itself": lambda x: x.transpose_(1, 1),
    "swapaxes_ twice": lambda x: x.swapaxes_(0, 1).swapaxes_(0, 1),
}


@pytest.mark.parametrize("backend", ("native", "interpret", "eager"))
@pytest.mark.parametrize("name", NO_CHANGES)
def test_a_caller_s_tensor_that_looks_as_before(name, backend):
    change = NO_CHANGES[name]

    def before(x):
        view = x[1:]
        change(x)
        return view, x, x * 2

    def around_writes(x):
        view = x[:, 0]
        x.add_(1)
        change(x)
        view.mul_(2)
        return view, x.sum(), x[0]

    def nothing_else(x):
        change(x)

    for function in (before, around_writes):
        check(function, normal((6, 5)), backend=backend)
    compiled = smelt.compile(nothing_else, backend=backend)
    for _ in range(3):
        x, y = torch.ones(6, 5), torch.ones(6, 5)
        assert compiled(x) is None and nothing_else(y) is None
        assert torch.equal(x, y) and x._version == y._version


RESHAPES = {
    "t_": lambda x: x.t_(),
    "transpose_": lambda x: x.transpose_(0, 1),
    "unsqueeze_": lambda x: x.unsqueeze_(0),
    "resize_": lambda x: x.resize_(2, 5),
}


@pytest.mark.parametrize("order", ("two same two", "same two same", "two two same"))
@pytest.mark.parametrize("backend", ("native", "eager"))
@pytest.mark.parametrize("name", RESHAPES)
def test_one_tensor_for_two_arguments_gets_other_sizes(name, backend, order):
    def function(x, y):
        RESHAPES[name](x)
        return y, y.split(1)[0], y.sum(0)

    compiled = smelt.compile(function, backend=backend)
    for kind in order.split() * 2:
        results = []
        for call in (function, compiled):
            (x,) = normal((4, 5))()
            results.append((call(x, x if kind == "same" else torch.ones(4, 5)), x))
        (want, x), (got, y) = results
        assert x.shape == y.shape and x.stride() == y.stride() and torch.equal(x, y)
        torch.testing.assert_close(got, want)
