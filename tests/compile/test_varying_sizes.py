"""Sizes that change from call to call: a dimension that has changed once is a number of the program from then on."""
import copy
import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import smelt

BACKENDS = ('eager', 'interpret', 'native')
SIZES = (4, 7, 9, 31, 5, 64, 3)


def rows(*sizes):
    return [(torch.randn(n, 16),) for n in sizes]


def agree(found, wanted):
    if isinstance(wanted, torch.Tensor):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5, equal_nan=True)
        assert found.stride() == wanted.stride()
    elif isinstance(wanted, (tuple, list)):
        assert type(found) is type(wanted) and len(found) == len(wanted)
        for one, other in zip(found, wanted):
            agree(one, other)
    else:
        assert found == wanted and type(found) is type(wanted)


def run(function, calls, **settings):
    smelt.reset()
    compiled = smelt.compile(function, **settings)
    for arguments in calls:
        agree(compiled(*arguments), function(*arguments))
    return smelt.stats()


class Holder:
    sizes = None


holder = Holder()


def stores_a_size(x):
    holder.sizes = x.shape
    return x * holder.sizes[0]


def pads(x):
    return F.pad(x, (1, 2, 3, 0)).sum(0)


def masks(x):
    n = x.shape[0]
    return (x @ x.t()).masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), 0.0)


def in_place(x):
    y = x.clone()
    y[1:] += x[:-1]
    y[:, : x.shape[1] // 2] *= 2
    return y


# Each is for all sizes from 2 on by its second program.
ONE_PROGRAM = {
    'pointwise': lambda x: torch.tanh(x) * 2 + 1,
    'sum': lambda x: x.sum(0) + x.sum(),
    'shape': lambda x: x.view(x.shape[0], 4, 4).sum(-1) / x.shape[0],
    'size': lambda x: x.reshape(x.size(0) * 2, x.size(-1) // 2),
    'unpacked': lambda x: (lambda rows, columns: x.reshape(rows * columns))(*x.shape),
    'minus_one': lambda x: x.view(-1, 8).amax(1),
    'arange': lambda x: x + torch.arange(x.size(0))[:, None],
    'zeros': lambda x: torch.zeros(x.shape[0], 3) + x[:, :3],
    'of_an_op': lambda x: (lambda y: y.view(y.shape[0] // 2, -1))(torch.cat([x, x])),
    'len': lambda x: x * len(x),
    'numel': lambda x: x.sum() / x.numel(),
    'chunks_of_a_fixed_one': lambda x: torch.stack(x.chunk(4, 1)),
    'expand': lambda x: x[None].expand(3, *x.shape).reshape(-1, x.shape[-1]),
    'returns_sizes': lambda x: (x * 2, x.shape, x.shape[0] + 1, list(x.shape), x.shape[1:], x.shape + (3,)),
    'new': lambda x: x.new_ones(x.shape) + x,
    'softmax': lambda x: x.softmax(0),
    'norm': lambda x: F.layer_norm(x, (16,)),
    'last': lambda x: x[-1] + x[0],
    'scaled': lambda x: x * x.shape[0] ** -0.5,
    'gather': lambda x: x[torch.arange(x.shape[0]).flip(0)],
    'tail': lambda x: x[1:],
    'transposed': lambda x: (x.t() @ x).relu(),
    'repeat': lambda x: x.repeat(2, 1),
    'equal_shapes': lambda x: x + 1 if x.shape == torch.relu(x).shape else x - 1,
    'stored': stores_a_size,
    'pads': pads,
    'masks': masks,
    'in_place': in_place,
    'item': lambda x: x.mean().item() + x.shape[0],
    'cumsum': lambda x: x.cumsum(0),
    'max': lambda x: x.max(0),
    'sort': lambda x: x.sort(0).values,
    'split_rows': lambda x: torch.cat([x[:1], x[1:] * 2]),
}


@pytest.mark.parametrize('backend', BACKENDS)
@pytest.mark.parametrize('name', ONE_PROGRAM)
def test_two_programs_are_for_all_sizes(name, backend):
    stats = run(ONE_PROGRAM[name], rows(*SIZES, *SIZES), backend=backend)
    assert stats['segments'] <= 2, smelt.stats()


@pytest.mark.parametrize('backend', BACKENDS)
@pytest.mark.parametrize('name', ONE_PROGRAM)
def test_dynamic_from_the_first_call(name, backend):
    stats = run(ONE_PROGRAM[name], rows(*SIZES), backend=backend, dynamic=True)
    assert stats['segments'] == 1 and stats['recompiles'] == 0


def test_never_dynamic():
    stats = run(torch.tanh, rows(4, 5, 6), dynamic=False, options={'recompile_limit': 8})
    assert stats['segments'] == 3


@pytest.mark.parametrize('backend', BACKENDS)
def test_zero_and_one_are_programs_of_their_own(backend):
    stats = run(lambda x: x.sum(0) * x.shape[0] + x.mean(), rows(4, 7, 1, 0, 9, 1, 0, 5, 2), backend=backend)
    assert stats['segments'] <= 4


@pytest.mark.parametrize('backend', BACKENDS)
def test_relations_between_sizes(backend):
    """What the first sizes have in common is no law."""
    sizes = [(4, 4), (5, 5), (6, 7), (7, 6), (8, 8), (3, 9), (2, 5)]
    calls = [(torch.randn(n, 16), torch.randn(m, 16)) for n, m in sizes]
    stats = run(lambda x, y: torch.cat([x, y]).mean(0) * x.shape[0], calls, backend=backend)
    assert stats['segments'] <= 3


@pytest.mark.parametrize('backend', BACKENDS)
@pytest.mark.parametrize('function', [
    lambda x: x + 1 if x.shape[0] > 8 else x - 1,
    lambda x: x * 2 if x.shape[0] % 2 == 0 else x * 3,
    lambda x: x[:5] * 2,
    lambda x: x[: x.shape[0] - 2].sum(0),
    lambda x: torch.cat([x, x]) if len(x) < 10 else x,
    lambda x: x.view(x.shape[0] // 2, 2, 16).sum(1) if x.shape[0] % 2 == 0 else x,
    lambda x: max(x.shape) * x,
    lambda x: x.squeeze(),
    lambda x: x if x.is_contiguous() else x + 1,
    lambda x: x * x.stride(0),
], ids=range(10))
def test_branches_on_sizes(function, backend):
    run(function, rows(4, 7, 9, 31, 2, 64, 3, 12, 5, 8, 9, 10, 16, 17, 4, 7), backend=backend)


@pytest.mark.parametrize('backend', BACKENDS)
@pytest.mark.parametrize('function', [
    lambda x: sum(row.sum() for row in x),
    lambda x: torch.stack([x[i] * i for i in range(x.shape[0])]),
    lambda x: torch.stack(x.unbind(0)).sum(0),
    lambda x: torch.stack(x.split(2)[:-1]) if x.shape[0] > 4 else x,
    lambda x: x.tolist(),
    lambda x: x[x > 0],
    lambda x: x.nonzero().shape,
    lambda x: str(x.shape),
    lambda x: {x.shape[0]: x}[x.shape[0]],
    lambda x: x * x.nbytes,
], ids=range(10))
def test_what_pins_a_size_is_right(function, backend):
    run(function, rows(4, 7, 9, 4, 7, 9, 3, 2, 5), backend=backend)


def fills_a_list(x):
    sizes = [None, None]
    for i in range(2):
        if sizes[i] is None:
            sizes[i] = x.size(i)
        elif sizes[i] != x.size(i):
            raise ValueError
    return x.new_ones(sizes[0], 16) + x * sizes[-2]


def puts_others_in_its_place(x):
    sizes = [x.shape[0], 3, x.shape[0] * 2]
    sizes[-1] = sizes[0] + 1
    sizes[0], sizes[1] = 5, sizes[2]
    return x * sizes[0] + sizes[1], sizes


def sorts_it(x):
    sizes = [7, 7, 7]
    sizes[1] = x.shape[0]
    sizes.sort()
    return x * sizes[0], sizes


def keeps_them_in(x, kept=[1, 2]):
    kept[0] = x.shape[0]
    return x * kept[0], list(kept)


@pytest.mark.parametrize('backend', BACKENDS)
@pytest.mark.parametrize('function, programs', [(fills_a_list, 2), (puts_others_in_its_place, 2), (sorts_it, 8), (keeps_them_in, 8)])
def test_sizes_put_into_lists(function, programs, backend):
    assert run(function, rows(4, 7, 9, 31, 5), backend=backend, options={'rollback': False})['segments'] <= programs


KINDS = [name for name in dir(torch.Tensor)
         if name.startswith('is_') and not callable(getattr(torch.Tensor, name)) and name != 'is_leaf']


@pytest.mark.parametrize('field', ['dtype', 'device', 'layout', 'requires_grad', 'itemsize', *KINDS])
def test_what_kind_of_tensor_it_is_pins_nothing(field):
    def function(x):
        y = x.transpose(0, 1)
        return y * 2 if getattr(x, field) == getattr(y, field) else y

    assert run(function, rows(4, 7, 9, 31))['segments'] == 2


def test_a_broken_relation_names_the_user_s_line():
    smelt.reset()

    @smelt.compile
    def function(x):
        return x + 1 if x.shape[0] > 8 else x - 1

    for n in (4, 7, 9):
        function(torch.randn(n, 4))
    assert any('x.shape[0] > 8' in line for line in smelt.explain(function)(torch.randn(9, 4)).recompiles)


class Attention(nn.Module):
    def __init__(self, width=32, heads=4):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.heads = heads

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm(x)).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(50, 32), nn.Embedding(128, 32)
        self.layers, self.head = nn.Sequential(Attention(), Attention()), nn.Linear(32, 50)

    def forward(self, tokens):
        return self.head(self.layers(self.words(tokens) + self.places(torch.arange(tokens.shape[1]))))


class Pictures(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.second, self.head = nn.Conv2d(8, 8, 3, stride=2, padding=1), nn.Linear(8, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.second(F.relu(self.norm(self.first(x))))), 2)
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


class Graphs(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 16), nn.Linear(16, 4)])

    def forward(self, x, edges):
        for layer in self.layers:
            h = layer(x)
            x = torch.zeros(x.shape[0], h.shape[1]).index_add(0, edges[1], h[edges[0]]).relu()
        return x


class Encoder(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.words, self.head = nn.Embedding(50, width), nn.Linear(width, 50)
        layer = nn.TransformerEncoderLayer(width, 4, 64, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, tokens, is_padding=None):
        return self.head(self.layers(self.words(tokens), src_key_padding_mask=is_padding))


MODELS = {
    'encoder': (Encoder, lambda n: (torch.randint(50, (2, n)),)),
    'padded': (Encoder, lambda n: (torch.randint(50, (2, n)), torch.arange(n).expand(2, n) >= n - 1)),
    'mlp': (lambda: nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Dropout(0.0), nn.Linear(32, 4)), lambda n: (torch.randn(n, 16),)),
    'lengths': (Tokens, lambda n: (torch.randint(50, (2, n)),)),
    'batches': (Tokens, lambda n: (torch.randint(50, (n, 12)),)),
    'both': (Tokens, lambda n: (torch.randint(50, (n, 2 * n)),)),
    'pictures': (Pictures, lambda n: (torch.randn(n, 3, 16, 16),)),
    'extents': (Pictures, lambda n: (torch.randn(2, 3, 8 * n, 8 * n + 8),)),
    'edges': (Graphs, lambda n: (torch.randn(10, 8), torch.randint(10, (2, 3 * n)))),
}
MODEL_SIZES = (4, 5, 6, 2, 11, 3, 8)


@pytest.mark.parametrize('name', MODELS)
def test_models_in_inference(name):
    make, arguments = MODELS[name]
    smelt.reset()
    model = make().eval()
    compiled = smelt.compile(copy.deepcopy(model))
    with torch.no_grad():
        for n in MODEL_SIZES:
            given = arguments(n)
            torch.testing.assert_close(compiled(*given), model(*given), rtol=1e-4, atol=1e-5)
    assert smelt.stats()['segments'] <= 2 and smelt.stats()['graph_breaks'] == 0


@pytest.mark.parametrize('name', MODELS)
def test_models_in_training(name):
    make, arguments = MODELS[name]
    smelt.reset()
    model = make()
    twin = copy.deepcopy(model)
    compiled = smelt.compile(twin)
    for n in MODEL_SIZES:
        given = arguments(n)
        for used, parameters in ((model, model), (compiled, twin)):
            parameters.zero_grad()
            used(*given).square().mean().backward()
        for p, q in zip(model.parameters(), twin.parameters()):
            torch.testing.assert_close(q.grad, p.grad, rtol=1e-3, atol=1e-5)
        for p, q in zip(model.buffers(), twin.buffers()):
            torch.testing.assert_close(q, p, rtol=1e-4, atol=1e-5)
    assert smelt.stats()['segments'] <= 2


def test_a_whole_step_with_a_smaller_last_batch():
    smelt.reset()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    twin = copy.deepcopy(model)

    def make_step(model):
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

        def step(x, y):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        return step

    plain, compiled = make_step(model), smelt.compile(make_step(twin))
    for _ in range(3):
        for n in (8, 8, 8, 5, 3):
            x, y = torch.randn(n, 16), torch.randint(4, (n,))
            torch.testing.assert_close(compiled(x, y), plain(x, y), rtol=1e-4, atol=1e-5)
    for p, q in zip(model.parameters(), twin.parameters()):
        torch.testing.assert_close(q, p, rtol=1e-3, atol=1e-5)


def test_autocast():
    layer = nn.Linear(16, 8)

    def function(x):
        with torch.autocast('cpu', torch.bfloat16):
            return layer(x).relu() * x.shape[0]

    with torch.no_grad():
        smelt.reset()
        compiled = smelt.compile(function)
        for (x,) in rows(*SIZES):
            torch.testing.assert_close(compiled(x), function(x))
    assert smelt.stats()['segments'] <= 2


def test_a_cache_that_grows():
    """As generate() has it: keys of earlier calls are joined with the new one."""
    layer = nn.Linear(8, 8)

    def step(x, past):
        keys = torch.cat([past, layer(x)], 1)
        return (x @ keys.transpose(1, 2)).softmax(-1) @ keys, keys

    smelt.reset()
    compiled = smelt.compile(step)
    with torch.no_grad():
        ours = eager = torch.randn(2, 3, 8)
        for _ in range(12):
            x = torch.randn(2, 1, 8)
            found, ours = compiled(x, ours)
            wanted, eager = step(x, eager)
            torch.testing.assert_close(found, wanted)
            torch.testing.assert_close(ours, eager)
    assert smelt.stats()['segments'] == 2


def test_marks():
    smelt.reset()
    compiled = smelt.compile(torch.tanh)
    x = torch.randn(4, 8)
    smelt.mark_dynamic(x, 0)
    compiled(x)
    assert smelt.stats()['segments'] == 1
    for n in (9, 5):
        y = torch.randn(n, 8)
        agree(compiled(y), torch.tanh(y))
    assert smelt.stats()['segments'] == 1


def test_a_range_of_sizes():
    smelt.reset()
    compiled = smelt.compile(torch.tanh)
    x = torch.randn(40, 8)
    smelt.mark_dynamic(x, 0, min=2, max=32, name='batch')
    agree(compiled(x), torch.tanh(x))  # it is not in the range: compiled for this size
    y = torch.randn(40, 8)
    agree(compiled(y), torch.tanh(y))
    assert smelt.stats()['segments'] == 1


def test_marks_of_torch():
    smelt.reset()
    compiled = smelt.compile(torch.tanh)
    x = torch.randn(4, 8)
    x._dynamo_dynamic_indices = {0}
    agree(compiled(x), torch.tanh(x))
    y = torch.randn(7, 8)
    agree(compiled(y), torch.tanh(y))
    assert smelt.stats()['segments'] == 1


def test_marked_as_static():
    smelt.reset()
    compiled = smelt.compile(torch.tanh, dynamic=True)
    for n in (4, 5):
        x = torch.randn(n, 8)
        smelt.mark_static(x, 0)
        agree(compiled(x), torch.tanh(x))
    assert smelt.stats()['segments'] == 2


def test_a_wrong_mark():
    with pytest.raises(smelt.ArgumentError, match='no dimension 3'):
        smelt.mark_dynamic(torch.ones(2, 2), 3)
    with pytest.raises(smelt.ArgumentError, match='takes a tensor'):
        smelt.mark_dynamic([1], 0)
    with pytest.raises(smelt.OptionError, match='min and max'):
        smelt.mark_dynamic(torch.ones(2, 2), 0, min=8, max=4)


def test_threads_with_sizes_of_their_own():
    compiled = smelt.compile(lambda x: (x.view(x.shape[0] * 2, -1).tanh() * x.shape[0]).sum(1))
    plain = lambda x: (x.view(x.shape[0] * 2, -1).tanh() * x.shape[0]).sum(1)  # noqa: E731
    wrong = []

    def work(n):
        for k in range(60):
            x = torch.randn(2 + (n * 7 + k) % 30, 16)
            if not torch.allclose(compiled(x), plain(x), rtol=1e-5, atol=1e-5):
                wrong.append(x.shape)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize('backend', BACKENDS)
def test_stages(backend):
    """Outputs that are computed from each other: each stage is for all sizes."""
    first, second = nn.Linear(4, 8), nn.Linear(8, 8)

    def function(x):
        hidden = (first(x).relu() * 2 + 1).tanh()
        scores = second(hidden).sigmoid() * 3
        return hidden, (scores + hidden).sum(1)

    compiled = smelt.compile(function, backend=backend, options={'rollback': False})
    for n in (4, 5, 6, 9, 3, 17):
        x = torch.randn(n, 4)
        found, wanted = compiled(x), function(x)
        agree(found, wanted)
        gradients = [torch.autograd.grad(scores.sum() + hidden.square().sum(), list(first.parameters()))
                     for hidden, scores in (found, wanted)]
        agree(*gradients)
    assert smelt.stats()['segments'] <= 2


def fixing(compiled, *sizes):
    for n in sizes:
        compiled(torch.randn(n, 4))
    return smelt.explain(compiled)(torch.randn(sizes[-1], 4))


def unrolls(x):
    total = 0
    for i in range(x.shape[0]):
        total = total + x[i]
    return total


def splits(x):
    return torch.stack(x.split(2)[:2])


def decides(x):
    return x * 2 if x.shape[0] == 5 else x


@pytest.mark.parametrize('function, why', [
    (unrolls, 'a loop over it, which is unrolled'), (splits, 'aten::split'), (decides, 'a comparison')])
def test_what_fixes_a_size_is_named(function, why):
    report = fixing(smelt.compile(function), 4, 5, 7)
    line = function.__code__.co_firstlineno
    assert any(f'x.shape[0] is fixed by {why}' in text and any(f'{__name__}.py:{line + k}' in text for k in range(4))
               for text in report.fixed_sizes), report.fixed_sizes
    assert 'sizes that are fixed' in str(report)


def test_parity_fixes_nothing():
    compiled = smelt.compile(lambda x: x.view(x.shape[0] // 2, 2, 4) if x.shape[0] % 2 == 0 else x)
    report = fixing(compiled, 4, 5, 8, 7)
    assert report.fixed_sizes == []
    assert any('% 2) == 0): was' in line and 'asked at' in line for line in report.recompiles), report.recompiles


@pytest.mark.parametrize('function', [unrolls, splits, decides])
def test_a_marked_size_that_is_fixed_is_an_error(function):
    compiled = smelt.compile(function)
    for _ in range(2):  # each call that would compile it
        x = torch.randn(5, 4)
        smelt.mark_dynamic(x, 0, name='rows')
        with pytest.raises(smelt.SizeError, match=r'rows is fixed by .*test_varying_sizes.py:\d+.*smelt.mark_static'):
            compiled(x)
    y = torch.randn(5, 4)
    smelt.mark_dynamic(y, 0)
    smelt.mark_static(y, 0)
    agree(compiled(y), function(y))
    agree(compiled(torch.randn(6, 4)).shape, function(torch.randn(6, 4)).shape)


def test_a_mark_has_a_name():
    compiled = smelt.compile(lambda x: x * 2 if x.shape[0] > 3 else x)
    x = torch.randn(5, 4)
    smelt.mark_dynamic(x, 0, name='rows')
    compiled(x)
    compiled(torch.randn(2, 4))
    report = smelt.explain(compiled)(x)
    assert any('(rows > 3)' in line for segment in report.segments for line in segment.guard_lines)
    assert any('(rows > 3): was true, is false, asked at' in line for line in report.recompiles)


def test_a_limit_of_one_program():
    """The program for all sizes is none of the variants that the limit is about."""
    stats = run(lambda x: torch.tanh(x) * 2, rows(4, 5, 6, 9, 31, 3), options={'recompile_limit': 1})
    assert stats['segments'] == 2 and stats['recompiles'] == 1


@pytest.mark.parametrize('backend', BACKENDS)
@pytest.mark.parametrize('factor', [2, 0.5, 1.5, 0.75, 1 / 3, 0.3, 2.7])
@pytest.mark.parametrize('mode', ['nearest', 'bilinear'])
def test_interpolation_by_any_factor(mode, factor, backend):
    call = lambda x: F.interpolate(x, scale_factor=factor, mode=mode)  # noqa: E731
    stats = run(call, [(torch.randn(1, 2, n, n + 2),) for n in (20, 21, 22, 35, 40, 50)], backend=backend)
    assert stats['segments'] <= 2


@pytest.mark.parametrize('backend', BACKENDS)
def test_interpolation_to_any_size(backend):
    call = lambda x, y: F.interpolate(x, size=y.shape[-2:], mode='bilinear', align_corners=False)  # noqa: E731
    stats = run(call, [(torch.randn(1, 2, n, n + 2), torch.randn(1, 1, 3 * n, n + 5)) for n in (20, 21, 22, 35, 40, 50)],
                backend=backend)
    assert stats['segments'] <= 3


@pytest.mark.parametrize('kind', [nn.RNN, nn.GRU, nn.LSTM])
@pytest.mark.parametrize('train', [False, True])
def test_recurrent_layers(kind, train):
    layer = kind(4, 6, num_layers=2, bidirectional=True).train(train)

    def function(x):
        with torch.set_grad_enabled(train):
            return layer(x)[0]

    batches, lengths = ([(torch.randn(*shape(n)),) for n in (3, 4, 7, 2, 9)] for shape in (lambda n: (5, n, 4), lambda n: (n, 3, 4)))
    for calls in (batches, lengths) if kind is nn.LSTM else (batches,):
        run(function, calls, options={'rollback': False})
        assert smelt.stats()['segments'] <= 2


def test_ten_thousand_sizes_leak_nothing():
    def function(x):
        return (x.view(x.shape[0] * 2, -1).tanh() * x.shape[0]).sum(1)

    compiled = smelt.compile(function)

    def resident():
        with open('/proc/self/statm') as file:
            return int(file.read().split()[1]) * 4096

    with torch.no_grad():
        for n in range(2, 2002):
            compiled(torch.ones(n, 4))
        before = resident()
        for n in range(2002, 12002):
            compiled(torch.ones(n % 3000 + 2, 4))
        assert resident() - before < 8 << 20
    assert smelt.stats()['segments'] == 2


@pytest.mark.parametrize('factor', [2, 0.5, 1.3, (2, 0.7)])
@pytest.mark.parametrize('mode, settings', [('area', {}), ('bilinear', {'recompute_scale_factor': True})])
def test_interpolation_to_what_python_computes(mode, settings, factor):
    sizes = ((8, 12), (9, 12), (10, 13), (31, 17), (12, 24))
    calls = [(torch.randn(1, 2, *size),) for size in sizes]
    stats = run(lambda x: F.interpolate(x, scale_factor=factor, mode=mode, **settings), calls, options={'rollback': False})
    assert stats['segments'] <= 3


def test_experts_of_a_mixture():
    weights = torch.randn(3, 16, 8)

    def function(x, chosen):
        order = chosen.argsort()
        ends = torch.histc(chosen.float(), 3, 0, 2).cumsum(0).int()
        return torch._grouped_mm(x[order], weights, ends) * x.shape[0]

    calls = [(torch.randn(n, 16), torch.randint(3, (n,))) for n in (6, 7, 9, 30, 5)]
    assert run(function, calls, options={'rollback': False})['segments'] <= 2


def test_a_layer_says_nothing_that_eager_does_not_say(capfd):
    """Sizes are followed beside what is computed, and what PyTorch warns of there is nobody's concern."""
    layer = nn.LSTM(4, 4)
    compiled = smelt.compile(layer, options={'rollback': False})
    with torch.no_grad():
        for n in (3, 4, 5, 6):
            x = torch.randn(n, 2, 4)
            torch.testing.assert_close(compiled(x)[0], layer(x)[0], rtol=1e-4, atol=1e-5)
    assert 'symbolic' not in capfd.readouterr().err
