"""Programs under another default dtype (torch.set_default_dtype): what ops make of integers, and what a Python float counts as beside
them, is what it was where the program was traced or recorded."""

import contextlib

import pytest
import torch
import torch.nn.functional as F

import smelt

DTYPES = (torch.float64, torch.bfloat16, torch.float16)
EACH_DTYPE = pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype)[6:])


@contextlib.contextmanager
def default_dtype(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def same(actual, expected):
    if not isinstance(expected, torch.Tensor):
        assert type(actual) is type(expected) and len(actual) == len(expected)
        for mine, theirs in zip(actual, expected):
            same(mine, theirs)
        return
    assert (actual.dtype, actual.shape, actual.stride()) == (expected.dtype, expected.shape, expected.stride())
    tolerance = {torch.float64: 1e-14, torch.complex128: 1e-14}.get(expected.dtype)
    close = {} if tolerance is None else {"rtol": tolerance, "atol": tolerance}
    torch.testing.assert_close(actual, expected, equal_nan=True, **close)


# Of a tensor of integers n, one of truths m, a float x and a Python number s.
PROGRAMS = {
    "divided": lambda n, m, x, s: n / 10,
    "divided by integers": lambda n, m, x, s: n / (n + 3),
    "times a float": lambda n, m, x, s: (n * 0.1, 0.1 - n, n + 0.1, n // 0.3, n % 0.3, n**0.5),
    "times a number": lambda n, m, x, s: (n * s, n / s, s - n),
    "functions": lambda n, m, x, s: (n.sqrt(), n.exp(), n.sin(), n.sigmoid(), torch.atan2(n, n + 1), n.log1p(), n.reciprocal()),
    "of truths": lambda n, m, x, s: (m * 0.5, m.exp(), m / 2, m.float() + 0.1),
    "compared": lambda n, m, x, s: (n * 10 > 0.1, n == 0.1, n / 3 < 0.33333333333, torch.where(n > 1, n, 0.1), torch.where(m, 0.1, n)),
    "bounds": lambda n, m, x, s: (n.clamp(0.1, 2.9), n.clamp_min(0.7), torch.where(m, n, 0.5), n.masked_fill(m, 2)),
    "factories": lambda n, m, x, s: (torch.zeros(3), torch.ones(2), torch.full((2,), 0.1), torch.eye(2), torch.linspace(0, 1, 5), torch.arange(0, 1, 0.25), torch.scalar_tensor(0.1)),
    "made and used": lambda n, m, x, s: (torch.arange(4) * 0.1, torch.arange(4.0) / 3, torch.tensor([0.1, 0.2]) * n[:2], torch.tensor(0.1) * n),
    "reduced": lambda n, m, x, s: (n.float().mean(), (n / 3).sum(), (n * 0.1).mean(), n.logsumexp(0), (n / 7).softmax(0), (n / 7).std()),
    "beside floats": lambda n, m, x, s: (x * 0.1, x + n, x[0] * n, n * x.mean(), x * (n / 3)),
    "in two steps": lambda n, m, x, s: ((n / 3).double() * 3, (n * 0.1).sin() + n, torch.stack([n / 3, n / 7]), torch.cat([n, n / 3])),
    "complex": lambda n, m, x, s: (n * 1j, torch.complex(n / 3, n / 7) * 2, torch.full((2,), 1j), m * 1j) if torch.get_default_dtype() == torch.float64 else n,
    "interpolated": lambda n, m, x, s: (torch.lerp(n / 3, n / 7, 0.3), torch.addcdiv(n / 1, n / 3, n + 1.0, value=0.1), torch.hypot(n / 3, n / 7)),
    "lists": lambda n, m, x, s: torch._foreach_div([n, n + 1], 3),
    "functional": lambda n, m, x, s: (F.one_hot(n, 9) / 3, F.gelu(n / 3), F.relu(n - 1.5), (n / 3).cumsum(0)),
}


def arguments():
    return torch.arange(8), torch.arange(8) % 3 == 0, torch.linspace(-1, 1, 8, dtype=torch.float32), 0.1


@EACH_DTYPE
@pytest.mark.parametrize("backend", ("native", "interpret"))
@pytest.mark.parametrize("name", PROGRAMS)
def test_compiled(name, backend, dtype):
    fn = PROGRAMS[name]
    with default_dtype(dtype):
        compiled = smelt.compile(fn, backend=backend)
        for _ in range(2):
            same(compiled(*arguments()), fn(*arguments()))
        n, m, x, _ = arguments()
        same(compiled(n, m, x, 0.7), fn(n, m, x, 0.7))


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_default_has_its_program(name):
    """One compiled function, called under one default dtype after the other and back."""
    fn = PROGRAMS[name]
    compiled = smelt.compile(fn)
    for dtype in (torch.float32, *DTYPES, torch.float32, torch.float64):
        with default_dtype(dtype):
            same(compiled(*arguments()), fn(*arguments()))


@EACH_DTYPE
@pytest.mark.parametrize("name", PROGRAMS)
def test_recorded(name, dtype):
    fn = PROGRAMS[name]
    with default_dtype(dtype):
        graph, expected = smelt.record(fn, *arguments()), fn(*arguments())
        run = graph.run(*arguments())
        same(run, expected)
        assert f"default {'f64' if dtype == torch.float64 else 'bf16' if dtype == torch.bfloat16 else 'f16'}" in str(graph)


@pytest.mark.parametrize("recorded_with, run_with", [(torch.float64, torch.float32), (torch.float32, torch.float64), (torch.bfloat16, torch.float64)])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_recorded_graph_does_what_was_recorded(name, recorded_with, run_with):
    """Under whatever default it is run; or it says that one of its ops asks for the default."""
    fn = PROGRAMS[name]
    with default_dtype(recorded_with):
        graph, expected = smelt.record(fn, *arguments()), fn(*arguments())
    with default_dtype(run_with):
        try:
            found = graph.run(*arguments())
        except smelt.Error as error:
            assert "default dtype" in str(error)
            return
        same(found, expected)


@EACH_DTYPE
def test_gradients(dtype):
    def fn(n, w):
        y = (n / 3) * w
        return (y.sin() * (n * 0.1)).sum(), y

    with default_dtype(dtype):
        compiled = smelt.compile(fn)
        for _ in range(3):
            results = []
            for function in (compiled, fn):
                w = torch.linspace(0.5, 2, 8).requires_grad_()
                loss, y = function(torch.arange(8), w)
                loss.backward()
                results.append((loss.detach(), y.detach(), w.grad))
            same(*results)


def test_a_backward_under_another_default():
    """The forward's ops had the default of then, the formulas of the backward have that of now, in eager too."""

    def fn(n, w):
        y = (n / 3) * w
        return y.sin().sum(), (y * (n * 0.1)).sum()

    compiled = smelt.compile(fn)
    for which in (0, 1, 0):
        results = []
        for function in (compiled, fn):
            with default_dtype(torch.float64):
                w = torch.linspace(0.5, 2, 8).requires_grad_()
                losses = function(torch.arange(8), w)
            losses[which].backward()
            results.append((losses[0].detach(), w.grad))
        same(*results)


@EACH_DTYPE
def test_a_module_made_under_the_default(dtype):
    with default_dtype(dtype):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))
        compiled, n = smelt.compile(model), torch.arange(16).view(2, 8)
        with torch.no_grad():
            for _ in range(2):
                found, expected = compiled(n / 8), model(n / 8)
                assert found.dtype == expected.dtype == dtype
                torch.testing.assert_close(found, expected)


def test_the_default_changes_inside():
    def fn(n):
        before = n / 3
        with default_dtype(torch.float64):
            inside = n / 3, n > 0.1, n * 0.1 == 0.1, torch.zeros(2)
        return before, inside, n / 3

    for outside in (torch.float32, torch.float64, torch.bfloat16):
        with default_dtype(outside):
            compiled = smelt.compile(fn)
            for _ in range(3):
                same(compiled(torch.arange(4)), fn(torch.arange(4)))


def test_numbers_that_change():
    with default_dtype(torch.float64):
        compiled = smelt.compile(lambda k: torch.arange(k) / 10)
        for k in (4, 5, 6, 7):
            same(compiled(k), torch.arange(k) / 10)
