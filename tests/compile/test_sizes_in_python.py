"""What Python does with sizes on their way from a shape to an op: lists of them, functions of them, tensors made of them, and
numbers that are sizes without being any tensor's."""
import functools
import math
import operator

import pytest
import torch
from torch import nn

import smelt

BACKENDS = ('eager', 'interpret', 'native')
STAYS = {'rollback': False}
SIZES = (4, 7, 9, 31, 5, 64, 3)


def agree(found, wanted):
    if isinstance(wanted, torch.Tensor):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
        assert found.stride() == wanted.stride()
    elif isinstance(wanted, (tuple, list)):
        assert type(found) is type(wanted) and len(found) == len(wanted)
        for one, other in zip(found, wanted):
            agree(one, other)
    else:
        assert found == wanted and type(found) is type(wanted)


def sweep(function, calls, limit=2, **settings):
    smelt.reset()
    compiled = smelt.compile(function, options=STAYS, **settings)
    for arguments in calls:
        agree(compiled(*arguments), function(*arguments))
    stats = smelt.stats()
    assert stats['segments'] <= limit, smelt.explain(compiled)(*calls[-1]).recompiles
    return stats


def rows(*sizes):
    return [(torch.randn(n, 8),) for n in sizes]


def stored(x):
    shape = list(x.shape)
    shape[-1] = 2
    shape[-2] += 0
    return x[:, :2].reshape(shape)


def inserted(x):
    shape = [x.shape[0], 8]
    shape.insert(0, 1)
    shape.insert(-1, 1)
    shape.insert(10, 1)
    return x.view(shape), shape


def put_among_constants(x):
    shape = [1] * 3
    shape[1], shape[2] = x.shape
    return x.view(shape)


def repeated(x):
    shape = [x.shape[0]] * 3
    shape[0] += 1
    shape[-2:] = [shape[0], 2]
    return torch.zeros(shape), shape


def turned(x):
    shape = list(x.shape)
    shape.reverse()
    return x.t().reshape(shape), x.view(shape[::-1]), list(reversed(x.shape))


def popped(x):
    shape = list(x.shape)
    last, first = shape.pop(), shape.pop(0)
    shape += [first, last // 2]
    shape.append(2)
    return x.view(shape), last


def deleted(x):
    shape = [*x.shape, 3, x.shape[0]]
    del shape[1]
    del shape[-1]
    return torch.zeros(shape), shape


def single_rows(x):
    n = x.shape[0]
    y = x.clone()
    y[n - 1] = 0.5
    y[n // 2] += x[n - 1] + x[-n]
    return y, x[n - 2], x[n // 2] * 2, x.t()[3], torch.numel(x)


def of_pairs(x):
    shapes = []
    for y in (x, x[1:], x[:, 1:]):
        shapes.append((y.shape[0], y.shape[1]))
    areas = torch.tensor([height * width for height, width in shapes])
    return torch.as_tensor(shapes), areas.cumsum(0), shapes


def numbered(x):
    for i, size in enumerate(x.shape):
        x = x.narrow(i, 0, size - 1)
    for i, size in reversed(list(enumerate(x.shape, 0))):
        x = x.narrow(i, 1, size - 1)
    return x, [(i, size) for i, size in enumerate(x.shape, 1)]


def products(x):
    return (x.view(math.prod(x.shape)), x.view(functools.reduce(operator.mul, x.shape)), x.new_zeros(x.shape.numel()),
            x.new_ones(math.prod(x.shape[:-1])), math.prod([x.shape[0], 0.5]))


def divided(x):
    halves, rest = divmod(x.shape[0], 2)
    return x[:halves], halves, rest, divmod(x.shape[0], 2.5)


def made_sizes(x):
    size = torch.Size([x.shape[0], 2])
    return torch.zeros(size), size, size.numel()


def tensors_of_sizes(x):
    rows, columns = x.shape
    return (torch.tensor(x.shape), torch.tensor([rows, 3]), torch.tensor([[rows, 3], [4, columns]], dtype=torch.float32),
            torch.as_tensor([rows / 2, 1.0]), torch.tensor([rows, 0.5]), torch.tensor(rows))


def scaled(x):
    """A size that Python has computed as a float."""
    count = int(x.shape[0] * 0.75)
    return x[:count].sum(0), torch.zeros(math.ceil(x.shape[0] / 2), count), torch.arange(round(x.shape[0] * 1.5))


def ranges(x):
    n = x.shape[0]
    return torch.arange(0.0, n), torch.arange(0, n, 2.0), torch.arange(n, 0.0, -1), torch.arange(1.0, n + 1, dtype=torch.float64)


def seeded(x):
    torch.manual_seed(3)
    state = torch.get_rng_state()
    noise = torch.rand(x.shape[0], 8)
    torch.set_rng_state(state)
    return x + noise, noise - torch.rand(x.shape[0], 8)


PROGRAMS = [single_rows, stored, inserted, put_among_constants, repeated, turned, popped, deleted, of_pairs, numbered, products, divided,
            made_sizes, tensors_of_sizes, ranges, seeded]


@pytest.mark.parametrize('backend', BACKENDS)
@pytest.mark.parametrize('program', PROGRAMS, ids=lambda program: program.__name__)
def test_two_programs_are_for_all_sizes(program, backend):
    sweep(program, rows(*(n for n in SIZES if program is not divided or n > 3)), limit=4 if program is divided else 2, backend=backend)


@pytest.mark.parametrize('backend', BACKENDS)
def test_a_size_of_a_float(backend):
    sweep(scaled, rows(8, 9, 12, 31, 5, 64), backend=backend)


def zeros_beside(x, n):
    return x + torch.zeros(n, 1)


def first(x, k):
    return x[:k].sum(0), x[-k:], x[1:k - 1], x.select(0, k)


def most(x, k):
    return x.topk(k, 0).values


def halved(x, k):
    return x.narrow(0, 0, k // 2), torch.arange(k)[:, None] * x[:1], x.new_ones([k, 2])


@pytest.mark.parametrize('backend', BACKENDS)
@pytest.mark.parametrize('program', [zeros_beside, first, most, halved], ids=lambda program: program.__name__)
def test_an_argument_that_is_a_size(program, backend):
    sizes = [(9, 9), (10, 10), (12, 12), (33, 33), (7, 7)] if program is zeros_beside else [(9, 4), (10, 5), (20, 12), (9, 5), (30, 7)]
    sweep(program, [(torch.randn(n, 8), k) for n, k in sizes], limit=3, backend=backend)


def test_an_argument_of_0_and_1():
    sweep(most, [(torch.randn(9, 8), k) for k in (4, 5, 1, 0, 7, 1, 0, 3)], limit=4)


def test_a_number_that_ops_compute_with_is_no_size():
    """Sizes 0 and 1 are programs of their own; other numbers are not."""
    sweep(lambda x, k: x * k + k, [(torch.randn(9, 8), k) for k in (4, 5, 1, 0, -3, 7)], limit=1)


@pytest.mark.parametrize('backend', BACKENDS)
@pytest.mark.parametrize('function', [
    lambda x, k: x[k] * 2,
    lambda x, k: x[x.shape[0] // 2 - k],
    lambda x, k: x.clone().__setitem__(k, 1.0),
    lambda x, k: x.__getitem__(x.shape[0] - k),
    lambda x, k: (lambda y: (y.__setitem__(x.shape[0] - k, 0.0), y))(x.clone()),
    lambda x, k: x[:, k] + x[x.shape[0] - 1, k],
], ids=range(6))
def test_places_that_there_are_for_some_sizes(function, backend):
    """And where there are none, it is the error of eager."""
    compiled = smelt.compile(function, options=STAYS, backend=backend)
    for n, k in ((4, 2), (7, 3), (9, 4), (9, -4), (5, 5), (3, 1), (4, 0), (6, -7), (8, 6), (8, 9), (6, 2)):
        (x,), = rows(n)
        try:
            wanted = function(x, k)
        except IndexError as error:
            with pytest.raises(IndexError) as found:
                compiled(x, k)
            assert str(found.value) == str(error)
        else:
            agree(compiled(x, k), wanted)


def test_what_an_argument_decides_is_compiled_for_each():
    def loop(x, k):
        for _ in range(k):
            x = x * 2
        return x.sum(k % 2)

    sweep(loop, [(torch.randn(9, 8), k) for k in (2, 3, 4, 2, 3, 4)], limit=3)


class Cache(nn.Module):
    """Keys at places that are counted."""

    def __init__(self):
        super().__init__()
        self.register_buffer('keys', torch.zeros(64, 8))
        self.used = 0

    def forward(self, x):
        self.keys[self.used:self.used + x.shape[0]] = x
        self.used += x.shape[0]
        return (self.keys[:self.used] @ x.t()).softmax(0)


def test_a_cache_that_is_filled():
    with torch.no_grad():
        ours, theirs = Cache(), Cache()
        compiled = smelt.compile(ours, options=STAYS)
        for n in (5, 1, 1, 1, 3, 2, 1, 1, 4, 1, 1):
            x = torch.randn(n, 8)
            torch.testing.assert_close(compiled(x), theirs(x))
        assert ours.used == theirs.used == 21
    assert smelt.stats()['segments'] <= 4, smelt.stats()


def test_many_relations_are_no_reason_to_fix_sizes():
    def function(x):
        for bound in (5, 10, 20, 40, 80):
            x = x + 1 if x.shape[0] > bound else x
        return x * 2

    sweep(function, rows(4, 7, 12, 25, 50, 90, 3, 8, 15, 30, 60, 100, 2, 6), limit=7)


def test_grad_mode_is_named_where_it_is_the_reason():
    compiled = smelt.compile(lambda x: x * 2)
    x = torch.randn(3)
    compiled(x)
    with torch.no_grad():
        compiled(x)
    assert any('grad' in line for line in smelt.explain(compiled)(x).recompiles)


@pytest.mark.parametrize('backend', BACKENDS)
@pytest.mark.parametrize('function', [
    lambda x: x[:, :5] * x[:, :5].stride(0),
    lambda x: x + 1 if x[:, :5].is_contiguous() else x + 2,
    lambda x: x.t() * x.t().stride()[1],
    lambda x: (x[:, :3].contiguous().stride(0) * x, str(x[:, :5].stride())),
], ids=range(4))
def test_strides_of_a_part_depend_on_sizes_that_it_has_not(function, backend):
    calls = [(torch.randn(n, m),) for n, m in ((5, 8), (7, 9), (9, 12), (7, 30), (12, 5), (4, 16), (7, 16))]
    sweep(function, calls, limit=8, backend=backend)


class Heads(nn.Module):
    """Sizes beside numbers that stay: attributes, globals, defaults."""

    heads = 2

    def __init__(self):
        super().__init__()
        self.part, self.settings = 4, {'groups': 2}

    def forward(self, x, times=2):
        batch = x.shape[0]
        split = x.view(batch * self.heads, self.part)
        groups = x.reshape(batch * self.settings['groups'], -1)
        return split.sum(1), groups, x.view(times * batch, -1), x[: batch - self.heads], torch.zeros(batch // self.heads, self.heads)


@pytest.mark.parametrize('backend', BACKENDS)
def test_sizes_beside_numbers_that_stay(backend):
    heads = Heads()
    sweep(heads, rows(*(n for n in SIZES if n > 4)), backend=backend)
    compiled = smelt.compile(heads, options=STAYS, backend=backend)
    for n in (5, 7, 9):
        (x,), = rows(n)
        agree(compiled(x), heads(x))
    heads.heads, heads.part = 4, 2  # noticed
    for n in (9, 12):
        (x,), = rows(n)
        agree(compiled(x), heads(x))
        agree(compiled(x, 4), heads(x, 4))
