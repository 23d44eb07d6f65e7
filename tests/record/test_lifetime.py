"""What a recording keeps alive, and what becomes of tensors that user code stores while it runs."""

import gc
import weakref

import pytest
import torch
from record_check import same
from torch import nn

import smelt


def mlp():
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))


def train(model, x):
    model.zero_grad()
    model(x).pow(2).sum().backward()


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def test_stored_tensor_is_a_clear_error():
    stored = []

    def fn(x):
        y = x * 2
        stored.extend([y, y[0], x + 1])
        return y

    x = torch.randn(3)
    graph = smelt.record(fn, x)
    same(graph.run(x), x * 2)
    for t in stored:
        assert t.dtype == torch.float32  # what it is may be asked
        for use in (lambda: t + 1, lambda: t.add_(1), lambda: t.item(), lambda: t.clone(), lambda: torch.stack([t, t])):
            with pytest.raises(smelt.Error, match="Return it from the recorded function"):
                use()
        with pytest.raises(RuntimeError):
            t.numpy()
        with pytest.raises(RuntimeError):
            repr(t)


def test_stored_tensor_in_a_module():
    model = nn.Linear(3, 3)

    def fn(x):
        model.cache = model(x)
        return model.cache * 2

    graph = smelt.record(fn, torch.ones(1, 3))
    with pytest.raises(smelt.Error, match="no contents"):
        model.cache + 1
    same(graph.run(torch.ones(1, 3)), (model(torch.ones(1, 3)) * 2).detach())


def test_stored_tensor_in_the_next_recording():
    stored = []
    smelt.record(lambda x: stored.append(x * 2), torch.ones(3))
    with pytest.raises(smelt.Error, match="no contents"):
        smelt.record(lambda x: x + stored[0], torch.ones(3))
    with pytest.raises(smelt.Error):
        smelt.record(lambda x: stored[0], torch.ones(3))
    with pytest.raises(smelt.Error):
        smelt.record(lambda x, y: x + 1, torch.ones(3), stored[0])
    graph = smelt.record(lambda x: x + 1, torch.ones(3))
    with pytest.raises(smelt.Error):
        graph.run(stored[0])


def test_stored_gradient_function():
    """An autograd graph of the recording that outlives it."""
    stored = []
    w = torch.ones(3, requires_grad=True)
    smelt.record(lambda: stored.append((w * 2).sum()))
    with pytest.raises(smelt.Error, match="no contents|not.*take part"):
        stored[0].backward()
    assert w.grad is None


def test_optimizer_state_made_inside():
    """The momentum buffers come into being in the first step; made in a recording, they would have no contents."""
    model = mlp()
    for p in model.parameters():
        p.grad = torch.randn_like(p)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    with pytest.raises(smelt.RecordError, match="run one step eagerly"):
        smelt.record(optimizer.step)
    optimizer.step()  # goes on as if nothing had happened
    assert all(torch.equal(optimizer.state[p]["momentum_buffer"], p.grad) for p in model.parameters())


def test_graph_keeps_its_parameters_and_lets_them_go():
    model, x = mlp(), torch.randn(2, 6)
    expected = model(x).detach()
    graph = smelt.record(model, x)
    parameter = weakref.ref(model[0].weight)
    argument = weakref.ref(x)
    kept = x.clone()
    del model, x
    gc.collect()
    assert argument() is None  # arguments are not kept
    same(graph.run(kept), expected)
    del graph
    gc.collect()
    assert parameter() is None


@pytest.mark.parametrize("ending", ["returns", "raises", "refused"])
def test_nothing_is_kept_by_a_recording(ending):
    model, x = mlp(), torch.randn(2, 6)

    def fn(model, x):
        train(model, x)
        if ending == "raises":
            raise KeyError("no")
        if ending == "refused":
            x.sum().item()

    try:
        smelt.record(fn, model, x)
    except (KeyError, smelt.RecordError):
        pass
    watched = [weakref.ref(t) for t in (x, *model.parameters())] + [weakref.ref(model)]
    del model, x
    gc.collect()
    assert [w() for w in watched] == [None] * len(watched)


def test_intermediates_are_freed_with_the_recording():
    alive = []

    def fn(x):
        y = x * 2
        alive.append(weakref.ref(y))
        return y.sum()

    smelt.record(fn, torch.randn(3))
    gc.collect()
    assert alive[0]() is None


def test_reference_counts_of_the_callers_tensors():
    import sys

    model, x = mlp(), torch.randn(2, 6)
    train(model, x)
    tensors = [x, *model.parameters()]
    before = [sys.getrefcount(t) for t in tensors], [t._use_count() for t in tensors]
    for _ in range(5):
        smelt.record(train, model, x)
    gc.collect()
    assert ([sys.getrefcount(t) for t in tensors], [t._use_count() for t in tensors]) == before


def test_memory_does_not_grow():
    model, x = mlp(), torch.randn(2, 6)
    train(model, x)

    def work(times):
        for _ in range(times):
            graph = smelt.record(train, model, x)
            graph.run(model, x)
            try:
                smelt.record(lambda: x.sum().item())
            except smelt.RecordError:
                pass
        del graph
        gc.collect()

    work(50)
    objects, tensors, memory = len(gc.get_objects()), count_tensors(), resident_bytes()
    work(200)
    assert count_tensors() == tensors
    assert len(gc.get_objects()) <= objects + 20
    assert resident_bytes() - memory < 4 << 20  # 400 recordings of about 40 ops


def count_tensors():
    return sum(isinstance(o, torch.Tensor) for o in gc.get_objects())


def test_memory_of_a_run_is_freed():
    """Big intermediates die inside the run, results with the caller's reference."""
    x = torch.randn(1 << 20)

    def fn(x):
        for _ in range(50):
            x = x * 1.01
        return x

    graph = smelt.record(fn, x)
    graph.run(x)
    memory = resident_bytes()
    for _ in range(5):
        graph.run(x)
    assert resident_bytes() - memory < 40 << 20  # 50 intermediates would be 200 MiB


def test_weak_references_to_the_callers_tensors():
    """A tensor with weak references in Python is recorded as any other, and they see it afterwards."""
    w = torch.randn(3, requires_grad=True)
    ref = weakref.ref(w)

    def fn(x):
        assert ref() is w
        return w * x

    graph = smelt.record(fn, torch.ones(3))
    assert ref() is w
    same(graph.run(torch.ones(3)), w.detach())
