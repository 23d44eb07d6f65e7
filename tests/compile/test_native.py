"""Generated kernels against eager: random programs, and what a schedule can get wrong. Each by machine code and by the loop
interpreter."""

import os

import generated
import pytest
import torch
import torch.nn.functional as F
from native_check import check
from random_tensor_programs import generate

import smelt

BACKENDS = pytest.mark.parametrize("backend", ("native", "interpret"))
FUSIONS = ("full", "full", "full", "pointwise", "none")
FIRST = int(os.environ.get("SMELT_RANDOM_FIRST", "0"))
PER_TEST = 20


def options_of(seed):
    options = {"fusion": FUSIONS[seed % len(FUSIONS)]}
    if seed % 7 == 0:
        options["max_fused_nodes"] = 1 + seed % 5
    return options


@pytest.mark.parametrize("block", range(16))
def test_random_programs(block):
    """SMELT_RANDOM_FIRST is the first seed."""
    for seed in range(FIRST + block * PER_TEST, FIRST + (block + 1) * PER_TEST):
        with torch.no_grad():
            program = generate(seed)
        function = program.function()
        for backend in ("native", "interpret"):
            smelt.reset()
            try:
                check(function, program.inputs, scale=program.scale, coarsest=program.coarsest, backend=backend,
                      options=options_of(seed))  # fmt: skip
            except Exception as error:
                raise AssertionError(f"{backend}, {options_of(seed)}\n{program}") from error


# -- single cases


def normal(*shape, dtype=torch.float32):
    return lambda: (torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype),)


def runs_natively(function, make_inputs, **settings):
    """check(), and there was a kernel."""
    before = smelt.stats()["ops_native"]
    settings.setdefault("coarsest", torch.float32)
    check(function, make_inputs, **settings)
    assert generated.more_than(before, smelt.stats())


@BACKENDS
@pytest.mark.parametrize("dim", range(4))
def test_softmax_over_each_dimension(backend, dim, threads):
    runs_natively(lambda x: torch.softmax(x * 2, dim), normal(3, 17, 5, 33), backend=backend)
    runs_natively(lambda x: F.log_softmax(x.transpose(0, 3), dim), normal(3, 17, 5, 33), backend=backend)


@BACKENDS
@pytest.mark.parametrize("keepdim", (False, True))
@pytest.mark.parametrize("dims", ((0,), (1, 3), (0, 1, 2, 3), (-1,), (2, 0)))
def test_reductions_over_several_dimensions(backend, dims, keepdim, threads):
    def function(x):
        return x.sum(dims, keepdim), x.mean(dims, keepdim), torch.amax(x, dims, keepdim), (x * x).sum(dims, keepdim).sqrt()

    runs_natively(function, normal(3, 7, 5, 33), backend=backend, scale=30)
    runs_natively(lambda x: function(x.permute(2, 0, 3, 1)), normal(3, 7, 5, 33), backend=backend, scale=30)


@BACKENDS
def test_long_reductions_on_threads(backend, threads):
    def function(x):
        return x.sum(), x.sum(0), x.sum(1), x.amax(), torch.softmax(x, 0), torch.softmax(x, 1), x.argmax(1), x.argmin()

    runs_natively(function, normal(67, 513), backend=backend, scale=100)


@pytest.mark.skipif(not generated.HAS_KERNELS, reason="built without LLVM: PyTorch adds in an order of its own")
@pytest.mark.parametrize("shape", ((1000003,), (600, 2, 301), (2, 301, 600), (200000, 3)))
def test_few_results_of_much_are_the_same_on_any_number_of_threads(shape):
    def function(x):
        y = torch.sigmoid(x)
        return (((x - y) ** 2).mean(), x.norm(), x.argmax(), (x > 3).any(), x.sum(-1), y.sum(0), x.amax(0), y,
                x / x.abs().amax(), (x - x.mean()).square().sum())  # fmt: skip

    runs_natively(function, normal(*shape), backend="native", scale=1000)
    compiled = smelt.compile(function)
    (x,) = normal(*shape)()
    compiled(x)
    before = torch.get_num_threads()
    results = []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        results.append(compiled(x))
    torch.set_num_threads(before)
    for again in results[1:]:
        for a, b in zip(results[0], again):
            torch.testing.assert_close(a, b, rtol=0, atol=0)


@BACKENDS
@pytest.mark.parametrize("options", ({}, {"fusion": "none"}, {"fusion": "pointwise"}, {"max_fused_nodes": 1},
                                     {"max_fused_nodes": 2}, {"max_fused_nodes": 3}, {"numerics": "eager"}))  # fmt: skip
def test_options_change_no_result(backend, options):
    def function(x, w):
        h = F.layer_norm(x, (33,)) * w
        y = F.gelu(h) + x
        return torch.softmax(y, -1), y.sum(0), (h > 0).sum(), torch.cat([y[:, :3], h], 1)

    def inputs():
        return normal(17, 33)()[0], normal(33)()[0]

    runs_natively(function, inputs, backend=backend, options=options)


@BACKENDS
@pytest.mark.parametrize("dtype", (torch.float32, torch.float64, torch.bfloat16))
def test_numerics_eager_gives_the_same_bits(backend, dtype):
    def function(x, y):
        a = (x * y + x) * 0.3 - y / 3
        b = torch.where(a > 0, a, -a * 0.01).clamp(-2, 2)
        return (b - x.abs()) * (y + 1.5), b * b + a, torch.relu(a * x + b * y)

    def inputs():
        return normal(33, 17, dtype=dtype)()[0], normal(17, dtype=dtype)()[0]

    runs_natively(function, inputs, backend=backend, coarsest=None, options={"numerics": "eager"})


# -- memory


@BACKENDS
def test_memory_is_not_taken_from_a_view_that_is_read_later(backend):
    def function(x):
        a = x.cumsum(0)  # made by a call: its memory is free when nobody reads it
        view = a[1:]
        b = a * 2 + 1
        c = b.cumsum(1)
        d = c - 1
        return d, view.sin().cumsum(0), c[0] + 1

    runs_natively(function, normal(7, 33), backend=backend, scale=50)


@BACKENDS
def test_memory_is_not_taken_from_a_view_that_is_returned(backend):
    def function(x):
        a = x.cumsum(0)
        b = a * 2
        return a.t()[:3], b

    runs_natively(function, normal(7, 33), backend=backend, scale=50)


@BACKENDS
def test_memory_is_not_taken_where_it_is_read_elsewhere(backend):
    def function(x):
        a = x.cumsum(0)
        b = a + a.t()  # of one kernel, at two places
        c = b.cumsum(0)
        return c - c.amax(1, keepdim=True), b.cumsum(1) + torch.softmax(x, 1)

    runs_natively(function, normal(33, 33), backend=backend, scale=100)


KEPT = torch.ones(5, 7)


@torch.library.custom_op("smelt_native_test::kept", mutates_args=())
def kept(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(KEPT.numpy())


kept.register_fake(torch.empty_like)


@BACKENDS
def test_memory_is_not_taken_from_an_op_that_keeps_it(backend):
    check(lambda x: kept(x) * 2 + x, normal(5, 7), backend=backend, coarsest=torch.float32)
    assert torch.equal(KEPT, torch.ones(5, 7))


@BACKENDS
def test_results_have_memory_of_their_own(backend):
    def function(x):
        y = x + 1
        return y, y + 0, y.clone(), x.clone(), x * 1

    compiled = smelt.compile(function, backend=backend)
    with torch.no_grad():
        (x,) = normal(5, 7)()
        results = compiled(x)
        before = [result.clone() for result in results]
        for i, result in enumerate(results):
            result.fill_(i)
        assert [result.mean().item() for result in results] == [0, 1, 2, 3, 4]
        again = compiled(x)
        assert all(torch.equal(a, b) for a, b in zip(again, before))


@BACKENDS
def test_results_that_show_inputs_or_each_other(backend):
    check(lambda x: (x, x.t(), x[1:], x * 2), normal(5, 7), backend=backend)
    check(lambda x: ((x + 1)[1:], x.view(-1)), normal(5, 7), backend=backend)

    def two_of_one(x):
        y = x * 2
        return y, y[0], y.t()

    check(two_of_one, normal(5, 7), backend=backend)
    check(lambda x: (x * 2).split(3, 1), normal(5, 7), backend=backend)
    check(lambda x: (x * 2).expand(4, 5, 7), normal(5, 7), backend=backend)


@BACKENDS
def test_inputs_that_share_memory(backend):
    def inputs():
        (x,) = normal(9, 8)()
        return x, x.t()[:, :8], x[1:, :], x[0].expand(8, 8)

    runs_natively(lambda a, b, c, d: ((a[:8] + b) * c - d, (a * 2).sum(0)), inputs, backend=backend, scale=10)

    def writing(a, b, c, d):
        a.mul_(2)
        return b + 1, c.sum(), d * a[:8]

    check(writing, inputs, backend=backend, scale=100, coarsest=torch.float32)


@BACKENDS
@pytest.mark.parametrize("layout", ("offset", "steps", "expanded", "transposed", "overlapping", "negative places"))
def test_inputs_of_any_strides(backend, layout):
    def inputs():
        (x,) = normal(40, 40)()
        return {"offset": (x[3:11, 5:38],), "steps": (x[1::5, 2::3],), "expanded": (x[:1].expand(7, 40),),
                "transposed": (x.t()[:9],), "overlapping": (x.view(-1).as_strided((9, 11), (3, 2), 5),),
                "negative places": (x.flip(0)[::3],)}[layout]  # fmt: skip

    def function(x):
        y = x * 2 + x.amax(1, keepdim=True)
        return y, y.t().softmax(0), x.sum(0), x.reshape(-1)[3:] + 1, x[..., 1:] - x[..., :-1], x.clone()

    runs_natively(function, inputs, backend=backend, scale=20)


@BACKENDS
@pytest.mark.parametrize("shape", ((), (1,), (1, 1), (0,), (3, 0), (0, 3), (1, 0, 2)))
def test_few_elements_or_none(backend, shape):
    def function(x):
        y = x * 2 + 1
        return y, y.sum(), x.sum(-1), y.to(torch.int64), (y > 0).any(), torch.cat([y.reshape(-1), y.reshape(-1)]), x.mean()

    check(function, normal(*shape), backend=backend)


@BACKENDS
def test_a_view_of_other_elements(backend):
    def function(x):
        y = x + 1
        bits = y.view(torch.int32)
        return bits + 1, (bits >> 23) & 255, x.view(torch.int32)[..., 1:] * 2, y.view(torch.int16) + 1

    check(function, normal(5, 8), backend=backend, coarsest=torch.float32)

    def complex_parts(x):
        z = torch.view_as_complex(x.reshape(-1, 4, 2) * 2)
        return z.real + 1, z.imag * 2, torch.view_as_real(z * z) - 1, z.conj().imag + 1, z.conj().real.sum(0)

    check(complex_parts, normal(5, 8), backend=backend, coarsest=torch.float32)


@BACKENDS
def test_views_of_what_only_kernels_see(backend):
    def function(x):
        places = torch.arange(7)[None, :][:, :, None].float()
        return places * x, torch.arange(5).unsqueeze(1).unsqueeze(2).float() * x, torch.ones(7)[None].expand(5, 7).t() + 1

    runs_natively(function, normal(5, 7, 3), backend=backend)


# -- effects


@BACKENDS
def test_writes_to_inputs(backend):
    def function(x, y):
        a = x * 2
        x.add_(1)
        b = x.sum(0)
        y[1:].copy_(a[1:] + b)
        x[:, 0] = y[:, 0] + 1
        return a, x + y, b

    def inputs():
        return normal(5, 7)()[0], normal(5, 7)()[0]

    check(function, inputs, backend=backend, scale=20, coarsest=torch.float32)


@BACKENDS
def test_an_index_out_of_range_is_eagers_error(backend):
    def indexed(x, i):
        return x[i] * 2

    def selected(x, i):
        return torch.index_select(x, 0, i) + 1

    def embedded(x, i):
        return F.embedding(i, x).sum(1)

    def gathered(x, i):
        return torch.gather(x, 0, i[:, None].expand(3, 7)).exp()

    def concatenated(x, i):
        return torch.cat([x[i], torch.stack([x[i], x[:3]], 1)[:, 0], x[:3]], 1)

    for function in (indexed, selected, embedded, gathered, concatenated):
        for places in ([0, 1, 2], [0, 5, 2], [0, -6, 1], [2, -1, 0]):
            check(function, lambda places=places: (normal(5, 7)()[0], torch.tensor(places)), backend=backend)


@BACKENDS
def test_an_index_out_of_range_where_nobody_looks(backend):
    def function(x, i):
        y = x[i]
        return y[:1] * 2, y[2:] + 1

    check(function, lambda: (normal(5, 7)()[0], torch.tensor([0, 9, 2])), backend=backend)


@BACKENDS
@pytest.mark.parametrize("op", (torch.floor_divide, torch.remainder, torch.fmod))
def test_integers_divided_by_zero(backend, op):
    def inputs(divisor):
        return lambda: (torch.arange(9), torch.full((9,), divisor))

    for divisor in (2, 0, -3):
        check(lambda x, y: op(x, y) + 1, inputs(divisor), backend=backend)


@BACKENDS
def test_a_kernel_that_fails_applies_no_effect_twice(backend):
    def function(x, i, out):
        out.add_(1)
        y = x[i] * 2
        out.add_(y.sum())
        return y

    def late(x, i, out):
        out.mul_(2)
        x.add_(1)
        return torch.floor_divide(i, i - 1), out + 1, x[i]

    for places in ([0, 1], [0, 9], [0, 2]):
        def inputs(places=places):
            return normal(5, 7)()[0], torch.tensor(places), torch.zeros(3)

        expected = inputs()
        for writer in (function, late):
            compiled = smelt.compile(writer, backend=backend)
            mine, theirs = inputs(), inputs()
            errors = []
            for call, arguments in ((compiled, mine), (writer, theirs)):
                try:
                    with torch.no_grad():
                        call(*arguments)
                    errors.append(None)
                except (IndexError, RuntimeError) as error:
                    errors.append(str(error))
            assert errors[0] == errors[1]
            for a, b, before in zip(mine, theirs, expected):
                # A graph that fails may leave its arguments as they were; nothing in between, and nothing twice.
                assert torch.allclose(a, b) or (errors[0] and torch.equal(a, before))


@BACKENDS
def test_random_numbers_are_eagers(backend):
    def function(x):
        noise = torch.rand_like(x)
        y = F.dropout(x * 2, 0.5, True) + noise
        return y, torch.randn(3) + 1, y.sum(0), torch.randint(0, 9, (4,)) * 2

    check(function, normal(5, 7), backend=backend, coarsest=torch.float32)

    def failing(x):
        noise = torch.rand(3)
        return noise + x[torch.tensor([0, 99])].sum()

    check(failing, normal(5, 7), backend=backend)
    torch.manual_seed(0)
    for call in (failing, smelt.compile(failing, backend=backend)):
        torch.manual_seed(0)
        with pytest.raises(IndexError), torch.no_grad():
            call(*normal(5, 7)())
        assert torch.rand(1).item() == pytest.approx(0.132, abs=1e-3)  # the fourth number after the seed


@BACKENDS
def test_other_devices_and_layouts_are_called(backend):
    def on_meta(x):
        y = torch.empty(3, 4, device="meta") + 1
        return x * 2 + y.shape[0], (x[:3, :4] + torch.zeros_like(y, device="cpu")).sum()

    check(on_meta, normal(5, 7), backend=backend, coarsest=torch.float32)
    with torch.no_grad():
        made = smelt.compile(lambda x: (x + 1).sum(0) * 2, backend=backend)(torch.empty(3, 4, device="meta"))
        assert made.device.type == "meta" and made.shape == (4,)


@BACKENDS
def test_dtypes_together(backend):
    def inputs():
        (x,) = normal(4, 6)()
        return x, x.bfloat16(), x.double(), (x * 3).long(), (x * 3).int(), x > 0, (x.abs() * 9).to(torch.uint8), x.half()

    def function(*tensors):
        return [a + b for a in tensors for b in tensors if not (a.dtype == b.dtype == torch.bool)] + [
            a * b for a in tensors for b in tensors
        ]

    check(function, inputs, backend=backend, coarsest=torch.bfloat16, scale=10)


@BACKENDS
def test_numbers_in_tensors_of_no_dimension(backend):
    def inputs():
        return torch.tensor(2.5), torch.tensor(3), normal(4, 6)()[0], torch.tensor(0.1, dtype=torch.float64)

    def function(a, n, x, d):
        return a * n, x * a + n, (x + d).sum() * a, torch.where(a > 2, x, d), x.bfloat16() * d, n // 2, a.expand(3) + x[0, 0]

    check(function, inputs, backend=backend, coarsest=torch.float32)


@pytest.mark.parametrize(
    "shape, dims", (((20000, 64), (0,)), ((20000, 40), (0,)), ((8, 100000), (1,)), ((300, 16, 100), (0, 2)), ((1000000,), (0,)))
)
def test_long_sums_are_as_exact_as_eagers(shape, dims):
    """Rounding errors grow with the number of additions in a row."""
    errors = torch.zeros(2)
    compiled = smelt.compile(lambda x: x.sum(dims))
    for seed in range(4):
        x = torch.rand(shape, generator=torch.Generator().manual_seed(seed))
        compiled(x)
        exact = x.double().sum(dims)
        errors += torch.tensor([(y - exact).square().mean() for y in (compiled(x), x.sum(dims))])
    mine, theirs = errors.sqrt()
    assert mine <= 1.5 * theirs + 1e-7 * exact.max()
