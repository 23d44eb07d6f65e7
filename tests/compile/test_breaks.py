"""A program for each row of breaks.def: results stay right, and smelt.explain names line, reason and remedy."""

import array
import contextlib
import datetime
import gc
import itertools
import os
import pathlib
import re
import sys
import tempfile
import threading
import types
import zlib

import pytest
import torch
from plain_check import X, check, line_of, tensor

import smelt

TABLE = pathlib.Path(__file__).parents[2] / "src/capture/bytecode/nodes/breaks.def"
ROWS = {name: (sentence, remedy) for name, sentence, remedy in
        re.findall(r'^SMELT_BREAK\((\w+), "(.*?)", "(.*?)"\)$', TABLE.read_text(), re.MULTILINE)}
NOT_PROVOKED = {"internal"}  # a bug of smelt's own

PROGRAMS = []


def breaks(reason, at, *calls):
    """The function breaks for that reason in the line with the text `at`, and has tensor work before it."""
    def register(fn):
        PROGRAMS.append(pytest.param(fn, reason, at, calls or ((X,), (X,), (X,)), id=f"{reason}-{fn.__name__}"))
        return fn
    return register


@breaks("c_function", "zlib.adler32")
def unknown_c_function(x):
    y = x * 2
    n = zlib.adler32(b"smelt") % 7
    return y + n


@breaks("c_function", "DAY.isoformat()")
def method_of_a_c_type(x):
    y = x * 2
    text = DAY.isoformat()
    return y + len(text)


@breaks("python_function", "tempfile.gettempdir()")
def python_function_left_alone(x):
    y = x * 2
    folder = tempfile.gettempdir()
    return y + len(folder)


sys.modules["smelt_test_no_module"] = types.SimpleNamespace(n=3)


@breaks("importing", "import smelt_test_no_module")
def import_of_something_else(x):
    y = x * 2
    import smelt_test_no_module
    return y + smelt_test_no_module.n


def number_of(key):
    return key.n


class Key:
    __hash__ = number_of

    def __init__(self, n):
        self.n = n


@breaks("c_callback", "{Key(1): 2}")
def hash_by_another_name(x):
    y = x * 2
    numbers = {Key(1): 2}
    return y + len(numbers)


@breaks("data_dependent", ".tolist()")
def values_of_a_tensor(x):
    y = x * 2
    rows = y.tolist()
    return y + len(rows)


@breaks("data_dependent", "len(z)")
def shape_from_values(x):
    y = x * 2
    z = y[y > 0]
    w = z + len(z)
    return w * 2


@breaks("data_dependent", "for i in range(n)", (lambda: torch.ones(3),), (lambda: torch.ones(3),), (lambda: torch.zeros(3),))
def loop_count_from_values(x):
    y = x * 2
    n = y.sum().int().item()
    for i in range(n):
        y = y + i
    return y


@breaks("tensor_branch", "if y.sum() > 0", (X,), (X,), (lambda: -torch.ones(2, 3),), (lambda: torch.ones(2, 3),))
def branch(x):
    y = x * 2
    if y.sum() > 0:
        return y.sin()
    return y.cos()


@breaks("tensor_branch", "while y.sum() < 20", (lambda: torch.ones(2),), (lambda: torch.ones(2),),
        (lambda: torch.ones(2) * 3,))
def loop(x):
    y = x * 2
    while y.sum() < 20:
        y = y + x
    return y


@breaks("tensor_branch", "assert y.sum() < 1000")
def assertion(x):
    y = x * 2
    assert y.sum() < 1000
    return y + 1


@breaks("foreign_tensor", "torch.tensor([y[0, 0], 2.0])")
def tensor_of_tensors(x):
    y = x * 2
    z = torch.tensor([y[0, 0], 2.0])
    return z + 1


@breaks("unknown_object", "len(given)", *[(X, lambda: array.array("i", [1, 2]))] * 3)
def object_of_c(x, given):
    y = x * 2
    n = len(given)
    return y + n



async def coroutine(x):
    return x + 1


@breaks("opcode", "coroutine(y).send(None)")
def await_(x):
    y = x * 2
    try:
        coroutine(y).send(None)
    except StopIteration as stop:
        y = stop.value
    return y * 2


DAY = datetime.date(2026, 3, 1)


class Local(threading.local):
    pass


LOCAL = Local()
LOCAL.n = 3


@breaks("attribute", "LOCAL.n")
def attribute_in_c(x):
    y = x * 2
    n = LOCAL.n
    return y + n


NUMBERS = array.array("i", [1, 2, 3])


@breaks("mutation", "NUMBERS[0] = 5")
def item_of_a_c_type(x):
    y = x * 2
    NUMBERS[0] = 5
    return y + 1


@breaks("iterator", "for n in given", *[(X, lambda: itertools.chain([1], [2, 3]))] * 3)
def iterator_given(x, given):
    y = x * 2
    for n in given:
        y = y + n
    return y


@breaks("exception", "raise ValueError", (X, False), (X, True), (X, False), (X, True))
def escapes(x, good):
    y = x * 2
    if not good:
        raise ValueError("bad")
    return y + 1


@breaks("raised", "rows[3] = 1")
def raised_by_c_code(x):
    y, rows = x * 2, [1, 2]
    try:
        rows[3] = 1
    except IndexError:
        y = y + 1
    return y * 2


@breaks("handler", "y = y * 3")
def break_in_a_handler(x):
    y = x * 2
    try:
        raise KeyError("k")
    except KeyError:
        y = y + y.sum().tolist()
        y = y * 3
    return y + 1


def ends_badly(x):
    try:
        yield x / 2
    finally:
        raise ValueError("nobody gets this")


@breaks("generator", "halves = None")
def dropped_generator(x):
    y = x * 2
    halves = ends_badly(y)
    z = next(halves)
    halves = None
    return z + 1


def delegating(x):
    yield from ends_badly(x)


@breaks("generator", "halves = None")
def dropped_generator_that_delegates(x):
    y = x * 2
    halves = delegating(y)
    z = next(halves)
    halves = None
    return z + 1


@breaks("autograd", "y.register_hook(lambda g: g * n)", *[(lambda: torch.ones(3, requires_grad=True),)] * 3)
def hook_with_a_closure(x):
    y, n = x * 2, len(x)
    y.register_hook(lambda g: g * n)
    return y * 3


def hooked():
    x = torch.ones(3, requires_grad=True)
    x.register_post_accumulate_grad_hook(lambda leaf: None)
    return x


@breaks("backward", "y.sum().backward()", *[(hooked,)] * 3)
def backward_pass(x):
    y = x * 2
    y.sum().backward()
    return x * 3


@breaks("state", "torch.set_flush_denormal")
def flush_denormal(x):
    y = x * 2
    torch.set_flush_denormal(False)
    return y + torch.ones(3)


@smelt.disable
def plain(y):
    return y.sin()


@breaks("disabled", "plain(y)")
def disabled_function(x):
    y = x * 2
    z = plain(y)
    return z + 1


@torch.compiler.disable
def left_alone(y):
    return y.sin()


@breaks("disabled_for_torch", "left_alone(y)")
def disabled_for_torch(x):
    y = x * 2
    z = left_alone(y)
    return z + 1


@breaks("output", 'print("y")')
def prints(x):
    y = x * 2
    print("y")
    return y + 1


@breaks("output", "open(os.devnull)")
def opens(x):
    y = x * 2
    open(os.devnull).close()
    return y + 1


@breaks("too_long", "deep_recursion(y, n - 1)", *[(X, 500)] * 3)
def deep_recursion(x, n):
    y = x * 1
    return y + 1 if n == 0 else deep_recursion(y, n - 1)


class Logged(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return super().__torch_function__(function, types, args, kwargs or {})


@breaks("subclass", "given + 1", *[(X, lambda: torch.ones(3).as_subclass(Logged))] * 3)
def subclass(x, given):
    y = x * 2
    z = given + 1
    return y + z.as_subclass(torch.Tensor)


@breaks("transform", "torch.func.functionalize")
def transform(x):
    y = x * 2
    z = torch.func.functionalize(lambda row: row * 2)(y)
    return z + 1


def report_of(fn, calls):
    """smelt.explain after the calls; what raises is called too, and a call that does not gives the report."""
    compiled, report = smelt.compile(fn, backend="eager"), None
    for call in calls:
        arguments = tuple(tensor(0) if a is X else a() if callable(a) else a for a in call)
        with contextlib.suppress(ValueError):
            report = smelt.explain(compiled)(*arguments)
    return report


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("fn, reason, at, calls", PROGRAMS)
def test_right_results(fn, reason, at, calls):
    stats = check(lambda: fn, calls)
    assert stats["graph_breaks"] >= 1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("fn, reason, at, calls", PROGRAMS)
def test_is_explained(fn, reason, at, calls, capsys):
    report = report_of(fn, calls)
    found = {(b.reason, b.line): b for b in report.breaks}
    file, line = line_of(fn, at)
    assert (reason, line) in found, "\n".join(b.text for b in report.breaks)
    one = found[reason, line]
    sentence, remedy = ROWS[reason]
    assert re.fullmatch(re.escape(sentence).replace(r"\{\}", ".*"), one.sentence)
    assert one.remedy == remedy
    assert os.path.samefile(one.file, file)
    assert one.function.split(".")[-1] == fn.__name__
    assert f"{os.path.basename(file)}:{line}" in one.text and one.sentence in one.text
    assert one.sentence in str(report) and remedy in str(report)
    assert report.graph_count >= 1, "the code before the break was not compiled"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("fn, reason, at, calls", [p for p in PROGRAMS if p.values[1] not in ("exception", "handler", "too_long")])
def test_is_an_error_with_fullgraph(fn, reason, at, calls):
    compiled = smelt.compile(fn, backend="eager", fullgraph=True)
    arguments = tuple(tensor(0) if a is X else a() if callable(a) else a for a in calls[0])
    with pytest.raises(smelt.BreakError) as raised:
        compiled(*arguments)
    file, line = line_of(fn, at)
    assert f"{os.path.basename(file)}:{line}" in str(raised.value)


def test_every_reason_has_a_program():
    assert set(ROWS) == {p.values[1] for p in PROGRAMS} | NOT_PROVOKED


def test_finalisers_that_happen_to_run_are_no_part_of_a_trace():
    class Node:
        def __del__(self):
            len(self.__dict__)

    def f(x):
        kept = [[i] for i in range(500)]  # enough for a collection
        return x + len(kept)

    compiled, x = smelt.compile(f), torch.zeros(2)
    threshold = gc.get_threshold()
    gc.collect()
    gc.set_threshold(100_000)
    for _ in range(100):
        node = Node()
        node.itself = node
    del node
    gc.set_threshold(gc.get_count()[0] + 100)
    try:
        compiled(x)
    finally:
        gc.set_threshold(*threshold)
    assert gc.isenabled() and smelt.stats()['graph_breaks'] == 0
