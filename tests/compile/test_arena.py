"""Small results that only a program sees lie in one block of memory of the run."""
import threading

import generated
import pytest
import torch
from torch import nn

import smelt

pytestmark = pytest.mark.skipif(not generated.HAS_KERNELS, reason="built without LLVM")


def waves(x, w):
    """Results of kernels that calls read, one where another was."""
    for _ in range(3):
        x = torch.sin(x) @ w + torch.cos(x) @ w
    return x


def inputs(rows=48, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, 40, generator=generator), torch.randn(40, 40, generator=generator) / 8


def assert_like_eager(compiled, function, *args):
    for _ in range(3):
        torch.testing.assert_close(compiled(*args), function(*args))


def buffers_of(call):
    """The places that programs compiled in the call have in arenas."""
    before = smelt.stats()["arena_buffers"]
    call()
    return smelt.stats()["arena_buffers"] - before


@torch.no_grad()
def test_results_that_calls_read_lie_there():
    compiled = smelt.compile(waves)
    assert buffers_of(lambda: assert_like_eager(compiled, waves, *inputs())) >= 2
    graph = smelt.record(waves, *inputs(), backend="native")
    assert "arena of" in graph.program() and " at 0" in graph.program()


@torch.no_grad()
def test_what_is_returned_does_not():
    def returned(x, w):
        a, b = torch.sin(x), torch.cos(x)
        return a @ w, b @ w, a, b.t(), b[1:]

    compiled, x, w = smelt.compile(returned), *inputs()
    outputs = [compiled(x, w) for _ in range(3)]
    for _ in range(3):
        compiled(x + 1, w)
    for output in outputs:
        torch.testing.assert_close(output, returned(x, w))
    for tensor in outputs[2]:
        assert tensor.untyped_storage().nbytes() == x.nbytes


@torch.no_grad()
def test_sizes_that_change():
    compiled = smelt.compile(waves, dynamic=True)

    def calls():
        for rows in (48, 20, 48, 300, 3000, 20):
            assert_like_eager(compiled, waves, *inputs(rows))

    assert buffers_of(calls) >= 2


@torch.no_grad()
def test_threads_have_blocks_of_their_own():
    compiled = smelt.compile(waves)
    assert_like_eager(compiled, waves, *inputs())
    wrong = []

    def work(seed):
        with torch.no_grad():
            args = inputs(seed=seed)
            expected = waves(*args)
            for _ in range(200):
                if not torch.allclose(compiled(*args), expected, rtol=1e-4, atol=1e-4):
                    wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@torch.no_grad()
def test_a_run_that_fails_in_the_middle():
    def looked_up(x, w, places):
        x = waves(x, w)
        return waves(x[places] * 2, w)

    compiled, args = smelt.compile(looked_up), inputs()
    good, bad = torch.tensor([3, 1, 47] * 10), torch.tensor([3, 1, 48] * 10)
    for _ in range(3):
        torch.testing.assert_close(compiled(*args, good), looked_up(*args, good))
        with pytest.raises(IndexError):
            compiled(*args, bad)


@pytest.fixture
def library():
    made = torch.library.Library("smelt_test_arena", "DEF")
    yield made
    made._destroy()


@torch.no_grad()
def test_an_op_that_keeps_its_argument(library):
    kept = []
    library.define("keep(Tensor x) -> Tensor")

    def keep(x):
        kept.append((x, x.clone()))
        return x.clone()

    library.impl("keep", keep, "CPU")
    library.impl("keep", torch.empty_like, "Meta")

    def function(x, w):
        y = torch.ops.smelt_test_arena.keep(torch.sin(x))
        return torch.ops.smelt_test_arena.keep(waves(y, w))

    compiled = smelt.compile(function)
    for _ in range(4):
        compiled(*inputs())
    assert len(kept) >= 8
    for tensor, then in kept:
        assert torch.equal(tensor, then) and tensor.untyped_storage().nbytes() == tensor.nbytes


@torch.no_grad()
def test_a_run_inside_of_a_run(library):
    inner = smelt.compile(waves)
    _, w = inputs()
    library.define("run(Tensor x) -> Tensor")
    library.impl("run", lambda x: inner(x, w), "CPU")
    library.impl("run", torch.empty_like, "Meta")

    def outer(x, w):
        a, b = torch.sin(x), torch.cos(x)
        c = torch.ops.smelt_test_arena.run(x)
        return waves(a @ w + b @ w + c, w)

    compiled = smelt.compile(outer)
    for _ in range(3):
        x, w = inputs()
        expected = waves(torch.sin(x) @ w + torch.cos(x) @ w + waves(x, w), w)
        torch.testing.assert_close(compiled(x, w), expected)


def test_training_steps():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(40, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 5))
    x, y = torch.randn(16, 40), torch.randint(5, (16,))
    states = []
    for compile in (lambda f: f, smelt.compile):
        model = nn.Sequential(nn.Linear(40, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 5))
        model.load_state_dict(net.state_dict())
        optimizer = torch.optim.Adam(model.parameters(), fused=True)

        def step():
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss.detach()

        step = compile(step)
        before = smelt.stats()["arena_buffers"]
        losses = torch.stack([step() for _ in range(6)])
        states.append([losses, *model.parameters()])
    assert smelt.stats()["arena_buffers"] > before
    torch.testing.assert_close(*states, rtol=1e-4, atol=1e-5)
