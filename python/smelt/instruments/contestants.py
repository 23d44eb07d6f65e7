"""Who is measured: eager, smelt in its modes and back ends, torch.compile; and the step that each of them runs."""
import dataclasses
import functools
import runpy
import sys
from pathlib import Path

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
    if _compile.is_off():
        raise Problem('SMELT_DISABLE is set, so nothing would be compiled: unset it')
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
    parameters = list(case.model.parameters()) if isinstance(case.model, torch.nn.Module) else []
    parameters += [tensor for tensor in case.tensors if tensor.requires_grad]
    if case.optimizer is None and not parameters:
        raise Problem('there is nothing to train: neither the model nor its inputs require gradients')
    return users_code()['make_training_step'](model, case.args, case.kwargs, case.loss or users_code()['mean_of_squares'],
                                              case.optimizer, parameters)


@functools.cache
def users_code():
    """training_step.py, as if the user had written it."""
    return runpy.run_path(str(Path(__file__).with_name('training_step.py')), run_name='training_step')
