"""Whatever a function depends on may change between two calls: the next call sees it, and what it does not depend on
costs no recompile.

A case makes a world and gives (function, changes): the function is called, then after each change twice. The same is
done without a compiler in a world of its own, and the results must be the same.
"""

import builtins
import collections
import contextlib
import dataclasses
import enum
import functools
import math
import types
import warnings

import pytest
import torch
from torch import nn

import smelt
from guard_cases import CASES, UNRELATED, case, run, unrelated
from rounding import same_text

@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("build", CASES)
def test_a_change_is_seen(build, backend):
    expected = run(build, lambda fn: fn)
    smelt.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        actual = run(build, lambda fn: smelt.compile(fn, backend=backend))
    for number, (a, e) in enumerate(zip(actual, expected, strict=True)):
        assert same_text(str(a), str(e), backend), f"call {number}: {a}, {e}"


@pytest.mark.parametrize("build", UNRELATED)
def test_an_unrelated_change_costs_nothing(build):
    expected = run(build, lambda fn: fn)
    smelt.reset()
    assert run(build, lambda fn: smelt.compile(fn, backend="eager")) == expected
    assert smelt.stats()["recompiles"] == 0


# -- names

SCALE, TABLE, WORDS = 2.0, {"a": 1}, ["x", "y"]
HELPER = math.floor


def set_global(stack, name, value):
    if name in globals():
        stack.callback(globals().__setitem__, name, globals()[name])
    else:
        stack.callback(globals().pop, name, None)
    globals()[name] = value


@case
def global_number(stack):
    return lambda x: x * SCALE, [lambda: set_global(stack, "SCALE", 3.0), lambda: set_global(stack, "SCALE", 3)]


@case
def global_function(stack):
    return lambda x: x * HELPER(2.5), [lambda: set_global(stack, "HELPER", math.ceil)]


@case
def global_that_hides_a_builtin(stack):
    return lambda x: x * len([1, 2]), [lambda: set_global(stack, "len", lambda _: 7)]


@case
def builtin_overridden(stack):
    def override():
        stack.callback(setattr, builtins, "abs", builtins.abs)
        builtins.abs = lambda v: 11
    return lambda x: x * abs(-2), [override]


@case
def global_deleted(stack):
    globals()["GONE"] = 4
    stack.callback(globals().pop, "GONE", None)
    return lambda x: x * GONE, [lambda: globals().pop("GONE")]  # noqa: F821


@case
def global_deleted_that_is_only_looked_at(stack):
    globals()["GONE"] = 4
    stack.callback(globals().pop, "GONE", None)

    def fn(x):
        GONE  # noqa: B018, F821
        return x + 1
    return fn, [lambda: globals().pop("GONE")]


@case
def closure_cell():
    k = 2

    def change():
        nonlocal k
        k += 1

    return lambda x: x * k, [change, change]


@case
def closure_cell_emptied():
    k = 2

    def change():
        nonlocal k
        del k

    return lambda x: x * k, [change]


@case
def default_argument():
    def fn(x, k=2):
        return x * k

    def change():
        fn.__defaults__ = (5,)
    return fn, [change]


@case
def keyword_default():
    def fn(x, *, k=2):
        return x * k

    def change():
        fn.__kwdefaults__ = {"k": 5}

    def change_in_place():
        fn.__kwdefaults__["k"] = 6
    return fn, [change, change_in_place]


@case
def defaults_of_a_callee():
    def callee(x, k=2, *, m=1):
        return x * k + m

    def change():
        callee.__defaults__ = (3,)

    def change_keyword():
        callee.__kwdefaults__["m"] = 4

    def drop():
        callee.__defaults__ = None
    return lambda x: callee(x), [change, change_keyword, drop]


@case
def code_of_the_function():
    def fn(x):
        return x + 1

    def change():
        fn.__code__ = (lambda x: x + 2).__code__
    return fn, [change]


@case
def code_of_a_callee():
    def callee(x):
        return x + 1

    def change():
        callee.__code__ = (lambda x: x + 2).__code__
    return lambda x: callee(x), [change]


@case
def variable_without_a_value():
    flags = {"set": True}

    def fn(x):
        if flags["set"]:
            y = x + 1
        return y * 2
    return fn, [lambda: flags.update(set=False), lambda: flags.update(set=True)]


# -- objects


class Thing:
    kind = 1

    def __init__(self):
        self.scale, self.items, self.other = 2.0, [1, 2], None

    @property
    def doubled(self):
        return self.scale * 2

    def method(self, x):
        return x * self.scale

    @classmethod
    def make(cls, x):
        return x * cls.kind

    @staticmethod
    def static(x):
        return x + 1


class OtherThing(Thing):
    kind = 3

    def method(self, x):
        return x - 1


def set_on(stack, target, name, value):
    old = vars(target).get(name)
    if name in vars(target):
        stack.callback(setattr, target, name, old)
    else:
        stack.callback(lambda: name in vars(target) and delattr(target, name))
    setattr(target, name, value)


@case
def attribute():
    thing = Thing()
    return lambda x: x * thing.scale, [lambda: setattr(thing, "scale", 3.0), lambda: setattr(thing, "scale", 4)]


@case
def attribute_deleted():
    thing = Thing()
    return lambda x: x * thing.scale, [lambda: delattr(thing, "scale")]


@case
def attribute_added_that_was_missing():
    thing = Thing()
    return (lambda x: x * getattr(thing, "extra", 1) + hasattr(thing, "more"),
            [lambda: setattr(thing, "extra", 3), lambda: setattr(thing, "more", 3)])


@case
def class_attribute(stack):
    thing = Thing()
    return lambda x: x * thing.kind, [lambda: set_on(stack, Thing, "kind", 5), lambda: setattr(thing, "kind", 6)]


@case
def property_replaced(stack):
    thing = Thing()
    return (lambda x: x * thing.doubled,
            [lambda: setattr(thing, "scale", 3.0), lambda: set_on(stack, Thing, "doubled", property(lambda self: 7))])


@case
def method_replaced_on_the_class(stack):
    thing = Thing()
    return lambda x: thing.method(x), [lambda: set_on(stack, Thing, "method", lambda self, x: x + 100)]


@case
def method_replaced_on_the_instance():
    thing = Thing()
    return lambda x: thing.method(x), [lambda: setattr(thing, "method", lambda x: x + 100)]


@case
def method_replaced_on_a_base(stack):
    class Derived(Thing):
        pass
    thing = Derived()
    return (lambda x: thing.method(x),
            [lambda: set_on(stack, Thing, "method", lambda self, x: x + 100),
             lambda: setattr(Derived, "method", lambda self, x: x + 200)])


@case
def class_method_and_static_method(stack):
    thing = Thing()
    return (lambda x: thing.make(x) + Thing.static(x),
            [lambda: set_on(stack, Thing, "kind", 5),
             lambda: set_on(stack, Thing, "static", staticmethod(lambda x: x * 3))])


@case
def class_assigned():
    thing = Thing()
    return lambda x: thing.method(x) * thing.kind, [lambda: setattr(thing, "__class__", OtherThing)]


@case
def bases_assigned():
    class First:
        k = 1

    class Second:
        k = 2

    class Derived(First):
        pass
    return lambda x: x * Derived().k, [lambda: setattr(Derived, "__bases__", (Second,))]


@case
def dict_of_an_object_replaced():
    thing = Thing()
    return lambda x: x * thing.scale, [lambda: setattr(thing, "__dict__", {"scale": 9.0})]


@case
def getattr_added(stack):
    thing = Thing()
    return (lambda x: x * getattr(thing, "missing", 2),
            [lambda: set_on(stack, Thing, "__getattr__", lambda self, name: 8)])


@case
def special_methods_added():
    class Plain:
        k = 2
    plain = Plain()

    def fn(x):
        return (x * plain.k if plain else x - 1) + (plain == 3)
    return fn, [lambda: setattr(Plain, "__bool__", lambda self: False),
                lambda: setattr(Plain, "__eq__", lambda self, other: True),
                lambda: setattr(Plain, "__bool__", lambda self: True),
                lambda: setattr(Plain, "__getattribute__", lambda self, name: 7)]


@case
def operator_method_replaced():
    class Number:
        def __add__(self, other):
            return other + 1

        def __bool__(self):
            return True
    number = Number()
    return (lambda x: number + x if number else x,
            [lambda: setattr(Number, "__add__", lambda self, other: other + 2),
             lambda: setattr(Number, "__bool__", lambda self: False)])


@case
def slots():
    class Slotted:
        __slots__ = ("k", "m")
    thing = Slotted()
    thing.k = 2
    return lambda x: x * thing.k, [lambda: setattr(thing, "k", 3), lambda: delattr(thing, "k")]


@case
def module_attribute():
    module = types.ModuleType("made_here")
    module.k = 2
    return lambda x: x * module.k, [lambda: setattr(module, "k", 3), lambda: delattr(module, "k")]


@case
def enumeration():
    class Color(enum.Enum):
        RED = 1
        BLUE = 2
    thing = Thing()
    thing.color = Color.RED
    return (lambda x: x + 1 if thing.color is Color.RED else x * thing.color.value,
            [lambda: setattr(thing, "color", Color.BLUE)])


@case
def data_class():
    @dataclasses.dataclass
    class Config:
        k: int = 2
        names: list = dataclasses.field(default_factory=lambda: ["a"])
    config = Config()
    return (lambda x: x * config.k + len(config.names) + (config == Config()),
            [lambda: setattr(config, "k", 3), lambda: config.names.append("b"),
             lambda: setattr(config, "k", 2) or config.names.pop()])


@case
def partial_and_bound_method():
    thing, other = Thing(), Thing()
    other.scale = 5.0
    holder = {"f": functools.partial(thing.method)}
    return (lambda x: holder["f"](x),
            [lambda: holder.update(f=functools.partial(other.method)), lambda: holder.update(f=other.method),
             lambda: setattr(other, "scale", 6.0)])


# -- containers


@case
def list_items():
    items = [1, 2]

    def fn(x):
        for i in items:
            x = x * i
        return x
    return fn, [lambda: items.append(3), lambda: items.__setitem__(0, 4), lambda: items.reverse(), lambda: items.clear()]


@case
def list_truth_and_length():
    items = [1]
    return (lambda x: x + len(items) if items else x - 1,
            [lambda: items.append(2), lambda: items.clear(), lambda: items.append(1)])


@case
def dict_order():
    table = {"a": 1, "b": 2}

    def fn(x):
        for i, key in enumerate(table):
            x = x * 10 + i * table[key]
        return x

    def move():
        table["a"] = table.pop("a")
    return fn, [move, lambda: table.update(c=3), lambda: table.pop("b")]


@case
def ordered_dict_order():
    table = collections.OrderedDict(a=1, b=2)
    return (lambda x: [x * i + table[k] for i, k in enumerate(table)], [lambda: table.move_to_end("a")])


@case
def dict_key_only_looked_for():
    table = {"a": 1}

    def fn(x):
        if "a" in table:
            return x + 1
        return x - 1
    return fn, [lambda: table.pop("a"), lambda: table.update(a=2)]


@case
def dict_key_looked_for_and_deleted():
    def fn(x, table):
        if "a" in table:
            del table["a"]
        return x + len(table)
    table = {"a": 1, "b": 2}
    return fn, [lambda: table.update(a=3), lambda: table.update(a=3, c=4)], lambda: (torch.ones(2), table)


@case
def dict_get_and_setdefault():
    table = {}
    return (lambda x: x * table.get("k", 1) + table.setdefault("m", 2),
            [lambda: table.update(k=3), lambda: table.update(m=5), lambda: table.clear()])


@case
def dict_replaced_by_a_subclass():
    class Missing(dict):
        def __missing__(self, key):
            return 9
    holder = {"table": {"a": 1}}
    return (lambda x: x * holder["table"].get("b", 2) + holder["table"]["a"],
            [lambda: holder.update(table=Missing(a=1)), lambda: holder.update(table=Missing())])


@case
def set_contents():
    names = {1, 2}
    return (lambda x: x * sum(names) + (3 in names),
            [lambda: names.add(3), lambda: names.discard(1), lambda: names.clear()])


@case
def nested_containers():
    tree = {"a": [{"b": (1, [2, 3])}]}
    return (lambda x: x * tree["a"][0]["b"][1][1] + len(tree["a"]),
            [lambda: tree["a"][0]["b"][1].__setitem__(1, 5), lambda: tree["a"].append(None),
             lambda: tree["a"].__setitem__(0, {"b": (1, [0, 7])})])


@case
def tuple_of_numbers_replaced():
    thing = Thing()
    thing.size = (2, 3)
    return (lambda x: x.reshape(thing.size), [lambda: setattr(thing, "size", (3, 2)), lambda: setattr(thing, "size", [6])])


@case
def equal_numbers_of_another_type():
    thing = Thing()
    thing.k = 1
    return (lambda x: (x * thing.k, thing.k, str(thing.k)),
            [lambda: setattr(thing, "k", 1.0), lambda: setattr(thing, "k", True), lambda: setattr(thing, "k", -0.0),
             lambda: setattr(thing, "k", 0.0), lambda: setattr(thing, "k", float("nan"))])


@case
def string():
    thing = Thing()
    thing.mode = "add"

    def fn(x):
        return x + 1 if thing.mode == "add" else x - 1 if thing.mode.startswith("s") else x
    return fn, [lambda: setattr(thing, "mode", "sub"), lambda: setattr(thing, "mode", "x")]


# -- tensors


def tensors_in_turn(*makers):
    """The arguments are other ones after each change."""
    turn = iter(makers)
    current = [next(turn)]
    return [lambda: current.__setitem__(0, next(turn))] * (len(makers) - 1), lambda: current[0]()


@case
def tensor_argument():
    changes, arguments = tensors_in_turn(
        lambda: (torch.arange(6.0).reshape(2, 3),), lambda: (torch.arange(6).reshape(2, 3),),
        lambda: (torch.arange(8.0).reshape(2, 4),), lambda: (torch.arange(6.0).reshape(3, 2).t(),),
        lambda: (torch.arange(6.0).reshape(2, 3).requires_grad_(),), lambda: (torch.arange(6.0),),
        lambda: (torch.arange(6.0, dtype=torch.float64).reshape(2, 3),))

    def fn(x):
        return x * 2 if x.dim() == 2 and x.is_contiguous() else x.t() + x.shape[0] if x.dim() == 2 else x - 1
    return fn, changes, arguments


@case
def number_or_tensor_argument():
    changes, arguments = tensors_in_turn(
        lambda: (torch.ones(2), 2), lambda: (torch.ones(2), 3), lambda: (torch.ones(2), 2.0),
        lambda: (torch.ones(2), torch.ones(2)), lambda: (torch.ones(2), True), lambda: (torch.ones(2), None))
    return lambda x, k: x if k is None else x * k, changes, arguments


@case
def the_same_tensor_twice():
    a = torch.ones(3)
    changes, arguments = tensors_in_turn(lambda: (a.clone(), a.clone()), lambda: (lambda t: (t, t))(a.clone()),
                                         lambda: (lambda t: (t, t[:]))(a.clone()), lambda: (a.clone(), a.clone()))

    def fn(x, y):
        x.add_(1)
        return x * y, x is y
    return fn, changes, arguments


@case
def the_same_list_twice():
    changes, arguments = tensors_in_turn(lambda: (torch.ones(2), [1], [1]), lambda: (lambda s: (torch.ones(2), s, s))([1]),
                                         lambda: (torch.ones(2), [1], [1]))

    def fn(x, a, b):
        a.append(2)
        return x * len(b), a, b
    return fn, changes, arguments


@case
def the_same_list_in_an_object_and_an_argument():
    thing = Thing()
    changes, arguments = tensors_in_turn(lambda: (torch.ones(2), [1, 2]), lambda: (torch.ones(2), thing.items))

    def fn(x, items):
        items.append(7)
        return x * len(thing.items)
    return fn, changes, arguments


@case
def is_between_arguments():
    a, b = Thing(), Thing()
    changes, arguments = tensors_in_turn(lambda: (torch.ones(2), a, b), lambda: (torch.ones(2), a, a),
                                         lambda: (torch.ones(2), b, a))
    return lambda x, p, q: x + 1 if p is q else x - 1, changes, arguments


@case
def grad_mode(stack):
    x = torch.ones(2, requires_grad=True)
    return (lambda x: x * 2 if torch.is_grad_enabled() else x * 3,
            [lambda: stack.enter_context(torch.no_grad()), lambda: stack.enter_context(torch.enable_grad()),
             lambda: stack.enter_context(torch.inference_mode())], lambda: (x,))


@case
def autocast(stack):
    a = torch.ones(4, 4)
    return (lambda x: x @ x,
            [lambda: stack.enter_context(torch.autocast("cpu", dtype=torch.bfloat16)),
             lambda: stack.enter_context(torch.autocast("cpu", enabled=False))], lambda: (a,))


@case
def default_dtype(stack):
    def change():
        stack.callback(torch.set_default_dtype, torch.get_default_dtype())
        torch.set_default_dtype(torch.float64)
    return lambda x: x + torch.ones(3) * torch.tensor(2.5), [change]


@case
def gradient_of_a_parameter():
    p = nn.Parameter(torch.ones(2))
    return (lambda x: x.sum() + (p.sum() if p.grad is None else p.grad.sum()),
            [lambda: setattr(p, "grad", torch.full((2,), 3.0)), lambda: setattr(p, "grad", None)])


# -- modules


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(3, 3), nn.Sequential(nn.Linear(3, 3), nn.ReLU())
        self.register_buffer("shift", torch.ones(3))
        self.drop = nn.Dropout(1.0)
        self.note = None

    def forward(self, x):
        return self.drop(self.second(self.first(x))) + self.shift


def module_case(*changes):
    net = Net()
    return net, [functools.partial(change, net) for change in changes]


@case
def training_flag():
    return module_case(lambda net: net.eval(), lambda net: net.train(), lambda net: net.drop.eval())


@case
def parameter_replaced():
    return module_case(lambda net: setattr(net.first, "weight", nn.Parameter(torch.zeros(3, 3))),
                       lambda net: setattr(net.first, "bias", None))


@case
def parameter_data_swapped():
    def swap(net):
        net.first.weight.data = torch.full((3, 3), 2.0)

    def change_in_place(net):
        with torch.no_grad():
            net.eval().first.weight.mul_(3)
    return module_case(lambda net: net.eval(), swap, change_in_place,
                       lambda net: setattr(net.first.weight, "data", torch.ones(3, 3).t()))


@case
def parameter_frozen():
    return module_case(lambda net: net.eval(), lambda net: net.first.weight.requires_grad_(False),
                       lambda net: net.requires_grad_(False))


@case
def submodule_replaced():
    return module_case(lambda net: net.eval(), lambda net: setattr(net, "first", nn.Identity()),
                       lambda net: net.second.append(nn.Tanh()), lambda net: net.second.__setitem__(1, nn.Sigmoid()))


@case
def buffer_changed():
    return module_case(lambda net: net.eval(), lambda net: setattr(net, "shift", torch.zeros(3)),
                       lambda net: net.register_buffer("more", torch.zeros(3)), lambda net: net.double().float())


@case
def hooks():
    handles = []

    def add(net):
        handles.append(net.eval().first.register_forward_hook(lambda module, args, result: result + 10))

    def add_pre(net):
        handles.append(net.register_forward_pre_hook(lambda module, args: (args[0] * 2,)))
    return module_case(lambda net: net.eval(), add, add_pre, lambda net: handles[0].remove(),
                       lambda net: handles[1].remove())


@case
def global_hook(stack):
    def add(net):
        stack.enter_context(contextlib.closing(types.SimpleNamespace(close=torch.nn.modules.module.
            register_module_forward_hook(lambda module, args, result: result * 2).remove)))
    return module_case(lambda net: net.eval(), add)


@case
def forward_replaced():
    return module_case(lambda net: net.eval(), lambda net: setattr(net, "forward", lambda x: x + 1))


@case
def forward_of_a_child_replaced():
    return module_case(lambda net: net.eval(), lambda net: setattr(net.first, "forward", lambda x: x + 1))


@case
def class_of_a_child_assigned():
    class Doubled(nn.Linear):
        def forward(self, x):
            return super().forward(x) * 2
    return module_case(lambda net: net.eval(), lambda net: setattr(net.first, "__class__", Doubled))


# -- what has nothing to do with it


@unrelated
def unrelated_attribute():
    thing = Thing()
    return lambda x: x * thing.scale, [lambda: setattr(thing, "other", 1), lambda: setattr(thing, "new", 2)]


@unrelated
def unrelated_global(stack):
    return lambda x: x * SCALE, [lambda: set_global(stack, "UNRELATED_NAME", 1)]


@unrelated
def unrelated_key():
    table = {"a": 2}
    return lambda x: x * table["a"], [lambda: table.update(b=1), lambda: table.update(c=1)]


@unrelated
def unrelated_class_attribute(stack):
    thing = Thing()
    return lambda x: thing.method(x), [lambda: set_on(stack, Thing, "unrelated", 3)]


@unrelated
def unrelated_attribute_of_a_module():
    return module_case(lambda net: setattr(net, "note", 1), lambda net: setattr(net.first, "note", 2))


@unrelated
def parameters_updated():
    def update(net):
        with torch.no_grad():
            for p in net.parameters():
                p.mul_(0.5)
    return module_case(update, update)


@unrelated
def another_list_of_the_same_items():
    holder = {"items": [1, 2]}
    return lambda x: x * holder["items"][0], [lambda: holder.update(items=[1, 2])]


@unrelated
def other_tensors_of_the_same_kind():
    changes, arguments = tensors_in_turn(lambda: (torch.ones(3),), lambda: (torch.zeros(3),), lambda: (torch.rand(3) * 0,))
    return lambda x: x + 1, changes, arguments


# -- the limit


def test_the_limit_warns_once_and_then_runs_plain():
    def fn(x, k):
        return x + 1 if k == 0 else x * k
    compiled = smelt.compile(fn, backend="eager", options={"recompile_limit": 3}, dynamic=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for k in range(12):
            assert torch.equal(compiled(torch.ones(2), str(k).__len__() + k), fn(torch.ones(2), str(k).__len__() + k))
            with torch.no_grad():
                compiled(torch.ones(2 + k), k)
    ours = [w for w in caught if issubclass(w.category, RuntimeWarning) and "smelt" in str(w.message)]
    assert len(ours) == 1
    frames = smelt.stats()["segments"]
    compiled(torch.ones(2), 100)
    assert smelt.stats()["segments"] == frames
