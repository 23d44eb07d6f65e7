"""The shape rules against PyTorch on random layouts, for the ops whose arguments must fit together; see random_layouts.py."""

import warnings

import pytest
import torch
from random_layouts import CALLS, DEVICE, DTYPES, FLOATS, Layouts
from shape_check import ShapeChecker, first_of_each

aten = torch.ops.aten


def batch_norms(g):
    rank = g.choice([2, 3, 4, 4, 5])
    x = g.tensor(g.shape(rank, 1), g.choice(FLOATS))
    c, dtype = x.shape[1], torch.float32 if g.chance(0.4) else x.dtype
    vector = lambda: g.tensor([c], dtype)
    w, b = (vector(), vector()) if g.chance(0.7) else (None, None)
    mean, var, train = vector(), vector(), g.chance(0.5)
    yield aten.native_batch_norm, (x, w, b, mean, var, train, 0.1, 1e-5)
    yield aten._native_batch_norm_legit_functional, (x, w, b, mean, var, train, 0.1, 1e-5)
    yield aten._native_batch_norm_legit.no_stats, (x, w, b, True, 0.1, 1e-5)
    yield aten._native_batch_norm_legit_no_training, (x, w, b, mean, var, 0.1, 1e-5)
    saved = [torch.rand(c, device=DEVICE) for _ in range(2)] if DEVICE != "cpu" else [vector().contiguous() for _ in range(2)]
    grad, mask = g.tensor(x.shape, x.dtype), [g.chance(0.8), w is not None, w is not None]
    yield aten.native_batch_norm_backward, (grad, x, w, mean, var, *saved, True, 1e-5, mask)
    if x.dtype == dtype or DEVICE == "cpu":
        yield aten.native_batch_norm_backward, (x, x, w, mean, var, *saved, train, 1e-5, mask)


def layer_norms(g):
    shape = g.shape(g.choice([1, 2, 3, 4]), 1)
    tail = shape[-g.choice(range(1, len(shape) + 1)) :]
    x = g.tensor(shape, g.choice(FLOATS))
    dtype = torch.float32 if g.chance(0.3) else x.dtype
    w, b = (g.tensor(tail, dtype), g.tensor(tail, dtype)) if g.chance(0.7) else (None, None)
    yield aten.native_layer_norm, (x, tail, w, b, 1e-5)
    stats = shape[: len(shape) - len(tail)] + [1] * len(tail)
    kind = torch.float32 if w is not None and dtype == torch.float32 and x.dtype != torch.float64 else x.dtype
    if DEVICE != "cpu" and x.dtype != torch.float64:
        kind = torch.float32
    mean, rstd = torch.zeros(stats, dtype=kind, device=DEVICE), torch.ones(stats, dtype=kind, device=DEVICE)
    mask = [g.chance(0.8), w is not None and g.chance(0.8), b is not None and g.chance(0.8)]
    yield aten.native_layer_norm_backward, (g.tensor(shape, x.dtype), x, tail, mean, rstd, w, b, mask)
    if DEVICE != "cpu":
        w = g.tensor(tail, x.dtype)
        yield aten._fused_rms_norm, (x, tail, w, 1e-5)
        yield aten._fused_rms_norm_backward, (g.tensor(shape, x.dtype), x, tail, rstd, w, mask[:2])


def group_norms(g):
    groups = g.choice([1, 2, 3])
    n, c = g.choice([1, 2, 3]), groups * g.choice([1, 2])
    rest = g.shape(g.choice([1, 2, 2, 3]), 1)
    x = g.tensor([n, c, *rest], g.choice(FLOATS))
    if g.chance(0.7) and not x.is_contiguous() and not x.is_contiguous(memory_format=torch.channels_last if x.dim() == 4 else torch.contiguous_format):
        x = x.contiguous()
    hw = x.numel() // (n * c)
    w, b = (g.tensor([c], x.dtype), g.tensor([c], x.dtype)) if g.chance(0.7) else (None, None)
    yield aten.native_group_norm, (x, w, b, n, c, hw, groups, 1e-5)
    mean, rstd = (torch.zeros(n, groups, dtype=x.dtype, device=DEVICE) for _ in range(2))
    mask = [True, w is not None, w is not None]
    yield aten.native_group_norm_backward, (torch.ones_like(x), x, mean, rstd, w, n, c, hw, groups, mask)


def pools(g):
    rank, dtype = g.choice([3, 4, 4]), g.choice(FLOATS)
    x = g.tensor(g.shape(rank - 2, 1) + [g.choice([3, 5, 8]), g.choice([3, 4, 7])], dtype)
    window = ([g.choice([1, 2, 3]), g.choice([1, 2, 3])], g.choice([[], [1, 2], [2, 2]]), [g.choice([0, 1]), 0])
    ceil = g.chance(0.5)
    yield aten.max_pool2d_with_indices, (x, *window, [1, g.choice([1, 2])], ceil)
    yield aten.avg_pool2d, (x, *window, ceil, g.chance(0.5), None)
    out = [g.choice([1, 2, 5]), g.choice([2, 3])]
    yield aten._adaptive_avg_pool2d, (x, out)
    yield aten.adaptive_max_pool2d, (x, out)
    grad = g.tensor([*x.shape[:-2], *out], dtype)
    yield aten._adaptive_avg_pool2d_backward, (grad, x)
    try:
        y, indices = aten.max_pool2d_with_indices(x, *window, [1, 1], ceil)
    except RuntimeError:
        return
    yield aten.max_pool2d_with_indices_backward, (g.tensor(y.shape, dtype), x, *window, [1, 1], ceil, indices)
    yield aten.avg_pool2d_backward, (g.tensor(y.shape, dtype), x, *window, ceil, True, None)


def pools_3d(g):
    x = g.tensor(g.shape(g.choice([1, 2, 2]), 1) + [g.choice([3, 4]) for _ in range(3)], g.choice(FLOATS))
    window = ([g.choice([1, 2])], g.choice([[], [2]]), [0])
    yield aten.max_pool3d_with_indices, (x, *window, [1], False)
    yield aten.avg_pool3d, (x, *window, False, True, None)
    yield aten._adaptive_avg_pool3d, (x, [2, 1, 2])
    yield aten.adaptive_max_pool3d, (x, [2, 1, 2])
    try:
        y, indices = aten.max_pool3d_with_indices(x, *window, [1], False)
    except RuntimeError:
        return
    grad = g.tensor(y.shape, x.dtype)
    yield aten.max_pool3d_with_indices_backward, (grad, x, *window, [1], False, indices)
    yield aten.avg_pool3d_backward, (grad, x, *window, False, True, None)


def upsamples(g):
    spatial, dtype = g.choice([1, 2, 2, 3]), g.choice([torch.float32, torch.float64])
    x, out = g.tensor(g.shape(spatial + 2, 1), dtype), g.shape(spatial, 1)
    none = [None] * spatial
    grad, size = g.tensor([*x.shape[:2], *out], dtype), list(x.shape)
    nearest = {1: "upsample_nearest1d", 2: "upsample_nearest2d", 3: "upsample_nearest3d"}[spatial]
    linear = {1: "upsample_linear1d", 2: "upsample_bilinear2d", 3: "upsample_trilinear3d"}[spatial]
    yield getattr(aten, nearest), (x, out, *none)
    yield getattr(aten, nearest + "_backward"), (grad, out, size, *none)
    yield getattr(aten, linear), (x, out, g.chance(0.5), *none)
    yield getattr(aten, linear + "_backward"), (grad, out, size, g.chance(0.5), *none)
    if spatial == 2:
        yield aten.upsample_bicubic2d, (x, out, False, *none)
        yield aten.upsample_bicubic2d_backward, (grad, out, size, False, *none)
        yield aten._upsample_bilinear2d_aa, (x, out, False, *none)


def paddings(g):
    x = g.tensor(g.shape(g.choice([2, 3, 4, 4]), 1), g.choice(FLOATS))
    pad = [g.choice([-1, 0, 1, 2]) for _ in range(2 * g.choice(range(1, x.dim() + 1)))]
    yield aten.constant_pad_nd, (x, pad, 1.0)
    for spatial in (1, 2):
        if x.dim() not in (spatial + 1, spatial + 2):
            continue
        # PyTorch does not check all reflections: one larger than the input writes beyond its memory.
        pad = [min(g.choice([0, 1, 2]), x.shape[-1 - i // 2] - 1) for i in range(2 * spatial)]
        out = list(x.shape)
        for i in range(spatial):
            out[-1 - i] += pad[2 * i] + pad[2 * i + 1]
        for kind in ("reflection", "replication"):
            yield getattr(aten, f"{kind}_pad{spatial}d"), (x, pad)
            yield getattr(aten, f"{kind}_pad{spatial}d_backward"), (g.tensor(out, x.dtype), x, pad)


def shuffles(g):
    factor = g.choice([1, 2])
    n, c, h, w = g.shape(4, 1)
    yield aten.pixel_shuffle, (g.tensor([n, c * factor * factor, h, w], g.choice(DTYPES)), factor)
    yield aten.pixel_unshuffle, (g.tensor([n, c, h * factor, w * factor], g.choice(DTYPES)), factor)


def joins(g):
    shape, rank = g.shape(g.choice([1, 2, 3, 4, 4, 5])), None
    rank = len(shape)
    dim = g.rng.randrange(rank)
    dtype = g.choice(DTYPES)
    parts = []
    for _ in range(g.choice([1, 2, 3])):
        part = list(shape)
        part[dim] = g.choice([1, 2, 3])
        parts.append(g.tensor(part, dtype if g.chance(0.8) else g.choice(DTYPES)))
    if g.chance(0.1):
        parts.append(g.dense([0], dtype))
    yield aten.cat, (parts, dim)
    yield aten.stack, ([g.tensor(shape, dtype) for _ in range(g.choice([1, 2, 3]))], g.choice(range(-rank - 1, rank + 1)))
    x = g.tensor(shape, dtype)
    dims = g.rng.sample(range(rank), g.choice(range(rank + 1)))
    yield aten.roll, (x, [g.choice([0, 1, -1, 3]) for _ in dims] or [1], dims)
    yield aten.repeat, (x, [g.choice([1, 2, 3, 0]) for _ in range(rank + g.choice([0, 1]))])
    yield aten.flip, (x, dims)


def indexings(g):
    shape = g.shape(g.choice([1, 2, 3, 4]), 1)
    x = g.tensor(shape, g.choice(DTYPES))
    dim = g.rng.randrange(len(shape))
    inner = [g.choice(range(1, size + 1)) for size in shape]
    index = g.index(inner, shape[dim], torch.int32 if g.chance(0.1) else torch.int64)
    source = g.tensor([size + g.choice([0, 1]) for size in inner], x.dtype)
    yield aten.gather, (x, dim, index)
    yield aten.scatter.src, (x, dim, index, source)
    yield aten.scatter.value, (x, dim, index, 1)
    yield aten.scatter_add, (x, dim, index, source)
    yield aten.scatter_reduce.two, (x, dim, index, source, g.choice(["sum", "mean", "amax"]))
    where = g.index([g.choice([1, 2, 4])], shape[dim])
    slices = list(shape)
    slices[dim] = where.shape[0]
    slices = g.tensor(slices, x.dtype)
    yield aten.index_select, (x, dim, where)
    yield aten.index_add, (x, dim, where, slices)
    yield aten.index_copy, (x, dim, where, slices)
    yield aten.index_fill.int_Scalar, (x, dim, where, 1)
    wide = g.shape(g.choice([0, 1, 1, 2]), 1)
    lists = [g.index(g.broadcast(wide), size, g.choice([torch.int64] * 4 + [torch.int32])) if g.chance(0.6) else None for size in shape]
    if any(i is not None for i in lists):
        yield aten.index.Tensor, (x, lists)
        try:
            out = aten.index.Tensor(x, lists)
        except RuntimeError:
            return
        yield aten.index_put, (x, lists, g.tensor(g.broadcast(out.shape), x.dtype), g.chance(0.3))
    mask = g.tensor(shape[: g.choice(range(1, len(shape) + 1))], torch.bool)
    yield aten.index_put, (x, [mask], g.tensor([], x.dtype))
    yield aten.masked_scatter, (x, g.tensor(shape, torch.bool), g.tensor([*shape, 2], x.dtype))
    yield aten.take, (x, g.index(wide, x.numel()))


def embeddings(g):
    rows, size = g.choice([3, 7]), g.choice([1, 2, 4])
    weight, ids = g.tensor([rows, size], g.choice(FLOATS)), g.index(g.shape(g.choice([0, 1, 2, 3])), rows)
    yield aten.embedding, (weight, ids, -1, False, False)
    yield aten.embedding_dense_backward, (g.tensor([*ids.shape, size], weight.dtype), ids, rows, -1, False)
    if DEVICE != "cpu":
        return
    ids, last, mode = g.index([6], rows), g.chance(0.3), g.choice([0, 1, 2])
    offsets = torch.tensor([0, 2, 2, 5][: g.choice([1, 3, 4])] + [6] * last)
    scale = g.tensor([6], weight.dtype) if mode == 0 and g.chance(0.4) else None
    for op in (aten._embedding_bag, aten._embedding_bag_forward_only):
        yield op, (weight, ids.contiguous(), offsets, False, mode, False, scale, last, g.choice([-1, -1, 1]))


def losses(g):
    n, c = g.choice([1, 2, 4]), g.choice([1, 3])
    dtype, reduction = g.choice(FLOATS), g.choice([0, 1, 2])
    weight = g.tensor([c], dtype) if g.chance(0.4) else None
    x, target = g.tensor([n, c], dtype), g.index([n], c)
    yield aten.nll_loss_forward, (x, target, weight, reduction, -100)
    grad, total = g.tensor([n] if reduction == 0 else [], dtype), torch.ones((), dtype=dtype, device=DEVICE)
    yield aten.nll_loss_backward, (grad, x, target, weight, reduction, -100, total)
    h, w = g.choice([1, 2]), g.choice([1, 3])
    x, target = g.tensor([n, c, h, w], dtype), g.index([n, h, w], c)
    yield aten.nll_loss2d_forward, (x, target, weight, reduction, -100)
    grad = g.tensor([n, h, w] if reduction == 0 else [], dtype)
    yield aten.nll_loss2d_backward, (grad, x, target, weight, reduction, -100, total)
    a, b = g.tensor(x.shape, dtype), g.tensor(x.shape, dtype)
    grad = g.tensor(x.shape if reduction == 0 else [], dtype)
    for op in (aten.mse_loss, aten.huber_loss, aten.smooth_l1_loss):
        yield op, (a, b, reduction)
    yield aten.mse_loss_backward, (grad, a, b, reduction)
    yield aten.smooth_l1_loss_backward, (grad, a, b, reduction, 1.0)
    yield aten.binary_cross_entropy, (a, b, None, reduction)
    yield aten.binary_cross_entropy_backward, (grad, a, b, None, reduction)
    yield aten.binary_cross_entropy_with_logits, (a, b, None, None, reduction)


def matmuls(g):
    n, k, m, batch = (g.choice([1, 2, 3, 4]) for _ in range(4))
    dtype = g.choice(DTYPES)
    a, b = g.tensor([n, k], dtype), g.tensor([k, m], dtype)
    yield aten.mm, (a, b)
    yield aten.addmm, (g.tensor(g.broadcast([n, m]), dtype), a, b)
    yield aten.mv, (a, g.tensor([k], dtype))
    yield aten.addmv, (g.tensor([n], dtype), a, g.tensor([k], dtype))
    yield aten.dot, (g.tensor([k], dtype), g.tensor([k], dtype))
    a, b = g.tensor([batch, n, k], dtype), g.tensor([batch, k, m], dtype)
    yield aten.bmm, (a, b)
    yield aten.baddbmm, (g.tensor(g.broadcast([batch, n, m]), dtype), a, b)
    yield aten.addbmm, (g.tensor(g.broadcast([n, m]), dtype), a, b)


def attentions(g):
    if DEVICE != "cpu":
        return
    b, h, t, s, d = g.choice([1, 2]), g.choice([1, 3]), g.choice([1, 4]), g.choice([1, 5]), g.choice([1, 8])
    dtype = g.choice(FLOATS)
    shared = g.choice([1, h])  # heads of keys and values
    q, k, v = (g.tensor([b, heads, n, d], dtype) for heads, n in ((h, t), (shared, s), (shared, s)))
    mask = g.tensor(g.choice([[t, s], [b, 1, t, s], [b, h, t, s]]), dtype) if g.chance(0.3) else None
    causal = mask is None and g.chance(0.3)
    yield aten._scaled_dot_product_flash_attention_for_cpu, (q, k, v, 0.0, causal), {"attn_mask": mask}
    out, sums = aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal, attn_mask=mask)
    backward = aten._scaled_dot_product_flash_attention_for_cpu_backward
    yield backward, (g.tensor([b, h, t, d], dtype), q, k, v, out, sums, 0.0, causal), {"attn_mask": mask}


def lists(g):
    shapes, dtype = [g.shape() for _ in range(g.choice([1, 2, 3]))], g.choice(FLOATS + [torch.int64])
    several = lambda: [g.tensor(shape, dtype) for shape in shapes]
    a, b, c, number = several(), several(), several(), g.choice([1, 2.5])
    for name in ("add", "mul", "div", "sub"):
        op = getattr(aten, "_foreach_" + name)
        yield op.List, (a, b)
        yield op.Scalar, (a, number)
        yield op.ScalarList, (a, [number] * len(a))
    for name in ("maximum", "minimum", "clamp_min", "pow"):
        yield getattr(aten, "_foreach_" + name).List, (a, b)
        yield getattr(aten, "_foreach_" + name).Scalar, (a, number)
    for name in ("sqrt", "exp", "neg", "abs", "reciprocal", "sign", "log1p", "floor", "zero", "max"):
        yield getattr(aten, "_foreach_" + name), (a,)
    yield aten._foreach_addcdiv.Scalar, (a, b, c, number)
    yield aten._foreach_addcmul.Scalar, (a, b, c, number)
    yield aten._foreach_lerp.Scalar, (a, b, 0.5)
    yield aten._foreach_lerp.List, (a, b, c)
    yield aten._foreach_norm.Scalar, (a, 2)
    yield aten._foreach_mul.Tensor, (a, torch.tensor(2.0, dtype=dtype, device=DEVICE))


MAKERS = [batch_norms, layer_norms, group_norms, pools, pools_3d, upsamples, paddings, shuffles, joins, indexings,
          embeddings, losses, matmuls, attentions, lists]  # fmt: skip


def verdict(checker):
    print("\n" + checker.report())
    assert not checker.mismatches, f"{len(checker.mismatches)} mismatches\n" + first_of_each(checker.mismatches)
    assert not checker.unnoticed, f"{len(checker.unnoticed)} unnoticed\n" + first_of_each(checker.unnoticed)


@pytest.fixture(autouse=True)
def quiet():
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("maker", MAKERS, ids=lambda maker: maker.__name__)
def test_fitting_arguments(maker):
    checker, layouts = ShapeChecker(), Layouts(maker.__name__)
    checker.context = maker.__name__
    for _ in range(CALLS):
        for op, args, *rest in maker(layouts):
            checker.try_call(op, args, rest[0] if rest else {})
    verdict(checker)
