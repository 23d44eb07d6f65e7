"""Ops that a program defines itself."""

import contextvars
import itertools

import pytest
import torch

import smelt


def test_an_op_is_compiled():
    with torch.library._scoped_library("smelt_test", "FRAGMENT") as lib:
        lib.define("halved(Tensor x) -> Tensor")
        lib.impl("halved", lambda x: x / 2, "CPU")
        compiled = smelt.compile(lambda x: torch.ops.smelt_test.halved(x + 1) * 3)
        for x in (torch.ones(3), torch.zeros(3), torch.ones(3)):
            assert torch.equal(compiled(x), (x + 1) / 2 * 3)


def test_an_op_that_is_defined_anew():
    for scale, more in ((2, ""), (3, ", int k=1"), (4, "")):
        with torch.library._scoped_library("smelt_test", "FRAGMENT") as lib:
            lib.define(f"scaled(Tensor x{more}) -> Tensor")
            lib.impl("scaled", lambda x, *_, scale=scale: x * scale, "CPU")
            compiled = smelt.compile(lambda x: torch.ops.smelt_test.scaled(x) + 1)
            for _ in range(3):
                assert torch.equal(compiled(torch.ones(3)), torch.full((3,), scale + 1.0))


def test_an_op_that_nobody_has_looked_up():
    library = torch.library.Library("smelt_looked_up", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")

    def function(x):
        return torch.ops.smelt_looked_up.twice(x.sin()) + torch.ops.smelt_looked_up.twice.default(x)

    compiled, x = smelt.compile(function, fullgraph=True), torch.randn(4)
    for _ in range(3):
        torch.testing.assert_close(compiled(x), x.sin() * 2 + x * 2)


# -- ops that are not known to be pure run as often, in the order and on the tensors that eager runs them


class Counted:
    """An op that notes each of its calls, in one of several forms."""

    def __init__(self, name, *, meta=True, mutates=False, differentiable=False, backend="CPU"):
        self.calls, self.mutates = [], mutates
        self.library = torch.library.Library(f"smelt_counted_{name}", "DEF")
        self.library.define("op(Tensor(a!) x) -> Tensor" if mutates else "op(Tensor x) -> Tensor")
        self.library.impl("op", self.compute, backend)
        if meta:
            self.library.impl("op", lambda x: torch.empty_like(x), "Meta")
        if differentiable:
            torch.library.register_autograd(
                f"smelt_counted_{name}::op", self.backward, setup_context=lambda ctx, inputs, output: None, lib=self.library
            )
        self.op = getattr(torch.ops, f"smelt_counted_{name}").op

    def compute(self, x):
        self.calls.append(("forward", round(x.sum().item(), 3)))
        if self.mutates:
            x.mul_(2)
        return x + 1

    def backward(self, ctx, grad):
        self.calls.append(("backward", round(grad.sum().item(), 3)))
        return grad * 3

    def taken(self):
        calls, self.calls[:] = list(self.calls), []
        return calls


NAMES = itertools.count()


def assert_calls_like_eager(make, program, inputs):
    """program(op, x) compiled gives what it gives in eager, and calls the op as often, on the same tensors, in that order."""
    eager, compiled_op = make(), make()
    compiled = smelt.compile(lambda x: program(compiled_op.op, x))
    for i, x in enumerate(inputs):
        want, got = x.clone().requires_grad_(x.requires_grad), x.clone().requires_grad_(x.requires_grad)
        expected, found = program(eager.op, want), compiled(got)
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(got, want)
        assert compiled_op.taken() == eager.taken(), f"call {i}"
        if expected.requires_grad:
            expected.sum().backward(), found.sum().backward()
            torch.testing.assert_close(got.grad, want.grad)
            assert compiled_op.taken() == eager.taken(), f"backward {i}"


def straight(op, x):
    return op(x.sin() + 1).cos() * 2


def guess(op, x):
    y = op(x * 1)
    return y * 3 if y.sum().item() > 0 else y * 5


def guess_before(op, x):
    n = x.sum().item()
    y = op(x * 2) if n > 0 else op(x * 4)
    return y * n


def number_between(op, x):
    y = op(x * 1)
    return y / (1 + y.abs().max().item())


def dead(op, x):
    op(x * 2)
    return x + 1


def twice(op, x):
    return op(x * 1) + op(x * 1)


def in_order(op, x):
    a, b = op(x * 2), op(x * 3)
    return op(b * 1) - a


def with_break(op, x):
    y = op(x * 1)
    str(id(y))
    return op(y * 2)


def in_a_loop(op, x):
    for i in range(3):
        x = op(x * (i + 1))
    return x


PROGRAMS = [straight, guess, guess_before, number_between, dead, twice, in_order, with_break, in_a_loop]
FORMS = {
    "meta": {},
    "no_meta": {"meta": False},
    "composite": {"meta": False, "backend": "CompositeExplicitAutograd"},
    "mutates": {"mutates": True},
}
SIGNS = (1.0, 1.0, -1.0, 1.0, -1.0, 0.0)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_an_op_runs_as_often_as_in_eager(program, form):
    def make():
        return Counted(next(NAMES), **FORMS[form])

    assert_calls_like_eager(make, program, [torch.full((2,), sign) for sign in SIGNS])


@pytest.mark.parametrize("program", [straight, twice, in_order, with_break, in_a_loop], ids=lambda p: p.__name__)
def test_an_op_with_a_backward_runs_as_often_as_in_eager(program):
    def make():
        return Counted(next(NAMES), differentiable=True)

    assert_calls_like_eager(make, program, [torch.full((2,), sign, requires_grad=True) for sign in SIGNS])


def test_an_op_that_fails_runs_once():
    calls = []

    def compute(x):
        calls.append(1)
        if x.sum() < 0:
            raise ValueError("negative")
        return x + 1

    library = torch.library.Library("smelt_failing", "DEF")
    library.define("op(Tensor x) -> Tensor")
    library.impl("op", compute, "CPU")
    library.impl("op", torch.empty_like, "Meta")
    compiled = smelt.compile(lambda x: torch.ops.smelt_failing.op(x * 2) * 3)
    for _ in range(3):
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 9.0))
    calls.clear()
    with pytest.raises(ValueError, match="negative"):
        compiled(-torch.ones(2))
    assert len(calls) == 1


def test_what_fails_behind_an_op_does_not_run_it_again():
    counted = Counted(next(NAMES))
    table = torch.arange(4.0)
    compiled = smelt.compile(lambda x, i: counted.op(x)[i] + table[i])
    for i in ([0, 1], [2, 1], [0, 3]):
        compiled(torch.ones(4), torch.tensor(i))
    counted.calls.clear()
    with pytest.raises(IndexError):
        compiled(torch.ones(4), torch.tensor([0, 9]))
    assert len(counted.calls) == 1


def test_shapes_that_depend_on_contents():
    library = torch.library.Library("smelt_picking", "DEF")
    library.define("pick(Tensor x) -> Tensor")
    library.impl("pick", lambda x: x[x > 0] + 0, "CPU")  # nothing says so

    def function(x):
        y = torch.ops.smelt_picking.pick(x * 2)
        return y * 3, y.shape[0]

    compiled = smelt.compile(function)
    for x in ([1.0, 2, 3], [1, -1, 2], [-1, -2, -3], [1, 2, 3]):
        want, got = function(torch.tensor(x)), compiled(torch.tensor(x))
        assert torch.equal(got[0], want[0]) and got[1] == want[1]


def test_an_op_sees_changes_of_python_objects():
    state = [0]
    library = torch.library.Library("smelt_seeing", "DEF")
    library.define("plus(Tensor x) -> Tensor")
    library.impl("plus", lambda x: x + state[0], "CPU")
    library.impl("plus", torch.empty_like, "Meta")

    def function(x):
        state[0] += 1
        return torch.ops.smelt_seeing.plus(x) * 2

    compiled = smelt.compile(function)
    for i in range(1, 6):
        assert torch.equal(compiled(torch.zeros(2)), torch.full((2,), 2.0 * i))


# -- @torch.library.custom_op


def make_custom_op(name, **options):
    @torch.library.custom_op(f"smelt_objects::{name}", **options)
    def op(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    op.register_fake(torch.empty_like)
    return op


def test_an_op_object_is_called_without_a_break():
    op = make_custom_op("plain", mutates_args=())
    compiled, x = smelt.compile(lambda x: op(x.sin()) + 1, fullgraph=True), torch.randn(4)
    for _ in range(3):
        torch.testing.assert_close(compiled(x), x.sin() * 2 + 1)


def test_an_op_object_with_gradients():
    op = make_custom_op("differentiable", mutates_args=())
    op.register_autograd(lambda ctx, grad: grad * 2, setup_context=lambda ctx, inputs, output: None)
    compiled = smelt.compile(lambda x: op(x.sin()).cos(), fullgraph=True)
    for _ in range(3):
        x = torch.randn(4, requires_grad=True)
        compiled(x).sum().backward()
        other = x.detach().clone().requires_grad_()
        (other.sin() * 2).cos().sum().backward()
        torch.testing.assert_close(x.grad, other.grad)


def test_an_op_object_that_changes_its_argument():
    @torch.library.custom_op("smelt_objects::double_", mutates_args=("x",))
    def double_(x: torch.Tensor) -> None:
        x.mul_(2)

    def function(x):
        y = x + 1
        double_(y)
        return y * 3

    compiled = smelt.compile(function)
    for _ in range(4):
        x = torch.randn(3)
        torch.testing.assert_close(compiled(x), (x + 1) * 2 * 3)


setting = contextvars.ContextVar('setting', default=1.0)


def set_and_put_back(x, op):
    token = setting.set(3.0)
    y = op(x + 1)
    setting.reset(token)
    return y - op(x)


def set_twice(x, op):
    outer = setting.set(3.0)
    inner = setting.set(4.0)
    y = op(x + 1)
    setting.reset(inner)
    y = y * op(x)
    setting.reset(outer)
    return y - op(x)


def set_in_front(x, op):
    setting.reset(setting.set(3.0))
    return op(x) * 2


@pytest.mark.parametrize('function', [set_and_put_back, set_twice, set_in_front])
def test_an_op_that_reads_a_context_variable(function):
    """A cached call sets it behind its ops, so the op is none of them where it is set."""
    @torch.library.custom_op(f'smelt_tests::scaled_in_{function.__name__}', mutates_args=())
    def scaled(x: torch.Tensor) -> torch.Tensor:
        return x * setting.get()

    scaled.register_fake(torch.empty_like)

    compiled = smelt.compile(function)
    for i in range(4):
        x = torch.arange(3.0) + i
        torch.testing.assert_close(compiled(x, scaled), function(x, scaled))
