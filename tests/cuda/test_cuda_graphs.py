"""Compiled programs as CUDA graphs: equal to what is launched, fresh outputs, nothing that a caller holds is written."""
import copy
import gc

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import smelt
from smelt import _native

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason='needs CUDA')

CALLS = 9  # the fourth is captured, the fifth compared


@pytest.fixture(autouse=True)
def fresh():
    before = torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
    torch.manual_seed(0)
    smelt.reset()
    _native.forget_cuda_graphs()
    yield
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = before


def compiled(function):
    return smelt.compile(function, mode='reduce-overhead')


def assert_graphed(times=1):
    counts = _native.cuda_graphs()
    assert counts['captured'] >= 1 and counts['launched'] >= times, counts


def check(function, make, exact=True):
    """Bit-equal to the same program launched kernel by kernel, in every call, with all results of all calls alive; near eager."""
    run, launched, seen = compiled(function), smelt.compile(function), []
    with torch.no_grad():
        for _ in range(CALLS):
            inputs = make()
            seen.append((run(*inputs), launched(*inputs), function(*inputs)))
    torch.cuda.synchronize()
    assert_graphed(CALLS - 5)
    for call in seen:
        for a, one_by_one, b in zip(*(value if isinstance(value, tuple) else (value,) for value in call)):
            assert a.shape == b.shape and a.stride() == b.stride() and a.dtype == b.dtype
            assert not exact or torch.equal(a, one_by_one)
            assert torch.allclose(a, b, rtol=1e-2, atol=1e-2)
    assert len({a.data_ptr() for got, *_ in seen for a in (got if isinstance(got, tuple) else (got,))}) >= len(seen)


def randn(*sizes, **options):
    return torch.randn(*sizes, device='cuda', **options)


def test_a_pointwise_chain():
    check(lambda x: torch.tanh(x * 2 + 1) * x, lambda: [randn(512, 1024)])


def test_linear_and_gelu():
    linear = nn.Linear(256, 512).cuda().bfloat16()
    check(lambda x: F.gelu(linear(x)), lambda: [randn(64, 256, dtype=torch.bfloat16)])


@pytest.mark.parametrize('dtype', [torch.float32, torch.bfloat16])
def test_products(dtype):
    check(lambda x, y: torch.relu(x @ y).sum(-1), lambda: [randn(128, 64, dtype=dtype), randn(64, 96, dtype=dtype)])
    smelt.reset()
    check(lambda x, y: torch.bmm(x, y) + 1, lambda: [randn(8, 77, 65, dtype=dtype), randn(8, 65, 33, dtype=dtype)])


def test_a_channels_last_convolution():
    conv = nn.Conv2d(16, 32, 3, padding=1).cuda().to(memory_format=torch.channels_last)
    check(lambda x: F.relu(conv(x)), lambda: [randn(4, 16, 20, 20).to(memory_format=torch.channels_last)])


def test_attention():
    check(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True) * 2,
          lambda: [randn(2, 4, 64, 64, dtype=torch.bfloat16) for _ in range(3)])


def test_norm_and_softmax():
    check(lambda x: torch.softmax(F.layer_norm(x, (256,)), -1), lambda: [randn(64, 256)])


def test_several_results_and_views_of_them():
    check(lambda x: (x + 1, (x * 2).t(), (x * 3)[:, 1:]), lambda: [randn(32, 48)])


def test_reductions_sorts_and_indices():
    check(lambda x, i: (x.sort(-1)[0][i], x.cumsum(0).amax(1), x.topk(3)[1]),
          lambda: [randn(40, 50), torch.randint(0, 40, (7,), device='cuda')])


class Block(nn.Module):
    def __init__(self, dim=64, heads=4):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(self.norm1(x)).split(d, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d)
        x = x + self.out(y)
        return x + self.down(F.gelu(self.up(self.norm2(x))))


@pytest.mark.parametrize('dtype', [torch.float32, torch.bfloat16])
def test_a_small_gpt(dtype):
    model = nn.Sequential(*[Block() for _ in range(3)]).cuda().to(dtype).eval()
    check(model.forward, lambda: [randn(2, 32, 64, dtype=dtype)])


def test_a_small_resnet():
    def stage(i, o):
        return nn.Sequential(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU())
    model = nn.Sequential(stage(3, 16), stage(16, 16), nn.MaxPool2d(2), stage(16, 32), nn.AdaptiveAvgPool2d(1),
                          nn.Flatten(), nn.Linear(32, 10)).cuda().eval()
    check(model.forward, lambda: [randn(4, 3, 32, 32)])


def test_odd_addresses():
    base = randn(4096)
    run = compiled(lambda x: torch.relu(x * 2) + 1)
    for offset in [0] * 6 + [1, 2, 3, 4, 64, 128, 7, 0, 1, 0]:
        x = base[offset:offset + 1000]
        assert torch.equal(run(x), torch.relu(x * 2) + 1)
    assert_graphed()


def test_parameters_that_move():
    linear = nn.Linear(32, 32).cuda()
    run = compiled(lambda x: torch.relu(linear(x)))
    with torch.no_grad():
        for i in range(12):
            if i > 6:
                linear.weight.data = linear.weight.data.clone() * 1.5
            x = randn(8, 32)
            torch.testing.assert_close(run(x), torch.relu(linear(x)))
    assert_graphed()


def make_step(model, optimizer):
    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss
    return step


@pytest.mark.parametrize('make_optimizer, expected_graph', [
    (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), True), (lambda p: torch.optim.AdamW(p, lr=0.01, fused=True), True),
    (lambda p: torch.optim.Adam(p, lr=0.01, capturable=True), True), (lambda p: torch.optim.Adam(p, lr=0.01), True),
    (lambda p: torch.optim.AdamW(p, lr=0.01, foreach=False), False)],  # is launched yet, and says so
    ids=['sgd', 'adamw_fused', 'adam_capturable', 'adam', 'adamw_one_by_one'])
def test_a_whole_step(make_optimizer, expected_graph):
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 4)).cuda()
    model = copy.deepcopy(plain)
    expected = make_step(plain, make_optimizer(plain.parameters()))
    run = compiled(make_step(model, make_optimizer(model.parameters())))
    losses = []
    for i in range(14):
        x, y = randn(8, 16), torch.randint(0, 4, (8,), device='cuda')
        losses.append((run(x, y), expected(x, y)))
        for p, q in zip(model.parameters(), plain.parameters()):
            torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)
            torch.testing.assert_close(p.grad, q.grad, rtol=1e-5, atol=1e-6)
    for a, b in losses:
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
    if expected_graph:
        assert_graphed()
    else:
        assert _native.cuda_graphs()['reasons']


def test_a_rate_that_changes():
    def make(model):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        schedule, step = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20), make_step(model, optimizer)

        def run(x, y):
            loss = step(x, y)
            schedule.step()
            return loss
        return run
    torch.manual_seed(0)
    plain = nn.Linear(16, 4).cuda()
    model = copy.deepcopy(plain)
    expected, run = make(plain), compiled(make(model))
    for i in range(14):
        x, y = randn(8, 16), torch.randint(0, 4, (8,), device='cuda')
        torch.testing.assert_close(run(x, y), expected(x, y), rtol=1e-5, atol=1e-6)
        for p, q in zip(model.parameters(), plain.parameters()):
            torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)
    assert_graphed()


def test_gradients_of_a_graph_are_fresh():
    """What the caller has kept of one step is not written by the next."""
    model = nn.Linear(16, 4).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run, kept = compiled(make_step(model, optimizer)), []
    for _ in range(12):
        run(randn(8, 16), torch.randint(0, 4, (8,), device='cuda'))
        kept.append((model.weight.grad, model.weight.grad.clone()))
    assert_graphed()
    assert all(torch.equal(grad, copy) for grad, copy in kept)


def test_many_parameters_with_clipped_gradients():
    def make():
        torch.manual_seed(0)
        sizes = [(96, 80), (80,), (7, 33), (1,)] * 12
        parameters = [nn.Parameter(randn(*size)) for size in sizes]
        optimizer = torch.optim.AdamW(parameters, lr=0.01)

        def step(*grads):
            for parameter, grad in zip(parameters, grads):
                parameter.grad = grad.clone()
            nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
        return parameters, step
    (plain, expected), (parameters, step) = make(), make()
    step = compiled(step)
    for i in range(10):
        torch.manual_seed(i)
        grads = [torch.randn_like(p) for p in plain]
        step(*grads)
        expected(*grads)
        for p, q in zip(parameters, plain):
            torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)
            torch.testing.assert_close(p.grad, q.grad, rtol=1e-5, atol=1e-6)


def test_sums_in_any_order_beside_numbers():
    """Gradients of embeddings are rounded otherwise in each run; the optimizer's numbers are numbers of the graph."""
    torch.manual_seed(0)
    plain = nn.Sequential(nn.EmbeddingBag(40, 32, mode='sum'), nn.Linear(32, 1)).cuda()
    model = copy.deepcopy(plain)

    def make(model):
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

        def step(indices):
            optimizer.zero_grad()
            loss = model(indices).square().mean()
            loss.backward()
            optimizer.step()
            return loss
        return step
    run, expected = compiled(make(model)), make(plain)
    for _ in range(14):
        indices = torch.randint(0, 40, (4096, 4), device='cuda')
        torch.testing.assert_close(run(indices), expected(indices), rtol=1e-3, atol=1e-4)
    for p, q in zip(model.parameters(), plain.parameters()):
        torch.testing.assert_close(p, q, rtol=1e-2, atol=1e-3)
    assert_graphed()


@pytest.mark.parametrize('columns', [128, 32000])
def test_results_of_the_size_by_which_inputs_of_captures_move(columns):
    """Once a result of 64000 bytes was taken for one of a hundred inputs."""
    weights = [randn(8, 8) for _ in range(100)]
    head = randn(8, columns, dtype=torch.bfloat16)

    def f(x):
        for weight in weights:
            x = x + weight
        return x[:1].bfloat16() @ head
    check(f, lambda: [randn(8, 8)], exact=False)


def test_a_cache_that_is_changed_in_part():
    weight = randn(64, 64, dtype=torch.bfloat16)

    def step(cache, x, position):
        cache.index_copy_(1, position, x[:, None])
        return (cache @ weight).float().sum(1)
    run = compiled(step)
    cache, copy = (torch.zeros(2, 32, 64, device='cuda', dtype=torch.bfloat16) for _ in range(2))
    address = cache.data_ptr()
    with torch.no_grad():
        for i in range(12):
            x, position = randn(2, 64, dtype=torch.bfloat16), torch.tensor([i], device='cuda')
            torch.testing.assert_close(run(cache, x, position), step(copy, x, position), rtol=2e-2, atol=2e-1)
            assert torch.equal(cache, copy) and cache.data_ptr() == address
    assert_graphed()


def test_a_program_that_draws_gives_eagers_numbers():
    """Whether kernels of smelt's own draw them, in a graph, or PyTorch's, launched."""
    run = compiled(lambda x: F.dropout(x, 0.5) * 2)
    for seed in range(8):
        x = randn(64)
        torch.manual_seed(seed)
        expected, after = F.dropout(x, 0.5) * 2, torch.cuda.get_rng_state()
        torch.manual_seed(seed)
        assert torch.equal(run(x), expected) and torch.equal(torch.cuda.get_rng_state(), after)


def test_a_number_from_the_device_is_launched():
    run = compiled(lambda x: x * x.sum().item())
    for _ in range(8):
        x = randn(8)
        torch.testing.assert_close(run(x), x * x.sum().item())
    assert _native.cuda_graphs()['captured'] == 0


def test_a_capture_by_the_user():
    run = compiled(lambda x: torch.relu(x * 2) + 1)
    x = randn(64)
    for _ in range(8):
        run(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = run(x)
    x.copy_(randn(64))
    graph.replay()
    assert torch.equal(y, torch.relu(x * 2) + 1)


def test_another_stream():
    run = compiled(lambda x: torch.relu(x * 2) + 1)
    x = randn(64)
    for _ in range(8):
        run(x)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y = run(x)
    torch.cuda.synchronize()
    assert torch.equal(y, torch.relu(x * 2) + 1)


def test_reset_gives_memory_back():
    x = randn(1024, 1024)
    gc.collect()
    before = torch.cuda.memory_allocated()

    def use():
        run = compiled(lambda x: torch.softmax(x @ x, -1) @ x)
        for _ in range(8):
            run(x)
    use()
    assert_graphed()
    smelt.reset()
    gc.collect()
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() < before + (40 << 20)  # cuBLAS keeps a workspace for the stream of the capture


def test_a_mode_that_launches():
    run = smelt.compile(lambda x: torch.relu(x * 2).sum(-1) + 1, mode='max-autotune-no-cudagraphs')
    for _ in range(30):
        x = randn(64, 64)
        torch.testing.assert_close(run(x), torch.relu(x * 2).sum(-1) + 1)
    assert _native.cuda_graphs() == {'captured': 0, 'launched': 0, 'refused': 0, 'reasons': []}


# -- the mode "default": a graph where the clock says so

def many_small_kernels(x):
    for _ in range(12):
        x = torch.softmax(x @ x, -1)
    return x


def until_it_is_a_graph(attempt):
    """The clock decides, and other work on the device may get in between: one attempt of a few has to be captured."""
    for _ in range(5):
        smelt.reset()
        _native.forget_cuda_graphs()
        attempt()
        counts = _native.cuda_graphs()
        if counts['captured'] >= 1 and counts['launched'] >= 15:
            return
    pytest.fail(str(counts))


def launching(run, *args):
    """What explain says of how its programs are launched."""
    return '\n'.join(line for segment in smelt.explain(run)(*args).segments for line in segment.graph.splitlines()
                     if line.startswith('#'))


def test_by_default_what_the_host_is_slow_at_is_a_graph():
    def attempt():
        run, kept = smelt.compile(many_small_kernels), []
        for _ in range(40):
            x = randn(48, 48)
            y = run(x)
            torch.testing.assert_close(y, many_small_kernels(x))
            kept.append((y, y.clone()))
        assert all(torch.equal(y, copy) for y, copy in kept)
        text = launching(run, randn(48, 48))
        assert 'us against' in text or 'launched one by one' in text, text
    until_it_is_a_graph(attempt)


def test_by_default_what_the_device_is_slow_at_is_launched():
    x = randn(4096, 4096)
    run = smelt.compile(lambda x: torch.relu(x @ x @ x @ x) + 1)
    for _ in range(20):
        y = run(x)
    torch.testing.assert_close(y, torch.relu(x @ x @ x @ x) + 1, rtol=1e-3, atol=1e-1)
    counts = _native.cuda_graphs()
    assert counts['captured'] == 0 and 'the device is busy for longer' in counts['reasons'][0], counts
    assert 'the device is busy for longer' in launching(run, x)


def test_by_default_little_memory_is_taken_to_find_out():
    x = randn(1024, 1024, 128)  # half a gigabyte, of which little is read
    run = smelt.compile(lambda x: many_small_kernels(x[:48, :48, 0]))
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    for _ in range(12):
        run(x)
    assert torch.cuda.max_memory_allocated() - before < 64 << 20
    assert _native.cuda_graphs()['captured'] == 0


@pytest.mark.parametrize('whole', [False, True])
def test_by_default_training_is_equal(whole):
    def make():
        torch.manual_seed(0)
        model = nn.Sequential(*[nn.Sequential(nn.Linear(32, 32), nn.LayerNorm(32), nn.GELU()) for _ in range(6)], nn.Linear(32, 4)).cuda()
        return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def attempt():
        (plain, optimizer), (model, other) = make(), make()
        expected = make_step(plain, optimizer)
        step = smelt.compile(make_step(model, other)) if whole else make_step(smelt.compile(model), other)
        kept = []
        for _ in range(40):
            x, y = randn(8, 32), torch.randint(0, 4, (8,), device='cuda')
            loss = step(x, y)
            torch.testing.assert_close(loss, expected(x, y), rtol=1e-4, atol=1e-5)
            kept.append((loss, loss.clone(), model[0][0].weight.grad, model[0][0].weight.grad.clone()))
        for p, q in zip(model.parameters(), plain.parameters()):
            torch.testing.assert_close(p, q, rtol=1e-3, atol=1e-4)
        assert all(torch.equal(a, b) and torch.equal(c, d) for a, b, c, d in kept[:-1])
    until_it_is_a_graph(attempt)


def test_by_default_memory_of_graphs_is_bounded():
    gc.collect()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    runs = [smelt.compile(lambda x, k=k: many_small_kernels(x) * k) for k in range(10)]
    for run in runs:
        for _ in range(20):
            run(randn(256, 256))
    assert torch.cuda.memory_reserved() - before < 300 << 20


def test_a_capture_by_the_user_of_several_kernels():
    """They are joined in the second run, unless that is part of someone's capture."""
    weights = [randn(64, 64) for _ in range(4)]

    def f(x):
        return [torch.relu(x * w).sum(-1) for w in weights] + [(x - w).exp() for w in weights]
    run, x = compiled(f), randn(64, 64)
    with torch.no_grad():
        for _ in range(2):
            run(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = run(x)
        x.copy_(randn(64, 64))
        graph.replay()
        for a, b in zip(y, f(x)):
            torch.testing.assert_close(a, b)
