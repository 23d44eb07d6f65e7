"""One budget for all frames that a compiled function runs: what changes in each call is not compiled over and over."""
import warnings

import pytest
import torch
from torch import nn

import smelt

from fake_clock import clock

SECOND = 1_000_000_000


class Block(nn.Module):
    def __init__(self, breaks):
        super().__init__()
        self.norm, self.linear, self.breaks = nn.LayerNorm(4), nn.Linear(4, 4), breaks

    def forward(self, x):
        y = self.linear(self.norm(x))
        if self.breaks:
            print(end='')
        return torch.relu(y) + x


def nested(depth, breaks):
    block = Block(breaks)
    for _ in range(depth):
        block = nn.Sequential(block)
    return block


def run(model, compiled, lengths, train):
    for length in lengths:
        x = torch.randn(length, 4)
        if not train:
            with torch.no_grad():
                torch.testing.assert_close(compiled(x), model(x))
            continue
        gradients = []
        for callee in (compiled, model):
            model.zero_grad()
            callee(x).sum().backward()
            gradients.append([p.grad.clone() for p in model.parameters()])
        for found, wanted in zip(*gradients, strict=True):
            torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize('train', [False, True], ids=['eval', 'train'])
@pytest.mark.parametrize('depth', [0, 1, 3])
@pytest.mark.parametrize('breaks', [False, True], ids=['whole', 'broken'])
def test_many_sizes_do_not_cascade(depth, breaks, train):
    """A variant costs a second by this clock, and so does the first compilation of each piece."""
    model = nested(depth, breaks)
    compiled = smelt.compile(model)
    with clock(tick=SECOND), warnings.catch_warnings():
        warnings.simplefilter('ignore')
        first = smelt.stats()
        run(model, compiled, [2, 2, 2], train)
        pieces = smelt.stats()['segments'] - first['segments']
        before = smelt.stats()
        run(model, compiled, [3 + i % 27 for i in range(80)], train)
        after = smelt.stats()
        assert after['segments'] - before['segments'] <= 3 * pieces + 4
        # What has been compiled is used.
        before = smelt.stats()['cache_hits']
        run(model, compiled, [2, 3], train)
        assert smelt.stats()['cache_hits'] > before


def test_a_few_sizes_are_all_compiled():
    model = nested(1, False)
    compiled = smelt.compile(model)
    run(model, compiled, [2, 3, 4], train=False)
    before = smelt.stats()
    run(model, compiled, [4, 2, 3, 4, 2], train=False)
    after = smelt.stats()
    assert after['segments'] == before['segments'] and after['cache_hits'] - before['cache_hits'] == 5


def test_variants_that_nobody_uses_again_are_few():
    def function(x):
        return torch.tanh(x) * x.shape[0]

    compiled = smelt.compile(function)
    with warnings.catch_warnings():
        warnings.simplefilter('error')  # nor is a limit hit
        before = smelt.stats()['segments']
        for size in range(2, 40):
            torch.testing.assert_close(compiled(torch.ones(size)), function(torch.ones(size)))
    assert smelt.stats()['segments'] - before <= 5


@pytest.mark.parametrize('nested', [False, True], ids=['alone', 'nested'])
def test_guesses_that_hold_are_not_given_up_for_other_sizes(nested):
    """Without them the graph would end in front of the branch, and each piece would have variants of its own."""
    def masked(x, mask):
        y = torch.tanh(x) * x.shape[0]
        if mask.all():
            return y + 1
        return y * mask

    def function(x, mask):
        return masked(x * 2, mask) - 1 if nested else masked(x, mask)

    compiled = smelt.compile(function, options={'recompile_limit': 6}, dynamic=False)
    with pytest.warns(RuntimeWarning, match='was compiled 6 times') as warned:
        for size in range(2, 30):
            x, mask = torch.ones(size), torch.ones(size, dtype=torch.bool)
            torch.testing.assert_close(compiled(x, mask), function(x, mask))
    assert len(warned) == 1
    assert smelt.stats()['segments'] == 6 and smelt.stats()['graph_breaks'] == 0


def test_variants_that_are_refused_are_in_the_report():
    def function(x):
        return torch.tanh(x) * x.shape[0]

    compiled = smelt.compile(function, dynamic=False)
    for size in range(2, 20):
        compiled(torch.ones(size))
    [sentence] = [text for text in smelt.explain(compiled)(torch.ones(2)).rollbacks if text.startswith('no more variants')]
    assert 'left to Python' in sentence and 'x: size at dimension 0 is' in sentence and 'recompile_limit' in sentence


def test_a_limit_that_is_given_is_used_up():
    def function(x):
        return torch.tanh(x) * x.shape[0]

    compiled = smelt.compile(function, options={'recompile_limit': 12}, dynamic=False)
    with clock(tick=SECOND), pytest.warns(RuntimeWarning, match='was compiled 12 times'):
        before = smelt.stats()['segments']
        for size in range(2, 30):
            torch.testing.assert_close(compiled(torch.ones(size)), function(torch.ones(size)))
    assert smelt.stats()['segments'] - before == 12


def test_what_is_asked_for_ahead_is_compiled_whatever_it_costs():
    compiled = smelt.compile(lambda x: torch.tanh(x) * x.shape[0], dynamic=False)
    sizes = range(2, 8)
    with clock(tick=SECOND), warnings.catch_warnings():
        warnings.simplefilter('error')
        before = smelt.stats()
        done = smelt.warmup(compiled, [torch.ones(size) for size in sizes])
        after = smelt.stats()
        assert done.not_compiled == [] and done.segments == after['segments'] - before['segments'] == len(sizes)
        assert after['kernels'] - before['kernels'] >= len(sizes)  # none is left for later calls
        with smelt.stance('fail_on_recompile'):
            for size in sizes:
                torch.testing.assert_close(compiled(torch.ones(size)), torch.tanh(torch.ones(size)) * size)


def test_training_and_evaluation_are_both_compiled():
    model = nn.Sequential(*(nested(0, True) for _ in range(4)), nn.Dropout(0.0))
    compiled = smelt.compile(model)
    with clock(tick=SECOND):
        for training in (True, False):
            model.train(training)
            run(model, compiled, [2] * 4, train=training)
            before = smelt.stats()
            run(model, compiled, [2] * 2, train=training)
            after = smelt.stats()
            assert after['segments'] == before['segments'] and after['cache_hits'] > before['cache_hits']


def test_what_is_earned_can_be_spent():
    """Calls that are measured to be faster pay for further variants."""
    with clock() as time:
        frames = 0

        @smelt.disable
        def work():
            time.time += SECOND * (1 if smelt.stats()['frames'] > frames else 3)

        def function(x):
            y = x * 2
            work()
            return torch.tanh(y) * x.shape[0]

        compiled = smelt.compile(function, dynamic=False)
        sizes = [2, 3]
        for i in range(60):
            frames = smelt.stats()['frames']
            compiled(torch.ones(sizes[i % 2]))
        time.tick = SECOND  # compiling costs something from now on
        before = smelt.stats()['segments']
        for i in range(60):
            frames = smelt.stats()['frames']
            compiled(torch.ones(4 + i % 2))
        assert smelt.stats()['segments'] - before == 4  # two pieces for each of two sizes


def kernels_of(compiled, size):
    """That one more call makes."""
    before = smelt.stats()['kernels']
    x = torch.ones(size)
    torch.testing.assert_close(compiled(x), torch.tanh(x) * size)
    return smelt.stats()['kernels'] - before


def test_a_variant_gets_kernels_when_it_has_run_for_long():
    compiled = smelt.compile(lambda x: torch.tanh(x) * x.shape[0], dynamic=False)
    with clock(tick=20 * SECOND) as time:
        assert kernels_of(compiled, 2) > 0
        assert kernels_of(compiled, 2) == 0  # now there is code, and what it costs is known
        assert kernels_of(compiled, 3) == 0
        time.tick = 0
        assert not any(kernels_of(compiled, 3) for _ in range(50))  # runs that take no time
        time.tick = SECOND
        made = [kernels_of(compiled, 3) for _ in range(200)]  # four times a tick for the trace and one for the code
        assert not any(made[:16]) and len([one for one in made if one > 0]) == 1


def test_a_variant_gets_kernels_at_once_where_they_cost_little():
    compiled = smelt.compile(lambda x: torch.tanh(x) * x.shape[0], dynamic=False)
    with clock(tick=SECOND) as time:
        assert kernels_of(compiled, 2) > 0
        time.time += 1000 * SECOND
        assert kernels_of(compiled, 3) > 0


def test_variants_for_other_reasons_get_kernels_at_once():
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Dropout(0.5))
    compiled = smelt.compile(model)
    with clock(tick=SECOND), torch.no_grad():
        for training in (True, False):
            model.train(training)
            before = smelt.stats()['kernels']
            compiled(torch.ones(2, 4))
            assert smelt.stats()['kernels'] > before
