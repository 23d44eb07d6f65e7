"""Calls of ops that torch's op database does not reach: what in-place and composite code makes of them, and the foreach and
fused ops of optimizers."""

import torch

UNARY = ("abs ceil cos exp expm1 floor frac log log1p max neg reciprocal round rsqrt sigmoid sign sin sqrt tanh "
         "trunc").split()  # fmt: skip
BINARY = "add clamp_max clamp_min div maximum minimum mul pow sub".split()


def floats(*shape):
    return torch.rand(shape) * 3 + 0.25


def three():
    return [floats(3, 5), floats(7), floats(2, 1, 4)]


def foreach_calls():
    for name in UNARY:
        yield f"_foreach_{name}", three()
    for name in BINARY:
        yield f"_foreach_{name}.List", three(), three()
        yield f"_foreach_{name}.Scalar", three(), 1.5
        yield f"_foreach_{name}.ScalarList", three(), [1.5, 2.0, -1.0]
    for name in ("add", "div", "mul"):
        yield f"_foreach_{name}.Tensor", three(), torch.tensor(1.25)
    for name in ("addcdiv", "addcmul"):
        yield f"_foreach_{name}.Scalar", three(), three(), three(), 0.5
        yield f"_foreach_{name}.ScalarList", three(), three(), three(), [0.5, -1.0, 2.0]
    yield "_foreach_lerp.List", three(), three(), three()
    yield "_foreach_lerp.Scalar", three(), three(), 0.3
    yield "_foreach_lerp.ScalarList", three(), three(), [0.3, 0.6, 0.9]
    yield "_foreach_norm.Scalar", three(), 2
    yield "_foreach_norm.Scalar", three(), 1


def optimizer_calls():
    adam = dict(beta1=0.9, beta2=0.999, weight_decay=0.01, eps=1e-8)
    steps = [torch.tensor(float(step)) for step in (1, 2, 3)]
    for name in ("_fused_adam", "_fused_adamw"):
        for amsgrad, maximize in ((False, False), (True, True)):
            more = dict(adam, amsgrad=amsgrad, maximize=maximize)
            state = [three(), three(), three(), three(), three() if amsgrad else [], steps]
            yield name, *state, dict(more, lr=0.01)
            yield name + ".tensor_lr", *state, dict(more, lr=torch.tensor(0.01))
    sgd = dict(weight_decay=0.1, dampening=0.0, nesterov=True, maximize=False, is_first_step=False)
    for momentum, first in ((0.9, False), (0.9, True)):
        more = dict(sgd, momentum=momentum, is_first_step=first)
        yield "_fused_sgd", three(), three(), three(), dict(more, lr=0.1)
        yield "_fused_sgd.tensor_lr", three(), three(), three(), dict(more, lr=torch.tensor(0.1))


def batch_norm_calls():
    x, weight, bias, mean, var = floats(4, 3, 5), floats(3), floats(3), floats(3), floats(3)
    yield "_native_batch_norm_legit_no_training", x, weight, bias, mean, var, 0.1, 1e-5
    yield "_native_batch_norm_legit_no_training", x, None, None, mean, var, 0.1, 1e-5
    yield "_batch_norm_no_update", x, weight, bias, mean, var, 0.1, 1e-5
    for train in (True, False):
        yield "_native_batch_norm_legit_functional", x, weight, bias, mean, var, train, 0.1, 1e-5
    yield "_batch_norm_with_update_functional", x, weight, bias, mean, var, 0.1, 1e-5
    yield "_native_batch_norm_legit.no_stats", x, weight, bias, True, 0.1, 1e-5


def pointwise_calls():
    x, y = floats(5, 7) - 1, floats(5, 7) - 1
    whole, mask = torch.randint(-9, 9, (5, 7)), floats(5, 7) > 1.5
    for name in ("bitwise_and.Scalar", "bitwise_or.Scalar", "bitwise_xor.Scalar"):
        yield name, whole, 5
        yield name, mask, True
    for name in ("bitwise_left_shift.Tensor_Scalar", "bitwise_right_shift.Tensor_Scalar"):
        yield name, whole, 2
    for name in ("copysign.Scalar", "floor_divide.Scalar", "fmod.Scalar", "clamp_max", "clamp_min", "celu",
                 "leaky_relu"):  # fmt: skip
        yield name, x, -0.5
    for name in ("floor_divide.Scalar", "fmod.Scalar"):
        yield name, whole, -3
    for mode in ("floor", "trunc", None):
        yield "div.Scalar_mode", x, 0.3, dict(rounding_mode=mode)
        yield "div.Scalar_mode", whole, -2, dict(rounding_mode=mode)
    yield "remainder.Scalar_Tensor", 2.5, x
    yield "remainder.Scalar_Tensor", 7, whole * 2 + 1
    yield "clamp", x, -0.5, 1.0
    yield "clamp", x, None, 1
    yield "clamp", whole, -2, 3.5
    yield "copy", x, y
    yield "copy", x, whole
    yield "fill.Tensor", x, torch.tensor(2.5)
    yield "zero", x
    yield "lerp.Tensor", x, y, floats(7)
    yield "masked_fill.Tensor", x, mask, torch.tensor(2.5)
    yield "where.Scalar", mask, 1.5, 2
    yield "where.ScalarOther", mask, x, 2.5
    yield "where.ScalarSelf", mask, 2, x
    for name in ("lift", "lift_fresh_copy", "detach_copy", "_conj_physical", "relu", "sqrt", "elu", "silu", "softplus"):
        yield name, x
    yield "elu", x, 1.5, 1.25, 0.75
    yield "elu_backward", x, 1.5, 1.25, 0.75, False, y
    yield "elu_backward", x, 1.5, 1.25, 0.75, True, y
    for approximate in ("none", "tanh"):
        yield "gelu", x, dict(approximate=approximate)
        yield "gelu_backward", x, y, dict(approximate=approximate)
    yield "silu_backward", x, y
    yield "leaky_relu_backward", x, y, 0.2, False
    yield "softplus_backward", x, y, 2.0, 3.0
    yield "_prelu_kernel", x, floats(7)
    yield "_prelu_kernel", x, floats(1)
    yield "_prelu_kernel_backward", x, y, floats(5, 7)


def elsewhere_calls():
    x = floats(4, 6, 5)
    places = torch.tensor([2, 0, 3, 2])
    yield "glu", x, 1
    yield "glu_backward", floats(4, 3, 5), x, 1
    yield "_safe_softmax", x, -1
    yield "_unsafe_index.Tensor", x, [None, places]
    yield "eye", 4
    yield "eye.m", 3, 5
    for name in ("all.dims", "any.dims"):
        yield name, floats(3, 4, 5) > 1, [0, 2], True
    for name in ("max.dim", "min.dim"):
        yield name, x, 1, True
    for name in ("scatter.value", "scatter.src", "scatter_add"):
        yield name, x, 1, torch.randint(0, 6, (4, 1, 5)), 0.5 if name == "scatter.value" else floats(4, 6, 5)
    yield "index_put", x, [floats(4, 6) > 1.5], torch.tensor(0.5)
    yield "_unsafe_index_put", x, [floats(4, 6) > 1.5], torch.tensor(0.5)
    yield from update_calls()
    yield from window_calls()
    for name in ("_upsample_nearest_exact", "upsample_nearest"):
        yield name + "1d", floats(2, 3, 7), [17]
        yield name + "2d", floats(2, 3, 4, 5), [8, 15]
        yield name + "3d", floats(2, 3, 2, 3, 4), [3, 6, 9]
    yield from interpolation_calls()
    yield from interpolation_gradient_calls()
    yield "reflection_pad2d", floats(2, 3, 6, 7), [3, 2, 1, 4]
    yield "select_copy.int", x, 1, -2
    yield "slice_copy.Tensor", x, 1, 1, 5, 2
    yield "slice_scatter", x, floats(4, 2, 5), 1, 1, 5, 2
    yield "squeeze_copy.dims", floats(1, 3, 1), [0, 2]
    yield "unsafe_split_with_sizes", x, [1, 2, 3], 1
    for sizes in ((1,), (33,), (2, 100)):
        yield "where.self", floats(*sizes) > 1.5, floats(*sizes), floats(*sizes)


def interpolation_calls():
    """Larger, smaller, the same along one dimension, to a single pixel, by factors that do not divide."""
    row, image, cube = floats(2, 3, 7), floats(2, 3, 9, 6) - 1, floats(2, 3, 2, 3, 4)
    for corners in (False, True):
        for size in ([17], [3], [1]):
            yield "upsample_linear1d", row, size, corners
        for name in ("upsample_bilinear2d", "upsample_bicubic2d"):
            for size in ([18, 12], [9, 13], [4, 3], [1, 1]):
                yield name, image, size, corners
            yield name, image.to(memory_format=torch.channels_last), [18, 12], corners
            yield name, image, [20, 14], corners, 2.3, 2.4
        yield "upsample_trilinear3d", cube, [3, 6, 9], corners


def interpolation_gradient_calls():
    """The same, of gradients; also many readers of a pixel, one input pixel, and numbers that spread to their neighbours."""
    lines = ((7, 17), (7, 3), (7, 1), (1, 6), (4, 8), (5, 15), (6, 6), (40, 61))
    images = (((9, 6), (18, 12)), ((9, 6), (9, 13)), ((9, 6), (4, 3)), ((9, 6), (1, 1)), ((1, 1), (5, 4)), ((3, 4), (24, 32)), ((5, 7), (15, 8)))
    for name in ("upsample_nearest", "_upsample_nearest_exact"):
        for small, large in lines:
            yield name + "1d_backward", floats(2, 3, large), [large], [2, 3, small]
        for small, large in images:
            for layout in (torch.contiguous_format, torch.channels_last):
                grad = floats(2, 3, *large).to(memory_format=layout)
                yield name + "2d_backward", grad, large, [2, 3, *small]
        yield name + "2d_backward", floats(2, 3, 20, 14), [20, 14], [2, 3, 9, 6], 2.3, 2.4
        yield name + "3d_backward", floats(1, 2, 4, 8, 3), [4, 8, 3], [1, 2, 2, 2, 3]
        yield name + "3d_backward", floats(1, 2, 4, 8, 3), [4, 8, 3], [1, 2, 3, 4, 2]
    for corners in (False, True):
        for small, large in lines:
            yield "upsample_linear1d_backward", floats(2, 3, large), [large], [2, 3, small], corners
        spread = floats(1, 1, 8)
        spread[0, 0, 3], spread[0, 0, 6] = torch.inf, torch.nan
        yield "upsample_linear1d_backward", spread, [8], [1, 1, 4], corners
        for name in ("upsample_bilinear2d_backward", "upsample_bicubic2d_backward"):
            for small, large in images:
                for layout in (torch.contiguous_format, torch.channels_last):
                    yield name, floats(2, 3, *large).to(memory_format=layout), large, [2, 3, *small], corners
            yield name, floats(2, 3, 20, 14), [20, 14], [2, 3, 9, 6], corners, 2.3, 2.4
            yield name, floats(2, 3, 9, 14), [9, 14], [2, 3, 9, 6], corners, 1.05, 2.4
            yield name, floats(2, 3, 9, 6), [9, 6], [2, 3, 9, 6], corners, 1.05, 1.1
        yield "upsample_trilinear3d_backward", floats(2, 3, 3, 6, 9), [3, 6, 9], [2, 3, 2, 3, 4], corners
        yield "upsample_trilinear3d_backward", floats(1, 2, 4, 6, 8), [4, 6, 8], [1, 2, 2, 3, 4], corners


def update_calls():
    """Several indices at one place, negative ones, broadcast values, columns that threads share."""
    x, long = floats(4, 6, 5), floats(40, 256)
    places, rows = torch.tensor([2, 0, -1, 2]), torch.randint(0, 40, (300,))
    for name in ("index_put", "_unsafe_index_put"):
        for accumulate in (False, True):
            yield name, x, [places], floats(4, 6, 5), accumulate
            yield name, x, [None, places], floats(5), accumulate
            yield name, x, [places, None, places.view(4, 1) + 1], floats(4, 4, 1), accumulate
            yield name, x, [places, places], torch.tensor(0.5), accumulate
        # (Eager's threads race for a place that is written twice.)
        yield name, long, [torch.randperm(40)[:30]], floats(30, 256), False
        yield name, long, [rows], floats(300, 256), True
    yield "index_add", long, 0, rows, floats(300, 256)
    yield "index_add", x, 1, torch.tensor([3, 3, 0], dtype=torch.int32), floats(4, 3, 5), dict(alpha=2.5)
    yield "index_copy", x, -1, torch.tensor([4, 1, 1]), floats(4, 6, 3)
    yield "index_fill.int_Scalar", x, 1, torch.tensor([-2, 0]), 1
    yield "index_fill.int_Tensor", x, 1, torch.tensor([-2, 0]), torch.tensor(2.5)
    for dtype in (torch.bfloat16, torch.float16):  # more to add than sums: in single precision
        yield "index_add", long.to(dtype), 0, rows, floats(300, 256).to(dtype)
        yield "index_add", x.to(dtype), 1, torch.randint(0, 6, (20,)), floats(4, 20, 5).to(dtype), dict(alpha=2)
        yield "scatter_add", long.to(dtype), 0, rows.view(300, 1).expand(300, 256), floats(300, 256).to(dtype)
    yield "put", x, torch.tensor([[7, -3], [7, 100]]), floats(4), True
    yield "scatter_add", long, 0, rows.view(300, 1).expand(300, 256)[:, :200], floats(300, 256)
    yield "scatter_add", x, 2, torch.randint(0, 5, (3, 6, 9)), floats(4, 6, 9)
    yield "scatter.src", x, 1, torch.randint(0, 6, (4, 3, 2)), floats(4, 6, 5)
    yield "scatter.value", x, 0, torch.randint(0, 4, (7, 6, 5)), 1
    for reduce in ("sum", "prod", "amax", "amin"):
        for include_self in (True, False):
            yield "scatter_reduce.two", x, 1, torch.randint(0, 6, (4, 9, 5)), floats(4, 9, 5), reduce, dict(include_self=include_self)
    for reduce in ("prod", "amax", "amin"):
        yield "index_reduce", x, 1, torch.tensor([5, 0, 5]), floats(4, 3, 5), reduce
    ids = torch.randint(0, 40, (3, 50))
    for width in (1, 5, 256):
        yield "embedding_dense_backward", floats(3, 50, width), ids, 40, -1, False
        yield "embedding_dense_backward", floats(3, 50, width), ids, 40, int(ids[0, 0]), False
    for name in ("cumsum", "cumprod"):
        for sizes, dim in (((33,), 0), ((3, 100), 0), ((3, 100), 1), ((5, 1, 7), 1), ((2, 300, 3), -2)):
            yield name, floats(*sizes) - 1, dim
        yield name, floats(6, 7) > 1.5, 1
        yield name, torch.randint(-3, 4, (6, 7), dtype=torch.int32), 0, dict(dtype=torch.float64)


def pad_gradient_calls():
    """Pads on one side, on both, up to the whole image; a single pixel; pixels that are cut off."""
    for name, pads in (("reflection", ((2, 3), (6, 0), (0, 6), (-1, 2), (0, 0))), ("replication", ((2, 3), (9, 0), (0, 4), (-1, 2)))):
        for before, after in pads:
            row, image = floats(2, 3, 7), floats(2, 3, 7, 8)
            yield f"{name}_pad1d_backward", floats(2, 3, 7 + before + after), row, [before, after]
            grad = floats(2, 3, 7 + after + 1, 8 + before + after)
            yield f"{name}_pad2d_backward", grad, image, [before, after, 1, after]
            layout = dict(memory_format=torch.channels_last)
            yield f"{name}_pad2d_backward", grad.to(**layout), image.to(**layout), [before, after, 1, after]
    for name in ("reflection", "replication"):
        for layout in (torch.contiguous_format, torch.channels_last_3d):
            cube = floats(2, 3, 4, 3, 5).to(memory_format=layout)
            for pads in ([1, 2, 2, 0, 0, 1], [1, 1, 1, 1, 1, 1], [-1, 1, 0, 0, 0, 2]):
                yield f"{name}_pad3d", cube, pads
                sizes = [size + before + after for size, before, after in zip((5, 3, 4), pads[::2], pads[1::2])]
                grad = floats(2, 3, *sizes[::-1]).to(memory_format=layout)
                if name == "replication":
                    yield "replication_pad3d_backward", grad, cube, pads
    yield "replication_pad1d_backward", floats(3, 6), floats(3, 1), [2, 3]
    yield "reflection_pad1d_backward", floats(3, 1), floats(3, 1), [0, 0]


def unfold_calls():
    """Windows that overlap, lie side by side, leave gaps, leave the image; without a batch."""
    image = floats(2, 3, 9, 8) - 1
    for kernel, dilation, pad, stride in (((3, 3), (1, 1), (1, 1), (1, 1)), ((2, 2), (1, 1), (0, 0), (2, 2)), ((3, 2), (1, 1), (1, 0), (2, 1)),
                                          ((2, 3), (2, 1), (1, 2), (1, 1)), ((2, 2), (1, 1), (1, 1), (3, 4)), ((2, 2), (2, 2), (1, 1), (2, 2)),
                                          ((1, 1), (1, 1), (2, 2), (1, 1))):  # fmt: skip
        columns = torch.ops.aten.im2col(image, kernel, dilation, pad, stride)
        for batch in (slice(None), 0):
            yield "im2col", image[batch], kernel, dilation, pad, stride
            yield "col2im", floats(*columns.shape)[batch], (9, 8), kernel, dilation, pad, stride
        yield "im2col", image.to(memory_format=torch.channels_last), kernel, dilation, pad, stride


def search_calls():
    """Rows of one element and more, with equal ones, not sorted, with NaN; values beside all of them."""
    values = torch.cat([torch.randn(30), torch.tensor([torch.nan, torch.inf, -torch.inf, 0.0, -0.0, 0.5])]).view(4, 9)
    whole = torch.randint(-5, 15, (4, 9))
    for right in (False, True):
        for row in (torch.tensor([0.5]), torch.tensor([-1.0, 0.0, 0.0, 0.5]), torch.linspace(-2, 2, 33), torch.randn(10), torch.tensor([0.0, 1.0, torch.nan])):
            yield "bucketize.Tensor", values, row, dict(right=right)
            yield "searchsorted.Tensor", row, values, dict(side="right" if right else "left")
            yield "searchsorted.Tensor", row.expand(4, -1), values, dict(right=right, out_int32=True)
        yield "bucketize.Tensor", whole, torch.arange(0, 10, 2), dict(right=right, out_int32=True)
        yield "bucketize.Tensor", values[0, 0], torch.linspace(-2, 2, 33), dict(right=right)
    yield "searchsorted.Tensor", torch.tensor([1.0, 0.0, 2.0]), values, dict(sorter=torch.tensor([1, 0, 2]))


def window_calls():
    image, wide = floats(2, 3, 11, 9) - 1, floats(1, 2, 8, 12) - 1
    windows = (((3, 3), (2, 2), (1, 1)), ((2, 3), (1, 2), (0, 1)), ((2, 2), (3, 3), (0, 0)), ((3, 2), (), (1, 0)))
    for kernel, stride, pad in windows:
        for ceil in (False, True):
            yield "max_pool2d", image, kernel, stride, pad, (1, 1), ceil
            for include, divisor in ((True, None), (False, None), (True, 5)):
                args = (kernel, stride, pad, ceil, include, divisor)
                out = torch.ops.aten.avg_pool2d(image, *args)
                yield "avg_pool2d", image, *args
                yield "avg_pool2d_backward", floats(*out.shape), image, *args
    yield "max_pool2d", image, (2, 2), (2, 1), (0, 0), (2, 3), False
    yield "avg_pool2d", wide, (2, 3), (2, 3)
    yield "avg_pool2d", wide.to(memory_format=torch.channels_last), (3, 3), (2, 2), (1, 1)
    for sizes in ((1, 1, 1, 5), (2, 3, 2, 1)):  # less windows than could have a pixel
        line = floats(*sizes)
        yield "avg_pool2d_backward", floats(*sizes), line, 3, 1, 1, False, True, None
    cube = floats(2, 3, 4, 5, 6)
    yield "avg_pool3d", cube, (2, 2, 2), (1, 2, 2), (1, 0, 1), True, False
    yield "avg_pool3d_backward", floats(*torch.ops.aten.avg_pool3d(cube, 2, 2).shape), cube, 2, 2, 0, False, True, None
    yield "max_pool2d_with_indices", wide, (2, 3)
    odd = image.clone()
    odd[0, 0, :5, :5], odd[0, 1, 4:, 2], odd[1, 2] = -torch.inf, torch.nan, 0.0
    odd[1, 2, ::2] = -0.0
    for kernel, stride, pad in windows:
        for ceil in (False, True):
            yield "max_pool2d_with_indices", odd, kernel, stride, pad, (1, 1), ceil
    yield "max_pool2d_with_indices", odd.to(memory_format=torch.channels_last), (3, 3), (1, 1), (1, 1)
    yield "max_pool2d_with_indices", odd[0], (3, 2), (1, 2), (1, 1)
    yield "max_pool2d_with_indices", image, (2, 2), (2, 1), (0, 0), (2, 3), False
    yield from pad_gradient_calls()
    yield from unfold_calls()
    yield from search_calls()
    out, places = torch.ops.aten.max_pool2d_with_indices(image, (3, 3), (2, 2), (1, 1))
    yield "max_pool2d_with_indices_backward", floats(*out.shape), image, (3, 3), (2, 2), (1, 1), (1, 1), False, places
    yield "_adaptive_avg_pool2d", wide, (4, 3)
    for size in ((5, 3), (3, 5), (7, 9), (13, 20)):
        yield "_adaptive_avg_pool2d", wide, size
        yield "_adaptive_avg_pool2d", image.to(memory_format=torch.channels_last), size
    yield "_adaptive_avg_pool3d", floats(2, 3, 4, 5, 3), (3, 2, 3)
    yield "_adaptive_avg_pool2d_backward", floats(1, 2, 4, 3), wide
    yield "_adaptive_avg_pool3d", floats(2, 3, 4, 6, 2), (2, 3, 2)
    yield "_adaptive_avg_pool3d_backward", floats(2, 3, 2, 3, 2), floats(2, 3, 4, 6, 2)
    for weight in (None, floats(7)):
        for reduction in (0, 1, 2):
            yield "binary_cross_entropy", torch.rand(5, 7), torch.rand(5, 7), weight, reduction
    yield "binary_cross_entropy", torch.tensor([0.0, 1.0, 1.0]), torch.tensor([0.0, 0.0, 1.0])


def max_pool_calls():
    """Of cubes, and to a given size: windows side by side, over all, uneven; equal numbers, NaN, nothing but -infinity."""
    cube, image = floats(2, 3, 4, 6, 6) - 1, floats(2, 3, 12, 8) - 1
    for x in (cube, image):
        x[0, 0], x[0, 1, :3], x[1, 2] = -torch.inf, torch.nan, 0.0
        x[1, 0, ..., -1] = torch.nan
    for args in (((2, 2, 2),), ((2, 3, 2), (1, 2, 2), (1, 1, 0)), ((2, 2, 2), (2, 2, 2), (0, 0, 0), (1, 2, 2)), ((3, 3, 3), (2, 2, 2), (1, 1, 1))):
        for layout in (torch.contiguous_format, torch.channels_last_3d):
            x = cube.to(memory_format=layout)
            out, places = torch.ops.aten.max_pool3d_with_indices(x, *args)
            yield "max_pool3d", x, *args
            yield "max_pool3d_with_indices", x, *args
            kernel, stride, pad, dilation = (*args, *((), (0, 0, 0), (1, 1, 1))[len(args) - 1 :])
            yield "max_pool3d_with_indices_backward", floats(*out.shape), x, kernel, stride, pad, dilation, False, places
    for x, sizes, name in ((image, ((1, 1), (6, 4), (4, 2), (3, 8), (5, 3)), "2d"), (cube, ((1, 1, 1), (2, 3, 3), (3, 4, 2)), "3d")):
        for size in sizes:
            for part in (x, x[0]):
                yield f"adaptive_max_pool{name}", part, size
                out, places = getattr(torch.ops.aten, f"adaptive_max_pool{name}")(part, size)
                yield f"adaptive_max_pool{name}_backward", floats(*out.shape), part, places
    yield "adaptive_max_pool2d", image.to(memory_format=torch.channels_last), (6, 4)
    yield "adaptive_max_pool2d", image.to(memory_format=torch.channels_last), (1, 1)


def vector_calls():
    """Distances of few rows and many, of rows that are equal; cross products along any dimension."""
    few, many, wide = floats(2, 7, 5), floats(2, 40, 5), floats(2, 9, 70)
    few[0, 3] = many[0, 5]
    for p in (0.0, 1.0, 2.0, torch.inf, 3.0):
        for a, b in ((few, many), (many, few), (few, few), (wide, wide + 0.5), (few[0], many[0])):
            for mode in (None, 1, 2):
                yield "_cdist_forward", a, b, p, mode
            apart = torch.cdist(a, b, p, compute_mode="donot_use_mm_for_euclid_dist")
            yield "_cdist_backward", floats(*apart.shape), a, b, p, apart
        yield "dist", few, few + 0.25, p
        yield "dist", few, floats(5), p
    for sizes, dim in (((4, 3), -1), ((3, 5), 0), ((2, 3, 4), 1)):
        yield "linalg_cross", floats(*sizes), floats(*sizes) - 1, dict(dim=dim)
    sign = torch.randint(0, 2, (5, 7)) * 2.0 - 1
    for reduction in (0, 1, 2):
        yield "soft_margin_loss", floats(5, 7) - 1, sign, reduction
        yield "soft_margin_loss_backward", floats(5, 7) if reduction == 0 else floats(1)[0], floats(5, 7) - 1, sign, reduction


def extreme_calls():
    """Of integers: of floats PyTorch finds the extremes, where the sign of a zero can be seen."""
    numbers = torch.randint(-50, 50, (6, 70))
    for name in ("amax", "amin", "max.dim", "min.dim"):
        yield name, numbers, 1


def grouped_product_calls():
    """The experts of a mixture: each multiplies the rows that are its own."""
    ends = torch.tensor([2, 2, 7], dtype=torch.int32)
    yield "_grouped_mm", floats(7, 16), floats(3, 16, 8), ends
    yield "_grouped_mm", floats(7, 16), floats(3, 8, 16).transpose(1, 2), ends
    yield "_grouped_mm", floats(7, 16).bfloat16(), floats(3, 16, 8).bfloat16(), ends
    yield "_grouped_mm", floats(3, 7, 16), floats(3, 16, 8)


def hand_made():
    """By op name, as aten_calls.collect gives them."""
    torch.manual_seed(0)
    calls = {}
    for made in (foreach_calls, optimizer_calls, batch_norm_calls, pointwise_calls, elsewhere_calls, max_pool_calls, vector_calls,
                 extreme_calls, grouped_product_calls):  # fmt: skip
        for name, *args in made():
            kwargs = args.pop() if args and isinstance(args[-1], dict) else {}
            calls.setdefault("aten::" + name, []).append((tuple(args), kwargs))
    return calls
