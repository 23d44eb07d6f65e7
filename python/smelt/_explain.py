"""smelt.explain: what was compiled, where graphs ended and why, what was compiled again and why."""
import functools

from . import _background, _native, _self_test, _settings
from ._compile import check_callable, compile_with, is_disabled, is_off, native_of, original_of, other_python
from ._errors import ArgumentError
from ._reach import Reach



def explain(model, **keywords):
    """smelt.explain(model)(*args, **kwargs) calls the model compiled, and returns a Report instead of the result.

    A function that is not compiled yet is compiled for this call alone, with the keywords of smelt.compile. One that is
    compiled is called, and what it has compiled so far is reported.
    """
    check_callable(model, 'smelt.explain')
    if native_of(model) is None:
        compiled = model if is_off() else compile_with(model, _settings.check(**keywords))
    else:
        if keywords:
            raise ArgumentError('smelt.explain takes no keywords for what is compiled already; '
                                'explain the original with them')
        compiled = model

    @functools.wraps(model, assigned=('__name__', '__doc__'), updated=())
    def explained(*args, **kwargs):
        compiled(*args, **kwargs)
        _background.wait()
        report = _report(compiled, (model, args, kwargs))
        if native_of(compiled) is not None:
            object.__setattr__(report, '_call', (original_of(compiled), native_of(compiled)._settings, args, kwargs))
        return report
    return explained


def _report(compiled, inputs):
    from ._report import Break, Report, Segment
    native, name = native_of(compiled), _name(original_of(compiled))
    if native is None:
        why = (_self_test.describe() or 'SMELT_DISABLE is set' if is_off() else 'it is marked with smelt.disable' if is_disabled(compiled)
               else 'a TorchScript module runs as it is')
        return Report(name, [], [], [], note=f'nothing was compiled: {why}')
    if problem := other_python():
        return Report(name, [], [], [], note=f'nothing was compiled: {problem}')
    settings = native._settings
    return Report(name, [Segment(**row) for row in native._segments()], [Break(**row) for row in native._breaks()],
                  native._recompiles(), settings.mode, _name(settings.backend), _mode_note(settings.mode, inputs),
                  '. '.join(_notes(native, settings)), native._rollbacks(), native._fixed_sizes())


def _notes(native, settings):
    stance = native._stance()
    if stance == 'as_process':
        stance = _native.process_stance()
    if stance != 'default':
        yield f'the stance is {stance!r}'


def _mode_note(mode, inputs):
    if mode == 'default':
        return ''
    reach = Reach()
    reach.walk(inputs)
    devices = sorted({tensor.device.type for tensor in reach.tensors.values()}) or ['cpu']
    if mode in _settings.GRAPHS and 'cuda' in devices:
        return ''
    return f'mode {mode!r} has nothing of its own on {" and ".join(devices)} yet: runs as default'


def _name(value):
    if isinstance(value, str):
        return value
    return getattr(value, '__qualname__', None) or type(value).__name__
