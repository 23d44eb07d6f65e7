"""A function compiled against the same function run by plain Python: results, effects, output, exceptions."""

import contextlib
import inspect
import io
import os
import random
import re
import traceback
import types

import pytest
import torch
from description import Description

import smelt

X = object()  # an argument: a fresh 2 x 3 tensor, another one in every call


def tensor(seed, *shape):
    return torch.randn(shape or (2, 3), generator=torch.Generator().manual_seed(seed))


def fresh(value, call):
    """The argument with new tensors and containers in it: both runs get their own."""
    if value is X:
        return tensor(call)
    if isinstance(value, types.FunctionType) and value.__name__ == "<lambda>" and not value.__code__.co_argcount:
        return value()  # makes an argument
    if isinstance(value, (list, set)):
        return type(value)(fresh(item, call) for item in value)
    if isinstance(value, dict):
        return {key: fresh(item, call) for key, item in value.items()}
    if type(value) is tuple:
        return tuple(fresh(item, call) for item in value)
    return value


def run(build, calls, compile_function):
    """What can be seen after each call of what build() makes: a function, or a function and some state."""
    torch.manual_seed(0)
    random.seed(0)
    built = build()
    fn, state = built if isinstance(built, tuple) else (built, None)
    compiled, description, texts = compile_function(fn), Description(), []
    for i, call in enumerate(calls):
        arguments, keywords = call if isinstance(call, tuple) and len(call) == 2 and isinstance(call[1], dict) \
            and isinstance(call[0], tuple) else (call, {})
        arguments, keywords = fresh(tuple(arguments), i), fresh(keywords, i)
        printed, result, error, lines = io.StringIO(), None, None, []
        with contextlib.redirect_stdout(printed):
            try:
                result = compiled(*arguments, **keywords)
                if isinstance(result, types.GeneratorType):
                    result = list(result)
            except Exception as e:
                error = e
                lines = [f"{f.name}:{f.lineno}: {f.line}" for f in traceback.extract_tb(e.__traceback__)[1:]
                         if not f.filename.startswith(os.path.dirname(smelt.__file__))]
        roots = {"error": error, "result": result, "arguments": arguments, "keywords": keywords, "state": state,
                 "fn": fn}
        texts.append("\n".join([f"call {i}", f"printed: {printed.getvalue()!r}", f"traceback: {lines}",
                                f"random: {torch.get_rng_state().sum()}", f"grad: {torch.is_grad_enabled()}",
                                *description.step(roots)]))
    return texts


class Cases:
    """Functions that make a function to compile, and perhaps some state with it.

    whole: one graph, no break. recompiles: that many, where other values must, or must not, be compiled again.
    not_yet: why the rest does not hold yet; the test fails as soon as it does.
    """

    def __init__(self):
        self.all = []

    def case(self, *calls, whole=True, recompiles=None, not_yet=None):
        marks = [pytest.mark.xfail(strict=True, reason=not_yet)] if not_yet else []

        def register(build):
            given = build, calls or ((X,), (X,), (X,)), whole, recompiles
            self.all.append(pytest.param(given, id=build.__name__, marks=marks))
            return build
        return register


def check_case(case):
    build, calls, whole, recompiles = case
    stats = check(build, calls)
    if whole:
        assert stats["graphs"] >= 1
        assert stats["graph_breaks"] == 0, f"{stats['graph_breaks']} breaks"
    if recompiles is not None:
        assert stats["recompiles"] == recompiles


def check(build, calls, backend="eager"):
    """Compares the two runs; returns smelt.stats() of the compiled one."""
    expected = run(build, calls, lambda fn: fn)
    smelt.reset()
    actual = run(build, calls, lambda fn: smelt.compile(fn, backend=backend))
    stats = smelt.stats()
    for a, e in zip(actual, expected, strict=True):
        assert a == e
    return stats


def line_of(fn, text):
    """(file, number) of the line of fn's body with that text in it."""
    lines, first = inspect.getsourcelines(fn)
    start = next(i for i, line in enumerate(lines) if re.match(r"\s*def ", line))
    found = [first + i for i, line in enumerate(lines) if i > start and text in line]
    assert len(found) == 1, (text, found)
    return inspect.getsourcefile(fn), found[0]
