"""Compares what smelt's shape rules say about a call with what PyTorch makes of it."""

import collections

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from smelt import _native

DTYPES = {
    torch.uint8: "u8", torch.int8: "i8", torch.int16: "i16", torch.int32: "i32", torch.int64: "i64",
    torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "f32", torch.float64: "f64",
    torch.complex32: "c32", torch.complex64: "c64", torch.complex128: "c128", torch.bool: "b8",
    torch.float8_e5m2: "f8e5m2", torch.float8_e4m3fn: "f8e4m3fn", torch.float8_e5m2fnuz: "f8e5m2fnuz",
    torch.float8_e4m3fnuz: "f8e4m3fnuz", torch.uint16: "u16", torch.uint32: "u32", torch.uint64: "u64",
}  # fmt: skip

ROWS = frozenset(_native.row_names())

# In-place ops whose functional twin is not called by the same name without the underscore.
TWINS = {
    "aten::normal_": "aten::normal_functional",
    "aten::bernoulli_.float": "aten::bernoulli.p",
    "aten::pow_.Scalar": "aten::pow.Tensor_Scalar",
    "aten::pow_.Tensor": "aten::pow.Tensor_Tensor",
}

# Errors that depend on values, which no shape rule can see.
VALUE_ERRORS = (
    "out of range",
    "out of bounds",
    "out of DATA bounds",
    "index",
    "Target",
    "without overflow",
    "should be between 0 and 1",
    "ZeroDivisionError",
    "for storage of size",
    "Number of elements of source",
    "probability tensor contains",
    "invalid multinomial distribution",
    "not positive-definite",
)


def name_of(func):
    schema = func._schema
    return schema.name + ("." + schema.overload_name if schema.overload_name else "")


def functional_twin(func):
    """The functional op an in-place one is turned into by functionalization, or None."""
    name = name_of(func)
    base, _, overload = name.partition(".")
    twin = TWINS.get(name)
    if twin is None and base.endswith("_") and not base.endswith("__"):
        twin = base[:-1] + ("." + overload if overload else "")
    if twin is None:
        return None
    base, _, overload = twin.partition(".")
    packet = getattr(torch.ops.aten, base.removeprefix("aten::"), None)
    return getattr(packet, overload or "default", None) if packet is not None else None


def describe(tensor):
    if tensor is None:
        return None
    return (DTYPES[tensor.dtype], tuple(tensor.shape), tensor.stride(), tensor.storage_offset(),
            str(tensor.device), tensor.is_conj(), tensor.is_neg())  # fmt: skip


def flatten(func, out):
    """The tensors a call returned, None for undefined ones; lists are flattened."""
    if not func._schema.returns:
        return []
    out = list(out) if isinstance(out, (tuple, list)) and len(func._schema.returns) != 1 else [out]
    flat = []
    for value in out:
        flat.extend(value if isinstance(value, (list, tuple)) else [value])
    return [value for value in flat if value is None or isinstance(value, torch.Tensor)]


def first_of_each(messages):
    """One message per op: the list may be long."""
    by_op = {}
    for message in messages:
        by_op.setdefault(message.split()[0], message)
    return "\n".join(by_op.values())


class ShapeChecker(TorchDispatchMode):
    """Checks every op that runs under it."""

    def __init__(self):
        super().__init__()
        self.calls = collections.Counter()  # by tier: "rule", "refused", "no row"
        self.ruled = set()  # ops the rules answered for
        self.missing = collections.Counter()  # ops without row
        self.refusals = collections.Counter()  # (op, reason)
        self.mismatches = []
        self.unnoticed = []  # the rule answered where PyTorch raised
        self.context = ""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func._schema.is_mutable and name_of(func) not in ROWS:
            self.check_twin(func, args, kwargs)
            return func(*args, **kwargs)
        return self.check(func, args, kwargs)

    def check_twin(self, func, args, kwargs):
        twin = functional_twin(func)
        if twin is None or twin._schema.is_mutable:
            return
        for a in func._schema.arguments[len(args) :]:
            if a.has_default_value() and not a.kwarg_only and a.name not in kwargs:
                args = (*args, a.default_value)
        with torch.random.fork_rng(devices=[]):
            args, kwargs = tree_map_only(torch.Tensor, torch.Tensor.detach, (args, kwargs))
            try:
                self.check(twin, args, kwargs)
            except RuntimeError:
                pass

    def check(self, func, args, kwargs):
        name = name_of(func)
        if not name.startswith("aten::"):
            return func(*args, **kwargs)
        try:
            answer = _native.infer_types(name, *args, **kwargs)
            symbolic = _native.infer_types_symbolic(name, *args, **kwargs)
        except Exception as error:  # a rule never throws
            self.mismatches.append(f"{name} in {self.context}: {self.show(args, kwargs)}: the rule threw {error}")
            return func(*args, **kwargs)
        if symbolic != answer:
            self.mismatches.append(
                f"{name} in {self.context}: {self.show(args, kwargs)}\n    numbers {answer}\n    symbols {symbolic}"
            )
        if isinstance(answer, str):
            if name in ROWS:
                self.calls["refused"] += 1
                self.refusals[name, answer] += 1
            else:
                self.calls["no row"] += 1
                self.missing[name] += 1
            return func(*args, **kwargs)
        self.calls["rule"] += 1
        self.ruled.add(name)
        try:
            out = func(*args, **kwargs)
        except Exception as error:
            if not any(word in str(error) for word in VALUE_ERRORS):
                self.unnoticed.append(f"{name} in {self.context}: {self.show(args, kwargs)}: {error}")
            raise
        tensors = flatten(func, out)
        if any(t is not None and (t.layout != torch.strided or t.dtype not in DTYPES) for t in tensors):
            self.mismatches.append(f"{name} in {self.context}: the result is not strided")
            return out
        real = [describe(tensor) for tensor in tensors]
        if real != answer:
            self.mismatches.append(
                f"{name} in {self.context}: {self.show(args, kwargs)}\n    rule {answer}\n    real {real}"
            )
        return out

    def try_call(self, func, args, kwargs):
        """A call that PyTorch may refuse: whether the rule does so too has been noted then."""
        func = func if isinstance(func, torch._ops.OpOverload) else func.default
        try:
            self.check(func, args, kwargs)
        except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError, ZeroDivisionError):
            pass

    @staticmethod
    def show(args, kwargs):
        def one(value):
            if isinstance(value, torch.Tensor):
                text = f"{DTYPES.get(value.dtype, value.dtype)}{list(value.shape)}"
                return text if value.layout != torch.strided else text + f"{{{', '.join(map(str, value.stride()))}}}"
            if isinstance(value, (list, tuple)):
                return "[" + ", ".join(map(one, value)) + "]"
            return repr(value)

        return ", ".join([one(v) for v in args] + [f"{k}={one(v)}" for k, v in kwargs.items()])

    def report(self):
        total = sum(self.calls.values())
        lines = [
            f"{total} calls: " + ", ".join(f"{count} {tier}" for tier, count in self.calls.most_common()),
            f"{len(self.ruled)} distinct ops answered of {len(ROWS)} rows",
            f"{len(self.mismatches)} mismatches, {len(self.unnoticed)} errors unnoticed",
            "most frequent without row: " + ", ".join(f"{n} {c}" for n, c in self.missing.most_common(40)),
            "most frequent refusals: "
            + "; ".join(f"{n}: {reason} {c}" for (n, reason), c in self.refusals.most_common(40)),
        ]
        return "\n".join(lines)
