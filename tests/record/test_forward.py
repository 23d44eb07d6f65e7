"""Programs that only compute: what comes back is what eager gives."""

import collections
import dataclasses

import pytest
import torch
import torch.nn.functional as F
from record_check import check, same

import smelt


def rand(*shape, **options):
    return torch.randn(*shape, **options)


def positive(n):
    a = rand(n, n)
    return a @ a.t() + n * torch.eye(n)


PROGRAMS = {
    "pointwise": (lambda a, b: (a * b + 1).sin() / (b.abs() + 0.5) - a.clamp(-1, 1), rand(4, 6), rand(6)),
    "mixed dtypes": (lambda a, b, c: (a + b, b * 2.5, b // 3, a > b, c & (a > 0)), rand(4), torch.arange(4), torch.ones(4) > 0),
    "half types": (lambda a: (a.half() + 1, a.bfloat16() * 2, a.double().exp()), rand(3, 3)),
    "reductions": (lambda a: (a.sum(0), a.mean(), a.amax(1, keepdim=True), a.var(1), a.logsumexp(0), a.argmax(), a.prod(1)), rand(4, 6)),
    "sort, topk, cumsum": (lambda a: (*a.sort(), *a.topk(2), a.cumsum(0), a.median(1).values), rand(4, 6)),
    "matmuls": (lambda a, b: (a @ b, torch.einsum("ij,kj->ik", a, a), torch.baddbmm(rand(2, 4, 4), rand(2, 4, 6), rand(2, 6, 4))), rand(4, 6), rand(6, 3)),
    "views": (lambda a: (a.t(), a.view(3, 8), a[1:3, ::2], a.unfold(1, 3, 2), a.expand(2, 4, 6), a.diagonal(), a.movedim(0, 1)), rand(4, 6)),
    "splits": (lambda a: (*a.split(2), *a.chunk(3, 1), *a.unbind(0), *torch.tensor_split(a, 3, 1)), rand(4, 6)),
    "cat, stack, pad": (lambda a: (torch.cat([a, a[:2]]), torch.stack([a, a], 2), F.pad(a, (1, 2)), torch.roll(a, 1, 0), a.flip(0)), rand(4, 6)),
    "indexing": (lambda a, i: (a[i], a[:, i], a.gather(1, i.expand(4, 3)), a.index_select(0, i), a[i, i], a[[0, 2]], a[..., None, -1]), rand(4, 6), torch.tensor([2, 0, 1])),
    "masks": (lambda a: (a.masked_fill(a > 0, -1), torch.where(a > 0, a, 0.0), a.tril(), a.triu(1)), rand(4, 6)),
    "scatter": (lambda a, i: (a.index_put((i,), torch.ones(6)), a.scatter(1, i[:, None], 3.0), a.scatter_add(0, i.expand(1, 3), a), a.index_add(0, i, a[:3])), rand(4, 6), torch.tensor([2, 0, 1])),
    "factories": (lambda a: (a + torch.zeros(6), torch.arange(6.0) * a, torch.full((2,), 1.5), torch.ones_like(a), torch.eye(3), torch.linspace(0, 1, 5), a.new_zeros(2), torch.tensor([[1, 2]]), torch.empty(0), torch.tril_indices(3, 3)), rand(4, 6)),
    "numpy constant": (lambda a: a + torch.from_numpy(__import__("numpy").ones(6)), rand(4, 6)),
    "complex": (lambda a: (torch.view_as_complex(a).conj() * (1 + 2j)).abs() + torch.view_as_complex(a).angle(), rand(4, 3, 2)),
    "conj views": (lambda z: (z.conj(), z.conj().imag, z.mH, (z * 2).conj(), z.resolve_conj(), z.real, (z + 1).conj().t()), rand(3, 3, dtype=torch.complex64)),
    "conj input": (lambda z: (z * 2, z.conj(), z @ z), rand(3, 3, dtype=torch.complex64).conj()),
    "neg input": (lambda y: (y * 2, y + 1, y), rand(3, 3, dtype=torch.complex64).conj().imag),
    "fft": (lambda a: (torch.fft.rfft(a), torch.fft.irfft(torch.fft.rfft(a) * 2), torch.fft.fft2(a), torch.fft.fftshift(a), torch.stft(a[0], 4, window=torch.ones(4), return_complex=True)), rand(4, 6)),
    "linalg": (lambda a, b: (torch.linalg.inv(a), torch.linalg.solve(a, b), torch.linalg.cholesky(a), *torch.linalg.eigh(a), torch.linalg.det(a), *torch.linalg.qr(a), torch.linalg.norm(b), torch.linalg.svdvals(b), torch.linalg.matrix_exp(a / 9)), positive(4), rand(4, 2)),
    "convolutions": (lambda a, w: (F.conv2d(a, w, padding=1), F.conv2d(a, w, stride=2), F.conv_transpose2d(a, w.transpose(0, 1)), F.conv1d(a[0], a[1, :, :, :3], padding=2)), rand(2, 3, 8, 8), rand(3, 3, 3, 3)),
    "pools": (lambda a: (F.max_pool2d(a, 2), F.avg_pool2d(a, 3, 1), F.adaptive_avg_pool2d(a, 2), *F.max_pool2d(a, 2, return_indices=True)), rand(2, 3, 8, 8)),
    "resizing": (lambda a: (F.interpolate(a, scale_factor=2, mode="bilinear"), F.interpolate(a, size=3), F.pad(a, (1, 1, 1, 1), mode="reflect"), F.pixel_shuffle(a, 2)), rand(1, 4, 4, 4)),
    "losses": (lambda a, t: (F.cross_entropy(a, t), F.mse_loss(a, a * 2), F.nll_loss(a.log_softmax(1), t), F.binary_cross_entropy_with_logits(a, a.sigmoid()), F.huber_loss(a, a + 1)), rand(4, 6), torch.tensor([0, 5, 2, 1])),
    "norms": (lambda a: (F.layer_norm(a, (6,)), F.group_norm(a[None], 2), F.normalize(a), F.rms_norm(a, (6,)), a.renorm(2, 0, 1.0)), rand(4, 6)),
    "attention": (lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), rand(1, 2, 8, 16)),
    "foreach": (lambda a, b: (*torch._foreach_add([a, b], 1.0), *torch._foreach_mul([a, b], [b, a]), *torch._foreach_norm([a, b])), rand(4), rand(4)),
    "0-dim and empty": (lambda a, e: (a[0, 0] + 1, e.sum(), torch.cat([e, a[0]]), a[:0], a[0, 0].expand(0)), rand(4, 6), torch.empty(0)),
    "out=": (lambda a: torch.add(a, 1, out=torch.empty(4, 6)), rand(4, 6)),
    "strided input": (lambda a: (a * 2, a.contiguous(), a.reshape(-1), a + a.t().reshape(4, 6)), rand(6, 4).t()),
    "channels_last": (lambda a, w: (F.conv2d(a, w), F.conv2d(a.contiguous(memory_format=torch.channels_last), w), a.to(memory_format=torch.channels_last), F.relu(F.conv2d(a, w.to(memory_format=torch.channels_last), padding=1))), rand(2, 3, 8, 8), rand(4, 3, 3, 3)),
    "channels_last input": (lambda a, w: (F.conv2d(a, w), F.max_pool2d(a, 2), a * 2, a.mean(1), F.interpolate(a, scale_factor=2)), rand(2, 3, 8, 8).to(memory_format=torch.channels_last), rand(4, 3, 1, 1)),
    "embedding bag": (lambda w, i: (F.embedding(i, w), F.embedding_bag(i, w, torch.tensor([0, 2]))), rand(10, 4), torch.tensor([1, 2, 4])),
    "scalars of tensors": (lambda a, n: (a * n, a + a.sum(), torch.clamp(a, min=n), a ** 2, 2 ** a, a.lerp(a * 2, 0.3)), rand(4), torch.tensor(0.5)),
    "cdist and products": (lambda a: (torch.cdist(a, a), torch.outer(a[0], a[1]), torch.kron(a, a), torch.cross(a[:, :3], a[:, 3:], dim=1)), rand(4, 6)),
    "searching": (lambda a: (torch.searchsorted(a.sort().values, a), torch.bucketize(a, torch.linspace(-1, 1, 5)), torch.histc(a, 4)), rand(6)),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_equals_eager(name):
    fn, *args = PROGRAMS[name]
    check(fn, *args)


@dataclasses.dataclass
class Pair:
    left: torch.Tensor
    right: torch.Tensor
    name: str = "pair"


Point = collections.namedtuple("Point", "x y")


def test_nested_arguments_and_results():
    def fn(pair, point, *rest, table, flag=True):
        total = pair.left + point.x + sum(rest) + table["w"]
        return {"total": total, "pair": Pair(total * 2, point.y + 0), "flag": flag}, [Point(total, 3), (None, "text")]

    a, b = rand(3), rand(3)
    check(fn, Pair(a, b), Point(b, a), rand(3), rand(3), table={"w": rand(3), "n": 4}, flag=False)


def test_named_results_of_torch():
    graph = smelt.record(lambda a: a.max(1), rand(3, 4))
    x = rand(3, 4)
    result = graph.run(x)
    assert type(result) is torch.return_types.max
    same(result.values, x.max(1).values)


def test_nothing_returned_and_no_tensor_argument():
    assert smelt.record(lambda: None).run() is None
    same(smelt.record(lambda n: torch.arange(n), 5).run(5), torch.arange(5))


def test_python_runs_once_and_its_results_are_written_down():
    seen = []

    def fn(x):
        seen.append(len(seen))
        return x * (2 if x.shape[0] == 3 else 5)

    x = rand(3)
    graph = smelt.record(fn, x)
    same(graph.run(x), x * 2)
    assert seen == [0]


def test_contents_are_read_at_every_run():
    graph = smelt.record(lambda a, b: a - b, rand(4), rand(4))
    for _ in range(3):
        a, b = rand(4), rand(4)
        same(graph.run(a, b), a - b)


def test_constant_made_inside_is_fresh_at_every_run():
    def fn(x):
        t = torch.tensor([1.0, 2.0])
        t.add_(x)
        return t

    x = torch.ones(2)
    graph = smelt.record(fn, x)
    first = graph.run(x)
    first.zero_()
    same(graph.run(x), torch.tensor([2.0, 3.0]))


def test_text_of_graph():
    graph = smelt.record(lambda x: (x + 1).relu(), torch.ones(2, 3))
    assert str(graph) == (
        "graph {\n"
        "  input %0: f32[2, 3] = argument 0\n"
        "  %1: f32[2, 3] = aten::add.Tensor(%0, 1, 1)\n"
        "  %2: f32[2, 3] = aten::relu(%1)\n"
        "  return (%2)\n"
        "}\n"
    )
    assert len(graph) == 2 and repr(graph) == "<smelt.Graph of 2 ops>"


def test_a_sum_of_single_elements_rounds_the_whole_number_once():
    """Sums of a count of steps and a number have a way of their own; this is none: through a double, it would be 2**60."""
    count, number = torch.zeros(()), torch.tensor(2**60 + 2**36 + 1)
    graph = smelt.record(torch.add, count, number)
    assert torch.equal(graph.run(count, number), count + number) and (count + number).item() == 2**60 + 2**37
