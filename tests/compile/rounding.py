"""Equal, or as near as the native back end's kernels come to eager (docs/compile.md, Precision)."""
import math
import re

import torch


def equal_or_near(a, b, backend='native'):
    """Every bit for the other back ends; NaN is NaN."""
    if backend != 'native' or not (a.dtype.is_floating_point or a.dtype.is_complex):
        return torch.equal(torch.nan_to_num(a, nan=7.5), torch.nan_to_num(b, nan=7.5)) and torch.equal(a.isnan(), b.isnan())
    half = a.dtype in (torch.float16, torch.bfloat16)
    return torch.allclose(a, b, rtol=1e-2 if half else 1e-5, atol=1e-2 if half else 1e-6, equal_nan=True)


NUMBER = re.compile(r'-?\d+\.\d*(?:e[-+]?\d+)?')


def same_text(found, expected, backend='native'):
    """Texts that are equal but for floats, which are as near as in equal_or_near."""
    if backend != 'native':
        return found == expected
    numbers = [[float(number) for number in NUMBER.findall(text)] for text in (found, expected)]
    return NUMBER.sub('', found) == NUMBER.sub('', expected) and all(
        math.isclose(a, b, rel_tol=1e-5, abs_tol=1e-6) for a, b in zip(*numbers, strict=True))
