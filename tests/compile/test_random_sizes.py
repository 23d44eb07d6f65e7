"""Random programs at random sizes against eager: 1,000 of them, each called with five sizes."""
import pytest

from random_size_programs import check

PARTS = {'native': (0, 250, {}), 'eager': (250, 650, {'backend': 'eager'}),
         'dynamic': (650, 800, {'dynamic': True}), 'interpret': (800, 1000, {'backend': 'interpret'})}


@pytest.mark.parametrize('part', PARTS)
def test_random_sizes(part):
    first, last, settings = PARTS[part]
    for seed in range(first, last):
        differs = check(seed, **settings)
        assert not differs, f'seed {seed}\n{differs}'
