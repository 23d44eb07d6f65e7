"""Calls are timed compiled and as plain Python, where something speaks for doing so. What does not pay is left to Python."""
import random

import pytest
import torch
from torch import nn

import smelt

from fake_clock import clock

MS = 1_000_000


class Program:
    """A function with a break, whose calls take as long as the test says: `compiled` or `plain` milliseconds."""

    def __init__(self, time, compiled, plain, **options):
        self.time, self.compiled_ms, self.plain_ms = time, compiled, plain
        self.ways = []

        @smelt.disable
        def work():
            was_compiled = smelt.stats()['frames'] > self.frames
            self.ways.append('compiled' if was_compiled else 'plain')
            time.time += MS * (self.compiled_ms if was_compiled else self.plain_ms)

        def function(x):
            x = x * 2
            work()
            return torch.tanh(x) + 1

        self.function, self.compiled = function, smelt.compile(function, **options)

    def call(self, x=torch.arange(3.0)):
        self.frames = smelt.stats()['frames']
        return self.compiled(x)

    def calls(self, count):
        """How each of them was run."""
        del self.ways[:]
        for _ in range(count):
            torch.testing.assert_close(self.call(), torch.tanh(torch.arange(3.0) * 2) + 1)
        return list(self.ways)

    def report(self):
        self.frames = smelt.stats()['frames']
        return smelt.explain(self.compiled)(torch.arange(3.0))


@pytest.mark.parametrize('compiled, plain', [(2.0, 1.0), (1.5, 1.0), (1.2, 1.0), (1.05, 1.0), (1.005, 1.0)])
def test_what_is_slower_is_rolled_back(compiled, plain):
    with clock() as time:
        program = Program(time, compiled, plain)
        assert 'plain' in program.calls(120)
        assert program.calls(50) == ['plain'] * 50
        [sentence] = program.report().rollbacks
    assert 'left to Python' in sentence and "'rollback': False" in sentence
    assert f'{compiled:.3g} ms compiled and {plain:.3g} ms' in sentence


@pytest.mark.parametrize('compiled, plain', [(0.2, 1.0), (0.8, 1.0), (0.93, 1.0), (0.99, 1.0)])
def test_what_pays_stays(compiled, plain):
    with clock() as time:
        program = Program(time, compiled, plain)
        tried = program.calls(120)
        assert tried.count('plain') in (6, 12, 24, 48)
        assert program.calls(200) == ['compiled'] * 200
        assert program.report().rollbacks == []


def calls_of_random_lengths(program, seed, compiled, plain):
    draw = random.Random(seed)
    for _ in range(160):
        length = draw.lognormvariate(0, 1)
        program.compiled_ms, program.plain_ms = compiled * length, plain * length
        program.call()


@pytest.mark.parametrize('seed', range(12))
def test_calls_of_random_lengths_do_not_make_it_look_slow(seed):
    with clock() as time:
        program = Program(time, 1.0, 1.0)
        calls_of_random_lengths(program, seed, compiled=0.8, plain=1.0)
        assert program.report().rollbacks == []


@pytest.mark.parametrize('seed', range(4))
def test_what_is_slow_for_random_lengths_is_rolled_back(seed):
    with clock() as time:
        program = Program(time, 1.0, 1.0)
        calls_of_random_lengths(program, seed, compiled=2.0, plain=1.0)
        assert len(program.report().rollbacks) == 1


def test_first_calls_are_compiled():
    with clock() as time:
        assert Program(time, 9.0, 1.0).calls(16) == ['compiled'] * 16


def test_a_wide_gap_is_seen_early():
    with clock() as time:
        program = Program(time, 3.0, 1.0)
        assert program.calls(32)[-1] == 'plain' and program.calls(20) == ['plain'] * 20


@pytest.mark.parametrize('keywords', [{'options': {'rollback': False}}, {'backend': 'eager'}])
def test_switched_off(keywords):
    with clock() as time:
        assert Program(time, 9.0, 1.0, **keywords).calls(100) == ['compiled'] * 100


def test_none_with_fullgraph():
    def function(x):
        return torch.tanh(x) * x.shape[0]

    compiled = smelt.compile(function, fullgraph=True)
    with clock(tick=MS):
        for i in range(60):
            torch.testing.assert_close(compiled(torch.ones(i % 4 + 1)), function(torch.ones(i % 4 + 1)))
    assert smelt.explain(compiled)(torch.ones(2)).rollbacks == []


def test_one_graph_is_not_watched():
    def function(x):
        return torch.tanh(x) * 2

    compiled = smelt.compile(function)
    x = torch.arange(3.0)
    with clock(tick=MS):
        before = smelt.stats()['frames']
        for _ in range(100):
            compiled(x)
    assert smelt.stats()['frames'] - before == 100


def test_options_are_checked():
    with pytest.raises(smelt.OptionError, match="'rollback' is True or False"):
        smelt.compile(lambda x: x, options={'rollback': 1})


def test_reset_tries_again():
    with clock() as time:
        program = Program(time, 3.0, 1.0)
        program.calls(60)
        smelt.reset()
        assert program.calls(5) == ['compiled'] * 5


class Net(nn.Module):
    """With a backward pass whose time depends on how the forward was run."""

    def __init__(self, time, backward_ms):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.time, self.backward_ms, self.plain_calls, self.frames = time, backward_ms, 0, 0

    def forward(self, x):
        y = self.linear(x)
        self.note()
        return {'y': [torch.tanh(y)], 'text': 'text'}

    @smelt.disable
    def note(self):
        self.was_compiled = smelt.stats()['frames'] > self.frames
        self.plain_calls += not self.was_compiled
        self.time.time += MS


@pytest.mark.parametrize('backward_ms, stays', [({True: 5, False: 1}, False), ({True: 1, False: 5}, True)])
def test_backward_passes_count(backward_ms, stays):
    with clock() as time:
        net = Net(time, backward_ms)
        compiled = smelt.compile(net)

        def pass_time(gradient):
            time.time += MS * backward_ms[net.was_compiled]

        def step(x):
            net.frames = smelt.stats()['frames']
            x = x.clone().requires_grad_()
            x.register_hook(pass_time)
            compiled(x)['y'][0].sum().backward()

        for _ in range(60):
            step(torch.ones(2, 4))
        before = net.plain_calls
        for _ in range(20):
            step(torch.ones(2, 4))
        assert net.plain_calls - before == (0 if stays else 20)
        with torch.no_grad():  # judged for itself
            net.frames = smelt.stats()['frames']
            compiled(torch.ones(2, 4))
            assert net.was_compiled


def test_gradients_are_right_while_calls_are_timed():
    with clock() as time:
        net = Net(time, {})
        compiled = smelt.compile(net)
        x = torch.randn(2, 4)
        net(x)['y'][0].sum().backward()
        wanted = [p.grad.clone() for p in net.parameters()]
        for _ in range(60):
            net.frames = smelt.stats()['frames']
            net.zero_grad()
            compiled(x)['y'][0].sum().backward()
            for p, gradient in zip(net.parameters(), wanted):
                torch.testing.assert_close(p.grad, gradient)
    assert net.plain_calls > 1
