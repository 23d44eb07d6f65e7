"""Who is measured: eager, smelt in its modes and back ends, torch.compile; and the step that each of them runs."""
import dataclasses
import sys

import torch

from .. import _compile, _settings
from .problems import Problem


@dataclasses.dataclass(frozen=True)
class Contestant:
    label: str
    compile: object  # a function of what is to be compiled


def chosen(modes, backends, options, peers):
    """Eager, then smelt in each mode and back end, then the peers."""
    contestants = [Contestant('eager', lambda model: model)]
    for backend in backends or ['native']:
        for mode in modes or ['default']:
            parts = ['smelt', *([backend] if backend != 'native' else []), *([mode] if mode != 'default' else []),
                     *(f'{name}={str(value).lower()}' for name, value in sorted(options.items()))]
            settings = checked(mode=mode, backend=backend, options=options)
            contestants.append(Contestant(' '.join(parts), lambda model, s=settings: _compile.compile_with(model, s)))
    for peer in peers:
        contestants.append(_peer(peer))
    return contestants


def checked(**keywords):
    """The settings of these arguments; stderr is told of those without effect."""
    try:
        settings = _settings.check(**keywords)
    except ValueError as error:
        raise Problem(str(error)) from error
    for note in settings.notes():
        print(f'smelt: {note}', file=sys.stderr)
    return settings


def _peer(text):
    name, _, mode = text.partition(':')
    if name != 'torch.compile':
        raise Problem(f'there is no peer {text!r}; there is torch.compile, also with a mode: torch.compile:max-autotune')
    return Contestant(text, lambda model: torch.compile(model, mode=mode or None))


def parse_options(texts):
    """{'freeze': True} of ['freeze=true']."""
    options = {}
    for text in texts:
        name, sign, value = text.partition('=')
        if not sign:
            raise Problem(f'--option {text!r} is to be name=value')
        known = {'true': True, 'false': False}
        options[name] = known.get(value.lower(), int(value) if value.lstrip('-').isdigit() else value)
    return options


INFERENCE, TRAINING, WHOLE_STEP = 'inference', 'training', 'whole step'


def make_step(case, contestant, kind):
    """A function without arguments: one call of the model, or one training step."""
    if kind == INFERENCE:
        model = contestant.compile(case.model)

        def infer():
            with torch.no_grad():
                return model(*case.args, **case.kwargs)
        return infer
    if kind == TRAINING:
        return _training_step(case, contestant.compile(case.model))
    return contestant.compile(_training_step(case, case.model))


def _training_step(case, model):
    loss_of = case.loss or mean_of_squares
    optimizer = case.optimizer
    parameters = list(case.model.parameters()) if isinstance(case.model, torch.nn.Module) else []
    parameters += [tensor for tensor in case.tensors if tensor.requires_grad]
    if optimizer is None and not parameters:
        raise Problem('there is nothing to train: neither the model nor its inputs require gradients')

    def train():
        if optimizer is None:
            for parameter in parameters:
                parameter.grad = None
        else:
            optimizer.zero_grad()
        loss = loss_of(model(*case.args, **case.kwargs))
        loss.backward()
        if optimizer is not None:
            optimizer.step()
        return loss
    return train


def mean_of_squares(result):
    """A loss for who gives none: of all floating-point results."""
    found = list(floating(result))
    if not found:
        raise Problem('the model returns no floating-point tensor; give a loss, {"model": ..., "loss": ...}')
    return sum(tensor.float().square().mean() for tensor in found)


def floating(value):
    if isinstance(value, torch.Tensor):
        if value.is_floating_point():
            yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from floating(part)
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from floating(part)
