"""After a mismatch: which part of smelt it comes from, and which ops show it.

First the call is verified with parts of the compiler left out: the captured ops one by one, the kernels interpreted, each
pass, fusion, contracted arithmetic. Then the ops of the call are written down with what they were given, and compiled
alone: the shortest start of them whose last result is off, and of that the shortest end. What remains becomes a script.
"""
import base64
import dataclasses
import io
import os
import sys
import tempfile
import zlib

import torch

from .. import _compile, _native, _settings, _tree
from .conditioning import spread_of_function
from .difference import compare
from .kernels import groups_in
from .log_lines import collected
from .op_list import OpList
from .verify import compiled_outcome, differences, gradients, outcome, with_options

_LARGEST_IN_SCRIPT = 1 << 20  # bytes of tensors, compressed


@dataclasses.dataclass
class Culprit:
    """What was found: a part of the compiler, the segment, the fusion group and the ops, and the script that shows it."""

    part: str
    ops: list
    segment: str
    script: str
    tried: list
    group: str = ''

    def __str__(self):
        lines = [f'part: {self.part}']
        if self.segment:
            lines.append(f'segment: {self.segment}')
        if self.group:
            lines.append(f'fusion group: {self.group}')
        if self.ops:
            lines.append(f'ops: {", ".join(self.ops)}')
        if self.script:
            lines.append(f'a script that shows it: {self.script}')
        return '\n'.join(lines)


def narrow(original, args, kwargs, settings, state, eager, reference, spread, script, told):
    """The Culprit of a call that is off."""
    tried = []

    def is_off(changed, text):
        told(f'without: {text}')
        try:
            found, _ = compiled_outcome(original, args, kwargs, changed, state)
        except Exception as error:
            tried.append(f'{text}: raises {type(error).__name__}')
            return True
        off = not all(row.ok for rows in differences(found, eager, reference, spread) for row in rows)
        tried.append(f'{text}: {"off" if off else "ok"}')
        return off
    part = find_part(settings, is_off)
    told('ops')
    stretch = find_ops(original, args, kwargs, settings, state)
    segment, group = _place(original, args, kwargs, settings, state, stretch)
    path = ''
    if stretch is not None:
        told('smaller tensors')
        path = write_script(_smaller(stretch, settings), settings, script)
    return Culprit(part, [] if stretch is None else str(stretch).split(', '), segment, path, tried, group)


def find_part(settings, is_off):
    """Which part of the compiler has to be left out for the result to be right."""
    if not isinstance(settings.backend, str) or settings.backend not in ('native', 'interpret', 'eager'):
        return f'the back end {getattr(settings.backend, "__qualname__", settings.backend)}, which is not smelt\'s own'
    if is_off(dataclasses.replace(settings, backend='eager'), "backend='eager'"):
        return "the capture: the ops that it found, one by one, give another result (backend='eager')"
    for name in _native.pass_names():
        if not is_off(with_options(settings, disabled_passes=name), f'pass {name}'):
            return f'the pass {name}: right without it (options={{"disabled_passes": "{name}"}})'
    if not is_off(with_options(settings, numerics='eager'), "numerics='eager'"):
        return 'contracted arithmetic: right with options={"numerics": "eager"}'
    if settings.backend == 'native' and not is_off(dataclasses.replace(settings, backend='interpret'),
                                                   "backend='interpret'"):
        return 'machine code: the same kernels are right when they are interpreted (backend="interpret")'
    for fusion in ('pointwise', 'none'):
        if not is_off(with_options(settings, fusion=fusion), f'fusion={fusion!r}'):
            return f'fusion: right with options={{"fusion": "{fusion}"}}'
    return 'the kernel of a single op'


def find_ops(original, args, kwargs, settings, state):
    """The shortest stretch of ops that is off by itself; None if there is none."""
    state.restore()
    ops = OpList()
    try:
        with ops:
            result = original(*args, **kwargs)
        tensors = []
        _tree.flatten(result, tensors)
        with ops:
            gradients(tensors, state)
    finally:
        state.restore()
    single = _first_single(ops, settings)
    if single is not None:
        return ops.stretch(single, single)
    last = _first_end(ops, settings)
    if last is None:
        return None
    first = last - _bisect(0, last, lambda length: _is_off(ops, last - length, last, settings))
    return ops.stretch(first, last)


def _first_single(ops, settings):
    """The first op that is off all by itself; each kind of op is tried once."""
    seen = set()
    for number, (op, *_) in enumerate(ops.ops):
        if op in seen:
            continue
        seen.add(op)
        if _is_off(ops, number, number, settings):
            return number
    return None


def _first_end(ops, settings):
    """The first op whose results are off when all before it are compiled with it."""
    end = len(ops.ops) - 1
    if end >= 0 and _is_off(ops, 0, end, settings):
        return _bisect(0, end, lambda last: _is_off(ops, 0, last, settings))
    return next((last for last in range(end) if _is_off(ops, 0, last, settings)), None)


def _bisect(low, high, holds):
    """The least number from low to high for which it holds; it holds for high."""
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low


def _is_off(ops, first, last, settings):
    """Whether the last op's results differ between eager and compiled."""
    return _differs(ops.stretch(first, last), settings)


def _smaller(stretch, settings):
    """The same ops with tensors of which half was cut off, again and again, as long as they show it."""
    for dim in range(max((tensor.dim() for tensor in stretch.tensors), default=0)):
        while (size := max((tensor.shape[dim] for tensor in stretch.tensors if tensor.dim() > dim), default=1)) > 1:
            cut = [tensor.narrow(dim, 0, size // 2).clone() if tensor.dim() > dim and tensor.shape[dim] == size else tensor
                   for tensor in stretch.tensors]
            smaller = dataclasses.replace(stretch, tensors=cut)
            if not _differs(smaller, settings):
                break
            stretch = smaller
    return stretch


def _differs(stretch, settings):
    last_op = stretch.ops[-1][0]
    if not stretch.tensors or last_op is torch.ops.aten.detach.default or 'empty' in last_op._schema.name:
        return False  # nothing is computed, or what is in memory by chance
    try:
        function = stretch.function()
        expected = function(*_copies(stretch.tensors))
        compiled = _compile.compile_with(function, settings)
        for _ in range(2):
            found = compiled(*_copies(stretch.tensors))
        if all(compare('', one, other).ok for one, other in zip(found, expected)):
            return False
        spread = spread_of_function(function, stretch.tensors, expected)
    except Exception:
        return False
    return not all(compare('', one, other, None, moves).ok for one, other, moves in zip(found, expected, spread))


def _copies(tensors):
    return [tensor.clone() for tensor in tensors]


def _place(original, args, kwargs, settings, state, stretch):
    """(the segment, the fusion group) that have the last op of the stretch, and most of the others; '' where there is none."""
    if stretch is None:
        return '', ''
    compiled = _compile.compile_with(original, settings)
    with collected('schedule') as lines:
        outcome(compiled, args, kwargs, state)
    native = _compile.native_of(compiled)
    names = [op._schema.name for op, *_ in stretch.ops]

    def fit(text):
        return (names[-1] in text, sum(name in text for name in set(names)))
    segments = [row for row in (native._segments() if native is not None else ()) if names[-1] in row['graph']]
    segment = max(segments, key=lambda row: fit(row['graph']), default=None)
    groups = [(name, nodes) for category, text in lines for name, nodes in groups_in(text)]
    groups = [(name, nodes) for name, nodes in groups if any(f'{names[-1]}' in node for node in nodes)]
    group = max(groups, key=lambda group: fit('\n'.join(group[1])), default=None)
    ops = [] if group is None else [node.split(' = ')[1].split('(')[0] for node in group[1]]
    return ('' if segment is None else f'{_title(segment, original, native)}, {segment["file"]}:{segment["line"]}',
            '' if group is None else f'{group[0]} ({", ".join(ops)})')


def _title(segment, original, native):
    """The segment's function; of a module that is one graph, the module."""
    places = {(row['function'], row['line'], row['offset']) for row in native._segments() if row['ops']}
    is_whole = segment['function'] == 'Module._wrapped_call_impl' and len(places) == 1
    return f'{type(original).__name__} as a whole' if is_whole else segment['function']


# -- the script


def write_script(stretch, settings, path=None):
    """A Python file that computes the ops in eager and compiled, and says how far they are apart; its path."""
    if path is None:
        path = os.path.join(tempfile.mkdtemp(prefix='smelt-'), 'mismatch.py')
    keywords, setup = _as_text(settings)
    packed = _packed(stretch.tensors)
    if len(packed) > _LARGEST_IN_SCRIPT:
        data = os.path.splitext(path)[0] + '.pt'
        torch.save(stretch.tensors, data)
        load = f'tensors = torch.load(os.path.join(os.path.dirname(__file__), {os.path.basename(data)!r}))'
    else:
        wrapped = '\n'.join(f"    '{packed[i:i + 100]}'" for i in range(0, len(packed), 100))
        load = f'tensors = torch.load(io.BytesIO(zlib.decompress(base64.b64decode(\n{wrapped}\n))))'
    with open(path, 'w') as file:
        file.write(f'''"""Computes some ops in eager and compiled by smelt, and compares. Exit code 1: they differ."""
import base64
import io
import os
import runpy
import sys
import zlib

import torch

import smelt
from smelt.instruments.difference import compare

{load}


{stretch.code()}

{setup}compiled = smelt.compile(ops, {keywords})
expected = ops(*[tensor.clone() for tensor in tensors])
for _ in range(2):
    found = compiled(*[tensor.clone() for tensor in tensors])
rows = [compare(f'result {{number}}', a, b) for number, (a, b) in enumerate(zip(found, expected))]
for row in rows:
    print(f'{{row.name}}: largest difference {{row.max_abs:.3e}}, {{row.max_ulp:.0f}} units in the last place, {{"ok" if row.ok else "OFF"}}')
sys.exit(not all(row.ok for row in rows))
''')
    return path


def _as_text(settings):
    """(the keywords of smelt.compile, lines that come before) as Python text."""
    keywords = {key: repr(value) for key, value in settings.keywords().items() if value}
    function = settings.backend if callable(settings.backend) else _settings.function_of(settings.backend)
    if function is not None:
        keywords['backend'] = 'backend'
    return ', '.join(f'{key}={value}' for key, value in keywords.items()), _import_of(function) if function is not None else ''


def _import_of(function):
    """Lines that give a back end of the user's the name `backend`."""
    name, place = getattr(function, '__qualname__', ''), getattr(function, '__module__', None) or ''
    path = os.path.abspath(getattr(getattr(function, '__code__', None), 'co_filename', ''))
    if getattr(sys.modules.get(place), name, None) is not function or not os.path.isfile(path):
        return (f'backend = None  # put it here: {name or type(function).__name__} has no name by which it can be imported\n'
                'if backend is None:\n    print("put the back end into this script", file=sys.stderr)\n    sys.exit(2)\n')
    if getattr(sys.modules[place], '__spec__', None) is None:  # a script
        return f'backend = runpy.run_path({path!r}, run_name="back_end")[{name!r}]\n'
    root = os.path.dirname(path)
    for _ in range(place.count('.') + os.path.basename(path).startswith('__init__.')):
        root = os.path.dirname(root)
    return f'sys.path.insert(0, {root!r})\nfrom {place} import {name} as backend\n'


def _packed(tensors):
    buffer = io.BytesIO()
    torch.save(tensors, buffer)
    return base64.b64encode(zlib.compress(buffer.getvalue())).decode()
