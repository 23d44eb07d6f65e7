"""Parts of one tensor, one written and one read, whose places follow from sizes: that they lie apart is relied on, and asked anew."""
import pytest
import torch

import smelt

STAYS = {'rollback': False}


def outcome(function, *arguments):
    arguments = [x.clone() for x in arguments]
    try:
        return function(*arguments), arguments, None
    except RuntimeError as error:
        return None, arguments, str(error).split('\n')[0]


def sweep(function, calls, limit):
    smelt.reset()
    compiled = smelt.compile(function, options=STAYS)
    for arguments in calls:
        found, wanted = outcome(compiled, *arguments), outcome(function, *arguments)
        assert found[2] == wanted[2]
        torch.testing.assert_close(found[:2], wanted[:2])
    stats = smelt.stats()
    assert stats['segments'] <= limit, smelt.explain(compiled)(*calls[0]).recompiles


def rows(*sizes):
    return [(torch.randn(n, 6),) for n in sizes]


def first_and_last(x):
    x[:4] += x[x.shape[0] - 4:]
    return x


def last_into_first(x):
    x[:3].add_(x[-3:])
    return x


@pytest.mark.parametrize('function', [first_and_last, last_into_first])
def test_where_they_meet_it_is_the_error_of_eager(function):
    sweep(function, rows(20, 19, 7, 5, 6, 4, 30, 8, 20), limit=9)


def halves(x):
    n, m = x.shape
    x[:, : m // 2] += x[:, m // 2: 2 * (m // 2)]
    x[: n // 2].mul_(x[n - n // 2:])
    return x.sum(0)


def interleaved(x):
    n = x.shape[0] // 2
    y = x[: 2 * n]
    y[::2] += y[1::2]
    y.view(n, 2, -1)[:, 1].sub_(y.view(n, 2, -1)[:, 0])
    return y + 1


def blocks(x):
    n, m = x.shape
    x[: n // 2, : m // 2] = x[n - n // 2:, m - m // 2:]
    x[1:, : m // 2] *= x[:-1, m - m // 2:]
    return x


@pytest.mark.parametrize('function', [halves, interleaved, blocks])
def test_parts_that_never_meet_are_one_program(function):
    sizes = ((8, 6), (10, 6), (12, 8), (30, 10), (6, 20), (14, 12), (16, 4))
    sweep(function, [(torch.randn(*size),) for size in sizes], limit=3)


def test_windows_that_overlap_for_some_sizes():
    def windows(x, width):
        parts = x.as_strided((4, width.shape[0]), (5, 1))
        parts.mul_(2)
        return x

    sweep(windows, [(torch.randn(60), torch.zeros(n)) for n in (3, 4, 5, 2, 3)], limit=3)
    compiled = smelt.compile(windows, options=STAYS)
    x = torch.randn(60)
    for n in (3, 4, 7, 9, 5):
        torch.testing.assert_close(compiled(x.clone(), torch.zeros(n)), windows(x.clone(), torch.zeros(n)))
