"""Tensors whose shape depends on contents may go from op to op: each run calls those ops on what it has, between graphs.
One of their sizes may be a number of the program. Where Python looks at the whole shape, the graph ends."""

import copy

import pytest
import torch

import smelt

from generated import HAS_KERNELS


class Experts(torch.nn.Module):
    def __init__(self, size=16, count=4):
        super().__init__()
        self.gate = torch.nn.Linear(size, count, bias=False)
        self.experts = torch.nn.ModuleList(
            torch.nn.Sequential(torch.nn.Linear(size, 2 * size), torch.nn.SiLU(), torch.nn.Linear(2 * size, size))
            for _ in range(count))
        self.norm = torch.nn.LayerNorm(size)


class ByWhere(Experts):
    def forward(self, x):
        x = self.norm(x)
        weight, chosen = torch.softmax(self.gate(x), -1).topk(2)
        weight = weight / weight.sum(-1, keepdim=True)
        out = torch.zeros_like(x)
        mask = torch.nn.functional.one_hot(chosen, len(self.experts)).permute(2, 1, 0)
        for number, expert in enumerate(self.experts):
            place, token = torch.where(mask[number])
            found = expert(x[None, token].reshape(-1, x.shape[-1])) * weight[token, place, None]
            out.index_add_(0, token, found)
        return self.norm(out * 2 + x).sin()


class ByMask(Experts):
    def forward(self, x):
        x = self.norm(x)
        chosen = self.gate(x).argmax(-1)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            mask = chosen == number
            out[mask] = expert(x[mask])
        return self.norm(out + x).cos() * 2


class ByNonzero(Experts):
    def forward(self, x):
        chosen = self.gate(x).argmax(-1)
        out = x * 2
        for number, expert in enumerate(self.experts):
            rows = (chosen == number).nonzero().squeeze(1)
            out = out.index_add(0, rows, expert(x.index_select(0, rows)))
        return self.norm(out).sin()


def has_any(mask):
    return mask.any()


def has_elements(mask):
    return mask.nonzero().numel() > 0


def has_rows(mask):
    return mask.nonzero().size(0) != 0


def has_shape(mask):
    return torch.where(mask)[0].shape[0] > 0


ASKED = [has_any, has_elements, has_rows, has_shape]


class Asking(Experts):
    """Calls an expert only if there is a token for it."""

    def __init__(self, asks, count=4):
        super().__init__(count=count)
        self.asks = asks

    def forward(self, x):
        x = self.norm(x)
        chosen = self.gate(x).argmax(-1)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            mask = chosen == number
            if self.asks(mask):
                out[mask] = expert(x[mask])
        return self.norm(out + x).cos() * 2


class Loss(Experts):
    def forward(self, x):
        x = self.norm(x)
        scores = self.gate(x)
        keep = scores.max(-1).values > 0.3
        labels = scores.argmin(-1)
        return torch.nn.functional.cross_entropy(scores[keep], labels[keep], reduction='sum') + x.sin().mean()


MODELS = [ByWhere, ByMask, ByNonzero, Loss]


@pytest.mark.parametrize('kind', MODELS)
def test_one_segment_whatever_is_selected(kind):
    model = kind()
    compiled = smelt.compile(model, fullgraph=True)
    with torch.no_grad():
        for _ in range(8):
            x = torch.randn(10, 16)
            torch.testing.assert_close(compiled(x), model(x))
    assert smelt.stats()['segments'] == 1 and smelt.stats()['graph_breaks'] == 0


@pytest.mark.parametrize('kind', MODELS)
def test_training(kind):
    model = kind()
    reference = copy.deepcopy(model)
    compiled = smelt.compile(model)
    for _ in range(6):
        x = torch.randn(10, 16)
        ours, theirs = compiled(x), reference(x)
        torch.testing.assert_close(ours, theirs)
        ours.square().sum().backward()
        theirs.square().sum().backward()
        for mine, other in zip(model.parameters(), reference.parameters()):
            assert (mine.grad is None) == (other.grad is None)
            if other.grad is not None:
                torch.testing.assert_close(mine.grad, other.grad, rtol=1e-4, atol=1e-5)
    assert smelt.stats()['segments'] == 1


@pytest.mark.parametrize('asks', ASKED)
def test_experts_that_get_tokens_are_one_graph(asks):
    model = Asking(asks)
    compiled = smelt.compile(model, fullgraph=True)
    with torch.no_grad():
        for _ in range(8):
            x = torch.randn(200, 16)
            torch.testing.assert_close(compiled(x), model(x))
    assert smelt.stats()['segments'] == 1 and smelt.stats()['graph_breaks'] == 0


@pytest.mark.parametrize('train', [False, True], ids=['eval', 'train'])
@pytest.mark.parametrize('asks', ASKED)
def test_experts_that_get_none_now_and_then(asks, train):
    model = Asking(asks, count=5)
    reference = copy.deepcopy(model)
    compiled = smelt.compile(model)
    for _ in range(30):
        x = torch.randn(6, 16)
        model.zero_grad()
        reference.zero_grad()
        with torch.set_grad_enabled(train):
            ours, theirs = compiled(x), reference(x)
        torch.testing.assert_close(ours, theirs)
        if not train:
            continue
        ours.square().sum().backward()
        theirs.square().sum().backward()
        for mine, other in zip(model.parameters(), reference.parameters()):
            assert (mine.grad is None) == (other.grad is None)
            if other.grad is not None:
                torch.testing.assert_close(mine.grad, other.grad, rtol=1e-4, atol=1e-5)
    assert smelt.stats()['segments'] < 40


@pytest.mark.parametrize('kind', [ByWhere, ByMask])
def test_what_stands_around_is_compiled(kind):
    model = kind().eval()
    compiled = smelt.compile(model)
    with torch.no_grad():
        compiled(torch.randn(10, 16))
    report = smelt.explain(compiled)(torch.randn(10, 16))
    if HAS_KERNELS:
        assert 'stage 3 of 3' in report.segments[0].graph


def selected_alone(x):
    return x[x > 0]


def chained(x):
    kept = x[x > 0]
    kept = torch.cat([kept, kept * 2]).unsqueeze(-1).expand(-1, 2)
    return kept.sort(0).values.sum(), (x > 0).nonzero()


def reduced(x):
    return x[x > 0].mean() + x[x < 0].max() + x.sum()


def stored(x):
    y = torch.zeros_like(x)
    y[x > 0] = x[x > 0] * 2
    y[(x < 0).nonzero(as_tuple=True)] = 5.0
    return y


def changed_in_place(x):
    kept = x[x > 0]
    kept.mul_(2)
    return kept


def rank_from_contents(x):
    return (x > 1.5).nonzero().squeeze() + 1


def looked_at(x):
    kept = x[x > 0]
    return kept.sum() / kept.shape[0]


def counted(x):
    kept = x[x > 0]
    return x * kept.numel() + kept.size(-1)


def rows_of_unknown_rank(x):
    kept = (x > 1.5).nonzero().squeeze()
    try:
        return x * kept.shape[0]
    except IndexError:
        return x


def looked_at_by_len(x):
    kept = x[x > 0]
    return x * len(kept)


def sliced(x):
    return x[x > 0][:4] * 2


def sliced_from(x):
    return x[x > 0][1:] * 2


def iterated(x):
    return sum(part for part in x[x > 0])


def split(x):
    return x[x > 0].split(2)


def last_dimension(x):
    return x.reshape(-1, 2)[x[::2] > 0][..., 0] + 1


def made_contiguous(x):
    return x.reshape(-1, 2)[x[::2] > 0].t().contiguous().view(-1)


def like_it(x):
    return torch.zeros_like(x[x > 0]) + 1


def drawn(x):
    return x[x > 0] + torch.rand_like(x[x > 0])


PROGRAMS = [selected_alone, chained, reduced, stored, changed_in_place, rank_from_contents, looked_at, looked_at_by_len,
            counted, rows_of_unknown_rank, sliced, sliced_from, iterated, split, last_dimension, made_contiguous, like_it, drawn]


@pytest.mark.parametrize('program', PROGRAMS, ids=lambda program: program.__name__)
def test_any_number_may_be_selected(program):
    compiled = smelt.compile(program)
    inputs = [torch.randn(12) for _ in range(4)]
    few = -torch.ones(12)
    few[[3, 4, 5, 6, 7]] = 2.0
    for count in (1, 4, 5):
        inputs.append(torch.where(torch.arange(12) < 3 + count, few, -torch.ones(12)))
    for step, x in enumerate(inputs + inputs):
        torch.manual_seed(step)
        expected = program(x)
        torch.manual_seed(step)
        result = compiled(x)
        torch.testing.assert_close(result, expected)
        one = result[0] if isinstance(result, tuple) else result
        other = expected[0] if isinstance(expected, tuple) else expected
        assert one.stride() == other.stride()


@pytest.mark.parametrize('program', [looked_at, counted], ids=lambda program: program.__name__)
def test_a_size_is_a_number_of_the_program(program):
    compiled = smelt.compile(program, fullgraph=True)
    for _ in range(4):
        x = torch.randn(12)
        torch.testing.assert_close(compiled(x), program(x))
    assert smelt.stats()['segments'] == 1


@pytest.mark.parametrize('program', [looked_at_by_len, iterated], ids=lambda program: program.__name__)
def test_looking_at_a_shape_is_a_break(program):
    report = smelt.explain(program)(torch.randn(12))
    assert [at.reason for at in report.breaks][0] == 'data_dependent'
