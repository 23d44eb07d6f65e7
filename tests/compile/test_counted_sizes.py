"""Sizes that contents decide - how many a mask selects, the largest index plus one - are guessed once. When a guess was
wrong, or where other sizes vary too, they are numbers of the program: another count is not another program."""
import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import generated
import smelt

BACKENDS = ('eager', 'interpret', 'native')
STAYS = {'rollback': False}


def selected(x, mask):
    kept = x[mask]
    return ((kept * 2).sin() + kept.mean(0)).exp().sum(1)


def selected_inside(x, mask):
    return (x.t()[:, mask].cumsum(1) * 2).sigmoid() + 1


def by_masked_select(x, mask):
    return ((x.masked_select(mask[:, None]) + 1).tanh() * 3).view(-1, x.shape[1]).softmax(0)


def places(x, mask):
    rows = mask.nonzero().squeeze(1)
    return rows, ((x[rows] * 2).sin() + 1) * 3


def places_by_where(x, mask):
    (rows,) = torch.where(mask)
    return rows, ((x.index_select(0, rows).exp() + 1) * 2).log()


def counted_by_shape(x, mask):
    kept = x[mask]
    return ((kept / kept.shape[0]).sin() + 1).sum() * 2


def viewed(x, mask):
    kept = x[mask]
    return (kept.view(kept.shape[0], 2, -1).transpose(0, 1) * 2).relu() - 1


def compared(x, mask):
    kept = x[mask]
    return (kept * 2).sin() + 1 if kept.shape[0] > 1 else kept - 1


def padded(x, mask):
    """What is selected, and as many zeros."""
    kept = x[mask]
    more = torch.cat([kept, torch.zeros(kept.shape[0], kept.shape[1])])
    return ((more + 1).exp() * 2).log() + torch.arange(2 * len(kept))[:, None]


def pooled(x, mask):
    index = mask.long().cumsum(0)
    size = int(index.max()) + 1
    sums = torch.zeros(size, x.shape[1]).index_add_(0, index, x)
    return ((sums + 1).tanh() * 2).softmax(1)


def sliced_to_the_longest(x, mask):
    longest = mask.sum().item()
    return ((x[:longest] * 2).sin() + 1).sum(1) * longest


def positions(x, mask):
    count = int(mask.sum())
    return ((x[mask] + torch.arange(count)[:, None]) * 2).cos() - 1


def repeated(x, mask):
    rows = x.repeat_interleave(mask.long() + 1, dim=0)
    return ((rows * 2).sin() + 1).sum(1) * rows.shape[0]


def repeated_flat(x, mask):
    places = torch.arange(mask.shape[0]).repeat_interleave(mask.long())
    return ((x[places] * 2).sin() + 1) * 3, torch.repeat_interleave(x, mask.long(), -2)


def distinct(x, mask):
    values, inverse = torch.unique(mask.long().cumsum(0), return_inverse=True)
    sums = torch.zeros(values.shape[0], x.shape[1]).index_add(0, inverse, x)
    return ((sums + 1).tanh() * 2).softmax(1), values * 2


def distinct_counted(x, mask):
    values, counts = (mask.long().cumsum(0) * 3).unique(return_counts=True)
    return (values / counts).sin() + x.sum()


PROGRAMS = [repeated, repeated_flat, distinct, distinct_counted, selected, selected_inside, by_masked_select, places, places_by_where, counted_by_shape, viewed, compared, padded,
            pooled, sliced_to_the_longest, positions]


def masks(counts, length=12):
    for count in counts:
        mask = torch.zeros(length, dtype=torch.bool)
        mask[torch.randperm(length)[:count]] = True
        yield mask


@pytest.mark.parametrize('backend', BACKENDS)
@pytest.mark.parametrize('program', PROGRAMS, ids=lambda program: program.__name__)
def test_another_count_is_no_other_program(program, backend):
    compiled = smelt.compile(program, backend=backend, fullgraph=True, options=STAYS)
    for mask in masks([5, 7, 3, 9, 4, 11, 6, 2, 8, 5, 10, 7]):
        x = torch.randn(12, 4)
        torch.testing.assert_close(compiled(x, mask), program(x, mask))
    assert smelt.stats()['segments'] <= 2, smelt.stats()


@pytest.mark.parametrize('backend', BACKENDS)
@pytest.mark.parametrize('program', PROGRAMS, ids=lambda program: program.__name__)
def test_with_other_sizes(program, backend):
    """Batches of other lengths, each with another mask."""
    compiled = smelt.compile(program, backend=backend, options=STAYS)
    for length, count in [(12, 5), (9, 4), (16, 7), (21, 9), (8, 3), (30, 17), (11, 6), (14, 12), (6, 2)]:
        (mask,) = masks([count], length)
        x = torch.randn(length, 4)
        torch.testing.assert_close(compiled(x, mask), program(x, mask))
    assert smelt.stats()['segments'] <= 3, smelt.stats()


@pytest.mark.parametrize('backend', BACKENDS)
@pytest.mark.parametrize('program', PROGRAMS, ids=lambda program: program.__name__)
def test_none_and_one(program, backend):
    compiled = smelt.compile(program, backend=backend, options=STAYS)
    for mask in masks([5, 7, 1, 0, 3, 1, 0, 6, 12, 1, 0, 5]):
        x = torch.randn(12, 4)
        try:
            expected = program(x, mask)
        except Exception as error:
            with pytest.raises(type(error)):
                compiled(x, mask)
        else:
            torch.testing.assert_close(compiled(x, mask), expected, equal_nan=True)


TRAINED = [repeated, selected, selected_inside, by_masked_select, counted_by_shape, viewed, padded, pooled, sliced_to_the_longest, positions]


@pytest.mark.parametrize('program', TRAINED, ids=lambda program: program.__name__)
def test_training(program):
    layer = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4))
    twin = copy.deepcopy(layer)

    def run(layer, x, mask):
        return program(layer(x), mask).square().mean()

    compiled = smelt.compile(run, options=STAYS)
    for mask in masks([5, 7, 3, 9, 4, 11, 6, 2, 8]):
        x = torch.randn(12, 4)
        losses = [call(model, x, mask) for call, model in ((compiled, twin), (run, layer))]
        torch.testing.assert_close(*losses)
        for loss, model in zip(losses, (twin, layer)):
            model.zero_grad()
            loss.backward()
        for p, q in zip(layer.parameters(), twin.parameters()):
            torch.testing.assert_close(q.grad, p.grad, rtol=1e-4, atol=1e-6)
    assert smelt.stats()['segments'] <= 2, smelt.stats()


@pytest.mark.skipif(not generated.HAS_KERNELS, reason='built without LLVM')
@pytest.mark.parametrize('program', [selected, repeated, counted_by_shape], ids=lambda program: program.__name__)
def test_calls_are_not_left_to_python(program):
    """Which gives the same results where a run fails."""
    compiled = smelt.compile(program, options=STAYS)
    for turn, mask in enumerate(masks([5, 7, 3, 9, 4, 11])):
        x, before = torch.randn(12, 4), smelt.stats()['runs']
        torch.testing.assert_close(compiled(x, mask), program(x, mask))
        if turn > 1:
            stages = max(segment['graph'].count('# stage ') for segment in compiled._segments())
            assert stages > 1 and smelt.stats()['runs'] == before + stages


class Tagger(nn.Module):
    """A loss over the tokens that have a label, as BERT's for masked words."""

    def __init__(self):
        super().__init__()
        self.words, self.inner, self.head = nn.Embedding(20, 8), nn.Linear(8, 8), nn.Linear(8, 20)

    def forward(self, tokens, labels):
        hidden = F.gelu(self.inner(self.words(tokens)))
        chosen = labels >= 0
        return F.cross_entropy(self.head(hidden[chosen]), labels[chosen])


def test_a_loss_over_some_tokens():
    model = Tagger()
    twin = copy.deepcopy(model)
    compiled = smelt.compile(twin, options=STAYS)
    for _ in range(8):
        tokens = torch.randint(20, (4, 10))
        labels = torch.where(torch.rand(4, 10) < 0.5, tokens, -1)
        labels[0, :2] = 3
        for used, owner in ((compiled, twin), (model, model)):
            owner.zero_grad()
            used(tokens, labels).backward()
        for p, q in zip(model.parameters(), twin.parameters()):
            torch.testing.assert_close(q.grad, p.grad, rtol=1e-4, atol=1e-6)
    assert smelt.stats()['segments'] <= 2, smelt.stats()


def test_a_wrong_count_changes_nothing():
    """Effects come last: a run that turns out to be none has not counted."""

    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer('seen', torch.zeros(()))

        def forward(self, x, mask):
            kept = x[mask]
            self.seen += 1
            return ((kept.view(kept.shape[0] // 2, 2, -1) if kept.shape[0] % 2 == 0 else kept) * 2).sin()

    counter, plain = Counter(), Counter()
    compiled = smelt.compile(counter, options=STAYS)
    for mask in masks([4, 6, 3, 8, 5, 1, 7, 10, 9, 1, 4]):
        x = torch.randn(12, 4)
        torch.testing.assert_close(compiled(x, mask), plain(x, mask))
        assert counter.seen == plain.seen
