"""Methods of builtin types and their subclasses under smelt.compile: what CPython's own tests ask of them. See plain_check.py."""

import collections
import enum
import math
import operator
import types

import pytest
from plain_check import X, Cases, check_case

CASES = Cases()
case = CASES.case


def error_of(call):
    try:
        return call()
    except Exception as error:
        return type(error).__name__, str(error)


@case(whole=False)
def wrong_arguments():
    def fn(x):
        items, table = [1, 2], {1: 2}
        return x * 2, [error_of(call) for call in (
            lambda: items.copy(None), lambda: table.copy(None), lambda: tuple(sequence=()), lambda: list(sequence=()),
            lambda: sum(["a", "b"], ""), lambda: sum([b"a"], start=b""), lambda: sum([[1], [2]], []))]
    return fn


@case(*((X, n) for n in (3, 4, -1, 2.5, "x", True, 10**30, 5)), whole=False)
def lengths():
    class Sized:
        def __init__(self, n):
            self.n = n

        def __len__(self):
            return self.n

    return lambda x, n: (x + 1, error_of(lambda: len(Sized(n))))


@case(whole=False)
def made_again():
    """__init__ called on what is there, and behind a __new__ of the class's own."""
    class Items(list):
        def __init__(self, items, extra=None):
            super().__init__(items)
            self.extra = extra

    class Made(list):
        def __new__(cls, items, extra=None):
            made = super().__new__(cls, items)
            made.append(0)
            return made

    class Table(dict):
        def __new__(cls, *args, **named):
            made = super().__new__(cls)
            made["first"] = 1
            return made

    class Unique(set):
        def __init__(self, items):
            super().__init__(items)

    def fn(x):
        items, empty = [1, 2, 3], []
        items.__init__()
        empty.__init__((4, 5))
        table = {1: 1}
        table.__init__({2: 2}, three=3)
        made = Items([x, 2], extra=3)
        return items, empty, table, made, made.extra, list(Made([1, 2])), dict(Table(a=1)), sorted(Unique([2, 1])), x * 2
    return fn


@case(whole=False)
def compared_sets():
    """Sets are compared by what they store, whatever __len__ and __contains__ a subclass has."""
    class Shy(set):
        def __len__(self):
            raise RuntimeError("__len__")

        def __contains__(self, item):
            raise RuntimeError("__contains__")

    def fn(x):
        a, b, c = Shy({1, 2, 3}), Shy({3, 2, 1}), Shy({1})
        return x * 2, a == b, a != b, a <= b, a < b, c < a, a >= c, a == c
    return fn


@case(whole=False)
def storage():
    """C's methods work on the storage, whatever the class has by the names of the operators."""
    class Logged(dict):
        def __init__(self, log, **items):
            super().__init__(**items)
            self.log = log

        def __setitem__(self, key, value):
            self.log.append(("set", key))
            super().__setitem__(key, value)

        def __delitem__(self, key):
            self.log.append(("del", key))
            super().__delitem__(key)

        def keys(self):
            self.log.append("keys")
            return super().keys()

    def fn(x):
        log = []
        table = Logged(log, a=1, b=2)
        table["c"] = x
        popped = table.pop("a"), table.pop("z", 5), dict.pop(table, "b"), error_of(lambda: table.pop("q"))
        del table["c"]
        table.setdefault("d", x)
        return popped, log, list(table.keys()), dict(table), x + 1
    return fn


@case()
def stored_by_super():
    """One graph, and each item logged once."""
    class Output(collections.OrderedDict):
        def __setitem__(self, key, value):
            super().__setitem__(key, value)
            super().__setattr__("log", [*getattr(self, "log", ()), key])

    def fn(x):
        output = Output()
        output["first"] = x + 1
        output["second"] = x * 2
        return output, output.log
    return fn


@case()
def merged_by_keys():
    """C asks a dict's class for keys and items if it iterates in a way of its own."""
    class Output(collections.OrderedDict):
        def __getitem__(self, key):
            return super().__getitem__(key) * 2 if isinstance(key, str) else list(self.values())[key]

    class Doubled(dict):  # by its storage
        def __getitem__(self, key):
            return 7

    class Last(dict):
        def __iter__(self):
            raise AssertionError("keys() is asked")

        def __getitem__(self, key):
            return key + "!"

    def add(x, y):
        return x + y

    doubled, last = Doubled(a=1), Last(p=1, q=2)

    def fn(x):
        output = Output()
        output["x"], output["y"] = x, x * 3
        output.move_to_end("x")
        other = {"w": 1}
        other.update(output)
        return add(**output), {**output}, list(dict(output)), other, dict(doubled), {**last}, dict(z=0, **last)
    return fn


@case(whole=False)
def ordered_storage():
    def fn(x):
        table = collections.OrderedDict(a=1, b=2)
        first = table.pop("a")
        dict.pop(table, "b")
        return first, len(table), error_of(lambda: repr(table))[0], x * 2
    return fn


@case(whole=False)
def equality():
    """A class of C's is asked as well, before or after one in Python that has no answer."""
    class Ordered(dict):
        def __eq__(self, other):
            return dict.__eq__(self, other) and all(a == b for a, b in zip(self, other))

    class Shy(list):
        def __eq__(self, other):
            return NotImplemented

        def __lt__(self, other):
            return super().__lt__(other)

    def fn(x):
        counts, items = collections.Counter("abca"), Shy([1, 2])
        return (x + 1, counts == {"a": 2, "b": 1, "c": 1}, {"a": 2, "b": 1, "c": 1} == counts, counts != {"a": 1},
                Ordered(a=1, b=2) == {"a": 1, "b": 2}, {"b": 2, "a": 1} == Ordered(a=1, b=2), Ordered(a=1) == Ordered(a=2),
                items == [1, 2], [1, 2] == items, items == [3], items < [1, 3], [0] < items, items == 5,
                dict.__eq__(Ordered(a=1), {"a": 1}), list.__eq__(items, (1, 2)))
    return fn


@case(*((X, k) for k in (1, 2, 3, 1, 2, 3, 4)), whole=False)
def bound_to_nothing_else():
    """A method of an object that only the method leads to."""
    table = {}
    length = table.__len__
    return lambda x, k: (x * k, length(), table.update({k: 1}))


@case(whole=False)
def counted():
    class Counts(dict):
        def get(self, key, default=None):
            self.asked = True
            return super().get(key, default)

    def fn(x):
        counts = Counts()
        collections._count_elements(counts, "abca")
        return counts.asked, dict(counts), x + 1
    return fn


@case(whole=False)
def blocked():
    """A special method that is None: there is none, whatever a base class has."""
    class Shut(list):
        __bool__ = __iadd__ = __add__ = __ne__ = __eq__ = None
        __hash__ = None

    def fn(x):
        one = Shut([1])
        return x + 1, [error_of(call)[0] for call in (
            lambda: bool(one), lambda: one + [1], lambda: one != 1, lambda: one == one, lambda: 1 != one)]
    return fn


@case((X, 1), (X, 2), (X, -1), (X, 0), (X, 3), whole=False)
def truth_by_length():
    class Sized:
        def __init__(self, n):
            self.n = n

        def __len__(self):
            return self.n

    return lambda x, n: (x * 2, error_of(lambda: "full" if Sized(n) else "empty"))


@case()
def asked_once():
    """`!=` asks each side once, in Python's order."""
    def make(name, answer, **more):
        def __eq__(self, other):
            self.log.append((name, "eq"))
            return answer

        def __ne__(self, other):
            self.log.append((name, "ne"))
            return answer
        return type(name, more.get("bases", ()), {"__eq__": __eq__, **({"__ne__": __ne__} if more.get("own") else {})})

    left, right = make("left", NotImplemented), make("right", NotImplemented, own=True)
    below = make("below", NotImplemented, own=True, bases=(left,))

    def fn(x):
        log = []
        results = []
        for a, b in ((left, right), (right, left), (left, below), (left, left), (below, left)):
            one, other = a(), b()
            one.log = other.log = log
            results += [one != other, one == other, one != 5, 5 != one]
        return x + 1, results, log
    return fn


@case((X, {"a": 1}), (X, {"a": 1}), (X, {"b": 2}), (X, {"a": 1, "c": 3}), whole=False)
def views_of_a_proxy():
    """What a view shows that C code made of a dict no path leads to."""
    def fn(x, table):
        proxy = types.MappingProxyType(table)
        return x * 2, [key + str(value) for key, value in proxy.items()], sum(proxy.values())
    return fn


@case(*((X, kind) for kind in ("first", "second", "first", "second")), whole=False)
def members_of_enums():
    class Members:
        class first(enum.Enum):  # noqa: N801
            one = 1
            uno = 1

        class second(enum.IntFlag):  # noqa: N801
            two = 2
            dos = 2
            none = 0

    def fn(x, kind):
        members = getattr(Members, kind)
        return [name for name, member in members.__members__.items() if name != member.name], len(members), x + 1
    return fn


@case()
def method_of_a_class_before_its_metaclass():
    class Flags(enum.Flag):
        A, B = 1, 2

    return lambda x: (x * 2, Flags.__len__(Flags.A | Flags.B), len(Flags))


@case(whole=False)
def no_keywords():
    def fn(x):
        table, items = {}, [3]
        return x + 1, [error_of(call) for call in (
            lambda: table.__contains__(x=2), lambda: table.get(key=1), lambda: items.append(object=1),
            lambda: len(obj=items), lambda: next(x=2), lambda: hash(obj=1), lambda: operator.concat(1, 2),
            lambda: operator.concat([1], [2]))], items
    return fn


@case()
def functions_that_ask_tensors():
    return lambda x: (abs(x) + 1, operator.abs(x), pow(x, 2), pow(2.0, x), pow(x, x), abs(-3))


@case()
def functions_that_ask_objects():
    class Asked:
        def __init__(self, x):
            self.x = x

        def __abs__(self):
            return self.x * 2

        def __round__(self, *digits):
            return self.x + len(digits)

        def __floor__(self):
            return self.x - 1

        def __ceil__(self):
            return self.x + 1

        def __trunc__(self):
            return "trunc"

        def __pow__(self, other):
            return self.x ** other

        def __rpow__(self, other):
            return other + self.x

    def fn(x):
        asked = Asked(x)
        return (abs(asked), round(asked), round(asked, 2), round(asked, None), math.floor(asked), math.ceil(asked),
                math.trunc(asked), pow(asked, 2), pow(2, asked))
    return fn


@case(whole=False)
def functions_that_ask_in_vain():
    class Number:
        def __float__(self):
            return 2.5

    def fn(x):
        number = Number()
        return x + 1, math.floor(number), math.pow(number, 2), math.pow(x[0, 0], 2), [error_of(call) for call in (
            lambda: abs(number), lambda: round(number), lambda: pow(number, 2), lambda: abs(x, 1), lambda: pow(x),
            lambda: round(x))]
    return fn


@pytest.mark.parametrize("case", CASES.all)
def test_like_plain_python(case):
    check_case(case)
