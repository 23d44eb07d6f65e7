"""Which sizes of a tensor are part of what is compiled."""
import torch

from ._errors import ArgumentError, OptionError


def mark_dynamic(tensor, dim, *, min=None, max=None, name=None):
    """Tells smelt.compile that the size of `tensor` at `dim` (an int, or several) varies: the first program is for all
    sizes from `min` on (at least 2) up to `max`. Sizes 0 and 1, and those outside of that range, are compiled one by one.
    Messages, guards and graphs call it by its `name`. Where the code fixes the size all the same, the call that compiles it
    raises a SizeError with the line.

        smelt.mark_dynamic(x, 0)
        model(x)
    """
    least = 2 if min is None else min
    if not isinstance(least, int) or not (max is None or isinstance(max, int)) or (max is not None and max < least):
        raise OptionError(f'min and max are whole numbers, the first not above the second; got {min!r} and {max!r}')
    if name is not None and not isinstance(name, str):
        raise OptionError(f'name is a text, not {name!r}')
    marks = dict(getattr(tensor, '_smelt_dynamic_dims', {}))
    for one in _dims(tensor, dim, 'smelt.mark_dynamic'):
        marks[one] = (least if least > 2 else 2, max, name)
    tensor._smelt_dynamic_dims = marks


def mark_static(tensor, dim=None):
    """Tells smelt.compile that the size of `tensor` at `dim` (an int, several, or None: all) stays: each other one
    is compiled anew."""
    dims = range(tensor.dim()) if dim is None else dim
    tensor._smelt_static_dims = {*getattr(tensor, '_smelt_static_dims', ()), *_dims(tensor, dims, 'smelt.mark_static')}


def _dims(tensor, dim, caller):
    if not isinstance(tensor, torch.Tensor):
        raise ArgumentError(f'{caller} takes a tensor, not a {type(tensor).__name__}')
    dims = [dim] if isinstance(dim, int) else list(dim)
    for one in dims:
        if not isinstance(one, int) or not -tensor.dim() <= one < tensor.dim():
            raise ArgumentError(f'{caller}: there is no dimension {one!r} of a tensor that has {tensor.dim()}')
    return [one % tensor.dim() for one in dims]
