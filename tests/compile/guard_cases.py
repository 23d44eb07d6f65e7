"""What a function may depend on: cases of test_guards.py, and how they are run."""

import contextlib

import pytest
import torch

CASES, UNRELATED = [], []


def case(build):
    CASES.append(pytest.param(build, id=build.__name__))
    return build


def unrelated(build):
    """The change has nothing to do with the function: it is not compiled again."""
    UNRELATED.append(pytest.param(build, id=build.__name__))
    return build


def shown(value):
    if isinstance(value, torch.Tensor):
        return ("tensor", value.dtype, tuple(value.shape), value.stride(), value.requires_grad, repr(value.tolist()))
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, [shown(v) for v in value])
    if isinstance(value, dict):
        return ("dict", [(k, shown(v)) for k, v in value.items()])
    return (type(value).__name__, repr(value))


def outcome(call):
    try:
        return shown(call())
    except Exception as error:
        return (type(error), str(error))


def run(build, compile_function):
    with contextlib.ExitStack() as stack:
        made = build(stack) if build.__code__.co_argcount else build()
        fn, changes = made[0], made[1]
        arguments = made[2] if len(made) > 2 else (lambda: (torch.arange(6.0).reshape(2, 3),))
        compiled = compile_function(fn)
        results = [outcome(lambda: compiled(*arguments())) for _ in range(3)]
        for change in changes:
            change()
            results += [outcome(lambda: compiled(*arguments())) for _ in range(2)]
        return results
