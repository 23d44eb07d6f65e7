"""functools.lru_cache around functions that give tensors and other objects: each call gets what the cache has."""
import functools

import torch

import smelt


class Positions(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = 2.0
        self.computed = 0

    @functools.lru_cache(maxsize=1)
    def grid(self, length, device=None):
        self.computed += 1
        return torch.arange(length, device=device) * self.scale, torch.ones(length)

    def forward(self, x):
        steps, ones = self.grid(x.shape[0], device=x.device)
        return (x * 2 + steps - ones) * 3


def test_one_graph_and_one_computation():
    model = Positions()
    compiled = smelt.compile(model, fullgraph=True)
    for _ in range(4):
        x = torch.randn(5)
        torch.testing.assert_close(compiled(x), (x * 2 + torch.arange(5.0) * 2 - 1) * 3)
    assert model.computed == 1
    assert smelt.stats()['recompiles'] == 0


def test_what_the_cache_has_lost_is_computed_again():
    model = Positions()
    compiled = smelt.compile(model, fullgraph=True)
    for i in range(10):
        x = torch.randn(3 + i % 2)
        torch.testing.assert_close(compiled(x), model.forward(x))
    assert smelt.stats()['recompiles'] == 1  # the other length, and no more
    model.scale = 7.0
    Positions.grid.cache_clear()
    for _ in range(2):
        torch.testing.assert_close(compiled(torch.zeros(3)), (torch.arange(3.0) * 7 - 1) * 3)
    assert smelt.stats()['recompiles'] == 1


def test_no_computation_for_arguments_that_are_not_asked_for():
    model = Positions()
    compiled = smelt.compile(model)
    for length in (3, 4, 3):
        compiled(torch.randn(length))
    before = model.computed
    for _ in range(3):
        compiled(torch.randn(3))
    assert model.computed == before


def test_the_very_tensor_and_changes_of_it():
    @functools.lru_cache
    def counter(length):
        return torch.zeros(length)

    @smelt.compile
    def step(x):
        total = counter(x.shape[0])
        total.add_(x)
        return total

    for i in range(1, 4):
        assert step(torch.ones(3)) is counter(3)
        assert counter(3).tolist() == [i] * 3


def test_another_kind_of_tensor():
    """The cache has a tensor of another dtype: that is a guard like any other."""
    dtype = torch.float32

    @functools.lru_cache
    def ones(length):
        return torch.ones(length, dtype=dtype)

    compiled = smelt.compile(lambda x: ones(x.shape[0]) / 3)
    for dtype in (torch.float32, torch.float64, torch.float32):
        ones.cache_clear()
        for _ in range(2):
            assert torch.equal(compiled(torch.zeros(2)), torch.ones(2, dtype=dtype) / 3)


def test_other_objects():
    class Table:
        def __init__(self, size):
            self.rows = [torch.full((2,), float(i)) for i in range(size)]

    @functools.lru_cache
    def table(size):
        return Table(size)

    compiled = smelt.compile(lambda x: x + table(3).rows[1], fullgraph=True)
    for _ in range(3):
        assert compiled(torch.zeros(2)).tolist() == [1, 1]
    table(3).rows[1] = torch.full((2,), 9.0)
    assert compiled(torch.zeros(2)).tolist() == [9, 9]


def test_one_that_raises():
    fails = False

    @functools.lru_cache
    def ones(length):
        if fails:
            raise KeyError(length)
        return torch.ones(length)

    compiled = smelt.compile(lambda x: x + ones(x.shape[0]))
    compiled(torch.zeros(2)), compiled(torch.zeros(2))
    fails = True
    ones.cache_clear()
    for _ in range(2):
        try:
            compiled(torch.zeros(2))
        except KeyError as error:
            assert error.args == (2,)
        else:
            raise AssertionError('no error')


def test_a_tensor_as_key():
    runs = []

    @functools.cache
    def doubled(t):
        runs.append(1)
        return t * 2

    def fn(x, t):
        return x + doubled(t)

    smelt.reset()
    compiled, key, other = smelt.compile(fn), torch.ones(3), torch.zeros(3)
    for t in (key, key, key, other, key, other):
        torch.testing.assert_close(compiled(torch.ones(2, 3), t), torch.ones(2, 3) + t * 2)
    assert len(runs) == 2 and smelt.stats()['graph_breaks'] == 0


def test_a_kept_tensor_gets_a_gradient():
    @functools.cache
    def mask(n):
        return torch.ones(n, n).tril()

    compiled, x = smelt.compile(lambda x: x @ mask(3), fullgraph=True), torch.ones(2, 3)
    for _ in range(3):
        torch.testing.assert_close(compiled(x), x @ mask(3))
    mask(3).mul_(2)
    torch.testing.assert_close(compiled(x), x @ mask(3))
    mask(3).requires_grad_()
    compiled(x).sum().backward()
    assert mask(3).grad is not None


def test_a_tensor_that_the_run_makes_as_key():
    """No cache has it, so the function is part of the graph."""
    class Positions:
        scale = 2.0

        @functools.lru_cache(maxsize=1)
        def of(self, size, mask):
            return mask.cumsum(0) * self.scale * size

    positions = Positions()

    def program(x):
        mask = x > 0
        return x + positions.of(3, mask)

    compiled = smelt.compile(program, fullgraph=True)
    for scale in (2.0, 2.0, 3.0, 2.0):
        positions.scale = scale
        x = torch.randn(4)
        torch.testing.assert_close(compiled(x), program(x))
    assert smelt.stats()['graph_breaks'] == 0
