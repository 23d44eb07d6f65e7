"""What a compiled function does against what the function does: results, what they share memory with, and what is left in
the arguments."""

import torch

import smelt

# Kernels round as eager does, but add up in another order.
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.bfloat16: 4e-2, torch.float16: 1e-2}


def outcome(function, make_inputs):
    """The results and the arguments afterwards, or the error."""
    inputs = make_inputs()
    torch.manual_seed(0)
    try:
        with torch.no_grad():
            results = function(*inputs)
    except (RuntimeError, IndexError, ZeroDivisionError, TypeError, ValueError) as error:
        return None, inputs, error
    return list(results) if isinstance(results, (tuple, list)) else [results], inputs, None


def sharing(results, inputs):
    """Which of the results and arguments have memory in common, and where in it they begin."""
    groups, shape = {}, []
    for tensor in [*inputs, *results]:
        group = groups.setdefault(tensor.untyped_storage().data_ptr() if tensor.numel() else id(tensor), len(groups))
        shape.append((group, tensor.storage_offset()))
    return shape


def assert_near(mine, theirs, scale, what, coarsest):
    assert (mine.dtype, mine.shape, mine.requires_grad) == (theirs.dtype, theirs.shape, theirs.requires_grad), what
    assert mine.stride() == theirs.stride(), f"{what}: strides {mine.stride()}, eager {theirs.stride()}"
    near = 0
    if (theirs.is_floating_point() or theirs.is_complex()) and coarsest is not None:
        near = max(TOLERANCE[theirs.dtype.to_real()], TOLERANCE[coarsest])
    torch.testing.assert_close(mine, theirs, rtol=near, atol=near * max(1.0, scale), equal_nan=True,
                               msg=lambda text: f"{what}: {text}")  # fmt: skip


def check(function, make_inputs, scale=1.0, coarsest=torch.float64, **settings):
    """smelt.compile(function, **settings) does what `function` does, twice. coarsest: what floating numbers were rounded to
    on the way; None: to the same bits as in eager."""
    expected, inputs_after, error = outcome(function, make_inputs)
    compiled = smelt.compile(function, **settings)
    for _ in range(2):
        results, inputs, raised = outcome(compiled, make_inputs)
        if error is not None or raised is not None:
            assert type(raised) is type(error), f"{raised!r}, eager {error!r}"
            assert str(raised) == str(error)
        else:
            assert len(results) == len(expected)
            for i, (mine, theirs) in enumerate(zip(results, expected)):
                assert_near(mine, theirs, scale, f"result {i}", coarsest)
            assert sharing(results, inputs) == sharing(expected, inputs_after)
        for i, (mine, theirs) in enumerate(zip(inputs, inputs_after)):
            assert_near(mine, theirs, scale, f"argument {i} afterwards", coarsest)
    return compiled
