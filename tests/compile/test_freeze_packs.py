"""options={"freeze": True}: what libraries pack, convolutions of all kinds, matrices, sums in place, dtypes."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.profiler import ProfilerActivity, profile

import smelt

FREEZE = {"freeze": True}
HAS_ONEDNN = torch.backends.mkldnn.is_available()
needs_onednn = pytest.mark.skipif(not HAS_ONEDNN, reason="PyTorch without oneDNN")


def supports(dtype):
    if not HAS_ONEDNN:
        return False
    if dtype == torch.bfloat16:
        return torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return dtype == torch.float32 or torch.ops.mkldnn._is_mkldnn_fp16_supported()


@pytest.fixture(autouse=True)
def without_gradients():
    torch.manual_seed(0)
    with torch.no_grad():
        yield


def with_statistics(model):
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.running_mean.normal_(0, 0.5)
            module.running_var.uniform_(0.5, 2)
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, 0, 0.5)
    return model.eval()


TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 4e-2, torch.float16: 1e-2}


def assert_same(compiled, model, *inputs):
    expected = model(*inputs)
    limit = TOLERANCE[expected.dtype] * max(1, float(expected.abs().max()))
    for _ in range(3):
        got = compiled(*inputs)
        assert got.stride() == expected.stride() and got.dtype == expected.dtype
        torch.testing.assert_close(got, expected, rtol=0, atol=limit, equal_nan=True)


def graph_of(compiled, *inputs):
    return smelt.explain(compiled)(*inputs).segments[0].graph


def check(model, *inputs, packed=None):
    """Results, and results after a change of the weights."""
    model = model.eval()
    compiled = smelt.compile(model, options=FREEZE)
    assert_same(compiled, model, *inputs)
    if packed:
        assert packed in graph_of(compiled, *inputs)
    for parameter in model.parameters():
        parameter.mul_(1.25)
    assert_same(compiled, model, *inputs)
    return compiled


# -- convolutions: rows, images, volumes, plain and transposed

CONV = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
TRANSPOSED = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}
NORM = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
SIZES = {1: (17,), 2: (9, 11), 3: (5, 7, 6)}
WINDOWS = {
    "plain": {"kernel_size": 3},
    "pointwise": {"kernel_size": 1, "bias": False},
    "padded": {"kernel_size": 3, "padding": 1},
    "strided": {"kernel_size": 3, "stride": 2, "padding": 1},
    "dilated": {"kernel_size": 3, "dilation": 2, "padding": 2},
    "grouped": {"kernel_size": 3, "padding": 1, "groups": 4},
    "depthwise": {"kernel_size": 3, "padding": 1, "groups": 8, "bias": False},
    "all": {"kernel_size": 2, "stride": 2, "padding": 1, "dilation": 2, "groups": 2},
}
EACH_RANK = pytest.mark.parametrize("rank", (1, 2, 3))
EACH_WINDOW = pytest.mark.parametrize("window", WINDOWS)


def image(rank, channels=8, batch=2, **settings):
    return torch.randn(batch, channels, *SIZES[rank], **settings)


def channels_last(x):
    if x.dim() == 3:
        return x.transpose(1, 2).contiguous().transpose(1, 2)
    return x.contiguous(memory_format={4: torch.channels_last, 5: torch.channels_last_3d}[x.dim()])


def chain(layer, rank, **window):
    """Two convolutions with batch norms between: one conversion at either end would not be worth one."""
    return with_statistics(nn.Sequential(layer(8, 8, **window), NORM[rank](8), nn.ReLU(),
                                         layer(8, 8, **window), NORM[rank](8), nn.SiLU(),
                                         CONV[rank](8, 12, 1)))  # fmt: skip


@needs_onednn
@EACH_RANK
@EACH_WINDOW
def test_convolutions(rank, window):
    compiled = check(chain(CONV[rank], rank, **WINDOWS[window]), image(rank),
                     packed="mkldnn::_convolution_pointwise")  # fmt: skip
    assert "rsqrt" not in graph_of(compiled, image(rank))


@needs_onednn
@EACH_RANK
@EACH_WINDOW
def test_transposed_convolutions(rank, window):
    model = chain(TRANSPOSED[rank], rank, **WINDOWS[window])
    compiled = check(model, image(rank), packed="mkldnn::_convolution_transpose_pointwise")
    assert "rsqrt" not in graph_of(compiled, image(rank))


@EACH_RANK
def test_output_padding(rank):
    model = nn.Sequential(TRANSPOSED[rank](8, 6, 3, stride=3, padding=1, output_padding=2, groups=2),
                          TRANSPOSED[rank](6, 8, 3, stride=2, output_padding=1))  # fmt: skip
    check(model, image(rank))


@EACH_RANK
@pytest.mark.parametrize("layer", (CONV, TRANSPOSED), ids=("plain", "transposed"))
def test_channels_last_inputs(rank, layer):
    model = with_statistics(nn.Sequential(layer[rank](8, 16, 3, padding=1), NORM[rank](16), nn.ReLU()))
    check(model, channels_last(image(rank)))
    if rank > 1:
        model = model.to(memory_format=torch.channels_last if rank == 2 else torch.channels_last_3d)
        check(model, channels_last(image(rank)))


@EACH_RANK
def test_odd_shapes(rank):
    for channels, batch in ((1, 1), (3, 1), (5, 3)):
        model = nn.Sequential(CONV[rank](channels, 7, 3, padding=2), nn.Tanh(), CONV[rank](7, 1, 2), CONV[rank](1, 3, 1))
        check(model, image(rank, channels, batch))
        check(model, image(rank, channels, batch)[0])  # without a batch


def test_one_row_for_two_convolutions():
    class Split(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = nn.Conv1d(8, 8, 3, padding=1), nn.Conv1d(8, 8, 1), nn.Conv1d(8, 8, 1)

        def forward(self, x):
            return self.c(self.a(x) * torch.sigmoid(self.b(x))), x

    model = Split().eval()
    compiled, x = smelt.compile(model, options=FREEZE), image(1)
    for _ in range(3):
        torch.testing.assert_close(compiled(x)[0], model(x)[0], rtol=1e-4, atol=1e-4)
        assert compiled(x)[1] is x


# -- narrow floats


@pytest.mark.parametrize("dtype", (torch.bfloat16, torch.float16), ids=("bf16", "f16"))
@EACH_RANK
def test_narrow_convolutions(rank, dtype):
    packed = "mkldnn::_convolution_pointwise" if supports(dtype) else None
    check(chain(CONV[rank], rank, kernel_size=3, padding=1).to(dtype), image(rank).to(dtype), packed=packed)
    check(chain(TRANSPOSED[rank], rank, kernel_size=3, groups=2).to(dtype), image(rank).to(dtype))


@pytest.mark.parametrize("bias", (True, False))
@pytest.mark.parametrize("rows", (1, 2, 3, 4, 33))
@pytest.mark.parametrize("dtype", (torch.bfloat16, torch.float16), ids=("bf16", "f16"))
def test_narrow_matrices(dtype, rows, bias):
    model = nn.Sequential(nn.Linear(320, 960, bias), nn.GELU(), nn.Linear(960, 72, bias)).to(dtype)
    is_packed = supports(dtype) and (dtype == torch.bfloat16 or rows >= 4)
    x = torch.randn(rows, 320).to(dtype)
    compiled = check(model, x, packed="mkldnn::_linear_pointwise" if is_packed else None)
    assert is_packed or "mkldnn::_linear_pointwise" not in graph_of(compiled, x)


def test_other_dtype_afterwards():
    model = nn.Sequential(nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.Flatten(), nn.Linear(8 * 5 * 7, 64))
    compiled, x = smelt.compile(model, options=FREEZE), image(2)
    for dtype in (torch.float32, torch.bfloat16, torch.float32):
        model.to(dtype)
        assert_same(compiled, model, x.to(dtype))
        model[0].weight.mul_(2)
        assert_same(compiled, model, x.to(dtype))


# -- matrices of f32


@pytest.mark.parametrize("bias", (True, False))
@pytest.mark.parametrize("rows", (1, 2, 3, 4, 96))
def test_matrices(rows, bias):
    """Of all the forms: as they are, row-major, packed."""
    model = nn.Sequential(nn.Linear(512, 1536, bias), nn.GELU(), nn.Linear(1536, 512, bias), nn.Linear(512, 10, bias))
    x = torch.randn(rows, 512)
    compiled = check(model, x)
    has_mkl = torch.backends.mkl.is_available()
    assert ("mkl::_mkl_linear" in graph_of(compiled, x)) == (has_mkl and rows == 96)
    check(model, torch.randn(3, rows, 512).transpose(0, 1))


def test_a_narrow_matrix_is_read_as_it_is():
    """Row-major, or packed, a product of one row by few columns is slower."""
    layer = nn.Linear(30000, 10)
    compiled, x = smelt.compile(layer, options=FREEZE), torch.randn(1, 30000)
    assert_same(compiled, layer, x)
    assert "captured" not in graph_of(compiled, x)


# -- sums in place


class Residual(nn.Module):
    def __init__(self, after=F.relu, channels=16):
        super().__init__()
        self.inner, self.outer = nn.Conv2d(channels, channels, 3, padding=1), nn.Conv2d(channels, channels, 1)
        self.after = after

    def forward(self, x):
        x = torch.sin(x)
        return self.after(self.outer(F.relu(self.inner(x))) + x)


SUM = "mkldnn::_convolution_pointwise.binary"


@needs_onednn
@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16), ids=("f32", "bf16"))
@pytest.mark.parametrize("after", (F.relu, lambda x: x, lambda x: x * 2 + 1), ids=("relu", "nothing", "more"))
def test_residuals(after, dtype):
    model = nn.Sequential(Residual(after), Residual(after)).to(dtype)
    check(model, channels_last(image(2, 16)).to(dtype), packed=SUM if supports(dtype) else None)
    check(model, image(2, 16).to(dtype), packed=SUM if supports(dtype) else None)


@needs_onednn
def test_a_sum_takes_no_memory_of_its_own():
    model = nn.Sequential(Residual(), Residual()).eval()
    x = channels_last(image(2, 16))
    compiled = smelt.compile(model, options=FREEZE)
    for _ in range(2):
        compiled(x)
    with profile(activities=[ProfilerActivity.CPU]) as prof:
        compiled(x)
    names = [event.key for event in prof.key_averages()]
    assert "mkldnn::_convolution_pointwise_" in names


@needs_onednn
def test_a_sum_keeps_nan():
    model = Residual().eval()
    compiled, x = smelt.compile(model, options=FREEZE), channels_last(image(2, 16))
    x[0, 3, 2, 2] = float("nan")
    x[1, 5, 1, 7] = float("inf")  # its sine is nan
    assert model(x).isnan().any()
    assert_same(compiled, model, x)


class Shared(nn.Module):
    """What is added is needed once more, or is somebody else's."""

    def __init__(self, what):
        super().__init__()
        self.a, self.b, self.what = nn.Conv2d(16, 16, 1), nn.Conv2d(16, 16, 1), what

    def forward(self, x):
        y = torch.cos(x)
        if self.what == "argument":
            return self.b(self.a(x)) + x
        if self.what == "itself":
            return self.b(self.a(y)) * (self.a(y) + y)
        if self.what == "output":
            return self.b(self.a(y)) + y, y
        if self.what == "view":
            half = y[:, :8]
            return self.b(self.a(y)) + y, half + 1
        if self.what == "returned view":
            return self.b(self.a(y)) + y, y[:, :8]
        if self.what == "later":
            z = self.b(self.a(y)) + y
            return z * y
        if self.what == "input of it":
            return self.b(self.a(x)) + self.a(y) + y
        if self.what == "broadcast":
            return self.b(self.a(y)) + y.mean((2, 3), keepdim=True)
        if self.what == "twice":
            y = self.a(x)
            return (self.b(y) + y) + self.a(y)
        return torch.add(self.b(self.a(y)), y, alpha=2)


@pytest.mark.parametrize("layout", (channels_last, lambda x: x), ids=("last", "first"))
@pytest.mark.parametrize("what", ("argument", "itself", "output", "view", "returned view", "later", "input of it",
                                  "broadcast", "twice", "scaled"))  # fmt: skip
def test_what_a_sum_must_leave_alone(what, layout):
    model = Shared(what).eval()
    compiled, x = smelt.compile(model, options=FREEZE), layout(image(2, 16))
    kept = x.clone()
    results = []
    for _ in range(4):
        got, expected = compiled(x), model(x)
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)
        results.append((got, expected))
    assert torch.equal(x, kept)
    for got, expected in results:  # nothing was written to what an earlier call has returned
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("mode", (torch.inference_mode, torch.no_grad))
def test_sums_in_inference_mode(mode):
    model = nn.Sequential(Residual(), Residual()).eval()
    compiled = smelt.compile(model, options=FREEZE)
    with mode():
        x = channels_last(image(2, 16))
        assert_same(compiled, model, x)
    assert_same(compiled, model, channels_last(image(2, 16)))


# -- changes


def replace_data(model):
    for parameter in model.parameters():
        parameter.data = torch.rand_like(parameter) - 0.5


CHANGES = {
    "load_state_dict": lambda model: model.load_state_dict({k: v * 0.5 for k, v in model.state_dict().items()}),
    "assign": lambda model: model.load_state_dict({k: v * 0.5 for k, v in model.state_dict().items()}, assign=True),
    "data": replace_data,
    "in place": lambda model: [parameter.add_(0.1) for parameter in model.parameters()],
    "one bias": lambda model: list(model.parameters())[-1].add_(1),
    "share_memory": lambda model: model.share_memory(),
}
PACKED = {
    "rows": (lambda: chain(CONV[1], 1, kernel_size=3, padding=1), lambda: image(1)),
    "volumes": (lambda: chain(CONV[3], 3, kernel_size=3, padding=1), lambda: image(3)),
    "transposed": (lambda: chain(TRANSPOSED[2], 2, kernel_size=3, groups=2), lambda: image(2)),
    "residual": (lambda: nn.Sequential(Residual(), Residual()), lambda: image(2, 16)),
    "large": (lambda: nn.Linear(1024, 1024), lambda: torch.randn(80, 1024)),
    "bf16": (lambda: nn.Linear(256, 256).bfloat16(), lambda: torch.randn(8, 256).bfloat16()),
    "bf16 convolution": (lambda: chain(CONV[2], 2, kernel_size=3).bfloat16(), lambda: image(2).bfloat16()),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", PACKED)
def test_changes_are_noticed(name, change):
    build, make_input = PACKED[name]
    model, x = build().eval(), make_input()
    compiled = smelt.compile(model, options=FREEZE)
    assert_same(compiled, model, x)
    before = compiled(x)
    CHANGES[change](model)
    assert_same(compiled, model, x)
    assert change == "share_memory" or not torch.equal(compiled(x), before)
