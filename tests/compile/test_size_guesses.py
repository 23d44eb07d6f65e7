"""Sizes and numbers that whole numbers decide - what a mask selects, how many graphs a batch has, where to look in a
table - are taken for what they were: one graph, which checks them, and another one where they turn out otherwise."""

import copy

import pytest
import torch

import smelt


def selected(x, mask):
    return x[mask].sin() * 2


def selected_inside(x, mask):
    return x.t()[:, mask].cumsum(1)


def by_masked_select(x, mask):
    return x.masked_select(mask[:, None]) + 1


def places(x, mask):
    return mask.nonzero(), x[mask.nonzero().squeeze(1)] * 2


def places_by_where(x, mask):
    (rows,) = torch.where(mask)
    return rows, x.index_select(0, rows).exp()


def counted_by_shape(x, mask):
    return x * mask.nonzero().shape[0]


def pooled(x, mask):
    index = mask.long().cumsum(0)
    size = int(index.max()) + 1
    return torch.zeros(size, x.shape[1]).index_add_(0, index, x)


def looked_up(x, mask):
    return x[mask.sum() - 1] * 3


def repeated(x, mask):
    return x.repeat_interleave(mask.long() + 1, dim=0).tanh()


def distinct(x, mask):
    values, back = torch.unique(mask.long(), return_inverse=True)
    return x[: values.shape[0]] * 2, back


def histogram(x, mask):
    return x.sum() * torch.bincount(mask.long() * 2)


def nested_sizes(x, mask):
    kept = x[mask]
    pairs = kept[:, None] * kept[None]
    return pairs.sum(-1)


def by_a_scaled_mask(x, mask):
    scaled = (1.0 - mask.float()) * -1e4
    return x[scaled >= 0] * 2, (scaled < 0).any().item()


def flag_as_argument(x, mask):
    def layer(y, has_any):
        return y * 2 if has_any is True else y
    return layer(x, (mask.float() > 0.5).any().item())


def with_a_write(x, mask):
    x.add_(1)
    kept = x[mask]
    return kept * 2


def with_noise(x, mask):
    noise = torch.rand(2)
    kept = x[mask]
    return kept.sum() + noise


PROGRAMS = [selected, selected_inside, by_masked_select, places, places_by_where, counted_by_shape, pooled, looked_up,
            repeated, distinct, histogram, nested_sizes, by_a_scaled_mask, flag_as_argument, with_a_write,
            with_noise]


def mask_of(count, shift=0):
    return torch.roll(torch.arange(6) < count, shift)


def assert_same(program, compiled, x, mask):
    ours, theirs = x.clone(), x.clone()
    torch.manual_seed(3)
    expected = program(theirs, mask)
    after = torch.rand(1)
    torch.manual_seed(3)
    result = compiled(ours, mask)
    torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-6)
    assert torch.equal(torch.rand(1), after)
    torch.testing.assert_close(ours, theirs)
    flat = lambda found: found if isinstance(found, tuple) else (found,)
    for one, other in zip(flat(result), flat(expected)):
        if isinstance(other, torch.Tensor):
            assert one.stride() == other.stride()


@pytest.mark.parametrize('program', PROGRAMS, ids=lambda program: program.__name__)
def test_one_graph_while_sizes_stay(program):
    compiled = smelt.compile(program, fullgraph=True)
    for shift in range(4):
        assert_same(program, compiled, torch.randn(6, 3), mask_of(3, shift))
    assert smelt.stats()['segments'] == 1


@pytest.mark.parametrize('program', PROGRAMS, ids=lambda program: program.__name__)
def test_other_sizes_are_noticed(program):
    compiled = smelt.compile(program)
    for count in (3, 3, 4, 3, 1, 6, 4, 2, 2, 5, 6, 3):
        assert_same(program, compiled, torch.randn(6, 3), mask_of(count, count))


@pytest.mark.parametrize('program', [selected, places, selected_inside], ids=lambda program: program.__name__)
def test_nothing_is_selected(program):
    compiled = smelt.compile(program)
    for count in (0, 0, 2, 0, 2):
        assert_same(program, compiled, torch.randn(6, 3), mask_of(count))


@pytest.mark.parametrize('program', [selected, selected_inside, by_masked_select, pooled, repeated, nested_sizes],
                         ids=lambda program: program.__name__)
def test_gradients(program):
    compiled = smelt.compile(program)
    for count in (3, 3, 4, 3, 4, 4):
        x = torch.randn(6, 3)
        ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
        program(theirs, mask_of(count)).square().sum().backward()
        compiled(ours, mask_of(count)).square().sum().backward()
        torch.testing.assert_close(ours.grad, theirs.grad)


def test_sizes_that_never_stay():
    """Guesses that are wrong all the time are given up; results are right all along."""
    def program(x, mask):
        return x[mask].sum(0) * 2

    compiled = smelt.compile(program)
    for step in range(60):
        mask = torch.arange(40) < 1 + step % 40
        x = torch.randn(40, 3)
        torch.testing.assert_close(compiled(x, mask), program(x, mask))


def test_drawn_masks_are_not_guessed():
    def program(x):
        return x[torch.randint(0, 2, (6,)).bool()] * 2

    compiled = smelt.compile(program)
    for step in range(6):
        x = torch.randn(6, 3)
        torch.manual_seed(step)
        expected = program(x)
        torch.manual_seed(step)
        torch.testing.assert_close(compiled(x), expected)


def test_a_wrong_guess_leaves_no_trace():
    class Counting(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = torch.nn.BatchNorm1d(3)
            self.calls = 0

        def forward(self, x, mask):
            self.calls += 1
            y = self.norm(x)
            return y[mask].sum()

    model = Counting()
    reference = copy.deepcopy(model)
    compiled = smelt.compile(model)
    for count in (3, 3, 4, 2, 3, 5):
        x = torch.randn(6, 3)
        torch.testing.assert_close(compiled(x, mask_of(count)), reference(x, mask_of(count)))
    assert model.calls == reference.calls
    torch.testing.assert_close(dict(model.named_buffers()), dict(reference.named_buffers()))
