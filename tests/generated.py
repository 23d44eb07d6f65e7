"""Were kernels generated? Where smelt is built without LLVM none can be, and results are compared all the same."""
from smelt import _native

HAS_KERNELS = _native.cpu_target() != 'none'


def more_than(before, stats):
    return stats['ops_native'] > before or not HAS_KERNELS
