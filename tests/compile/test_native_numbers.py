"""Numbers that are known only when a native graph runs: the graph takes them, whatever ops do with them."""

import pytest
import torch
from test_runtime_scalars import plain, same, tensor
from torch.nn import functional as F

import smelt
from generated import HAS_KERNELS

# Ops that take numbers, each in the form in which programs have it.
SCALAR_OPS = {
    "add": lambda x, k: x + k,
    "radd": lambda x, k: k + x,
    "sub": lambda x, k: x - k,
    "rsub": lambda x, k: k - x,
    "mul": lambda x, k: x * k,
    "div": lambda x, k: x / k,
    "rdiv": lambda x, k: k / (x + 10),
    "div_floor": lambda x, k: torch.div(x, k, rounding_mode="floor"),
    "div_trunc": lambda x, k: torch.div(x, k, rounding_mode="trunc"),
    "floor_divide": lambda x, k: x // k,
    "remainder": lambda x, k: x % k,
    "fmod": lambda x, k: torch.fmod(x, k),
    "add_alpha": lambda x, k: torch.add(x, x, alpha=k),
    "sub_alpha": lambda x, k: torch.sub(x, x + 1, alpha=k),
    "aten_mul_scalar": lambda x, k: torch.ops.aten.mul.Scalar(x, k),
    "aten_add_scalar": lambda x, k: torch.ops.aten.add.Scalar(x, k, k),
    "eq": lambda x, k: x == k,
    "ne": lambda x, k: x != k,
    "lt": lambda x, k: x < k,
    "le": lambda x, k: x <= k,
    "gt": lambda x, k: k < x,
    "ge": lambda x, k: torch.ge(x, k),
    "clamp_min": lambda x, k: torch.clamp(x, k),
    "clamp_max": lambda x, k: x.clamp(max=k),
    "clamp": lambda x, k: x.clamp(-k, k),
    "clip": lambda x, k: x.clip(min=k),
    "where": lambda x, k: torch.where(x > 0, x, k),
    "where_self": lambda x, k: torch.where(x > 0, k, x),
    "where_numbers": lambda x, k: torch.where(x > 0, k, k + 1),
    "masked_fill": lambda x, k: x.masked_fill(x > 0, k),
    "full": lambda x, k: torch.full((2, 2), k) + x.sum().reshape(1, 1),
    "full_like": lambda x, k: torch.full_like(x, k),
    "new_full": lambda x, k: x.new_full((3,), k),
    "full_dtype": lambda x, k: torch.full((3,), k, dtype=torch.float64),
    "scalar_tensor": lambda x, k: torch.scalar_tensor(k, dtype=torch.float64) * x,
    "fill": lambda x, k: torch.fill(x, k),
    "fill_new": lambda x, k: torch.empty_like(x).fill_(k),
    "setitem": lambda x, k: (y := x.clone(), y.view(-1).__setitem__(0, k))[0],
    "in_place": lambda x, k: x.clone().mul_(k).add_(k),
    "logical_and": lambda x, k: torch.logical_and(x, torch.scalar_tensor(k)),
}
FLOAT_OPS = {
    "pow": lambda x, k: x.abs() ** k,
    "rpow": lambda x, k: (k * k + 0.5) ** x,
    "addcmul": lambda x, k: torch.addcmul(x, x, x + 1, value=k),
    "addcdiv": lambda x, k: torch.addcdiv(x, x, x + 10, value=k),
    "addcdiv_": lambda x, k: x.clone().addcdiv_(x, x + 10, value=-k),
    "lerp": lambda x, k: torch.lerp(x, x * 2, k),
    "leaky_relu": lambda x, k: F.leaky_relu(x, k),
    "elu": lambda x, k: F.elu(x, k),
    "softplus": lambda x, k: F.softplus(x, k * k + 1, k + 20),
    "threshold": lambda x, k: F.threshold(x, k, 0.5),
    "threshold_value": lambda x, k: F.threshold(x, 0.0, k),
    "hardtanh": lambda x, k: F.hardtanh(x, -(k * k) - 1, k * k + 1),
    "hardshrink": lambda x, k: F.hardshrink(x, k),
    "softshrink": lambda x, k: F.softshrink(x, k * k),
    "celu": lambda x, k: F.celu(x, k),
    "copysign": lambda x, k: torch.copysign(x, k),
    "foreach_add": lambda x, k: torch._foreach_add([x, x * 2], k),
    "foreach_sub": lambda x, k: torch._foreach_sub([x, x * 2], k),
    "foreach_mul": lambda x, k: torch._foreach_mul([x, x * 2], k),
    "foreach_div": lambda x, k: torch._foreach_div([x, x * 2], k),
    "foreach_add_alpha": lambda x, k: torch._foreach_add([x, x * 2], [x, x], alpha=k),
    "foreach_mul_list": lambda x, k: torch._foreach_mul([x, x * 2], [k, 1.5]),
    "foreach_div_list": lambda x, k: torch._foreach_div([x, x * 2], [2.0, k]),
    "foreach_addcdiv": lambda x, k: torch._foreach_addcdiv([x, x * 2], [x, x], [x + 10, x + 10], k),
    "foreach_addcdiv_list": lambda x, k: torch._foreach_addcdiv([x, x], [x, x], [x + 10, x + 10], [k, -1.0]),
    "foreach_addcmul": lambda x, k: torch._foreach_addcmul([x, x * 2], [x, x], [x, x], k),
    "foreach_lerp": lambda x, k: torch._foreach_lerp([x, x * 2], [x + 1, x], k),
    "foreach_pow": lambda x, k: torch._foreach_pow([x.abs(), x.abs() + 1], k),
    "foreach_clamp_min": lambda x, k: torch._foreach_clamp_min([x, x * 2], k),
    "foreach_maximum": lambda x, k: torch._foreach_maximum([x, x * 2], k),
    "foreach_in_place": lambda x, k: (y := [x.clone(), x * 2], torch._foreach_add_(y, k), torch._foreach_mul_(y, [k, 2.0]))[0],
    "addmm": lambda x, k: torch.addmm(x.reshape(-1)[:1], x.reshape(-1, 1), x.reshape(1, -1), beta=k, alpha=k + 1),
    "constant_pad": lambda x, k: torch.constant_pad_nd(x.reshape(-1), (1, 1), k),
    "vector_norm": lambda x, k: torch.linalg.vector_norm(x, k * k + 1),
    "chain": lambda x, k: ((x * k).exp().clamp(max=k + 3) + k ** 2).pow(k).sum() * k,
}
WIDE = {"f32": torch.float32, "bf16": torch.bfloat16, "f64": torch.float64, "i64": torch.int64}


def is_graph(compiled, *arguments):
    """Runs as a graph, not op by op. Without kernels in-place code runs op by op."""
    texts = [segment.graph for segment in smelt.explain(compiled)(*arguments).segments]
    op_by_op = [text for text in texts if "# op by op" in text and (HAS_KERNELS or "in-place ops" not in text)]
    return texts and not op_by_op, texts


@pytest.mark.parametrize("sizes", [(), (2, 3)], ids=str)
@pytest.mark.parametrize("dtype", WIDE)
@pytest.mark.parametrize("name", [*SCALAR_OPS, *FLOAT_OPS])
def test_native_graphs_take_numbers(name, dtype, sizes):
    """The graph itself takes numbers as they are in each call, whatever the op does with them."""
    if name in FLOAT_OPS and dtype == "i64":
        pytest.skip("of floating point")
    fn = {**SCALAR_OPS, **FLOAT_OPS}[name]
    x = (torch.arange(6).view(2, 3) - 2).to(WIDE[dtype])[:, :3] if sizes else torch.tensor(2).to(WIDE[dtype])
    if dtype != "i64":
        x = x * 0.75
    with torch.no_grad():
        for values in ((0.5, 1.25, 3.0, -0.75, 1.0), (2, 3, 1, 5, -1)):
            if dtype == "i64" and isinstance(values[0], float) and name in ("add_alpha", "sub_alpha", "in_place"):
                continue  # an error of PyTorch's
            stats = plain(fn, *[(x, k) for k in values], backend="native")
            assert stats["recompiles"] == 0
            smelt.reset()
            compiled = smelt.compile(fn, backend="native")
            compiled(x, values[0])
            used, texts = is_graph(compiled, x, values[1])
            assert used, texts


@pytest.mark.parametrize("name", ["mul", "rsub", "clamp", "pow", "addcdiv", "foreach_mul_list", "lerp", "matmul"])
def test_native_graphs_take_numbers_under_autocast(name):
    ops = {**SCALAR_OPS, **FLOAT_OPS, "matmul": lambda x, k: (x @ x.t()) * k + torch.clamp(x @ x.t(), k)}
    def fn(x, k):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return ops[name](x, k), (x @ x.t()) * k
    plain(fn, *[(tensor(), k) for k in (0.5, 1.5, -2.0, 3.0)], backend="native")
    smelt.reset()
    compiled = smelt.compile(fn, backend="native")
    compiled(tensor(), 0.5)
    used, texts = is_graph(compiled, tensor(), 1.5)
    assert used, texts


@pytest.mark.skipif(not HAS_KERNELS, reason="built without LLVM: training is op by op")
@pytest.mark.parametrize("name", ["mul", "div", "add_alpha", "clamp", "where", "masked_fill", "addcdiv", "addcmul",
                                  "leaky_relu", "elu", "softplus", "hardtanh", "rsub", "foreach_mul"])
def test_native_training_takes_numbers(name):
    """A forward and a backward graph, for other numbers than they were made with."""
    ops = {**SCALAR_OPS, **FLOAT_OPS}
    def fn(x, k):
        y = ops[name](x, k)
        return (y[0] * 2 if isinstance(y, (list, tuple)) else y * 2).sin()
    smelt.reset()
    compiled = smelt.compile(fn, backend="native")
    for k in (0.5, 2.5, 1.0, 3.0, 0.25):
        x, y = tensor().add(0.3).requires_grad_(), tensor().add(0.3).requires_grad_()
        a, b = fn(x, k), compiled(y, k)
        a.sum().backward()
        b.sum().backward()
        same(a.detach(), b.detach())
        same(x.grad, y.grad)
    assert smelt.stats()["recompiles"] == 0
    assert b.grad_fn.name() == "SmeltBackward"


def test_numbers_that_a_derivative_tests():
    """alpha == 1 is another formula: the ops are run one by one where the answer is another than before."""
    def fn(x, y, k):
        return torch.add(x, y, alpha=k).sin()
    smelt.reset()
    compiled = smelt.compile(fn, backend="native")
    for k in (2.0, 3.0, 1.0, 1.0, 0.5):
        pairs = [(tensor().requires_grad_(), tensor().requires_grad_()) for _ in range(2)]
        for f, (x, y) in zip((fn, compiled), pairs):
            f(x, y, k).sum().backward()
        for one, other in zip(*pairs):
            same(one.grad, other.grad)


@pytest.mark.parametrize("dtype", [torch.float16, torch.int8, torch.uint8, torch.float32], ids=str)
@pytest.mark.parametrize("name", ["fill_new", "full_like", "add_alpha", "clamp_min", "masked_fill", "eq", "mul", "where"])
def test_numbers_that_do_not_fit(name, dtype):
    """PyTorch's errors, or its results, for numbers beyond the range of a dtype; and then again a number that fits."""
    with torch.no_grad():
        plain(SCALAR_OPS[name], *[(tensor().abs().to(dtype), k) for k in (2.5, 1e6, 1e39, -1.0, 1.5)], backend="native")
        plain(SCALAR_OPS[name], *[(tensor().abs().to(dtype), k) for k in (2, 300, 70000, -1, 2**40, 3)], backend="native")


def test_ops_that_ask_for_the_value_of_a_number():
    """They are run one by one, and a number is never part of the program."""
    compiled = smelt.compile(lambda x, k: torch.float_power(x.abs(), k) + 1, backend="native")
    compiled(tensor(), 0.5)
    used, texts = is_graph(compiled, tensor(), 1.5)
    assert not used and "float_power.Tensor_Scalar asks for the value of a number" in texts[0]
    same(compiled(tensor(), 2.0), torch.float_power(tensor().abs(), 2.0) + 1)


def test_numbers_in_the_text_of_a_graph():
    compiled = smelt.compile(lambda x, k: x.clamp(max=k) * k, backend="native")
    compiled(tensor(), 0.5)
    text = smelt.explain(compiled)(tensor(), 0.25).segments[0].graph
    assert "f64[] number = argument 1" in text and "op by op" not in text


BOUNDS = {
    "clamp_min": lambda x, bound: x.clamp(min=bound),
    "clamp_max": lambda x, bound: x.clamp(max=bound),
    "clamp": lambda x, bound: x.clamp(bound, bound),
    "relu": lambda x, bound: torch.relu(x),
    "hardtanh": lambda x, bound: F.hardtanh(x, bound, 1.0),
}


@pytest.mark.parametrize("bound", [0.0, -0.0])
@pytest.mark.parametrize("name", BOUNDS)
def test_of_two_zeros_the_element_is_kept(name, bound):
    def bounded(x):
        return BOUNDS[name](x, bound)

    compiled = smelt.compile(bounded)
    x = torch.tensor([0.0, -0.0] * 20)
    compiled(x)
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        for _ in range(2):
            assert torch.equal(compiled(x.to(dtype)).signbit(), bounded(x.to(dtype)).signbit())


POOLS = {
    "2 by 2": lambda x: F.max_pool2d(x, 2),
    "overlapping": lambda x: F.max_pool2d(x, 3, 2, 1),
    "8 by 8": lambda x: F.max_pool2d(x, 8),
    "of the whole image": lambda x: F.adaptive_max_pool2d(x, 1),
    "of the whole image, with places": lambda x: F.adaptive_max_pool2d(x, 1, return_indices=True)[0],
    "even": lambda x: F.adaptive_max_pool2d(x, 8),
    "cubes": lambda x: F.max_pool3d(x.contiguous(), 2),
    "rows": lambda x: F.max_pool1d(x[0], 4),
}


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("name", POOLS)
def test_of_zeros_in_a_window_the_first_counts(name, memory_format):
    compiled = smelt.compile(POOLS[name])
    torch.manual_seed(3)
    x = torch.where(torch.rand(2, 6, 32, 32) < 0.5, 0.0, -0.0).to(memory_format=memory_format)
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        for _ in range(2):
            assert torch.equal(compiled(x.to(dtype)).signbit(), POOLS[name](x.to(dtype)).signbit())
