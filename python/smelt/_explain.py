"""smelt.explain: what was compiled, where graphs ended and why, what was compiled again and why."""
import dataclasses
import functools
import json
import os

from . import _native, _self_test, _settings
from ._compile import check_callable, compile_with, is_disabled, is_off, native_of, original_of, other_python
from ._errors import ArgumentError, Error
from ._reach import Reach


DYNAMIC_NOTE = 'dynamic=True: sizes are part of what is compiled; a call with other sizes compiles again'


@dataclasses.dataclass(frozen=True)
class Segment:
    """A piece of a function that runs without Python: `ops` tensor ops under `guards` conditions."""

    function: str
    file: str
    line: int
    offset: int
    ops: int
    guards: int
    steps: int
    guard_lines: list
    graph: str
    ends: str


@dataclasses.dataclass(frozen=True)
class Break:
    """Where a graph ended: the user's line, why, and what to do about it.

    file, line and function are the innermost that are not PyTorch's; module is the nn.Module it happened in, by class
    and name; called_at is the line of the user's own program, where file is a library's.
    """

    reason: str
    sentence: str
    remedy: str
    file: str
    line: int
    function: str
    module: str
    called_at: str
    text: str


@dataclasses.dataclass(frozen=True)
class Report:
    """What smelt made of a function. print() shows it; json() gives it to other programs."""

    name: str
    segments: list
    breaks: list
    recompiles: list
    mode: str = 'default'
    backend: str = 'native'
    mode_note: str = ''
    note: str = ''
    rollbacks: list = dataclasses.field(default_factory=list)

    @property
    def graph_count(self):
        """Segments with a tensor op in them."""
        return sum(segment.ops > 0 for segment in self.segments)

    @property
    def break_count(self):
        return len(self.breaks)

    @property
    def op_count(self):
        return sum(segment.ops for segment in self.segments)

    @property
    def guard_count(self):
        return sum(segment.guards for segment in self.segments)

    def json(self):
        counts = {name: getattr(self, name) for name in ('graph_count', 'break_count', 'op_count', 'guard_count')}
        return json.dumps({**dataclasses.asdict(self), **counts}, indent=2)

    def html(self, path):
        """Writes all that can be told of the call as one page, which needs no network: source, graphs, guards, kernels
        with their code, the time line. For that the function is compiled afresh and called some times; tensors, modules
        and random generators that it can reach are as before afterwards."""
        from .instruments.page import write_page
        write_page(self._inspect(), path)

    def trace(self, path):
        """Writes the time line of a call as Perfetto and chrome://tracing read it; see html()."""
        from .instruments.inspection import write_trace
        write_trace(self._inspect(), path)

    def _inspect(self):
        from .instruments.inspection import inspect
        if self.note.startswith('nothing was compiled'):
            raise Error(self.note)
        return inspect(*self._call)

    def __str__(self):
        lines = [f'{self.name}: {_count(self.graph_count, "graph")}, {_count(self.op_count, "op")}, '
                 f'{_count(self.guard_count, "guard")}, {_count(self.break_count, "break")}, '
                 f'{_count(len(self.recompiles), "recompile")}']
        lines += [note for note in (self.mode_note, self.note) if note]
        plain = 0
        for number, segment in enumerate(self.segments, 1):
            if segment.ops == 0:  # Python code around the graphs, mostly PyTorch's own
                plain += 1
                continue
            lines += ['', f'segment {number}: {segment.function}, {_place(segment.file, segment.line)}',
                      f'  {_count(segment.ops, "op")}, {_count(segment.guards, "guard")}, '
                      f'{_count(segment.steps, "step")} on Python objects',
                      f'  ends: {segment.ends}']
        if plain:
            lines += ['', f'{_count(plain, "segment")} without tensor ops, of the Python code around these']
        if self.breaks:
            lines += ['', 'breaks']
        for at in self.breaks:
            place = [_place(at.file, at.line), f'in {at.function}', f'in {at.module}' if at.module else '',
                     f'called at {at.called_at}' if at.called_at else '']
            lines += [f'  {", ".join(filter(None, place))}: {at.sentence}', f'    remedy: {at.remedy}']
        if self.recompiles:
            lines += ['', 'recompiles', *(f'  {recompile}' for recompile in self.recompiles)]
        if self.rollbacks:
            lines += ['', 'rolled back', *(f'  {rollback}' for rollback in self.rollbacks)]
        return '\n'.join(lines)


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
        report = _report(compiled, (model, args, kwargs))
        if native_of(compiled) is not None:
            object.__setattr__(report, '_call', (original_of(compiled), native_of(compiled)._settings, args, kwargs))
        return report
    return explained


def _report(compiled, inputs):
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
                  '. '.join(_notes(native, settings)), native._rollbacks())


def _notes(native, settings):
    if settings.dynamic:
        yield DYNAMIC_NOTE
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


def _place(file, line):
    relative = os.path.relpath(file) if os.path.isabs(file) else file
    return f'{file if relative.startswith("..") else relative}:{line}'


def _count(count, what):
    return f'{count} {what}' if count == 1 else f'{count} {what}s'
