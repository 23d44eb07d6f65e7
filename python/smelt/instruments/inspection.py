"""Everything that can be said of a compiled call, as plain data: what smelt.explain's page and `smelt explain` show."""
import dataclasses
import json
import time

import torch

from .. import _compile, _explain, _native
from . import rounds
from .advice import advice
from .fusion_groups import boundaries_of, calls_of, ends_of_groups, nodes_of, set_groups
from .kernels import kernels_of, measured_bandwidth
from .log_lines import collected, stages_of
from .source_lines import coloured_sources
from .state import State
from .timeline import busy_seconds, memory_of, shares_of, time_line

CALLS = 5  # that are timed, and as many that are profiled


def inspect(original, settings, args, kwargs, earlier=None, told=lambda done, text=None: None):
    """Compiles afresh, so that each stage is seen, calls it some times from one start, and tells. A dict.

    earlier: a Report of what the function did before: its recompiles and rollbacks are told too."""
    state = State(original, args, kwargs)
    told(0.0, 'compiling')
    compiled = _compile.compile_with(original, settings)

    def call():
        return compiled(*args, **kwargs)

    def eager():
        return original(*args, **kwargs)
    before = _native.counters()['record_ns']
    with collected('schedule,code,perf,program') as lines:
        start = time.perf_counter()
        call()
        rounds.wait_for(rounds.devices_in_use())
        first_call = time.perf_counter() - start
        written_down = (_native.counters()['record_ns'] - before) * 1e-9
        state.restore()
        call()
        state.restore()
    told(0.3, 'calls')
    took = _in_turn({'eager': eager, 'compiled': call}, state)
    told(0.4, 'time line')
    timeline, profiled = time_line(call, state, CALLS)
    told(0.6, 'memory')
    live = memory_of(call, state)
    report = _explain._report(compiled, (original, args, kwargs))
    data = json.loads(report.json())
    if earlier is not None:
        for key in ('recompiles', 'rollbacks', 'fixed_sizes'):
            data[key] = list(dict.fromkeys([*getattr(earlier, key), *data[key]]))
    told(0.7, 'bandwidth')
    device = 'cuda' if any(row['on_device'] for row in timeline) else 'cpu'
    graphs = [nodes_of(segment['graph']) for segment in data['segments']]
    calls, boundaries = calls_of(lines), boundaries_of(lines)
    for nodes in graphs:
        set_groups(nodes, lines)
    data |= {'text': str(report), 'first_call': first_call, 'rounds': took,
             **{f'{name}_seconds': rounds.median(values) for name, values in took.items()},
             'profiled_seconds': profiled, 'device_seconds': busy_seconds(timeline),
             'bandwidth': measured_bandwidth(device) if device == 'cpu' else measured_bandwidth(device, 1 << 29),
             'stages': _stages(written_down, lines), 'kernels': kernels_of(lines, timeline, device), 'calls': calls,
             'boundaries': boundaries, 'programs': [text for category, text in lines if category == 'program'],
             'timeline': timeline, 'shares': shares_of(timeline), 'memory': live, 'graphs': graphs,
             'ends_of_groups': [ends_of_groups(nodes, calls, boundaries) for nodes in graphs]}
    told(0.8, 'source')
    data['sources'] = coloured_sources(original, args, kwargs, data, state)
    told(0.9, 'advice')
    data['frozen_seconds'] = _frozen(call, original, settings, args, kwargs, state, data)
    data['advice'] = advice(data)
    return data


def _in_turn(calls, state):
    """{name: [seconds]} of calls that take turns, each from the same start: what else the machine does meets all of them."""
    took = {name: [] for name in calls}
    for _ in range(CALLS):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            rounds.wait_for(rounds.devices_in_use())
            took[name].append(time.perf_counter() - start)
            state.restore()
    return took


def _stages(written_down, lines):
    """What compiling took, by stage and pass; first of all the account of the first call that is kept."""
    found = stages_of(lines)
    if found and written_down:
        found.insert(0, {'stage': 'write down', 'name': 'ops', 'seconds': written_down, 'changed': 0, 'note': ''})
    return found


def _frozen(call, original, settings, args, kwargs, state, data):
    """Seconds of a call with frozen weights, where that may be worth something: in inference, with products of PyTorch's."""
    if torch.is_grad_enabled() or settings.options.get('freeze') or not isinstance(original, torch.nn.Module) or (
            settings.backend != 'native' or data['shares'].get('pytorch', 0.0) < 0.2 * data['profiled_seconds']):
        return None
    frozen = _compile.compile_with(original, dataclasses.replace(settings, options={**settings.options, 'freeze': True}))
    for _ in range(3):
        frozen(*args, **kwargs)
        state.restore()
    took = _in_turn({'frozen': lambda: frozen(*args, **kwargs), 'compiled': call}, state)
    return data['compiled_seconds'] * rounds.ratio(took['frozen'], took['compiled'])[0]
