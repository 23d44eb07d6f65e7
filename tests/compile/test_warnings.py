"""warnings.warn inside of compiled functions: each call warns as plain Python does."""

import warnings

import pytest
import torch

import smelt

X = torch.arange(6.0).reshape(2, 3)


def warns(x, n=2):
    y = x * n
    warnings.warn(f'{n} is deprecated', DeprecationWarning)
    return inner(y) + 1


def inner(x):
    if x.shape[0] > 1:
        warnings.warn('several rows', stacklevel=2)
    return x.sin()


def seen(fn, *arguments, action='always'):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter(action)
        result = fn(*arguments)
    return result, [(str(w.message), w.category, w.filename, w.lineno) for w in caught]


def test_each_call_warns():
    smelt.reset()
    compiled = smelt.compile(warns)
    for _ in range(4):
        found, expected = seen(compiled, X), seen(warns, X)
        torch.testing.assert_close(found[0], expected[0])
        assert found[1] == expected[1] and len(found[1]) == 2
    assert smelt.stats()['graph_breaks'] == 0, smelt.explain(warns)(X)
    assert smelt.stats()['cache_hits'] >= 3


def test_another_text():
    compiled = smelt.compile(warns)
    for n in (2, 2, 3, 3, 2):
        assert seen(compiled, X, n)[1] == seen(warns, X, n)[1]


def test_filters_are_obeyed():
    compiled = smelt.compile(warns)
    for action in ('always', 'always', 'ignore', 'ignore', 'always'):
        assert seen(compiled, X, action=action)[1] == seen(warns, X, action=action)[1]
    x = X.clone()

    def changes(x):
        warnings.warn('before the change')
        return x.add_(1)

    compiled = smelt.compile(changes)
    for _ in range(3):
        seen(compiled, x, action='ignore')
    for _ in range(2):
        before = x.clone()
        with pytest.raises(UserWarning):
            seen(compiled, x, action='error')
        assert torch.equal(x, before)


def test_once_is_once():
    def fn(x):
        warnings.warn('only once')
        return x * 2

    compiled = smelt.compile(fn)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('once')
        for _ in range(4):
            compiled(X)
    assert len(caught) == 1


def test_a_warning_about_the_caller():
    def fn(x):
        warnings.warn('from outside', stacklevel=2)
        return x * 2

    compiled = smelt.compile(fn)
    for _ in range(3):
        found, expected = seen(lambda: compiled(X))[1], seen(lambda: fn(X))[1]
        assert found[0][2] == expected[0][2]
