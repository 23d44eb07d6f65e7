"""options={'background': True}: calls run PyTorch's kernels until code is there, and never wait for a compiler."""
import contextlib
import copy
import os
import pathlib
import subprocess
import sys
import threading
import time

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import smelt
from smelt import _native

HERE = pathlib.Path(__file__).parent


def compiled(function, **options):
    return smelt.compile(function, options={'background': True, **options})


@contextlib.contextmanager
def no_code():
    """Compilers are held up meanwhile: who waits for one would wait for ever."""
    _native.background_hold()
    try:
        yield
    finally:
        _native.background_let_go(False)
        _native.background_wait()


def native_ops():
    return smelt.stats()['ops_native']


def chain(x):
    return torch.tanh(x * 2 + 1).sum(-1) * 3


@pytest.mark.parametrize('backend', ['native', 'interpret'])
def test_calls_do_not_wait(backend):
    run = smelt.compile(chain, backend=backend, options={'background': True})
    inputs = [torch.randn(40, 50) for _ in range(6)]
    with no_code():
        for x in inputs:
            assert torch.equal(run(x), chain(x))  # PyTorch's kernels, bit for bit
        assert _native.background_pending() == 1 and native_ops() == 0
    assert _native.background_pending() == 0 and native_ops() >= 4
    for x in inputs:
        torch.testing.assert_close(run(x), chain(x))
    assert smelt.stats()['segments'] == 1


def test_it_is_off_by_default():
    run = smelt.compile(chain)
    with no_code():
        run(torch.randn(4, 5))
        assert _native.background_pending() == 0 and native_ops() >= 4


def make_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 4))


def batch(i):
    generator = torch.Generator().manual_seed(i)
    return torch.randn(8, 16, generator=generator), torch.randint(0, 4, (8,), generator=generator)


@pytest.mark.parametrize('whole', [False, True])
def test_training_goes_from_one_to_the_other(whole):
    """In the middle of a training, and between a forward and its backward."""
    plain, model = make_model(), make_model()

    def make_step(model, call, optimizer):
        def step(x, y):
            optimizer.zero_grad()
            loss = F.cross_entropy(call(x), y)
            loss.backward()
            optimizer.step()
            return loss.detach()
        return step
    expected = make_step(plain, plain, torch.optim.AdamW(plain.parameters(), lr=0.01))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    step = compiled(make_step(model, model, optimizer)) if whole else make_step(model, compiled(model), optimizer)

    def compare(numbers):
        for i in numbers:
            torch.testing.assert_close(step(*batch(i)), expected(*batch(i)), rtol=1e-4, atol=1e-5)
            for p, q in zip(model.parameters(), plain.parameters()):
                torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-5)
    with no_code():
        compare(range(4))
        assert native_ops() == 0
    assert native_ops() > 0
    compare(range(4, 8))


def test_code_comes_between_a_forward_and_its_backward():
    model = make_model()
    run = compiled(model)
    x, y = batch(0)
    with no_code():
        loss = F.cross_entropy(run(x), y)
    loss.backward()
    expected = copy.deepcopy(model)
    expected.zero_grad()
    F.cross_entropy(expected(x), y).backward()
    for p, q in zip(model.parameters(), expected.parameters()):
        torch.testing.assert_close(p.grad, q.grad)


def test_gradients_of_some_results_do_not_wait():
    def f(x):
        return torch.tanh(x) * 2, torch.exp(x) + 1
    run, x = compiled(f), torch.randn(5, requires_grad=True)
    run(x)
    _native.background_wait()
    for _ in range(2):
        with no_code():
            grads = torch.autograd.grad(run(x)[1].sum(), x)
            assert _native.background_pending() <= 1
        torch.testing.assert_close(grads[0], torch.exp(x))
    torch.testing.assert_close(torch.autograd.grad(run(x)[1].sum(), x)[0], torch.exp(x))


def test_what_is_changed_in_place():
    def f(x, y):
        x.mul_(2)
        return x + y
    run = compiled(f)
    with no_code():
        for _ in range(3):
            x, y = torch.ones(4), torch.randn(4)
            assert torch.equal(run(x, y), 2 + y) and torch.equal(x, torch.full((4,), 2.0))
    x, y = torch.ones(4), torch.randn(4)
    torch.testing.assert_close(run(x, y), 2 + y)
    assert torch.equal(x, torch.full((4,), 2.0))


def test_a_break_and_numbers():
    def f(x, scale):
        x = x * scale
        if x.sum().item() > 0:
            return torch.relu(x) + 1
        return torch.relu(-x) - 1
    run = compiled(f)
    with no_code():
        for i in range(5):
            x = torch.randn(10) + (-1) ** i
            torch.testing.assert_close(run(x, i + 1.0), f(x, i + 1.0))
    for i in range(5):
        x = torch.randn(10) + (-1) ** i
        torch.testing.assert_close(run(x, i + 1.0), f(x, i + 1.0))


def test_sizes_that_change():
    run = compiled(chain)
    with no_code():
        for rows in (4, 5, 6, 7):
            x = torch.randn(rows, 8)
            torch.testing.assert_close(run(x), chain(x))
        assert smelt.stats()['segments'] == 2
    for rows in (4, 9, 30):
        x = torch.randn(rows, 8)
        torch.testing.assert_close(run(x), chain(x))
    assert smelt.stats()['segments'] == 2


def test_random_numbers_are_eagers():
    def f(x):
        return F.dropout(x, 0.5) * 2
    run, x = compiled(f), torch.randn(64)
    with no_code():
        torch.manual_seed(1)
        first = run(x)
    torch.manual_seed(1)
    assert torch.equal(first, run(x))
    torch.manual_seed(1)
    assert torch.equal(first, f(x))


def test_errors_are_eagers():
    def f(x, i):
        return (x * 2)[i] + 1
    run, x = compiled(f), torch.randn(4)
    with no_code():
        run(x, torch.tensor([0, 1]))
        with pytest.raises(IndexError):
            run(x, torch.tensor([7]))
    with pytest.raises(IndexError):
        run(x, torch.tensor([7]))


def test_it_is_refused_where_runs_must_be_equal():
    torch.use_deterministic_algorithms(True)
    try:
        with pytest.raises(smelt.OptionError, match='use_deterministic_algorithms'):
            compiled(chain)
    finally:
        torch.use_deterministic_algorithms(False)


def test_runs_that_must_be_equal_get_their_code_at_once():
    """They are asked for after smelt.compile."""
    run, x = compiled(chain), torch.randn(4, 5)
    torch.use_deterministic_algorithms(True)
    try:
        with no_code():
            run(x)
            assert native_ops() >= 4
            first = run(x)
            assert all(torch.equal(run(x), first) for _ in range(5))
    finally:
        torch.use_deterministic_algorithms(False)


def test_explain_waits():
    report = smelt.explain(chain, options={'background': True})(torch.randn(4, 5))
    assert 'in the background' not in str(report) and native_ops() >= 4


def test_reset_while_code_is_waited_for():
    run, x = compiled(chain), torch.randn(4, 5)
    with no_code():
        run(x)
        smelt.reset()
        assert torch.equal(run(x), chain(x))
    assert smelt.stats()['graphs'] == 1  # of the dropped one nothing was made
    torch.testing.assert_close(run(x), chain(x))


def test_many_threads():
    functions = [lambda x, k=k: torch.tanh(x * k).sum(-1) + k for k in range(4)]
    runs, x, wrong = [compiled(function) for function in functions], torch.randn(30, 20), []

    def work(number):
        end = time.monotonic() + 1
        while time.monotonic() < end:
            k = number % len(runs)
            if not torch.allclose(runs[k](x), functions[k](x), atol=1e-5):
                wrong.append(k)
            if number == 0:
                smelt.reset()
    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


PROGRAM = """
import os, torch, smelt
def make(k):
    def f(x):
        for i in range(30):
            x = torch.tanh(x) * 0.5 + x.mean(-1, keepdim=True) * 0.1 + k
        return x
    return f
functions = [make(k) for k in range(6)]
runs = [smelt.compile(f, options={'background': True}) for f in functions]
x = torch.randn(10, 10)
for run in runs:
    run(x)
"""


def run_program(text, **environment):
    return subprocess.run([sys.executable, '-c', PROGRAM + text], capture_output=True, text=True, timeout=600, check=False,
                          env={**os.environ, **environment})


@pytest.mark.parametrize('end', ['', 'raise SystemExit(0)', 'del runs, functions', 'smelt.reset()'])
def test_a_process_may_end_meanwhile(end):
    done = run_program(end)
    assert done.returncode == 0 and not done.stderr, done.stderr


def test_a_fork_meanwhile():
    done = run_program("""
from smelt import _native
children = []
for _ in range(4):
    child = os.fork()
    if child == 0:
        _native.background_wait()
        os._exit(0 if all(torch.allclose(run(x), f(x), atol=1e-4) for run, f in zip(runs, functions)) else 1)
    children.append(child)
assert all(os.waitpid(child, 0)[1] == 0 for child in children)
_native.background_wait()
assert all(torch.allclose(run(x), f(x), atol=1e-4) for run, f in zip(runs, functions))
assert smelt.stats()['ops_native'] > 0
print('done')
""")
    assert done.returncode == 0 and done.stdout.strip() == 'done', done.stderr
