"""Passes through random functions, as in eager."""
import pytest
import torch
from random_passes import play

import smelt

SEEDS, AT_ONCE = 400, 40


def compare(found, expected):
    if isinstance(expected, torch.Tensor):
        largest = expected.abs().max().nan_to_num().item() if expected.is_floating_point() else 0
        torch.testing.assert_close(found, expected, rtol=0, atol=2e-4 * largest + 2e-6, equal_nan=True)
    elif isinstance(expected, (list, tuple)):
        assert len(found) == len(expected)
        for pair in zip(found, expected):
            compare(*pair)
    else:
        assert found == expected


@pytest.mark.slow
@pytest.mark.filterwarnings('ignore')
@pytest.mark.parametrize('options', [{}, {'backend': 'eager'}], ids=['native', 'eager'])
@pytest.mark.parametrize('first', range(0, SEEDS, AT_ONCE))
def test_random_passes(first, options):
    for seed in range(first, first + AT_ONCE):
        smelt.reset()
        expected, found = play(seed, None), play(seed, options)
        try:
            compare(found, expected)
        except AssertionError as error:
            raise AssertionError(f'{seed}: {expected[0]}') from error
