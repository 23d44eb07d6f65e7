"""TARGET of the commands: `file.py:name` or `package.module:name`, and what is made of it.

The name is a function that makes a model, such as

    def make_model(batch_size=8):
        return Net(), torch.randn(batch_size, 64)

It returns the model and its inputs: one tensor, a tuple of positional arguments, or a dict of keyword arguments. It may
take `batch_size` (for --batch-sizes), `device` (for --device) and other parameters (for --sweep). For training it may return a dict instead:

    def make_model(batch_size=8):
        net = Net()
        return {'model': net, 'inputs': torch.randn(batch_size, 64), 'loss': lambda out: out.square().mean(),
                'optimizer': torch.optim.AdamW(net.parameters())}

`loss` makes a scalar of what the model returns; without it the mean of the squares of its floating-point results is
taken. Without `optimizer` a training step ends with the backward pass. With --inputs the name is the model or function
itself, and the option's text is a Python expression for its inputs, which may use the names of sweeps:
"torch.randn(batch_size, 64)".
"""
import dataclasses
import importlib
import importlib.util
import inspect
import os
import sys

import torch

from .problems import Problem, of_users_code, one_line

_KEYS = ('model', 'inputs', 'loss', 'optimizer')


@dataclasses.dataclass
class Case:
    """A model, what it is called with, and what makes a training step of it."""

    model: object
    args: tuple
    kwargs: dict
    loss: object = None
    optimizer: object = None

    @property
    def tensors(self):
        return [value for value in (*self.args, *self.kwargs.values()) if isinstance(value, torch.Tensor)]

    @property
    def devices(self):
        tensors = self.tensors + (list(self.model.parameters()) if isinstance(self.model, torch.nn.Module) else [])
        return sorted({tensor.device.type for tensor in tensors}) or ['cpu']

    @property
    def samples(self):
        """How many a call handles: the first size of the first tensor that has one; 1 else."""
        return next((tensor.shape[0] for tensor in self.tensors if tensor.dim() > 0), 1)


class Target:
    """What TARGET names, loaded."""

    def __init__(self, text, inputs=None):
        self.text = text
        self.inputs = inputs
        self.module, self.value = _load(text)
        if not callable(self.value):
            raise Problem(f'{text} is of type {type(self.value).__name__}, not a function that makes a model, a model or a '
                          'function')
        self._expression = None if inputs is None else _compiled(inputs)
        if inputs is None and isinstance(self.value, torch.nn.Module):
            raise Problem(f'{text} is a model: say what to call it with, --inputs "torch.randn(8, 16)", or name a '
                          'function that returns the model and its inputs')

    def takes(self, name):
        if self.inputs is not None:
            return name == 'device' or name in self._expression.co_names
        try:
            parameters = inspect.signature(self.value).parameters
        except (TypeError, ValueError):
            return False
        return name in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())

    def make(self, seed=0, **keywords):
        """A Case, the same one each time: random generators start from the seed. Keywords that are None are left out."""
        keywords = {name: value for name, value in keywords.items() if value is not None}
        for name in keywords:
            if not self.takes(name):
                where = 'use it in --inputs' if self.inputs is not None else f'give the function a parameter {name}='
                raise Problem(f'{self.text} takes no {name}; {where} for this option')
        _check_device(keywords.get('device'))
        torch.manual_seed(seed)
        try:
            made = self._from_expression(**keywords) if self.inputs is not None else self.value(**keywords)
        except Problem:
            raise
        except Exception as error:
            raise of_users_code(error, self.text) from error
        return self._case(made)

    def _from_expression(self, device=None, **names):
        model = self.value() if isinstance(self.value, type) else self.value
        try:
            inputs = eval(self._expression, {'torch': torch, **vars(self.module), **names, 'device': device or 'cpu'})
        except Exception as error:
            raise Problem(f'--inputs {self.inputs!r} raised {one_line(error)}') from error
        if device is None:
            return model, inputs
        return model.to(device) if isinstance(model, torch.nn.Module) else model, _moved(inputs, device)

    def _case(self, made):
        if isinstance(made, dict) and 'model' in made:
            unknown = [key for key in made if key not in _KEYS]
            if unknown:
                raise Problem(f'{self.text} returned a dict with {unknown[0]!r}; there are {", ".join(_KEYS)}')
            model, inputs = made['model'], made.get('inputs', ())
            case = Case(model, *_arguments(inputs), made.get('loss'), made.get('optimizer'))
        elif isinstance(made, tuple) and len(made) == 2 and callable(made[0]):
            case = Case(made[0], *_arguments(made[1]))
        else:
            raise Problem(f'{self.text} is to return (model, inputs) or a dict of {", ".join(_KEYS)}, and returned a '
                          f'value of type {type(made).__name__}')
        if not callable(case.model):
            raise Problem(f'{self.text} returned a model of type {type(case.model).__name__}, which can not be called')
        return case


def _check_device(device):
    try:
        torch.device(device or 'cpu')
    except RuntimeError as error:
        raise Problem(f'--device {device!r} is no device of PyTorch; cpu or cuda:0, say') from error


def _compiled(expression):
    try:
        return compile(expression.strip(), '<--inputs>', 'eval')
    except (SyntaxError, ValueError) as error:
        raise Problem(f'--inputs {expression!r} is no Python expression: {getattr(error, "msg", error)}') from error


def _moved(value, device):
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, (list, tuple)):
        return type(value)(_moved(part, device) for part in value)
    return {name: _moved(part, device) for name, part in value.items()} if isinstance(value, dict) else value


def _arguments(inputs):
    if isinstance(inputs, dict):
        return (), dict(inputs)
    return (tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)), {}


def _load(text):
    place, colon, name = text.rpartition(':')
    if not colon or not place or not name:
        raise Problem(f'{text!r} is no target; write file.py:make_model or package.module:make_model')
    module = _load_file(place) if place.endswith('.py') or os.sep in place else _load_module(place)
    value = module
    for part in name.split('.'):
        if not hasattr(value, part):
            raise Problem(f'{place} has no {name}; it has {_callables(module)}')
        value = getattr(value, part)
    return module, value


def _callables(module):
    names = [name for name, value in vars(module).items()
             if callable(value) and not name.startswith('_') and getattr(value, '__module__', '') == module.__name__]
    return ', '.join(names[:8]) or 'no function or class'


def _load_file(path):
    if not os.path.isfile(path):
        raise Problem(f'there is no file {path}')
    folder = os.path.dirname(os.path.abspath(path))
    if folder not in sys.path:
        sys.path.insert(0, folder)  # as when the file is run: it may import its neighbours
    name = os.path.splitext(os.path.basename(path))[0]
    if name in sys.modules:
        name = f'target_{name}'  # one that is loaded keeps its name
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise of_users_code(error, path) from error
    return module


def _load_module(name):
    if '' not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(error.name + '.')):
            raise Problem(f'there is no module {name}; a file is written with its ending, {name}.py:...') from error
        raise of_users_code(error, name) from error
    except Exception as error:
        raise of_users_code(error, name) from error
