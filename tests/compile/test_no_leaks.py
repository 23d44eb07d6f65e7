"""Cached calls keep nothing: no object, no reference, no memory."""

import ctypes
import gc
import sys
import weakref

import pytest
import torch
from torch import nn

import smelt


class HeapState(ctypes.Structure):
    """glibc's struct mallinfo2."""

    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")]


mallinfo2 = ctypes.CDLL(None).mallinfo2
mallinfo2.restype = HeapState


def bytes_in_use():
    """What malloc has handed out and not got back, and Python's small blocks. Unlike the resident size of a process in
    which a thousand tests ran before, it depends on nothing but what is held."""
    heap = mallinfo2()
    return heap.uordblks + heap.hblkhd + 64 * sys.getallocatedblocks()


class Holder:
    def __init__(self):
        self.count, self.last, self.seen = 0, None, []


HOLDER = Holder()


def broken(x, holder, k=2):
    """A break in the middle, effects on both sides, things made and dropped."""
    holder.count += 1
    y = x * k + holder.count
    parts = [y, {"y": y, "n": holder.count}]
    n = y.sum().item()
    holder.last = y
    holder.seen.append(n)
    del holder.seen[:]
    return (y + n, parts[1]["n"], f"{k}")


def whole(x, holder, k=2):
    holder.count += 1
    holder.last = x * k
    return [holder.last + holder.count, (x, k)]


def raises(x, holder, k=2):
    y = x * k
    try:
        raise ValueError(y)
    except ValueError as e:
        holder.last = e.args[0]
    return holder.last + 1


def generates(x, holder, k=2):
    return sum(y * i for i, y in enumerate(x * j for j in range(k))) + x.max().item()


def calls(compiled, holder, x, count):
    for _ in range(count):
        compiled(x, holder)


def growth(fn, count):
    """Objects, references to what the call is given, and bytes that `count` cached calls leave behind.

    Twice, and the lesser of the bytes counts: what is lost is lost each time, a cache that grows once is not.
    """
    compiled, holder, x = smelt.compile(fn, backend="eager"), Holder(), torch.ones(3)
    watched = (x, holder, fn, fn.__code__, HOLDER, None, True, Holder, torch.Tensor)
    calls(compiled, holder, x, 2000)  # compiled, caches warm
    counts = []
    for n in (0, count, count):
        calls(compiled, holder, x, n)
        gc.collect()
        gc.collect()
        counts.append((len(gc.get_objects()), [sys.getrefcount(w) for w in watched], bytes_in_use()))
    (objects, references, first), (_, _, second), (objects_after, references_after, third) = counts
    more_references = [b - a for a, b in zip(references, references_after)]
    return objects_after - objects, more_references, min(second - first, third - second)


@pytest.mark.filterwarnings("error:smelt")  # given up: no cached calls any more
@pytest.mark.parametrize("fn", [broken, whole, raises, generates], ids=lambda fn: fn.__name__)
def test_cached_calls_leave_nothing(fn):
    count = 10_000
    objects, references, memory = growth(fn, count)
    assert objects < 50, f"{objects} objects more"
    assert max(map(abs, references)) < 50, references
    assert memory < 64 << 10, f"{memory} bytes more"


@pytest.mark.filterwarnings("error:smelt")
@pytest.mark.slow
def test_100_000_cached_calls_with_a_break_leave_nothing():
    objects, references, memory = growth(broken, 100_000)
    assert objects < 50, f"{objects} objects more"
    assert max(map(abs, references)) < 50, references
    assert memory < 64 << 10, f"{memory} bytes more"


def test_results_are_freed():
    compiled, holder = smelt.compile(broken, backend="eager"), Holder()
    for _ in range(4):
        x = torch.ones(3)
        y, *_ = compiled(x, holder)
        held = [weakref.ref(x), weakref.ref(y)]
        holder.last = None
        del x, y, _
        gc.collect()
        assert [ref() for ref in held] == [None, None]


def test_arguments_are_not_kept():
    """What was given in the call that compiled is not held by what was compiled."""
    compiled = smelt.compile(broken, backend="eager")
    x, holder = torch.ones(3), Holder()
    held = [weakref.ref(x), weakref.ref(holder)]
    compiled(x, holder)
    compiled(x, holder)
    del x, holder
    gc.collect()
    assert [ref() for ref in held] == [None, None]


def test_a_model_is_freed_with_its_code():
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 1))
    compiled = smelt.compile(model, backend="eager")
    for _ in range(3):
        compiled(torch.ones(2, 3))
    held = [weakref.ref(model), weakref.ref(model[0].weight), weakref.ref(compiled)]
    del model, compiled
    gc.collect()
    assert [ref() for ref in held] == [None, None, None]


def test_compiling_again_and_again_leaves_nothing():
    def once():
        model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
        compiled = smelt.compile(lambda x, k: model(x).sum() * k, backend="eager")
        for _ in range(3):
            compiled(torch.ones(2, 3), 2)
    for _ in range(20):
        once()
    gc.collect()
    objects, memory = len(gc.get_objects()), bytes_in_use()
    for _ in range(300):
        once()
    gc.collect()
    assert len(gc.get_objects()) - objects < 300
    assert bytes_in_use() - memory < 1 << 20


def test_recompiles_leave_nothing_after_reset():
    def fn(x, n):
        return x * 2 if n % 2 else x + len(str(n))
    smelt.reset()
    gc.collect()
    for round in range(3):
        compiled = smelt.compile(fn, backend="eager")
        for n in range(8):
            compiled(torch.ones(n + 2), n)
        del compiled
        smelt.reset()
        gc.collect()
        objects = len(gc.get_objects())
        if round == 0:
            first = objects
    assert objects - first < 50
