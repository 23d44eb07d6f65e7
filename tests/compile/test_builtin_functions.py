"""Functions and classes of Python's own library: what they look at is guarded, what they change is changed by cached calls too."""

import bisect
import fractions
import heapq
import itertools
import operator
import threading
import types

import pytest
import torch

import smelt


def same(found, expected):
    assert type(found) is type(expected)
    if isinstance(found, torch.Tensor):
        torch.testing.assert_close(found, expected)
    elif isinstance(found, (tuple, list)):
        assert len(found) == len(expected)
        for one, other in zip(found, expected):
            same(one, other)
    else:
        assert found == expected


def calls(fn, *arguments, breaks=0, times=4):
    """Compares calls 1 to 4 with eager's and counts the breaks."""
    smelt.reset()
    compiled = smelt.compile(fn)
    for _ in range(times):
        same(compiled(*arguments), fn(*arguments))
    assert smelt.stats()['graph_breaks'] == breaks, smelt.explain(fn)(*arguments)
    return compiled


X = torch.arange(6.0).reshape(2, 3)


# -- functions that change a list

def inserts(x, items):
    bisect.insort(items, 4)
    bisect.insort_left(items, 2)
    return x * items[1], len(items)


def test_insertion_into_a_sorted_list():
    smelt.reset()
    compiled = smelt.compile(inserts)
    for items in ([1, 9], [1, 9], [1, 9], [3, 8], [5], [1, 9]):
        found, expected = list(items), list(items)
        same(compiled(X, found), inserts(X, expected))
        assert found == expected
    assert smelt.stats()['graph_breaks'] == 0


def heaps(x, items):
    heapq.heapify(items)
    heapq.heappush(items, 0)
    first = heapq.heappop(items)
    queue = [(2, x), (1, x + 1)]
    heapq.heapify(queue)
    return x * heapq.heapreplace(items, 7) + first, heapq.nlargest(2, items), heapq.nsmallest(1, items, key=lambda n: -n), queue[0][1]


def test_heaps():
    smelt.reset()
    compiled = smelt.compile(heaps)
    for items in ([3, 1, 2], [3, 1, 2], [3, 1, 2], [5, 4], [3, 1, 2]):
        found, expected = list(items), list(items)
        same(compiled(X, found), heaps(X, expected))
        assert found == expected
    assert smelt.stats()['graph_breaks'] == 0


def test_heaps_of_tensors_are_compared_in_each_call():
    def fn(a, b):
        heap = [a, b]
        heapq.heapify(heap)
        return heap[0] * 2

    compiled = smelt.compile(fn)
    for a, b in ((1.0, 2.0), (1.0, 2.0), (3.0, 2.0), (1.0, 2.0)):
        a, b = torch.tensor(a), torch.tensor(b)
        assert torch.equal(compiled(a, b), fn(a, b))


def operators(x, items):
    operator.iconcat(items, [2])
    operator.call(items.append, 5)
    operator.setitem(items, 0, 7)
    return x * operator.call(operator.add, 1, b) if (b := len(items)) > 9 else x * b


def test_operators_that_change_something():
    compiled = smelt.compile(operators)
    for items in ([1], [1], [1], [1, 2], [1]):
        found, expected = list(items), list(items)
        same(compiled(X, found), operators(X, expected))
        assert found == expected


def test_what_is_called_by_an_operator_is_called_each_time():
    calls_made = []

    def fn(x):
        list(itertools.starmap(operator.setitem, [(calls_made, slice(0, 0), [1])]))
        operator.call(print, end='')
        return x * 2

    compiled = smelt.compile(fn)
    for count in range(1, 5):
        assert torch.equal(compiled(X), X * 2) and len(calls_made) == count


# -- getters

class Box:
    def __init__(self, n):
        self.n = n
        self.inner = types.SimpleNamespace(n=n + 1)

    def times(self, x):
        return x * self.n


BY_SECOND = operator.itemgetter(1)
box = Box(2)


def getters(x, box):
    pairs = [(1, 'b'), (2, 'a')]
    return (operator.itemgetter(0, 1)([x, x + 1]), operator.attrgetter('n', 'inner.n')(box), operator.methodcaller('times', x)(box),
            sorted(pairs, key=BY_SECOND), [*map(operator.itemgetter(0), pairs)], max(pairs, key=operator.itemgetter(0)))


def test_getters_are_followed():
    compiled = calls(getters, X, box)
    for n in (3, 2, 5):
        changed = Box(n)
        same(compiled(X, changed), getters(X, changed))
    with pytest.raises(AttributeError):
        compiled(X, 3)


def test_another_getter_is_noticed():
    def fn(x, pair):
        return x * BY(pair)

    global BY
    BY = operator.itemgetter(0)
    compiled = calls(fn, X, (2, 3))
    BY = operator.itemgetter(1)
    for _ in range(2):
        assert torch.equal(compiled(X, (2, 3)), X * 3)


# -- other builtins

def namespaces(x, box):
    made = types.SimpleNamespace(a=1, b=x)
    made.c = vars(box)['n']
    return made.b * made.a * made.c, list(vars(made)), hasattr(made, 'z'), 'n' in vars(box)


def test_namespaces_and_vars():
    compiled = calls(namespaces, X, Box(2))
    for n in (3, 4, 2):
        same(compiled(X, Box(n)), namespaces(X, Box(n)))


def test_a_namespace_is_made_by_each_call():
    compiled = smelt.compile(lambda x: types.SimpleNamespace(a=x, n=[1]))
    results = [compiled(X) for _ in range(4)]
    assert len({id(result) for result in results}) == 4 and len({id(result.n) for result in results}) == 4
    assert all(torch.equal(result.a, X) and vars(result).keys() == {'a', 'n'} for result in results)
    with pytest.raises(TypeError):
        smelt.compile(lambda x: vars(x.shape[0]))(X)


def texts(x):
    table = str.maketrans('ab', 'xy')
    return (x * int.from_bytes(b'\x01\x02', 'big'), 'a-b'.translate(table), ','.join(str(size) for size in x.shape), '-'.join(map(str, x.shape)),
            ''.join(reversed('abc')), float(fractions.Fraction(1, 2)), int(fractions.Fraction(7, 2)))


def test_texts_and_conversions():
    compiled = calls(texts, X)
    same(compiled(torch.ones(3, 1)), texts(torch.ones(3, 1)))


class Level:
    def __init__(self, value):
        self.value = value

    def __float__(self):
        return self.value


def test_conversions_by_code_of_the_class():
    def fn(x, level):
        return x * float(level)

    smelt.reset()
    compiled = smelt.compile(fn)
    for value in (1.0, 2.0, 2.0, 3.5):
        same(compiled(X, Level(value)), X * value)
    assert smelt.stats()['graph_breaks'] == 0
    for wrong in ('text', 3):
        with pytest.raises(TypeError, match='Level.__float__ returned non-float'):
            compiled(X, Level(wrong))


def iterators(x):
    first, second = itertools.tee(x.shape)
    source = iter([1, 2, 0, 5])
    return x * sum(first), list(second), list(iter(lambda source=source: next(source), 0)), list(itertools.starmap(pow, [(2, 3), (3, 2)])), next(source)


def test_iterators():
    compiled = calls(iterators, X)
    same(compiled(torch.ones(3, 1)), iterators(torch.ones(3, 1)))


class Counted(type):
    def __call__(cls, *arguments):
        made = super().__call__(*arguments)
        made.tag = cls.__name__
        return made


class Thing(metaclass=Counted):
    def __init__(self, n):
        self.n = n


def test_a_metaclass_that_makes_objects():
    def fn(x, n):
        thing = Thing(n)
        return x * thing.n, thing.tag

    compiled = calls(fn, X, 3)
    same(compiled(X, 4), fn(X, 4))


# -- attributes

class Slotted:
    __slots__ = ('value', '__weakref__')


def test_a_slot_that_gets_a_value_later():
    slotted = Slotted()

    def fn(x):
        try:
            return x * slotted.value
        except AttributeError:
            return x + 100

    compiled = smelt.compile(fn)
    for _ in range(3):
        assert torch.equal(compiled(X), X + 100)
    slotted.value = 3
    for _ in range(3):
        assert torch.equal(compiled(X), X * 3)


def by_dict(x, n):
    made = Box(1)
    made.__dict__['n'] = n
    vars(made).update(m=n, k=n + 1)
    y = x * made.n
    made.m += 1
    made.k = 5
    return y * made.m, made.k, vars(made)['n']


def test_numbers_put_into_the_dict_of_an_object():
    smelt.reset()
    compiled = smelt.compile(by_dict)
    for n in (2, 2, 3, 4, 5, 2):
        same(compiled(X, n), by_dict(X, n))
    assert smelt.stats()['graph_breaks'] == 0


local = threading.local()


def by_thread(x):
    before = getattr(local, 'depth', 1)
    local.depth = before + 1
    y = x * local.depth
    local.depth = before
    return y


def test_attributes_of_a_thread():
    smelt.reset()
    compiled = smelt.compile(by_thread)
    for depth in (None, None, 2, 2, 5, 7, 7):
        if depth is not None:
            local.depth = depth
        assert torch.equal(compiled(X), by_thread(X))
        assert getattr(local, 'depth', 1) == (depth or 1)
    assert smelt.stats()['graph_breaks'] == 0 and smelt.stats()['cache_hits'] >= 3
    found = []
    thread = threading.Thread(target=lambda: found.extend((compiled(X), compiled(X), vars(local))))
    thread.start()
    thread.join()
    assert torch.equal(found[0], X * 2) and torch.equal(found[1], X * 2) and found[2] == {'depth': 1}
    assert local.depth == 7 and torch.equal(compiled(X), X * 8)


def leaf(x):
    weight = torch.ones(3)
    weight.requires_grad = True
    (x * weight).sum().backward()
    return weight.grad, weight


def test_a_flag_set_on_a_new_tensor():
    calls(leaf, X)
    compiled = smelt.compile(leaf)
    for _ in range(3):
        grad, weight = compiled(X)
        assert weight.requires_grad and weight.is_leaf and weight.grad is grad


def test_a_flag_set_on_what_has_a_gradient_is_an_error():
    def fn(x):
        y = x * 2
        y.requires_grad = True
        return y

    compiled, x = smelt.compile(fn), X.clone().requires_grad_()
    for _ in range(3):
        assert compiled(X).requires_grad
        with pytest.raises(RuntimeError, match='leaf'):
            compiled(x)
