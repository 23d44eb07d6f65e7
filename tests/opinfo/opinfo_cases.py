"""The cases: every op of PyTorch's OpInfo database, in one dtype of each class that it supports."""

import itertools
import os
import warnings

import torch

warnings.simplefilter("ignore")
from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402

EVERYTHING = os.environ.get("SMELT_OPINFO_ALL") == "1"
SAMPLES = 5
MOST_DRAWN = 40  # samples looked at to choose from

# A class is tested in the first of its dtypes that the op supports.
CLASSES = [
    (torch.float32, torch.float64),
    (torch.bfloat16, torch.float16),
    (torch.int64, torch.int32, torch.uint8),
    (torch.bool,),
    (torch.complex64, torch.complex128),
]


def name_of(op):
    return op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")


def dtypes_of(op):
    supported = op.supported_dtypes("cpu")
    chosen = (next((dtype for dtype in choice if dtype in supported), None) for choice in CLASSES)
    return [dtype for dtype in chosen if dtype is not None]


def all_cases():
    """(op name, dtype name) -> (OpInfo, dtype), in the order of the database."""
    return {(name_of(op), str(dtype).removeprefix("torch.")): (op, dtype) for op in op_db for dtype in dtypes_of(op)}


def has_gradient(op, dtype):
    if not (dtype.is_floating_point or dtype.is_complex):
        return False
    return op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")


def spread(samples):
    """A fixed few, from the first to the last."""
    if EVERYTHING or len(samples) <= SAMPLES:
        return samples
    last = len(samples) - 1
    return [samples[round(i * last / (SAMPLES - 1))] for i in range(SAMPLES)]


def samples_of(op, dtype):
    """The sample inputs; tensors require grad where the op is differentiable."""
    torch.manual_seed(0)
    drawn = op.sample_inputs("cpu", dtype, requires_grad=has_gradient(op, dtype))
    return spread(list(drawn if EVERYTHING else itertools.islice(drawn, MOST_DRAWN)))


def error_samples_of(op):
    """Inputs that eager refuses."""
    torch.manual_seed(0)
    if op.error_inputs_func is None:
        return []
    return spread([error.sample_input for error in op.error_inputs("cpu")])
