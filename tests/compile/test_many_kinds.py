"""Code that serves many classes, nn.Module's above all: the limit of recompiles is one for each of them."""
import warnings

import pytest
import torch
from torch import nn

import smelt

said = []


def layer_class(number):
    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x):
            x = self.linear(x).relu() * number
            said.append(float(x.sum()))
            print(end='')  # a break
            return torch.tanh(x) + 1

    return Layer


class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.layers = nn.ModuleList([layer() for layer in classes])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


@pytest.mark.parametrize('classes', [[layer_class(1)] * 12, [layer_class(i + 1) for i in range(12)]],
                         ids=['one', 'twelve'])
def test_breaks_in_many_modules(classes):
    torch.manual_seed(0)
    net = Net(classes)
    compiled = smelt.compile(net)
    x = torch.randn(2, 4)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter('error')
        for _ in range(3):
            torch.testing.assert_close(compiled(x), net(x))
        before = smelt.stats()
        torch.testing.assert_close(compiled(x), net(x))
        after = smelt.stats()
    assert after['segments'] == before['segments'] and after['cache_hits'] - before['cache_hits'] > 24
    graphs = {(at.function, at.line) for at in smelt.explain(compiled)(x).segments if at.ops}
    assert len(graphs) >= 2  # in front of the print, and behind it


def test_callees_of_what_was_given_up():
    def inner(x):
        x = x * 2 + 1
        print(end='')
        return torch.tanh(x) - 1

    def outer(x, text):
        return inner(x) + len(text)

    compiled = smelt.compile(outer, options={'recompile_limit': 2})
    x = torch.randn(3)
    with pytest.warns(RuntimeWarning, match='was compiled 2 times'):
        for i in range(6):
            torch.testing.assert_close(compiled(x, 'a' * i), outer(x, 'a' * i))
    before = smelt.stats()['cache_hits']
    for _ in range(3):
        torch.testing.assert_close(compiled(x, 'another'), outer(x, 'another'))
    assert smelt.stats()['cache_hits'] - before >= 6  # the two halves of inner()


def test_one_class_is_given_up_and_others_are_not():
    class Scales:
        def __init__(self, by):
            self.by = by

        def __call__(self, x):
            return x * len(self.by)

    class Adds(Scales):
        pass

    def call(it, x):
        return it(x) + 1

    compiled = smelt.compile(call, options={'recompile_limit': 2})
    x = torch.randn(3)
    with pytest.warns(RuntimeWarning, match='was compiled 2 times'):
        for i in range(5):
            torch.testing.assert_close(compiled(Scales('a' * i), x), x * i + 1)
    for _ in range(3):
        torch.testing.assert_close(compiled(Adds('abc'), x), x * 3 + 1)
    before = smelt.stats()['cache_hits']
    compiled(Adds('abc'), x), compiled(Scales('abcdef'), x)
    assert smelt.stats()['cache_hits'] - before == 1


def test_what_was_compiled_before_the_limit_is_used():
    def scaled(x):
        return x * 2 + x.shape[0]

    compiled = smelt.compile(scaled, options={'recompile_limit': 3}, dynamic=False)
    with pytest.warns(RuntimeWarning, match='was compiled 3 times; from now on Python runs what does not fit these'):
        for size in range(1, 9):
            torch.testing.assert_close(compiled(torch.ones(size)), scaled(torch.ones(size)))
    before = smelt.stats()
    for size in (2, 7, 3, 8, 1):
        torch.testing.assert_close(compiled(torch.ones(size)), scaled(torch.ones(size)))
    after = smelt.stats()
    assert after['cache_hits'] - before['cache_hits'] == 3 and after['segments'] == before['segments']


def test_nobody_looks_for_ever():
    def scaled(x):
        return x * 2 + x.shape[0]

    compiled = smelt.compile(scaled, backend='eager', options={'recompile_limit': 1}, dynamic=False)
    with pytest.warns(RuntimeWarning, match='was compiled 1 times'):
        for size in range(2, 400):
            compiled(torch.ones(size))
    before = smelt.stats()['cache_hits']
    assert torch.equal(compiled(torch.ones(2)), scaled(torch.ones(2)))
    assert smelt.stats()['cache_hits'] == before


def test_a_break_behind_the_limit():
    def halves(x):
        x = x * 2
        print(end='')
        return torch.tanh(x) + x.shape[0]

    compiled = smelt.compile(halves, options={'recompile_limit': 2}, dynamic=False)
    with pytest.warns(RuntimeWarning, match='was compiled 2 times'):
        for size in (1, 2, 3, 4, 5):
            compiled(torch.ones(size))
    before = smelt.stats()['cache_hits']
    for size in (1, 2, 5):
        torch.testing.assert_close(compiled(torch.ones(size)), halves(torch.ones(size)))
    assert smelt.stats()['cache_hits'] - before == 4
