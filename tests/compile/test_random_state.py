"""The state of a random generator is read, set and seeded by compiled code: streams go on as in eager."""
import pytest
import torch
from torch import nn

import smelt


def forked(x, seed, generator):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        noise = torch.rand(3)
    return x * noise + torch.rand(3)


def forked_without_seed(x, seed, generator):
    with torch.random.fork_rng(devices=[]):
        noise = torch.rand(3)
    return x * noise + torch.rand(3)


def not_forked(x, seed, generator):
    with torch.random.fork_rng(devices=[], enabled=False):
        noise = torch.rand(3)
    return x * noise + torch.rand(3)


def nested(x, seed, generator):
    with torch.random.fork_rng(devices=[]):
        first = torch.rand(3)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed + 1)
            second = torch.randn(3)
        third = torch.rand(3)
    return x + first * second + third + torch.rand(3)


def seeded(x, seed, generator):
    torch.manual_seed(seed)
    return x + torch.rand(3)


def put_back(x, seed, generator):
    state = torch.get_rng_state()
    first = torch.randn(3)
    torch.set_rng_state(state)
    return x + first - torch.randn(3), state.shape


def of_its_own(x, seed, generator):
    state = generator.get_state()
    first = torch.rand(3, generator=generator)
    generator.set_state(state)
    second = torch.rand(3, generator=generator)
    generator.manual_seed(seed)
    return x + first - second + torch.rand(3, generator=generator) + torch.rand(3)


def state_is_returned(x, seed, generator):
    torch.rand(2)
    return x + torch.rand(3), torch.get_rng_state()


def dropped(x, seed, generator):
    torch.manual_seed(seed)
    return torch.nn.functional.dropout(x.expand(8), 0.5).sum() + torch.rand(1)


def drawn_and_forgotten(x, seed, generator):
    torch.rand(7)
    with torch.random.fork_rng(devices=[]):
        torch.rand(5)
    return x + torch.rand(3)


PROGRAMS = [forked, forked_without_seed, not_forked, nested, seeded, put_back, of_its_own, state_is_returned, dropped,
            drawn_and_forgotten]


def flat(result):
    return [one for one in (result if isinstance(result, tuple) else (result,)) if isinstance(one, torch.Tensor)]


@pytest.mark.parametrize('backend', ['native', 'eager'])
@pytest.mark.parametrize('program', PROGRAMS)
def test_streams_go_on_as_in_eager(program, backend):
    compiled = smelt.compile(program, backend=backend)
    seen = []
    for call in (program, compiled):
        torch.manual_seed(11)
        generator = torch.Generator().manual_seed(5)
        results = []
        for turn, seed in enumerate([3, 3, 7, 2**40, -9, 3]):
            x = torch.full((1 if program is dropped else 3,), float(turn), requires_grad=turn % 2 == 1)
            made = flat(call(x, seed, generator))
            if made[0].requires_grad:
                made[0].sum().backward()
                results.append(x.grad)
            results += [*made, torch.rand(2), torch.rand(2, generator=generator)]
        seen.append(results)
    assert len(seen[0]) == len(seen[1])
    for found, expected in zip(seen[1], seen[0]):
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize('program', PROGRAMS)
def test_it_is_one_graph_for_all_seeds(program):
    compiled = smelt.compile(program, fullgraph=True)
    generator = torch.Generator()
    before = smelt.stats()
    for seed in range(6):
        compiled(torch.ones(1 if program is dropped else 3), seed, generator)
    after = smelt.stats()
    assert after['graphs'] - before['graphs'] == 1
    assert after['recompiles'] == before['recompiles']


def test_another_generator():
    def draw(x):
        return x + torch.rand(2, generator=held[0].manual_seed(4)) + torch.rand(2, generator=held[0])

    compiled = smelt.compile(draw)
    for _ in range(3):
        held = [torch.Generator().manual_seed(1)]
        found, state = compiled(torch.ones(2)), held[0].get_state()
        held = [torch.Generator().manual_seed(1)]
        torch.testing.assert_close(found, draw(torch.ones(2)))
        assert torch.equal(state, held[0].get_state())


def test_a_patched_seed():
    def draw(x):
        torch.manual_seed(3)
        return x + torch.rand(2)

    compiled, original = smelt.compile(draw), torch.manual_seed
    compiled(torch.ones(2))
    try:
        torch.manual_seed = lambda seed: original(seed + 1)
        for _ in range(2):
            torch.testing.assert_close(compiled(torch.ones(2)), draw(torch.ones(2)))
    finally:
        torch.manual_seed = original


def test_an_error_in_a_forked_stream():
    def draw(x, fails):
        try:
            with torch.random.fork_rng(devices=[]):
                noise = torch.rand(3)
                if fails:
                    raise ValueError
        except ValueError:
            noise = torch.zeros(3)
        return x + noise + torch.rand(3)

    compiled = smelt.compile(draw)
    for fails in (False, True, False, True, True):
        torch.manual_seed(1)
        expected, after = draw(torch.ones(3), fails), torch.rand(1)
        torch.manual_seed(1)
        assert torch.equal(compiled(torch.ones(3), fails), expected)
        assert torch.equal(torch.rand(1), after)


def test_a_run_that_is_given_up_has_drawn_nothing():
    """A branch that was guessed comes out otherwise behind the draws."""
    def draw(x, n):
        torch.manual_seed(n)
        noise = torch.rand(3)
        with torch.random.fork_rng(devices=[]):
            noise = noise + torch.rand(3)
        if (x > 0).all():
            return noise + torch.rand(3)
        return noise - torch.rand(3)

    compiled = smelt.compile(draw)
    for turn, sign in enumerate([1, 1, -1, 1, -1, -1, 1]):
        x = torch.tensor([1, sign, 2])
        expected, after = draw(x, turn), torch.rand(1)
        assert torch.equal(compiled(x, turn), expected)
        assert torch.equal(torch.rand(1), after)


def test_the_same_noise_in_each_step_of_training():
    class Noisy(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.steps = nn.Linear(3, 3), 0

        def forward(self, x):
            self.steps += 1
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(self.steps)
                x = x + torch.randn(3)
            return nn.functional.dropout(self.layer(x), 0.3)

    seen = []
    for wrap in (lambda model: model, smelt.compile):
        torch.manual_seed(0)
        model = Noisy()
        call, optimizer = wrap(model), torch.optim.SGD(model.parameters(), 0.1)
        losses = []
        for _ in range(5):
            optimizer.zero_grad()
            loss = call(torch.ones(4, 3)).pow(2).sum()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        seen.append((losses, model.steps, torch.rand(2)))
    assert seen[1][0] == pytest.approx(seen[0][0]) and seen[1][1] == seen[0][1]
    assert torch.equal(seen[1][2], seen[0][2])
