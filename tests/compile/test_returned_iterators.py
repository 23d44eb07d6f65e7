"""Iterators, and generators that have not begun, are made anew by each call that returns one."""

import pytest
import torch

import smelt


def of_list(x):
    return iter([x + 1, x * 2])


def begun(x):
    found = iter([x, x + 1, x * 2])
    next(found)
    return found


def zipped(x):
    return zip([x.sin(), x.cos()], (1, 2))


def mapped(x):
    y = x * 2
    return map(lambda part: part + y, [x, y])


def numbered(x):
    return enumerate((x, x * 3), 5)


def reversed_list(x):
    return reversed([x, x + 1])


def of_dict(x):
    return iter({'a': x + 1, 'b': x * 2}.items())


def expression(x):
    y = x.sin()
    return (y * factor for factor in range(3))


def over_tensors(x):
    return (part * 2 for part in [x, x + 1])


def generator(x):
    def parts(y, count):
        for i in range(count):
            yield y + i
    return parts(x * 2, 3)


def with_finally(x):
    def parts(y):
        try:
            yield y
        finally:
            y.add_(1)
    return parts(x * 2)


def half_used(x):
    parts = (x * i for i in range(4))
    next(parts)
    return parts


PROGRAMS = [of_list, begun, zipped, mapped, numbered, reversed_list, of_dict, expression, over_tensors, generator,
            with_finally, half_used]


def same(ours, theirs):
    if isinstance(theirs, tuple):
        assert isinstance(ours, tuple) and len(ours) == len(theirs)
        for mine, other in zip(ours, theirs):
            same(mine, other)
    elif isinstance(theirs, torch.Tensor):
        torch.testing.assert_close(ours, theirs)
    else:
        assert ours == theirs


@pytest.mark.parametrize('program', PROGRAMS, ids=lambda program: program.__name__)
def test_each_call_returns_its_own(program):
    compiled = smelt.compile(program)
    kept = []
    for _ in range(4):
        x = torch.randn(4)
        found = compiled(x)
        assert type(found) is type(program(x))
        kept.append((found, x))
    assert len({id(found) for found, _ in kept}) == 4
    for found, x in kept:
        theirs = list(program(x))
        ours = list(found)
        assert len(ours) == len(theirs)
        for mine, other in zip(ours, theirs):
            same(mine, other)
        assert list(found) == []


@pytest.mark.parametrize('program', [program for program in PROGRAMS if program is not half_used],
                         ids=lambda program: program.__name__)
def test_no_break(program):
    compiled = smelt.compile(program)
    for _ in range(3):
        compiled(torch.randn(4))
    assert smelt.stats()['graph_breaks'] == 0 and smelt.stats()['segments'] == 1


def scaled(x, n, name='times', table=None):
    for i in range(n):
        yield (name, x * n, i, table)


@pytest.mark.parametrize('call', [
    lambda x, n: scaled(x, n), lambda x, n: scaled(x, n + 1), lambda x, n: scaled(x, 2, name=str(n)), lambda x, n: scaled(x, 2, table=(n, n / 2)),
    lambda x, n: scaled(x, x.shape[0] + n), lambda x, n: zip(scaled(x, n), range(9)), lambda x, n: (one for one in scaled(x, n)),
])
def test_numbers_that_a_returned_generator_was_called_with(call):
    compiled = smelt.compile(call)
    for n in (1, 2, 3, 1, 5, 4):
        x = torch.ones(n)
        assert str(list(compiled(x, n))) == str(list(call(x, n)))
