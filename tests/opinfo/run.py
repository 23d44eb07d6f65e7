"""Runs the cases in worker processes and reports. Also a command line for single ops:

./dev python tests/opinfo/run.py --op NAME [--dtype float32]   in this process, with graphs and tracebacks
./dev python tests/opinfo/run.py [--match TEXT] [--json FILE]  as the test does
"""

import argparse
import collections
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time

# oneDNN would use AMX where the processor has it, also where the machine it runs on does not let it.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
# Every result of every op is compared with the type it was recorded with.
os.environ.setdefault("SMELT_CHECK_TYPES", "1")

HERE = os.path.dirname(os.path.abspath(__file__))
TIMEOUT = 300  # seconds for one case
WORKERS = max(2, min(8, os.cpu_count() or 2))


def serve():
    """A worker: a line "name dtype" in, a line of JSON out."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what ops print is not an answer
    import torch
    import cases
    import check

    torch.set_num_threads(1)
    table = cases.all_cases()
    for line in sys.stdin:
        outcome = check.Case(*table[tuple(line.split())]).run()
        answers.write(json.dumps({"status": outcome.status, **vars(outcome)}) + "\n")
        answers.flush()


class Worker:
    """A process that checks cases, started again when it dies."""

    def __init__(self):
        self.process = None

    def check(self, case):
        if self.process is None or self.process.poll() is not None:
            command = [sys.executable, os.path.abspath(__file__), "--serve"]
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            self.errors = collections.deque(maxlen=5)
            self.reader = threading.Thread(target=lambda p=self.process: self.errors.extend(p.stderr), daemon=True)
            self.reader.start()
        watchdog = threading.Timer(TIMEOUT, self.process.kill)
        watchdog.start()
        try:
            self.process.stdin.write(" ".join(case) + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        finally:
            watchdog.cancel()
        return json.loads(answer) if answer else self.post_mortem()

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


def run_cases(names, workers=WORKERS, progress=None):
    """{case: outcome} for the (op, dtype) names."""
    todo = queue.SimpleQueue()
    for case in names:
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
            if progress:
                progress(case, outcomes[case])

    threads = [threading.Thread(target=work) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {case: outcomes[case] for case in names}


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
    lines.append(f"{checks} comparisons equal bit for bit; {rate(outcomes):.1%} of the cases recorded")
    reasons = collections.defaultdict(set)
    for case, outcome in outcomes.items():
        for reason in outcome["refused"]:
            reasons[reason.split(": ", 1)[1]].add(" ".join(case))
    lines.append("\nrefused, by reason:")
    for reason, where in sorted(reasons.items(), key=lambda item: -len(item[1])):
        lines.append(f"  {len(where):>4}  {reason}  [{', '.join(sorted(where)[:6])}{', ...' if len(where) > 6 else ''}]")
    lines.append("\nfailed:")
    for case, outcome in outcomes.items():
        lines += [f"  {' '.join(case)}: {failure}" for failure in outcome["failed"][:2]]
    return "\n".join(lines)


def check_here(op_name, dtype_name):
    """A single op in this process, with everything shown."""
    import cases
    import check

    for case, (op, dtype) in cases.all_cases().items():
        if case[0] == op_name and dtype_name in (None, case[1]):
            print("=====", *case)
            outcome = check.Case(op, dtype, verbose=True).run()
            print(outcome.status, outcome, sep="\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--op", help="one op, in this process")
    parser.add_argument("--dtype")
    parser.add_argument("--match", default="", help="ops whose name contains this")
    parser.add_argument("--workers", type=int, default=WORKERS)
    parser.add_argument("--json", help="write the outcomes there")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        return serve()
    if options.op:
        return check_here(options.op, options.dtype)
    import cases

    names = [c for c in cases.all_cases() if options.match in c[0] and options.dtype in (None, c[1])]
    started = time.monotonic()
    outcomes = run_cases(names, options.workers)
    print(report(outcomes))
    print(f"\n{len(names)} cases in {time.monotonic() - started:.0f} s")
    if options.json:
        with open(options.json, "w") as file:
            json.dump([[*case, outcome] for case, outcome in outcomes.items()], file, indent=1)


if __name__ == "__main__":
    main()
