"""How far two tensors are apart: absolutely, relatively, in units of the last place, and whether that is too far."""
import dataclasses
import math

import torch

# A result may be so many times further from the fp64 reference than eager's is, or so many roundings of its largest
# element; without a reference, so many roundings from eager's, of which a short dtype can't be granted many: 512 of bfloat16
# are more than the number itself. Where eager itself moves when its inputs are rounded otherwise, an element may be off by
# ROUNDINGS times that.
TIMES, ROUNDINGS = 4.0, 16.0
_ROUNDINGS_ALONE = {torch.float16: 64.0, torch.bfloat16: 16.0}
_INTEGERS = {torch.float64: torch.int64, torch.float32: torch.int32, torch.float16: torch.int16, torch.bfloat16: torch.int16}


@dataclasses.dataclass
class Difference:
    """How far apart one output, gradient or changed tensor is, compiled and in eager; and each from the fp64 reference, None where there
    is none."""

    name: str
    dtype: str
    shape: list
    max_abs: float
    max_rel: float
    max_ulp: float
    compiled_from_fp64: float | None
    eager_from_fp64: float | None
    ok: bool
    note: str = ''


def compare(name, compiled, eager, reference=None, spread=None):
    """A Difference. `spread`: how far each element of eager's moves when its inputs are rounded otherwise (conditioning.py)."""
    if not isinstance(eager, torch.Tensor) or not isinstance(compiled, torch.Tensor):
        return _compare_values(name, compiled, eager)
    shape, dtype = list(eager.shape), str(eager.dtype).removeprefix('torch.')
    if compiled.shape != eager.shape or compiled.dtype != eager.dtype:
        note = f'compiled is {str(compiled.dtype).removeprefix("torch.")}{list(compiled.shape)}'
        return Difference(name, dtype, shape, math.inf, math.inf, math.inf, None, None, False, note)
    compiled, eager = compiled.detach(), eager.detach()
    if compiled.is_quantized or compiled.layout is not torch.strided:
        return Difference(name, dtype, shape, 0.0, 0.0, 0.0, None, None, True, 'not compared: not a plain tensor')
    if compiled.numel() == 0:
        return Difference(name, dtype, shape, 0.0, 0.0, 0.0, None, None, True)
    if not eager.is_floating_point() and not eager.is_complex():
        equal = torch.equal(compiled, eager)
        off = 0.0 if equal else float((compiled.double() - eager.double()).abs().max())
        found = Difference(name, dtype, shape, off, 0.0 if equal else math.inf, 0.0, None, None, equal)
        return found if equal else _granted(found, compiled, eager, 0.0, spread)
    return _compare_floats(name, dtype, shape, compiled, eager, reference, spread)


def _granted(found, compiled, expected, bound, spread):
    """A Difference that is off, unless eager's own elements move as far where it is."""
    if spread is not None and spread.shape == compiled.shape and bool(
            (distance(compiled, expected) <= (ROUNDINGS * spread).clamp(min=bound)).all()):
        found.ok, found.note = True, "eager moves as far when its inputs are rounded otherwise"
    return found


def _compare_floats(name, dtype, shape, compiled, eager, reference, spread):
    off = distance(compiled, eager)
    wide = torch.view_as_real(eager) if eager.is_complex() else eager
    scale = _scale(eager)
    magnitude = eager.abs().double()
    relative = torch.where(magnitude > 0, off / magnitude, torch.where(off > 0, math.inf, 0.0))
    relative = float(relative.max())
    from_compiled = from_eager = None
    eps = torch.finfo(wide.dtype).eps
    note = ''
    if reference is not None and reference.shape == eager.shape:
        from_compiled, from_eager = (float(distance(value, reference).max()) for value in (compiled, eager))
        scale = max(scale, _scale(reference))
        bound = max(TIMES * from_eager, ROUNDINGS * eps * scale)
        ok = from_compiled <= bound
        if not ok and math.isnan(from_compiled - from_eager):
            ok = float(off.max()) == 0.0
    else:
        reference, bound = eager, _ROUNDINGS_ALONE.get(wide.dtype, 512.0) * eps * scale
        ok = float(off.max()) <= bound
    if float(off.max()) == 0.0:
        ok, note = True, 'same bits' if _ulp(compiled, eager) == 0 else ''
    found = Difference(name, dtype, shape, float(off.max()), relative, _ulp(compiled, eager), from_compiled, from_eager,
                       bool(ok), note)
    return found if ok else _granted(found, compiled, reference, bound, spread)


def _scale(values):
    magnitude = values.detach().abs()
    magnitude = magnitude[magnitude.isfinite()]
    return float(magnitude.max()) if magnitude.numel() else 0.0


def distance(one, other):
    """Per element, as f64: 0 where both are the same infinity or both NaN, inf where only one is."""
    wide = torch.complex128 if one.is_complex() else torch.float64
    one, other = one.to(wide), other.to(wide)
    distance = (one - other).abs()
    same = (one == other) | (one.isnan() & other.isnan())
    distance = torch.where(same, torch.zeros_like(distance), distance)
    return torch.nan_to_num(distance, nan=math.inf, posinf=math.inf)


def _ulp(one, other):
    """The most representable numbers between two elements."""
    if one.is_complex():
        one, other = torch.view_as_real(one), torch.view_as_real(other)
    if one.dtype not in _INTEGERS:
        return 0.0
    kind = _INTEGERS[one.dtype]

    def ordered(values):
        bits = values.contiguous().view(kind).to(torch.int64)
        return torch.where(bits < 0, torch.iinfo(kind).min - bits, bits)
    distance = (ordered(one) - ordered(other)).abs().double()  # of two f64 far apart it may wrap around
    both = (one.isnan() & other.isnan()) | (one == other)
    distance = torch.where(both, torch.zeros_like(distance), distance)
    return float(distance.max()) if distance.numel() else 0.0


def _compare_values(name, compiled, eager):
    kind = type(eager).__name__
    if isinstance(eager, float) and isinstance(compiled, float):
        off = abs(compiled - eager) if not (math.isnan(compiled) and math.isnan(eager)) else 0.0
        ok = compiled == eager or off <= 1e-6 * max(1.0, abs(eager))
        return Difference(name, kind, [], off, off / abs(eager) if eager else off, 0.0, None, None, ok)
    if not isinstance(eager, (bool, int, str, bytes, complex, type(None))):
        return Difference(name, kind, [], 0.0, 0.0, 0.0, None, None, True, 'not compared')
    equal = type(compiled) is type(eager) and compiled == eager
    return Difference(name, kind, [], 0.0 if equal else math.inf, 0.0, 0.0, None, None, equal,
                      '' if equal else f'compiled is {compiled!r:.60}, eager {eager!r:.60}')
