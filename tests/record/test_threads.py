"""Threads: several that record, eager ones beside them, and many that run one graph."""

import threading

import torch
from record_check import same
from torch import nn

import smelt


def mlp(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.BatchNorm1d(16), nn.Linear(16, 3)).eval()


def gradients(model, x):
    return torch.autograd.grad(model(x).pow(2).sum(), list(model.parameters()))


class Threads:
    """Runs functions at once and raises what one of them raised."""

    def __init__(self):
        self.errors = []
        self.threads = []

    def start(self, fn, *args):
        def run():
            try:
                fn(*args)
            except BaseException as error:  # noqa: BLE001
                self.errors.append(error)

        self.threads.append(threading.Thread(target=run, daemon=True))

    def finish(self, timeout=60):
        for thread in self.threads:
            thread.start()
        for thread in self.threads:
            thread.join(timeout)
            assert not thread.is_alive(), "a thread hangs"
        if self.errors:
            raise self.errors[0]


def test_two_threads_record_different_models():
    threads = Threads()

    def work(seed):
        x = torch.randn(4, 6)
        model = mlp(seed)
        expected = gradients(model, x)
        for _ in range(10):
            graph = smelt.record(gradients, model, x)
            same(graph.run(model, x), expected)

    for seed in range(4):
        threads.start(work, seed)
    threads.finish()


def test_two_threads_record_the_same_model():
    model, x = mlp(), torch.randn(4, 6)
    expected = gradients(model, x)
    text = str(smelt.record(gradients, model, x))
    threads = Threads()

    def work():
        for _ in range(10):
            graph = smelt.record(gradients, model, x)
            assert str(graph) == text
            same(graph.run(model, x), expected)

    for _ in range(3):
        threads.start(work)
    threads.finish()
    same(gradients(model, x), expected)


def test_eager_thread_uses_the_model_while_another_records():
    model, x = mlp(), torch.randn(4, 6)
    with torch.no_grad():
        expected = model(x)
    threads, done, count = Threads(), threading.Event(), []

    def eager():
        with torch.no_grad():
            while not done.is_set():
                same(model(x), expected)
                count.append(1)

    def record():
        try:
            for _ in range(40):
                smelt.record(gradients, model, x)
        finally:
            done.set()

    threads.start(eager)
    threads.start(record)
    threads.finish()
    assert len(count) > 10


def test_eager_thread_trains_another_model_while_one_records():
    model, x = mlp(), torch.randn(4, 6)
    other, reference = mlp(1), mlp(1)
    threads, done, steps = Threads(), threading.Event(), []

    def train(model):
        loss = model(x).pow(2).sum()
        loss.backward()
        with torch.no_grad():
            for p in model.parameters():
                p.sub_(p.grad, alpha=0.01)
                p.grad = None

    def eager():
        while not done.is_set():
            train(other)
            steps.append(1)

    def record():
        try:
            for _ in range(40):
                smelt.record(gradients, model, x)
        finally:
            done.set()

    threads.start(eager)
    threads.start(record)
    threads.finish()
    for _ in steps:
        train(reference)
    for a, b in zip(other.parameters(), reference.parameters()):
        same(a, b)


def test_thread_started_inside_the_recorded_function():
    """Another thread takes no part in the recording: its eager work is eager work."""
    y = torch.randn(3)
    results = []

    def fn(x):
        thread = threading.Thread(target=lambda: results.append(y * 2))
        thread.start()
        thread.join()
        return x + 1

    x = torch.randn(3)
    graph = smelt.record(fn, x)
    same(results[0], y * 2)
    same(graph.run(x), x + 1)


def test_recording_tensor_handed_to_another_thread():
    """A clear error there, not a crash and not a number."""
    errors = []

    def fn(x):
        y = x * 2

        def work():
            try:
                errors.append(y + 1)
            except RuntimeError as error:
                errors.append(str(error))

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return y

    x = torch.randn(3)
    graph = smelt.record(fn, x)
    assert len(errors) == 1 and isinstance(errors[0], str) and "record" in errors[0]
    same(graph.run(x), x * 2)


def test_many_threads_run_one_graph():
    model = mlp()
    graph = smelt.record(gradients, model, torch.randn(4, 6))
    threads = Threads()

    def work(seed):
        generator = torch.Generator().manual_seed(seed)
        for _ in range(50):
            x = torch.randn(4, 6, generator=generator)
            same(graph.run(model, x), gradients(model, x))

    for seed in range(4):
        threads.start(work, seed)
    threads.finish()


def test_runs_beside_a_recording_of_the_same_model():
    model, x = mlp(), torch.randn(4, 6)
    graph = smelt.record(gradients, model, x)
    expected = gradients(model, x)
    threads, done = Threads(), threading.Event()

    def run():
        while not done.is_set():
            # The model is passed as structure only; its parameters were captured.
            same(graph._native.run([x]), list(expected))

    def record():
        try:
            for _ in range(40):
                smelt.record(gradients, model, torch.randn(4, 6))
        finally:
            done.set()

    threads.start(run)
    threads.start(record)
    threads.finish()
