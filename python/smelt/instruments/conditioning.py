"""How far a result may be off because the function itself is that sensitive.

A step of Adam divides a gradient by its own size: where the gradient is nothing but rounding, so is the step, and two right
implementations are as far apart there as the learning rate. How far is measured: eager is called again with inputs that were
rounded otherwise, and each element of a result may be off by some times what it moves then.
"""
import torch

from . import verify
from .difference import distance
from .state import State

RUNS = 8  # with other roundings: an element that moves in none of them is not sensitive


def rounded_otherwise(values, generator):
    """The values, each moved by at most one unit in its last place."""
    wide = torch.complex128 if values.is_complex() else torch.float64
    real = torch.view_as_real(values) if values.is_complex() else values
    part = torch.rand(values.shape, generator=generator, device=values.device, dtype=torch.float64) * 2 - 1
    return (values.to(wide) * (1 + part * torch.finfo(real.dtype).eps)).to(values.dtype)


def _is_rounded(tensor):
    return tensor.is_floating_point() or tensor.is_complex()


class _Generators(dict):
    """One for each device, which all start from the same seed."""

    def __missing__(self, device):
        self[device] = torch.Generator(device=device).manual_seed(0)
        return self[device]


def spread_of(call, args, kwargs, state, eager, with_gradients=True):
    """An Outcome of distances: how far each element of eager's outcome moves when what the call is given is rounded otherwise.
    None where the call can't be made with such inputs."""
    generators = _Generators()
    spread = verify.Outcome([None] * len(eager.values), {}, {})
    try:
        for _ in range(RUNS):
            state.restore()
            with torch.no_grad():
                for tensor in state.tensors:
                    if _is_rounded(tensor) and tensor.is_leaf:
                        tensor.detach().copy_(rounded_otherwise(tensor.detach(), generators[tensor.device]))
            moved = State(call, args, kwargs)
            moved.names = state.names
            _widen(spread, verify.outcome(call, args, kwargs, moved, with_gradients), eager)
    except Exception:  # a tensor that can't be written to, sizes that follow from contents
        return None
    finally:
        state.restore()
    return spread


def _widen(spread, found, eager):
    """Takes another outcome into the spread."""
    if len(found.values) != len(eager.values):
        raise ValueError('another number of results')
    for number, (one, other) in enumerate(zip(found.values, eager.values)):
        spread.values[number] = _larger(spread.values[number], one, other)
    for spreads, ones, others in ((spread.gradients, found.gradients, eager.gradients),
                                  (spread.changed, found.changed, eager.changed)):
        for name in ones.keys() & others.keys():
            spreads[name] = _larger(spreads.get(name), ones[name], others[name])


def _larger(spread, one, other):
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor) or one.shape != other.shape:
        return spread
    if one.is_quantized or one.layout is not torch.strided or one.is_meta:
        return spread
    moved = distance(one, other)
    return moved if spread is None else torch.maximum(spread, moved)


def spread_of_function(function, tensors, expected):
    """[distances] of the results of a function of tensors, by the same measure."""
    generators = _Generators()
    spread = [None] * len(expected)
    for _ in range(RUNS):
        given = [rounded_otherwise(tensor, generators[tensor.device]) if _is_rounded(tensor) else tensor.clone()
                 for tensor in tensors]
        spread = [_larger(before, one, other) for before, one, other in zip(spread, function(*given), expected)]
    return spread
