"""Autocast and grad modes, inside the recorded function and around it."""

import pytest
import torch
import torch.nn.functional as F
from record_check import check, same, with_grads
from torch import nn

import smelt

bf16 = torch.bfloat16


def mlp():
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))


# -- autocast


def test_autocast_inside():
    def fn(a, b):
        with torch.autocast("cpu", dtype=bf16):
            y = a @ b.t()
            z = F.mse_loss(y, y * 2)
            with torch.autocast("cpu", enabled=False):
                w = a @ b.t()
        return y, z, w, a @ b.t()

    graph = check(fn, torch.randn(4, 6), torch.randn(4, 6))
    dtypes = [t.dtype for t in graph.run(torch.randn(4, 6), torch.randn(4, 6))]
    assert dtypes == [bf16, torch.float32, torch.float32, torch.float32]


def test_autocast_around_record():
    a, b = torch.randn(4, 6), torch.randn(6, 4)
    with torch.autocast("cpu", dtype=bf16):
        graph = smelt.record(torch.mm, a, b)
        expected = torch.mm(a, b)
        assert expected.dtype == bf16
        same(graph.run(a, b), expected)
    same(graph.run(a, b), expected)


def test_autocast_around_run_adds_no_casts():
    a, b = torch.randn(4, 6), torch.randn(6, 4)
    graph = smelt.record(torch.mm, a, b)
    with torch.autocast("cpu", dtype=bf16):
        same(graph.run(a, b), torch.mm(a.double(), b.double()).float() * 0 + graph.run(a, b))
        assert graph.run(a, b).dtype == torch.float32


def test_autocast_training_with_weight_cache():
    def fn(model, x):
        model.zero_grad()
        with torch.autocast("cpu", dtype=bf16):
            loss = (model(x) + model(x * 2)).float().pow(2).mean()
        loss.backward()
        return loss.detach()

    graph = check(fn, with_grads(mlp()), torch.randn(4, 6))
    casts = [line for line in str(graph).split("\n") if "_to_copy" in line and "bf16[8, 6]" in line]
    assert len(casts) == 1  # the weight is cast once for both calls


def test_autocast_cache_holds_no_recording_tensors():
    model, x = mlp(), torch.randn(4, 6)
    with torch.autocast("cpu", dtype=bf16):
        expected = model(x)
        smelt.record(model, x)
        same(model(x), expected)
        assert model(x).requires_grad


def test_eager_casts_made_before_record_in_the_same_autocast():
    """The cache holds casts of the real weights; the recording must not take them for constants."""
    model, x = mlp(), torch.randn(4, 6)
    with torch.autocast("cpu", dtype=bf16):
        model(x)
        graph = smelt.record(model, x)
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(2)
    with torch.autocast("cpu", dtype=bf16):
        same(graph.run(x), model(x).detach())


def test_autocast_fp16():
    def fn(a):
        with torch.autocast("cpu", dtype=torch.float16):
            return a @ a.t()

    check(fn, torch.randn(4, 6))


# -- grad modes


def test_no_grad_inside():
    def fn(w):
        with torch.no_grad():
            a = w * 2
            assert not a.requires_grad
            with torch.enable_grad():
                b = w.sin()
                assert b.requires_grad
        return a, torch.autograd.grad(b.sum(), w)

    check(fn, torch.randn(4, requires_grad=True))


def test_no_grad_around():
    model, x = mlp(), torch.randn(4, 6)
    with torch.no_grad():
        graph = smelt.record(model, x)
        assert not torch.is_grad_enabled()
        same(graph.run(x), model(x))
    same(graph.run(x), model(x).detach())


def test_inference_mode_inside():
    def fn(model, x):
        with torch.inference_mode():
            return model(x)

    x = torch.randn(4, 6)
    model = mlp()
    same(smelt.record(fn, model, x).run(model, x), model(x).detach())


def test_inference_mode_around():
    model, x = mlp(), torch.randn(4, 6)
    with torch.inference_mode():
        graph = smelt.record(model, x)
        assert torch.is_inference_mode_enabled()
        same(graph.run(x), model(x))
    same(graph.run(x), model(x).detach())


def test_inference_tensor_as_argument():
    with torch.inference_mode():
        x = torch.randn(4, 6)
    check_only_forward = smelt.record(lambda t: t * 2 + 1, x)
    same(check_only_forward.run(x), x * 2 + 1)


def test_run_inside_no_grad_and_inference_mode():
    w = torch.randn(3, requires_grad=True)

    def fn(x):
        return torch.autograd.grad((w * x).sin().sum(), w)[0]

    x = torch.randn(3)
    graph = smelt.record(fn, x)
    expected = fn(x)
    with torch.no_grad():
        same(graph.run(x), expected)
    with torch.inference_mode():
        same(graph.run(x), expected)


def test_modes_set_inside_stay_set_as_in_eager():
    def fn(x):
        torch.set_grad_enabled(False)
        return x * 2

    try:
        smelt.record(fn, torch.ones(2))
        assert not torch.is_grad_enabled()
    finally:
        torch.set_grad_enabled(True)


def test_default_dtype():
    def fn(x):
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            return torch.zeros(2) + 1, x * 1.5
        finally:
            torch.set_default_dtype(before)

    with pytest.raises(smelt.RecordError, match="default dtype"):
        smelt.record(fn, torch.ones(2))
    graph = smelt.record(lambda n: n * 1.5, torch.arange(3))
    torch.set_default_dtype(torch.float64)
    try:
        with pytest.raises(smelt.Error, match="default dtype"):
            graph.run(torch.arange(3))
        check(lambda n: (n * 1.5, torch.zeros(2), torch.full((2,), 0.5), torch.arange(3.0)), torch.arange(3))
    finally:
        torch.set_default_dtype(torch.float32)


def test_torch_function_and_dispatch_modes():
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Functions(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    class Ops(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    x = torch.randn(3)
    with Functions():
        graph = smelt.record(lambda t: t * 2, x)
    assert torch.Tensor.mul in seen or len(seen) > 0
    same(graph.run(x), x * 2)

    def fn(t):
        with Ops():
            return t * 3

    try:
        same(smelt.record(fn, x).run(x), x * 3)
    except smelt.RecordError:
        pass


def test_tensor_subclass_with_torch_function():
    class Tagged(torch.Tensor):
        pass

    x = torch.randn(3).as_subclass(Tagged)

    def fn(t):
        y = t * 2
        assert type(y) is Tagged
        return y

    try:
        graph = smelt.record(fn, x)
    except smelt.RecordError:
        return
    out = graph.run(x)
    same(torch.Tensor(out), torch.Tensor(x * 2))


def test_tensor_subclass_with_torch_dispatch_is_refused():
    from torch.testing._internal.two_tensor import TwoTensor

    x = TwoTensor(torch.ones(3), torch.ones(3))
    with pytest.raises(smelt.RecordError, match="__torch_dispatch__"):
        smelt.record(lambda t: t * 2, x)
