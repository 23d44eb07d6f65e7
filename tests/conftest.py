"""What all tests share."""

import os

import pytest

# oneDNN would use AMX where the processor has it, also where the machine it runs on does not let it. Read once, by the
# first op that uses oneDNN.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")


@pytest.fixture(autouse=True, scope="session")
def cpu_clock():
    """What compiling costs and what calls take is measured while tests run too, and decides what is compiled. By a clock on the wall
    a machine that does other things would decide otherwise now and then, and counts of graphs, kernels and hits would differ."""
    from smelt import _native
    _native.use_cpu_clock()


@pytest.fixture(autouse=True)
def no_dispatch_key_is_left_behind():
    """PyTorch's switches on this thread are as before: a key of smelt's own would slow down all that the process does then."""
    import torch
    before = torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()
    yield
    after = torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()
    assert repr(after) == repr(before)


def pytest_addoption(parser):
    parser.addoption("--part", help="K/N: of N processes that share the tests, what the K-th runs; whole files, so that fixtures hold")


def pytest_collection_modifyitems(config, items):
    if config.getoption("--part") is None:
        return
    part, parts = (int(number) for number in config.getoption("--part").split("/"))
    weights = {}
    for item in items:
        slow = 20 if item.get_closest_marker("slow") else 1
        weights[item.path] = weights.get(item.path, 0) + slow
    loads = [0] * parts
    taken = set()
    for path in sorted(weights, key=lambda path: (-weights[path], path)):
        lightest = loads.index(min(loads))
        loads[lightest] += weights[path]
        if lightest == part - 1:
            taken.add(path)
    config.hook.pytest_deselected(items=[item for item in items if item.path not in taken])
    items[:] = [item for item in items if item.path in taken]
