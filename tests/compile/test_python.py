"""Python under smelt.compile: functions, control flow, containers, strings. Every call, the one that is followed and
those that are cached, does what plain Python does, effects included: see plain_check.py.
"""

import collections
import dataclasses
import functools
import itertools
import operator

import pytest
import torch
from plain_check import X, Cases, check_case

CASES = Cases()
case = CASES.case


# --- functions and their arguments ------------------------------------------------------------------------------------


@case()
def one_expression():
    return lambda x: x * 2 + 1


@case((X,), (X, 5), ((X,), {"k": 3}), (X, 5), whole=False)
def defaults():
    def fn(x, k=2, *, j=1):
        return x * k + j
    return fn


@case((X, X, X), (X, X, X), (X, X, X))
def star_arguments():
    def fn(x, *rest, **named):
        return x + sum(rest) + len(rest) + len(named), rest
    return fn


@case(((X,), {"a": X, "b": 2}), ((X,), {"a": X, "b": 2}), ((X,), {"a": X, "b": 2}))
def keyword_arguments():
    def inner(x, *, a, **more):
        return x + a * more["b"], more

    def fn(x, **named):
        return inner(x, **named), inner(x, **{**named, "c": 1})
    return fn


@case((X, 1, 2), (X, 1, 2), (X, 3, 4))
def spread_calls():
    def inner(x, a, b=5, *c, d=1, **e):
        return x * a + b + len(c) + d + len(e)

    def fn(x, a, b):
        pair = (a, b)
        return inner(x, *pair), inner(x, *pair, 7, 8, d=2), inner(*[x, a], **{"d": 3, "z": 4})
    return fn


@case()
def default_that_is_mutated():
    def inner(x, seen=[]):
        seen.append(len(seen))
        return x + len(seen)

    inner.__defaults__ = ([],)

    def fn(x):
        return inner(x) + inner(x)
    return fn, inner


@case()
def closure_and_nonlocal():
    count = 0

    def fn(x):
        nonlocal count
        count += 1

        def add(y):
            return x + y * count
        return add(x) + add(1)
    return fn


@case()
def closure_made_and_returned():
    def fn(x):
        y = x + 1
        calls = []

        def later(z):
            calls.append(z)
            return y + z
        later(1)
        return later
    return fn


@case()
def cells_shared_by_two_closures():
    def fn(x):
        total = x

        def add(n):
            nonlocal total
            total = total + n

        def get():
            return total * 2
        add(1)
        add(2)
        return get()
    return fn


@case()
def late_binding_in_a_loop():
    def fn(x):
        fns = [lambda y: y + i for i in range(3)]
        fixed = [lambda y, i=i: y + i for i in range(3)]
        return [f(x) for f in fns + fixed]
    return fn


COUNTER = 0


@case()
def globals_read_and_written():
    global COUNTER
    COUNTER = 0

    def fn(x):
        global COUNTER
        COUNTER += 1
        return x * COUNTER
    return fn, lambda: COUNTER


@case()
def recursion():
    def power(x, n):
        return x if n == 0 else power(torch.tanh(x) + n, n - 1)

    def fib(n):
        return n if n < 2 else fib(n - 1) + fib(n - 2)
    return lambda x: power(x, 4) + fib(6)


@case()
def partial_and_wraps():
    def traced(fn):
        @functools.wraps(fn)
        def wrapper(*args, **kwargs):
            wrapper.calls += 1
            return fn(*args, **kwargs) + 1
        wrapper.calls = 0
        return wrapper

    @traced
    def inner(x, k):
        return x * k
    triple = functools.partial(inner, k=3)
    return lambda x: triple(x) + functools.partial(torch.add, x)(1) + len(inner.__name__)


@case()
def cached_function():
    @functools.lru_cache
    def size(n):
        return n * 2
    return lambda x: x * size(3) + size(x.shape[0])


@case((X, lambda: torch.sin), (X, lambda: torch.sin), (X, lambda: torch.cos), whole=False)
def function_as_argument():
    return lambda x, f: f(x) + 1


# --- control flow -----------------------------------------------------------------------------------------------------


@case((X, 1), (X, 1), (X, -1), (X, 5), whole=False)
def branches_on_numbers():
    def fn(x, n):
        if n > 3:
            return x.sin()
        elif n > 0:
            x = x * n
        else:
            x = x - n
        return x + 1
    return fn


@case((X, 3), (X, 3), (X, 0), (X, 5), whole=False)
def loops():
    def fn(x, n):
        seen = []
        for i in range(n):
            if i == 1:
                continue
            if i == 4:
                break
            seen.append(i)
            x = x + i
        else:
            x = -x
        while n > 0:
            n -= 1
            if n == 2:
                continue
            x = x * 2
        return x, seen, n
    return fn


@case()
def nested_loops():
    def fn(x):
        for i in range(3):
            for j in range(i):
                x = x + i * j
                if j > 1:
                    break
            else:
                x = x - 1
        return x
    return fn


@case((X, 0), (X, 1), (X, 2), (X, "s"), (X, [1, 2, 3]), (X, {"a": 4, "b": 5}), (X, None), whole=False)
def match():
    def fn(x, v):
        match v:
            case 0 | 1 as n:
                return x + n
            case int(n) if n > 1:
                return x * n
            case str():
                return x.sin()
            case [first, *rest]:
                return x + first, rest
            case {"a": a, **more}:
                return x - a, more
            case _:
                return None
    return fn


@case()
def match_on_classes():
    @dataclasses.dataclass
    class Point:
        a: int
        b: int

    def fn(x):
        match Point(1, 2):
            case Point(0, b):
                return x + b
            case Point(a=1, b=c):
                return x * c
    return fn


@case((X, 2), (X, 2), (X, 3), whole=False)
def conditional_expressions():
    return lambda x, n: (x if n > 2 else -x) + (n and 5) + (0 or n) + (1 if 0 < n < 3 else 2) + (not n)


@case()
def assignment_expressions():
    def fn(x):
        if (n := x.shape[0]) > 1:
            x = x + n
        return [y := x + 1, y * 2, [m := i for i in range(3)], m]
    return fn


@case()
def unpacking():
    def fn(x):
        a, b = x
        (c, d), *rest = [(1, 2), 3, 4]
        first, *middle, last = range(5)
        a, b = b, a
        return a + c * d, b, rest, first, middle, last, [*rest, *middle], {**{"a": 1}, "b": x}
    return fn


@case()
def augmented_assignment():
    def fn(x):
        n, xs, d = 3, [1], {"a": 1}
        n += 2; n *= 3; n -= 1; n //= 2; n **= 2; n %= 40; n <<= 1; n |= 1; n ^= 3; n &= 31
        xs += [2]
        xs *= 2
        d["a"] += n
        d |= {"b": 2}
        x = x + n
        x += 1
        x *= 2
        return x, n, xs, d
    return fn


@case()
def deletion():
    def fn(x):
        y, xs, d = x + 1, [1, 2, 3], {"a": 1, "b": 2}
        z = y * 2
        del y, xs[0], d["a"], xs[:1]
        try:
            y
        except UnboundLocalError as e:
            return z, xs, d, str(e)
    return fn


# --- containers -------------------------------------------------------------------------------------------------------


@case((X, [1, 2]), (X, [1, 2]), (X, [1, 2]))
def list_argument_mutated():
    def fn(x, xs):
        xs.append(x + 1)
        xs.extend([3, 1])
        xs.insert(0, 9)
        xs[1] = 7
        xs[2:3] = [5, 5]
        xs.remove(9)
        last = xs.pop(2)
        del xs[0]
        xs.reverse()
        return x * last, xs, len(xs)
    return fn


@case((X, {"a": 1}), (X, {"a": 1}), (X, {"a": 1}))
def dict_argument_mutated():
    def fn(x, d):
        d["b"] = x + d["a"]
        d.update(c=3, a=2)
        d.setdefault("e", []).append(1)
        d.pop("zz", None)
        for k, v in d.items():
            if isinstance(v, int):
                x = x + v
        return x, list(d), list(d.values())[0], d.get("q", 4), "a" in d, d.pop("c")
    return fn


@case((X, {1, 2}), (X, {1, 2}), (X, {1, 2}))
def sets():
    def fn(x, s):
        s.add(5)
        s.discard(1)
        s |= {7}
        other = {i % 3 for i in range(5)}
        return x + len(s) + sum(other & {1, 2}), sorted(s - other), 5 in s, other <= {0, 1, 2, 3}, frozenset(s)
    return fn


@case()
def list_that_lives_on():
    seen = []

    def fn(x):
        seen.append(x.sum())
        return x + len(seen)
    return fn, seen


@case()
def dict_that_lives_on():
    cache = {}

    def fn(x):
        if "w" not in cache:
            cache["w"] = torch.ones(3)
        cache["n"] = cache.get("n", 0) + 1
        return x * cache["w"]
    return fn, cache


@case()
def ordered_dict_deque_counter_defaultdict():
    def fn(x):
        od = collections.OrderedDict(a=1, b=2)
        od.move_to_end("a")
        dq = collections.deque([1, 2, 3], maxlen=3)
        dq.append(4)
        dq.appendleft(0)
        dq.rotate(1)
        counts = collections.Counter("abca")
        groups = collections.defaultdict(list)
        for i in range(4):
            groups[i % 2].append(i)
        return x + od["b"] + dq[0] + counts["a"], od, dq, dict(counts), dict(groups)
    return fn


@case()
def comprehensions():
    def fn(x):
        a = [x + i for i in range(3) if i != 1]
        b = {k: v * 2 for k, v in zip("ab", (1, 2))}
        c = {i // 2 for i in range(4)}
        d = [[i * j for j in range(2)] for i in range(2)]
        e = [i + j for i in range(2) for j in range(i)]
        return sum(a) + sum(b.values()) + len(c), d, e, tuple(y * 2 for y in a)
    return fn


@case()
def iteration_helpers():
    def fn(x):
        xs = [3, 1, 2]
        out = [x + i * v for i, v in enumerate(xs, 1)]
        out += [a + b for a, b in zip(xs, reversed(xs))]
        out += list(map(lambda v: v * 2, xs)) + list(filter(None, [0, 1, 2])) + list(itertools.chain(xs, [9]))
        out += sorted(xs, key=lambda v: -v) + [max(xs), min(xs, key=lambda v: (v - 2) ** 2), sum(xs, 10)]
        out += [any(v > 2 for v in xs), all(v > 2 for v in xs), *itertools.accumulate(xs), *itertools.islice(xs, 2)]
        out += list(itertools.product([1], [2, 3]))
        out += [functools.reduce(operator.mul, xs), len(xs), abs(-3), divmod(7, 3)]
        return out, list(zip(*[(1, 2), (3, 4)])), list(range(0, 6, 2))[::-1], next(iter(xs))
    return fn


@case(whole=False)
def sort_reversed_by_any_object():
    """An error before Python 3.12."""
    def fn(x):
        try:
            return x * 2, sorted([1, 3, 2], key=lambda v: v, reverse=[0]), sorted([1, 3, 2], key=lambda v: v, reverse="")
        except TypeError as error:
            return x * 2, str(error)
    return fn


@case()
def zip_strict_and_itertools():
    def fn(x):
        try:
            list(zip([1], [2, 3], strict=True))
        except ValueError as e:
            text = str(e)
        return x + 1, text, list(itertools.zip_longest([1], [2, 3])), [list(g) for _, g in itertools.groupby([1, 1, 2])]
    return fn


@case()
def slicing():
    def fn(x):
        xs = list(range(6))
        s = slice(1, 5, 2)
        return x[0], x[:, 1:], x[..., -1], x[None], x[[0, 1]], x[s.start:], xs[s], xs[::-1], "abcdef"[2:-1], x[0, 1]
    return fn


@case()
def tensors_iterated():
    def fn(x):
        total = 0
        for row in x:
            total = total + row
        a, b = x.unbind(0)
        return total, a - b, len(x), [c for c in x.t()], list(x.shape), x.size(), x.shape[0] * 2
    return fn


# --- strings ----------------------------------------------------------------------------------------------------------


@case((X, 3, 0.5), (X, 3, 0.5), (X, 4, 0.25), whole=False)
def f_strings():
    def fn(x, n, p):
        name = "x"
        return x + n, f"{n} {p:.2f} {name!r:>5} {n + 1:03d} {x.shape} {{}} {name}{n:{n}d}", f"{x.dtype}"
    return fn


@case()
def string_methods():
    def fn(x):
        s = "a-b-c"
        d = {part: i for i, part in enumerate(s.split("-"))}
        text = "%s %d %.1f" % ("q", 3, 0.5) + "{} {k}".format(1, k=2) + ",".join(d) + s.upper().replace("B", "z")
        return x * d["c"] + len(text), text, s.startswith("a"), "b" in s, s.partition("-"), ord(s[0]), repr(s)
    return fn


@pytest.mark.parametrize("case", CASES.all)
def test_like_plain_python(case):
    check_case(case)
