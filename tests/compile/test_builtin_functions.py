"""Functions and classes of Python's own library: what they look at is guarded, what they change is changed by cached calls too."""

import bisect
import contextlib
import fractions
import heapq
import inspect
import itertools
import logging
import operator
import os
import random
import re
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


class Name(str):
    def upper(self):
        return 'other'


def of_class(x, name):
    return x * len(name.split('-')), name.replace('-', '+'), name.upper(), tuple(int(part) for part in torch.__version__.split('+')[0].split('.')[:2]) > (1, 0)


def test_texts_of_a_class():
    name = Name('a-b')
    compiled = calls(of_class, X, name)
    for text in ('a', 'a-b-c', 'a-b'):
        same(compiled(X, Name(text)), of_class(X, Name(text)))
    same(compiled(X, 'a-b'), of_class(X, 'a-b'))


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


# -- generators of random numbers, texts, contexts, loggers

def draws(x, seed):
    rng = random.Random(seed)
    items = [1, 2, 3, 4]
    rng.shuffle(items)
    return x * rng.random() + rng.randint(1, 5), items, rng.choice(items), rng.sample(range(10), 3), rng.uniform(0, 1), rng.gauss(0, 1)


def test_a_generator_of_random_numbers_with_a_seed():
    compiled = calls(draws, X, 3)
    random.seed(0)
    state = random.getstate()
    for seed in (4, 3, 4, 5):
        same(compiled(X, seed), draws(X, seed))
    assert random.getstate() == state


def test_a_generator_goes_on_where_it_is():
    compiled = smelt.compile(lambda x: (x * 2, made := random.Random(3), made.random()))
    for _ in range(3):
        _, made, first = compiled(X)
        expected = random.Random(3)
        assert first == expected.random() and made.random() == expected.random()


def test_without_a_seed_each_call_draws_others():
    def fn(x):
        return x * 0 + random.Random().random(), random.random()

    compiled = smelt.compile(fn)
    found = [compiled(X) for _ in range(4)]
    assert len({float(y[0, 0]) for y, _ in found}) == 4 and len({number for _, number in found}) == 4


NUMBERS = re.compile(r'(\d+)')


def matches(x, text):
    return x * sum(int(match.group(1)) for match in NUMBERS.finditer(text)), [match.span() for match in re.finditer('a', text)], os.path.join('a', text)


def test_all_matches_of_a_pattern():
    matches(X, 'a')  # patterns are compiled once
    compiled = calls(matches, X, 'a1b22a')
    for text in ('5', 'aa', 'a1b22a'):
        same(compiled(X, text), matches(X, text))


def stacked(x):
    done = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.callback(done.append, 1)
        y = x * 2
    return y, done


def test_a_stack_of_contexts():
    compiled = calls(stacked, X)
    try:
        raise ValueError
    except ValueError:  # something is being handled now
        same(compiled(X), stacked(X))
    same(compiled(X), stacked(X))


logger = logging.getLogger('smelt.test_builtin_functions')


def logs(x):
    logger.info('x is %s', x.shape)
    if logger.isEnabledFor(logging.DEBUG):
        logger.debug('more')
    return x * 2


def test_a_logger_that_takes_no_note(caplog):
    logger.setLevel(logging.ERROR)
    compiled = calls(logs, X)
    assert not caplog.records
    for level, records in ((logging.INFO, 1), (logging.ERROR, 0), (logging.DEBUG, 2), (logging.ERROR, 0)):
        logger.setLevel(level)
        for _ in range(2):
            caplog.clear()
            assert torch.equal(compiled(X), X * 2) and len(caplog.records) == records
    logging.disable(logging.CRITICAL)
    try:
        logger.setLevel(logging.DEBUG)
        caplog.clear()
        assert torch.equal(compiled(X), X * 2) and not caplog.records
    finally:
        logging.disable(logging.NOTSET)


def takes(x, mask=None, *, scale=2):
    return x * scale


def by_signature(x, function):
    parameters = inspect.signature(function).parameters
    names = [name for name in parameters if name != 'x']
    return function(x, **({'scale': 3} if 'scale' in parameters else {})), names, len(parameters), parameters['mask'].default


def test_parameters_of_a_function():
    compiled = calls(by_signature, X, takes)

    def other(x, mask=5):
        return x + 1

    for function in (other, takes, other):
        same(compiled(X, function), by_signature(X, function))
