"""Generators that are alive where a trace ends: begun ones are closed, others are made again with what they were called with."""

import pytest
import torch

import smelt

LOG = []


def multiples(y, k=1):
    try:
        for i in range(3):
            yield y * (i + k)
    finally:
        LOG.append("closed")


def in_zip(y):
    z = zip(multiples(y), multiples(y))
    return next(z)[1]


def in_enumerate(y):
    z = enumerate(multiples(y))
    return next(z)[1]


def in_list(y):
    z = [multiples(y)]
    return next(z[0])


def in_map(y):
    z = map(lambda q: q + 1, multiples(y))
    return next(z)


def in_variable(y):
    z = multiples(y)
    return next(z)


def in_two_variables(y):
    a, b = multiples(y), multiples(y)
    next(a)
    return next(b)


def in_cell(y):
    z = multiples(y)
    next(z)
    return (lambda: next(z))()


def dropped_before(y):
    z = multiples(y)
    made = next(z)
    z = None
    LOG.append("then")
    return made


@pytest.mark.parametrize("f", [in_zip, in_enumerate, in_list, in_map, in_variable, in_two_variables, in_cell, dropped_before])
@pytest.mark.parametrize("backend", ["eager", "native"])
def test_one_that_is_left_is_closed_with_the_frame(f, backend):
    seen = []
    for call in (f, smelt.compile(f, backend=backend)):
        LOG.clear()
        for i in range(3):
            LOG.append(call(torch.ones(2) * i).tolist())
        seen.append(list(LOG))
    assert seen[0] == seen[1]


def sums(x):
    return [q.sum() for q in multiples(x)]


def loop(x):
    for q in multiples(x):
        x = q.sum()
    return x


def with_number(x, k):
    for q in multiples(torch.ones(2), k):
        x = q.sum() + x.sum()
    return x


@pytest.mark.parametrize("f", [sums, loop])
def test_one_that_has_not_begun_gets_what_it_is_called_with_now(f):
    """A call that raises leaves the graph in front of the loop behind: the argument is the later call's."""
    compiled = smelt.compile(f)
    for x in (torch.ones(2), 2.0, "text", torch.ones(2), torch.ones(3), 3.0, torch.zeros(2)):
        try:
            expected = f(x)
        except AttributeError as error:
            with pytest.raises(AttributeError) as raised:
                compiled(x)
            assert str(raised.value) == str(error)
        else:
            assert repr(compiled(x)) == repr(expected)


def test_numbers_that_it_is_called_with_may_change():
    compiled = smelt.compile(with_number)
    for x, k in ((torch.ones(2), 1), (2.0, 2), (3.0, 5), (torch.ones(2), 7), (torch.ones(2), 2), (1.0, 1)):
        try:
            expected = with_number(x, k)
        except AttributeError:
            with pytest.raises(AttributeError):
                compiled(x, k)
        else:
            assert torch.equal(compiled(x, k), expected)
