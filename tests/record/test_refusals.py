"""What can't be written down: a RecordError with a sentence and the user's line, and never a wrong number."""

import copy
import pickle
import sys

import numpy
import pytest
import torch
from record_check import same

import smelt


def line_of(fn):
    return f"{__file__}:{fn.__code__.co_firstlineno}"


CONTENTS = "depends on tensor contents"
MEMORY = "memory"

REFUSED = {
    "item": (lambda x: x.sum().item(), CONTENTS),
    "float": (lambda x: float(x[0, 0]), CONTENTS),
    "int": (lambda x: int(x[0, 0]), CONTENTS),
    "bool": (lambda x: bool(x.sum() > 0), CONTENTS),
    "if": (lambda x: x * 2 if x.sum() > 0 else x, CONTENTS),
    "while": (lambda x: [x for _ in range(x[0, 0].long())], CONTENTS),
    "assert": (lambda x: torch._assert(x.sum() > 0, "positive"), CONTENTS),
    "in": (lambda x: 1.0 in x, CONTENTS),
    "max of python": (lambda x: max(x[0, 0], x[0, 1]), CONTENTS),
    "print": (lambda x: print(x), CONTENTS),
    "repr": (lambda x: repr(x), CONTENTS),
    "format": (lambda x: f"{x.sum():.2f}", CONTENTS),
    "nonzero": (lambda x: x.nonzero(), CONTENTS),
    "argwhere": (lambda x: torch.argwhere(x), CONTENTS),
    "where": (lambda x: torch.where(x > 0), CONTENTS),
    "masked_select": (lambda x: x.masked_select(x > 0), CONTENTS),
    "boolean index": (lambda x: x[x > 0], CONTENTS),
    "byte index": (lambda x: x[(x > 0).byte()], CONTENTS),
    "boolean row index": (lambda x: x[torch.tensor([True, False])], CONTENTS),
    "slice by tensor": (lambda x: x[: x[0, 0].long()], CONTENTS),
    "unique": (lambda x: x.unique(), CONTENTS),
    "unique_consecutive": (lambda x: x.unique_consecutive(), CONTENTS),
    "bincount": (lambda x: torch.bincount(x[0].long().abs()), CONTENTS),
    "repeat_interleave": (lambda x: x.repeat_interleave(torch.tensor([1, 2]), 0), CONTENTS),
    "equal": (lambda x: torch.equal(x, x), CONTENTS),
    "allclose": (lambda x: torch.allclose(x, x), CONTENTS),
    "full of a tensor": (lambda x: torch.full((2,), x[0, 0]), CONTENTS),
    "tolist": (lambda x: x.tolist(), MEMORY),
    "numpy": (lambda x: x.numpy(), MEMORY),
    "numpy of a result": (lambda x: (x + 1).numpy(), MEMORY),
    "numpy of a view": (lambda x: x[0].numpy(), MEMORY),
    "asarray": (lambda x: numpy.asarray(x), MEMORY),
    "data_ptr": (lambda x: x.data_ptr(), MEMORY),
    "data_ptr of a result": (lambda x: x.sin().data_ptr(), MEMORY),
    "data_ptr of a storage": (lambda x: x.untyped_storage().data_ptr(), MEMORY),
    "dlpack": (lambda x: torch.utils.dlpack.to_dlpack(x), MEMORY),
    "deepcopy": (lambda x: copy.deepcopy(x), MEMORY),
    "pickle": (lambda x: pickle.dumps(x), MEMORY),
    "tensor of tensors": (lambda x: torch.tensor([x[0, 0], x[0, 1]]), MEMORY),
    "share_memory_": (lambda x: x.share_memory_(), MEMORY),
    "new_tensor": (lambda x: x.new_tensor([1.0]), "new_tensor"),
    "sparse": (lambda x: x.to_sparse(), "Sparse"),
    "sparse csr": (lambda x: x.to_sparse_csr(), "Sparse"),
    "quantized": (lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8), "QInt8|quantized"),
    "matrix_rank into out=": (lambda x: torch.linalg.matrix_rank(x, out=torch.zeros((), dtype=torch.int64)), "out="),
    "nested": (lambda x: torch.nested.nested_tensor([x, x]), "nested"),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_the_users_line(name):
    fn, words = REFUSED[name]
    x = torch.randn(2, 3)
    before, refusals = x.clone(), smelt.stats()["refusals"]
    with pytest.raises(smelt.RecordError, match=words) as caught:
        smelt.record(fn, x)
    assert line_of(fn) in str(caught.value)
    assert isinstance(caught.value, smelt.Error) and isinstance(caught.value, RuntimeError)
    assert smelt.stats()["refusals"] == refusals + 1
    same(x, before)
    same(x + 1, before + 1)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [n for n in REFUSED if REFUSED[n][1] == CONTENTS])
def test_swallowed_refusal_is_still_one(name):
    fn, words = REFUSED[name]

    def careless(x):
        try:
            fn(x)
        except Exception:
            pass
        return 1

    with pytest.raises(smelt.RecordError, match=words):
        smelt.record(careless, torch.randn(2, 3))


def test_ops_after_a_swallowed_refusal_raise():
    after = []

    def fn(x):
        try:
            x.sum().item()
        except RuntimeError:
            pass
        after.append(x.shape)
        y = x * 2  # raises again
        after.append(y)
        return y

    with pytest.raises(smelt.RecordError, match=CONTENTS):
        smelt.record(fn, torch.ones(3))
    assert after == [(3,)]


def test_swallowed_in_the_backward():
    class Bad(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            try:
                return g * g.sum().item()
            except RuntimeError:
                return g

    w = torch.ones(3, requires_grad=True)
    with pytest.raises(smelt.RecordError, match=CONTENTS):
        smelt.record(lambda: Bad.apply(w).sum().backward())
    assert w.grad is None
    Bad.apply(w).sum().backward()
    same(w.grad, torch.full((3,), 3.0))


def test_line_in_a_function_called_by_the_recorded_one():
    def inner(x):
        y = x + 1
        return y.item()

    def outer(x):
        return torch.nn.Identity()(inner(x))

    with pytest.raises(smelt.RecordError) as caught:
        smelt.record(outer, torch.ones(()))
    assert f"{__file__}:{inner.__code__.co_firstlineno + 2}" in str(caught.value)


def test_line_below_library_code():
    """print() of a tensor fails deep inside torch; the line told is the user's."""

    def fn(x):
        y = x + 1
        print(y, file=sys.stderr)

    with pytest.raises(smelt.RecordError) as caught:
        smelt.record(fn, torch.ones(3))
    assert f"{__file__}:{fn.__code__.co_firstlineno + 2}" in str(caught.value)


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: torch.eye(3).to_sparse(), "Sparse"),
        (lambda: torch.eye(3).to_sparse_csr(), "Sparse"),
        (lambda: torch.empty(3, device="meta"), "meta"),
    ],
)
def test_unusual_tensors_from_outside(make, words):
    other = make()
    with pytest.raises(smelt.RecordError, match=words):
        smelt.record(lambda t: t * 2, other)
    with pytest.raises(smelt.RecordError, match=words):
        smelt.record(lambda t: other * 2, torch.ones(3))


def test_custom_op_that_writes_is_refused():
    library = torch.library.Library("smelt_test_refusals", "DEF")
    library.define("write(Tensor(a!) x) -> ()")
    library.impl("write", lambda x: x.fill_(1), "CPU")
    with pytest.raises(smelt.RecordError, match="smelt_test_refusals::write"):
        smelt.record(torch.ops.smelt_test_refusals.write, torch.ones(3))


def test_custom_op_without_writes_is_recorded():
    library = torch.library.Library("smelt_test_custom", "DEF")
    library.define("double(Tensor x) -> Tensor")
    library.impl("double", lambda x: x * 2, "CPU")
    library.impl("double", torch.empty_like, "Meta")  # else it is refused: see test_nothing_is_computed.py
    x = torch.randn(3)
    graph = smelt.record(torch.ops.smelt_test_custom.double, x)
    assert "smelt_test_custom::double" in str(graph)
    same(graph.run(x), x * 2)


def test_recording_in_a_recording():
    def fn(x):
        return smelt.record(lambda t: t * 2, x)

    with pytest.raises(smelt.Error, match="inside"):
        smelt.record(fn, torch.ones(3))
    same(smelt.record(lambda t: t * 2, torch.ones(3)).run(torch.ones(3)), torch.full((3,), 2.0))


def test_graph_run_in_a_recording():
    """A graph called by the recorded function: its ops join the new graph, or it is refused."""
    inner = smelt.record(lambda t: t * 2 + 1, torch.ones(3))
    x = torch.randn(3)
    try:
        outer = smelt.record(lambda t: inner.run(t) * 3, x)
    except smelt.Error:
        return
    same(outer.run(x), (x * 2 + 1) * 3)


def test_not_callable():
    with pytest.raises(TypeError, match="function or a module"):
        smelt.record(3)


def test_data_of_an_eager_tensor_made_before_is_readable():
    """Tensors the function never touches keep their contents for Python."""
    sizes = {"n": [torch.tensor(4)]}

    def fn(x):
        return x * 2

    assert sizes["n"][0].item() == 4
    smelt.record(fn, torch.ones(2))
    assert sizes["n"][0].item() == 4
