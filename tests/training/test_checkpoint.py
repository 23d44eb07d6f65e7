"""torch.utils.checkpoint in compiled code: its results, gradients and effects, and what is kept for the backward."""

import contextvars
import copy

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

import smelt


class Block(nn.Module):
    def __init__(self, width=16, dropout=0.0):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(dropout), nn.Linear(4 * width, width))

    def forward(self, x):
        return x + self.layers(x)


class Model(nn.Module):
    def __init__(self, depth=3, dropout=0.0, **options):
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.blocks = nn.ModuleList(Block(dropout=dropout) for _ in range(depth))
        self.last = nn.Linear(16, 4)
        self.options = options

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = checkpoint(block, x, **self.options)
        return self.last(x)


def assert_trains_like_eager(model, steps=4):
    eager, compiled_model = model, copy.deepcopy(model)
    compiled = smelt.compile(compiled_model)
    for step in range(steps):
        torch.manual_seed(step)
        x = torch.randn(5, 8)
        losses = []
        for each, run in ((eager, eager), (compiled_model, compiled)):
            torch.manual_seed(100 + step)
            loss = run(x).pow(2).mean()
            each.zero_grad()
            loss.backward()
            losses.append((loss.detach(), torch.rand(2)))
        torch.testing.assert_close(losses[1], losses[0])
        for ours, theirs in zip(compiled_model.parameters(), eager.parameters()):
            torch.testing.assert_close(ours.grad, theirs.grad)


OPTIONS = {
    "plain": {"use_reentrant": False},
    "reentrant": {"use_reentrant": True},
    "whole": {"use_reentrant": False, "early_stop": False},
    "other_numbers": {"use_reentrant": False, "preserve_rng_state": False},
}


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("options", OPTIONS)
def test_a_checkpointed_model(options, dropout):
    if options == "other_numbers" and dropout > 0:
        pytest.skip("eager's own gradients are not those of its result then")
    torch.manual_seed(0)
    assert_trains_like_eager(Model(dropout=dropout, **OPTIONS[options]))


def breaks_of(function, *arguments):
    return smelt.explain(function)(*arguments).break_count


@pytest.mark.parametrize("options", ["plain", "whole"])
def test_no_break(options):
    assert breaks_of(Model(**OPTIONS[options]), torch.randn(5, 8)) == 0


def test_nested_and_sequential():
    class Nested(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = Block(8), Block(8)
            self.rest = nn.Sequential(Block(8), Block(8), nn.Linear(8, 4))

        def inner(self, x):
            return checkpoint(self.second, self.first(x), use_reentrant=False).sin()

        def forward(self, x):
            x = checkpoint(self.inner, x, use_reentrant=False)
            return checkpoint_sequential(self.rest, 2, x, use_reentrant=False)

    assert_trains_like_eager(Nested())


def test_keywords_and_several_results():
    class Pairs(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def both(self, x, *, scale):
            y = self.layer(x) * scale
            return y.sin(), y.cos()

        def forward(self, x):
            a, b = checkpoint(self.both, x, use_reentrant=False, scale=2.0)
            return a * b

    assert_trains_like_eager(Pairs())


active = contextvars.ContextVar('active', default=None)


class Captured(nn.Module):
    """As the models of transformers: what collects outputs is set around the layers."""

    def __init__(self, reads):
        super().__init__()
        self.model, self.reads = Model(use_reentrant=False), reads

    def forward(self, x):
        token = active.set({'scale': 2.0})
        try:
            y = self.model(x)
            if self.reads:
                y = y * active.get()['scale']
        finally:
            active.reset(token)
        return y


@pytest.mark.parametrize('reads', [False, True])
def test_a_context_variable_around_it(reads):
    model = Captured(reads)
    assert_trains_like_eager(model)
    report = smelt.explain(model)(torch.randn(5, 8))
    assert report.break_count == 0 and report.graph_count == 1, report
    assert active.get() is None


def test_what_changes_something_is_done_as_in_eager():
    """The forward is run twice in eager: statistics are updated twice, and so is a counter."""

    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.norm, self.calls = nn.Linear(8, 8), nn.BatchNorm1d(8), 0

        def part(self, x):
            self.calls += 1
            return self.norm(self.layer(x)).relu()

        def forward(self, x):
            return checkpoint(self.part, x, use_reentrant=False).sin()

    eager = Counting()
    ours = copy.deepcopy(eager)
    compiled = smelt.compile(ours)
    for _ in range(4):
        x = torch.randn(5, 8)
        eager(x).sum().backward()
        compiled(x).sum().backward()
        assert ours.calls == eager.calls
        torch.testing.assert_close(ours.norm.state_dict(), eager.norm.state_dict())


def test_a_whole_step():
    torch.manual_seed(0)
    models = [Model(use_reentrant=False), None]
    models[1] = copy.deepcopy(models[0])

    def make_step(model):
        optimizer = torch.optim.SGD(model.parameters(), 0.1)

        def step(x):
            optimizer.zero_grad()
            loss = model(x).pow(2).mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        return step

    eager, compiled = make_step(models[0]), smelt.compile(make_step(models[1]))
    for _ in range(5):
        x = torch.randn(5, 8)
        torch.testing.assert_close(compiled(x), eager(x))


def test_nothing_but_the_inputs_is_kept():
    """What a graph of a hundred wide layers holds until its backward."""

    class Wide(nn.Module):
        def __init__(self, checkpointed):
            super().__init__()
            self.layers, self.checkpointed = nn.ModuleList(nn.Linear(64, 64) for _ in range(8)), checkpointed

        def part(self, x):
            for layer in self.layers:
                x = layer(x).tanh()
            return x

        def forward(self, x):
            x = x * 2
            x = checkpoint(self.part, x, use_reentrant=False) if self.checkpointed else self.part(x)
            return x.sum()

    def held(checkpointed):
        compiled, x = smelt.compile(Wide(checkpointed)), torch.randn(512, 64)
        for _ in range(2):
            compiled(x).backward()
        loss = compiled(x)
        nodes, found, bytes_held = [loss.grad_fn], set(), 0
        while nodes:
            node = nodes.pop()
            if node is None or node in found:
                continue
            found.add(node)
            for name in dir(node):
                saved = getattr(node, name, None) if name.startswith(("_saved", "saved")) else None
                for tensor in saved if isinstance(saved, (list, tuple)) else [saved]:
                    if isinstance(tensor, torch.Tensor) and tensor.shape[:1] == (512,):
                        bytes_held += tensor.nbytes
            nodes += [following for following, _ in node.next_functions]
        return smelt.explain(compiled)(x).break_count, bytes_held

    breaks, bytes_held = held(True)
    assert breaks == 0
    assert bytes_held <= 2 * 512 * 64 * 4
