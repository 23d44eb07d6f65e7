"""Everything that can be said of a compiled call, as plain data: what smelt.explain's page and `smelt explain` show."""
import json
import math
import re
import time

import torch

from .. import _compile, _explain
from . import memory, rounds
from .log_lines import collected, stages_of
from .source_lines import coloured_sources
from .state import State

CALLS = 5  # that are profiled; times are means over them
_SIZES = {'f64': 8, 'f32': 4, 'bf16': 2, 'f16': 2, 'i64': 8, 'i32': 4, 'i16': 2, 'i8': 1, 'u8': 1, 'b8': 1, 'c64': 8}
_NOT_COUNTED = {'load', 'store', 'constant', 'convert', 'index', 'select'}


def inspect(original, settings, args, kwargs):
    """Compiles afresh, so that each stage is seen, calls it some times from one start, and tells. A dict."""
    state = State(original, args, kwargs)
    eager = _seconds(original, args, kwargs, state)
    compiled = _compile.compile_with(original, settings)
    with collected('schedule,code,perf,program') as lines:
        start = time.perf_counter()
        compiled(*args, **kwargs)
        first_call = time.perf_counter() - start
        state.restore()
        compiled(*args, **kwargs)
        state.restore()
    took = _seconds(compiled, args, kwargs, state)
    timeline, profiled = _timeline(compiled, args, kwargs, state)
    live = _memory(compiled, args, kwargs, state)
    report = _explain._report(compiled, (original, args, kwargs))
    data = json.loads(report.json())
    bandwidth = measured_bandwidth('cuda' if any(row['on_device'] for row in timeline) else 'cpu')
    kernels = kernels_of(lines, timeline, bandwidth)
    data |= {'text': str(report), 'first_call': first_call, 'eager_seconds': eager, 'compiled_seconds': took,
             'profiled_seconds': profiled, 'bandwidth': bandwidth, 'stages': stages_of(lines), 'kernels': kernels,
             'calls': calls_of(lines), 'boundaries': boundaries_of(lines),
             'programs': [text for category, text in lines if category == 'program'],
             'timeline': timeline, 'shares': shares_of(timeline), 'memory': live,
             'graphs': [nodes_of(segment['graph']) for segment in data['segments']],
             'sources': coloured_sources(original, args, kwargs, data, state)}
    data['advice'] = advice(data)
    return data


def _seconds(call, args, kwargs, state):
    """The median of some calls."""
    took = []
    for _ in range(CALLS):
        start = time.perf_counter()
        call(*args, **kwargs)
        rounds.wait_for(_devices())
        took.append(time.perf_counter() - start)
        state.restore()
    return rounds.median(took)


def _devices():
    return ['cuda'] if torch.cuda.is_available() and torch.cuda.is_initialized() else []


def measured_bandwidth(device='cpu'):
    """Bytes per second that copies of a large tensor move, read and written."""
    size, copies = (1 << 26, 1) if device == 'cpu' else (1 << 29, 10)
    one, other = torch.zeros(size // 4, device=device), torch.zeros(size // 4, device=device)
    best = math.inf
    for _ in range(4):
        rounds.wait_for([device])
        start = time.perf_counter()
        for _ in range(copies):
            other.copy_(one)
        rounds.wait_for([device])
        best = min(best, time.perf_counter() - start)
    return 2 * size * copies / best


# -- the call over time


def _timeline(call, args, kwargs, state):
    """([{name, start, seconds, depth}] of the shortest of some calls, its seconds)."""
    from torch.profiler import ProfilerActivity, profile, record_function
    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)
    kept = None
    for _ in range(CALLS):
        with memory._without_stderr(), profile(activities=activities, acc_events=True) as profiled:
            with record_function('call'):
                call(*args, **kwargs)
                rounds.wait_for(_devices())
        state.restore()
        events = sorted(profiled.events(), key=lambda event: event.time_range.start)
        whole = next((event for event in events if event.name == 'call'), None)
        if whole is None:
            continue
        took = (whole.time_range.end - whole.time_range.start) * 1e-6
        if kept is None or took < kept[0]:
            kept = (took, events, whole.time_range.start)
    if kept is None:
        return [], 0.0
    took, events, start = kept
    return _nested(events, start), took


def _nested(events, start):
    rows, open_until = [], {}
    for event in events:
        begin, end = event.time_range.start - start, event.time_range.end - start
        if begin < 0 or event.name.startswith('['):
            continue
        stack = open_until.setdefault(event.thread, [])
        while stack and stack[-1] <= begin:
            stack.pop()
        rows.append({'name': event.name, 'start': begin * 1e-6, 'seconds': (end - begin) * 1e-6, 'depth': len(stack),
                     'thread': event.thread, 'on_device': event.device_type == torch.autograd.DeviceType.CUDA})
        stack.append(end)
    return rows


def chrome_trace(data):
    """The time line as Perfetto and chrome://tracing read it."""
    events = [{'name': row['name'], 'ph': 'X', 'ts': row['start'] * 1e6, 'dur': row['seconds'] * 1e6, 'pid': 0,
               'tid': row['thread'], 'cat': 'smelt' if row['name'].startswith('smelt::') else 'torch'}
              for row in data['timeline']]
    return json.dumps({'traceEvents': events, 'displayTimeUnit': 'ms'})


def write_trace(data, path):
    with open(path, 'w') as file:
        file.write(chrome_trace(data))


def _memory(call, args, kwargs, state):
    """[[seconds, bytes that are alive]]."""
    try:
        reports = memory.over_time(lambda: call(*args, **kwargs))
    finally:
        state.restore()
    live, rows = 0, []
    for at, size in reports:
        live += size
        rows.append([at * 1e-9, live])
    return rows


# -- what the log says


def kernels_of(lines, timeline, bandwidth):
    """One row for each kernel that was made: its ops, its loops, what it moves and computes, how long it takes."""
    ops = {}
    for category, text in lines:
        if category == 'schedule':
            ops.update(_groups(text))
    spent = _spent(timeline)
    rows = {}
    for category, text in lines:
        if category != 'code':
            continue
        row = _kernel(text.strip())
        if row is None:
            continue
        row['ops'] = ops.get(row['name'], [])
        runs, seconds = spent.get(row['name'], (0, 0.0))
        row |= {'runs': runs, 'seconds': seconds}
        rows[row['name'], row['code']] = row
    found = sorted(rows.values(), key=lambda row: -row['seconds'])
    _share_launches(found, timeline)
    for row in found:
        if row['runs'] and row['seconds'] > 0:
            row['bandwidth'] = row['bytes'] * row['runs'] / row['seconds']
            row['of_machine'] = row['bandwidth'] / bandwidth
    return found


def _spent(timeline):
    """{kernel: (runs, seconds)} of those that are launched alone. On a GPU its own times count, not the launch's."""
    spent = {}
    on_device = any(row['on_device'] and row['name'].startswith('smelt_') for row in timeline)
    for row in timeline:
        if on_device and row['on_device'] and row['name'].startswith('smelt_'):
            first = not row['name'].endswith('_finish')
            name = row['name'].removeprefix('smelt_').removesuffix('_finish')
        elif not on_device and row['name'].startswith('smelt::'):
            name, first = row['name'].removeprefix('smelt::'), True
        else:
            continue
        count, seconds = spent.get(name, (0, 0.0))
        spent[name] = (count + first, seconds + row['seconds'])
    return spent


def _share_launches(kernels, timeline):
    """Kernels that are launched together, "smelt::a+b", share the time by the bytes that they move."""
    known = {}
    for row in kernels:
        known.setdefault(row['name'], []).append(row)
    for span in timeline:
        names = span['name'].removeprefix('smelt::').split('+')
        if not span['name'].startswith('smelt::') or len(names) < 2 or not all(name in known for name in names):
            continue
        # Several of one name take turns.
        launched = [known[name][names[:at].count(name) % len(known[name])] for at, name in enumerate(names)]
        moved = sum(row['bytes'] for row in launched) or 1
        for row in launched:
            row['runs'] += 1
            row['seconds'] += span['seconds'] * row['bytes'] / moved


def shares_of(timeline):
    """{'kernels', 'pytorch', 'between', 'python'}: seconds of the profiled call, on the host.

    Kernels of smelt's, ops of PyTorch that smelt calls, what runs between them (memory, numbers, launches), and the rest:
    guards, and code that Python runs."""
    host = [row for row in timeline if not row['on_device']]
    whole = next((row for row in host if row['name'] == 'call'), None)
    if whole is None:
        return {}
    found = {'kernels': 0.0, 'pytorch': 0.0, 'between': 0.0, 'python': whole['seconds']}
    for at, run in enumerate(host):
        if run['name'] != 'smelt::run' or any(outer['name'] == 'smelt::run' for outer in _around(host, at)):
            continue
        inside = [row for row in host[at + 1:] if row['thread'] == run['thread'] and row['depth'] == run['depth'] + 1 and
                  row['start'] < run['start'] + run['seconds']]
        kernels = sum(row['seconds'] for row in inside if row['name'].startswith('smelt::'))
        pytorch = sum(row['seconds'] for row in inside) - kernels
        found['kernels'] += kernels
        found['pytorch'] += pytorch
        found['between'] += run['seconds'] - kernels - pytorch
        found['python'] -= run['seconds']
    return found


def _around(rows, at):
    """The spans that rows[at] lies in."""
    inner = rows[at]
    return [row for row in rows[:at] if row['thread'] == inner['thread'] and row['depth'] < inner['depth'] and
            row['start'] + row['seconds'] >= inner['start'] + inner['seconds']]


def _groups(text):
    """{kernel: [its nodes]} of a schedule."""
    found, current = {}, None
    for line in text.splitlines():
        if match := re.match(r'kernel (\S+?)\(', line):
            current = found.setdefault(match[1], [])
        elif line.startswith('  ') and current is not None:
            current.append(line.strip())
        else:
            current = None
    return found


def calls_of(lines):
    """[{op, why}]: ops that PyTorch computes, and the reason for which they share no kernel."""
    found = {}
    for category, text in lines:
        if category == 'schedule':
            for line in text.splitlines():
                if match := re.match(r'# (\S+): (.*)', line):
                    found[match[1]] = {'op': match[1], 'why': match[2]}
    return list(found.values())


def boundaries_of(lines):
    """[{before, after, why}]: kernels of which one reads the other, and the reason for which they are two."""
    found = []
    for category, text in lines:
        if category == 'schedule':
            for match in re.finditer(r'^# (\S+) and (\S+) are two kernels: (.*)$', text, re.M):
                row = dict(zip(('before', 'after', 'why'), match.groups()))
                if row not in found:
                    found.append(row)
    return found


def _kernel(text):
    head = re.match(r'kernel "([^"]*)" outer \[([^\]]*)\] inner \[([^\]]*)\]', text)
    if not head:
        return None
    outer, inner = (_product(part) for part in (head[2], head[3]))
    moved = flops = 0
    points = outer
    for line in text.splitlines():
        if match := re.match(r'b\d+: (\w+)\[(\d*)\] (input|output|inout)', line.strip()):
            moved += _SIZES.get(match[1], 4) * int(match[2] or 1)
        elif line.startswith('inner stage'):
            points = outer * inner
        elif line.startswith('outer stage'):
            points = outer
        elif match := re.match(r'v\d+: (?:f\w+|bf16) = (\w+)', line.strip()):
            flops += points if match[1] not in _NOT_COUNTED else 0
    return {'name': head[1], 'code': text, 'bytes': moved, 'flops': flops, 'outer': head[2], 'inner': head[3]}


def _product(text):
    numbers = [int(part) for part in text.split(',') if part.strip().isdigit()]
    return math.prod(numbers) if numbers else 1


def nodes_of(graph):
    """[{id, op, type, inputs, part}] of a graph's text, for drawing it."""
    rows, part = [], ''
    for line in graph.splitlines():
        if line.startswith('#'):
            part = line.lstrip('# ').split(',')[0].split(':')[0]
        elif match := re.match(r'\s*(?:input )?(%\d+(?:, %\d+)*): (.*?) = (\S+?)(?:\((.*)\)|\s+(.*))?(?: view)?$', line):
            names = re.findall(r'%\d+', match[1])
            op = match[3] if match[4] is not None else f'{match[3]} {match[5] or ""}'.strip()
            rows.append({'id': names[0], 'names': names, 'op': op, 'type': match[2], 'part': part,
                         'inputs': re.findall(r'%\d+', match[4] or '')})
    return rows


# -- what to do


def advice(data):
    """[{seconds, text}], what is expected to win most first. Seconds are of one call."""
    found = []
    outside = max(0.0, data['shares'].get('python', 0.0))
    if data['rollbacks']:
        found.append((0.0, 'It was measured to be slower compiled, and Python runs it: ' + data['rollbacks'][-1]))
    for at in data['breaks']:
        gain = outside / len(data['breaks'])
        found.append((gain, f'{at["file"]}:{at["line"]}: {at["sentence"]}: {at["remedy"]}. Python takes '
                            f'{outside * 1e6:.0f} us of a call around {len(data["breaks"])} break(s).'))
    for reason in data['recompiles'][:8]:
        found.append((data['first_call'] / max(1, len(data['segments'])),
                      f'Compiled again, which took about {data["first_call"] * 1e3:.0f} ms: {reason}'))
    spent = {}
    for row in data['timeline']:
        if row['name'].startswith('aten::') and row['depth'] <= 2:
            spent[row['name']] = spent.get(row['name'], 0.0) + row['seconds']
    for name, seconds in sorted(spent.items(), key=lambda item: -item[1])[:3]:
        if data['profiled_seconds'] and seconds > 0.1 * data['profiled_seconds']:
            share = 100 * seconds / data['profiled_seconds']
            found.append((0.0, f'{name} of PyTorch takes {share:.0f} % of the call ({seconds * 1e6:.0f} us): a smaller dtype '
                               '(torch.autocast) or options={"freeze": True} in inference may make it shorter.'))
    for row in data['kernels']:
        if row.get('of_machine', 1.0) < 0.3 and row['seconds'] > 0.05 * data['profiled_seconds'] and row['bytes'] > 1 << 20:
            lost = row['seconds'] * (1 - row['of_machine'])
            found.append((lost, f'The kernel {row["name"]} reaches {100 * row["of_machine"]:.0f} % of the machine\'s '
                                f'bandwidth; up to {lost * 1e6:.0f} us of a call are lost there.'))
    return [{'seconds': seconds, 'text': text} for seconds, text in sorted(found, key=lambda item: -item[0])]
