"""torch.distributions in a compiled step, with the checks of their arguments: guesses that the program tests, not breaks."""
import pytest
import torch
from test_custom_functions import assert_one_graph
from test_step import assert_same, batch, check, descend, make_model, state
from torch.distributions import Categorical, Normal, kl_divergence
from torch.nn import functional as F

import smelt


def step_of(make_loss):
    def make_step(model):
        def step(x, y):
            for p in model.parameters():
                p.grad = None
            loss = make_loss(model, x, y)
            loss.backward()
            descend(model)
            return loss.detach()
        return step
    return make_step


def vae(model, x, y):
    mean, log_variance = model(x).chunk(2, 1)
    posterior = Normal(mean, (0.5 * log_variance).exp())
    prior = Normal(torch.zeros_like(mean), torch.ones_like(mean))
    noise = 0.0 * posterior.rsample()
    return (mean + noise).square().mean() + kl_divergence(posterior, prior).sum(1).mean()


def policy(model, x, y):
    choice = Categorical(logits=model(x))
    return -(choice.log_prob(y) * (y - 1.5)).mean() - 0.01 * choice.entropy().mean()


def likelihood(model, x, y):
    return -Normal(model(x), 1.0).log_prob(F.one_hot(y, 4).float()).mean()


@pytest.mark.parametrize('loss', [vae, policy, likelihood])
def test_distributions_are_part_of_the_graph(loss):
    assert_one_graph(check(step_of(loss)))


@pytest.mark.parametrize('kind', [vae, policy])
def test_samples_are_those_of_eager(kind):
    def make_step(model):
        def step(x, y):
            for p in model.parameters():
                p.grad = None
            out = model(x)
            if kind is vae:
                mean, log_variance = out.chunk(2, 1)
                loss = Normal(mean, (0.5 * log_variance).exp()).rsample().square().mean()
            else:
                choice = Categorical(logits=out)
                action = choice.sample()
                loss = -(choice.log_prob(action) * (action == y)).mean()
            loss.backward()
            descend(model)
            return loss.detach()
        return step
    plain, compiled = make_model(), make_model()
    expected, step = make_step(plain), smelt.compile(make_step(compiled))
    for i in range(5):
        losses = []
        for function in (expected, step):
            torch.manual_seed(i)
            losses.append((function(*batch(i)), torch.rand(())))
        assert_same(losses[1], losses[0])
        assert_same(state(compiled), state(plain))
    assert smelt.explain(step)(*batch(0)).break_count == 0


def test_an_argument_that_is_not_valid():
    function = smelt.compile(lambda scale: Normal(torch.zeros(3), scale, validate_args=True).log_prob(torch.ones(3)))
    for _ in range(3):
        torch.testing.assert_close(function(torch.ones(3)), Normal(torch.zeros(3), torch.ones(3)).log_prob(torch.ones(3)))
    with pytest.raises(ValueError, match='to satisfy the constraint'):
        function(torch.tensor([1.0, -1.0, 1.0]))
    torch.testing.assert_close(function(torch.ones(3)), Normal(torch.zeros(3), torch.ones(3)).log_prob(torch.ones(3)))
