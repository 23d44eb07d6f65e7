"""Mapping proxies (Cls.__dict__, Enum.__members__, types.MappingProxyType): what they show may change."""
import collections
import enum
import inspect
import types

import pytest
import torch

import smelt

X = torch.arange(3.0)


class Table:
    x = 1

    def total(self):
        return sum(value for name, value in type(self).__dict__.items() if name.startswith('n_'))


class Color(enum.Enum):
    RED = 1
    BLUE = 2


CONTENTS = {'a': 1, 'b': 2}
SHOWN = types.MappingProxyType(CONTENTS)
ORDERED = collections.OrderedDict(CONTENTS)
SHOWN_IN_ORDER = types.MappingProxyType(ORDERED)

READS = {
    'class item': lambda t: t + Table.__dict__['x'],
    'class get': lambda t: t + Table.__dict__.get('x', 0) + Table.__dict__.get('missing', 7),
    'class contains': lambda t: t + (1 if 'added' in Table.__dict__ else 0),
    'class length': lambda t: t + len(Table.__dict__),
    'class keys': lambda t: t + sum(name.startswith('n_') for name in Table.__dict__),
    'twice': lambda t: t + Table.__dict__['x'] + Table.__dict__['x'],
    'of an instance': lambda t: t + Table().total(),
    'item': lambda t: t + SHOWN['a'],
    'get': lambda t: t + SHOWN.get('c', 5),
    'contains': lambda t: t + ('c' in SHOWN),
    'length': lambda t: t + len(SHOWN),
    'values': lambda t: t + sum(SHOWN.values()),
    'items': lambda t: t + sum(value for _, value in SHOWN.items()),
    'iteration': lambda t: t + len([key for key in SHOWN]),
    'as a dict': lambda t: t + dict(SHOWN)['a'] + {**SHOWN}['b'],
    'copy': lambda t: t + SHOWN.copy()['a'],
    'ordered item': lambda t: t + SHOWN_IN_ORDER['a'] + SHOWN_IN_ORDER.get('c', 5),
    'ordered length': lambda t: t + len(SHOWN_IN_ORDER) + ('c' in SHOWN_IN_ORDER),
    'ordered values': lambda t: t + next(iter(SHOWN_IN_ORDER.values())),
    'ordered items': lambda t: t + [value for _, value in SHOWN_IN_ORDER.items()][0],
    'ordered iteration': lambda t: t + SHOWN_IN_ORDER[next(iter(SHOWN_IN_ORDER))],
    'members': lambda t: t + len(Color.__members__) + Color.__members__['RED'].value,
}


@pytest.fixture(autouse=True)
def contents():
    before = dict(CONTENTS)
    yield
    CONTENTS.clear()
    CONTENTS.update(before)
    ORDERED.clear()
    ORDERED.update(before)
    for name in [name for name in vars(Table) if name == 'added' or name.startswith('n_')]:
        delattr(Table, name)
    Table.x = 1


@pytest.mark.parametrize('name', READS)
def test_changes_are_seen(name):
    function = READS[name]
    compiled = smelt.compile(function, fullgraph=True)
    for step in range(4):
        for _ in range(2):
            torch.testing.assert_close(compiled(X), function(X))
        Table.x += 10
        CONTENTS['a'] += 5
        ORDERED['a'] += 5
        ORDERED.move_to_end('a', last=step % 2 == 0)
        if step == 1:
            Table.added = Table.n_added = 3
            CONTENTS['c'] = ORDERED['c'] = 4
    assert smelt.stats()['graph_breaks'] == 0


def test_another_proxy():
    def function(t):
        return t + SHOWN['a']

    compiled = smelt.compile(function)
    assert compiled(X)[0] == 1
    shown = SHOWN
    try:
        globals()['SHOWN'] = types.MappingProxyType({'a': 100})
        assert compiled(X)[0] == 100
    finally:
        globals()['SHOWN'] = shown
    assert compiled(X)[0] == 1


def test_the_proxy_itself_is_given():
    compiled = smelt.compile(lambda t: (t + 1, Table.__dict__, SHOWN, repr(SHOWN)))
    for _ in range(3):
        _, of_class, shown, text = compiled(X)
        assert type(of_class) is types.MappingProxyType and of_class['x'] == 1
        assert shown is SHOWN
        assert text == repr(SHOWN)


def test_of_an_ordered_dict_that_the_function_makes():
    def function(t):
        made = collections.OrderedDict(a=t, b=2)
        made.move_to_end('a')
        shown = types.MappingProxyType(made)
        return shown['a'] * len(shown) + [1 if name == 'a' else 2 for name in shown][0]

    compiled = smelt.compile(function, fullgraph=True)
    for _ in range(3):
        torch.testing.assert_close(compiled(X), function(X))


def test_parameters_of_a_signature():
    class Model(torch.nn.Module):
        def chunk(self, x, y):
            return x * y

        def forward(self, x):
            return self.chunk(x, x) * len(inspect.signature(self.chunk).parameters)

    model = Model()
    compiled = smelt.compile(model, fullgraph=True)
    for _ in range(3):
        torch.testing.assert_close(compiled(X), 2 * X * X)
