"""A break in a callee of a callee: all frames on the way are compiled by the second call, whatever the depth."""

import types

import pytest
import torch

import smelt


@smelt.disable
def leave():
    pass


class Log(list):
    @smelt.disable
    def add(self, value):
        self.append(value)


def nested(depth, innermost):
    """A function with `depth` calls in each other, tensor ops in all of them, and `innermost` at the end."""
    def level(x, inner=innermost):
        return inner(x.sin()) + 1

    function = innermost
    for i in range(depth):  # each with code of its own
        code = level.__code__.replace(co_name=f"level{i}")
        function = types.FunctionType(code, globals(), argdefs=(function,))
    return function


def settled_after(function, *calls):
    """The number of calls behind which nothing more is compiled; results are those of plain Python."""
    compiled, counts = smelt.compile(function), [0]
    for call in calls:
        before = smelt.stats()["segments"]
        assert torch.allclose(compiled(*call), function(*call), atol=1e-6)
        counts.append(counts[-1] + smelt.stats()["segments"] - before)
    return counts.index(counts[-1])


CALLS = [(torch.linspace(0, i + 1, 6).reshape(2, 3),) for i in range(8)]


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_two_calls_compile_all_frames(depth):
    def innermost(x):
        y = x * 2
        leave()
        return y + 3

    assert settled_after(nested(depth, innermost), *CALLS) == 2


def test_in_modules():
    class Inner(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(3, 3)

        def forward(self, x):
            y = self.linear(x).relu()
            leave()
            return self.linear(y)

    class Outer(torch.nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.linear, self.inner = torch.nn.Linear(3, 3), inner

        def forward(self, x):
            return self.inner(self.linear(x).sin()) + 1

    assert settled_after(Outer(Outer(Inner())).requires_grad_(False), *CALLS) == 2


def test_several_breaks_in_several_callees():
    log = Log()

    def low(x, n):
        y = x + n
        log.add(n)
        return y * 2

    def middle(x):
        y = low(x, 1) + 1
        z = low(y, 2) + y
        log.add(3)
        return z + 1

    def f(x):
        y = middle(x * 2)
        return middle(y) + low(y, 4)

    compiled = smelt.compile(f)
    for i in range(4):
        log.clear()
        expected, wanted = f(CALLS[i][0]), list(log)
        log.clear()
        assert torch.allclose(compiled(CALLS[i][0]), expected, atol=1e-5)
        assert log == wanted == [1, 2, 3, 1, 2, 3, 4]


def test_in_a_loop_of_the_callee():
    def low(x, n):
        y = x + n
        leave()
        return y * 2

    def middle(x):
        for n in range(3):
            x = low(x, n).sin()
        return x

    def f(x):
        return middle(x + 1) + 1

    assert settled_after(f, *CALLS) == 2


def test_one_call_of_many_in_a_loop():
    class Broken(torch.nn.Module):
        def forward(self, x):
            leave()
            return x + 1

    layers = [torch.nn.Linear(3, 3), torch.nn.ReLU(), Broken(), torch.nn.Linear(3, 3), torch.nn.Tanh()]
    model = torch.nn.Sequential(*layers).requires_grad_(False)
    assert settled_after(model, *CALLS) == 2


def test_a_break_that_was_there_once():
    """The second call finds no break any more: the third follows all frames as one."""
    cache = {}

    @smelt.disable
    def fill():
        cache["table"] = torch.arange(3.0)

    def low(x):
        y = x * 2
        if not cache:
            fill()
        return y + cache["table"]

    def middle(x):
        return low(x.sin()) + 1

    def f(x):
        y = x + 1
        return middle(y) * 2

    compiled = smelt.compile(f)
    for x, in CALLS:
        assert torch.allclose(compiled(x), f(x), atol=1e-6)
    before = smelt.stats()["cache_hits"]
    compiled(CALLS[0][0])
    assert smelt.stats()["cache_hits"] == before + 1


def test_a_break_that_depends_on_an_argument():
    log = Log()

    def low(x, loud):
        y = x * 2
        if loud:
            log.add(1)
        return y + 1

    def middle(x, loud):
        return low(x.sin(), loud) + 1

    def f(x, loud):
        return middle(x + 1, loud) * 2

    compiled = smelt.compile(f)
    for i, loud in enumerate([True, True, False, True, False, False, True, True]):
        log.clear()
        assert torch.allclose(compiled(CALLS[i][0], loud), f(CALLS[i][0], loud), atol=1e-6)
        assert len(log) == 2 * loud


def test_an_exception_behind_an_expected_break():
    def low(x, fails):
        y = x * 2
        leave()
        if fails:
            raise ValueError("low")
        return y + 1

    def middle(x, fails):
        try:
            return low(x.sin(), fails) + 1
        except ValueError:
            return x

    def f(x, fails):
        return middle(x + 1, fails) * 2

    compiled = smelt.compile(f)
    for i, fails in enumerate([False, True, False, True, False, True]):
        assert torch.allclose(compiled(CALLS[i][0], fails), f(CALLS[i][0], fails), atol=1e-6)


def test_the_report_names_the_break_itself_once():
    def innermost(x):
        y = x * 2
        leave()
        return y + 3

    f = nested(3, innermost)
    compiled = smelt.compile(f)
    for call in CALLS[:3]:
        compiled(*call)
    report = smelt.explain(compiled)(*CALLS[0])
    assert [b.function for b in report.breaks] == ["innermost"]


def test_fullgraph_is_refused_in_the_first_call():
    def low(x):
        y = x * 2
        leave()
        return y + 1

    compiled = smelt.compile(lambda x: low(x.sin()) + 1, fullgraph=True)
    for call in CALLS[:3]:
        with pytest.raises(smelt.BreakError, match="leave"):
            compiled(*call)


def test_fullgraph_expects_no_break():
    """What is in the way of one graph in the first call only is no error in the second."""
    cache = {}

    @smelt.disable
    def fill():
        cache["table"] = torch.arange(3.0)

    def low(x):
        if not cache:
            fill()
        return x * 2 + cache["table"]

    def middle(x):
        return low(x) + 1

    def f(x):
        return middle(x) * 2

    compiled = smelt.compile(f, fullgraph=True)
    for call in CALLS[:4]:
        assert torch.allclose(compiled(*call), f(*call), atol=1e-6)
