"""In-place ops whose target and arguments lie in one memory: the functional op must mean the same, or it is refused."""

import pytest
import torch
from record_check import check, same

import smelt

TANGLED = {
    "shifted": lambda a: a[1:].add_(a[:-1]),
    "shifted columns": lambda a: a[:, 1:].copy_(a[:, :-1]),
    "transposed": lambda a: a[:, :4].add_(a[:, :4].t()),
    "diagonal": lambda a: a[:, 0].mul_(a.diagonal()),
    "out": lambda a: torch.add(a[:2], 1, out=a[1:3]),
    "foreach crossed": lambda a: torch._foreach_add_([a[0], a[1]], [a[1], a[0]]),
    "foreach after": lambda a: torch._foreach_add_([a[0], a[1]], [a[2], a[0]]),
    "foreach twice": lambda a: torch._foreach_add_([a[0], a[0]], 1.0),
    "windows": lambda a: a.unfold(1, 3, 1).mul_(2),
    "as_strided": lambda a: a.as_strided((3, 3), (1, 1)).add_(1),
}


@pytest.mark.parametrize("name", TANGLED)
def test_op_that_reads_what_it_writes_is_refused(name):
    """Eager raises or depends on the order of its loops; the functional op would compute something else."""
    x = torch.randn(4, 6)
    before = x.clone()
    with pytest.raises(smelt.RecordError, match="same memory|elements twice"):
        smelt.record(TANGLED[name], x)
    same(x, before)


def disjoint(a):
    a[0].add_(a[1])
    a[:, :3] += a[:, 3:]
    a[:, ::2].mul_(a[:, 1::2])
    a[:2, 0].copy_(a[2:, 0])
    a.add_(a)
    torch.mul(a, 2, out=a)
    torch._foreach_add_([a[0], a[1]], [a[2], a[3]])
    torch._foreach_mul_(list(a.unbind(1)), 0.5)
    a[1:3, 1:3].sub_(a[2:4, 3:5])
    a.view(2, 2, 6)[:, 0].addcmul_(a.view(2, 2, 6)[:, 1], a.view(2, 2, 6)[:, 1])


def test_parts_of_one_tensor_without_common_elements():
    check(disjoint, torch.randn(4, 6))
    check(disjoint, torch.randn(6, 4).t())


def test_rotary_embedding_in_place():
    def fn(x, cos, sin):
        a, b = x[..., ::2], x[..., 1::2]
        old = a.clone()
        a.mul_(cos).sub_(b * sin)
        b.mul_(cos).add_(old * sin)
        return x

    check(fn, torch.randn(2, 3, 8), torch.randn(3, 4), torch.randn(3, 4))


def test_key_value_cache():
    def fn(cache, new, step):
        cache[:, step : step + new.shape[1]] = new
        cache[:, : step + 1].mul_(0.5)
        return cache[:, : step + 2].sum(1)

    check(fn, torch.zeros(2, 8, 4), torch.randn(2, 2, 4), 3)


@pytest.mark.parametrize(
    "fn",
    [
        lambda a: a[:1].expand(4, 6).add_(1),
        lambda a: a[0, :1].expand(6).copy_(a[1]),
        lambda a: torch.add(a, 1, out=a[:1].expand(4, 6)),
    ],
)
def test_expanded_target_raises_what_eager_raises(fn):
    x = torch.randn(4, 6)
    with pytest.raises(RuntimeError) as eager:
        fn(x.clone())
    with pytest.raises(RuntimeError) as recorded:
        smelt.record(fn, x)
    assert not isinstance(recorded.value, smelt.Error)
    assert str(recorded.value).split("\n")[0] == str(eager.value).split("\n")[0]


STRIDED = {
    "addmm_": lambda y: y.addmm_(torch.ones(6, 3), torch.ones(3, 4)),
    "cumsum_": lambda y: y.cumsum_(0),
    "index_add_": lambda y: y.index_add_(0, torch.tensor([0]), torch.ones(1, 4)),
    "scatter_": lambda y: y.scatter_(0, torch.zeros(1, 4, dtype=torch.int64), 1.0),
    "masked_fill_": lambda y: y.masked_fill_(y > 0, 1.0),
    "index_put_": lambda y: y.index_put_((torch.tensor([0]),), torch.ones(4)),
    "tril_": lambda y: y.tril_(),
    "renorm_": lambda y: y.renorm_(2, 0, 1.0),
    "out": lambda y: torch.add(torch.ones(6, 4), 1, out=y),
    "mm out": lambda y: torch.mm(torch.ones(6, 3), torch.ones(3, 4), out=y),
    "sort out": lambda y: torch.sort(torch.randn(6, 4), out=(y, torch.empty(6, 4, dtype=torch.int64)))[0],
    "copy_": lambda y: y.copy_(torch.ones(6, 4)),
    "dropout_": lambda y: torch.nn.functional.dropout(y, 0.5, inplace=True),
}


@pytest.mark.parametrize("name", STRIDED)
def test_in_place_keeps_the_strides(name):
    """A functional op would choose strides of its own, and what is computed from them may round in another way."""

    def fn(x):
        y = (x * 2).t()
        STRIDED[name](y)
        assert y.stride() == (1, 6)
        return y, y * 1, y.sum(0), y.view(torch.int32)

    check(fn, torch.randn(4, 6))


# Products into given memory: rows, columns, columns with gaps, and parts of a larger tensor.
TARGETS = {
    "rows": lambda rows, columns, dtype: torch.zeros(rows, columns, dtype=dtype),
    "columns": lambda rows, columns, dtype: torch.zeros(columns, rows, dtype=dtype).t(),
    "gaps": lambda rows, columns, dtype: torch.zeros(rows, 2 * columns, dtype=dtype)[:, ::2],
    "part": lambda rows, columns, dtype: torch.zeros(rows, columns + 3, dtype=dtype)[:, 1 : columns + 1],
    "part of columns": lambda rows, columns, dtype: torch.zeros(columns + 3, rows, dtype=dtype).t()[:, 2 : columns + 2],
}
PRODUCTS = {
    "addmm_": lambda y, a, b: y.addmm_(a, b, beta=0.5, alpha=2),
    "addmm out": lambda y, a, b: torch.addmm(b[0], a, b, out=y),
    "mm out": lambda y, a, b: torch.mm(a, b, out=y),
    "matmul out": lambda y, a, b: torch.matmul(a, b, out=y),
}
BATCHES = {
    "baddbmm_": lambda y, a, b: y.baddbmm_(a, b, alpha=2),
    "bmm out": lambda y, a, b: torch.bmm(a, b, out=y),
}


@pytest.mark.parametrize("sizes", [(6, 3, 4), (1, 7, 5), (5, 7, 1), (33, 17, 9)], ids=str)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_round_as_their_target_lies(name, target, sizes):
    rows, inner, columns = sizes
    if "part" in target and rows > 8:
        pytest.skip("where a row of the target begins decides, which a new tensor does not have")
    for dtype in (torch.float32, torch.float64, torch.bfloat16):

        def fn(a, b, x):
            y = TARGETS[target](rows, columns, dtype)
            y.copy_(x)
            PRODUCTS[name](y, a, b)
            return y, y * 1, y.sum(0)

        check(fn, *(torch.randn(shape).to(dtype) for shape in ((rows, inner), (inner, columns), (rows, columns))))


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (1, 0, 2), (2, 1, 0)], ids=str)
@pytest.mark.parametrize("inner", (2, 17))
@pytest.mark.parametrize("name", BATCHES)
def test_batches_round_as_their_target_lies(name, inner, order):
    def fn(a, b):
        y = (a[:, :, :1] + b[:, :1]).permute(order).contiguous().permute([order.index(d) for d in range(3)])
        BATCHES[name](y, a, b)
        return y, y * 1

    check(fn, torch.randn(3, 9, inner), torch.randn(3, inner, 8))


def test_complex_numbers_divided_in_place():
    def fn(x, y):
        z = x * 1
        z.div_(y)
        z[1:].div_(y[:-1])
        return z, x.clone().div_(2.5), x.t().clone().div_(y.t())

    for dtype in (torch.complex64, torch.complex128):
        for size in (1, 5, 7, 20):
            check(fn, torch.randn(size, 5, dtype=dtype), torch.randn(size, 5, dtype=dtype))
