"""The first call, which is traced, needs no more memory than a plain call: what the program has dropped is freed."""
import collections
import contextlib
import pathlib
import sys

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import smelt

sys.path.append(str(pathlib.Path(__file__).parents[2] / "bench"))
from measure import peak_bytes  # noqa: E402
from models.resnet import Bottleneck, ResNet  # noqa: E402

STAGES = 12
SIZE = (256, 256)
BYTES = 4 * SIZE[0] * SIZE[1]


def peak(call):
    return peak_bytes(call, lambda: None, "cpu")


def check(function, make, grad=False):
    """`make()` gives the arguments anew. Both peaks are of a first call."""
    peaks = []
    for call in (function, smelt.compile(function)):
        arguments = make()
        with contextlib.nullcontext() if grad else torch.no_grad():
            peaks.append(peak(lambda call=call, arguments=arguments: call(*arguments)))
        del arguments
    assert peaks[0] >= BYTES
    assert peaks[1] <= 1.1 * peaks[0]


def x():
    return (torch.randn(SIZE),)


# -- where a program can keep a tensor for a while

Pair = collections.namedtuple("Pair", "first second")


class Box:
    def __init__(self, value):
        self.value = value


class Slotted:
    __slots__ = ("value",)


def through_variables(x):
    for _ in range(STAGES):
        y = x + 1
        x = y * 2
    return x


def through_tuples(x):
    for _ in range(STAGES):
        pair = (x + 1, x + 2)
        x = pair[0] * pair[1]
    return x


def through_unpacking(x):
    for _ in range(STAGES):
        a, b = x + 1, x + 2
        a, *rest = b, a
        x = a * rest[0]
    return x


def through_named_tuples(x):
    for _ in range(STAGES):
        x = Pair(x + 1, x + 2).first
    return x


def through_lists(x):
    for _ in range(STAGES):
        parts = [x + 1]
        parts.append(parts[0] * 2)
        x = parts.pop()
        parts.clear()
    return x


def through_one_list(x):
    parts = []
    for _ in range(STAGES):
        parts.append(x + 1)
        x = parts.pop(0) * 2
    return x


def through_replaced_items(x):
    parts = [x, x]
    for i in range(STAGES):
        parts[i % 2] = parts[1 - i % 2] + 1
    return parts[0]


def through_deleted_items(x):
    parts = [x]
    for _ in range(STAGES):
        parts.append(parts[0] + 1)
        del parts[0]
    return parts[0]


def through_slices(x):
    parts = [x]
    for _ in range(STAGES):
        parts[:] = [part + 1 for part in parts]
    return parts[0]


def through_dicts(x):
    kept = {}
    for i in range(STAGES):
        kept["y"] = x + 1
        kept[i] = kept["y"] * 2
        x = kept.pop(i)
    return x


def through_objects(x):
    for _ in range(STAGES):
        box = Box(x + 1)
        box.value = box.value * 2
        x = box.value
    return x


def through_slots(x):
    box = Slotted()
    box.value = x
    for _ in range(STAGES):
        box.value = box.value + 1
    return box.value


def through_closures(x):
    for _ in range(STAGES):
        y = x + 1

        def inner(by):
            return y * by

        x = inner(2)
    return x


def through_cells(x):
    def step():
        nonlocal x
        x = x + 1

    for _ in range(STAGES):
        step()
    return x


def through_calls(x):
    def step(*args, **named):
        return args[0] + named["one"]

    for _ in range(STAGES):
        x = step(*(x + 1,), **{"one": x})
    return x


def through_methods(x):
    class Step:
        def __init__(self, x):
            self.x = x

        def __call__(self):
            return self.x + 1

        @property
        def twice(self):
            return self.x * 2

    for _ in range(STAGES):
        step = Step(x)
        bound = step.__call__
        x = Step(bound()).twice
    return x


def through_iterators(x):
    for _ in range(STAGES):
        for _, part in enumerate([x + 1, x + 2]):
            x = part * 2
        for a, b in zip([x + 1], (x + 2,)):
            x = a * b
    return x


def through_generators(x):
    def parts(x):
        y = x + 1
        yield y
        yield y * 2

    for _ in range(STAGES):
        x = list(parts(x))[1]
        x = next(parts(x))
    return x


def through_comprehensions(x):
    for _ in range(STAGES):
        x = [y for y in [x + 1]][0]
        x = {k: v for k, v in {"x": x * 2}.items()}["x"]
    return x


def through_lambdas(x):
    for _ in range(STAGES):
        x = list(map(lambda y: y + 1, [x]))[0]
    return x


def through_exceptions(x):
    for _ in range(STAGES):
        try:
            y = x + 1
            raise ValueError
        except ValueError:
            x = y * 2
    return x


def through_with(x):
    @contextlib.contextmanager
    def given(x):
        yield x + 1

    for _ in range(STAGES):
        with given(x) as y:
            x = y * 2
    return x


def through_views(x):
    for _ in range(STAGES):
        x = (x.view(-1)[:].view(SIZE) + 1).t().t()
    return x


def through_several_results(x):
    for _ in range(STAGES):
        values, _ = x.max(0, keepdim=True)
        a, b = torch.cat([x, x]).chunk(2)
        x = a * b + values
    return x


def through_writes(x):
    for _ in range(STAGES):
        y = torch.empty_like(x)
        y.copy_(x)
        y.add_(1).mul_(2)
        x = torch.add(y, 1, out=torch.empty_like(y))
    return x


def through_a_break(x):
    for i in range(STAGES):
        kept = [x + 1]
        if i == STAGES // 2:
            print(end="")
        x = kept[0] * 2
    return x


def through_recursion(x, depth=STAGES):
    kept = [x + 1]
    y = kept.pop()
    return y if depth == 0 else through_recursion(y, depth - 1)


PROGRAMS = [value for name, value in sorted(globals().items()) if name.startswith("through_")]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_what_is_dropped_is_freed(program):
    check(program, x)


@pytest.mark.parametrize("program", [through_tuples, through_lists, through_objects, through_closures,
                                     through_views], ids=lambda program: program.__name__)
def test_with_gradients(program):
    check(program, lambda: (torch.randn(SIZE, requires_grad=True),), grad=True)


@pytest.mark.parametrize("program", [through_tuples, through_lists, through_objects, through_closures],
                         ids=lambda program: program.__name__)
def test_with_a_backward_pass(program):
    def step(x):
        program(x).square().mean().backward()

    check(step, lambda: (torch.randn(SIZE, requires_grad=True),), grad=True)


# -- what existed before


def test_a_tensor_that_is_replaced_in_an_object():
    def f(box):
        for _ in range(STAGES):
            box.value = box.value + 1
        return box.value.sum()

    check(f, lambda: (Box(torch.randn(SIZE)),))


def test_tensors_that_are_taken_out_of_containers():
    def f(tensors, named):
        total = torch.zeros(SIZE)
        while tensors:
            total = total + tensors.pop()
        for name in ("a", "b"):
            total = total + named[name]
            del named[name]
            total = total * (total + 1)
        return total

    # Without these the peak is the same, but for what was there before.
    def make():
        return ([torch.randn(SIZE) for _ in range(3)], {name: torch.randn(SIZE) for name in "ab"})

    peaks = []
    for call in (f, smelt.compile(f)):
        arguments = []
        peaks.append(peak_bytes(lambda call=call, arguments=arguments: call(*arguments[0]),
                                lambda arguments=arguments: arguments.append(make()), "cpu"))
    assert peaks[1] <= 1.1 * peaks[0]


def test_gradients_that_are_cleared():
    def step(model, x):
        model.zero_grad()
        model(x).square().mean().backward()

    peaks = []
    for compiled in (False, True):
        model, x = nn.Sequential(*(nn.Linear(256, 256, bias=False) for _ in range(STAGES))), torch.randn(4, 256)
        call = smelt.compile(step) if compiled else step
        peaks.append(peak_bytes(lambda: call(model, x), lambda: model(x).sum().backward(), "cpu"))
    assert peaks[1] <= 1.1 * peaks[0]


# -- models


def layers():
    parts = []
    for _ in range(40):
        parts += [nn.Linear(64, 64), nn.ReLU()]
    return nn.Sequential(*parts), torch.randn(2048, 64)


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in self.qkv(x).split(width, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(width), Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


def transformer():
    return nn.Sequential(*(Block(64, 2) for _ in range(6))), torch.randn(4, 128, 64)


def resnet():
    return ResNet(widths=(64, 128, 256, 512), depths=(2, 2, 2, 2), block=Bottleneck).eval(), torch.randn(1, 3, 64, 64)


@pytest.mark.parametrize("train", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("make", [layers, transformer, resnet], ids=lambda make: make.__name__)
def test_a_model(make, train):
    peaks = []
    for compiled in (False, True):
        torch.manual_seed(0)
        model, x = make()
        call = smelt.compile(model) if compiled else model
        if train:
            model.train()
            peaks.append(peak(lambda: call(x).square().mean().backward()))
        else:
            with torch.no_grad():
                peaks.append(peak(lambda: call(x)))
    assert peaks[1] <= 1.1 * peaks[0]
