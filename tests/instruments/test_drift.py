"""smelt bench --check: fails on a slowdown of 20 %, passes on noise. Times come from a clock that the target moves."""
import gc
import json
import random

import pytest

from smelt.instruments import drift, rounds

SYNTHETIC = '''
import torch


def work(x):
    return x + 1


def make_model():
    return work, torch.ones(3)
'''
RUNS = 20


class Machine:
    """A clock and the calls that move it. The machine is faster on some days, calls differ by some percent, and one in
    fifty is ten times as long."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.now = 0.0
        self.slowdown = 1.0
        self.new_day()

    def new_day(self):
        self.day = self.random.lognormvariate(0, 0.2)
        self.own = {name: self.random.lognormvariate(0, 0.01) for name in ('eager', 'smelt')}

    def call(self, name):
        took = {'eager': 4e-3, 'smelt': 2e-3 * self.slowdown}[name] * self.day * self.own[name]
        took *= self.random.lognormvariate(0, 0.05) * (10 if self.random.random() < 0.02 else 1)
        self.now += took


@pytest.fixture
def machine(monkeypatch, request):
    from smelt.instruments import contestants
    machine = Machine(request.node.name)
    monkeypatch.setattr(rounds, 'clock', lambda: machine.now)
    monkeypatch.setattr(gc, 'collect', lambda *arguments: 0)  # which would take most of the time
    monkeypatch.setattr(contestants, 'make_step', lambda case, who, kind: lambda: machine.call(who.label))
    from smelt.instruments import bench
    monkeypatch.setattr(bench, 'make_step', contestants.make_step)
    return machine


@pytest.fixture
def bench(tmp_path, smelt_command):
    path = tmp_path / 'synthetic.py'
    path.write_text(SYNTHETIC)
    return lambda *more: smelt_command('bench', f'{path}:make_model', '--rounds', 40, '--no-memory', '--no-energy', *more)


@pytest.mark.parametrize('number', range(RUNS))
@pytest.mark.parametrize('slowdown', (1.0, 1.2))
def test_a_slowdown_is_told_from_noise(machine, bench, number, slowdown):
    assert bench('--save', 'release')[0] == 0
    machine.new_day()
    machine.slowdown = slowdown
    code, out, err = bench('--check', 'release')
    assert code == (1 if slowdown > 1 else 0), out + err
    assert ('SLOWER smelt' in out) == (slowdown > 1)


@pytest.mark.parametrize('number', range(RUNS))
@pytest.mark.parametrize('slowdown', (1.0, 1.2))
def test_with_a_history(machine, bench, number, slowdown):
    for _ in range(10):
        machine.new_day()
        assert bench('--save')[0] == 0
    machine.new_day()
    machine.slowdown = slowdown
    code, out, err = bench('--check', '1', '--json')
    assert code == (1 if slowdown > 1 else 0), out + err
    assert json.loads(out)['check'][0]['slower'] == (slowdown > 1)


def test_since_when(machine, bench):
    for day in range(6):
        machine.new_day()
        machine.slowdown = 1.0 if day < 3 else 1.3
        bench('--save')
    code, out, _ = bench('--check', '1')
    assert code == 1 and '(run 4, smelt ' in out and 'limit' in out


def test_absolute_times_count_the_machine(machine, bench):
    machine.day = 1.0
    bench('--save')
    machine.day = 1.5
    assert bench('--check', 'last')[0] == 0
    code, out, _ = bench('--check', 'last', '--absolute')
    assert code == 1 and 'SLOWER eager' in out and 'SLOWER smelt' in out


def test_a_baseline_in_a_file(machine, bench, tmp_path):
    path = tmp_path / 'baseline.json'
    path.write_text(bench('--json')[1])
    assert bench('--check', path)[0] == 0
    machine.slowdown = 1.3
    assert bench('--check', path)[0] == 1
    assert bench('--check', path, '--tolerance', '0.5')[0] == 0


def test_a_row_that_moves_from_run_to_run_has_a_wider_limit():
    def run(eager, smelt):
        rows = [{'label': 'eager', 'point': {}, 'median': eager, 'low': eager, 'high': eager},
                {'label': 'smelt', 'point': {}, 'median': smelt, 'low': smelt, 'high': smelt}]
        return {'rows': rows, 'time': 'then', 'id': 1, 'versions': {'smelt': '1', 'torch': '2'}}
    restless = [run(1.0, value) for value in (0.5, 0.6, 0.45, 0.55, 0.62) * 2]
    steady = [run(1.0, value) for value in (0.5, 0.501, 0.499, 0.5, 0.5) * 2]
    assert not drift.compare(run(1.0, 0.6), run(1.0, 0.5), restless)[0]['slower']
    assert drift.compare(run(1.0, 0.6), run(1.0, 0.5), steady)[0]['slower']
