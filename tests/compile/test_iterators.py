"""Loops with a graph break in them: the iterator is made again behind the break, and the rest of the loop is compiled."""

import re

import pytest
import torch
from torch import nn

import smelt

SEEN = []


@smelt.disable
def note(y):
    SEEN.append(float(y.detach().sum()))
    return y + 1


class Broken(nn.Module):
    def forward(self, x):
        return note(x)


def layers():
    torch.manual_seed(0)
    return [nn.Linear(3, 3), nn.ReLU(), Broken(), nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3)]


def over_list(parts, x):
    for part in parts['list']:
        x = part(x)
    return x * 2


def over_tuple(parts, x):
    for part in parts['tuple']:
        x = part(x)
    return x * 2


def over_values(parts, x):
    for part in parts['dict'].values():
        x = part(x)
    return x * 2


def over_items(parts, x):
    for name, part in parts['dict'].items():
        x = part(x) * len(name)
    return x * 2


def over_keys(parts, x):
    for name in parts['dict']:
        x = parts['dict'][name](x)
    return x * 2


def in_two_loops(parts, x):
    for scale in (1, 2):
        for part in parts['dict'].values():
            x = part(x) * scale
    return x * 2


def value_replaced(parts, x):
    scales = dict.fromkeys('abcd', 1.0)
    for name in scales:
        scales[name] = 2.0
        x = note(x) if name == 'b' else x * scales[name]
    return x * scales['d']


def iterator_handed_on(parts, x):
    each = iter(parts['list'])
    x = next(each)(x)
    x = note(x)
    for part in each:
        x = part(x)
    return x, list(each)


def dict_that_shrinks(parts, x):
    parts = dict(parts['dict'])
    del parts['part0']
    for part in parts.values():
        x = part(x)
    return x * 2


def stops_early(parts, x):
    for i in parts['numbers'].values():
        x = x * i
        if i == 2:
            x = note(x)
        if i == 3:
            break
    return x


# How many graphs: there is a break where note() is called, and none at the turns of the loop.
PROGRAMS = [(over_list, 2), (over_tuple, 2), (over_values, 2), (over_items, 2), (over_keys, 2), (in_two_loops, 3),
            (value_replaced, 2), (iterator_handed_on, 3), (dict_that_shrinks, None), (stops_early, 2)]


def parts():
    all = layers()
    return {'list': all, 'tuple': tuple(all), 'dict': {f'part{i}': layer for i, layer in enumerate(all)},
            'numbers': {'a': 1, 'b': 2, 'c': 3, 'd': 4}}


def run(fn, given, calls=4):
    SEEN.clear()
    return [fn(given, torch.ones(2, 3) / (i + 1)) for i in range(calls)], list(SEEN)


@pytest.mark.parametrize('fn, graphs', PROGRAMS, ids=lambda value: getattr(value, '__name__', None))
def test_loop(fn, graphs):
    given = parts()
    expected = run(fn, given)
    compiled = smelt.compile(fn)
    found = run(compiled, given)
    names = r'grad_fn=<\w+>'  # a compiled backward has a name of its own
    assert re.sub(names, 'grad_fn', str(found)) == re.sub(names, 'grad_fn', str(expected))
    report = smelt.explain(compiled)(given, torch.ones(2, 3))
    if graphs is not None:
        assert {at.reason for at in report.breaks} == {'disabled'}, str(report)
        assert report.graph_count == graphs, str(report)


def test_sequential_with_one_broken_layer():
    model = nn.Sequential(*layers())
    compiled = smelt.compile(model)
    for i in range(3):
        x = torch.ones(2, 3) * i
        assert torch.allclose(compiled(x), model(x))
    report = smelt.explain(compiled)(torch.ones(2, 3))
    assert {at.reason for at in report.breaks} == {'disabled'}, str(report)
    assert report.graph_count == 2


def test_other_contents_are_noticed():
    def fn(x, scales):
        for scale in scales.values():
            x = note(x * scale)
        return x
    compiled = smelt.compile(fn)
    for scales in ({'a': 1, 'b': 2}, {'a': 1, 'b': 3}, {'a': 1, 'c': 2}, {'a': 1}, {'b': 2, 'a': 1}, {'a': 1, 'b': 2}):
        assert torch.equal(compiled(torch.ones(2), scales), fn(torch.ones(2), scales))


def test_many_turns_are_not_compiled_one_by_one():
    def fn(x, scales):
        for scale in scales:
            x = note(x * 2 + 1)
        return x
    compiled = smelt.compile(fn)
    scales = list(range(20))
    for _ in range(3):
        assert torch.equal(compiled(torch.ones(2), scales), fn(torch.ones(2), scales))
    assert smelt.stats()['segments'] <= 8


def test_iterators_from_outside():
    def fn(x, each):
        x = x * 2
        for scale in each:
            x = x * scale
        return x
    compiled = smelt.compile(fn)
    for make in (lambda: iter([1, 2, 3]), lambda: iter((1, 2, 3)), lambda: iter({'a': 2}.values()), lambda: iter([3])):
        for taken in (0, 1):
            one, other = make(), make()
            for each in (one, other):
                for _ in range(taken):
                    next(each)
            assert torch.equal(compiled(torch.ones(2), one), fn(torch.ones(2), other))
            assert list(one) == list(other) == []


def test_an_iterator_is_left_where_it_was():
    def fn(x, each):
        return x * next(each) + next(each)
    compiled = smelt.compile(fn)
    numbers = [1, 2, 3, 4, 5, 6]
    one, other = iter(numbers), iter(numbers)
    for _ in range(3):
        assert torch.equal(compiled(torch.ones(2), one), fn(torch.ones(2), other))
    for _ in range(2):
        one, other = iter(numbers), iter(numbers)
        assert torch.equal(compiled(torch.ones(2), one), fn(torch.ones(2), other))
        assert list(one) == list(other)


def test_a_dict_that_changes_in_the_loop():
    def fn(x, scales):
        for name in scales:
            x = note(x)
            scales[name + 'x'] = 1
        return x
    compiled = smelt.compile(fn)
    for _ in range(3):
        with pytest.raises(RuntimeError, match='changed size'):
            compiled(torch.ones(2), {'a': 1, 'b': 2})


class Box:
    pass


BOX = Box()


def kept_in_a_list(x):
    return x * 2, [iter([1, 2, 3])]


def kept_in_an_attribute(x):
    BOX.each = iter({'a': 1, 'b': 2}.values())
    next(BOX.each)
    return x * 2, BOX.each


def kept_in_a_closure(x):
    each = iter({'a': 1, 'b': 2}.items())
    next(each)
    return x * 2, lambda: next(each)


def returned(x):
    return x * 2, iter({'a': 1, 'b': 2})


def shared(x):
    each = iter((1, 2, 3, 4))
    return x * 2, zip(each, each), {'each': each}


def image(value):
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, (tuple, list)):
        return [image(item) for item in value]
    if isinstance(value, dict):
        return {key: image(item) for key, item in value.items()}
    return value() if callable(value) else list(value)


@pytest.mark.parametrize('fn', [kept_in_a_list, kept_in_an_attribute, kept_in_a_closure, returned, shared])
def test_an_iterator_that_is_kept(fn):
    compiled = smelt.compile(fn)
    for _ in range(3):
        assert image(compiled(torch.ones(2))) == image(fn(torch.ones(2)))
