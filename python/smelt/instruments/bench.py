"""smelt bench: what compiling is worth, measured on the user's own model."""
import contextlib
import dataclasses
import datetime
import gc
import itertools

import torch

from .. import _compile, _native
from . import energy, machine, memory, rounds
from .contestants import INFERENCE, make_step
from .log_lines import by_stage, collected, stages_of
from .problems import Problem, of_users_code

def run(target, contestants, *, kind=INFERENCE, sweep=None, device=None, seconds=5.0, rounds_=None,
        with_memory=True, with_energy=True, told=lambda done, text=None: None):
    """The measurement of a target as a dict, as --json prints it. `sweep`: {parameter of make_model: its values}."""
    sweep = sweep or {}
    points = [dict(zip(sweep, values)) for values in itertools.product(*sweep.values())]
    rows, energy_notes = [], {}
    for number, point in enumerate(points):
        def told_of_part(done, text=None):
            told((number + done) / len(points), text)
        found, notes = _measure(target, contestants, kind, point, device, seconds / len(points), rounds_,
                                with_memory, with_energy, told_of_part)
        rows += found
        energy_notes |= notes
        gc.collect()
    return {'target': target.text, 'time': datetime.datetime.now(datetime.timezone.utc).isoformat(timespec='seconds'),
            'kind': kind, 'hardware': machine.hardware(), 'versions': machine.versions(), 'rows': rows,
            'energy_not_available': energy_notes}


def _measure(target, contestants, kind, point, device, seconds, rounds_, with_memory, with_energy, told):
    steps, compiled, rows, devices = {}, {}, {}, []
    for contestant in contestants:
        told(0.0, f'first call: {contestant.label}')
        case = target.make(device=device, **point)
        devices = case.devices
        row = {'label': contestant.label, 'kind': kind, 'devices': devices, 'samples_per_call': case.samples,
               'point': point}
        with _users_code(target.text, contestant.label):
            compiled[contestant.label] = made = []
            steps[contestant.label] = step = make_step(case, _remembering(contestant, made), kind)
            row |= _first_call(step, devices)
        rows[contestant.label] = row
    with _users_code(target.text, ''):
        samples = rounds.in_turn(steps, seconds, devices, rounds_,
                                 lambda done, text=None: told(done, 'interleaved rounds'))
        # On a GPU calls overlap unless they are waited for.
        streams = rounds.back_to_back(steps, devices) if 'cuda' in devices else {}
    base = samples[contestants[0].label]
    for label, values in samples.items():
        row = rows[label]
        row |= rounds.describe(values)
        row['throughput'] = row['samples_per_call'] / streams.get(label, row['median'])
        row['speedup'], row['speedup_low'], row['speedup_high'] = rounds.ratio(base, values)
        row['samples'] = values
        row['rollbacks'] = [sentence for one in compiled[label] if (native := _compile.native_of(one)) is not None
                            for sentence in native._rollbacks()]
    usable, notes = energy.meters(devices) if with_energy else ([], {})
    for label, step in steps.items():
        with _users_code(target.text, label):
            if with_memory:
                told(1.0, f'memory: {label}')
                rows[label]['memory'] = memory.peak_bytes(step, devices)
            if usable:
                told(1.0, f'energy: {label}')
                rows[label]['energy'] = energy.per_call(step, usable, lambda: rounds.wait_for(devices))
    return list(rows.values()), notes


def _remembering(contestant, made):
    """The contestant, which appends what it compiles to a list."""
    def compile(model):
        made.append(contestant.compile(model))
        return made[-1]
    return dataclasses.replace(contestant, compile=compile)


def _first_call(step, devices):
    """Seconds of the first call and the one behind it, which makes the code of what that has written down; and of what smelt
    did in them."""
    before = _native.counters()
    with collected('perf') as lines:
        took = rounds.once(step, devices) + rounds.once(step, devices)
    after = _native.counters()
    stages = {}
    if after['segments'] > before['segments']:
        stages['write down'] = (after['record_ns'] - before['record_ns']) / 1e9
        stages |= by_stage(stages_of(lines))
    return {'first_call': took, 'stages': stages, 'graphs': after['graphs'] - before['graphs'],
            'graph_breaks': after['graph_breaks'] - before['graph_breaks']}


@contextlib.contextmanager
def _users_code(target, label):
    """What the user's code raises is a Problem; smelt's own checks are too."""
    try:
        yield
    except Problem:
        raise
    except Exception as error:
        raise of_users_code(error, f'{target} ({label})' if label and label != 'eager' else target) from error


# -- what each submodule is worth


def where(target, contestant, *, kind=INFERENCE, point=None, device=None, seconds=5.0, depth=2,
          told=lambda done, text=None: None):
    """For each submodule that the model calls: its time in eager and compiled, on the inputs that it has in the model."""
    from .contestants import Contestant
    case = target.make(device=device, **(point or {}))
    if not isinstance(case.model, torch.nn.Module):
        raise Problem(f'--where looks into the submodules of a model; {target.text} makes a {type(case.model).__name__}')
    with _users_code(target.text, ''):
        calls = _calls_of_submodules(case, depth)
    if not calls:
        raise Problem(f'the model of {target.text} calls no submodules')
    rows, eager = [], Contestant('eager', lambda model: model)
    for number, (name, (module, part, count)) in enumerate(calls.items()):
        told(number / len(calls), name or 'the whole model')
        row = {'name': name or '(the whole model)', 'type': type(module).__name__, 'calls': count}
        try:
            steps = {c.label: make_step(part, c, kind) for c in (eager, contestant)}
            for step in steps.values():
                rounds.once(step, case.devices)
            samples = rounds.in_turn(steps, seconds / len(calls), case.devices)
        except Exception as error:  # a submodule may need what only the whole model gives it
            rows.append(row | {'note': str(of_users_code(error, name))})
            continue
        one, other = (rounds.median(samples[c.label]) for c in (eager, contestant))
        speedup, low, high = rounds.ratio(samples['eager'], samples[contestant.label])
        rows.append(row | {'eager': one, 'compiled': other, 'saved': (one - other) * count, 'speedup': speedup,
                           'speedup_low': low, 'speedup_high': high})
    return sorted(rows, key=lambda row: -row.get('saved', float('-inf')))


def _calls_of_submodules(case, depth):
    """{name: (module, a case of its last call, how often it is called)} up to some depth of names."""
    from .target import Case
    seen, handles = {}, []

    def keep(name):
        def hook(module, args, kwargs):
            count = seen[name][2] if name in seen else 0
            args = tuple(_cut(value) for value in args)
            kwargs = {key: _cut(value) for key, value in kwargs.items()}
            seen[name] = (module, Case(module, args, kwargs), count + 1)
        return hook
    for name, module in case.model.named_modules():
        if name.count('.') < depth:
            handles.append(module.register_forward_pre_hook(keep(name), with_kwargs=True))
    try:
        with torch.no_grad():
            case.model(*case.args, **case.kwargs)
    finally:
        for handle in handles:
            handle.remove()
    return seen


def _cut(value):
    """Apart from the graph that it came from."""
    if isinstance(value, torch.Tensor):
        return value.detach()
    if isinstance(value, (list, tuple)) and not hasattr(value, '_fields'):
        return type(value)(_cut(part) for part in value)
    return value
