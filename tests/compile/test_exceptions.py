"""Errors in cached calls: eager's type, message and lines, and what was done before them stays done, once.

The traced calls get good indices; then bad ones come, for which a tensor op of the cached program raises.
"""

import traceback

import pytest
import torch

import smelt

GOOD, BAD = torch.tensor([0, 1]), torch.tensor([0, 9])


def run(build, compile_function):
    fn, state = build()
    compiled, texts = compile_function(fn), []
    for indices in (GOOD, GOOD, GOOD, BAD, GOOD, BAD):
        x = torch.ones(2, 2)
        try:
            texts.append(repr(compiled(indices, x)))
        except Exception as error:
            lines = [(f.name, f.lineno) for f in traceback.extract_tb(error.__traceback__)
                     if f.filename == __file__ and f.name != "run"]
            chain, at = [], error
            while at is not None:
                chain.append((type(at), str(at)))
                at = at.__context__
            texts.append((lines, chain))
        texts.append((repr(x), repr(state)))
    return texts


def before_any_change():
    weight, log = torch.arange(8.0).reshape(4, 2), []
    def fn(i, x):
        log.append('before')
        y = x + 1
        r = torch.nn.functional.embedding(i, weight)
        log.append('after')
        return r + y
    return fn, log


def behind_a_change_in_place():
    weight, log = torch.arange(8.0).reshape(4, 2), []
    def fn(i, x):
        log.append('before')
        x.add_(1)
        log.append('middle')
        r = torch.nn.functional.embedding(i, weight)
        log.append('after')
        x.mul_(2)
        return r + x
    return fn, log


def handled_in_the_function():
    weight, log = torch.arange(8.0).reshape(4, 2), []
    def fn(i, x):
        x.add_(1)
        log.append('m')
        try:
            r = torch.nn.functional.embedding(i, weight)
        except IndexError as e:
            log.append(str(e)[:20])
            r = torch.zeros(2, 2)
        finally:
            log.append('fin')
        return r + x
    return fn, log


def in_a_callee():
    weight, log = torch.arange(8.0).reshape(4, 2), []
    def inner(i):
        return torch.nn.functional.embedding(i, weight)
    def fn(i, x):
        log.append('a')
        x.add_(1)
        r = inner(i)
        log.append('b')
        return r + x
    return fn, log


def raised_in_a_handler():
    log = []
    def fn(i, x):
        try:
            raise KeyError('a')
        except KeyError:
            log.append(x.sum().item())
            raise ValueError('b')
    return fn, log


def that_eager_always_raises():
    p = torch.ones(2, requires_grad=True)
    log = []
    def fn(i, x):
        log.append('x')
        y = x * 2
        p.add_(1)
        return y
    return fn, log


def exception_that_is_kept():
    log, keep = [], {}
    def fn(i, x):
        e = ValueError('kept')
        keep['e'] = e
        try:
            raise e
        except ValueError:
            pass
        log.append(keep['e'].__traceback__ is not None)
        return x + 1
    return fn, log


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("build", [
    before_any_change, behind_a_change_in_place, handled_in_the_function, in_a_callee,
    raised_in_a_handler, that_eager_always_raises, exception_that_is_kept])
def test_like_plain_python(build, backend):
    expected = run(build, lambda fn: fn)
    assert run(build, lambda fn: smelt.compile(fn, backend=backend)) == expected
