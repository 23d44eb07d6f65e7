"""Kernels that write at computed places, or run along a dimension: what must be exactly eager's, with one thread and with two."""

import generated
import pytest
import torch
import torch.nn.functional as F

import smelt

BACKENDS = pytest.mark.parametrize("backend", ("native", "interpret"))


def one_thread(function, *args):
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return function(*args)
    finally:
        torch.set_num_threads(before)


def third_call(function, backend, *args):
    """Kernels run from the second call on."""
    before = smelt.stats()["ops_native"]
    compiled = smelt.compile(function, backend=backend)
    for _ in range(3):
        result = compiled(*args)
    assert generated.more_than(before, smelt.stats()), "no kernel was made"
    return result


@BACKENDS
@pytest.mark.parametrize("columns", (1, 3, 64, 256, 1000))
@pytest.mark.parametrize("op", ("index_add", "scatter_add", "index_put", "embedding"))
def test_sums_are_eagers_in_order(threads, backend, columns, op):
    """Rows that meet are added one after the other: no bit differs from eager's loop on one thread."""
    generator = torch.Generator().manual_seed(0)
    base = torch.randn(13, columns, generator=generator)
    rows = torch.randint(0, 13, (400,), generator=generator)
    values = torch.randn(400, columns, generator=generator) * 1e3
    functions = {
        "index_add": lambda b, r, v: b.index_add(0, r, v),
        "scatter_add": lambda b, r, v: b.scatter_add(0, r.view(-1, 1).expand_as(v), v),
        "index_put": lambda b, r, v: b.index_put((r,), v, accumulate=True),
        "embedding": lambda b, r, v: torch.ops.aten.embedding_dense_backward(v, r, 13, -1, False),
    }
    expected = one_thread(functions["index_add"], base if op != "embedding" else torch.zeros_like(base), rows, values)
    result = third_call(functions[op], backend, base, rows, values)
    if generated.HAS_KERNELS or backend == "interpret":
        assert torch.equal(result, expected)
    else:  # eager's own ops, which add in another order where threads share them
        torch.testing.assert_close(result, expected, rtol=1e-5, atol=0.02)


@BACKENDS
def test_the_last_of_several_stays(threads, backend):
    rows = torch.randint(0, 7, (500,), generator=torch.Generator().manual_seed(0))
    values = torch.arange(500 * 96.0).view(500, 96)
    expected = torch.zeros(7, 96)
    for row, value in zip(rows.tolist(), values, strict=True):
        expected[row] = value
    for function in (
        lambda r, v: torch.zeros(7, 96).index_put((r,), v),
        lambda r, v: torch.zeros(7, 96).index_copy(0, r, v),
        lambda r, v: torch.zeros(7, 96).scatter(0, r.view(-1, 1).expand(500, 96), v),
    ):
        result = third_call(function, backend, rows, values)
        if generated.HAS_KERNELS or backend == "interpret":
            assert torch.equal(result, expected)
        else:  # eager's threads race: one of the values of a row stays
            for row in range(7):
                assert (values[rows == row] == result[row]).any(0).all()


@BACKENDS
@pytest.mark.parametrize("bad", (-8, 7, 2**40))
def test_an_index_out_of_range_raises_eagers_error(backend, bad):
    functions = (
        lambda x, i: x.index_add(0, i, torch.ones(3, 4)),
        lambda x, i: x.index_put((i,), torch.ones(4), accumulate=True),
        lambda x, i: x.scatter_add(0, i.view(3, 1).expand(3, 4), torch.ones(3, 4)),
        lambda x, i: x.index_copy(0, i, torch.ones(3, 4)),
        lambda x, i: x.index_fill(0, i, 1.0),
    )
    good, wrong = torch.tensor([0, 6, 3]), torch.tensor([0, bad, 3])
    x = torch.zeros(7, 4)
    for function in functions:
        compiled = smelt.compile(function, backend=backend)
        expected = function(x, good)
        for _ in range(3):
            assert torch.equal(compiled(x, good), expected)
        with pytest.raises((IndexError, RuntimeError)) as eager:
            function(x, wrong)
        with pytest.raises(type(eager.value)) as mine:
            compiled(x, wrong)
        assert str(mine.value) == str(eager.value)
        assert torch.equal(compiled(x, good), expected) and not x.any()


@BACKENDS
def test_negative_indices(backend):
    x, i = torch.randn(7, 4), torch.tensor([-1, -7, 2, -1])
    expected = x.index_put((i,), torch.ones(4, 4), accumulate=True)
    actual = third_call(lambda x, i: x.index_put((i,), torch.ones(4, 4), accumulate=True), backend, x, i)
    assert torch.equal(actual, expected)


@BACKENDS
def test_what_is_updated_stays_as_it_was(backend):
    """The result is a new tensor, also where the old one is read as well."""
    x, i = torch.randn(9, 5), torch.tensor([1, 1, 4])

    def function(x, i):
        y = x * 2
        z = y.index_add(0, i, y[:3])
        return y, z, x.index_copy(0, i, x[2:5])

    before = x.clone()
    for mine, theirs in zip(third_call(function, backend, x, i), function(x, i), strict=True):
        assert torch.equal(mine, theirs)
    assert torch.equal(x, before)


@BACKENDS
def test_messages_of_a_graph_are_computed_on_the_way(backend):
    """x[source] * weight, added up per target: no tensor of messages is stored."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(50, 8, generator=generator)
    source, target = torch.randint(0, 50, (2, 300), generator=generator)
    weight = torch.rand(300, generator=generator)

    def function(x, source, target, weight):
        messages = (x[source] + 1) * weight.unsqueeze(1)
        return torch.zeros_like(x).index_add(0, target, messages)

    expected = one_thread(function, x, source, target, weight)
    torch.testing.assert_close(third_call(function, backend, x, source, target, weight), expected)


@BACKENDS
def test_in_place_updates_of_an_argument(backend):
    def function(x, i, v):
        x.index_add_(0, i, v)
        x[i] = 3.0
        return x * 2

    compiled = smelt.compile(function, backend=backend)
    i, v = torch.tensor([1, 1, 4]), torch.randn(3, 5)
    mine, theirs = torch.zeros(9, 5), torch.zeros(9, 5)
    for _ in range(3):
        assert torch.equal(compiled(mine, i, v), function(theirs, i, v))
        assert torch.equal(mine, theirs)


@BACKENDS
def test_updates_that_are_launched_together(threads, backend):
    """Independent kernels: some begin as zeros, some as what others of the batch read."""
    generator = torch.Generator().manual_seed(0)
    x, v = torch.randn(60, 96, generator=generator), torch.randn(700, 96, generator=generator)
    i = torch.randint(0, 60, (700,), generator=generator)

    def function(x, i, v):
        y = torch.mm(x, x.t()).sort(0)[0][:, :48].contiguous()  # of which nobody else holds the memory
        sums = torch.ops.aten.embedding_dense_backward(v, i, 60, -1, False)
        return y.index_add(0, i, v[:, :48]), x.index_add(0, i, v), sums, x.cumsum(0), y.exp()

    expected = one_thread(function, x, i, v)
    before = x.clone()
    for mine, theirs in zip(third_call(function, backend, x, i, v), expected, strict=True):
        torch.testing.assert_close(mine, theirs)
    assert torch.equal(x, before)


@BACKENDS
def test_a_number_that_changes_is_scattered(backend):
    x, i = torch.randn(6, 9), torch.tensor([[0, 3, 3], [8, 1, 2]])
    compiled = smelt.compile(lambda x, i, number: x.scatter(1, i, number) + 1, backend=backend)
    for number in (0.5, 1.5, -2.0, 3.25, 7.0):
        assert torch.equal(compiled(x, i, number), x.scatter(1, i, number) + 1)


@BACKENDS
@pytest.mark.parametrize("dim", (0, 1, 2))
@pytest.mark.parametrize("dtype", (torch.float32, torch.float64, torch.bfloat16, torch.int64))
def test_running_sums_with_what_comes_before_and_after(threads, backend, dim, dtype):
    x = (torch.randn(6, 33, 40, generator=torch.Generator().manual_seed(0)) * 3).to(dtype)

    def function(x):
        total = (x * 2 + 1).cumsum(dim)
        return total, (total * 0.5).sum(dim), total - x, x.amax(dim)

    expected = one_thread(function, x)
    for mine, theirs in zip(third_call(function, backend, x), expected, strict=True):
        torch.testing.assert_close(mine, theirs)
    assert torch.equal(third_call(lambda x: x.cumsum(dim), backend, x), x.cumsum(dim))


def test_few_long_rows_are_not_cut_into_slices(threads):
    """A plain sum of them is: a running one needs what all points before have given."""
    x = torch.randint(-9, 9, (2, 150000), generator=torch.Generator().manual_seed(0))

    def function(x):
        return x.cumsum(1), (x * 2).sum(1)

    for mine, theirs in zip(third_call(function, "native", x), function(x), strict=True):
        assert torch.equal(mine, theirs)


@BACKENDS
def test_positions_of_a_mask(backend):
    mask = torch.rand(4, 70, generator=torch.Generator().manual_seed(0)) > 0.3

    def function(mask):
        return (mask.long().cumsum(-1) - 1).clamp(min=0) * mask

    assert torch.equal(third_call(function, backend, mask), function(mask))


@BACKENDS
def test_gradients_of_gathers(backend):
    """Training: index, gather, index_select and embedding, whose gradients are updates."""
    generator = torch.Generator().manual_seed(0)
    weight, x = torch.randn(30, 16, generator=generator), torch.randn(12, 16, generator=generator)
    i = torch.randint(0, 12, (5, 6), generator=generator)

    def loss(weight, x, i):
        gathered = x.gather(1, i[:, :4] % 12) * 3
        return (F.embedding(i, weight, padding_idx=3).sin().sum() + (x[i] ** 2).sum() + gathered.sum()
                + (x.index_select(0, i[0]) ** 3).sum() + x.cumsum(1).cos().sum())  # fmt: skip

    def gradients(function):
        leaves = [tensor.clone().requires_grad_() for tensor in (weight, x)]
        function(*leaves, i).backward()
        return [leaf.grad for leaf in leaves]

    compiled = smelt.compile(loss, backend=backend)
    expected = gradients(loss)
    for _ in range(3):
        for mine, theirs in zip(gradients(compiled), expected, strict=True):
            torch.testing.assert_close(mine, theirs)


@BACKENDS
def test_cross_entropy_refuses_what_is_no_probability(backend):
    compiled = smelt.compile(F.binary_cross_entropy, backend=backend)
    x, t = torch.rand(40), torch.rand(40)
    for _ in range(3):
        torch.testing.assert_close(compiled(x, t), F.binary_cross_entropy(x, t))
    with pytest.raises(RuntimeError, match="between 0 and 1"):
        compiled(x + 0.5, t)
    with pytest.raises(RuntimeError, match="between 0 and 1"):
        compiled(torch.full((40,), float("nan")), t)
