"""Random programs, compiled against plain Python: see random_program_check.py, also for how to run a seed alone.

SMELT_RANDOM_FIRST is the first seed, SMELT_RANDOM_COUNT how many there are. A process that dies is its seed's failure.
"""

import collections
import json
import os
import queue
import signal
import subprocess
import sys
import threading

import pytest
import random_program_check
from random_programs import PRELUDE, generate

HERE = os.path.dirname(os.path.abspath(__file__))
FIRST = int(os.environ.get("SMELT_RANDOM_FIRST", "0"))
WORKERS = max(2, os.cpu_count() or 2)
PER_PROCESS = 400  # seeds, then a new process


class Worker:
    """A process that checks seeds, started again after it died."""

    def __init__(self, arguments):
        self.command = [sys.executable, os.path.join(HERE, "random_program_check.py"), "--serve", *arguments]
        self.process, self.done = None, 0

    def start(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONHASHSEED": "0"})
        self.errors, self.done = collections.deque(maxlen=12), 0
        self.reader = threading.Thread(target=lambda p=self.process, e=self.errors: e.extend(p.stderr), daemon=True)
        self.reader.start()

    def check(self, seed):
        if self.process is not None and (self.process.poll() is not None or self.done >= PER_PROCESS):
            self.stop()
        if self.process is None:
            self.start()
        self.done += 1
        watchdog = threading.Timer(random_program_check.SECONDS + 10, self.process.kill)
        watchdog.start()
        try:
            self.process.stdin.write(f"{seed}\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        watchdog.cancel()
        return json.loads(answer) if answer else self.post_mortem()

    def post_mortem(self):
        code = self.process.wait()
        self.reader.join(timeout=5)
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return {"status": f"the process died of {how}", "detail": "".join(self.errors), "raised": 0, "steps": 0,
                "graphs": 0}

    def stop(self):
        if self.process is not None:
            self.process.stdin.close()
            self.process.wait()
            self.process = None


def check_seeds(seeds, *arguments):
    """{seed: outcome}."""
    todo, outcomes = queue.SimpleQueue(), {}
    for seed in seeds:
        todo.put(seed)

    def work():
        worker = Worker(arguments)
        while True:
            try:
                seed = todo.get_nowait()
            except queue.Empty:
                return worker.stop()
            outcomes[seed] = worker.check(seed)

    threads = [threading.Thread(target=work) for _ in range(WORKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {seed: outcomes[seed] for seed in seeds}


def report(outcomes):
    """What failed, by what differs, with the first program in full."""
    failed = {seed: outcome for seed, outcome in outcomes.items() if outcome["status"] != "same"}
    groups = collections.defaultdict(list)
    for seed, outcome in failed.items():
        groups[outcome["status"]].append(seed)
    steps, raised, graphs = (sum(o[what] for o in outcomes.values()) for what in ("steps", "raised", "graphs"))
    lines = [f"{len(outcomes)} programs from seed {min(outcomes)}, {steps} calls, of which {raised} raise; "
             f"{graphs} graphs; {len(failed)} programs differ from plain Python"]
    for status, seeds in sorted(groups.items(), key=lambda item: -len(item[1])):
        lines.append(f"{len(seeds):>5} {status}: seeds {', '.join(map(str, seeds[:12]))}" + ", ..." * (len(seeds) > 12))
        lines.append(failed[seeds[0]]["detail"])
    if failed:
        seed = min(failed, key=lambda s: len(generate(s)))
        lines += [f"the shortest of them, seed {seed}:", generate(seed).removeprefix(PRELUDE).lstrip(),
                  f"alone: ./dev python tests/compile/random_program_check.py --seed {seed} [--shrink]"]
    return "\n".join(lines)


def same_as_plain_python(seeds, *arguments):
    outcomes = check_seeds(seeds, *arguments)
    text = report(outcomes)
    print(text)
    if any(outcome["status"] != "same" for outcome in outcomes.values()):
        pytest.fail(text, pytrace=False)
    return outcomes


def test_programs_come_from_their_seed_alone():
    assert generate(7) == generate(7)
    assert generate(7) != generate(8)


def test_plain_python_is_the_same_as_itself():
    """The comparison itself: no program, run twice without a compiler, may differ."""
    same_as_plain_python(range(FIRST, FIRST + 40), "--compile", "identity")


def test_a_difference_is_found():
    """A compiler that forgets an effect, or that changes a result, is noticed."""
    def forgetful(fn):
        import copy

        return lambda *args, **kwargs: fn(*copy.deepcopy(args), **copy.deepcopy(kwargs))

    def wrong(fn):
        def call(*args, **kwargs):
            result = fn(*args, **kwargs)
            return (result, 1)
        return call

    for compile_function in (forgetful, wrong):
        found = [random_program_check.check(generate(seed), compile_function).status for seed in range(12)]
        assert sum(status != "same" for status in found) >= 6, found


def test_random_programs():
    outcomes = same_as_plain_python(range(FIRST, FIRST + int(os.environ.get("SMELT_RANDOM_COUNT", "150"))))
    assert sum(outcome["graphs"] for outcome in outcomes.values()) > len(outcomes)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["eager", "native"])
def test_many_random_programs(backend):
    first = FIRST + (1000 if backend == "eager" else 1_000_000)
    count = int(os.environ.get("SMELT_RANDOM_COUNT", "2000" if backend == "eager" else "500"))
    same_as_plain_python(range(first, first + count), "--backend", backend)
