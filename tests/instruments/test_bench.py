"""smelt bench on models of users: what is measured, and what is printed."""
import json
import math

import pytest

from smelt.instruments import energy, rounds

FEW = ('--rounds', '10')


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
        (label, {'batch_size': size}) for size in (1, 4) for label in ('eager', 'smelt', 'smelt eager')]


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


def test_statistics():
    values = [float(i) for i in range(1, 101)]
    found = rounds.describe(values)
    assert found['median'] == 50.5 and found['mean'] == 50.5 and math.isclose(found['p95'], 95.05)
    assert math.isclose(found['p99'], 99.01) and 40 <= found['low'] < 50 and 51 < found['high'] <= 61
