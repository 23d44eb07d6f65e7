"""The tensors and generators that a function can reach: what a recording follows from its first line on."""
import functools
import types

import torch

_PLAIN = (type(None), bool, int, float, complex, str, bytes, type, types.ModuleType, types.BuiltinFunctionType)


def _is_generator_state(tensor):
    """set_rng_state() reads such a tensor's memory itself. One that is used in an op becomes an input then."""
    return tensor.dtype == torch.uint8 and tensor.dim() == 1 and tensor.is_cpu and tensor.numel() in (16, 5056)


class Reach:
    """Walks functions (closures, the globals they name), methods, modules, optimizers, containers, and the attributes
    of objects that are not PyTorch's own."""

    def __init__(self):
        self.tensors = {}
        self.generators = {}
        self.optimizers = []
        self._seen = set()
        self._alive = []  # what is in _seen by id must stay
        self._waiting = []

    def walk(self, value):
        self._waiting.append(value)
        while self._waiting:
            value = self._waiting.pop()
            if isinstance(value, _PLAIN) or id(value) in self._seen:
                continue
            self._seen.add(id(value))
            self._alive.append(value)
            self._visit(value)

    def _visit(self, value):
        if isinstance(value, torch.Tensor):
            if not _is_generator_state(value):
                self.tensors[id(value)] = value
        elif isinstance(value, torch.Generator):
            self.generators[id(value)] = value
        elif isinstance(value, torch.nn.Module):
            self._visit_module(value)
        elif isinstance(value, torch.optim.Optimizer):
            self.optimizers.append(value)
            self._add([*value.param_groups, dict(value.state)])
        elif isinstance(value, types.MethodType):
            self._add((value.__self__, value.__func__))
        elif isinstance(value, types.FunctionType):
            self._visit_function(value)
        elif isinstance(value, functools.partial):
            self._add((value.func, value.args, value.keywords))
        elif isinstance(value, dict):
            self._add(value.values())
        elif isinstance(value, (list, tuple, set, frozenset)):
            self._add(value)
        elif not _is_torchs(type(value)):
            self._add(getattr(value, '__dict__', {}).values())

    def _add(self, values):
        # The last one added is visited first: reversed, so that tensors are found in the order they are written in.
        self._waiting.extend(reversed([value for value in values if not isinstance(value, _PLAIN)]))

    def _visit_module(self, module):
        found = []
        for part in module.modules():
            self._seen.add(id(part))
            found += [*part._parameters.values(), *part._buffers.values()]
        self._add(found)

    def _visit_function(self, function):
        if _is_torchs(function):
            return
        found = []
        for cell in function.__closure__ or ():
            try:
                found.append(cell.cell_contents)
            except ValueError:  # not filled yet
                pass
        found.append(function.__defaults__ or ())
        found += [function.__globals__.get(name) for name in _names(function.__code__)]
        self._add(found)


def _names(code):
    """The globals (and attributes) that a function's code names, the functions defined in it included."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _is_torchs(thing):
    return (getattr(thing, '__module__', None) or '').split('.')[0] == 'torch'
