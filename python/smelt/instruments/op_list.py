"""The aten ops of a call, written down with the tensors that they were given, so that any stretch of them can be run
again: in eager, compiled, or as lines of a script."""
import dataclasses

import torch
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode

from .state import copy_of


class _Value:
    """The place of a tensor in an op's arguments: which tensor of the list it is."""

    def __init__(self, number):
        self.number = number


class OpList(TorchDispatchMode):
    """Active while a call is made. Afterwards `ops` has what was called."""

    def __init__(self):
        super().__init__()
        self.ops = []        # (op, args, kwargs, numbers of the results), tensors as _Value
        self.contents = {}   # number -> what the tensor held when it was first seen
        self._numbers = {}   # id -> number
        self._alive = []

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        placed = _pytree.tree_map(self._place, (args, kwargs))
        before = {value.number: copy_of(tensor) for value, tensor in zip(_values(placed), _tensors((args, kwargs)))
                  if value.number not in self.contents}
        result = op(*args, **kwargs)
        self.contents.update(before)
        results = [self._number(tensor) for tensor in _tensors(result)]
        for number, tensor in zip(results, _tensors(result)):
            self.contents[number] = copy_of(tensor)
        self.ops.append((op, *placed, results))
        return result

    def _number(self, tensor):
        if id(tensor) not in self._numbers:
            self._numbers[id(tensor)] = len(self._alive)
            self._alive.append(tensor)
        return self._numbers[id(tensor)]

    def _place(self, value):
        return _Value(self._number(value)) if isinstance(value, torch.Tensor) else value

    def stretch(self, first, last):
        """The ops from `first` to `last` as a function of tensors, and what it is given."""
        ops = self._needed(first, last)
        made, inputs = set(), []
        for _, args, kwargs, results in ops:
            for value in _values((args, kwargs)):
                if value.number not in made and value.number not in inputs:
                    inputs.append(value.number)
            made.update(results)
        return Stretch(ops, inputs, [self.contents[number] for number in inputs])

    def _needed(self, first, last):
        """Of these ops, those that the last one's results depend on, and those that write to what it reads. What was
        drawn at random is given."""
        drawn = {number for op in self.ops[first:last] if torch.Tag.nondeterministic_seeded in op[0].tags
                 for number in op[3]}
        ops = [op for op in self.ops[first:last] if not op[3] or not drawn.issuperset(op[3])]
        ops.append(self.ops[last])
        wanted, kept = {value.number for value in _values(ops[-1][1:3])}, [ops[-1]]
        for op in reversed(ops[:-1]):
            if wanted & {*op[3]} or op[0]._schema.is_mutable:
                kept.append(op)
                wanted |= {value.number for value in _values(op[1:3])}
        return kept[::-1]


@dataclasses.dataclass(frozen=True)
class Stretch:
    """Calls its ops one after the other; gives the results of the last one."""

    ops: list
    inputs: list   # numbers of the tensors that it is given
    tensors: list  # what these hold

    def function(self):
        """As a plain Python function, for smelt.compile."""
        names = {}
        exec(self.code(), {'torch': torch}, names)
        return names['ops']

    def code(self):
        """The function `ops` as Python text."""
        lines = [f'def ops({", ".join(f"t{number}" for number in self.inputs)}):']
        for op, args, kwargs, results in self.ops:
            call = f'{_path(op)}({_arguments(args, kwargs)})'
            names = ', '.join(f't{number}' for number in results)
            if isinstance(results, list) and len(results) == 1 and not _returns_list(op):
                lines.append(f'    {names} = {call}')
            else:
                lines.append(f'    {names + ", = " if len(results) == 1 else names + " = " if names else ""}{call}')
        lines.append(f'    return ({"".join(f"t{number}, " for number in self.ops[-1][3])})')
        return '\n'.join(lines) + '\n'

    def __str__(self):
        return ', '.join(_path(op).removeprefix('torch.ops.') for op, *_ in self.ops)


def _returns_list(op):
    returns = op._schema.returns
    return len(returns) != 1 or 'List' in str(returns[0].type)


def _path(op):
    return f'torch.ops.{op.namespace}.{op._schema.name.split("::")[1]}.{op._overloadname}'


def _arguments(args, kwargs):
    return ', '.join([*map(_text, args), *(f'{name}={_text(value)}' for name, value in kwargs.items())])


def _text(value):
    if isinstance(value, _Value):
        return f't{value.number}'
    if isinstance(value, (list, tuple)):
        inner = ', '.join(map(_text, value))
        return f'[{inner}]'
    if isinstance(value, float) and (value != value or value in (float('inf'), float('-inf'))):
        return f"float('{value}')"
    if isinstance(value, torch.device):
        return f'torch.device({str(value)!r})'
    return repr(value)


def _tensors(value):
    return [leaf for leaf in _pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _values(value):
    return [leaf for leaf in _pytree.tree_leaves(value) if isinstance(leaf, _Value)]
