"""The tensors and generators that a function can reach: what a recording follows from its first line on."""
import functools
import types

import torch


class Reach:
    """Walks functions (closures, the globals they name), methods, modules, optimizers and containers."""

    def __init__(self):
        self.tensors = {}
        self.generators = {}
        self._seen = set()

    def walk(self, value):
        if id(value) in self._seen:
            return
        self._seen.add(id(value))
        if isinstance(value, torch.Tensor):
            self.tensors[id(value)] = value
        elif isinstance(value, torch.Generator):
            self.generators[id(value)] = value
        elif isinstance(value, torch.nn.Module):
            self._walk_module(value)
        elif isinstance(value, torch.optim.Optimizer):
            self._walk_optimizer(value)
        elif isinstance(value, types.MethodType):
            self.walk(value.__self__)
            self.walk(value.__func__)
        elif isinstance(value, types.FunctionType):
            self._walk_function(value)
        elif isinstance(value, functools.partial):
            self.walk((value.func, value.args, value.keywords))
        elif isinstance(value, dict):
            for item in value.values():
                self.walk(item)
        elif isinstance(value, (list, tuple, set, frozenset)):
            for item in value:
                self.walk(item)

    def _walk_module(self, module):
        for part in module.modules():
            self._seen.add(id(part))
            for tensor in [*part._parameters.values(), *part._buffers.values()]:
                if tensor is not None:
                    self.walk(tensor)

    def _walk_optimizer(self, optimizer):
        for group in optimizer.param_groups:
            self.walk(group)
        self.walk(dict(optimizer.state))

    def _walk_function(self, function):
        if function.__module__ and function.__module__.split('.')[0] == 'torch':
            return
        for cell in function.__closure__ or ():
            try:
                self.walk(cell.cell_contents)
            except ValueError:  # not filled yet
                pass
        self.walk(function.__defaults__ or ())
        for name in function.__code__.co_names:
            value = function.__globals__.get(name)
            if isinstance(value, (torch.Tensor, torch.Generator, torch.nn.Module, torch.optim.Optimizer,
                                  types.FunctionType, functools.partial)):
                self.walk(value)
