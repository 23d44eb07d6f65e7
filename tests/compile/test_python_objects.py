"""Python under smelt.compile: objects, generators, context managers, exceptions. See plain_check.py."""

import collections
import contextlib
import dataclasses
import enum
import functools
import typing

import pytest
import torch
from plain_check import X, Cases, check_case, tensor
from torch import nn

CASES = Cases()
case = CASES.case


# --- objects ----------------------------------------------------------------------------------------------------------


def thing():
    class Base:
        scale = 2

        def __init__(self, n):
            self.n = n

        def apply(self, x):
            return x * self.n

        @property
        def doubled(self):
            return self.n * 2

        @doubled.setter
        def doubled(self, value):
            self.n = value / 2

        @classmethod
        def of(cls, n):
            return cls(n + 1)

        @staticmethod
        def shift(x):
            return x + 1

    class Thing(Base):
        def __init__(self, n, extra=None):
            super().__init__(n)
            self.extra = extra

        def apply(self, x):
            return super().apply(x) + Base.scale

        def __len__(self):
            return int(self.n)

        def __getitem__(self, i):
            return self.n + i

        def __call__(self, x):
            return self.apply(x)

        def __add__(self, other):
            return Thing(self.n + other)

        def __eq__(self, other):
            return isinstance(other, Thing) and self.n == other.n

        def __hash__(self):
            return hash(self.n)

        def __contains__(self, n):
            return n == self.n

        def __iter__(self):
            yield self.n
            yield self.extra

        def __getattr__(self, name):
            if name.startswith("lazy_"):
                return len(name)
            raise AttributeError(name)
    return Thing


@case()
def attributes_and_methods():
    it = thing()(3)

    def fn(x):
        it.n += 1
        it.last = x
        setattr(it, "other", it.n * 2)
        method = it.apply
        it.doubled = it.doubled + 2
        return method(x) + it(x) + getattr(it, "other") + it.lazy_one, hasattr(it, "nope"), getattr(it, "nope", 5)
    return fn, it


@case()
def objects_made_inside():
    Thing = thing()

    def fn(x):
        a, b = Thing(2, x), Thing.of(3)
        c = a + 5
        del a.extra
        a.extra = b
        same = a == Thing(2)
        return Thing.shift(a(x)) + len(b) + c[1], a, c, same, a in {a, b}, 2 in a, list(b), isinstance(c, Thing)
    return fn


@case(whole=False)
def class_attribute_counted_up():
    class Counted:
        made = 0

        def __init__(self, n):
            type(self).made += 1
            self.n = n
    return lambda x: (x * Counted(2).n + Counted.made, Counted.made), Counted


@case()
def super_mro_and_type():
    class A:
        def go(self, x):
            return x + 1

    class B(A):
        def go(self, x):
            return super().go(x) * 2

    class C(A):
        def go(self, x):
            return super().go(x) - 3

    class D(B, C):
        pass
    return lambda x: (D().go(x), [c.__name__ for c in D.__mro__], type(D()) is D, issubclass(D, A), D.__name__)


@case()
def slots_and_descriptors():
    class Doubled:
        def __set_name__(self, owner, name):
            self.name = "_" + name

        def __get__(self, instance, owner):
            return self if instance is None else getattr(instance, self.name) * 2

        def __set__(self, instance, value):
            setattr(instance, self.name, value + 1)

    class Slotted:
        __slots__ = ("a", "_b")
        b = Doubled()

    s = Slotted()
    s.a, s.b = 1, 2

    def fn(x):
        s.a += 1
        s.b = s.a
        return x * s.a + s.b
    return fn, s


@case()
def cached_property():
    class Model:
        def __init__(self):
            self.asked = 0

        @functools.cached_property
        def scale(self):
            self.asked += 1
            return 3
    m = Model()
    return lambda x: (x * m.scale + m.scale, m)


@case()
def dataclasses_():
    @dataclasses.dataclass
    class Config:
        a: int
        b: float = 0.5
        c: list = dataclasses.field(default_factory=list)

        def __post_init__(self):
            self.d = self.a * 2

    @dataclasses.dataclass(frozen=True)
    class Frozen:
        a: int

    def fn(x):
        one = Config(2)
        one.c.append(x)
        two = dataclasses.replace(one, b=1.5)
        try:
            Frozen(1).a = 2
        except dataclasses.FrozenInstanceError as e:
            text = str(e)
        return x * one.a + two.b + two.d, one, Frozen(3), Frozen(3) == Frozen(3), text
    return fn


class Pair(typing.NamedTuple):
    a: torch.Tensor
    b: int = 2

    def total(self):
        return self.a + self.b


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Flag(enum.IntFlag):
    A = 1
    B = 2


@case()
def named_tuples():
    old = collections.namedtuple("old", "p q")

    def fn(x):
        pair = Pair(x)
        a, b = pair
        return pair.total() + b, pair._replace(b=4), old(1, q=a), pair[0] is x, pair._asdict()
    return fn


@case((X, Color.RED), (X, Color.RED), (X, Color.BLUE), whole=False)
def enums():
    def fn(x, color):
        if color is Color.RED:
            x = x + color.value
        scale = {Color.RED: 2, Color.BLUE: 3}[color]
        return x * scale, color.name, Color(2), [c.value for c in Color], Flag.A | Flag.B, Flag.A in Flag(3)
    return fn


@case(whole=False)
def super_of_a_c_class_behind_a_break():
    class Counts(dict):
        def __delitem__(self, key):
            super().__delitem__(key)
            self['deleted'] = key

    def fn(x):
        counts = Counts(a=1, b=2)
        print('x')
        del counts['a']
        return x * counts['b'], counts
    return fn


@case(whole=False)
def stacks_in_each_other():
    log = []

    def fn(x):
        with contextlib.ExitStack() as outer:
            outer.enter_context(torch.no_grad())
            with contextlib.ExitStack() as inner:
                inner.callback(log.append, 1)
            y = x * 2
        return y, torch.is_grad_enabled(), log
    return fn


@case(whole=False)
def class_made_inside():
    def fn(x):
        class Local:
            k = 3

            def go(self):
                return x * self.k
        return Local().go()
    return fn


@case((X, 1), (X, 2.0), (X, "a"), (X, None), (X, [1]), (X, True), whole=False)
def isinstance_and_type():
    def fn(x, v):
        if isinstance(v, bool):
            return x
        if isinstance(v, (int, float)):
            return x + v
        if v is None:
            return -x
        return x * len(v), type(v).__name__, callable(v)
    return fn


# --- generators and context managers ----------------------------------------------------------------------------------


@case()
def generators():
    def halves(x, n):
        for i in range(n):
            x = x / 2
            yield x, i
        return "done"

    def outer(x):
        result = yield from halves(x, 2)
        yield x, result

    def fn(x):
        total, left = 0, halves(x, 3)
        first = next(left)
        for y, i in left:
            total = total + y * i
        return total, first, list(outer(x)), sum(i for _, i in halves(x, 3))
    return fn


@case()
def generators_left_in_the_middle():
    def halves(x):
        for i in range(3):
            yield x / (i + 1)

    def outer(x):
        yield from halves(x)

    def twice(x):
        yield from outer(x)
        yield from outer(x)

    def fn(x):
        pairs = [a + b for a, b in zip([x, x], twice(x))]
        left = outer(x)
        first = next(left)
        del left
        return pairs, first, next(twice(x)), any(True for _ in outer(x))
    return fn


@case()
def generator_send_throw_close():
    log = []

    def echo():
        got = 0
        try:
            while True:
                try:
                    got = yield got * 2
                except ValueError as e:
                    log.append(str(e))
                    got = -1
        finally:
            log.append("closed")

    def fn(x):
        g = echo()
        next(g)
        a = g.send(x)
        b = g.throw(ValueError("no"))
        g.close()
        return a, b
    return fn, log


@case(whole=False)
def generator_left_unfinished():
    def count():
        n = 0
        while True:
            yield n
            n += 1
    numbers = count()
    return lambda x: x + next(numbers)


@case((X,), (X,), (X,), whole=False)
def compiled_generator():
    def fn(x):
        for i in range(3):
            x = x * 2
            yield x + i
    return fn


@case()
def generators_left_that_delegate_to_a_try_block():
    log = []

    def inner(x):
        try:
            yield x / 2
        finally:
            log.append(len(log))

    def outer(x):
        yield from inner(x)

    def fn(x):
        left = outer(x * 2)
        first, before = next(left), len(log)
        left = None
        return first + 1, before, list(log)
    return fn


@case()
def generators_left_in_a_try_block():
    log = []

    def halves(x, name):
        try:
            yield x / 2
            yield x / 4
        finally:
            log.append(name)
            x.add_(1)

    def delegating(x):
        try:
            yield from halves(x, "inner")
        finally:
            log.append("outer")

    def swallowing(x):
        with contextlib.suppress(GeneratorExit):
            yield x
        log.append("swallowed")

    class Three(collections.abc.Sequence):  # its __iter__ is a generator with a try block
        def __len__(self):
            return 3

        def __getitem__(self, i):
            return range(1, 4)[i]

    def first(x):
        return next(halves(x, "local")) * 3

    def fn(x):
        y = x * 2
        left = halves(y, "dropped")
        z = next(left)
        left = None
        z = z + y + first(y)
        for half in delegating(y):
            break
        for part in swallowing(y):
            break
        for a, b in zip([4, 5], Three()):
            z = z * a + b
        return z + half, part, y
    return fn, log


@case()
def context_managers():
    log = []

    class Scope:
        def __init__(self, name, swallow=False):
            self.name, self.swallow = name, swallow

        def __enter__(self):
            log.append("+" + self.name)
            return self.name

        def __exit__(self, *error):
            log.append(f"-{self.name} {error[0].__name__ if error[0] else None}")
            return self.swallow

    @contextlib.contextmanager
    def scope(n):
        log.append(n)
        try:
            yield n + 1
        finally:
            log.append(-n)

    def fn(x):
        with Scope("a") as a, scope(3) as n:
            x = x + n
        with Scope("b", swallow=True):
            x = x * 2
            raise ValueError("gone")
        with contextlib.suppress(KeyError), contextlib.nullcontext(5) as five:
            x = x + five
            {}["a"]
        for _ in range(2):
            with Scope("c"):
                if x.shape[0] == 2:
                    continue
        return x, a
    return fn, log


@case(whole=False)
def exit_stack():
    log = []

    def fn(x):
        with contextlib.ExitStack() as stack:
            stack.callback(log.append, 1)
            stack.enter_context(torch.no_grad())
            y = x * 2
        return y
    return fn, log


@case(*[(lambda: tensor(0).requires_grad_(),)] * 3)
def grad_modes():
    def fn(x):
        with torch.no_grad():
            a = x * 2
            with torch.enable_grad():
                b = x * 3
        with torch.set_grad_enabled(False):
            d = x.sin()

        @torch.no_grad()
        def inner(y):
            return y * 5
        return a, b, d, inner(x), torch.is_grad_enabled()
    return fn


@case(whole=False)
def inference_mode():
    def fn(x):
        a = x * 2
        with torch.inference_mode():
            b = a * 4
        return a + 1, b
    return fn


@case()
def autocast():
    linear = nn.Linear(3, 3)

    def fn(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = linear(x)
            with torch.autocast("cpu", enabled=False):
                z = linear(x)
        return y, z, linear(y.float())
    return fn


@case()
def generator_context_with_return_inside():
    log = []

    @contextlib.contextmanager
    def scope():
        log.append("in")
        yield
        log.append("out")

    def fn(x):
        with scope():
            return x + 1
    return fn, log


# --- exceptions -------------------------------------------------------------------------------------------------------


@case((X, 0), (X, 1), (X, 2), (X, 3), (X, 0), (X, 1), whole=False)
def exceptions_caught():
    log = []

    def risky(n):
        if n == 1:
            raise ValueError("one")
        if n == 2:
            raise KeyError("two")
        return [1, 2][n]

    def fn(x, n):
        try:
            x = x + risky(n)
        except ValueError as e:
            log.append(str(e))
            x = -x
        except (KeyError, TypeError) as e:
            log.append(e.args)
            x = x * 2
        except IndexError:
            raise RuntimeError("from here")
        else:
            log.append("fine")
        finally:
            log.append(n)
        return x
    return fn, log


@case()
def exception_from_a_callee_three_deep():
    def c(x):
        raise ValueError(f"shape {tuple(x.shape)}")

    def b(x):
        return c(x + 1)

    def fn(x):
        try:
            b(x)
        except ValueError as e:
            return x * 2, str(e), type(e), e.__traceback__ is not None
    return fn


@case(whole=False)
def exception_that_escapes():
    log = []

    def inner(x):
        log.append(1)
        y = x * 2
        raise RuntimeError("escaped")

    def fn(x):
        log.append(x + 1)
        return inner(x)
    return fn, log


@case(whole=False)
def error_of_torch():
    def fn(x):
        y = x + 1
        return y @ y
    return fn


@case(whole=False)
def chained_exceptions():
    def fn(x):
        try:
            try:
                {}["k"]
            except KeyError as e:
                x = x + 1
                raise ValueError("chained") from e
        finally:
            x = x * 2
    return fn


@case()
def finally_and_return():
    log = []

    def fn(x):
        for i in range(3):
            try:
                if i == 1:
                    return x + i
            finally:
                log.append(i)
    return fn, log


@case()
def return_in_finally_swallows():
    def fn(x):
        try:
            raise ValueError
        finally:
            return x + 1
    return fn


@case()
def raised_again_and_notes():
    class Mine(Exception):
        def __init__(self, n):
            super().__init__(f"mine {n}")
            self.n = n

    def fn(x):
        try:
            try:
                raise Mine(x.shape[0])
            except Mine as e:
                e.n += 1
                raise
        except Exception as e:
            return x + e.n, str(e), repr(e)
    return fn


@case(whole=False)
def exception_groups():
    def fn(x):
        seen = []
        try:
            raise ExceptionGroup("many", [ValueError("a"), KeyError("b")])
        except* ValueError as group:
            seen.append(len(group.exceptions))
        except* KeyError:
            seen.append("key")
        return x + 1, seen
    return fn


@case((X, 1), (X, 1), (X, 0), whole=False)
def assertions():
    def fn(x, n):
        assert n > 0, f"n is {n}"
        return x / n
    return fn


@case()
def stop_iteration_and_next():
    def fn(x):
        it = iter([1, 2])
        total = 0
        while True:
            try:
                total += next(it)
            except StopIteration:
                break
        return x * total, next(it, "none")
    return fn


@pytest.mark.parametrize("case", CASES.all)
def test_like_plain_python(case):
    check_case(case)
