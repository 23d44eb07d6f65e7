"""Worker processes that check cases, and the report of what came out. A process that dies is its case's failure."""

import collections
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TIMEOUT = int(os.environ.get("SMELT_OPINFO_TIMEOUT", "300"))  # seconds for one case
WORKERS = max(2, min(8, os.cpu_count() or 2))
ENVIRONMENT = {
    # Every result of every op is compared with the type it was recorded with.
    "SMELT_CHECK_TYPES": "1",
    # oneDNN would use AMX where the processor has it, also where the machine it runs on does not let it.
    "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16",
}


def serve():
    """A worker: a line "name dtype" in, a line of JSON out. With no name, the names of all cases."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what ops print is not an answer
    import opinfo_cases
    import opinfo_check
    import torch

    torch.set_num_threads(1)
    table = opinfo_cases.all_cases()
    for line in sys.stdin:
        if not line.strip():
            answer = list(table)
        else:
            outcome = opinfo_check.Case(*table[tuple(line.split())]).run()
            answer = {"status": outcome.status, **vars(outcome)}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


class Worker:
    """A process that answers requests, started again after it died."""

    def __init__(self):
        self.process = None

    def start(self):
        command = [sys.executable, os.path.join(HERE, "run.py"), "--serve"]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **ENVIRONMENT},
        )
        self.errors = collections.deque(maxlen=5)
        self.reader = threading.Thread(target=lambda p=self.process: self.errors.extend(p.stderr), daemon=True)
        self.reader.start()

    def ask(self, line):
        """The answer, or None if the process died."""
        if self.process is None or self.process.poll() is not None:
            self.start()
        watchdog = threading.Timer(TIMEOUT, self.process.kill)
        watchdog.start()
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        watchdog.cancel()
        return json.loads(answer) if answer else None

    def check(self, case):
        return self.ask(" ".join(case)) or self.post_mortem()

    def post_mortem(self):
        code = self.process.wait()
        self.reader.join(timeout=5)
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        what = f"the process died of {how}: " + " | ".join(line.strip() for line in self.errors)
        return {"status": "failed", "recorded": 0, "unsupported": 0, "refused": [], "failed": [what]}

    def stop(self):
        if self.process is not None:
            self.process.stdin.close()
            self.process.wait()


def all_cases():
    """(op, dtype) of every case; this process does not load them."""
    worker = Worker()
    try:
        return [tuple(case) for case in worker.ask("")]
    finally:
        worker.stop()


def run_cases(cases, workers=WORKERS):
    """{case: outcome}, in the order of the cases."""
    todo = queue.SimpleQueue()
    for case in cases:
        todo.put(case)
    outcomes = {}

    def work():
        worker = Worker()
        while True:
            try:
                case = todo.get_nowait()
            except queue.Empty:
                return worker.stop()
            started = time.monotonic()
            outcomes[case] = worker.check(case)
            outcomes[case]["seconds"] = round(time.monotonic() - started, 2)

    threads = [threading.Thread(target=work) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {case: outcomes[case] for case in cases}


def rate(outcomes):
    """The share of the cases eager supports that is recorded."""
    status = collections.Counter(outcome["status"] for outcome in outcomes.values())
    return status["recorded"] / max(1, status["recorded"] + status["refused"])


def report(outcomes):
    """The counts, the reasons of refusals and the failures, as text."""
    lines = ["op x dtype      recorded  refused  unsupported  failed"]
    by_dtype = collections.defaultdict(collections.Counter)
    for (_, dtype), outcome in outcomes.items():
        for row in (dtype, "all"):
            by_dtype[row][outcome["status"]] += 1
    for dtype, count in sorted(by_dtype.items(), key=lambda item: (item[0] == "all", item[0])):
        columns = (count["recorded"], count["refused"], count["unsupported"], count["failed"])
        lines.append(f"{dtype:<15} {columns[0]:>8} {columns[1]:>8} {columns[2]:>12} {columns[3]:>7}")
    checks = sum(outcome["recorded"] for outcome in outcomes.values())
    lines.append(f"{checks} comparisons equal; {rate(outcomes):.1%} of the cases recorded, forward and gradient")
    reasons = collections.defaultdict(set)
    for case, outcome in outcomes.items():
        for refusal in outcome["refused"]:
            way, reason = refusal.split(": ", 1)
            counted = "  " if way in ("forward", "gradient") else " *"
            reasons[counted, reason].add(" ".join(case))
    lines.append("\nrefused, by reason (*: only in-place, out=, noncontiguous or a second derivative; not counted above):")
    for (counted, reason), where in sorted(reasons.items(), key=lambda item: -len(item[1])):
        some = ", ".join(sorted(where)[:5]) + (", ..." if len(where) > 5 else "")
        lines.append(f"{len(where):>5}{counted} {reason}  [{some}]")
    failed = [f"  {' '.join(case)}: {what}" for case, outcome in outcomes.items() for what in outcome["failed"][:3]]
    return "\n".join(lines + (["\nfailed:"] + failed if failed else []))
