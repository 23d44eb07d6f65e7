"""Small programs whose calls read something that changes later: how they are run, compiled and by plain Python.

A world is the source of a module with a function `f`. Changes are statements that are executed in that module between
calls. Whatever `f` returns or raises, what the module's list `log` has then and what its function `state` gives, if there
is one, must be the same for both. A function `drive`, if there is one, is given `f` and calls it.
"""

import asyncio
import math
import re

import numpy
import torch

PRELUDE = """
import abc, bisect, collections, contextlib, contextvars, copy, dataclasses, enum, functools, heapq, inspect, io, itertools
import math, operator, os, sys, threading, types, typing, weakref
import numpy as np, torch, torch.nn as nn, torch.nn.functional as F
log = []
def note(*what):
    log.append(what)
"""


def shown(value, depth=0):
    """The value as text, tensors and arrays with all that can be seen of them; no addresses."""
    if depth > 6:
        return "..."
    if isinstance(value, torch.Tensor):
        return ("tensor", type(value).__name__, value.dtype, tuple(value.shape), value.requires_grad, repr(value.tolist()))
    if isinstance(value, numpy.ndarray):
        return ("array", value.dtype.str, value.shape, repr(value.tolist()))
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, [shown(v, depth + 1) for v in value])
    if isinstance(value, dict):
        return (type(value).__name__, [(shown(k, depth + 1), shown(v, depth + 1)) for k, v in value.items()])
    if isinstance(value, (set, frozenset)):
        return (type(value).__name__, sorted(repr(shown(v, depth + 1)) for v in value))
    if value is None or isinstance(value, (int, float, complex, str, bytes, range, slice, torch.dtype, torch.device)):
        return (type(value).__name__, repr(value))
    return type(value).__name__


def outcome(call):
    try:
        return without_addresses(shown(call()))
    except (Exception, asyncio.CancelledError) as error:
        return (type(error).__name__, without_addresses(str(error)))


def without_addresses(described):
    return re.sub(r"0x[0-9a-f]{6,}", "0x", described if isinstance(described, str) else repr(described))


def run(source, changes, compile_function, calls=3, argument="torch.arange(6.0).reshape(2, 3)"):
    """[what each call came to, and what has been noted by then]"""
    module = {"__name__": "hostile"}
    exec(compile(PRELUDE + source, "<hostile>", "exec"), module)
    call = compile_function(module["f"])
    drive = module.get("drive", lambda call: call(eval(argument, module)))
    seen = []

    def step(times):
        for _ in range(times):
            result = outcome(lambda: drive(call))
            seen.append((result, shown(module["log"]), outcome(module["state"]) if "state" in module else ""))

    try:
        step(calls)
        for change in changes:
            seen.append((outcome(lambda: exec(compile(change, "<change>", "exec"), module)), "", change))
            step(2)
    finally:
        if "restore" in module:
            module["restore"]()
    return seen


NUMBER = re.compile(r"-?\d+\.\d+(?:e[+-]?\d+)?")


def is_near(a, b):
    """The same but for the last digits of floating numbers."""
    a, b = repr(a), repr(b)
    if NUMBER.sub("", a) != NUMBER.sub("", b):
        return False
    pairs = zip(map(float, NUMBER.findall(a)), map(float, NUMBER.findall(b)), strict=True)
    return all(math.isclose(one, other, rel_tol=1e-3, abs_tol=1e-4) for one, other in pairs)


def differences(source, changes, compile_function, near=False, **more):
    """Where the two runs part; empty if they do not. What compilers compute may be near what plain Python computes."""
    expected, found = run(source, changes, lambda f: f, **more), run(source, changes, compile_function, **more)
    for number, (a, b) in enumerate(zip(expected, found, strict=True)):
        if a != b and not (near and is_near(a, b)):
            return f"step {number + 1}\n  plain:    {a}\n  compiled: {b}\n--- the program\n{source}\n--- changed by\n{changes}"
    return ""
