"""One call over time: what ran on the host and on the GPU, and what memory was alive."""
import json

import torch

from . import memory, rounds

_NOT_WORK = ('annotation', 'sync')  # of a GPU's rows: labels of the host drawn there, and waiting


def time_line(call, state, calls):
    """([{name, start, seconds, depth, thread, on_device}] of the shortest of some calls, its seconds).

    One session of the profiler sees all of them: what it takes to begin with a GPU falls into the first."""
    from torch.profiler import ProfilerActivity, profile, record_function
    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)
    with memory.without_stderr(), profile(activities=activities, acc_events=True) as profiled:
        for _ in range(calls):
            rounds.wait_for(rounds.devices_in_use())
            with record_function('call'):
                call()
                rounds.wait_for(rounds.devices_in_use())
            state.restore()
    events = sorted(profiled.events(), key=lambda event: event.time_range.start)
    spans = [event.time_range for event in events if event.name == 'call' and not _is_on_device(event)]
    if not spans:
        return [], 0.0
    span = min(spans, key=lambda span: span.end - span.start)
    return rows_of(events, span.start, span.end), (span.end - span.start) * 1e-6


def _is_on_device(event):
    return event.device_type == torch.autograd.DeviceType.CUDA


def rows_of(events, start, end):
    """The events of one call, in the order in which they start. Those of a thread lie in each other; each stream of a GPU is a
    thread of its own, and what it shows of the host's labels is left out."""
    rows, open_until = [], {}
    for event in events:
        begin, until = event.time_range.start - start, event.time_range.end - start
        on_device = _is_on_device(event)
        if begin < 0 or event.time_range.start > end or event.name.startswith('['):
            continue
        if on_device and (getattr(event, 'is_user_annotation', False) or event.name.startswith(('smelt::', 'call')) or
                          any(word in str(getattr(event, 'activity_type', '') or '') for word in _NOT_WORK)):
            continue
        thread = f'stream {event.device_resource_id}' if on_device else event.thread
        stack = open_until.setdefault(thread, [])
        while stack and stack[-1] <= begin:
            stack.pop()
        rows.append({'name': event.name, 'start': begin * 1e-6, 'seconds': (until - begin) * 1e-6,
                     'depth': 0 if on_device else len(stack), 'thread': thread, 'on_device': on_device})
        stack.append(until)
    return rows


def busy_seconds(rows):
    """How long a GPU did something: kernels that run at the same time count once."""
    total, until = 0.0, 0.0
    for row in sorted((row for row in rows if row['on_device']), key=lambda row: row['start']):
        begin, end = max(row['start'], until), row['start'] + row['seconds']
        total += max(0.0, end - begin)
        until = max(until, end)
    return total


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


def chrome_trace(data):
    """The time line as Perfetto and chrome://tracing read it."""
    threads = {}
    for row in data['timeline']:
        threads.setdefault(row['thread'], len(threads))
    events = [{'name': 'thread_name', 'ph': 'M', 'pid': 0, 'tid': number,
               'args': {'name': f'GPU, {thread}' if isinstance(thread, str) else f'thread {thread}'}}
              for thread, number in threads.items()]
    events += [{'name': row['name'], 'ph': 'X', 'ts': row['start'] * 1e6, 'dur': row['seconds'] * 1e6, 'pid': 0,
                'tid': threads[row['thread']], 'cat': 'smelt' if row['name'].startswith('smelt') else 'torch'}
               for row in data['timeline']]
    events += [{'name': f'memory, {device}', 'ph': 'C', 'ts': at * 1e6, 'pid': 0, 'args': {'bytes': live}}
               for device, rows in data['memory'].items() for at, live in rows]
    return json.dumps({'traceEvents': events, 'displayTimeUnit': 'ms'})


def write_trace(data, path):
    with open(path, 'w') as file:
        file.write(chrome_trace(data))


def memory_of(call, state):
    """{device: [[seconds, bytes of the call that are alive]]}."""
    try:
        reports = memory.over_time(call)
    finally:
        state.restore()
    live, rows = {}, {}
    for at, size, device in reports:
        live[device] = live.get(device, 0) + size
        rows.setdefault(device, []).append([at * 1e-9, live[device]])
    return rows
