"""What belongs to the whole process, the collector and the function that runs frames, is the user's while smelt
compiles and while code runs that is not part of a trace."""

import ctypes
import gc

import pytest
import torch

import smelt


def eval_function():
    api = ctypes.pythonapi
    api.PyInterpreterState_Get.restype = ctypes.c_void_p
    get = api._PyInterpreterState_GetEvalFrameFunc
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    return get(api.PyInterpreterState_Get())


def inner(x):
    y = x.sin()
    seen.append(gc.isenabled())
    return y * 2


def breaks_in_a_callee(x):
    return inner(x * 2) + 1


def breaks(x):
    y = x * 2
    seen.append(gc.isenabled())
    return y + 1


def returns(x):
    return x * 2 + 1


seen = []


@pytest.mark.parametrize('collects', [True, False])
@pytest.mark.parametrize('function', [returns, breaks, breaks_in_a_callee])
def test_collector_and_hook(function, collects):
    before = eval_function()
    states = []

    def backend(graph, examples):
        states.append((gc.isenabled(), eval_function()))
        return graph

    try:
        if not collects:
            gc.disable()
        compiled = smelt.compile(function, backend=backend)
        for _ in range(3):
            del seen[:]
            x = torch.rand(3)
            assert torch.equal(compiled(x), function(x))
            assert set(seen) <= {collects}
            assert (gc.isenabled(), eval_function()) == (collects, before)
    finally:
        gc.enable()
    assert states
    assert set(states) == {(collects, before)}


def test_the_collector_is_switched_by_the_function():
    def switches(x):
        y = x * 2
        gc.disable()
        return y + 1

    compiled = smelt.compile(switches)
    for _ in range(3):
        gc.enable()
        try:
            compiled(torch.rand(3))
            assert not gc.isenabled()
        finally:
            gc.enable()
