"""Random numbers: equal seeds give equal numbers, in the order of the program, and the same state afterwards."""

import pytest
import torch
import torch.nn.functional as F
from record_check import check, same
from torch.utils.checkpoint import checkpoint

import smelt

DRAWS = {
    "rand": lambda x: torch.rand(4, 6),
    "randn": lambda x: torch.randn(4, 6, dtype=torch.float64),
    "randint": lambda x: torch.randint(0, 9, (4,)),
    "randperm": lambda x: torch.randperm(7),
    "rand_like": lambda x: (torch.rand_like(x), torch.randn_like(x), torch.randint_like(x, 5)),
    "normal": lambda x: (torch.normal(x, 1.0), torch.normal(0.0, x.abs()), torch.normal(0.0, 1.0, (3,)), torch.normal(x, x.abs())),
    "bernoulli": lambda x: (torch.bernoulli(x.sigmoid()), torch.bernoulli(x, 0.3)),
    "multinomial": lambda x: torch.multinomial(x.softmax(-1), 2),
    "poisson": lambda x: torch.poisson(x.abs() * 3),
    "binomial": lambda x: torch.binomial(torch.full((4, 6), 5.0), x.sigmoid()),
    "gamma": lambda x: torch._standard_gamma(x.abs() + 0.5),
    "dropout": lambda x: F.dropout(x, 0.4),
    "feature dropout": lambda x: (F.dropout1d(x[None], 0.4), F.dropout2d(x[None, None], 0.5), F.alpha_dropout(x, 0.4), F.feature_alpha_dropout(x, 0.4)),
    "dropout without effect": lambda x: (F.dropout(x, 0.0), F.dropout(x, 0.5, training=False), F.dropout(x, 1.0), torch.rand(2)),
    "rrelu": lambda x: F.rrelu(x, training=True),
    "gumbel": lambda x: F.gumbel_softmax(x),
    "attention": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None], dropout_p=0.3),
    "distributions": lambda x: torch.distributions.Normal(x, 1.0, validate_args=False).rsample(),
    "fractional pool": lambda x: F.fractional_max_pool2d(x[None, None].expand(1, 1, 4, 6), 2, output_size=2),
}  # fmt: skip

FILLS = {
    "uniform_": lambda t: t.uniform_(-1, 2),
    "normal_": lambda t: t.normal_(1.0, 2.0),
    "bernoulli_": lambda t: t.bernoulli_(0.3),
    "bernoulli_ tensor": lambda t: t.bernoulli_(torch.full((4, 6), 0.7)),
    "exponential_": lambda t: t.exponential_(1.5),
    "cauchy_": lambda t: t.cauchy_(),
    "log_normal_": lambda t: t.log_normal_(),
    "geometric_": lambda t: t.geometric_(0.4),
    "random_": lambda t: t.random_(0, 9),
    "dropout_": lambda t: F.dropout(t, 0.5, inplace=True),
    "init": lambda t: torch.nn.init.xavier_uniform_(t),
}


@pytest.mark.parametrize("name", DRAWS)
def test_draw(name):
    check(DRAWS[name], torch.randn(4, 6))


@pytest.mark.parametrize("name", FILLS)
def test_fill_input_and_local(name):
    def fn(x):
        local = torch.zeros(4, 6)
        FILLS[name](local)
        FILLS[name](x)
        return local

    check(fn, torch.randn(4, 6))


def test_order_is_kept_and_unused_draws_count():
    def fn(x):
        a = torch.rand(3)
        torch.rand(100)  # nobody reads it; the stream moves on all the same
        b = F.dropout(x, 0.5)
        c = torch.randperm(5)
        return c, b, a

    check(fn, torch.randn(3))


def test_equal_draws_stay_two():
    check(lambda: (torch.rand(3), torch.rand(3)))


def test_dropout_in_backward():
    def fn(model, x):
        loss = model(x).pow(2).sum()
        loss.backward()
        model.zero_grad()
        model(x).sum().backward()

    model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Dropout(0.5), torch.nn.Linear(5, 2))
    graph = smelt.record(fn, model, torch.randn(4, 6))
    del graph
    check(lambda m, x: torch.autograd.grad(m(x).pow(2).sum(), list(m.parameters())), model, torch.randn(4, 6))


# -- generators


def test_generator_of_the_caller():
    generator, other = torch.Generator().manual_seed(3), torch.Generator().manual_seed(3)

    def fn(x, generator):
        return torch.rand(3, generator=generator), x.clone().normal_(generator=generator), torch.randperm(5, generator=generator)

    x = torch.zeros(4)
    graph = smelt.record(fn, x, generator)
    same(generator.get_state(), other.get_state())
    for _ in range(3):
        same(graph.run(x, generator), fn(x, other))
        same(generator.get_state(), other.get_state())


def test_generator_from_the_closure_and_default_together():
    generator, other = torch.Generator().manual_seed(3), torch.Generator().manual_seed(3)
    graph = smelt.record(lambda: (torch.rand(2, generator=generator), torch.rand(2), torch.rand(2, generator=generator)))
    torch.manual_seed(5)
    actual = graph.run()
    torch.manual_seed(5)
    same(actual, (torch.rand(2, generator=other), torch.rand(2), torch.rand(2, generator=other)))


def test_generator_made_inside_is_refused():
    def fn():
        generator = torch.Generator().manual_seed(1)
        return torch.rand(3, generator=generator)

    with pytest.raises(smelt.RecordError, match="Generator.*inside"):
        smelt.record(fn)


# -- seeds and states in the region


def test_manual_seed_inside():
    def fn(x):
        a = torch.rand(2)
        torch.manual_seed(11)
        b = torch.rand(2)
        torch.manual_seed(11)
        return a, b, torch.rand(2)

    check(fn, torch.zeros(1))


def test_manual_seed_as_the_last_line():
    def fn(x):
        y = F.dropout(x, 0.5)
        torch.manual_seed(5)
        return y

    check(fn, torch.ones(8))


def test_state_saved_and_restored():
    def fn(x):
        a = torch.rand(2)
        state = torch.get_rng_state()
        b = torch.rand(2)
        torch.set_rng_state(state)
        c = torch.rand(2)
        d = torch.rand(2)
        torch.set_rng_state(state)
        return a, b, c, d

    check(fn, torch.zeros(1))


def test_state_from_before_the_region():
    state = torch.Generator().manual_seed(99).get_state()

    def fn(x):
        torch.set_rng_state(state)
        return torch.rand(3)

    check(fn, torch.zeros(1))


def test_fork_rng():
    def fn(x):
        a = torch.rand(2)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(3)
            b = torch.rand(2)
        return a, b, torch.rand(2)

    check(fn, torch.zeros(1))


def test_state_of_a_generator_restored():
    generator, other = torch.Generator().manual_seed(3), torch.Generator().manual_seed(3)

    def fn(generator):
        state = generator.get_state()
        a = torch.rand(2, generator=generator)
        generator.set_state(state)
        b = torch.rand(2, generator=generator)
        generator.manual_seed(8)
        return a, b, torch.rand(2, generator=generator)

    graph = smelt.record(fn, generator)
    for _ in range(2):
        same(graph.run(generator), fn(other))
        same(generator.get_state(), other.get_state())


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpoint_with_dropout(use_reentrant):
    def block(x):
        return F.dropout(F.dropout(x.sin(), 0.5) * 2, 0.3)

    def fn(x):
        y = checkpoint(block, F.dropout(x, 0.2), use_reentrant=use_reentrant)
        y = checkpoint(block, y, use_reentrant=use_reentrant)
        F.dropout(y, 0.5).sum().backward()
        return y.detach()

    # The gradient is added to what is there at every run: both start from zeros.
    x = torch.randn(50, requires_grad=True)
    x.grad = torch.zeros(50)
    check(fn, x)


def test_checkpoint_of_a_module_without_preserved_state():
    def fn(model, x):
        y = checkpoint(model, x, use_reentrant=False, preserve_rng_state=False)
        return torch.autograd.grad(y.sum(), list(model.parameters()))

    check(fn, torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Dropout(0.5)), torch.randn(4, 6))


def test_seed_of_initial_seed_is_not_lost():
    torch.manual_seed(123)
    smelt.record(lambda x: F.dropout(x, 0.5), torch.ones(3))
    assert torch.initial_seed() == 123


def test_seed_computed_from_the_seed_is_refused():
    """Inside, the generator's seed is a token of the recorder: what is computed from it must not become a seed."""

    def fn():
        torch.manual_seed(torch.initial_seed() + 1)
        return torch.rand(3)

    with pytest.raises(smelt.RecordError, match="initial_seed"):
        smelt.record(fn)
