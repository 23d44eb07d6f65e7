"""retain_grad() on what a compiled function made: each call retains, not the traced one alone."""

import pytest
import torch

import smelt


class Block(torch.nn.Module):
    """Keeps a hidden activation for its gradient, as saliency maps do."""

    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(4, 8), torch.nn.Linear(8, 2)
        self.hidden = None

    def forward(self, x):
        self.hidden = self.first(x).relu()
        self.hidden.retain_grad()
        return self.last(self.hidden).sum()


def with_intermediate(x):
    y = x * 2
    y.retain_grad()
    return y, y.sin().sum()


def with_result(x):
    y = (x * 2).sin()
    y.retain_grad()
    return y, y.sum()


def with_several(x):
    a = x * 2
    b = a.exp()
    c = a + b
    for t in (a, c):
        t.retain_grad()
    return a, b, c, (b * c).sum()


def with_view(x):
    y = x * 3
    v = y[1:]
    v.retain_grad()
    return y, v, (v * v).sum() + y.sum()


def with_base(x):
    y = x * 3
    y.retain_grad()
    v = y.view(2, 2)
    return y, v, (v * v).sum()


def behind_a_change(x):
    y = x * 2
    y.retain_grad()
    y.mul_(3)
    return y, y.sin().sum()


def before_a_change(x):
    y = x * 2
    y.mul_(3)
    y.retain_grad()
    return y, y.sin().sum()


def around_a_break(x):
    y = x * 2
    y.retain_grad()
    if y.sum().item() > 1e9:
        return y, y.sum()
    return y, (y * y.retains_grad).sin().sum()


def behind_a_break(x):
    y = x * 2
    if y.sum().item() > 1e9:
        return y, y.sum()
    y.retain_grad()
    return y, y.sin().sum()


def twice(x):
    y = x * 2
    y.retain_grad()
    y.retain_grad()
    return y, y.cos().sum()


def in_a_container(x):
    kept = {}
    kept["y"] = x.tanh()
    kept["y"].retain_grad()
    return kept, kept["y"].prod()


def asks_itself(x):
    y = x * 2
    before = y.retains_grad
    y.retain_grad()
    return y, before, y.retains_grad, y.sum()


def of_a_leaf(x):
    x.retain_grad()
    return x, (x * 2).sum()


def not_returned(x):
    y = x * 2
    y.retain_grad()
    return (y * y).sum()


FUNCTIONS = [with_intermediate, with_result, with_several, with_view, with_base, behind_a_change, before_a_change,
             around_a_break, behind_a_break, twice, in_a_container, asks_itself, of_a_leaf, not_returned]  # fmt: skip


def outcome(function):
    x = torch.tensor([0.1, 0.2, 0.3, 0.4], requires_grad=True)
    found = function(x)
    found = found if isinstance(found, tuple) else (found,)
    found[-1].backward()
    leaves = torch.utils._pytree.tree_leaves(found)
    facts = []
    for leaf in leaves:
        if not isinstance(leaf, torch.Tensor):
            facts.append(leaf)
            continue
        grad = leaf.grad if leaf.is_leaf or leaf.retains_grad else None
        facts.append((leaf.retains_grad, leaf.is_leaf, leaf.detach().clone(), grad))
    return facts, x.grad


def assert_same(actual, expected):
    assert len(actual[0]) == len(expected[0])
    for mine, theirs in zip(actual[0], expected[0]):
        if not isinstance(theirs, tuple):
            assert mine == theirs
            continue
        assert mine[:2] == theirs[:2]
        torch.testing.assert_close(mine[2], theirs[2])
        assert (mine[3] is None) == (theirs[3] is None)
        if theirs[3] is not None:
            torch.testing.assert_close(mine[3], theirs[3])
    torch.testing.assert_close(actual[1], expected[1])


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
@pytest.mark.parametrize("backend", ("native", "interpret", "eager"))
def test_each_call_retains(function, backend):
    compiled = smelt.compile(function, backend=backend)
    for _ in range(4):
        assert_same(outcome(compiled), outcome(function))


def test_a_model_that_keeps_an_activation():
    torch.manual_seed(0)
    model = Block()
    compiled = smelt.compile(model)
    for turn in range(4):
        x = torch.full((3, 4), 0.5 + turn)
        grads = []
        for each in (model, compiled):
            model.zero_grad()
            each(x).backward()
            assert model.hidden.retains_grad
            grads.append((model.hidden.grad.clone(), model.first.weight.grad.clone()))
        torch.testing.assert_close(grads[0], grads[1])


@pytest.mark.parametrize("returned", (True, False))
def test_in_a_whole_step(returned):
    torch.manual_seed(0)
    weights = torch.randn(4, requires_grad=True)

    def step(x):
        weights.grad = None
        hidden = x * weights
        hidden.retain_grad()
        loss = hidden.square().sum()
        loss.backward()
        seen = hidden.grad * 2
        return (seen, hidden) if returned else (seen, None)

    compiled = smelt.compile(step)
    for turn in range(4):
        x = torch.arange(4.0) + turn
        seen, hidden = step(x)
        expected = seen.clone(), weights.grad.clone()
        found, kept = compiled(x)
        torch.testing.assert_close((found, weights.grad), expected)
        if returned:
            assert kept.retains_grad
            torch.testing.assert_close(kept.grad, hidden.grad)
