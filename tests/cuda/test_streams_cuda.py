"""Streams, threads of the host and memory that runs out, in the modes that launch and that make graphs."""
import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import smelt

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason='needs CUDA')

MODES = ['default', 'reduce-overhead']


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(0)
    smelt.reset()


def chain(x):
    for _ in range(6):
        x = torch.softmax(x @ x, -1)
    return x


@pytest.mark.parametrize('mode', MODES)
def test_streams_in_turn(mode):
    run, streams = smelt.compile(chain, mode=mode), [torch.cuda.Stream() for _ in range(3)]
    results = []
    for i in range(40):
        x = torch.randn(64, 64, device='cuda')
        stream = streams[i // 5 % 3]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            results.append((x, run(x)))
        torch.cuda.current_stream().wait_stream(stream)
    for x, y in results:
        torch.testing.assert_close(y, chain(x))


@pytest.mark.parametrize('mode', MODES)
@pytest.mark.parametrize('streams', [False, True], ids=['one stream', 'a stream each'])
def test_threads(mode, streams):
    run, wrong = smelt.compile(chain, mode=mode), []

    def work(seed):
        generator = torch.Generator('cuda').manual_seed(seed)
        with torch.cuda.stream(torch.cuda.Stream() if streams else torch.cuda.current_stream()):
            for _ in range(30):
                x = torch.randn(48, 48, device='cuda', generator=generator)
                got, expected = run(x), chain(x)
                torch.cuda.current_stream().synchronize()
                if not torch.allclose(got, expected, atol=1e-5):
                    wrong.append(seed)
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize('mode', MODES)
def test_a_training_on_a_side_stream(mode):
    def losses(compiled):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 4)).cuda()
        run = smelt.compile(model, mode=mode) if compiled else model
        optimizer, stream, seen = torch.optim.SGD(model.parameters(), lr=0.1), torch.cuda.Stream(), []
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(20):
                x, y = torch.randn(8, 16, device='cuda'), torch.randint(0, 4, (8,), device='cuda')
                optimizer.zero_grad()
                loss = F.cross_entropy(run(x), y)
                loss.backward()
                optimizer.step()
                seen.append(loss.detach())
        torch.cuda.synchronize()
        return torch.stack(seen)
    torch.testing.assert_close(losses(True), losses(False), rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason='needs two GPUs')
def test_two_devices():
    run = smelt.compile(chain)
    for i in range(20):
        x = torch.randn(32, 32, device=f'cuda:{i % 2}')
        torch.testing.assert_close(run(x), chain(x))


@pytest.mark.parametrize('mode', MODES)
def test_a_capture_of_a_whole_step(mode):
    """torch.cuda.graph around a compiled step, as PyTorch's documentation has it around a plain one."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(8, 16, device='cuda'), torch.randint(0, 4, (8,), device='cuda')

    @smelt.compile(mode=mode)
    def step(x, y):
        optimizer.zero_grad(set_to_none=False)
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(8):
            step(x, y)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step(x, y)
    seen = []
    for _ in range(5):
        graph.replay()
        seen.append(loss.item())
    assert all(a > b for a, b in zip(seen, seen[1:]))


@pytest.mark.parametrize('mode', MODES)
def test_memory_that_runs_out(mode):
    """The error is eager's, nothing is changed, and with room again it goes on; cached blocks are given back first."""
    def f(x):
        y = torch.exp(x) + 1
        return (y @ y).relu() * 2, torch.cat([y, y, y, y])
    run, x = smelt.compile(f, mode=mode), torch.randn(2048, 2048, device='cuda')
    expected = f(x)
    for _ in range(12):
        run(x)
    torch.cuda.synchronize()
    cached = torch.empty(1 << 30, dtype=torch.uint8, device='cuda')
    del cached  # it stays with PyTorch's allocator
    free, total = torch.cuda.mem_get_info()
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + (1 << 20)) / total)
    try:
        for got, wanted in zip(run(x), expected):  # in the place of the cached block
            torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-2)
        torch.cuda.empty_cache()
        torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_allocated() + (1 << 20)) / total)
        with pytest.raises(torch.OutOfMemoryError):
            run(x)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    for got, wanted in zip(run(x), expected):
        torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-2)


def test_code_in_the_background():
    run = smelt.compile(chain, options={'background': True})
    for _ in range(30):
        x = torch.randn(48, 48, device='cuda')
        torch.testing.assert_close(run(x), chain(x))
    smelt._native.background_wait()
    x = torch.randn(48, 48, device='cuda')
    torch.testing.assert_close(run(x), chain(x))
    assert smelt.stats()['ops_native'] > 0
