"""The arguments of smelt.compile: modes, options, back ends, and the errors that list them."""
import dataclasses

import torch

from . import _native
from ._errors import ArgumentError, OptionError

# The names that PyTorch has. One that has nothing of its own here runs as 'default', and smelt.explain says so.
MODES = ('default', 'reduce-overhead', 'max-autotune', 'max-autotune-no-cudagraphs', 'lite')
# Whether programs on CUDA are run as CUDA graphs; in other modes where that is measured to be quicker.
GRAPHS = {'reduce-overhead': 'always', 'max-autotune': 'always', 'max-autotune-no-cudagraphs': 'never'}
KEYWORDS = ('mode', 'backend', 'dynamic', 'fullgraph', 'options', 'disable', 'recompile_limit')
# Further arguments of torch.compile, and what to do instead.
_INSTEAD = {'name': 'leave it out, reports name the function itself',
            'isolate_recompiles': 'leave it out, each compiled function has variants and a limit of its own',
            'shapes_spec': 'mark the tensors, smelt.mark_dynamic(x, dim, min=..., max=...)'}


def _one_of(*values):
    return ' or '.join(map(repr, values)), lambda value: isinstance(value, str) and value in values


def _at_least(least):
    return (f'an int of at least {least}',
            lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= least)


def _are_passes(text):
    return set(text.split('+')) <= set(_native.pass_names())


# name: what it may be, in words and as a function.
OPTIONS = {
    'background': ('True or False', lambda value: isinstance(value, bool)),
    'disabled_passes': ("names of passes with '+' between", lambda value: isinstance(value, str) and _are_passes(value)),
    'freeze': ('True or False', lambda value: isinstance(value, bool)),
    'fusion': _one_of('none', 'pointwise', 'full'),
    'max_fused_nodes': _at_least(1),
    'numerics': _one_of('default', 'eager'),
    'recompile_limit': _at_least(1),
    'rollback': ('True or False', lambda value: isinstance(value, bool)),
    'specialize': ('True, False or an int of at least 1',
                   lambda value: isinstance(value, bool) or isinstance(value, int) and value >= 1),
    'verify_every': _at_least(1),
}

_CAPTURE = ('recompile_limit', 'rollback')  # options that are no matter of the back end
# specialize=True: programs for sizes that come again, beside each one for all sizes.
_OWN_SIZES = 8
_CALL = ('verify_every',)  # nor of the native side
_OF_CODE = ('background', 'disabled_passes', 'freeze', 'fusion', 'max_fused_nodes', 'numerics', 'specialize')

# None: smelt's own, known to the native side by its name.
_backends = {'eager': None, 'interpret': None, 'native': None}


def register_backend(name, fn=None):
    """Makes `fn` a back end: smelt.compile(..., backend=name) calls fn(graph, example_inputs) once per graph, and calls
    what that returns, with the graph's input tensors, in the graph's place.

    As a decorator: ``@smelt.register_backend`` (the function's name is the back end's) or
    ``@smelt.register_backend('name')``.
    """
    if callable(name) and fn is None:
        return register_backend(name.__name__, name)
    if not isinstance(name, str) or not name:
        raise ArgumentError(f'smelt.register_backend takes a name and a function, not {name!r}')
    if fn is None:
        return lambda fn: register_backend(name, fn)
    if not callable(fn):
        raise ArgumentError(f'the back end {name!r} is to be a function of (graph, example_inputs), not {fn!r}')
    if name in _backends and _backends[name] is None:
        raise OptionError(f"{name!r} is a back end of smelt's own; register yours under another name")
    _backends[name] = fn
    return fn


def list_backends():
    """The names that smelt.compile(backend=...) knows."""
    return sorted(_backends)


def function_of(name):
    """Of a back end that was registered; None of smelt's own."""
    return _backends.get(name)


@dataclasses.dataclass(frozen=True)
class Settings:
    """Arguments of smelt.compile, checked."""

    mode: str = 'default'
    backend: object = 'native'
    dynamic: bool | None = None
    fullgraph: bool = False
    options: dict = dataclasses.field(default_factory=dict)

    def native(self):
        """As _native.CompiledFunction takes them."""
        named = isinstance(self.backend, str)
        options = {name: value for name, value in self.options.items() if name not in _CAPTURE + _CALL}
        if 'disabled_passes' in options:
            options['disabled_passes'] = options['disabled_passes'].split('+')
        options['sizes'] = {None: 'changing', True: 'varying', False: 'fixed'}[self.dynamic]
        # Runs that are the same to the last bit can't go by one program now and by another then.
        specialize = options.get('specialize', self.options.get('rollback', True))
        options['specialize'] = int(specialize) if not isinstance(specialize, bool) else _OWN_SIZES if specialize else 0
        options['cuda_graphs'] = GRAPHS.get(self.mode, 'if_faster')
        return {
            'backend': self.backend if named and _backends[self.backend] is None else 'custom',
            'backend_callable': _backends[self.backend] if named else self.backend,
            'fullgraph': self.fullgraph,
            'options': options,
            **{name: self.options[name] for name in _CAPTURE if name in self.options},
        }

    def notes(self):
        """Wishes that have no effect yet, a sentence each."""
        if self.backend not in ('native', 'interpret') and (unused := [name for name in self.options if name in _OF_CODE]):
            yield (f'options {_names(unused)} have no effect with another back end than "native": they are about the code that '
                   'it makes')
        if self.mode == 'default':
            return
        if self.mode not in GRAPHS:
            yield f"mode={self.mode!r} has nothing of its own on any device yet: it runs as 'default'"
        elif not torch.cuda.is_available():
            yield f"mode={self.mode!r} has nothing of its own on the CPU yet: it runs as 'default'"

    def notes_on(self, model):
        """The same of wishes that have no effect where the model is."""
        if GRAPHS.get(self.mode) == 'always' and isinstance(model, torch.nn.Module) and torch.cuda.is_available():
            devices = {parameter.device.type for parameter in model.parameters()}
            if devices == {'cpu'}:
                yield (f"mode={self.mode!r} has nothing of its own on the CPU yet, where {type(model).__name__} is: it runs as "
                       "'default'")

    def keywords(self):
        """As smelt.compile takes them."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}


def check(*, mode='default', backend='native', dynamic=None, fullgraph=False, options=None, recompile_limit=None, **unknown):
    """Settings of these arguments; an error that lists the valid ones if one is not."""
    if unknown:
        known = [f'{name!r}: {_INSTEAD[name]}' for name in unknown if name in _INSTEAD]
        raise ArgumentError(f'smelt.compile has no argument {_names(unknown)}; ' + (
            '; '.join(known) if len(known) == len(unknown) else f'there are {_names(KEYWORDS)}'))
    mode = 'default' if mode is None else mode
    backend = 'native' if backend is None else backend
    if mode not in MODES:
        raise OptionError(f'smelt.compile has no mode {mode!r}; there are {_names(MODES)}')
    if not callable(backend) and (not isinstance(backend, str) or backend not in _backends):
        raise OptionError(f'smelt.compile has no back end {backend!r}; there are {_names(list_backends())}, a name '
                          'given to smelt.register_backend, or a function of (graph, example_inputs)')
    if dynamic is not None and not isinstance(dynamic, bool):
        raise OptionError(f'dynamic is None, True or False, not {dynamic!r}')
    options = _check_options(options)
    if recompile_limit is not None:
        if 'recompile_limit' in options:
            raise OptionError("recompile_limit is an argument or one of the options, and here it is both")
        options = _check_options({**options, 'recompile_limit': recompile_limit})
    return Settings(mode, backend, dynamic, _flag('fullgraph', fullgraph), options)


def _flag(name, value):
    if not isinstance(value, bool):
        raise OptionError(f'{name} is True or False, not {value!r}')
    return value


def check_disable(disable):
    return _flag('disable', disable)


def _check_options(options):
    if options is None:
        return {}
    if not isinstance(options, dict):
        raise ArgumentError(f'options is a dict of {_names(OPTIONS)}, not {options!r}')
    for name, value in options.items():
        if name not in OPTIONS:
            raise OptionError(f'smelt.compile has no option {name!r}; there are {_names(OPTIONS)}')
        words, is_valid = OPTIONS[name]
        if not is_valid(value):
            raise OptionError(f'the option {name!r} is {words}, not {value!r}')
    if options.get('background') and torch.are_deterministic_algorithms_enabled():
        raise OptionError("the option 'background' can't be had with torch.use_deterministic_algorithms(True): which kernels a "
                          'call runs, and so how it rounds, would depend on when their code is ready')
    return dict(options)


def _names(names):
    return ', '.join(map(repr, names))
