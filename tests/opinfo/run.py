"""The OpInfo cases from the command line.

./dev python tests/opinfo/run.py --op NAME [--dtype float32]   one op in this process, with graphs and tracebacks
./dev python tests/opinfo/run.py [--match TEXT] [--json FILE]  as the test does
"""

import argparse
import json
import os
import time

import opinfo_pool

os.environ.update(opinfo_pool.ENVIRONMENT)


def check_here(op_name, dtype_name):
    import opinfo_cases
    import opinfo_check

    for case, (op, dtype) in opinfo_cases.all_cases().items():
        if case[0] == op_name and dtype_name in (None, case[1]):
            print("=====", *case)
            outcome = opinfo_check.Case(op, dtype, verbose=True).run()
            print(outcome.status, outcome, sep="\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--op", help="one op, in this process")
    parser.add_argument("--dtype")
    parser.add_argument("--match", default="", help="ops whose name contains this")
    parser.add_argument("--workers", type=int, default=opinfo_pool.WORKERS)
    parser.add_argument("--json", help="write the outcomes there")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        return opinfo_pool.serve()
    if options.op:
        return check_here(options.op, options.dtype)
    started = time.monotonic()
    cases = [c for c in opinfo_pool.all_cases() if options.match in c[0] and options.dtype in (None, c[1])]
    outcomes = opinfo_pool.run_cases(cases, options.workers)
    print(opinfo_pool.report(outcomes))
    print(f"\n{len(cases)} cases in {time.monotonic() - started:.0f} s")
    if options.json:
        with open(options.json, "w") as file:
            json.dump([[*case, outcome] for case, outcome in outcomes.items()], file, indent=1)


if __name__ == "__main__":
    main()
