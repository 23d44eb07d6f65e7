"""What a function can reach and may change: kept, compared, and put back, so that it can be called twice from one start.

Tensors are copied, with their gradients; of modules, objects, containers, global names and closures it is kept what they hold
(holders.py); the random generators of PyTorch, Python and NumPy are put back too. What a function does elsewhere (files, prints, C code)
is not, and neither are iterators: `lost` names them.
"""
import random
import sys

import torch

from .._errors import ArgumentError
from .holders import Holders, reach_of


def _randomness():
    state = {'cpu': torch.get_rng_state(), 'python': random.getstate()}
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        state['cuda'] = torch.cuda.get_rng_state_all()
    if 'numpy' in sys.modules:
        state['numpy'] = sys.modules['numpy'].random.get_state()
    return state


def _set_randomness(state):
    torch.set_rng_state(state['cpu'])
    random.setstate(state['python'])
    if 'cuda' in state:
        torch.cuda.set_rng_state_all(state['cuda'])
    if 'numpy' in state:
        sys.modules['numpy'].random.set_state(state['numpy'])


def copy_of(tensor):
    """The contents as they are now, apart from the graph."""
    with torch.no_grad():
        return tensor.detach().clone(memory_format=torch.preserve_format)


def is_plain(tensor):
    """It has contents that can be copied and compared."""
    return tensor.layout is torch.strided and not tensor.is_meta and not tensor.is_inference()


class NotYet(ArgumentError):
    """Nothing to put back to: a first call makes the parameters."""


class State:
    """Of everything that can be reached from `roots`, at the moment it is made. A NotYet where that has parameters without sizes."""

    def __init__(self, *roots):
        reach = reach_of(roots)
        if any(map(torch.nn.parameter.is_lazy, reach.tensors.values())):
            raise NotYet('the model has parameters without sizes (LazyLinear and its like): call it once before')
        self._holders = Holders(reach)
        self.lost = list(dict.fromkeys(self._holders.lost))  # what can't be put back
        self.tensors = [tensor for tensor in reach.tensors.values() if is_plain(tensor)]
        self.names = self._names(reach, roots)
        self._contents = [copy_of(tensor) for tensor in self.tensors]
        self._grads = [(tensor.grad, None if tensor.grad is None else copy_of(tensor.grad)) if tensor.is_leaf
                       else (None, None) for tensor in self.tensors]
        self._random = _randomness()
        self._generators = [(generator, generator.get_state()) for generator in reach.generators.values()]

    def _names(self, reach, roots):
        names = {}
        for value in reach._alive:
            if isinstance(value, torch.nn.Module):
                for name, tensor in (*value.named_parameters(), *value.named_buffers()):
                    names.setdefault(id(tensor), name)
        for number, value in enumerate(roots[-2] if len(roots) > 1 and isinstance(roots[-2], tuple) else ()):
            if isinstance(value, torch.Tensor):
                names.setdefault(id(value), f'argument {number}')
        return [names.get(id(tensor), f'tensor {number}') for number, tensor in enumerate(self.tensors)]

    def restore(self):
        """Puts all of it back."""
        self._holders.restore()
        with torch.no_grad():
            for tensor, contents, (grad, grad_contents) in zip(self.tensors, self._contents, self._grads):
                if tensor.dtype != contents.dtype or tensor.shape != contents.shape:
                    tensor.data = contents.clone()
                elif not torch.equal(tensor.detach(), contents):
                    tensor.detach().copy_(contents)
                if tensor.is_leaf:
                    if grad is not None:
                        grad.detach().copy_(grad_contents)
                    tensor.grad = grad
        _set_randomness(self._random)
        for generator, state in self._generators:
            generator.set_state(state)

    def advanced(self):
        """Iterators that were advanced since, which can't be put back."""
        return self._holders.advanced()

    def has_drawn(self):
        """Random numbers were drawn since."""
        now = _randomness()
        return not torch.equal(now['cpu'], self._random['cpu']) or now['python'] != self._random['python'] or any(
            not torch.equal(a, b) for a, b in zip(now.get('cuda', ()), self._random.get('cuda', ())))

    def before(self):
        """{name: contents} of everything when it was kept, gradients that were there included."""
        found = dict(zip(self.names, self._contents))
        return found | {f'{name}.grad': grad for name, (_, grad) in zip(self.names, self._grads) if grad is not None}

    def changed(self):
        """{name: contents} of tensors that were written to since, and of gradients that were set."""
        found = {}
        for name, tensor, contents, (_, grad) in zip(self.names, self.tensors, self._contents, self._grads):
            if tensor.shape != contents.shape or tensor.dtype != contents.dtype or not _same(tensor.detach(), contents):
                found[name] = copy_of(tensor)
            if tensor.is_leaf and tensor.grad is not None and (grad is None or not _same(tensor.grad, grad)):
                found[f'{name}.grad'] = copy_of(tensor.grad)
        return found


def _same(one, other):
    return one.shape == other.shape and torch.equal(torch.nan_to_num(one), torch.nan_to_num(other)) and (
        not one.is_floating_point() or torch.equal(one.isnan(), other.isnan()))
