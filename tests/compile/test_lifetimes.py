"""What a program has dropped is gone where a break lets other code look: in the first call, which is traced, too."""

import gc
import weakref

import pytest
import torch

import smelt


class Thing:
    pass


class Watch:
    """What a function that smelt leaves alone sees of an object, call by call."""

    def __init__(self):
        self.reference = None
        self.seen = []

    @smelt.disable
    def on(self, thing):
        self.reference = weakref.ref(thing)

    @smelt.disable
    def look(self):
        self.seen.append(self.reference() is None)


def calls(function, *make):
    """Three calls: traced, cached, cached."""
    compiled = smelt.compile(function)
    for _ in range(3):
        arguments = [m() for m in make]
        expected = function(*[m() for m in make])
        result = compiled(*arguments)
        assert torch.equal(result, expected)


def check(function, *make):
    watch = Watch()
    calls(lambda *arguments: function(watch, *arguments), *make)
    assert watch.seen == [True] * 6  # three plain calls, three compiled ones


def test_a_tensor_that_was_computed():
    def f(watch, x):
        y = x + 1
        watch.on(y)
        z = y * 2
        del y
        watch.look()
        return z + 1

    check(f, lambda: torch.ones(3))


def test_a_tensor_in_a_list_of_the_callers():
    def f(watch, xs):
        y = xs[0] + 1
        watch.on(xs[0])
        xs.clear()
        watch.look()
        return y * 2

    check(f, lambda: [torch.ones(3)])


def test_an_object_that_the_trace_has_read():
    def f(watch, x, box):
        watch.on(box["thing"])
        y = x * box["thing"].factor
        del box["thing"]
        watch.look()
        return y + 1

    def box():
        thing = Thing()
        thing.factor = 2.0
        return {"thing": thing}

    check(f, lambda: torch.ones(3), box)


def test_an_object_that_the_trace_has_made():
    def f(watch, x):
        thing = Thing()
        thing.value = x + 1
        y = thing.value * 2
        watch.on(thing)
        del thing
        z = y + 1
        watch.look()
        return z

    check(f, lambda: torch.ones(3))


def test_in_a_callee_behind_a_break():
    def inner(watch, x):
        y = x + 1
        watch.on(y)
        z = y * 2
        del y
        watch.look()
        return z

    def f(watch, x):
        return inner(watch, x) + 3

    check(f, lambda: torch.ones(3))


def test_what_the_caller_has_dropped_while_the_callee_goes_on():
    def inner(watch, x):
        y = x + 1
        watch.look()  # the root's trace ends here, and the callee is a root from now on
        z = y * 2
        watch.look()
        return z

    def f(watch, x, xs):
        watch.on(xs[0])
        y = x + xs.pop()
        return inner(watch, y) + 3

    watch = Watch()
    calls(lambda x, xs: f(watch, x, xs), lambda: torch.ones(3), lambda: [torch.ones(3)])
    assert watch.seen == [True] * 12


def test_a_callback_runs_before_the_call_at_the_break():
    events = []
    look = smelt.disable(lambda: events.append("look"))

    @smelt.disable
    def watch(thing):
        events.append(weakref.ref(thing, lambda _: events.append("gone")))

    def f(x):
        y = x + 1
        watch(y)
        z = y + 1
        del y
        look()
        return z

    compiled = smelt.compile(f)
    for _ in range(3):
        events.clear()
        compiled(torch.ones(3))
        assert events[1:] == ["gone", "look"]


def test_garbage_is_collected_during_the_call_at_a_break():
    seen = []
    look = smelt.disable(lambda: seen.append(gc.isenabled()))

    def f(x):
        y = x + 1
        look()
        return y * 2

    compiled = smelt.compile(f)
    for _ in range(3):
        compiled(torch.ones(3))
    assert seen == [True] * 3
    assert gc.isenabled()


def test_arguments_are_not_held_by_what_is_cached():
    class Box:
        def __init__(self):
            self.weight = torch.ones(3)
            self.items = [torch.ones(3)]

    def f(box, x):
        y = x * box.weight + box.items[0]
        print(end="")
        return y + box.weight

    compiled = smelt.compile(f)
    references = []
    for _ in range(3):
        box, x = Box(), torch.ones(3)
        references += [weakref.ref(o) for o in (box, x, box.weight, box.items[0])]
        compiled(box, x)
    del box, x
    assert [r() for r in references] == [None] * len(references)


def test_a_back_end_that_fails_at_a_break_is_heard_of_behind_it():
    seen = []
    look = smelt.disable(lambda: seen.append(1))

    def failing(graph, examples):
        raise ValueError("no")

    def f(x):
        y = x + 1
        look()
        return y * 2

    with pytest.raises(ValueError, match="no"):
        smelt.compile(f, backend=failing)(torch.ones(3))
    assert seen == [1]
