"""Everything that can be reached from some objects, as text, so that two runs of a program can be compared.

Objects have numbers for their identity that hold over several descriptions; tensors are given with their bits, strides,
the memory they share and their gradients; functions with their cells and defaults, generators with where they are.
"""

import collections
import contextlib
import enum
import functools
import inspect
import re
import types

import torch

SIMPLE = (int, float, bool, str, bytes, complex, type(None), type(Ellipsis), range, slice, torch.dtype, torch.device)


class Description:
    """Objects as lines of text. An object met before, also in an earlier step, is only named."""

    def __init__(self):
        self.numbers, self.storages, self.kept = {}, {}, []
        self.lines = []

    def line(self, depth, label, text):
        self.lines.append("  " * depth + f"{label}: {text}")

    def number(self, value):
        self.kept.append(value)  # or its address could come back
        return self.numbers.setdefault(id(value), len(self.numbers))

    def add(self, label, value, depth=0):
        if type(value) is int and value.bit_length() > 1000:
            return self.line(depth, label, f"an int of {value.bit_length()} bits, {value % (2**61 - 1)}")
        if isinstance(value, SIMPLE):
            return self.line(depth, label, re.sub(r"0x[0-9a-f]+", "0x", repr(value)))
        if isinstance(value, (enum.Enum, type, types.ModuleType, types.BuiltinFunctionType)):
            named = getattr(value, "__qualname__", None) or getattr(value, "__name__", value)
            return self.line(depth, label, str(named))
        known = id(value) in self.seen
        self.seen.add(id(value))
        name = f"{type(value).__qualname__}#{self.number(value)}"
        if known:
            return self.line(depth, label, f"{name}, see above")
        for kind, describe in self.KINDS:
            if isinstance(value, kind):
                return describe(self, label, name, value, depth)
        return self.instance(label, name, value, depth)

    def step(self, roots):
        """The lines of everything reachable from the roots, now."""
        self.lines, self.seen = [], set()
        for label, value in roots.items():
            self.add(label, value)
        return self.lines

    def tensor(self, label, name, value, depth):
        data = value.detach()
        storage = data.untyped_storage()
        self.kept.append(storage)
        memory = self.storages.setdefault(storage._cdata, len(self.storages))
        facts = f"{name} {data.dtype} {tuple(data.shape)} strides {data.stride()} "
        facts += f"memory#{memory}+{data.storage_offset()}"
        if value.requires_grad:
            facts += " leaf with grad" if value.is_leaf else " with grad"
        if data.is_inference():
            facts += " inference"
        self.line(depth, label, f"{facts} {data.tolist()}")
        if value.is_leaf and value.grad is not None:
            self.add("grad", value.grad, depth + 1)
        for key, attribute in vars(value).items():
            self.add(f".{key}", attribute, depth + 1)

    def sequence(self, label, name, value, depth):
        self.line(depth, label, f"{name} of {len(value)}")
        for i, item in enumerate(value):
            self.add(f"[{i}]", item, depth + 1)

    def mapping(self, label, name, value, depth):
        self.line(depth, label, f"{name} of {len(value)}")
        for i, (key, item) in enumerate(value.items()):
            if not isinstance(key, SIMPLE):
                self.add(f"key {i}", key, depth + 1)
            self.add(f"[{key!r}]" if isinstance(key, SIMPLE) else f"value {i}", item, depth + 1)

    def set(self, label, name, value, depth):
        self.line(depth, label, f"{name} {sorted(map(repr, value))}")

    def function(self, label, name, value, depth):
        self.line(depth, label, f"{name} {value.__qualname__}")
        for i, cell in enumerate(value.__closure__ or ()):
            with contextlib.suppress(ValueError):
                self.add(f"cell {value.__code__.co_freevars[i]}", cell.cell_contents, depth + 1)
        for label, part in (("defaults", value.__defaults__), ("kwdefaults", value.__kwdefaults__)):
            if part:
                self.add(label, part, depth + 1)
        if hasattr(value, "__wrapped__"):
            self.add("wrapped", value.__wrapped__, depth + 1)

    def method(self, label, name, value, depth):
        self.line(depth, label, f"{type(value).__qualname__} {value.__func__.__qualname__}")
        self.add("self", value.__self__, depth + 1)

    def partial(self, label, name, value, depth):
        self.line(depth, label, name)
        for part in ("func", "args", "keywords"):
            self.add(part, getattr(value, part), depth + 1)

    def generator(self, label, name, value, depth):
        line = value.gi_frame.f_lineno if value.gi_frame else None
        self.line(depth, label, f"{name} {value.__qualname__} {inspect.getgeneratorstate(value)} at line {line}")
        for key, local in inspect.getgeneratorlocals(value).items():
            self.add(key, local, depth + 1)

    def error(self, label, name, value, depth):
        self.line(depth, label, f"{name} {re.sub(r'0x[0-9a-f]+', '0x', str(value))}")
        for key in ("__cause__", "__context__"):
            if getattr(value, key) is not None:
                self.add(key, getattr(value, key), depth + 1)
        for key, item in vars(value).items():
            self.add(f".{key}", item, depth + 1)

    def instance(self, label, name, value, depth):
        self.line(depth, label, name)
        attributes = dict(getattr(value, "__dict__", {}))
        for slot in (s for cls in type(value).__mro__ for s in vars(cls).get("__slots__", ())):
            if hasattr(value, slot):
                attributes[slot] = getattr(value, slot)
        if isinstance(value, torch.nn.Module):  # leave out the many empty tables
            attributes = {k: v for k, v in attributes.items() if not k.startswith("_") or v or k == "_buffers"}
            attributes.pop("_non_persistent_buffers_set", None)
            # hooks are kept under numbers that the whole process counts
            attributes = {k: list(v.values()) if "hooks" in k else v for k, v in attributes.items()}
        if not attributes and hasattr(value, "__length_hint__"):
            self.line(depth + 1, "left", value.__length_hint__())
        for key, attribute in attributes.items():
            self.add(f".{key}", attribute, depth + 1)

    KINDS = ()


Description.KINDS = (
    (torch.Tensor, Description.tensor),
    ((set, frozenset), Description.set),
    ((list, tuple), Description.sequence),
    (dict, Description.mapping),
    (types.FunctionType, Description.function),
    (types.MethodType, Description.method),
    (types.GeneratorType, Description.generator),
    (BaseException, Description.error),
    (functools.partial, Description.partial),
    (collections.deque, Description.sequence),
)
