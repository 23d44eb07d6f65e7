"""copy.copy and copy.deepcopy inside of compiled functions."""

import copy
import copyreg
import dataclasses
import enum

import pytest
import torch

import smelt

X = torch.arange(6.0).reshape(2, 3)


class Kind(enum.Enum):
    PLAIN = 1


@dataclasses.dataclass
class Inner:
    sizes: list = dataclasses.field(default_factory=lambda: [1, 2])


@dataclasses.dataclass
class Config:
    n: int = 2
    name: str = 'config'
    inner: Inner = dataclasses.field(default_factory=Inner)
    table: dict = dataclasses.field(default_factory=lambda: {'a': [1], 'b': (1, [2]), 'c': (1, 2), 'dtype': torch.float32, 'kind': Kind.PLAIN})


def no_breaks(fn, *arguments):
    smelt.reset()
    compiled = smelt.compile(fn)
    for _ in range(4):
        found, expected = compiled(*arguments), fn(*arguments)
        torch.testing.assert_close(found[0], expected[0])
        assert found[1:] == expected[1:]
    assert smelt.stats()['graph_breaks'] == 0, smelt.explain(fn)(*arguments)
    return compiled


def deep(x, config):
    own = copy.deepcopy(config)
    own.inner.sizes.append(5)
    own.table['b'][1].append(3)
    own.n += 1
    return x * own.n * len(own.inner.sizes), own, config, own.table['c'] is config.table['c'], own.inner.sizes is config.inner.sizes


def test_a_deep_copy_is_apart():
    config = Config()
    compiled = no_breaks(deep, X, config)
    assert config == Config()
    first, second = compiled(X, config)[1], compiled(X, config)[1]
    assert first is not second and first.inner is not second.inner and type(first) is Config
    config.inner.sizes.append(9)
    for _ in range(2):
        assert compiled(X, config)[1].inner.sizes == [1, 2, 9, 5]
    for n in (3, 4, 5):
        torch.testing.assert_close(compiled(X, Config(n=n))[0], X * (n + 1) * 3)


def shared(x):
    part = [1]
    made = copy.deepcopy({'a': part, 'b': part, 'c': [part, {'d': part}]})
    made['a'].append(2)
    return x * len(made['b']), made, part, made['a'] is made['c'][0]


def test_what_is_shared_stays_shared():
    no_breaks(shared, X)


def shallow(x, config):
    own = copy.copy(config)
    own.n = 7
    return x * own.n, own, config.n, own.inner is config.inner, copy.copy(config.table) == config.table, copy.copy([x]) is None


def test_a_shallow_copy_shares_what_is_in_it():
    config = Config()
    compiled = no_breaks(shallow, X, config)
    assert compiled(X, config)[1] is not compiled(X, config)[1] and config.n == 2
    config.extra = 1
    assert compiled(X, config)[1].extra == 1


def as_dict(x, config):
    return x * dataclasses.asdict(config)['n'], dataclasses.asdict(config), dataclasses.astuple(config.inner), dataclasses.replace(config, n=5)


def test_dicts_of_dataclasses():
    no_breaks(as_dict, X, Config())


class Careful:
    copies = 0

    def __init__(self):
        self.n = 1

    def __deepcopy__(self, memo):
        Careful.copies += 1
        return self


class Cyclic:
    def __init__(self):
        self.me = [self]


@pytest.mark.parametrize('make', [Careful, Cyclic, lambda: [torch.ones(2)], lambda: frozenset('a')])
def test_what_says_itself_how_it_is_copied(make):
    def fn(x, thing):
        return x * 2, copy.deepcopy(thing)

    thing = make()
    Careful.copies = 0
    compiled = smelt.compile(fn)
    for count in range(1, 5):
        found = compiled(X, thing)
        assert torch.equal(found[0], X * 2) and type(found[1]) is type(thing)
        assert type(thing) is not Careful or (found[1] is thing and Careful.copies == count)
        assert type(thing) is not Cyclic or (found[1] is not thing and found[1].me[0] is found[1])
        assert type(thing) is not list or (found[1][0] is not thing[0] and torch.equal(found[1][0], thing[0]))


class Late:
    def __init__(self):
        self.n = 1


def test_a_class_that_says_it_later():
    def fn(x, thing):
        return x * copy.deepcopy(thing).n

    thing = Late()
    compiled = smelt.compile(fn)
    for _ in range(3):
        assert torch.equal(compiled(X, thing), X)
    copyreg.pickle(Late, lambda late: (make_late, (late.n + 1,)))
    try:
        assert torch.equal(compiled(X, thing), X * 2)
    finally:
        del copyreg.dispatch_table[Late]
    assert torch.equal(compiled(X, thing), X)
    Late.__deepcopy__ = lambda self, memo: make_late(5)
    assert torch.equal(compiled(X, thing), X * 5)


def make_late(n):
    late = Late()
    late.n = n
    return late


class Mapped:
    """As configurations have it: old names of attributes lead to new ones."""

    attribute_map = {'width': 'hidden_size'}

    def __init__(self):
        self.hidden_size, self.layers, self.labels = 4, [1, 2], {0: 'a'}

    def __getattribute__(self, key):
        if key != 'attribute_map' and key in super().__getattribute__('attribute_map'):
            key = super().__getattribute__('attribute_map')[key]
        return super().__getattribute__(key)

    def __setattr__(self, key, value):
        if key in super().__getattribute__('attribute_map'):
            key = super().__getattribute__('attribute_map')[key]
        super().__setattr__(key, value)


def test_a_getattribute_of_its_own():
    config = Mapped()

    def fn(x):
        copied = copy.deepcopy(config)
        copied.width = 3
        copied.layers.append(5)
        return x * config.width, copied.hidden_size, copied.layers, type(copied) is Mapped, config.layers

    no_breaks(fn, X)
    compiled = smelt.compile(fn)
    for size in (4, 5, 4):
        config.width = size
        config.labels[size] = 'b'
        config.layers.append(size)
        found, expected = compiled(X), fn(X)
        torch.testing.assert_close(found[0], expected[0])
        assert found[1:] == expected[1:]


def test_a_getattribute_that_says_how():
    class Own(Mapped):
        def __getattribute__(self, key):
            if key == '__deepcopy__':
                return lambda memo: 'a copy'
            return super().__getattribute__(key)

    config = Own()

    def fn(x):
        return x * 2, copy.deepcopy(config)

    compiled = smelt.compile(fn)
    for _ in range(3):
        assert compiled(X)[1] == fn(X)[1] == 'a copy'
