"""Calls of aten ops with real arguments: what the samples of torch's own op database come down to, and the same calls with
other element types, shapes and strides."""

import collections
import itertools
import warnings

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

SAMPLES = 4  # of an entry of the database
KEPT = 3  # calls of one op
# Slow, or nothing in them is computed by a kernel.
SKIPPED = ("linalg", "fft", "svd", "sparse", "conv", "stft", "lu_", "lu.", "cholesky", "eig", "cdist", "pinverse", "ormqr",
           "grid_sample", "attention", "ctc", "lstsq", "unique", "_refs", "triangular_solve",
           "torch.ops.aten", "jiterator", "gradient", "corrcoef", "cov", "logdet", "geqrf", "istft", "matrix_exp", "histogram")  # fmt: skip


class Collector(TorchDispatchMode):
    """Keeps the first calls of each wanted op that differ in more than contents."""

    def __init__(self, wanted):
        super().__init__()
        self.wanted, self.calls, self.seen = wanted, collections.defaultdict(list), set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func._schema.name + ("." + func._schema.overload_name if func._schema.overload_name else "")
        kwargs = kwargs or {}
        if name in self.wanted and len(self.calls[name]) < KEPT:
            key = name + repr(tree_map(_kind, (args, kwargs)))
            tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
            if key not in self.seen and all(_is_plain(tensor) for tensor in tensors):
                self.seen.add(key)
                self.calls[name].append((tree_map(_copy, args), tree_map(_copy, kwargs)))
        return func(*args, **kwargs)


def _is_plain(tensor):
    return type(tensor) is torch.Tensor and tensor.layout == torch.strided and tensor.numel() < 5000


def _kind(leaf):
    return (leaf.dtype, leaf.shape, leaf.stride()) if isinstance(leaf, torch.Tensor) else leaf


def _copy(leaf):
    return leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf


def collect(wanted):
    """Calls by op name, from the samples of the op database: forward, and backward where there is one."""
    collector = Collector(set(wanted))
    for entry in op_db:
        if any(word in entry.name for word in SKIPPED):
            continue
        dtype = torch.float32 if torch.float32 in entry.supported_dtypes("cpu") else torch.int64
        differentiable = entry.supports_autograd and dtype.is_floating_point
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            samples = itertools.islice(entry.sample_inputs("cpu", dtype, requires_grad=differentiable), SAMPLES)
            for sample in samples:
                try:
                    with collector:
                        out = entry.op(sample.input, *sample.args, **sample.kwargs)
                        roots = [leaf for leaf in tree_leaves(out) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
                        if roots:
                            torch.autograd.backward(roots, [torch.ones_like(root) for root in roots])
                except (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError):
                    pass  # what the collector has seen until then is good
    return collector.calls


# -- the same call, otherwise


def tensors(call):
    return [leaf for leaf in tree_leaves(call) if isinstance(leaf, torch.Tensor)]


def _each_tensor(call, change):
    return tree_map(lambda leaf: change(leaf) if isinstance(leaf, torch.Tensor) else leaf, call)


def with_dtype(call, dtype):
    """Floating tensors become tensors of that dtype, and so do numbers of an op that takes no others."""

    def change(tensor):
        if not tensor.is_floating_point():
            return tensor
        return (tensor * 4).to(dtype) if dtype == torch.uint8 else tensor.to(dtype)

    return _each_tensor(call, change)


def with_shape(call, shape):
    """Tensors of the shape that most have get another, with the same contents repeated; nothing if there is none."""
    shapes = collections.Counter(tensor.shape for tensor in tensors(call) if tensor.numel())
    if not shapes:
        return None
    common = shapes.most_common(1)[0][0]

    def change(tensor):
        if tensor.shape != common:
            return tensor
        count = torch.Size(shape).numel()
        return tensor.flatten().repeat(count // tensor.numel() + 1)[:count].reshape(shape)

    return _each_tensor(call, change)


def transposed(call):
    """The last two dimensions counted the other way round in memory."""
    if not any(tensor.dim() > 1 for tensor in tensors(call)):
        return None
    return _each_tensor(call, lambda t: t.mT.contiguous().mT if t.dim() > 1 else t)


def sliced(call):
    """Every second element of a larger tensor, which does not begin at its start."""

    def change(tensor):
        if tensor.dim() == 0:
            return torch.stack([tensor, tensor, tensor])[1]
        wide = tensor.repeat_interleave(2, dim=-1)
        return torch.cat([wide, wide], dim=0)[tensor.shape[0] :, ..., 1::2] if tensor.dim() > 1 else wide[1::2]

    return _each_tensor(call, change)


def expanded(call):
    """The first row stands for all."""
    if not any(tensor.dim() > 0 for tensor in tensors(call)):
        return None
    return _each_tensor(call, lambda t: t[:1].expand(t.shape) if t.dim() > 0 and t.shape[0] > 0 else t)
