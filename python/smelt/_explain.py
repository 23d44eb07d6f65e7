"""smelt.explain: what was compiled, where graphs ended and why, what was compiled again and why."""
import dataclasses
import functools
import json
import os

from . import _settings
from ._compile import check_callable, compile_with, is_disabled, is_off, native_of, original_of, other_python
from ._errors import ArgumentError
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
    """Where a graph ended: the user's line, why, and what to do about it."""

    reason: str
    sentence: str
    remedy: str
    file: str
    line: int
    function: str
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

    def __str__(self):
        lines = [f'{self.name}: {_count(self.graph_count, "graph")}, {_count(self.op_count, "op")}, '
                 f'{_count(self.guard_count, "guard")}, {_count(self.break_count, "break")}, '
                 f'{_count(len(self.recompiles), "recompile")}']
        lines += [note for note in (self.mode_note, self.note) if note]
        for number, segment in enumerate(self.segments, 1):
            lines += ['', f'segment {number}: {segment.function}, {_place(segment.file, segment.line)}',
                      f'  {_count(segment.ops, "op")}, {_count(segment.guards, "guard")}, '
                      f'{_count(segment.steps, "step")} on Python objects',
                      f'  ends: {segment.ends}']
        if self.breaks:
            lines += ['', 'breaks']
        for at in self.breaks:
            lines += [f'  {_place(at.file, at.line)}, in {at.function}: {at.sentence}', f'    remedy: {at.remedy}']
        if self.recompiles:
            lines += ['', 'recompiles', *(f'  {recompile}' for recompile in self.recompiles)]
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
        return _report(compiled, (model, args, kwargs))
    return explained


def _report(compiled, inputs):
    native, name = native_of(compiled), _name(original_of(compiled))
    if native is None:
        why = ('SMELT_DISABLE is set' if is_off() else 'it is marked with smelt.disable' if is_disabled(compiled)
               else 'a TorchScript module runs as it is')
        return Report(name, [], [], [], note=f'nothing was compiled: {why}')
    if problem := other_python():
        return Report(name, [], [], [], note=f'nothing was compiled: {problem}')
    settings = native._settings
    return Report(name, [Segment(**row) for row in native._segments()], [Break(**row) for row in native._breaks()],
                  native._recompiles(), settings.mode, _name(settings.backend), _mode_note(settings.mode, inputs),
                  DYNAMIC_NOTE if settings.dynamic else '')


def _mode_note(mode, inputs):
    if mode == 'default':
        return ''
    reach = Reach()
    reach.walk(inputs)
    devices = sorted({tensor.device.type for tensor in reach.tensors.values()}) or ['cpu']
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
