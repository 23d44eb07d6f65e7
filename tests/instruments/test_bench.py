"""smelt bench on models of users: what is measured, and what is printed."""
import itertools
import json
import math

import pytest

from smelt.instruments import energy, rounds, terminal

FEW = ('--rounds', '10')


@pytest.fixture
def even_clock(monkeypatch):
    """A clock on which all calls take equally long, whatever else the machine does: nothing is slower than its baseline."""
    ticks = itertools.count()
    monkeypatch.setattr(rounds, 'clock', lambda: next(ticks) * 1e-3)


def measured(smelt_command, *arguments):
    code, out, err = smelt_command('bench', *arguments, *FEW, '--json')
    assert code == 0, err
    return json.loads(out)


@pytest.mark.parametrize('more', ((), ('--train',), ('--whole-step',)), ids=('inference', 'train', 'whole step'))
def test_a_row_has_all_numbers(models, smelt_command, more):
    found = measured(smelt_command, f'{models}:make_training', *more)
    assert [row['label'] for row in found['rows']] == ['eager', 'smelt']
    for row in found['rows']:
        assert 0 < row['least'] <= row['median'] <= row['p95'] <= row['p99'] and row['low'] <= row['median'] <= row['high']
        assert row['rounds'] == len(row['samples']) == 10
        assert math.isclose(row['throughput'], 8 / row['median'])
        assert row['first_call'] > 0 and row['memory']['cpu'] >= 0
    assert found['rows'][1]['graphs'] >= 1 and {'write down', 'passes', 'codegen'} <= set(found['rows'][1]['stages'])
    assert found['versions']['smelt'] and found['hardware']['cpu']


def test_inputs_as_an_expression(models, smelt_command):
    found = measured(smelt_command, f'{models}:chain', '--inputs', 'torch.randn(64)', '--no-memory')
    assert found['rows'][1]['label'] == 'smelt' and 'memory' not in found['rows'][1]
    found = measured(smelt_command, f'{models}:Net', '--inputs', 'torch.randn(4, 16)')
    assert found['rows'][1]['samples_per_call'] == 4


def test_keyword_inputs(models, smelt_command):
    assert len(measured(smelt_command, f'{models}:make_step', '--train')['rows']) == 2


def test_modes_back_ends_and_batch_sizes(models, smelt_command):
    found = measured(smelt_command, f'{models}:make_model', '--backend', 'native', '--backend', 'eager',
                     '--option', 'numerics=eager', '--batch-sizes', '1,4')
    assert [(row['label'], row['point']) for row in found['rows']] == [
        (label, {'batch_size': size}) for size in (1, 4)
        for label in ('eager', 'smelt numerics=eager', 'smelt eager numerics=eager')]


def test_a_whole_step_without_a_loss_is_one_graph(models, smelt_command):
    """The loss that stands in for the user's is no break."""
    row = measured(smelt_command, f'{models}:make_step', '--whole-step', '--no-memory')['rows'][1]
    assert row['graph_breaks'] == 0 and row['graphs'] >= 1
    code, out, _ = smelt_command('explain', f'{models}:make_step', '--train', '--json')
    assert code == 0 and json.loads(out)['break_count'] == 0
    code, _, err = smelt_command('bench', f'{models}:make_whole_numbers', '--train')
    assert code == 2 and 'returns no floating-point tensor; give a loss' in err and err.count('\n') == 1


def test_inputs_with_sweeps(models, smelt_command):
    found = measured(smelt_command, f'{models}:chain', '--inputs', 'torch.randn(batch_size, rows)', '--batch-sizes', '2', '--sweep',
                     'rows=3,5', '--no-memory', '--device', 'cpu')
    assert [tuple(row['point'].values()) for row in found['rows'][::2]] == [(2, 3), (2, 5)]
    assert found['rows'][0]['samples_per_call'] == 2


def test_a_peer(models, smelt_command, monkeypatch):
    asked = []
    monkeypatch.setattr('torch.compile', lambda model, mode=None: asked.append(mode) or model)
    found = measured(smelt_command, f'{models}:make_model', '--peer', '--no-memory')
    assert [row['label'] for row in found['rows']] == ['eager', 'smelt', 'torch.compile'] and asked == [None]
    # TARGET behind an option that may stand alone.
    found = measured(smelt_command, '--no-memory', '--peer', 'torch.compile:max-autotune', '--peer', f'{models}:make_model')
    assert [row['label'] for row in found['rows']][2:] == ['torch.compile:max-autotune', 'torch.compile']
    assert asked == [None, 'max-autotune', None]


def test_a_mode_without_effect_is_said(models, smelt_command, monkeypatch):
    monkeypatch.setattr('torch.cuda.is_available', lambda: False)
    code, _, err = smelt_command('bench', f'{models}:make_model', *FEW, '--mode', 'max-autotune', '--no-memory')
    assert code == 0 and err.count('\n') == 1 and 'has nothing of its own on the CPU' in err


def test_a_baseline_is_measured_again_as_it_was(models, smelt_command, even_clock):
    code, _, err = smelt_command('bench', '--save', f'{models}:chain', '--inputs', 'torch.ones(rows)', '--sweep', 'rows=3,4', '--option',
                                 'fusion=none', *FEW, '--no-memory')
    assert code == 0, err
    code, out, err = smelt_command('bench', '--check', 'last', *FEW, '--no-memory', '--json')
    assert code == 0, err
    found = json.loads(out)
    assert [(row['label'], row['point']) for row in found['check']] == [('smelt fusion=none', {'rows': 3}), ('smelt fusion=none', {'rows': 4})]
    # Other inputs and other options are other measurements.
    code, _, err = smelt_command('bench', f'{models}:chain', '--inputs', 'torch.ones(9)', '--check', 'last')
    assert code == 2 and 'has no run of' in err
    code, _, err = smelt_command('bench', '--check', 'no_such_name')
    assert code == 2 and "has no run 'no_such_name'" in err


def test_a_baseline_of_an_empty_history(smelt_command):
    code, _, err = smelt_command('bench', '--check', 'last')
    assert code == 2 and 'has no runs yet' in err


@pytest.mark.parametrize('text', ('', '[]', '{}', '{"rows": [{"label": "smelt"}]}', '{"rows": 3}',
                                  '{"rows": [{"label": "smelt", "point": {}, "median": 1, "low": 1, "high": 0}]}'))
def test_files_that_are_no_baselines(models, smelt_command, tmp_path, text):
    path = tmp_path / 'baseline.json'
    path.write_text(text)
    for target in ([f'{models}:make_model'], []):
        code, out, err = smelt_command('bench', *target, '--check', path)
        assert (code, out, err.count('\n')) == (2, '', 1) and 'the baseline' in err


def test_a_baseline_of_another_machine_or_kind(models, smelt_command, tmp_path, even_clock):
    path = tmp_path / 'baseline.json'
    found = measured(smelt_command, f'{models}:make_training', '--no-memory')
    path.write_text(json.dumps(found | {'hardware': found['hardware'] | {'cpu': 'abacus'}}))
    code, out, _ = smelt_command('bench', f'{models}:make_training', '--check', path, *FEW, '--no-memory')
    assert code == 0 and 'measured on other hardware: cpu was abacus' in out
    code, _, err = smelt_command('bench', f'{models}:make_training', '--train', '--check', path)
    assert code == 2 and 'is of inference' in err


def test_an_older_history_can_be_used(models, smelt_command, tmp_path):
    import sqlite3
    path = tmp_path / 'old.sqlite'
    with sqlite3.connect(path) as db:
        db.execute('create table runs (id integer primary key, time text, name text, target text, kind text, hardware text, versions text)')
    for _ in range(2):
        assert smelt_command('bench', f'{models}:make_model', '--save', '--history', path, *FEW, '--no-memory')[0] == 0


TIMED = """
import time

import smelt
import torch

seen = {'eager': [], 'smelt': []}


@smelt.disable
def wait(name):
    start = time.perf_counter()
    while time.perf_counter() - start < 5e-3:
        pass
    seen[name].append(time.perf_counter() - start)


def function(x):
    wait('smelt' if smelt.is_compiling() else 'eager')
    return x + 1


def make_model():
    return function, torch.ones(3)
"""


def test_numbers_agree_with_a_stop_watch(tmp_path, smelt_command):
    """Calls that carry a stop-watch of their own: whatever else the machine does, both see the same calls."""
    path = tmp_path / 'timed_target.py'
    path.write_text(TIMED)
    code, out, err = smelt_command('bench', f'{path}:make_model', '--rounds', 60, '--no-memory', '--no-energy', '--option',
                                   'rollback=false', '--json')
    assert code == 0, err
    import sys
    seen = sys.modules['timed_target'].seen
    for row in json.loads(out)['rows']:
        watch = seen['smelt' if 'smelt' in row['label'] else 'eager'][-60:]
        # Call by call: a machine that is shared makes some of them ten times as long, and a median falls on either side.
        apart = rounds.median([abs(told / one - 1) for told, one in zip(row['samples'], watch, strict=True)])
        assert apart < 0.05, (row['label'], apart)
        assert {name: row[name] for name in ('mean', 'median', 'p95', 'p99')}.items() <= rounds.describe(row['samples']).items()
        assert math.isclose(row['throughput'], 3 / row['median'])


def test_a_table_fits_the_terminal():
    columns = ['', *(f'column {i}' for i in range(8))]
    rows = [['a name of some length', *('12.34 ms' for _ in range(8))]]
    parts = terminal.parts_of(columns, rows, 80)
    assert len(parts) > 1 and sorted({i for part in parts for i in part}) == list(range(9)) and all(part[0] == 0 for part in parts)
    for part in parts:
        assert 1 + sum(len(max(columns[i], rows[0][i], key=len)) + 3 for i in part) <= 80
    assert terminal.parts_of(columns, rows, 200) == [list(range(9))]
    assert terminal.parts_of(columns, rows, 10) == [[0, i] for i in range(1, 9)]


def on_a_terminal(width, *arguments):
    """What a program shows on one of that width."""
    import os
    import pty
    import subprocess
    import sys
    ours, theirs = pty.openpty()
    done = subprocess.Popen([sys.executable, *arguments], stdout=theirs, stderr=theirs, stdin=theirs,
                            env={**os.environ, 'COLUMNS': str(width), 'TERM': 'xterm'})
    os.close(theirs)
    text = b''
    try:
        while part := os.read(ours, 1 << 16):
            text += part
    except OSError:  # it has ended
        pass
    assert done.wait() == 0
    os.close(ours)
    return text.decode()


@pytest.mark.parametrize('width', (80, 40))
def test_the_table_on_a_narrow_terminal(models, width):
    path = models.parent.joinpath(*['a_folder_with_a_long_name'] * 6, models.name)
    path.parent.mkdir(parents=True)
    path.write_text(models.read_text())
    shown = on_a_terminal(width, '-m', 'smelt', 'bench', f'{path}:make_model', *FEW, '--no-energy')
    assert not any('…' in line for line in shown.splitlines() if '│' in line or '┃' in line)
    assert all(word in shown for word in ('median', 'speed-up', 'p99', 'first call', 'memory'))
    assert all(step in shown for step in ('first call: eager', 'first call: smelt', 'interleaved rounds', 'memory: smelt'))


PROGRESS = """
from smelt.instruments import terminal
with terminal.progress('/a/folder' * 20 + '/net.py:make_model', 1.0) as told:
    told(0.5, 'first call: smelt [x] and ' + 'a long list of options ' * 8)
"""


@pytest.mark.parametrize('width', (200, 80, 59, 40, 20))
def test_progress_can_be_read_at_any_width(width):
    pytest.importorskip('rich')
    import re
    shown = on_a_terminal(width, '-c', PROGRESS)
    lines = [re.sub(r'\x1b\[[0-9;?]*[A-Za-z]', '', line) for line in re.split('[\r\n]+', shown)]
    assert all(len(line) <= width for line in lines)
    assert any('make_model' in line for line in lines), lines
    under_way = [line for line in lines if line.startswith('first call: ')]
    assert under_way and all('50%' in line for line in under_way), lines
    assert width < 40 or all('smelt [x]' in line for line in under_way)


def test_sweeps(models, smelt_command):
    found = measured(smelt_command, f'{models}:make_wide', '--batch-sizes', '2,3', '--sweep', 'width=8,16', '--no-memory')
    assert [tuple(row['point'].values()) for row in found['rows'][::2]] == [(2, 8), (2, 16), (3, 8), (3, 16)]
    code, out, _ = smelt_command('bench', f'{models}:make_wide', '--sweep', 'width=8', *FEW)
    assert code == 0 and 'smelt, width 8' in out


def test_table(models, smelt_command):
    code, out, err = smelt_command('bench', f'{models}:make_model', *FEW, '--save', 'first')
    assert code == 0, err
    assert 'median' in out and 'p99' in out and 'speed-up' in out and 'saved as run 1' in out
    assert energy.Rapl().problem == '' or 'energy of the cpu: not available' in out


SLOWER = '''
import torch


def stops(x):
    for _ in range(20):
        x = x + 1
        with open(__file__):
            pass
    return x


def make_model():
    return stops, torch.ones(2)
'''


def test_what_goes_back_to_eager_is_said(tmp_path, smelt_command, monkeypatch):
    from smelt import _native
    path = tmp_path / 'slower_compiled.py'
    path.write_text(SLOWER)
    found = measured(smelt_command, f'{path}:make_model', '--no-memory')
    assert [row['rollbacks'] for row in found['rows']][0] == []
    # Whether it has gone back in so few calls is the clock's business.
    from smelt.instruments import bench
    monkeypatch.setattr(bench._compile, 'native_of', lambda compiled: type('', (), {'_rollbacks': lambda self: ['it is left to Python.']})()
                        if isinstance(compiled, _native.CompiledFunction) else None)
    _, out, _ = smelt_command('bench', f'{path}:make_model', '--no-memory', *FEW)
    assert 'smelt: it is left to Python.' in out and 'eager: it is' not in out


RAISES_LATER = '''
import torch


def function(x):
    if torch.autograd.profiler._is_profiler_enabled:
        raise ValueError('no profiler here')
    return x + 1


def make_model():
    return function, torch.ones(3)
'''


def test_a_call_that_raises_later_is_one_line_too(tmp_path, smelt_command):
    path = tmp_path / 'raises_later.py'
    path.write_text(RAISES_LATER)
    code, out, err = smelt_command('bench', f'{path}:make_model', *FEW)
    assert (code, out, err.count('\n')) == (2, '', 1) and 'raised ValueError: no profiler here' in err and 'should not happen' not in err


def test_where(models, smelt_command):
    code, out, _ = smelt_command('bench', f'{models}:make_model', '--where', '--seconds', '0.1', '--json')
    rows = {row['name']: row for row in json.loads(out)['rows']}
    assert code == 0 and {'(the whole model)', 'body', 'head', 'body.0', 'body.1', 'body.2'} == set(rows)
    assert rows['body']['calls'] == 1 and rows['body']['type'] == 'Sequential'
    saved = [row['saved'] for row in json.loads(out)['rows']]
    assert saved == sorted(saved, reverse=True)
    assert 'submodule' in smelt_command('bench', f'{models}:make_model', '--where', '--seconds', '0.1', '--train')[1]
    code, _, err = smelt_command('bench', f'{models}:chain', '--inputs', 'torch.ones(3)', '--where')
    assert code == 2 and 'looks into the submodules' in err


@pytest.mark.parametrize('name, line', (
    ('body', 'model.body = smelt.compile(model.body)'), ('blocks.2.up', 'model.blocks[2].up = smelt.compile(model.blocks[2].up)'),
    ('parts.a-b', "model.set_submodule('parts.a-b', smelt.compile(model.get_submodule('parts.a-b')))"),
    ('(the whole model)', 'model = smelt.compile(model)')))
def test_what_to_compile_is_a_line_of_python(name, line):
    import torch

    import smelt
    from smelt.instruments.bench_command import _how_to_compile
    assert _how_to_compile(name) == line
    model = torch.nn.ModuleDict({'body': torch.nn.ReLU(), 'blocks': torch.nn.ModuleList(torch.nn.ModuleDict({'up': torch.nn.ReLU()}) for _ in range(3)),
                                 'parts': torch.nn.ModuleDict({'a-b': torch.nn.ReLU()})})
    names = {'model': model, 'smelt': smelt}
    exec(line, names)
    assert smelt._compile.native_of(names['model'].get_submodule('' if name.startswith('(') else name)) is not None


@pytest.mark.parametrize('value, said', ((0.0009996, '1 ms'), (0.00099949, '999 us'), (1.5, '1.5 s'), (2000, '2000 s'), (3e-9, '3 ns'), (4e-10, '0.4 ns'),
                                         (0.9999, '1 s'), (0, '0 ns')))
def test_times_are_read_at_a_glance(value, said):
    assert terminal.seconds(value) == said


def test_numbers_and_bytes_too():
    assert [terminal.count(value) for value in (0, 3, 999.7, 1000, 15_900, 2e6, 3e12)] == ['0', '3', '1 k', '1 k', '15.9 k', '2 M', '3000 G']
    assert [terminal.bytes_(value) for value in (0, 7, 1023, 1 << 10, 1.1 * (1 << 20), 5 << 40)] == ['0 B', '7 B', '1023 B', '1 KiB', '1.1 MiB', '5120 GiB']


@pytest.mark.parametrize('ending', ('png', 'svg', 'html'))
def test_plot(models, smelt_command, tmp_path, ending):
    pytest.importorskip('matplotlib')
    picture = tmp_path / f'out.{ending}'
    code, _, err = smelt_command('bench', f'{models}:make_model', *FEW, '--plot', picture)
    assert code == 0, err
    start = picture.read_bytes()[:100]
    assert start.startswith(b'\x89PNG') if ending == 'png' else b'<' in start


def test_rapl_reads_the_kernels_files(tmp_path):
    zone = tmp_path / 'intel-rapl:0'
    zone.mkdir()
    (tmp_path / 'intel-rapl:0:0').mkdir()  # a part of the package, which the package counts
    (zone / 'energy_uj').write_text('1000000\n')
    (zone / 'max_energy_range_uj').write_text('5000000\n')
    meter = energy.Rapl(str(tmp_path))
    assert meter.problem == ''
    meter.start()
    (zone / 'energy_uj').write_text('3000000\n')
    assert meter.joules() == 2.0
    (zone / 'energy_uj').write_text('500000\n')  # it started from zero again
    assert meter.joules() == 4.5
    assert energy.Rapl(str(tmp_path / 'nothing')).problem


def test_contestants_take_turns(monkeypatch):
    """Each round has all contestants, and the first one changes; times are those of the clock."""
    now, order = [0.0], []

    def call(name, seconds):
        def run():
            order.append(name)
            now[0] += seconds
        return run
    monkeypatch.setattr(rounds, 'clock', lambda: now[0])
    samples = rounds.in_turn({'a': call('a', 1.0), 'b': call('b', 2.0)}, 0, rounds=4)
    assert order[-8:] == ['a', 'b', 'b', 'a'] * 2
    assert samples == {'a': [1.0] * 4, 'b': [2.0] * 4}
    assert rounds.ratio(samples['b'], samples['a']) == (2.0, 2.0, 2.0)


def test_a_device_is_waited_for_in_each_call(monkeypatch):
    """A GPU that computes for 60 us what the host starts in 10: a call alone takes 70, and 60 when the next is started meanwhile."""
    now, busy_until = [0.0], [0.0]

    def call():
        now[0] += 10e-6
        busy_until[0] = max(busy_until[0], now[0]) + 60e-6

    def wait(devices):
        now[0] = max(now[0], busy_until[0])
    monkeypatch.setattr(rounds, 'clock', lambda: now[0])
    monkeypatch.setattr(rounds, 'wait_for', wait)
    samples = rounds.in_turn({'a': call}, 0, ['cuda'], rounds=4)
    assert samples['a'] == pytest.approx([70e-6] * 4)
    assert rounds.back_to_back({'a': call}, ['cuda'])['a'] == pytest.approx(60.5e-6)


def test_statistics():
    values = [float(i) for i in range(1, 101)]
    found = rounds.describe(values)
    assert found['median'] == 50.5 and found['mean'] == 50.5 and math.isclose(found['p95'], 95.05)
    assert math.isclose(found['p99'], 99.01) and 40 <= found['low'] < 50 and 51 < found['high'] <= 61
