"""An error in the middle of a cached call: what the code did to Python objects before it is done, what comes after it is
not, as in eager."""

import itertools

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import smelt


class Boom(Exception):
    pass


library = torch.library.Library('effects_before_errors', 'FRAGMENT')
library.define('fuse(Tensor x) -> Tensor')
library.define('fuse_(Tensor(a!) x) -> Tensor(a!)')
state = {'raises': False}


def fuse(x):
    if state['raises']:
        raise Boom('here')
    return x + 0


def fuse_in_place(x):
    if state['raises']:
        raise Boom('here')
    return x.add_(1)


library.impl('fuse', fuse, 'CPU')
library.impl('fuse_', fuse_in_place, 'CPU')


class Holder:
    def __init__(self):
        self.log, self.table, self.count = [], {}, 0

    def seen(self):
        return self.log, self.table, self.count, getattr(self, 'extra', None)


# -- effects, told which of them it is


def append(holder, n, y):
    holder.log.append(n)


def set_item(holder, n, y):
    holder.table[n] = n * 2


def count(holder, n, y):
    holder.count += n


def set_attribute(holder, n, y):
    holder.extra = n


def extend(holder, n, y):
    holder.log += [n, float(n)]


def keep_tensor(holder, n, y):
    holder.log.append(tuple(y.shape))
    holder.table[n] = y.detach()


EFFECTS = [append, set_item, count, set_attribute, extend, keep_tensor]


# -- what raises


def by_custom_op(x, index):
    return torch.ops.effects_before_errors.fuse(x)


def by_custom_op_in_place(x, index):
    return torch.ops.effects_before_errors.fuse_(x.clone()) + 1


def by_index(x, index):
    return x[index].exp()


def by_saving(x, index):
    return (x * x).exp()


RAISERS = [by_custom_op, by_custom_op_in_place, by_index, by_saving]


def plain(effect, raiser):
    def function(x, holder, index):
        effect(holder, 1, x)
        y = x.sin()
        effect(holder, 2, y)
        z = raiser(y, index)
        effect(holder, 3, z)
        return z * 2

    return function


def in_a_callee(effect, raiser):
    def inner(x, holder, index):
        effect(holder, 2, x)
        z = raiser(x, index)
        effect(holder, 3, z)
        return z

    def function(x, holder, index):
        effect(holder, 1, x)
        return inner(x.sin(), holder, index) * 2

    return function


def caught(effect, raiser):
    def function(x, holder, index):
        effect(holder, 1, x)
        y = x.sin()
        try:
            effect(holder, 2, y)
            y = raiser(y, index)
            effect(holder, 3, y)
        except (Boom, IndexError):
            effect(holder, 4, y)
        return y * 2

    return function


def in_a_with(effect, raiser):
    class Around:
        def __init__(self, holder):
            self.holder = holder

        def __enter__(self):
            effect(self.holder, 5, torch.ones(1))

        def __exit__(self, *args):
            effect(self.holder, 6, torch.ones(1))

    def function(x, holder, index):
        with Around(holder):
            y = x.sin()
            effect(holder, 2, y)
            z = raiser(y, index)
        effect(holder, 3, z)
        return z * 2

    return function


SHAPES = [plain, in_a_callee, caught, in_a_with]


def outcome(function, raiser, raises, tracked):
    holder = Holder()
    x = torch.arange(1.0, 5.0).requires_grad_(tracked)
    index = torch.tensor([0, 9 if raises and raiser is by_index else 1])
    packs = []

    def pack(tensor):
        packs.append(tensor)
        if raises and raiser is by_saving and len(packs) == 2:
            raise Boom('pack')
        return tensor

    state['raises'] = raises and raiser in (by_custom_op, by_custom_op_in_place)
    try:
        if raiser is by_saving:
            with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
                result = function(x, holder, index)
        else:
            result = function(x, holder, index)
        result = result.detach()
    except (Boom, IndexError) as error:
        result = type(error)
    finally:
        state['raises'] = False
    return result, holder.seen(), len(packs)


def same(a, b):
    if isinstance(a, torch.Tensor):
        return torch.allclose(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


@pytest.mark.parametrize('tracked', [False, True])
@pytest.mark.parametrize('shape', SHAPES, ids=lambda shape: shape.__name__)
@pytest.mark.parametrize(
    'effect, raiser', list(itertools.product(EFFECTS, RAISERS)), ids=lambda function: function.__name__
)
def test_effects_are_those_before_the_error(effect, raiser, shape, tracked):
    if raiser is by_saving and not tracked:
        pytest.skip('nothing is saved')
    eager = shape(effect, raiser)
    compiled = smelt.compile(shape(effect, raiser))
    for raises in (False, False, True, False, True):
        expected = outcome(eager, raiser, raises, tracked)
        found = outcome(compiled, raiser, raises, tracked)
        assert same(found, expected), (raises, found, expected)


@pytest.mark.parametrize('tracked', [False, True])
@pytest.mark.parametrize('raiser', [by_custom_op, by_custom_op_in_place, by_index], ids=lambda raiser: raiser.__name__)
@pytest.mark.parametrize('order', list(itertools.product([False, True], repeat=3)))
def test_whether_an_op_fails_is_found_out_by_each_call(order, raiser, tracked):
    eager = caught(append, raiser)
    compiled = smelt.compile(caught(append, raiser))
    for raises in order + order:
        expected = outcome(eager, raiser, raises, tracked)
        found = outcome(compiled, raiser, raises, tracked)
        assert same(found, expected), (raises, found, expected)


@pytest.mark.parametrize('effect', EFFECTS, ids=lambda effect: effect.__name__)
def test_checkpoint_stops_early(effect):
    def function(x, holder):
        effect(holder, holder.count + 1, x)
        y = (x.sin() * 2).exp()
        effect(holder, holder.count + 2, y)
        return y * x

    compiled = smelt.compile(function)
    for _ in range(3):
        results = []
        for run in (function, compiled):
            holder = Holder()
            x = torch.arange(1.0, 5.0).requires_grad_()
            checkpoint(run, x, holder, use_reentrant=False).sum().backward()
            results.append((x.grad, holder.seen()))
        assert same(*results)


def test_statistics_are_those_of_eager_when_a_recomputation_stops():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.5), torch.nn.Tanh())
    other = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.5), torch.nn.Tanh())
    other.load_state_dict(model.state_dict())
    compiled = smelt.compile(other)
    for seed in range(3):
        for run in (model, compiled):
            torch.manual_seed(seed)
            x = torch.rand(8, 4, requires_grad=True)
            checkpoint(run, x, use_reentrant=False).sum().backward()
        assert same(dict(model.state_dict()), dict(other.state_dict()))
