"""What smelt.explain returns. A module of its own: making the classes takes milliseconds, and most programs do without."""
import dataclasses
import json
import os

from ._errors import Error


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
    own_sizes: list = dataclasses.field(default_factory=list)

    @property
    def op_by_op(self):
        """Why PyTorch runs its ops one by one, where a graph was asked for; empty if there is a graph."""
        first = self.graph.partition('\n')[0]
        return first.removeprefix('# op by op: ') if first.startswith('# op by op: ') else ''


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
    fixed_sizes: list = dataclasses.field(default_factory=list)

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
        from .instruments.timeline import write_trace
        write_trace(self._inspect(), path)

    def _inspect(self):
        from .instruments.inspection import inspect
        if self.note.startswith('nothing was compiled'):
            raise Error(self.note)
        return inspect(*self._call, earlier=self)

    def _title(self, segment):
        """Its function; of a module that is one graph, or several for other sizes, the module: the frame is one of PyTorch's."""
        places = {(one.function, one.line, one.offset) for one in self.segments if one.ops}
        is_whole = len(places) == 1 and segment.function == 'Module._wrapped_call_impl'
        return f'{self.name} as a whole' if is_whole else segment.function

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
            lines += ['', f'segment {number}: {self._title(segment)}, {_place(segment.file, segment.line)}',
                      f'  {_count(segment.ops, "op")}, {_count(segment.guards, "guard")}, '
                      f'{_count(segment.steps, "step")} on Python objects',
                      *([f'  op by op: {segment.op_by_op}'] if segment.op_by_op else []),
                      f'  ends: {segment.ends}']
            if segment.own_sizes:
                lines += ['  sizes that come again', *(f'    {line}' for line in segment.own_sizes)]
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
        if self.fixed_sizes:
            lines += ['', 'sizes that are fixed', *(f'  {size}' for size in self.fixed_sizes)]
        if self.rollbacks:
            lines += ['', 'rolled back', *(f'  {rollback}' for rollback in self.rollbacks)]
        return '\n'.join(lines)


def _place(file, line):
    relative = os.path.relpath(file) if os.path.isabs(file) else file
    return f'{file if relative.startswith("..") else relative}:{line}'


def _count(count, what):
    return f'{count} {what}' if count == 1 else f'{count} {what}s'
