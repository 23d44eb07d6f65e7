"""State that code looks at and switches without any op that depends on it, and objects of C's that are known by value."""

import contextlib
import contextvars
import functools

import pytest
import torch
from torch.nn import functional as F

import smelt

np = pytest.importorskip('numpy')


def calls(fn, *arguments, breaks=0, times=4):
    """Compares calls 1 to 4 with eager's and counts the breaks."""
    smelt.reset()
    compiled = smelt.compile(fn)
    for _ in range(times):
        found, expected = compiled(*arguments), fn(*arguments)
        assert type(found) is type(expected)
        torch.testing.assert_close(found, expected)
    assert smelt.stats()['graph_breaks'] == breaks, smelt.explain(fn)(*arguments)
    return compiled


# -- switches of other devices

def without_cudnn(x):
    before = torch.backends.cudnn.enabled
    with torch.backends.cudnn.flags(enabled=False):
        y = x * 2 if torch.backends.cudnn.enabled else x * 3
    return y + 1, torch.backends.cudnn.enabled == before


@pytest.mark.skipif(torch.backends.cuda.is_built(), reason='here ops depend on it')
def test_flags_of_cudnn_are_part_of_the_graph():
    x = torch.randn(3)
    compiled = calls(without_cudnn, x)
    with torch.backends.cudnn.flags(enabled=False, benchmark=True):
        for _ in range(2):
            torch.testing.assert_close(compiled(x), without_cudnn(x))
            assert not torch.backends.cudnn.enabled and torch.backends.cudnn.benchmark


def asks(x):
    return x * (2 if torch.backends.cudnn.enabled else 3) * (5 if torch.backends.cuda.mem_efficient_sdp_enabled() else 7)


def forked(x):
    return x * 2 if torch.cuda._is_in_bad_fork() else x * 3


def test_whether_the_process_is_a_fork_that_can_use_no_gpu():
    calls(forked, torch.ones(2))


def test_what_was_asked_is_guarded():
    x = torch.ones(2)
    compiled = calls(asks, x)
    for enabled in (False, True, False):
        before = torch.backends.cuda.mem_efficient_sdp_enabled()
        torch.backends.cuda.enable_mem_efficient_sdp(enabled)
        with torch.backends.cudnn.flags(enabled=enabled):
            for _ in range(2):
                assert torch.equal(compiled(x), asks(x))
        torch.backends.cuda.enable_mem_efficient_sdp(before)
    assert torch.equal(compiled(x), asks(x))


def test_the_number_of_threads_is_guarded():
    def fn(x):
        return x * torch.get_num_threads()

    x, before = torch.ones(2), torch.get_num_threads()
    compiled = calls(fn, x)
    try:
        for threads in (1, 2, 1):
            torch.set_num_threads(threads)
            assert torch.equal(compiled(x), fn(x))
    finally:
        torch.set_num_threads(before)


mode = contextvars.ContextVar('mode', default='plain')


def by_context(x):
    return x * 2 if mode.get() == 'plain' else x * 3


def test_a_context_variable_is_guarded():
    x = torch.ones(2)
    compiled = calls(by_context, x)
    for value in ('other', 'plain', 'other'):
        token = mode.set(value)
        assert torch.equal(compiled(x), by_context(x))
        mode.reset(token)
    assert torch.equal(compiled(x), by_context(x))


# -- a device for new tensors

def on_device(x):
    with torch.device('cpu'):
        y = torch.ones(3)
    return x + y


def on_meta(x):
    with torch.device('meta'):
        y = torch.empty(3)
    return x * y.shape[0], y.device.type


def test_new_tensors_on_a_device():
    x = torch.randn(3)
    calls(on_device, x)
    compiled = smelt.compile(on_meta)
    for _ in range(4):
        found, expected = compiled(x), on_meta(x)
        assert torch.equal(found[0], expected[0]) and found[1] == expected[1]
    assert torch.empty(1).device.type == 'cpu'


def breaks_on_device(x):
    with torch.device('meta'):
        print(end='')
        y = torch.empty(3)
    return x * 2, y.device.type


def test_a_break_on_a_device():
    compiled, x = smelt.compile(breaks_on_device), torch.randn(3)
    for _ in range(4):
        found = compiled(x)
        assert torch.equal(found[0], x * 2) and found[1] == 'meta'
        assert torch.empty(1).device.type == 'cpu'


# -- tensors whose contents are no matter of the inputs

def of_sizes(x):
    n = torch.tensor(x.shape[0])
    half = torch.div(n, 2, rounding_mode='floor')
    scale = torch.sqrt(torch.tensor(x.shape[1], dtype=torch.float))
    y = x[:half] * scale.item()
    for rate in torch.linspace(0, 1, 3).tolist():
        y = y + rate
    if torch.tensor([1, 2, 3]).sum() > 5:
        y = y * 2
    return y, [0] * int(half)


def test_tensors_made_of_sizes_are_known():
    smelt.reset()
    compiled = smelt.compile(of_sizes)
    for rows in (4, 4, 4, 6, 6, 4):
        x = torch.randn(rows, 9)
        torch.testing.assert_close(compiled(x), of_sizes(x))
    assert smelt.stats()['graph_breaks'] == 0


def written_into(x):
    n = torch.zeros(())
    n += x.sum()
    m = torch.ones(2)
    m[0] = x[0]
    return x * n.item() + sum(m.tolist())


def test_what_was_written_into_is_not_known():
    compiled = smelt.compile(written_into)
    for _ in range(5):
        x = torch.randn(3)
        torch.testing.assert_close(compiled(x), written_into(x))


def drawn(x):
    return x * torch.rand(()).item() + sum(torch.randn(2).tolist())


def test_what_is_drawn_is_not_known():
    compiled, x = smelt.compile(drawn), torch.ones(3)
    for seed in range(4):
        torch.manual_seed(seed)
        found = compiled(x)
        torch.manual_seed(seed)
        torch.testing.assert_close(found, drawn(x))


def of_argument(x, n):
    return x * torch.tensor(n).item() + sum(torch.tensor([n, 1]).tolist())


def test_numbers_that_change_are_not_known():
    compiled, x = smelt.compile(of_argument), torch.ones(3)
    for n in (1, 2, 3, 1, 5):
        assert torch.equal(compiled(x, n), of_argument(x, n))


# -- numpy

FACTOR = np.float64(2.0)


def of_numpy(x):
    steps = np.prod(x.shape)
    return x * float(np.sqrt(4.0)) * FACTOR / int(steps) + np.log2(8.0).item() + int(np.ceil(x.shape[0] / 2)) + np.float32(3).item()


def test_numbers_of_numpy_are_constants():
    calls(of_numpy, torch.randn(2, 4))


def test_a_number_of_numpy_is_guarded_by_value():
    def fn(x, n):
        return x * n

    smelt.reset()
    compiled, x = smelt.compile(fn), torch.ones(2)
    for n in (np.float64(2), np.float64(2), np.float64(3), np.float32(3), np.int64(3), np.float64(-0.0), np.float64(0.0)):
        found, expected = compiled(x, n), fn(x, n)
        assert found.dtype == expected.dtype and torch.equal(1 / found, 1 / expected)


def test_a_tensor_given_to_numpy_is_read_in_each_call():
    def fn(x):
        return x * float(np.sum([x[0], x[1]]))

    compiled = smelt.compile(fn)
    for _ in range(4):
        x = torch.randn(3)
        torch.testing.assert_close(compiled(x), fn(x))


# -- functions in C, or behind it

@torch.jit.script
def scripted(x, n: int):
    if n > 2:
        return x * n
    return x + n


def calls_script(x, n):
    return scripted(x * 2, n).sin()


@pytest.mark.parametrize('grads', [False, True])
def test_a_scripted_function_is_followed(grads):
    smelt.reset()
    compiled = smelt.compile(calls_script)
    for n in (1, 1, 3, 3, 1, 4):
        x = torch.randn(3, requires_grad=grads)
        torch.testing.assert_close(compiled(x, n), calls_script(x, n))
    assert smelt.stats()['graph_breaks'] == 0


@torch.jit.script
def sizes(x):
    return x.size()


def test_a_script_that_gives_a_list_gives_a_list():
    def fn(x):
        return x * 2, sizes(x)

    compiled, x = smelt.compile(fn), torch.randn(2, 3)
    for _ in range(3):
        found = compiled(x)
        assert type(found[1]) is list and found[1] == [2, 3]


class Logger:
    def __init__(self):
        self.lines = []

    @functools.lru_cache(None)
    def once(self, line):
        self.lines.append(line)


def test_a_method_that_runs_once():
    logger, other = Logger(), Logger()

    def fn(x, logger):
        logger.once('hello')
        return x * 2

    smelt.reset()
    compiled, x = smelt.compile(fn), torch.ones(2)
    for _ in range(3):
        assert torch.equal(compiled(x, logger), x * 2)
    assert logger.lines == ['hello'] and smelt.stats()['graph_breaks'] == 0
    assert torch.equal(compiled(x, other), x * 2) and other.lines == ['hello']
    Logger.once.cache_clear()
    compiled(x, logger)
    assert logger.lines == ['hello'] * 2


class Record(dict):
    def __delitem__(self, key):
        raise TypeError('not from outside')

    def drop(self, key):
        super().__delitem__(key)


def test_items_deleted_behind_a_class():
    def fn(x):
        record = Record(a=x, b=x + 1)
        record.drop('a')
        return list(record), record['b'] * 2

    x = torch.randn(2)
    smelt.reset()
    compiled = smelt.compile(fn)
    for _ in range(4):
        names, value = compiled(x)
        assert names == ['b'] and torch.equal(value, (x + 1) * 2)
    assert smelt.stats()['graph_breaks'] == 0


def test_contexts_of_contextlib():
    def fn(x):
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.no_grad())
            y = x * stack.enter_context(contextlib.nullcontext(3))
        with contextlib.suppress(ZeroDivisionError):
            y = y + 1 // 0
        return F.relu(y)

    smelt.reset()
    compiled, x = smelt.compile(fn), torch.randn(3)
    for _ in range(4):
        torch.testing.assert_close(compiled(x), fn(x))
