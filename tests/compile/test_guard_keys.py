"""Guards on what dicts have for keys whose comparison would be code of the user's."""

import sys
import warnings

import pytest
import torch

import smelt


class Collides:
    """Has the hash of another key; tells what smelt was doing when it was compared."""

    def __init__(self, other):
        self.other, self.asked_by = other, set()

    def __hash__(self):
        return hash(self.other)

    def __eq__(self, other):
        self.asked_by.add(sys._getframe(1).f_code.co_name)
        return self is other


@pytest.mark.parametrize('key', ['name', 7, (1, 2)], ids=str)
def test_guards_do_not_compare_keys_by_code_of_the_user(key):
    def fn(x, table):
        return x * table[key] if key in table else x
    compiled = smelt.compile(fn, backend='eager')
    odd = Collides(key)
    tables = [{key: 2}, {odd: 5, key: 2}, {odd: 5}, {key: 3}, {True: 1, key: 4}, {}]
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')  # nothing that such a table is part of can be told by its guards
        for table in tables + tables:
            odd.asked_by.clear()
            found = compiled(torch.ones(2), table)
            assert odd.asked_by <= {'fn'}
            assert torch.equal(found, fn(torch.ones(2), table))


def test_equal_keys_of_other_types():
    def fn(x, table):
        return x * 2 if 1 in table else x
    compiled = smelt.compile(fn, backend='eager')
    for table in ({'a': 0, (): 1}, {True: 1, (): 1}, {1.0: 1, (): 1}, {-1: 1, (): 1}, {1: 1, (): 1}, {-2: 1, (): 1}):
        for _ in range(2):
            assert torch.equal(compiled(torch.ones(2), table), fn(torch.ones(2), table))
