"""Functions behind functools.lru_cache that take or give tensors and other objects."""

import functools

import pytest
import torch
from torch import nn

import smelt

X = torch.arange(6.0).reshape(2, 3)
runs = []


@functools.lru_cache(None)
def mask(n):
    runs.append(n)
    return torch.ones(n, n).tril()


@functools.lru_cache(maxsize=2)
def bounded(n):
    runs.append(n)
    return torch.full((3,), float(n))


@functools.cache
def doubled(t):
    runs.append('doubled')
    return t * 2


@functools.cache
def listed(n):
    return [n, torch.ones(n)]


@pytest.fixture(autouse=True)
def empty():
    for fn in (mask, bounded, doubled, listed):
        fn.cache_clear()
    runs.clear()


def calls(fn, *arguments, times=4):
    compiled = smelt.compile(fn)
    for _ in range(times):
        torch.testing.assert_close(compiled(*arguments), fn(*arguments))
    assert smelt.stats()['graph_breaks'] == 0, smelt.explain(fn)(*arguments)
    return compiled


def test_a_tensor_is_the_one_that_is_kept():
    def fn(x):
        return x @ mask(3), mask(3), mask(n=3) is mask(3)

    compiled = calls(fn, X)
    assert runs == [3, 3] and compiled(X)[1] is mask(3) and compiled(X)[2] is False
    info = mask.cache_info()
    compiled(X)
    assert mask.cache_info().misses == info.misses and mask.cache_info().hits > info.hits


def test_a_kept_tensor_may_be_changed():
    def fn(x):
        return x @ mask(3)

    compiled = calls(fn, X)
    mask(3).mul_(2)
    torch.testing.assert_close(compiled(X), X @ mask(3))
    mask(3).requires_grad_()
    assert compiled(X).requires_grad
    compiled(X).sum().backward()
    assert mask(3).grad is not None


def test_a_cache_that_is_emptied():
    def fn(x):
        return x @ mask(3), mask(3)

    compiled = calls(fn, X)
    for _ in range(3):
        before = mask(3)
        mask.cache_clear()
        runs.clear()
        found = compiled(X)
        assert runs == [3] and found[1] is mask(3) and found[1] is not before


def test_only_what_is_called_is_run():
    def fn(x, n):
        return x + bounded(n) if n > 0 else x

    compiled = smelt.compile(fn)
    for n in (1, 1, 2, 2, 0, 3, 1, 2, 3, 3, 0, 1):
        seen = list(runs)
        torch.testing.assert_close(compiled(X, n), X + n)
        assert runs[len(seen):] in ([], [n])
    bounded.cache_clear()
    runs.clear()
    compiled(X, 0)
    assert runs == []


def test_a_tensor_as_key():
    key, other = torch.ones(3), torch.zeros(3)

    def fn(x, t):
        return x + doubled(t)

    compiled = calls(fn, X, key)
    assert runs == ['doubled']
    for t in (other, key, other):
        torch.testing.assert_close(compiled(X, t), X + t * 2)
    assert runs == ['doubled'] * 2


def test_other_objects():
    def fn(x):
        kept = listed(3)
        return x * kept[0] + kept[1], len(kept)

    compiled = calls(fn, X)
    listed(3).append(1)
    assert compiled(X)[1] == 3
    listed(3)[0] = 5
    torch.testing.assert_close(compiled(X)[0], X * 5 + 1)


class Table(nn.Module):
    @functools.lru_cache(maxsize=4)
    def table(self, n):
        runs.append(n)
        return torch.arange(n).float()

    def forward(self, x):
        return x + self.table(x.shape[-1])


def test_a_method():
    model, other = Table(), Table()
    compiled = smelt.compile(model)
    for _ in range(3):
        torch.testing.assert_close(compiled(X), X + torch.arange(3.0))
    assert smelt.stats()['graph_breaks'] == 0 and runs == [3]
    wide = torch.ones(2, 5)
    for _ in range(2):
        torch.testing.assert_close(compiled(wide), wide + torch.arange(5.0))
        torch.testing.assert_close(smelt.compile(other)(X), X + torch.arange(3.0))
    assert runs == [3, 5, 3]
