"""Numbers that change from call to call, and code that asks for more than arithmetic: no guard on their values."""

import bisect
import math
import weakref
from collections import Counter

import pytest
import torch

import smelt

X = torch.arange(4.0)


class Holder:
    pass


def check(function, calls, recompiles):
    """function(n) for each of these n, eager and compiled, with so many ways through the code besides the first."""
    compiled = smelt.compile(function)
    for n in calls:
        assert torch.equal(compiled(n), function(n)), n
    stats = smelt.stats()
    assert stats['graph_breaks'] == 0
    assert stats['recompiles'] <= recompiles


FUNCTIONS = {
    'cos': lambda n: X * math.cos(n),
    'floor': lambda n: X * math.floor(n / 2),
    'pow': lambda n: X * math.pow(n, 0.5),
    'int': lambda n: X * int(n / 2),
    'float': lambda n: X * float(n),
    'abs': lambda n: X * abs(n - 3),
    'round': lambda n: X * round(n / 3, 1),
    'min': lambda n: X * min(n, 100),
    'max': lambda n: X * max(0, n),
    'tensor': lambda n: X + torch.tensor(n, dtype=torch.float32),
    'as_tensor': lambda n: X + torch.as_tensor(n / 2),
}


@pytest.mark.parametrize('name', FUNCTIONS)
def test_a_function_of_a_number(name):
    check(FUNCTIONS[name], range(1, 8), 0)


def test_where_a_number_stands():
    milestones = [3, 6]
    check(lambda n: X * bisect.bisect_right(milestones, n), range(9), 2)


@pytest.mark.parametrize('among', (Counter([3, 6]), {3: 1, 6: 1}, [3, 6], (3, 6, 'x', None)), ids=repr)
def test_a_number_that_is_none_of_some(among):
    check(lambda n: X * 2 if n in among else X * n, (0, 1, 2, 3, 4, 5, 6, 7, 8), 2)


def test_a_list_that_gets_what_it_was_none_of():
    among = [3, 6]

    def function(n):
        return X * 2 if n in among else X * n

    compiled = smelt.compile(function)
    for n in (1, 2, 4):
        assert torch.equal(compiled(n), function(n))
    among[0] = 4
    assert torch.equal(compiled(4), X * 2)
    among.append(5)
    assert torch.equal(compiled(5), X * 2)


def test_a_counter_in_a_list():
    def count(seen):
        seen[0] += 1
        return X * seen[0], seen[1]

    compiled, mine, theirs = smelt.compile(count), [0, 'x', 7], [0, 'x', 7]
    for _ in range(5):
        result, expected = compiled(mine), count(theirs)
        assert torch.equal(result[0], expected[0])
        assert (result[1], mine) == (expected[1], theirs)
    assert smelt.stats()['recompiles'] == 0
    mine[1] = theirs[1] = 'y'
    assert compiled(mine)[1] == count(theirs)[1] == 'y'


def test_a_list_written_and_read_as_a_whole():
    def shift(seen):
        seen[0], seen[2] = seen[2] + 1, seen[0]
        return X * sum(seen), list(seen)

    compiled, mine, theirs = smelt.compile(shift), [1, 2, 3], [1, 2, 3]
    for _ in range(4):
        result, expected = compiled(mine), shift(theirs)
        assert torch.equal(result[0], expected[0])
        assert result[1] == expected[1]
        assert mine == theirs


def test_a_weak_reference():
    holder = Holder()
    holder.scale = 2.0
    reference = weakref.ref(holder)

    def function():
        found = reference()
        return X if found is None else X * found.scale

    compiled = smelt.compile(function)
    for _ in range(3):
        assert torch.equal(compiled(), X * 2)
    holder.scale = 3.0
    assert torch.equal(compiled(), X * 3)
    assert smelt.stats()['graph_breaks'] == 0
    del holder
    assert reference() is None, 'guards must not keep it alive'
    assert torch.equal(compiled(), X)


def test_a_function_bound_by_hand():
    def scaled(self, x):
        return x * self.scale

    holder = Holder()
    holder.scale = 2.0
    compiled = smelt.compile(lambda x: scaled.__get__(holder, Holder)(x))
    for _ in range(3):
        assert torch.equal(compiled(X), X * 2)
    assert smelt.stats()['graph_breaks'] == 0


def test_a_strict_zip():
    def weighted(scales):
        return sum((X * scale * n for n, scale in zip((1, 2), scales, strict=True)), X)

    compiled = smelt.compile(weighted)
    for scale in (1.0, 2.0, 3.0, 4.0):
        assert torch.equal(compiled([scale, 2.0]), weighted([scale, 2.0]))
    assert smelt.stats()['graph_breaks'] == 0
    for scales in ([1.0], [1.0, 2.0, 3.0], []):
        with pytest.raises(ValueError) as expected:
            weighted(scales)
        with pytest.raises(ValueError) as mine:
            smelt.compile(weighted)(scales)
        assert str(mine.value) == str(expected.value)


def test_numbers_of_tensors():
    compiled = smelt.compile(lambda t: X * float(t) + int(t))
    for value in (1.5, 2.5, 3.25):
        t = torch.tensor(value)
        assert torch.equal(compiled(t), X * value + int(value))
    assert smelt.stats()['graph_breaks'] == 0
    with pytest.raises((TypeError, ValueError, RuntimeError)):
        compiled(torch.ones(3))


def test_devices_are_known_by_value():
    def grouped(groups):
        return X * groups[torch.device('cpu'), torch.float32]

    compiled = smelt.compile(grouped)
    for scale in (1.0, 2.0, 3.0, 4.0):
        groups = {(torch.device('cpu'), torch.float32): scale}
        assert torch.equal(compiled(groups), X * scale)
    assert smelt.stats()['recompiles'] <= 1


def test_keys_that_are_tensors():
    first, second = torch.ones(2), torch.zeros(2)
    scales = {first: 2.0}

    def scaled(x):
        if x not in scales:
            scales[x] = 5.0
        return x + scales[x]

    compiled = smelt.compile(scaled)
    for _ in range(3):
        assert torch.equal(compiled(first), first + 2)
    assert torch.equal(compiled(second), second + 5)
    assert torch.equal(compiled(second), second + 5)
    scales[first] = 3.0
    assert torch.equal(compiled(first), first + 3)
    del scales[first]
    assert torch.equal(compiled(first), first + 5)
    assert [id(key) for key in scales] == [id(second), id(first)]
    assert smelt.stats()['graph_breaks'] == 0
