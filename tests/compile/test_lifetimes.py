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


# -- what a program drops in the middle of a traced call


class Noisy:
    """Tells when it goes."""

    def __init__(self, events, factor=2.0):
        self.events = events
        self.factor = factor

    def __del__(self):
        self.events.append("gone")


class Silent:
    """Its death is seen by a weak reference."""

    def __init__(self, events, factor=2.0):
        self.factor = factor
        events.append(weakref.ref(self, lambda _: events.append("gone")))


class Holder:
    def __init__(self, thing):
        self.thing = thing


def popped(events, x, box):
    y = x * box["thing"].factor
    box.pop("thing")
    events.append("after")
    return y + 1


def deleted_from_a_dict(events, x, box):
    y = x * box["thing"].factor
    del box["thing"]
    events.append("after")
    return y + 1


def replaced_in_a_dict(events, x, box):
    y = x * box["thing"].factor
    box["thing"] = None
    events.append("after")
    return y + 1


def emptied(events, x, box):
    y = x * box["thing"].factor
    box.clear()
    events.append("after")
    return y + 1


def kept_in_a_variable(events, x, box):
    thing = box.pop("thing")
    events.append("popped")
    y = x * thing.factor
    del thing
    events.append("after")
    return y + 1


def overwritten_variable(events, x, box):
    thing = box.pop("thing")
    y = x * thing.factor
    thing = y
    events.append("after")
    return thing + 1


def kept_in_an_attribute(events, x, box):
    holder = Holder(box.pop("thing"))
    y = x * holder.thing.factor
    holder.thing = None
    events.append("after")
    return y + 1


def goes_with_its_holder(events, x, box):
    holder = Holder(box.pop("thing"))
    y = x * holder.thing.factor
    holder = None
    events.append("after")
    return y + 1


def kept_in_a_list(events, x, box):
    things = [box.pop("thing")]
    y = x * things[0].factor
    things.clear()
    events.append("after")
    return y + 1


def kept_in_a_tuple(events, x, box):
    pair = (box.pop("thing"), 1)
    y = x * pair[0].factor
    del pair
    events.append("after")
    return y + 1


def kept_by_a_callee(events, x, box):
    def inner(x):
        thing = box.pop("thing")
        events.append("inside")
        return x * thing.factor

    y = inner(x)
    events.append("after")
    return y + 1


def an_argument_of_a_callee(events, x, box):
    def inner(x, *things, **named):
        return x * things[0].factor

    y = inner(x, box.pop("thing"))
    events.append("after")
    return y + 1


def kept_in_a_closure(events, x, box):
    thing = box.pop("thing")

    def inner(x):
        return x * thing.factor

    y = inner(x)
    del inner, thing
    events.append("after")
    return y + 1


def kept_by_a_generator(events, x, box):
    def generate():
        thing = box.pop("thing")
        yield x * thing.factor

    for y in generate():
        events.append("inside")
    events.append("after")
    return y + 1


def kept_by_a_cycle_of_a_loop(events, x, box):
    for thing in [box.pop("thing")]:
        y = x * thing.factor
    thing = None
    events.append("after")
    return y + 1


def dropped_when_an_exception_is_handled(events, x, box):
    try:
        thing = box.pop("thing")
        y = x * thing.factor
        del thing
        raise ValueError
    except ValueError:
        events.append("after")
    return y + 1


def held_by_what_is_dropped(events, x, box):
    outer = box["outer"]
    y = x * outer.thing.factor
    del box["thing"]
    events.append("still there")
    del box["outer"]
    events.append("named")
    del outer
    events.append("after")
    return y + 1


def never_looked_at(events, x, box):
    y = x + 1
    box.pop("thing")
    events.append("after")
    return y + 1


def made_inside(events, x, box):
    thing = type(box["thing"])(events)
    y = x * thing.factor
    del thing
    events.append("after")
    return y + 1


DROPS = [popped, deleted_from_a_dict, replaced_in_a_dict, emptied, kept_in_a_variable, overwritten_variable,
         kept_in_an_attribute, goes_with_its_holder, kept_in_a_list, kept_in_a_tuple, kept_by_a_callee,
         an_argument_of_a_callee, kept_in_a_closure, kept_by_a_generator, kept_by_a_cycle_of_a_loop,
         dropped_when_an_exception_is_handled, held_by_what_is_dropped, never_looked_at, made_inside]


@pytest.mark.parametrize("kind", [Noisy, Silent], ids=["finaliser", "weak reference"])
@pytest.mark.parametrize("function", DROPS, ids=lambda function: function.__name__)
def test_an_object_goes_when_it_does_in_eager(function, kind):
    compiled = smelt.compile(function)

    def run(call):
        events = []
        thing = kind(events)
        box = {"thing": thing, "outer": Holder(thing)} if function is held_by_what_is_dropped else {"thing": thing}
        del thing
        result = call(events, torch.ones(3), box)
        seen = [event for event in events if isinstance(event, str)]
        return result.tolist(), seen

    expected = run(function)
    for _ in range(4):
        assert run(compiled) == expected


@pytest.mark.parametrize("drop", ["item", "attribute", "variable", "list"])
def test_a_weak_reference_is_dead_at_once(drop):
    class Box:
        pass

    def f(x, reference, box, things):
        y = x * things[0].factor
        if drop == "item":
            del box.named["thing"]
        elif drop == "attribute":
            box.thing = None
        elif drop == "variable":
            thing = things.pop()
            y = y * thing.factor
            del thing
        things.clear()
        box.thing = None
        box.named = None
        return y + 1 if reference() is None else y - 1

    compiled = smelt.compile(f)
    for _ in range(3):
        seen = []
        for call in (f, compiled):
            box, thing = Box(), Thing()
            thing.factor = 2.0
            box.thing, box.named, things = thing, {"thing": thing}, [thing]
            reference = weakref.ref(thing)
            del thing
            seen.append(call(torch.ones(3), reference, box, things))
            assert reference() is None
        assert torch.equal(*seen)


def test_tensors_that_are_dropped_have_no_live_references():
    def f(watch, xs, held):
        y = xs[0] + held["x"]
        watch.on(held["x"])
        del held["x"]
        z = y * 2
        watch.look()
        return z

    check(f, lambda: [torch.ones(3)], lambda: {"x": torch.ones(3)})


def test_an_address_that_is_used_again():
    class Box:
        pass

    def f(x):
        total = x
        for i in range(50):
            box = Box()  # lies where the one before lay
            box.value = x * i
            pair = [box.value, i]
            total = total + pair[0] + box.value * pair[1]
            del box, pair
        return total

    compiled = smelt.compile(f)
    for n in range(3):
        x = torch.full((3,), float(n + 1))
        assert torch.equal(compiled(x), f(x))


def captured(x):
    if x is None:
        return lambda: x
    return x * 2


def captured_behind_a_break(x):
    print(end="")
    if x is None:
        return lambda: x
    return x


def captured_by_an_inner_function(x):
    def inner():
        print(end="")
        return x
    return inner() * 2


class Slotted:
    __slots__ = ("x",)

    def __init__(self, x):
        self.x = x


def in_slots(batch):
    print(end="")
    return batch.x * 2


@pytest.mark.parametrize("f", [captured, captured_behind_a_break, captured_by_an_inner_function, in_slots])
def test_nothing_of_a_call_is_kept_to_be_recognised(f):
    """Cells of a call, and objects that know no weak references, go with the call, and what they hold with them."""
    compiled = smelt.compile(f)
    for i in range(40):
        x = torch.ones(2)
        gone = weakref.ref(x)
        compiled(Slotted(x) if f is in_slots else x)
        del x
        assert gone() is None, i


@pytest.mark.parametrize('backend', ['native', 'eager'])
def test_a_result_that_dies_leaves_the_others_their_gradients(backend):
    """Results of different inputs have nodes of their own in autograd's graph, which share what was saved."""
    def function(a, b):
        return (a * 2).sin(), b.exp() * a.shape[0]

    compiled = smelt.compile(function, backend=backend, options={'rollback': False})
    for n in (4, 4, 5, 6):
        for dies in (0, 1):
            inputs = [torch.randn(n, 3, requires_grad=True) for _ in range(2)]
            results = list(compiled(*inputs))
            del results[dies]
            results[0].sum().backward(retain_graph=True)
            results[0].sum().backward()
            with pytest.raises(RuntimeError, match='second time'):
                results[0].sum().backward()
            twins = [x.detach().requires_grad_() for x in inputs]
            (function(*twins)[1 - dies].sum() * 2).backward()
            for x, y in zip(inputs, twins):
                assert (x.grad is None) == (y.grad is None)
                if y.grad is not None:
                    torch.testing.assert_close(x.grad, y.grad)
            first, second = compiled(*inputs)
            second.sum().backward()
            del second
            first.sum().backward()
