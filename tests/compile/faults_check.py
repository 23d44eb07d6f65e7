"""Allocations of smelt's own fail, one at a time, while a function is traced, compiled and run. What comes out is
what eager gives, with each effect once, or an error of that very call where an instruction had begun to act; and the
process is as it was. Run by test_faults.py.

    faults_check.py BACKEND MOST    (at most so many faults per program and kind of call)

`background` is the native back end with code that is made meanwhile, by threads that do have memory.
"""

import contextlib
import ctypes
import faulthandler
import gc
import random
import sys
import threading

import torch

import smelt

faults = ctypes.CDLL(None)
faults.faults_disarm.restype = ctypes.c_long
faults.faults_arm.argtypes = [ctypes.c_long]


@contextlib.contextmanager
def failing(n, seen):
    faults.faults_arm(n)
    try:
        yield
    finally:
        seen.append(faults.faults_disarm())


def eval_function():
    api = ctypes.pythonapi
    api.PyInterpreterState_Get.restype = ctypes.c_void_p
    get = api._PyInterpreterState_GetEvalFrameFunc
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    return get(api.PyInterpreterState_Get())


# -- programs; each has a `log` that effects go to


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(2))
        self.calls = 0

    def forward(self, x, log):
        self.calls += 1
        log.append(self.calls)
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x.sum()


class Updates(torch.nn.Module):
    """Changes what it keeps: by hand, and by a backward pass."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4))
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x, log):
        (x * self.weight).sum().backward()
        log.append(1)
        with torch.no_grad():
            self.mean.lerp_(x.mean(0), 0.5)
            self.weight.sub_(self.weight.grad, alpha=0.1)
        return self.weight.detach() * 1, self.weight.grad * 1, self.mean * 1


class Noise(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4))
        self.norm = torch.nn.BatchNorm1d(4)

    def forward(self, x, log):
        log.append(1)
        x = torch.nn.functional.dropout(self.norm(x * self.weight), 0.5)
        return x, self.norm.running_mean * 1


def arithmetic(x, log):
    log.append("a")
    y = x * 2 + 1
    log.append("b")
    return y.exp().sum(), y.shape


def breaks(x, log):
    y = x * 2
    log.append(1)
    print(end="")
    log.append(2)
    return helper(y, log) + 1


def helper(x, log):
    z = x.sin()
    print(end="")
    log.append(3)
    return z * 3


def loops(x, log):
    for i, (name, value) in enumerate({"a": 1, "b": 2}.items()):
        x = x + i * value
        log.append(name)
    return x, [n for n in range(3) if n != 1]


def generates(x, log):
    def numbers():
        for i in range(3):
            log.append(i)
            yield i

    return sum(x * n for n in numbers())


def catches(x, log):
    try:
        log.append(1)
        raise KeyError("k")
    except KeyError as error:
        log.append(str(error))
    finally:
        log.append("f")
    return x + 1


def branches(x, log):
    if x.sum() > 100:
        return x
    log.append(float(x.sum()))
    return x - 1


def writes(x, log):
    y = x.clone()
    y.add_(1)
    y[0] = 5
    log += [1]
    state = {"n": 0}
    state["n"] += 1
    log.append(state["n"])
    return y.mul_(2)


def raises(x, log):
    log.append(1)
    y = x * 2
    raise ValueError(str(tuple(y.shape)))


def trains(x, log):
    w = torch.ones(4, requires_grad=True)
    loss = (x * w).sum()
    loss.backward()
    log.append(1)
    return w.grad


PROGRAMS = [Model, Updates, Noise, arithmetic, breaks, loops, generates, catches, branches, writes, raises, trains]


def outcome_of(function, log):
    x = torch.arange(12.0).reshape(3, 4)
    torch.manual_seed(1)
    try:
        return function(x, log), None
    except ValueError as error:
        return None, str(error)


def same(found, expected):
    if isinstance(expected, torch.Tensor):
        return torch.allclose(found, expected)
    if isinstance(expected, (tuple, list)):
        return len(found) == len(expected) and all(map(same, found, expected))
    return found == expected


errors = []  # faults for which there was an error that says so


def run_with_fault(program, backend, n, cached, seen):
    """Nothing if all is well, else what is wrong."""
    make = program if isinstance(program, type) else lambda: program
    plain, function = make(), make()
    in_background = backend == "background"
    compiled = smelt.compile(
        function, backend="native" if in_background else backend, options={"background": in_background}
    )
    for turn in range(4):
        expected_log, log = [], []
        expected = outcome_of(plain, expected_log)
        try:
            if turn == cached:
                with failing(n, seen):
                    found = outcome_of(compiled, log)
            else:
                found = outcome_of(compiled, log)
        except (RuntimeError, MemoryError) as error:
            if turn != cached:
                return f"call {turn}: {type(error).__name__}: {error}"
            errors.append(n)  # the program has ended in its middle; after it all goes on
            outcome_of(compiled, [])
            return None
        if not (same(found, expected) and same(log, expected_log)):
            return f"call {turn}: {found} {log} instead of {expected} {expected_log}"
    return None


def places(count, most):
    """All of them, or some: most of the early ones, and as many spread over the rest."""
    if count <= most:
        return range(1, count + 1)
    early = range(1, most // 2 + 1)
    return [*early, *sorted(random.Random(count).sample(range(most // 2 + 1, count + 1), most - len(early)))]


def main():
    faulthandler.enable()
    backend, most = sys.argv[1], int(sys.argv[2])
    for library in (b"_native", b"libsmelt"):
        faults.faults_watch(library)
    for program in PROGRAMS:  # what is found out once in a process
        run_with_fault(program, backend, 0, -1, [])
    before = gc.isenabled(), eval_function(), threading.active_count()
    wrong = tried = 0
    for program in PROGRAMS:
        for cached in (0, 2):
            counts = []
            smelt.reset()
            run_with_fault(program, backend, 0, cached, counts)
            for n in places(counts[0], most):
                print(program.__name__, cached, n, "of", counts[0], flush=True)
                smelt.reset()
                tried += 1
                problem = run_with_fault(program, backend, n, cached, [])
                after = gc.isenabled(), eval_function(), threading.active_count()
                if problem is None and after != before:
                    problem = f"the process is {after}, was {before}"
                if problem is not None:
                    wrong += 1
                    print("WRONG", problem, flush=True)
    print(f"{tried} faults, {len(errors)} errors, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
