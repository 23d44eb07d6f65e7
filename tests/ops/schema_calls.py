"""Calls made from an op's schema, and a process that compares the shape rules with PyTorch on them.

The arguments need not fit together, and some of PyTorch's kernels crash on such. So a program apart makes the calls
(this file, run), and tells before each op that its rules have answered: what kills it after that is PyTorch's.
"""

import json
import sys
import warnings

import torch
from random_layouts import CALLS, DEVICE, DTYPES, Layouts
from shape_check import ShapeChecker, name_of

from smelt import _native


def overload_of(name):
    base, _, overload = name.removeprefix("aten::").partition(".")
    return getattr(getattr(torch.ops.aten, base), overload or "default")


def argument(layouts, schema_argument, takes_numbers, shape, dtype):
    """A value for one argument, or None for the default."""
    kind, name = str(schema_argument.type), schema_argument.name
    chance, choice = layouts.chance, layouts.choice
    if kind in ("Tensor", "Optional[Tensor]"):
        if kind != "Tensor" and chance(0.4):
            return None
        if kind == "Tensor" and takes_numbers and chance(0.1):
            return choice([1, 2.5, True, 0.25, 1j])
        own = dtype if chance(0.8) else choice(DTYPES)
        if name in ("mask", "condition") and chance(0.8):
            own = torch.bool
        if name in ("index", "indices") and chance(0.8):
            own = torch.int64
        return layouts.tensor(layouts.broadcast(shape), own)
    if kind in ("number", "Optional[number]"):
        return None if "Optional" in kind and chance(0.3) else choice([1, 2, 0.5, 1.5, True, 3, 0.25, 2])
    if kind == "bool":
        return chance(0.5)
    if kind == "int" and "dtype" in name:
        return choice(DTYPES)
    if kind == "int":
        return choice([0, 1, -1, 2])
    if kind == "float":
        return 0.5
    if kind == "List[int]":
        return layouts.rng.sample(range(len(shape)), layouts.rng.randrange(len(shape) + 1))
    raise NotImplementedError(kind)


def calls_from_schema(layouts, name, count):
    schema = overload_of(name)._schema
    takes_numbers = torch._C._should_allow_numbers_as_tensors(schema.name.removeprefix("aten::"))
    plain = ("Tensor", "Optional[Tensor]", "number", "Optional[number]", "bool", "int", "float", "List[int]")
    wanted = [a for a in schema.arguments if str(a.type) in plain or not a.has_default_value()]
    if any(str(a.type) not in plain for a in wanted) or not any("Tensor" in str(a.type) for a in wanted):
        return
    for _ in range(count):
        shape, dtype = layouts.shape(), layouts.choice(DTYPES) if layouts.chance(0.5) else torch.float32
        kwargs = {}
        for a in schema.arguments:
            use = a in wanted and not (a.has_default_value() and layouts.chance(0.4))
            if use:
                kwargs[a.name] = argument(layouts, a, takes_numbers, shape, dtype)
            elif not a.has_default_value():
                kwargs[a.name] = None
        if any(isinstance(v, torch.Tensor) and v.device.type == DEVICE for v in kwargs.values()):
            yield overload_of(name), (), kwargs


def ask_rules(calls):
    """Only whether they come back: what they answer is compared later."""
    for op, args, kwargs in calls:
        try:
            _native.infer_types(name_of(op), *args, **kwargs)
        except RuntimeError:
            pass


def serve():
    """The name of an op in, two lines out: "ruled", and what is wrong, as JSON."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for name in map(str.strip, sys.stdin):
        ask_rules(calls_from_schema(Layouts(name), name, CALLS))
        print("ruled", flush=True)
        checker = ShapeChecker()
        checker.context = name
        for op, args, kwargs in calls_from_schema(Layouts(name), name, CALLS):
            checker.try_call(op, args, kwargs)
        print(json.dumps({"mismatches": checker.mismatches, "unnoticed": checker.unnoticed}), flush=True)


if __name__ == "__main__":
    serve()
