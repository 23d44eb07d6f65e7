"""Wrong programs raise what they raise in eager, at the user's line, and leave nothing behind."""

import traceback

import pytest
import torch
import torch.nn.functional as F
from record_check import same

import smelt


def rand(*shape):
    return torch.randn(*shape)


WRONG = {
    "matmul": lambda: rand(3, 4) @ rand(3, 4),
    "mm of vectors": lambda: torch.mm(rand(3), rand(3)),
    "bmm batch": lambda: torch.bmm(rand(2, 3, 4), rand(3, 4, 5)),
    "linear": lambda: F.linear(rand(2, 3), rand(4, 5)),
    "broadcast": lambda: rand(3, 4) + rand(5),
    "in-place too wide": lambda: rand(3).add_(rand(2, 3)),
    "in-place too wide 2": lambda: rand(3, 1).mul_(rand(3, 4)),
    "in-place dtype": lambda: torch.ones(3, dtype=torch.int64).add_(0.5),
    "in-place dtype of a tensor": lambda: torch.ones(3, dtype=torch.int64).mul_(rand(3)),
    "in-place comparison": lambda: torch.ones(3, dtype=torch.bool).add_(rand(3)),
    "view": lambda: rand(3, 4).view(5, 2),
    "view of strided": lambda: rand(3, 4).t().view(12),
    "reshape": lambda: rand(3, 4).reshape(7, -1),
    "cat": lambda: torch.cat([rand(2, 3), rand(2, 4)]),
    "stack": lambda: torch.stack([rand(2), rand(3)]),
    "index dtype": lambda: rand(3, 4)[rand(2)],
    "index_select dtype": lambda: rand(3, 4).index_select(0, rand(2)),
    "too many indices": lambda: rand(3)[0, 0],
    "index out of range": lambda: rand(3)[5],
    "gather": lambda: rand(3, 4).gather(0, torch.zeros(1, dtype=torch.int64)),
    "conv channels": lambda: F.conv2d(rand(1, 3, 8, 8), rand(4, 5, 3, 3)),
    "conv kernel too big": lambda: F.conv2d(rand(1, 3, 2, 2), rand(4, 3, 5, 5)),
    "bad dim": lambda: rand(3, 4).sum(2),
    "bad softmax dim": lambda: rand(3).softmax(1),
    "bad transpose": lambda: rand(3, 4).transpose(0, 3),
    "squeeze and permute": lambda: rand(3, 4).permute(0, 0),
    "expand": lambda: rand(3, 4).expand(3, 5),
    "unflatten": lambda: rand(6).unflatten(0, (4, 2)),
    "split": lambda: rand(6).split([2, 2]),
    "chunk": lambda: rand(6).chunk(0),
    "cross entropy": lambda: F.cross_entropy(rand(3, 4), torch.zeros(2, dtype=torch.int64)),
    "layer norm": lambda: F.layer_norm(rand(3, 4), (5,)),
    "batch norm": lambda: F.batch_norm(rand(2, 3), torch.zeros(4), torch.ones(4), training=True),
    "embedding dtype": lambda: F.embedding(rand(2), rand(5, 3)),
    "mask shape": lambda: rand(3, 4).masked_fill(torch.ones(2) > 0, 0.0),
    "mask dtype": lambda: rand(3).masked_fill(torch.ones(3), 0.0),
    "attention": lambda: F.scaled_dot_product_attention(rand(1, 2, 3, 4), rand(1, 2, 3, 5), rand(1, 2, 3, 4)),
    "bool arithmetic": lambda: -torch.ones(3, dtype=torch.bool),
    "copy_": lambda: torch.zeros(3).copy_(rand(4)),
    "out dtype": lambda: torch.add(rand(3), 1, out=torch.zeros(3, dtype=torch.int32)),
    "assignment": lambda: torch.zeros(3, 4).__setitem__(0, rand(5)),
    "negative size": lambda: torch.zeros(-1),
    "dropout probability": lambda: F.dropout(rand(3), 1.5),
    "linalg": lambda: torch.linalg.inv(rand(3, 4)),
    "fft length": lambda: torch.fft.rfft(rand(3), n=0),
    "einsum": lambda: torch.einsum("ij,jk->ik", rand(2, 3), rand(4, 5)),
    "grad of non-scalar": lambda: torch.autograd.grad(rand(3).requires_grad_() * 2, rand(3)),
    "backward without grad": lambda: rand(3).sum().backward(),
    "lstm": lambda: torch.nn.LSTM(5, 4)(rand(3, 2, 6)),
    "linear module": lambda: torch.nn.Linear(3, 4)(rand(2, 5)),
    "keyword": lambda: rand(3).sum(dimm=1),
    "conj as real": lambda: torch.view_as_real(torch.zeros(3, dtype=torch.complex64).conj()),
    "foreach": lambda: torch._foreach_add([rand(2)], [rand(2), rand(2)]),
}  # fmt: skip


def first_line(error):
    return str(error).split("\n")[0]


@pytest.mark.parametrize("name", WRONG)
def test_raises_what_eager_raises(name):
    fn = WRONG[name]
    with pytest.raises(Exception) as eager:
        fn()
    with pytest.raises(type(eager.value)) as recorded:
        smelt.record(fn)
    assert type(recorded.value) is type(eager.value)
    assert first_line(recorded.value) == first_line(eager.value)
    lines = [f.lineno for f in traceback.extract_tb(recorded.value.__traceback__) if f.filename == __file__]
    assert fn.__code__.co_firstlineno in lines
    same(torch.ones(2) + 1, torch.full((2,), 2.0))


def test_a_kernel_that_does_not_exist_raises_when_the_graph_runs():
    """Shapes and dtypes fit; it is the kernel itself that eager fails to find."""
    a, b = rand(3), rand(3)
    with pytest.raises(NotImplementedError) as eager:
        a & b
    graph = smelt.record(lambda a, b: a & b, a, b)
    with pytest.raises(NotImplementedError) as replayed:
        graph.run(a, b)
    assert first_line(replayed.value) == first_line(eager.value)


def test_dtype_without_a_kernel():
    """Known only to the kernel: raised at the record or at the run."""
    x = rand(3)
    with pytest.raises(NotImplementedError, match='"bitwise_and_cpu" not implemented for \'Float\''):
        smelt.record(lambda a: a & a, x).run(x)


def test_wrong_call_with_arguments_from_outside():
    a, b = rand(3, 4), rand(3, 4)
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
        smelt.record(torch.mm, a, b)
    with pytest.raises(RuntimeError, match="The size of tensor a"):
        smelt.record(lambda x: a + x, rand(5))


def test_error_in_the_backward():
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return rand(5)

    w = rand(3).requires_grad_()

    def fn(w):
        Wrong.apply(w).sum().backward()

    with pytest.raises(RuntimeError) as eager:
        fn(w)
    with pytest.raises(RuntimeError) as recorded:
        smelt.record(fn, w)
    assert first_line(recorded.value) == first_line(eager.value)
    assert w.grad is None


class Mine(Exception):
    pass


def test_users_exception_passes_through():
    cause = KeyError("cause")
    model = torch.nn.Linear(3, 3)

    def inner(x):
        model.weight.data.mul_(2)
        raise Mine("what the user says", x.shape) from cause

    def outer(x):
        return inner(model(x))

    before = model.weight.clone()
    with pytest.raises(Mine) as caught:
        smelt.record(outer, rand(2, 3))
    assert caught.value.args == ("what the user says", (2, 3)) and caught.value.__cause__ is cause
    names = [f.name for f in traceback.extract_tb(caught.value.__traceback__)]
    assert names[-2:] == ["outer", "inner"]
    same(model.weight, before)


def test_exception_from_a_hook_in_the_backward():
    w = rand(3).requires_grad_()

    def hook(grad):
        raise Mine("in the hook")

    def fn():
        y = w * 2
        y.register_hook(hook)
        y.sum().backward()

    with pytest.raises(Mine, match="in the hook"):
        smelt.record(fn)
    assert w.grad is None
    (w * 2).sum().backward()
    same(w.grad, torch.full((3,), 2.0))


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, StopIteration, GeneratorExit])
def test_control_exceptions(error):
    def fn(x):
        x.add_(1)
        raise error()

    x = torch.ones(3)
    with pytest.raises(error):
        smelt.record(fn, x)
    same(x, torch.ones(3))


def test_wrong_call_that_is_caught():
    """The user tries one thing and then another, as in eager."""

    def fn(x):
        try:
            return x.view(5)
        except RuntimeError:
            return x.reshape(-1)

    x = rand(2, 3)
    same(smelt.record(fn, x).run(x), x.reshape(-1))


def test_wrong_in_place_call_that_is_caught_is_right_or_refused():
    def fn(x):
        y = torch.zeros(3)
        try:
            y.add_(rand(2, 3))
        except RuntimeError:
            pass
        return y + x

    x = rand(3)
    try:
        graph = smelt.record(fn, x)
    except smelt.RecordError:
        return
    same(graph.run(x), fn(x))


def test_values_out_of_range_raise_at_the_run():
    table, i = rand(4, 2), torch.tensor([0, 3])
    graph = smelt.record(lambda i: table[i], i)
    same(graph.run(i), table[i])
    with pytest.raises(IndexError, match="out of range|out of bounds"):
        graph.run(torch.tensor([0, 7]))
    same(graph.run(i), table[i])
    target = smelt.record(F.cross_entropy, rand(2, 3), torch.tensor([0, 1]))
    with pytest.raises(IndexError, match="Target 9 is out of bounds"):
        target.run(rand(2, 3), torch.tensor([0, 9]))


def test_failed_run_writes_nothing():
    def fn(x, i):
        x.add_(1)
        return x[i]

    x = rand(3)
    graph = smelt.record(fn, x, torch.tensor([0]))
    before = x.clone()
    with pytest.raises(IndexError):
        graph.run(x, torch.tensor([9]))
    same(x, before)
