"""The trace computes its call itself: machine code is made by the first call that runs it."""
import subprocess
import sys
import threading

import pytest
import torch
from torch import nn

import generated
import smelt

pytestmark = pytest.mark.skipif(not generated.HAS_KERNELS, reason='built without LLVM')


def made(capfd):
    return capfd.readouterr().err.count('by their first run')


@pytest.fixture
def perf():
    smelt.set_log('perf')
    yield
    smelt.set_log('')


def test_in_inference_by_the_second_call(capfd, perf):
    model = nn.Sequential(nn.Linear(7, 9), nn.GELU(), nn.Softmax(-1))
    compiled, x = smelt.compile(model), torch.randn(5, 7)
    with torch.no_grad():
        wanted = model(x)
        found = [compiled(x)]
        assert made(capfd) == 0 and smelt.stats()['kernels'] > 0
        found += [compiled(x)]
        assert made(capfd) == 1
        found += [compiled(x)]
        assert made(capfd) == 0
    for one in found:
        torch.testing.assert_close(one, wanted)


def test_forward_and_backward_by_theirs(capfd, perf):
    model = nn.Sequential(nn.Linear(7, 11), nn.GELU(), nn.Linear(11, 3), nn.Tanh())
    compiled, x = smelt.compile(model), torch.randn(5, 7)
    wanted = torch.autograd.grad(model(x).square().sum(), list(model.parameters()))
    seen = []
    for _ in range(3):
        result = compiled(x)
        seen.append(made(capfd))
        found = torch.autograd.grad(result.square().sum(), list(model.parameters()))
        seen.append(made(capfd))
        torch.testing.assert_close(found, wanted)
    assert seen == [0, 0, 1, 1, 0, 0]


def test_what_is_met_once_gets_none(capfd, perf):
    compiled = smelt.compile(lambda x, way: x.sin() * way if way in (1, 2, 3, 4, 5) else x, options={'rollback': False})
    for way in (1, 2, 3, 4, 5):
        assert torch.equal(compiled(torch.ones(3), way), torch.ones(3).sin() * way)
    assert made(capfd) == 0


def test_many_threads_run_it_for_the_first_time():
    x = torch.randn(6, 21)

    def function(x):
        return [(x * k).sigmoid().sum(-1).cos() + x.amax(1) for k in range(12)]

    for _ in range(5):
        smelt.reset()
        compiled = smelt.compile(function)
        wanted, found = function(x), [compiled(x)]
        barrier = threading.Barrier(6)

        def run():
            barrier.wait()
            found.append(compiled(x))

        threads = [threading.Thread(target=run) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 7
        for results in found:
            torch.testing.assert_close(results, wanted)


REPORT = """
import threading, time, torch, smelt
from smelt import _native
run = smelt.compile(lambda x, y: (torch.tanh(x) * 2, torch.exp(y) + 1), dynamic=True)
x, y = torch.randn(5, requires_grad=True), torch.randn(5, requires_grad=True)
for _ in range(3):
    sum(result.sum() for result in run(x, y)).backward()
compiles, main = threading.Event(), threading.get_ident()
def clock():  # written in Python: whoever asks for the time needs the GIL
    if threading.get_ident() != main:
        compiles.set()
        time.sleep(0.2)
    return time.perf_counter_ns()
_native.set_clock(clock)
part = run(x, y)[1]  # a backward of its own
backward = threading.Thread(target=lambda: part.sum().backward())
backward.start()
assert compiles.wait(30) and len(run._segments()) == 1
backward.join()
_native.set_clock(None)
"""


def test_a_report_waits_for_a_compiler_without_the_gil():
    found = subprocess.run([sys.executable, '-c', REPORT], capture_output=True, text=True, timeout=120, check=False)
    assert found.returncode == 0, found.stderr
