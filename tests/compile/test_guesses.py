"""Branches on tensors of whole numbers - masks, positions, tokens - are taken for what they were: one graph, which checks
them, and another one where they turn out otherwise."""

import pytest
import torch

import smelt

from generated import HAS_KERNELS


def masked(x, mask):
    if (mask == 1).all():
        return x * 2
    return x * mask


def padded(x, tokens):
    if 0 in tokens[:, [-1, 0]]:
        return x + 1
    return x * 2


def packed(x, positions):
    jumps = (torch.diff(positions, prepend=positions[:1] - 1) != 1).cumsum(-1)
    if jumps[-1] == 0:
        return x.sum()
    return x * jumps


def written(x, counts):
    x.add_(1)
    if counts.any():
        x.mul_(2)
    counts.add_(1)
    if (counts > 2).all():
        return x - 1
    return x + counts


def checked(x, tokens):
    if tokens.max() >= 10:
        raise ValueError(f'{tokens.max().item()} is no token')
    return x * tokens.sum()


NOT_REWRITTEN = {}  # as pytest does with assert statements of test modules
exec("""
def asserted(x, factors):
    y = x * 2
    assert factors[0] * 1.0 == 3, 'the first one is to be 3'
    return y * factors.sum()
""", NOT_REWRITTEN)
asserted = NOT_REWRITTEN['asserted']


def raised(x, factors):
    scaled = x.sum() * factors[0]
    if not scaled > 0:
        raise ValueError(f'{factors.tolist()} is not positive, {len(factors)} long')
    return x * scaled


CASES = {masked: ([1, 1, 1, 1], [1, 0, 1, 1]), padded: ([[1, 2], [3, 4]], [[0, 1], [1, 1]]),
         packed: ([0, 1, 2, 3], [0, 1, 0, 1]), written: ([0, 0, 0, 0], [5, 5, 5, 5], [1, 1, 1, 1]),
         checked: ([1, 2, 3], [1, 20, 3]), asserted: ([3, 4], [2, 5]), raised: ([3, 4], [-2, 5])}


def outcome(fn, values):
    x, numbers = torch.arange(4.0), torch.tensor(values)
    try:
        result = fn(x, numbers)
    except (AssertionError, ValueError) as error:
        result = str(error)
    return [t.tolist() if isinstance(t, torch.Tensor) else t for t in (result, x, numbers)]


@pytest.fixture
def without_gradients():
    smelt.reset()
    with torch.no_grad():
        yield


@pytest.mark.parametrize('fn', CASES)
def test_what_stays_the_same_is_one_graph(fn, without_gradients):
    compiled = smelt.compile(fn)
    for _ in range(4):
        assert outcome(compiled, CASES[fn][0]) == outcome(fn, CASES[fn][0])
    assert smelt.stats()['graph_breaks'] == 0
    assert smelt.stats()['graphs'] == 1


@pytest.mark.parametrize('fn', CASES)
@pytest.mark.parametrize('order', ['01', '0001', '0011', '012', '00000000001'])
def test_what_changes_is_noticed(fn, order, without_gradients):
    compiled = smelt.compile(fn)
    for _ in range(6):
        for which in order:
            values = CASES[fn][int(which) % len(CASES[fn])]
            assert outcome(compiled, values) == outcome(fn, values)


def test_a_loop_is_not_rolled_out(without_gradients):
    def count_down(x, n):
        while (n > 0).any():
            n, x = n - 1, x * 1.5
        return x

    compiled = smelt.compile(count_down)
    for n in (100, 100, 3, 50, 100, 0):
        assert outcome(compiled, [n] * 4) == outcome(count_down, [n] * 4)
    assert smelt.stats()['graph_breaks'] > 0


@pytest.mark.skipif(not HAS_KERNELS, reason='without kernels, code that takes part in autograd is left to the log')
@pytest.mark.parametrize('order', ['0000', '0100', '0001101'])
def test_a_forward_pass_of_training_is_one_graph(order):
    smelt.reset()
    compiled = smelt.compile(masked)
    for which in order:
        mask = torch.tensor(CASES[masked][int(which)])
        x, y = (torch.arange(4.0, requires_grad=True) for _ in range(2))
        compiled(x, mask).sum().backward()
        masked(y, mask).sum().backward()
        assert x.grad.tolist() == y.grad.tolist()
    assert smelt.stats()['graph_breaks'] == 0
    assert smelt.stats()['ops_fallback'] == 0


class Counting(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))
        self.register_buffer('steps', torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        y = x * self.weight if self.steps < 3 else x * self.weight * 2
        self.steps.add_(1)
        return y


@pytest.mark.skipif(not HAS_KERNELS, reason='without kernels, code that takes part in autograd is left to the log')
def test_what_was_decided_is_not_asked_again_by_a_second_derivative():
    # The backward of create_graph=True computes the forward anew, where the counter has moved on.
    smelt.reset()
    plain, model = Counting(), Counting()
    compiled = smelt.compile(model)
    for _ in range(7):
        for run, owner in ((plain, plain), (compiled, model)):
            owner.zero_grad()
            gradient, = torch.autograd.grad(run(torch.arange(3.0)).pow(2).sum(), owner.weight, create_graph=True)
            gradient.sum().backward()
        assert torch.equal(plain.weight.grad, model.weight.grad) and plain.steps == model.steps
    assert smelt.stats()['graph_breaks'] == 0


def test_gradients_that_were_dropped_come_back_with_a_wrong_guess():
    smelt.reset()

    def step(weight, mask):
        weight.grad = None
        return masked(weight * 3, mask).sum()

    compiled = smelt.compile(step)
    for which in '00010110':
        mask = torch.tensor(CASES[masked][int(which)])
        weights = [torch.arange(4.0, requires_grad=True) for _ in range(2)]
        for weight, fn in zip(weights, (step, compiled)):
            weight.grad = torch.ones(4)
            fn(weight, mask).backward()
        assert weights[0].grad.tolist() == weights[1].grad.tolist()


def test_hooks_on_saved_tensors_see_no_run_that_is_none():
    smelt.reset()
    compiled = smelt.compile(masked)

    def packed_by(fn, mask):
        seen = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: seen.append(t.shape) or t, lambda t: t):
            x = torch.arange(4.0, requires_grad=True)
            fn(x, mask).sum().backward()
        return seen, x.grad.tolist()

    for which in '000101':
        mask = torch.tensor(CASES[masked][int(which)])
        assert packed_by(compiled, mask) == packed_by(masked, mask)


def test_a_whole_step_is_one_graph():
    smelt.reset()
    weight = torch.ones(4, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)

    @smelt.compile
    def step(x, mask):
        optimizer.zero_grad()
        loss = masked(x * weight, mask).sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    ones, some = torch.ones(4, dtype=torch.int64), torch.tensor([1, 0, 1, 1])
    for mask in (ones, ones, ones, some, ones, some):
        before = weight.detach().clone()
        step(torch.ones(4), mask)
        gradient = 2.0 * mask if mask is ones else 1.0 * mask
        torch.testing.assert_close(weight.detach(), before - 0.1 * gradient)
    assert smelt.stats()['graph_breaks'] == 0


def test_a_tensor_that_has_no_truth():
    """No guess is made about it: the error is that of bool(), not of item()."""
    def function(x):
        if x:
            return x + 1
        return x

    compiled = smelt.compile(function)
    for _ in range(3):
        for x in (torch.ones(2, 3, dtype=torch.int64), torch.ones(0, dtype=torch.bool)):
            with pytest.raises(RuntimeError) as expected:
                function(x)
            with pytest.raises(RuntimeError) as raised:
                compiled(x)
            assert str(raised.value) == str(expected.value)


def full(x, mask):
    if mask.sum() == mask.numel():
        return x * 2
    return x * mask


def test_numbers_that_are_equal_are_guessed_to_stay_so():
    compiled = smelt.compile(full)
    x, ones, some = torch.arange(4.0), torch.ones(4), torch.tensor([1.0, 0.0, 1.0, 1.0])
    for mask in (ones, ones, some, ones, some, some):
        torch.testing.assert_close(compiled(x, mask), full(x, mask))
    assert smelt.explain(full)(x, ones).break_count == 0


def test_a_shuffled_mask_is_as_full_as_the_mask():
    def function(x):
        mask = torch.ones(6, dtype=torch.long)
        chosen = torch.multinomial(torch.ones(6), 6)
        if mask[chosen].all():
            return x[chosen] * 2
        return x

    x = torch.arange(6.0)
    compiled = smelt.compile(function, fullgraph=True)
    for seed in range(4):
        torch.manual_seed(seed)
        wanted = function(x)
        torch.manual_seed(seed)
        torch.testing.assert_close(compiled(x), wanted)
    assert smelt.stats()['graph_breaks'] == 0


@pytest.mark.parametrize('nested', [False, True], ids=['alone', 'nested'])
def test_a_loop_until_nothing_is_left_is_not_rolled_out(nested):
    def halve(x):
        while (x > 1).any():
            x = x / 2 + x.sin() * 0.01
        return x * 3

    def function(x):
        return halve(x.abs()) + 1 if nested else halve(x)

    compiled = smelt.compile(function)
    for i in range(20):
        x = torch.randn(5) * 3 ** (i % 7)
        torch.testing.assert_close(compiled(x), function(x))
    assert smelt.stats()['segments'] < 25
