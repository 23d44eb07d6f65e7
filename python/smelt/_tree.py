"""Nested arguments and results as flat lists of tensors, and back."""
import dataclasses

import torch


class _Leaf:
    """The place of the index-th tensor in a structure."""

    def __init__(self, index):
        self.index = index

    def __repr__(self):
        return 'a tensor'


def _is_namedtuple(value):
    return isinstance(value, tuple) and hasattr(value, '_fields')


def flatten(value, tensors):
    """A copy of the structure with every tensor replaced by its place in `tensors`, which grows."""
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return _Leaf(len(tensors) - 1)
    if _is_namedtuple(value):
        return type(value)(*(flatten(v, tensors) for v in value))
    if type(value) in (list, tuple):
        return type(value)(flatten(v, tensors) for v in value)
    if type(value).__module__.startswith('torch.return_types'):
        return type(value)([flatten(v, tensors) for v in value])
    if isinstance(value, dict) and (type(value) is dict or hasattr(value, 'copy')):
        copy = value.copy()
        for key in value:
            copy[key] = flatten(value[key], tensors)
        return copy
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changes = {f.name: flatten(getattr(value, f.name), tensors) for f in dataclasses.fields(value) if f.init}
        return dataclasses.replace(value, **changes)
    return value


def unflatten(structure, tensors):
    """The structure with the tensors in their places."""
    if isinstance(structure, _Leaf):
        return tensors[structure.index]
    if _is_namedtuple(structure):
        return type(structure)(*(unflatten(v, tensors) for v in structure))
    if type(structure) in (list, tuple):
        return type(structure)(unflatten(v, tensors) for v in structure)
    if type(structure).__module__.startswith('torch.return_types'):
        return type(structure)([unflatten(v, tensors) for v in structure])
    if isinstance(structure, dict):
        copy = structure.copy()
        for key in structure:
            copy[key] = unflatten(structure[key], tensors)
        return copy
    if dataclasses.is_dataclass(structure) and not isinstance(structure, type):
        changes = {f.name: unflatten(getattr(structure, f.name), tensors)
                   for f in dataclasses.fields(structure) if f.init}
        return dataclasses.replace(structure, **changes)
    return structure


def values_of(structure):
    """What a structure of flatten()'s has besides tensors, one after the other."""
    if isinstance(structure, dict):
        structure = tuple(structure.values())
    if isinstance(structure, (list, tuple)):
        for value in structure:
            yield from values_of(value)
    elif not isinstance(structure, _Leaf):
        yield structure
