"""Branches on random numbers: no path through them is compiled as a whole, and the pieces between them are compiled once."""
import copy

import pytest
import torch
from torch import nn

import smelt


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return x + torch.tanh(self.linear(x))


DRAWS = {'rand': lambda p: torch.rand([]) < p, 'item': lambda p: torch.rand(1).item() < p,
         'bernoulli': lambda p: torch.bernoulli(torch.full((), p)) == 1,
         'uniform': lambda p: torch.empty(1).uniform_(0, 1) < p, 'less': lambda p: p > torch.rand(()),
         'randint': lambda p: torch.randint(0, 100, ()) < 100 * p}


class Net(nn.Module):
    def __init__(self, layers, p, draw, loop):
        super().__init__()
        self.layers = nn.ModuleList([Layer() for _ in range(layers)])
        self.p, self.draw, self.loop = p, draw, loop

    def forward(self, x):
        if self.loop == 'enumerate':
            for i, layer in enumerate(self.layers):
                skips = True if self.training and self.draw(self.p) else False
                if not skips:
                    x = layer(x)
        elif self.loop == 'list':
            for layer in list(self.layers):
                if self.training and self.draw(self.p):
                    continue
                x = layer(x)
        else:
            for layer in self.layers:
                if self.training and self.draw(self.p):
                    continue
                x = layer(x)
        return x.sum()


def train(net, model, x, seed):
    torch.manual_seed(seed)
    net.zero_grad()
    loss = model(x)
    if loss.requires_grad:
        loss.backward()
    return [loss, *(p.grad for p in net.parameters())]


@pytest.mark.parametrize('loop', ['modules', 'enumerate', 'list'])
@pytest.mark.parametrize('draw', DRAWS)
def test_the_tree_stops_growing(draw, loop):
    net = Net(6, 0.4, DRAWS[draw], loop)
    compiled_net = copy.deepcopy(net)
    compiled = smelt.compile(compiled_net, options={'rollback': False})
    x = torch.randn(2, 8)
    for seed in range(20):
        for found, wanted in zip(train(compiled_net, compiled, x, seed), train(net, net, x, seed), strict=True):
            torch.testing.assert_close(found, wanted)
    before = smelt.stats()
    for seed in range(20, 40):
        for found, wanted in zip(train(compiled_net, compiled, x, seed), train(net, net, x, seed), strict=True):
            torch.testing.assert_close(found, wanted)
    after = smelt.stats()
    assert after['segments'] - before['segments'] <= 4
    assert after['cache_hits'] - before['cache_hits'] > 20 * 6


@pytest.mark.parametrize('p', [0.0, 1.0])
def test_what_is_certain_is_one_graph(p):
    net = Net(4, p, DRAWS['rand'], 'modules')
    compiled = smelt.compile(net)
    x = torch.randn(2, 8)
    for seed in range(4):
        torch.manual_seed(seed)
        wanted = net(x)
        torch.manual_seed(seed)
        torch.testing.assert_close(compiled(x), wanted)
    report = smelt.explain(compiled)(x)
    assert report.break_count == 0 and report.graph_count <= 1 and not report.recompiles


def shifted():
    drawn = torch.rand([])
    drawn.sub_(0.5)
    return drawn < 0


def overwritten():
    flag = torch.rand([]) < 0
    flag.copy_(torch.rand([]) < 0.5)
    return flag


def negated():
    return torch.rand([]).neg() < -0.5


@pytest.mark.parametrize('draw', [shifted, overwritten, negated, lambda: torch.randn([]) < 0,
                                  lambda: torch.rand([]) < 0.5, lambda: torch.rand([]) >= 0.5])
def test_what_only_looks_certain(draw):
    def function(x):
        return x * 2 if draw() else x - 1

    compiled = smelt.compile(function)
    x = torch.arange(3.0)
    for seed in range(12):
        torch.manual_seed(seed)
        wanted = function(x)
        torch.manual_seed(seed)
        torch.testing.assert_close(compiled(x), wanted)


def test_the_stream_goes_on_as_in_eager():
    net = Net(6, 0.5, DRAWS['rand'], 'modules')
    compiled = smelt.compile(net)
    x = torch.randn(2, 8)
    drawn = []
    for model in (net, compiled):
        torch.manual_seed(5)
        drawn.append([model(x).item() for _ in range(10)] + [torch.rand(3).tolist()])
    assert drawn[0][-1] == drawn[1][-1]
    torch.testing.assert_close(torch.tensor(drawn[0][:-1]), torch.tensor(drawn[1][:-1]))


def test_a_check_of_what_was_computed_is_still_guessed():
    def function(x):
        y = torch.nn.functional.dropout(x, 0.5) * 2
        if not torch.isfinite(y).all():
            raise ValueError('not finite')
        return y + 1

    report = smelt.explain(function)(torch.randn(4))
    assert report.break_count == 0 and report.graph_count == 1
