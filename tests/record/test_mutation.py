"""In-place code, through views as well, and what it leaves in the caller's tensors."""

import pytest
import torch
from record_check import check, same

import smelt


def rand(*shape):
    return torch.randn(*shape)


def views_of_input(a):
    a[1:3].mul_(2)
    a.t()[0].add_(1)
    b = a.view(-1)[3:9]
    b.zero_()
    return a.sum(), b + 1


def two_inputs(a, b):
    v = a.view(24)
    b.copy_(a * 2)
    v.add_(1)
    return a * b, v


def chain_of_views(a):
    v = a.view(2, 12)[1].view(3, 4)
    w = v.t()[1:3]
    w[0, 1] = 5.0
    v.add_(w.sum())
    w.mul_(v[0, 0])
    a[0] -= 1
    return v.clone(), w.clone(), a.diagonal().sum()


def local_views(x):
    y = x * 2
    v = y[0]
    v += 1
    y.relu_()
    v.neg_()
    y[1:, ::2] = x[1:, ::2]
    return y


def read_before_and_after(a):
    before = a + 0
    view = a[0]
    a.add_(1)
    return before, view + 0, a * 2


def overwritten_twice(a):
    a.fill_(3)
    a.add_(1)
    a.copy_(a * a)


def swap(a, b):
    t = a.clone()
    a.copy_(b)
    b.copy_(t)


def copy_without_clone(a, b):
    t = a
    a.copy_(b)
    b.copy_(t)


def written_with_another_input(a, b):
    a.copy_(b)
    b.add_(1)
    return a + 0


def to_other_dtype(a):
    n = torch.zeros(4, 6, dtype=torch.int64)
    n.copy_(a)
    a.copy_(n)
    return n


def indexed(a):
    i = torch.tensor([0, 2])
    a[i] = 1.0
    a[:, i] += 2.0
    a.index_add_(0, i, torch.ones(2, 6))
    a.scatter_(1, i[None], -1.0)
    a.index_fill_(1, i, 0.5)
    a.masked_fill_(a > 1, 7.0)
    a[a < 0] = 0.25
    a.index_put_((i,), torch.ones(6), accumulate=True)


def in_place_activations(a):
    torch.nn.functional.relu(a, inplace=True)
    a.sigmoid_().clamp_(0.3, 0.6).addcmul_(a, a, value=2).lerp_(a * 2, 0.5)
    a.unsqueeze_(0).squeeze_(0)


def transposed_in_place(a):
    y = a * 2
    y.t_()
    y.add_(1)
    y.squeeze_().transpose_(0, 1)
    return y


def out_arguments(a, b):
    torch.add(a, 1, out=b)
    torch.mul(a, b, out=b[0:4])
    return b


def foreach(a, b):
    torch._foreach_mul_([a, b], 2.0)
    torch._foreach_add_([a, b], [a * 2, b])
    torch._foreach_addcdiv_([a], [a], [b.abs() + 1], value=0.1)
    torch._foreach_copy_([b], [a])


def resized(a):
    y = torch.empty(0)
    y.resize_(4, 6).copy_(a)
    torch.cumsum(a, 0, out=torch.empty(0))
    return y


def part_of_a_strided_input(a):
    a[::2].add_(1)
    return a[1]


def split_and_write(a):
    for i, part in enumerate(a.split(2)):
        part.add_(i)
    for i, row in enumerate(a.unbind(0)):
        row.mul_(i)
    a.chunk(3, 1)[1].zero_()


def strided_views(a):
    a.as_strided((2, 2), (6, 1)).zero_()
    a.unfold(0, 2, 2).mul_(3)
    a.flatten()[5] = 9


CASES = {
    views_of_input: 1, two_inputs: 2, chain_of_views: 1, local_views: 1, read_before_and_after: 1, overwritten_twice: 1,
    swap: 2, copy_without_clone: 2, written_with_another_input: 2, to_other_dtype: 1, indexed: 1,
    in_place_activations: 1, transposed_in_place: 1, out_arguments: 2, foreach: 2, resized: 1,
    part_of_a_strided_input: 1, split_and_write: 1, strided_views: 1,
}  # fmt: skip


@pytest.mark.parametrize("fn", CASES, ids=lambda fn: fn.__name__)
def test_in_place(fn):
    check(fn, *(rand(4, 6) for _ in range(CASES[fn])))


@pytest.mark.parametrize("fn", [views_of_input, local_views, part_of_a_strided_input], ids=lambda fn: fn.__name__)
def test_strided_input(fn):
    base = rand(6, 8)
    strided = base.t()[:4, :6] if fn is not views_of_input else rand(4, 6)
    check(fn, strided)


def test_complex_in_place():
    def fn(z):
        z.conj().mul_(2j)
        z.real.add_(1)
        z.imag[0] = 0.5
        return z.conj()

    check(fn, torch.randn(3, 3, dtype=torch.complex64))


COMPLEX_AS_REAL = {
    "view_as_real": torch.view_as_real,
    "view": lambda z: z.view(torch.float32),
    "view of a part": lambda z: torch.view_as_real(z[1:]),
    "written": lambda z: (torch.view_as_real(z).mul_(2), z.imag),
}


@pytest.mark.parametrize("name", COMPLEX_AS_REAL)
@pytest.mark.parametrize("outside", [True, False])
def test_complex_as_real_after_a_write_through_conj(name, outside):
    def fn(z):
        z = z if outside else z * 3
        z.conj().mul_(2j)
        return COMPLEX_AS_REAL[name](z)

    check(fn, torch.randn(3, 3, dtype=torch.complex64))


def test_many_inputs_written():
    def fn(*tensors):
        for i, t in enumerate(tensors):
            if i % 2:
                t.add_(tensors[i - 1])

    check(fn, *(rand(3) for _ in range(6)))


def test_captured_tensor_written():
    counter = torch.zeros(2)

    def fn(x):
        counter.add_(1)
        return x + counter

    graph = smelt.record(fn, torch.ones(2))
    same(counter, torch.zeros(2))
    for n in range(1, 4):
        same(graph.run(torch.ones(2)), torch.full((2,), 1.0 + n))
        same(counter, torch.full((2,), float(n)))


def test_version_of_written_input_moves():
    """Eager code that saved the tensor for a backward notices the write of a run, as it would notice eager's."""
    x, w = torch.ones(3), torch.ones(3, requires_grad=True)
    graph = smelt.record(lambda t: t.add_(1), x)
    loss = (w * x).sum()
    graph.run(x)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


# -- inputs that share memory


def test_two_views_of_one_tensor_read_only():
    base = rand(4, 6)
    check(lambda a, b: a * 2 + b, base, base[0])


@pytest.mark.parametrize("written", ["base", "row"])
def test_two_views_of_one_tensor_written(written):
    base = rand(4, 6)
    row = base[0]

    def fn(base, row):
        (base if written == "base" else row).add_(1)
        return base + row

    before = base.clone()
    with pytest.raises(smelt.RecordError, match="share memory"):
        smelt.record(fn, base, row)
    same(base, before)


def test_captured_view_of_written_argument():
    base = rand(4, 6)
    row = base[0]

    def fn(base):
        base.add_(1)
        return row * 1

    with pytest.raises(smelt.RecordError, match="share memory"):
        smelt.record(fn, base)


def test_disjoint_parts_of_one_tensor_written():
    base = rand(4, 6)

    def fn(a, b):
        a.add_(1)
        b.mul_(2)

    check(fn, base[:2], base[2:])


def test_same_tensor_twice():
    def fn(a, b):
        a.add_(1)
        return a + b, b

    x, y = rand(3), rand(3)
    graph = smelt.record(fn, x, x)
    expected = (x + 1) * 2
    total, returned = graph.run(x, x)
    same(total, expected)
    assert returned is x
    with pytest.raises(smelt.Error, match="tensor arguments 0 and 1 were the same tensor"):
        graph.run(x, y)


def test_arguments_that_alias_only_at_run():
    graph = smelt.record(lambda a, b: a.add_(b.sum()), rand(4), rand(2))
    x = rand(4)
    before = x.clone()
    with pytest.raises(smelt.Error, match="share memory"):
        graph.run(x, x[:2])
    same(x, before)


def test_overlapping_target_is_refused_as_in_eager():
    def fn(a):
        a[:1].expand(4, 6).add_(1)

    x = rand(4, 6)
    with pytest.raises(RuntimeError) as eager:
        fn(x.clone())
    with pytest.raises(RuntimeError) as recorded:
        smelt.record(fn, x)
    assert str(recorded.value).split("\n")[0] == str(eager.value).split("\n")[0]


@pytest.mark.parametrize("change", ["a.data = a * 2", "a.set_(torch.ones(2))", "a.resize_(8)", "a.unsqueeze_(0)", "a.t_()"])
def test_other_memory_or_shape_for_an_input(change):
    def fn(a):
        exec(change)
        return a + 1

    x = rand(2, 3)
    before = x.clone()
    with pytest.raises(smelt.RecordError):
        smelt.record(fn, x)
    same(x, before)
