"""Numbers that tensor ops take at run time: another value is no reason to compile again, and never a wrong result."""

import collections
import copy
import dataclasses
import functools
import gc
import itertools
import math
import threading
import types
import warnings
from typing import NamedTuple

import pytest
import torch
from plain_check import X, check
from rounding import equal_or_near
from torch.nn import functional as F

import smelt

BACKENDS = ["eager", "native"]
FLOATS = [0.5, -1.25, 3.0, 0.0, -0.0, 1e-30, 1e30, math.inf, -math.inf, math.nan, 2.0, 1.0]
INTS = [2, 3, -7, 0, 1, 2**31, -(2**40), 2**62, 5]


def plain(fn, *calls, backend="eager"):
    """What the compiled calls give, compared with plain Python; smelt.stats() after them."""
    smelt.reset()
    compiled = smelt.compile(fn, backend=backend)
    for arguments in calls:
        outcomes = []
        for f in (fn, compiled):
            given = [a.clone() if isinstance(a, torch.Tensor) else a for a in arguments]
            try:
                outcome = f(*given)
            except Exception as error:
                outcome = type(error), str(error)
            outcomes.append((outcome, given))
        same(*outcomes, backend)
    return smelt.stats()


def same(a, b, backend='native'):
    assert type(a) is type(b), (a, b)
    if isinstance(a, torch.Tensor):
        assert (a.dtype, a.shape, a.stride(), a.requires_grad) == (b.dtype, b.shape, b.stride(), b.requires_grad)
        if not a.is_complex() and a.dtype.is_floating_point:
            assert torch.equal(torch.signbit(a) & ~a.isnan(), torch.signbit(b) & ~b.isnan()), (a, b)
        assert equal_or_near(a, b, backend), (a, b)
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for one, other in zip(a, b):
            same(one, other, backend)
    elif isinstance(a, dict):
        same(list(a.items()), list(b.items()), backend)
    elif isinstance(a, Record):
        same(vars(a), vars(b), backend)
    elif isinstance(a, float) and math.isnan(a):
        assert math.isnan(b)
    else:
        assert a == b and math.copysign(1, a) == math.copysign(1, b) if isinstance(a, (int, float)) else a == b


def tensor(dtype=torch.float32):
    return torch.tensor([[-1.5, 0.0, 2.0], [0.25, -3.0, 7.0]]).to(dtype)


OPS = {
    "mul": lambda x, k: x * k,
    "left": lambda x, k: k * x,
    "minus": lambda x, k: (x - k, k - x),
    "over": lambda x, k: (x / k, k / x),
    "floor_divide": lambda x, k: x // k,
    "modulo": lambda x, k: x % k,
    "methods": lambda x, k: x.add(k).sub(k).mul(k).div(k),
    "functions": lambda x, k: torch.add(torch.mul(x, k), k),
    "alpha": lambda x, k: torch.add(x, x, alpha=k),
    "addcmul": lambda x, k: torch.addcmul(x, x, x, value=k),
    "compare": lambda x, k: (x < k, x <= k, x == k, x != k, x > k, x >= k),
    "compare_left": lambda x, k: (k < x, k <= x, k == x, k != x),
    "clamp": lambda x, k: x.clamp(min=k),
    "clamp_both": lambda x, k: x.clamp(k - 2, k + 5),
    "masked_fill": lambda x, k: x.masked_fill(x > 0, k),
    "where": lambda x, k: torch.where(x > 0, x, k),
    "full": lambda x, k: torch.full((2, 2), k),
    "full_like": lambda x, k: torch.full_like(x, k),
    "new_full": lambda x, k: x.new_full((3,), k),
    "fill_": lambda x, k: x.fill_(k),
    "item": lambda x, k: (x.__setitem__(0, k), x.clone())[1],
    "slice": lambda x, k: (x.__setitem__((slice(None), 1), k), x.clone())[1],
    "in_place": lambda x, k: x.mul_(k).add_(k),
    "lerp": lambda x, k: torch.lerp(x, x * 2, k),
    "leaky_relu": lambda x, k: F.leaky_relu(x, k),
    "threshold": lambda x, k: F.threshold(x, 0.0, k),
    "foreach": lambda x, k: torch._foreach_mul([x, x * 2], k),
    "foreach_list": lambda x, k: torch._foreach_add([x, x * 2], [k, 1.0]),
    "foreach_": lambda x, k: (torch._foreach_mul_([x], k), x.clone())[1],
    "sum": lambda x, k: (x * k).sum() + k * 2 - (k + 1),
    "expressions": lambda x, k: x * (k * 2 + 1) - k / 4 + (-k),
    "constant_pad": lambda x, k: torch.constant_pad_nd(x, (1, 1), k),
    "torch_ops": lambda x, k: torch.ops.aten.mul.Scalar(x, k),
    "scalar_tensor": lambda x, k: torch.scalar_tensor(k) + x,
    "iadd": lambda x, k: x.__iadd__(k),
    "nothing": lambda x, k: x + 1,
    "returned": lambda x, k: (x + 1, k, [k, (k, {"k": k})]),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", OPS)
def test_floats(name, backend):
    stats = plain(OPS[name], *[(tensor(), k) for k in FLOATS], backend=backend)
    assert stats["recompiles"] == 0
    assert stats["graph_breaks"] == 0


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", OPS)
def test_ints(name, backend):
    if name == "foreach_list":
        pytest.skip("a list of int and float")
    stats = plain(OPS[name], *[(tensor(), k) for k in INTS], backend=backend)
    assert stats["recompiles"] == 0


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.int64, torch.int8, torch.uint8, torch.bool, torch.float64, torch.bfloat16,
                                   torch.complex64], ids=str)
@pytest.mark.parametrize("name", ["mul", "left", "minus", "over", "alpha", "clamp", "where", "compare", "fill_", "item",
                                  "in_place", "full_like", "masked_fill", "foreach"])
def test_types_and_errors(name, dtype, backend):
    """What PyTorch refuses, and the errors that depend on the value, are those of plain Python."""
    plain(OPS[name], *[(tensor(dtype), k) for k in (2.5, -1.0, 1e20, 0.0)], backend=backend)
    plain(OPS[name], *[(tensor(dtype), k) for k in (2, 100, 300, -1, 0)], backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_powers(backend):
    x = torch.tensor([0.5, 2.0, 3.0, 0.0])
    for fn in (lambda x, k: x ** k, lambda x, k: x.pow(k), lambda x, k: torch.pow(k, x), lambda x, k: k ** x,
               lambda x, k: torch.float_power(x, k)):
        stats = plain(fn, *[(x, k) for k in (0.5, 2.0, 3.0, -1.0, 0.0, 1.0, -2.0, -0.5, 1.5)], backend=backend)
        assert stats["recompiles"] == 0
        plain(fn, *[(x.long(), k) for k in (0, 1, 2, -1, 3)], backend=backend)  # -1 raises
    x = torch.tensor([0.5, 2.0], requires_grad=True)
    plain(lambda x, k: x ** k, *[(x, k) for k in (2.0, 0.0, 1.0, 3.0)], backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients(backend):
    def fn(x, k):
        return ((x * k).sin() + k).clamp(max=k).sum() / k
    compiled = smelt.compile(fn, backend=backend)
    for k in (0.5, 2.0, -3.0, 1.0):
        x, y = tensor().requires_grad_(), tensor().requires_grad_()
        a, b = fn(x, k), compiled(y, k)
        a.backward()
        b.backward()
        same(a.detach(), b.detach(), backend)
        same(x.grad, y.grad, backend)
    assert smelt.stats()["recompiles"] == 0


def test_bool_is_part_of_the_graph():
    def fn(x, k):
        return x * k, torch.full((2,), k)
    stats = plain(fn, *[(tensor(), k) for k in (True, False, True, 1, 0, 2, 1.0, 0.0, 3.0, True)])
    assert stats["recompiles"] == 3  # False, int, float


def test_type_change_compiles_again():
    stats = plain(lambda x, k: (torch.full((2,), k), x.long() * k), *[(tensor(), k) for k in (1, 2, 1.5, 2.5, 3, 4.0)])
    assert stats["recompiles"] == 1


def test_subclasses_and_numpy_scalars():
    numpy = pytest.importorskip("numpy")

    class Number(float):
        pass

    class Integer(int):
        pass
    for values in ((Number(1.5), Number(2.5), 1.5), (Integer(2), Integer(3), 2),
                   (numpy.float64(1.5), numpy.float64(2.5), numpy.float32(1.5), numpy.int64(3), 2.0)):
        plain(lambda x, k: x * k + k, *[(tensor(), k) for k in values])


def test_huge_ints():
    """More than 64 bits: whatever PyTorch says, and the next small one is right again."""
    for fn in (lambda x, k: x * k, lambda x, k: x.clamp(max=k), lambda x, k: x.long() + (k + 1),
               lambda x, k: torch.full((2,), k)):
        plain(fn, *[(tensor(), k) for k in (1, 2**63, 2, 2**64 - 1, 2**100, 3, -(2**63), -(2**63) - 1, 2**63 - 1, 4)])
        plain(fn, *[(tensor(), k) for k in (2**100, 1, 2**63, 2)])


@pytest.mark.parametrize("backend", BACKENDS)
def test_sizes_and_dimensions_are_part_of_the_graph(backend):
    x = torch.arange(24.0).view(2, 3, 4)
    for fn, values in [
            (lambda x, n: torch.arange(n), (3, 5, 3, 4)), (lambda x, n: torch.arange(n, 9, 2), (3, 5, 3, 4)),
            (lambda x, n: torch.arange(0, 1, n), (0.25, 0.5, 0.1, 0.25)),
            (lambda x, n: torch.zeros(n), (3, 5, 3)), (lambda x, n: torch.full((n, 2), n), (3, 5, 3)),
            (lambda x, n: x.sum(n), (0, 1, 2, -1, 0)), (lambda x, n: x.view(n, -1), (2, 3, 4, 24)),
            (lambda x, n: x.view((n, -1)), (2, 3, 4, 24)), (lambda x, n: x[:, :n], (1, 2, 3)),
            (lambda x, n: x[n], (0, 1, -1)), (lambda x, n: x.transpose(0, n), (1, 2, 0)),
            (lambda x, n: x.repeat(n, 1, 1), (1, 2, 3)), (lambda x, n: x.narrow(2, n, 2), (0, 1, 2)),
            (lambda x, n: torch.linspace(0, n, 3), (1, 2, 3)), (lambda x, n: torch.linspace(0, 1, n), (1, 2, 3)),
            (lambda x, n: x.expand(n, 2, 3, 4).shape[0] + n, (1, 2, 3)), (lambda x, n: x.topk(n), (1, 2, 3)),
            (lambda x, n: F.layer_norm(x, (4,), eps=n), (1e-5, 1e-2, 0.5)), (lambda x, n: x.roll(n, 0), (1, 2, 3)),
            (lambda x, n: F.pad(x, (1, 1), value=n), (0.5, 1.5, -1.0)),
            (lambda x, n: F.dropout(x, n, False), (0.5, 0.1)), (lambda x, n: x.softmax(n), (0, 1, 2)),
            (lambda x, n: x.split(n, 2), (1, 2, 3)), (lambda x, n: x.var(correction=n), (0, 1, 2)),
            (lambda x, n: x.norm(n), (1, 2, 3, 0)), (lambda x, n: x.norm(p=n, dim=1), (1.0, 2.0, math.inf)),
            (lambda x, n: torch.tensor(n) + x, (1, 2, 3)), (lambda x, n: torch.tensor([n, 1.0]), (0.5, 1.5)),
            (lambda x, n: x.reshape(-1)[: n * 2].sum() * n, (1, 2, 3)), (lambda x, n: F.gelu(x) * n + n, (1, 2, 3)),
            (lambda x, n: torch.result_type(x.long(), n), (1, 2.0, 3, 1.5)),
            (lambda x, n: (x + 1, torch.is_floating_point(torch.scalar_tensor(n, dtype=None))), (1, 2.0)), (lambda x, n: F.one_hot(torch.arange(3), n), (3, 4))]:
        plain(fn, *[(x, n) for n in values], backend=backend)


def test_random_ops():
    def fn(x, k):
        return torch.rand(2) * k + torch.empty(2).uniform_(0, k) + F.dropout(x[0, :2], k, True)
    compiled = smelt.compile(fn, backend="eager")
    for k in (0.5, 0.25, 0.75, 0.5):
        torch.manual_seed(3)
        a = fn(tensor(), k)
        torch.manual_seed(3)
        same(a, compiled(tensor(), k))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_number_that_changes_a_thousand_times_compiles_at_most_twice(backend):
    holder = types.SimpleNamespace(n=0, rate=1.0)
    settings = {"scale": 0.5}

    def make():
        k = 1.0

        def fn(x):
            return x * k + holder.n * 2 + holder.rate - settings["scale"], settings["scale"]

        def change(value):
            nonlocal k
            k = value
        return fn, change
    fn, change = make()
    smelt.reset()
    compiled, x = smelt.compile(fn, backend=backend), tensor()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for i in range(1000):
            holder.n, holder.rate, settings["scale"] = i, i / 7, 1 / (i + 1)
            change(float(i))
            same(fn(x), compiled(x))
    assert smelt.stats()["recompiles"] == 1


SCALE, STEP = 2.0, 0


def test_globals():
    global SCALE

    def fn(x):
        global STEP
        STEP += 1
        return x * SCALE + STEP
    smelt.reset()
    compiled, x = smelt.compile(fn, backend="eager"), tensor()
    before = STEP
    for i in range(20):
        SCALE = i / 3
        same(compiled(x), x * SCALE + (before + i + 1))
        assert before + i + 1 == STEP
    assert smelt.stats()["recompiles"] == 1


def test_effects_are_seen_afterwards():
    class Model:
        n = 0

        def __init__(self):
            self.rate, self.seen = 1.0, []

        def __call__(self, x):
            self.n += 1
            self.rate *= 0.5
            self.seen.append(self.n)
            return x * self.n + self.rate, self.n
    one, other = Model(), Model()
    smelt.reset()
    compiled = smelt.compile(lambda x: other(x), backend="eager")
    for _ in range(6):
        same(one(tensor()), compiled(tensor()))
        assert (one.n, one.rate, one.seen) == (other.n, other.rate, other.seen)
    assert smelt.stats()["recompiles"] == 0


def test_a_class_default_that_is_deleted_and_set():
    class Model:
        n = 5
    for step in (lambda m: setattr(m, "n", m.n + 1), lambda m: delattr(m, "n"), lambda m: None):
        def fn(x, m):
            y = x * m.n
            if "n" in m.__dict__:
                del m.n
                y = y + m.n
            m.n = m.n * 2
            return y + m.n
        a, b = Model(), Model()
        compiled, x = smelt.compile(fn, backend="eager"), tensor()
        for i in range(6):
            same(fn(x, a), compiled(x, b))
            assert a.__dict__ == b.__dict__
            if i % 2 or "n" in a.__dict__:
                step(a), step(b)
            assert a.__dict__ == b.__dict__
        Model.n = 7
        for _ in range(3):
            same(fn(x, a), compiled(x, b))


def test_in_a_branch_and_in_an_op():
    def fn(x, k):
        y = x * k
        if k > 2:
            y = y + k
        return y - k
    stats = plain(fn, *[(tensor(), k) for k in (1.0, 1.5, 3.0, 2.5, 0.5, 10.0)])
    assert stats["recompiles"] == 1


def test_arithmetic():
    def fn(x, a, b):
        c = a * b + 1
        return x * c - a / (b or 1) + math.sqrt(abs(a)) + a ** 2 + (a // 2) + (-b) + max(a, b)
    plain(fn, *[(tensor(), a, b) for a, b in ((1.0, 2.0), (3.0, 4.0), (-1.0, 0.0), (2, 3), (4.0, 2.0), (2.0, 8.0))])

    def by_zero(x, a, b):
        return x * (a / b)
    plain(by_zero, *[(tensor(), 1.0, b) for b in (1.0, 2.0, 0.0, 3.0)])

    def powers(x, a, b):
        return x * (a ** b)  # an int, a float or a complex number
    plain(powers, *[(tensor(), a, b) for a, b in ((2, 3), (2, -3), (3, 2), (-8.0, 0.5), (2.0, 0.5), (2, 70), (2, 2))])


def test_functions_of_numbers_cause_no_recompile():
    def fn(x, k, n):
        y = x * math.sqrt(abs(k)) + round(k, 1) + int(k * 3) + float(n) + pow(k, 2) + math.floor(k) + math.pi * k
        return y + math.exp(k / 9), int(k), math.isnan(k), math.atan2(k, n), round(k), bool(n)
    for backend in BACKENDS:
        stats = plain(fn, *[(tensor(), k, n) for k, n in ((1.5, 2), (2.5, 3), (3.7, 9), (-0.0, 5), (11.25, 2), (8.5, 4))],
                      backend=backend)
        assert stats["recompiles"] == 0


def test_functions_of_numbers_that_raise_or_give_something_else():
    def root(x, k):
        return x * math.sqrt(k), math.log(k + 1, 2)
    plain(root, *[(tensor(), k) for k in (1.0, 4.0, -1.0, 9.0, 0, True, math.nan, math.inf, 2**70, 4)])

    def whole(x, k):
        return x * int(k) + round(k), math.ceil(k), divmod(k, 2)
    plain(whole, *[(tensor(), k) for k in (1.5, 2.5, math.nan, 1e300, -0.0, True, 3, math.inf, 2.5)])

    def power(x, a, b):
        return x * pow(a, b), round(a, b if isinstance(b, int) else 1)
    plain(power, *[(tensor(), a, b) for a, b in ((2, 3), (2, -3), (0, -1), (2.0, 2), (10, 25), (2, 2))])

    def size(x, k):
        return x.sum() + torch.zeros(int(k)), x * k
    stats = plain(size, *[(tensor(), k) for k in (2.0, 2.25, 2.5, 3.0, 3.75, 2.75)])
    assert stats["recompiles"] == 1  # int(k) is what counts


def test_in_containers():
    def fn(x, a, b):
        pair = (a, b)
        table = {"a": a, "x": [b, x], "pair": pair}
        first, second = pair
        items = [a, b, 3]
        items.append(first)
        y = x * table["a"] + table["x"][0] * items[1] + items[-1]
        for item in items:
            y = y + item
        rest = tuple([*items, *pair])
        return y, table, rest, pair, len(items), {**table, "b": b}
    stats = plain(fn, *[(tensor(), a, b) for a, b in ((1.0, 2.0), (3.0, 4.0), (5.0, 6.0), (1.0, 9.0))])
    assert stats["recompiles"] <= 3

    def changed(x, a):
        items = [a, 2 * a, 3]
        items[0] = 7
        items.insert(0, a)
        items.sort()
        table = {"a": a, "b": a + 1}
        table["a"] = 5
        table.update(c=a)
        del table["b"]
        return x * items[1] + table["a"] + table["c"], items, table, sum(items), a in items, max(items)
    plain(changed, *[(tensor(), a) for a in (1.0, 3.0, -5.0, 8.0)])

    def keys(x, a):
        table = {a: x, (a, 1): 2, "a": a, "a": 3, "b": 1, "b": a}  # noqa: F601
        return table[a] * table["a"] + table["b"], table[(a, 1)], table
    plain(keys, *[(tensor(), a) for a in (1.0, 3.0, 3.0, -5.0)])

    def star(x, *args, **kwargs):
        return x * args[0] + kwargs["k"], args, kwargs, [a + 1 for a in args]

    def calls_star(x, a):
        return star(x, a, 2, k=a * 2), star(x, *(a, a), **{"k": a})
    plain(calls_star, *[(tensor(), a) for a in (1.0, 3.0, -5.0)])

    def compared(x, a):
        return x + 1, (a, 1) == (1.0, 1), [a] == [3.0], (a, 2) < (2.0, 0), hash((a, 1)) == hash((1.0, 1)), f"{(a,)}"
    plain(compared, *[(tensor(), a) for a in (1.0, 3.0, -5.0, 2.0)])


def test_containers_that_are_only_returned_cause_no_recompile():
    def fn(x, a, n):
        return {"y": x * a, "a": a, "all": [a, (n, a)]}, (n + 1, a * 2)
    stats = plain(fn, *[(tensor(), i / 3, i) for i in range(20)])
    assert stats["recompiles"] == 0


def test_dicts_that_are_filled_cause_no_recompile():
    def scaled(x, *, by, plus=0):
        return x * by + plus

    def forward(x, **options):
        return scaled(x, **options)

    def fn(x, a, n):
        table = {"b": 1}
        table["a"] = a
        table["b"] = n
        table["a"] += 1
        return forward(x, by=a, plus=n), {**table, "c": a * 2}, table.get("a"), list(table)
    stats = plain(fn, *[(tensor(), i / 3, i) for i in range(20)])
    assert stats["recompiles"] == 0

    def emptied(x, a):
        table = {}
        table["a"] = a
        table[1] = a
        y = x * table.pop("a") + table[1]
        table["a"] = 2.0
        return y * table["a"], table
    plain(emptied, *[(tensor(), a) for a in (1.0, 3.0, -5.0, 8.0)])


def test_keyword_and_list_arguments():
    def fn(x, a, b):
        return x.clamp(min=a, max=b), torch._foreach_add([x, x], [a, b]), torch._foreach_mul([x], (b,))
    stats = plain(fn, *[(tensor(), a, b) for a, b in ((0.0, 1.0), (-1.0, 3.0), (2.0, 1.0), (-0.0, math.nan))])
    assert stats["recompiles"] == 0
    table = [1.0, 2.0]

    def outside(x):
        return torch._foreach_add([x, x], table)
    smelt.reset()
    compiled = smelt.compile(outside, backend="eager")
    for i in range(6):
        table[:] = [i / 2, i * 3.0]
        same(outside(tensor()), compiled(tensor()))
    assert smelt.stats()["recompiles"] <= 2


def test_after_a_break():
    def fn(x, k):
        total = 0.0
        for i in range(4):
            y = (x * (k + i)).sum().item()
            total = total + y * 2
            x = x + y
        return x * total, total
    smelt.reset()
    plain(fn, *[(tensor(), k) for k in (0.5, 0.25, 0.125)])


def test_errors_leave_no_change_behind():
    """An op that fails because of the number, behind a change of an argument."""
    def fn(x, k):
        x.add_(1)
        return x.fill_(k)
    plain(fn, *[(torch.zeros(3, dtype=torch.uint8), k) for k in (1, 2, 300, 3, -400, 4)])

    def caught(x, k):
        try:
            return x ** k
        except RuntimeError:
            return x - 1
    plain(caught, *[(torch.tensor([1, 2, 3]), k) for k in (1, 2, -1, 3, -2, 0)])


def test_python_sees_no_stand_in():
    """Arguments whose classes take part in the call get the numbers themselves."""
    seen = []

    class Like:
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            seen.extend(type(a) for a in args)
            return args[1] if len(args) > 1 else None

    class Sub(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            seen.extend(type(a) for a in args)
            return super().__torch_function__(function, types, args, kwargs or {})

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            seen.extend(type(a) for a in args)
            return function(*args, **(kwargs or {}))
    like, sub = Like(), tensor().as_subclass(Sub)

    def with_mode(x, k):
        with Mode():
            return x * k

    def with_device(x, k):
        with torch.device("cpu"):
            return torch.full((2,), k) * k + x[0, :2]
    for fn in (lambda x, k: torch.add(like, k), lambda x, k: sub * k + x, lambda x, k: k * sub, with_mode, with_device):
        compiled = smelt.compile(fn, backend="eager")
        for k in (1.0, 2.0, 3.0):
            a, b = fn(tensor(), k), compiled(tensor(), k)
            assert type(a) is type(b)
            assert torch.equal(torch.as_tensor(a), torch.as_tensor(b))
    assert not [t for t in seen if "Sym" in t.__name__]


def test_custom_back_end():
    """It takes tensors only: numbers are part of its graph."""
    def backend(graph, examples):
        assert all(isinstance(e, torch.Tensor) for e in examples)
        return graph.run
    compiled = smelt.compile(lambda x, k: x * k, backend=backend)
    for k in (1.0, 2.0, 3.0):
        same(compiled(tensor(), k), tensor() * k)


def test_custom_ops_get_the_number():
    with torch.library._scoped_library("smelt_scalars", "FRAGMENT") as library:
        library.define("repeated(Tensor x, Scalar n) -> Tensor")
        library.impl("repeated", lambda x, n: x.repeat(int(n), 1), "CompositeExplicitAutograd")
        op = torch.ops.smelt_scalars.repeated

        def fn(x, n):
            y = op(x, n)
            return y * y.shape[0]
        plain(fn, *[(tensor(), n) for n in (1, 2, 3)])
        plain(fn, *[(tensor(), n) for n in (2, 3, 4, 5, 2)])
        plain(lambda x: fn(x, x.shape[0]), *[(torch.randn(n, 3),) for n in (2, 3, 4, 5, 2)])


def test_threads():
    def fn(x, k):
        return (x * k + k).clamp(max=k * 3)
    compiled, failures = smelt.compile(fn, backend="eager"), []

    def work(seed):
        for i in range(200):
            k, x = seed + i / 10, tensor()
            if not torch.equal(fn(x, k), compiled(x, k)):
                failures.append(k)
    threads = [threading.Thread(target=work, args=(i * 1000.0,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures


def test_explain_shows_the_scalars():
    smelt.reset()
    compiled = smelt.compile(lambda x, k: x * k + 2, backend="eager")
    compiled(tensor(), 0.5)
    assert "(%0, s0)" in smelt.explain(compiled)(tensor(), 0.5).segments[0].graph


def test_nothing_is_left():
    def fn(x, k):
        return x * k + k
    compiled, x = smelt.compile(fn, backend="eager"), tensor()
    for i in range(100):
        compiled(x, float(i))
    gc.collect()
    before = len(gc.get_objects())
    for i in range(2000):
        compiled(x, float(i))
    gc.collect()
    assert len(gc.get_objects()) - before < 20


def test_cases_of_the_issue():
    def build():
        class Model:
            n, rate = 0, 1.0
        m = Model()

        def fn(x, k):
            m.n += 1
            for i in range(3):
                x = x * i + k
            return x * m.n + k, m.n
        return fn, m
    stats = check(build, [(X, 0.5), (X, 1.5), (X, 2.5), (X, 3.5)])
    assert stats["recompiles"] == 0
    assert stats["graph_breaks"] == 0


class Pair(NamedTuple):
    a: float
    b: float = 2.0


@dataclasses.dataclass
class Record:
    a: float
    x: object = None


def test_containers_that_c_code_looks_into():
    def chained(x, a):
        return x + sum(itertools.chain.from_iterable([[a, 1], (a * 2,)])), list(itertools.chain([a], [(a, 1)]))

    def named(x, a):
        pair = Pair(a, a + 1)
        return x * pair.a + pair[1] + Pair._make([a, 2]).a, pair, pair._replace(b=a), pair._asdict()

    def ordered(x, a):
        table = collections.OrderedDict([("a", a), ("b", a + 1)])
        counts = collections.Counter([a, a, 1])
        queue = collections.deque([a, 2 * a], maxlen=2)
        queue.append(a)
        return x * table["a"] + queue[0] + counts[a], table, list(queue), dict([("k", a)])["k"], dict(k=a)["k"]

    def defaults(x, a):
        def inner(y, k=a, *, scale=a * 2):
            return y * k + scale
        return inner(x), list(map(inner, [x])), functools.partial(inner, k=a)(x), sorted([3, 1], key=lambda v, k=a: v * k)

    def records(x, a):
        record = Record(a, x)
        record.a += 1
        return record.x * record.a, record, dataclasses.replace(record, a=a).a, vars(record)["a"]

    def sliced(x, a):
        items = [a, a + 1, a + 2]
        head, *tail = items
        return x * items[1:][0] + tail[-1] + head, items[::-1], items * 2, items + [a], items.copy()[0], items.pop(0), \
            items.index(a + 1)

    def views(x, a):
        table = {"a": a, "b": a * 2}
        return [x * v for v in table.values()], list(table.items()), {**table}["b"], table.pop("a"), table | {"c": a}, \
            table.setdefault("z", a), table.get("b") + x

    def texts(x, a):
        return x + 1, f"{[a]}", "%s %s" % (a, [a]), "{}".format((a, 1)), repr({"a": a}), str([(a,)]), ",".join([str(a)])

    def nested(x, a):
        table = {"a": [a, {"b": (a, 1)}]}
        copied = copy.deepcopy(table)
        copied["a"][0] += 1
        table["a"][1]["b"] = (table["a"][0] * 2, a)
        return x * copied["a"][0] + table["a"][1]["b"][0], table, copied, copy.copy(table["a"])

    def matched(x, a):
        match {"a": a, "b": [a, 2]}:
            case {"a": 3.0, "b": [first, *_]}:
                return x * first, 1
            case {"a": found, "b": [_, second]}:
                return x * found + second, 2

    def compared(x, a):
        return x + 1, (a, 1) in [(1.0, 1), (2.0, 2)], [a, 2] == [2.0, 2], min([(a, 1), (2.0, 0)]), {(a, 1): 5}, {a, 1.0}

    def reduced(x, a):
        return x * functools.reduce(lambda p, q: p + q, [a, 1, a]), max([a, 2.5]), all([a, 1]), any([a - 1, 0]), \
            list(zip([a, 1], (2, a))), list(enumerate([a])), list(reversed([a, 1])), sorted([a, 2.0]), tuple([a])

    for fn in (chained, named, ordered, defaults, records, sliced, views, texts, nested, matched, compared, reduced):
        plain(fn, *[(tensor(), a) for a in (1.0, 3.0, 3.0, -5.0, 2.0, 1.0)])
