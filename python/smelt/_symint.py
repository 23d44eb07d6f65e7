"""Arithmetic on torch.SymInt, for functions that compute with dynamic sizes (x.shape[0] * 2).

PyTorch installs these methods when its tracing stack is imported; a recording must not import that, so the same
methods are installed here, over the same node interface. If PyTorch installs its own later, those take over.
"""
import sys

import torch

_BINARY = {'add': 'add', 'sub': 'sub', 'mul': 'mul', 'floordiv': 'int_floordiv', 'mod': 'mod', 'truediv': 'int_truediv'}
_COMPARE = {'eq': 'eq', 'ne': 'ne', 'lt': 'lt', 'le': 'le', 'gt': 'gt', 'ge': 'ge'}
_installed = False


def _node(like, value):
    if isinstance(value, torch.SymInt):
        return value.node
    if type(value) in (int, bool):
        return like.node.wrap_int(int(value))
    return None


def _result(node):
    if node.is_float():
        return node.guard_float('', 0)
    known = node.maybe_as_int()
    return torch.SymInt(node) if known is None else known


def _binary(method):
    def forward(self, other):
        node = _node(self, other)
        return NotImplemented if node is None else _result(getattr(self.node, method)(node))

    def reflected(self, other):
        node = _node(self, other)
        return NotImplemented if node is None else _result(getattr(node, method)(self.node))

    return forward, reflected


def _compare(method):
    def compare(self, other):
        node = _node(self, other)
        return NotImplemented if node is None else getattr(self.node, method)(node).bool_()

    return compare


def install():
    """Gives torch.SymInt its arithmetic, once, unless PyTorch has done so."""
    global _installed
    if _installed or 'torch.fx.experimental.sym_node' in sys.modules:
        return
    _installed = True
    for name, method in _BINARY.items():
        forward, reflected = _binary(method)
        setattr(torch.SymInt, f'__{name}__', forward)
        setattr(torch.SymInt, f'__r{name}__', reflected)
    for name, method in _COMPARE.items():
        setattr(torch.SymInt, f'__{name}__', _compare(method))
    torch.SymInt.__neg__ = lambda self: _result(self.node.neg())
    torch.SymInt.__hash__ = lambda self: hash(self.node.int_())
    torch.SymInt.__bool__ = lambda self: self != 0
    torch.SymInt.__int__ = lambda self: self.node.int_()
    torch.SymInt.__index__ = lambda self: self.node.int_()
    torch.SymInt.__float__ = lambda self: float(self.node.int_())
    torch.SymInt.__repr__ = lambda self: self.node.str()
