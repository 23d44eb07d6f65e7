"""Loops with a graph break in them: the iterator is made again behind the break, and the rest of the loop is compiled."""

import re
import subprocess
import sys

import pytest
import torch
from torch import nn

import smelt
from rounding import same_text

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


def over_range(parts, x):
    for i in range(1, 6, 2):
        x = note(x * i) if i == 3 else x + i
    return x * 2


def over_constants(parts, x):
    for scale in (2, 3, 4):
        x = note(x) * scale if scale == 3 else x * scale
    return x * 2


# These are made again as well, and behind the break each turn is a graph of its own.
def over_zip(parts, x):
    for part, scale in zip(parts['list'], parts['numbers'].values()):
        x = part(x) * scale
    return x * 2


def over_enumerate(parts, x):
    for i, part in enumerate(parts['dict'].values(), 2):
        x = part(x) * i
    return x * 2


def over_reversed(parts, x):
    for part in reversed(parts['list']):
        x = part(x)
    for scale in reversed((1, 2, 3)):
        x = note(x) + scale
    return x * 2


def over_set(parts, x):
    for scale in parts['set']:
        x = note(x) * 2 + scale
    return x * 2


def over_map(parts, x):
    for y in map(lambda part: part(x) + 1, parts['list']):
        x = note(x) + y
    return x * 2


def over_filter(parts, x):
    for scale in filter(lambda n: n != 2, parts['numbers'].values()):
        x = note(x) * scale
    return x * 2


def over_all_of_these(parts, x):
    for (i, part), n in zip(enumerate(reversed(parts['list'])), range(10, 40, 3)):
        for k in {1, 2} if i else (3,):
            x = part(x) * i + n + k
    return x * 2


def shared_inside(parts, x):
    each = iter(parts['numbers'].values())
    for a, b in zip(each, each):
        x = note(x) * a + b
    return x * 2, list(each)


# How many graphs: there is a break where note() is called, and none at the turns of the loop.
PROGRAMS = [(over_list, 2), (over_tuple, 2), (over_values, 2), (over_items, 2), (over_keys, 2), (in_two_loops, 3),
            (value_replaced, 2), (iterator_handed_on, 3), (dict_that_shrinks, None), (stops_early, 2),
            (over_range, 2), (over_constants, 2), (over_zip, None), (over_enumerate, None), (over_reversed, None),
            (over_set, None), (over_map, None), (over_filter, None), (over_all_of_these, None), (shared_inside, None)]


def parts():
    all = layers()
    return {'list': all, 'tuple': tuple(all), 'dict': {f'part{i}': layer for i, layer in enumerate(all)},
            'numbers': {'a': 1, 'b': 2, 'c': 3, 'd': 4}, 'set': {1, 16, 8}}


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
    assert same_text(re.sub(names, 'grad_fn', str(found)), re.sub(names, 'grad_fn', str(expected)))
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


@pytest.mark.parametrize('fn', [over_zip, over_enumerate, over_reversed, over_set, over_map, over_filter])
def test_what_is_in_front_of_the_break_is_in_a_graph(fn):
    def around(parts, x):
        return fn(parts, x.sin())
    compiled = smelt.compile(around)
    given = parts()
    for _ in range(2):
        compiled(given, torch.ones(2, 3))
    report = smelt.explain(compiled)(given, torch.ones(2, 3))
    assert {at.reason for at in report.breaks} <= {'disabled', 'iterator'}, str(report)
    # Without the iterator being made again, the first turn would be run by Python alone.
    assert smelt.stats()['runs'] >= 3


def test_sets_are_told_apart_by_their_order():
    def fn(x, scales):
        for scale in scales:
            x = x * 2 + scale
        return x
    assert list({0, 8}) != list({8, 0})
    for kind in (set, frozenset):
        compiled = smelt.compile(fn)
        for scales in ([0, 8], [8, 0], [0, 8], [8, 0]):
            given = kind(scales)
            assert torch.equal(compiled(torch.zeros(1), given), fn(torch.zeros(1), given))


def test_ranges_of_other_lengths():
    def looped(x, *numbers):
        for i in range(*numbers):
            x = note(x * (i + 1)) - i
        return x
    compiled = smelt.compile(looped)
    for numbers in ((3,), (5,), (1, 3), (3, 0, -1), (0,), (3,), (0, 9, 4)):
        assert torch.equal(compiled(torch.ones(2), *numbers), looped(torch.ones(2), *numbers))


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


def test_a_generator_that_is_left_before_anything_else_was_compiled():
    """It is closed by an error that is thrown into it, which nothing that is looked up for the first time may lose."""
    script = ("import smelt, torch\n"
              "f = smelt.compile(lambda x: x * 2 if all(q > 1 for q in [0, 2]) else x)\n"
              "print(f(torch.ones(1)).item())")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == ("1.0", "")
