"""Objects of the standard library and classes that hook into C: all in one graph, and changes between calls are seen."""
import collections
import gc
import itertools
import re
import types
import weakref

import pytest
import torch
from plain_check import Cases, X, check_case

import smelt

CASES = Cases()
case = CASES.case

VERSION = re.compile(r"(?P<major>\d+)\.(?P<minor>\d+)(?:rc(?P<rc>\d+))?")


# -- regular expressions

@case((X, "2.13"), (X, "2.13"), (X, "3.7rc4"), (X, "none"), (X, "2.13"))
def match_of_a_pattern():
    def fn(x, text):
        found = VERSION.fullmatch(text)
        if found is None:
            return x
        if found:
            x = x * int(found.group("major")) + int(found["minor"])
        return (x, found.groups(), found.groupdict(), found.span(), found.start(2), found.end(), found[0],
                found.group(1, 2), found.lastgroup, found.string)
    return fn


@case((X, "a1b22"), (X, "a1b22"), (X, "zz9"), (X, "a1b22"))
def search_and_split():
    digits = re.compile(r"\d+")

    def fn(x, text):
        first = digits.search(text)
        return (x + int(first.group()), digits.split(text), digits.sub("#", text), digits.findall(text),
                digits.match(text, 1), re.sub("[a-z]", "", text))
    return fn


@case()
def another_pattern():
    state = {"pattern": re.compile("(a+)"), "calls": 0}

    def fn(x):
        found = state["pattern"].match("aaab")
        state["calls"] += 1
        if state["calls"] == 2:
            state["pattern"] = re.compile("(aa)")
        return x * len(found.group(1))
    return fn, state


@case((X, lambda: VERSION.match("1.2")), (X, lambda: VERSION.match("1.2")), (X, lambda: VERSION.match("7.2")),
      whole=False)
def match_from_outside():
    return lambda x, found: (x * int(found[1]), found.group(2))


# -- classes of lists and dicts

class Numbers(list):
    def doubled(self):
        return [n * 2 for n in self]


@case((X, lambda: Numbers([1, 2, 3])), (X, lambda: Numbers([1, 2, 3])), (X, lambda: Numbers([1, 5, 3])),
      (X, lambda: Numbers([1, 2, 3, 4])))
def items_of_a_list_class():
    def fn(x, numbers):
        numbers.append(4)
        return x * sum(numbers[1:3]) + numbers[0] + numbers[-1], numbers[::2], len(numbers.doubled())
    return fn


@case((X,), (X,), (X,))
def extended_by_itself():
    def fn(x):
        numbers = Numbers([x, x + 1])
        numbers.extend(numbers)
        numbers.append(numbers[2] + 1)
        return numbers, numbers[1:4]
    return fn


def test_a_list_class_gets_getitem_later():
    class Mine(list):
        pass

    def fn(x, mine):
        return x + mine[0] + sum(mine[1:])

    compiled, mine, x = smelt.compile(fn, fullgraph=True), Mine([1, 2, 3]), torch.ones(2)
    for _ in range(3):
        assert compiled(x, mine)[0] == 7
    Mine.__getitem__ = lambda self, at: list.__getitem__(self, at) if isinstance(at, slice) else 100
    for _ in range(3):
        assert compiled(x, mine)[0] == fn(x, mine)[0] == 106
    del Mine.__getitem__
    assert compiled(x, mine)[0] == 7


@case()
def copy_of_an_ordered_dict():
    ordered = collections.OrderedDict(a=1, b=2)

    def fn(x):
        copy = ordered.copy()
        copy["c"] = x + 1
        ordered["b"] += 1
        return copy, list(copy), type(copy)
    return fn, ordered


@case()
def order_of_an_ordered_dict():
    ordered = collections.OrderedDict(a=1, b=2, c=3)
    ordered.move_to_end("a")

    def fn(x):
        copy, plain = ordered.copy(), dict(ordered)
        return x + 1, list(copy), list(plain), list({**ordered}), list(ordered), [*ordered.values()]
    return fn, ordered


class Dotted(dict):
    __getattr__ = dict.get
    __setattr__ = dict.__setitem__


class Strict(dict):
    __getattr__ = dict.__getitem__


class Followed(dict):
    def __getattr__(self, name):
        return self[name] if name in self else 40


@case()
def attributes_are_items():
    config, strict, followed = Dotted(a=1, b=2), Strict(n=2), Followed(n=3)

    def fn(x):
        config.a += 1
        config.seen = True
        strict["n"] += 1
        return x * config.a + strict.n, config.missing, config.get("b", 3), followed.n, followed.other
    return fn, (config, strict)


class Mapped:
    attribute_map = {"old": "new"}

    def __init__(self):
        self.new, self.kept = 2, 3

    def __getattribute__(self, name):
        if name == "hidden":
            raise AttributeError(name)
        if name in super().__getattribute__("attribute_map"):
            name = super().__getattribute__("attribute_map")[name]
        return super().__getattribute__(name)

    def __getattr__(self, name):
        if name == "hidden":
            return 5
        raise AttributeError(name)


@case((X, lambda: Mapped()), (X, lambda: Mapped()), (X, lambda: Mapped()))
def own_getattribute():
    def fn(x, mapped):
        mapped.new += 1
        return x * mapped.old * mapped.kept + mapped.hidden, getattr(mapped, "nothing", None)
    return fn


def test_getattr_comes_later():
    class Own:
        def __getattribute__(self, name):
            return object.__getattribute__(self, name)

    def fn(x, own):
        return x + getattr(own, "n", 1)

    compiled, own, x = smelt.compile(fn, fullgraph=True), Own(), torch.zeros(2)
    for _ in range(3):
        assert compiled(x, own)[0] == 1
    Own.__getattr__ = lambda self, name: 7
    for _ in range(3):
        assert compiled(x, own)[0] == 7


# -- proxies and iterators

@case()
def mapping_proxy_made_inside():
    outside = {"a": 1}

    def fn(x):
        inside = {"a": 2, "c": x}
        shown, other = types.MappingProxyType(inside), types.MappingProxyType(outside)
        outside["a"] += 1
        inside["b"] = 3
        total = sum(value.sum() if isinstance(value, torch.Tensor) else value for value in shown.values())
        return x * shown["a"] + other["a"], total, "b" in shown, len(shown), list(shown), shown, other.get("z", 4)
    return fn, outside


@case((X, [[1, 2], [3]]), (X, [[1, 2], [3]]), (X, [[1, 2], [4]]), (X, [[1], [4], [5]]))
def chain_from_iterable():
    def fn(x, lists):
        for n in itertools.chain.from_iterable(lists):
            x = x + n
        for t in itertools.chain.from_iterable([[x, x * 2], (1, 2)]):
            x = x + t
        return x, list(itertools.chain.from_iterable(["ab", {"c": 1}]))
    return fn


# -- weak references

class Key:
    pass


@case()
def weak_keys():
    first, second, third = Key(), Key(), Key()
    states = weakref.WeakKeyDictionary({first: 2, second: 3})
    calls = []

    def fn(x):
        calls.append(1)
        if first in states:
            x = x.sin() * states[first]
        if third in states:
            x = x.cos() + states[third]
        return x + states.get(second, 0), states.get(third), 7 in states
    return fn, calls


def test_weak_dicts_change():
    key, other = Key(), Key()
    keys = weakref.WeakKeyDictionary({key: 2})
    values = weakref.WeakValueDictionary({"a": key})
    other.n, key.n = 5, 3

    def fn(x):
        if key in keys:
            x = x + keys[key]
        if "a" in values:
            x = x + values["a"].n
        return x + (10 if values.get("b") is None else 20)

    compiled, x = smelt.compile(fn, fullgraph=True, options={"recompile_limit": 64}), torch.zeros(2)

    def same():
        for _ in range(3):
            assert compiled(x)[0] == fn(x)[0]

    same()
    keys[key] = 7
    same()
    values["a"] = other
    same()
    values["b"] = key
    same()
    del keys[key]
    same()
    keys[key] = 1
    del values["a"]
    same()
    values["a"] = other
    same()
    del other
    gc.collect()
    assert compiled(x)[0] == fn(x)[0]


def test_nothing_weak_is_kept():
    key = Key()
    values, keys = weakref.WeakValueDictionary({"a": key}), weakref.WeakKeyDictionary({key: 1})
    by_value = smelt.compile(lambda x: x + ("a" in values), fullgraph=True)
    by_key = smelt.compile(lambda x, key: x + keys.get(key, 7), fullgraph=True)
    x = torch.zeros(1)
    for _ in range(3):
        assert by_value(x)[0] == 1 and by_key(x, key)[0] == 1
    key = None
    gc.collect()
    assert not values and not keys
    for _ in range(3):
        assert by_value(x)[0] == 0 and by_key(x, Key())[0] == 7
    other = Key()
    keys[other] = 4
    for _ in range(3):
        assert by_key(x, other)[0] == 4 and by_key(x, Key())[0] == 7


# -- parameters

@case()
def parameter_made_inside():
    def fn(x):
        w = torch.nn.Parameter(torch.ones(3, 3))
        loss = (x @ w).sum()
        (grad,) = torch.autograd.grad(loss, [w])
        return grad, isinstance(w, torch.nn.Parameter), w.requires_grad, w.is_leaf
    return fn


@case()
def backward_into_a_made_parameter():
    def fn(x):
        w = torch.nn.Parameter(torch.ones(3, 3) * 2)
        (x @ w).sum().backward()
        return w.grad, w
    return fn


@case()
def gradient_of_a_made_parameter_is_set():
    def fn(x):
        w = torch.nn.Parameter(torch.ones(2, 3))
        was_none = w.grad is None
        if was_none:
            w.grad = torch.zeros_like(w)
        return was_none, w.grad + x
    return fn


@case()
def parameter_is_given():
    held = []

    def fn(x):
        w = torch.nn.Parameter(x * 2)
        frozen = torch.nn.Parameter(x, requires_grad=False)
        held.append(torch.nn.Parameter(torch.zeros(2)))
        return w, frozen, (w * x).sum(), type(w)
    return fn, held


def test_gradients_reach_a_made_parameter():
    def fn(x):
        w = torch.nn.Parameter(x * 2)
        return w, (w * w * x).sum()

    x = torch.arange(6.0).reshape(2, 3)
    for backend in ("native", "eager"):
        smelt.reset()
        compiled = smelt.compile(fn, fullgraph=True, backend=backend)
        for _ in range(4):
            w, loss = compiled(x)
            assert type(w) is torch.nn.Parameter and w.requires_grad and w.is_leaf and w.grad is None
            loss.backward()
            torch.testing.assert_close(w.grad, 4 * x * x)
            assert list(torch.nn.ParameterList([w]).parameters())[0] is w


@case()
def parameter_shares_its_data():
    def fn(x):
        data = x + 1
        w = torch.nn.Parameter(data)
        data.mul_(3)
        return w, data
    return fn


@pytest.mark.parametrize("case", CASES.all)
def test_case(case):
    check_case(case)
