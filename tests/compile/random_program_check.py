"""Runs a random program by plain Python and compiled, each in a module of its own, and compares all that can be seen.

    ./dev python tests/compile/random_program_check.py --seed 17            the program, and where it differs
    ./dev python tests/compile/random_program_check.py --seed 17 --shrink   a smaller program that differs as well
    ./dev python tests/compile/random_program_check.py --file x.py          a program from a file
    ./dev python tests/compile/random_program_check.py --seeds 0 500        many; test_random_programs.py uses all cores
    --compile identity|smelt|torch, --backend eager|native|...

After every step both runs are described as text: the result or the exception (type, message, the program's lines in the
traceback), what was printed, and everything that can be reached from result, arguments, world and globals, with
numbers for identity that hold over the steps, and for tensors the bits, strides, memory shared, and gradients.
"""

import argparse
import ast
import contextlib
import difflib
import faulthandler
import io
import json
import linecache
import math
import os
import random
import re
import signal
import sys
import time
import traceback
import types

import torch

from description import Description
from random_programs import PRELUDE, generate

SECONDS = int(os.environ.get("SMELT_RANDOM_TIMEOUT", "300"))  # for one program, on a machine that does other things as well


def compile_functions(backend="eager"):
    """What compiles, by name."""

    def smelt_compile(fn):
        import smelt

        return smelt.compile(fn, backend=backend)

    smelt_compile.rounds = backend != "eager"  # kernels add up in another order
    return {
        "identity": lambda fn: fn,
        "smelt": smelt_compile,
        "torch": lambda fn: torch.compile(fn, backend=backend),
    }


# --- running ----------------------------------------------------------------------------------------------------------


def trace_lines(error, filename):
    """The program's lines in the traceback.

    For a variable without a value, CPython 3.11 tells the line of the instruction before as soon as it has quickened the
    two into one (STORE_FAST__LOAD_FAST): then the innermost line says nothing.
    """
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == filename]
    lines = [f"{f.name}:{f.lineno}" for f in frames]
    if isinstance(error, UnboundLocalError) and sys.version_info[:2] == (3, 11) and frames:
        lines[-1] = frames[-1].name
    return lines


def run(source, compile_function, filename):
    """[text of a step], of the program whose target went through compile_function."""
    module = types.ModuleType("random_program")
    sys.modules["random_program"] = module  # dataclasses look there
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    torch.default_generator.manual_seed(0)
    exec(compile(source, filename, "exec"), module.__dict__)
    own = {k for k in vars(module) if not k.startswith("__")}
    world = module.world()
    function = compile_function(module.target(world))
    description, texts = Description(), []
    for i, step in enumerate(module.STEPS):
        torch.default_generator.manual_seed(i)
        random.seed(i)
        printed, result, error, lines = io.StringIO(), None, None, []
        with contextlib.redirect_stdout(printed):
            try:
                result = step(function, world)
            except Exception as e:
                error, lines = e, trace_lines(e, filename)
        state = {k: v for k, v in vars(module).items()
                 if k in own and k != "STEPS" and not k.startswith("step")
                 and not isinstance(v, (type, types.ModuleType))}
        text = [f"step {i}", *(f"printed: {line}" for line in printed.getvalue().splitlines()),
                f"traceback: {lines}", f"random: {torch.get_rng_state().sum()} {hash(random.getstate())}",
                f"modes: {torch.is_grad_enabled()} "
                f"{torch.is_inference_mode_enabled()} {torch.is_autocast_enabled('cpu')}"]
        classes = {f"{cls.__name__}.{k}": v for cls in (module.Box, module.SubBox) if isinstance(cls, type)
                   for k, v in vars(cls).items() if isinstance(v, (int, float, list))} if "Box" in own else {}
        text += description.step({"error": error, "result": result, "w": world, **classes, **state})
        texts.append("\n".join(text))
        del result, error
    return texts


class Outcome:
    """How a program did: 'same', or what differs first, and the text that shows it."""

    def __init__(self, status, detail="", raised=0, steps=0):
        self.status, self.detail, self.raised, self.steps = status, detail, raised, steps


NUMBER = re.compile(r"-?\d+\.\d+(?:e[+-]?\d+)?")


def is_near(actual, expected):
    """The same text but for the last digits of floating numbers."""
    if NUMBER.sub("", actual) != NUMBER.sub("", expected):
        return False
    pairs = zip(map(float, NUMBER.findall(actual)), map(float, NUMBER.findall(expected)), strict=True)
    return all(math.isclose(a, e, rel_tol=1e-4, abs_tol=1e-5) for a, e in pairs)


def check(source, compile_function, filename="<random program>"):
    expected = run(source, lambda fn: fn, filename)
    raised = sum("\nerror: None" not in text for text in expected)
    try:
        actual = run(source, compile_function, filename)
    except Exception:
        return Outcome("the harness failed", traceback.format_exc(), raised, len(expected))
    for i, (a, e) in enumerate(zip(actual, expected, strict=True)):
        if a != e and not (getattr(compile_function, "rounds", False) and is_near(a, e)):
            diff = list(difflib.unified_diff(e.splitlines(), a.splitlines(), "plain", "compiled", n=2, lineterm=""))
            changed = next(line for line in diff[2:] if line[0] in "+-")
            what = changed[1:].strip().split(":")[0].split("[")[0]
            return Outcome(f"{what} differs", f"step {i}\n" + "\n".join(diff[:40]), raised, len(expected))
    return Outcome("same", raised=raised, steps=len(expected))


def check_alone(source, compile_function, seconds=SECONDS):
    """check() in a child, so that a crash is an outcome."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        signal.alarm(seconds)
        try:
            outcome = check(source, compile_function)
        except BaseException as error:
            outcome = Outcome("invalid", f"{type(error).__name__}: {error}")
        with os.fdopen(write, "w") as pipe:
            json.dump(vars(outcome), pipe)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    if not text:
        died = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else f"exit {status}"
        return Outcome("timeout" if died == "SIGALRM" else "crash", died)
    return Outcome(**json.loads(text))


# --- shrinking --------------------------------------------------------------------------------------------------------


def bodies(tree):
    for node in ast.walk(tree):
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            if isinstance(getattr(node, field, None), list):
                yield getattr(node, field)


def smaller(tree):
    """Edits that make the tree smaller, as functions that apply one and give back how to undo it."""
    for body in bodies(tree):
        size = len(body)
        while size:
            for start in range(0, len(body), size):
                yield body, slice(start, start + size), []
            size //= 2
        for i, node in enumerate(body):
            for field in ("body", "orelse", "finalbody"):
                inner = getattr(node, field, None)
                if isinstance(inner, list) and not isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.ExceptHandler)):
                    yield body, slice(i, i + 1), inner
    for node in ast.walk(tree):
        for field, value in ast.iter_fields(node):
            if isinstance(value, ast.expr) and not isinstance(value, (ast.Name, ast.Constant)):
                for child in ast.iter_child_nodes(value):
                    if isinstance(child, ast.expr) and isinstance(getattr(child, "ctx", ast.Load()), ast.Load):
                        yield node, field, child
            elif isinstance(value, list) and value and isinstance(value[0], ast.expr):
                for i, item in enumerate(value):
                    for child in ast.iter_child_nodes(item):
                        if isinstance(child, ast.expr) and isinstance(getattr(child, "ctx", ast.Load()), ast.Load):
                            yield value, slice(i, i + 1), [child]


def is_program(source):
    """There is still a target, and it is still what the steps call."""
    target = re.search(r"def target\(w\):\n    return (main|make_main\(.*\)|w\['self'\](\.main)?)\n", source)
    return target is not None and source.count("return f(") == source.count("@STEPS.append") > 0


def shrink(source, fails, seconds=120):
    """A smaller source for which `fails` still holds: statements dropped, blocks and expressions replaced by parts."""
    end = time.monotonic() + seconds
    tried = set()
    again = True
    while again:
        again = False
        tree = ast.parse(source)
        for place, where, what in list(smaller(tree)):
            if time.monotonic() > end:
                return source
            if isinstance(where, str):
                old = getattr(place, where)
                setattr(place, where, what)
            else:
                old = list(place)
                place[where] = what
            try:
                candidate = ast.unparse(ast.fix_missing_locations(tree)) + "\n"
                compile(candidate, "candidate", "exec")
                good = len(candidate) < len(source) and candidate not in tried and is_program(candidate)
            except (SyntaxError, ValueError, AttributeError, TypeError):
                good = False
            if good:
                tried.add(candidate)
                good = fails(candidate)
            if good:
                source, again = candidate, True
            elif isinstance(where, str):
                setattr(place, where, old)
            else:
                place[:] = old
    return source


# --- command line -----------------------------------------------------------------------------------------------------


def reset(name):
    if name == "smelt":
        import smelt

        graphs = smelt.stats().get("graphs", 0)
        smelt.reset()
        return graphs
    if name == "torch":
        torch._dynamo.reset()
    return 0


def serve(name, compile_function):
    """A worker: a seed per line in, a line of JSON out."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        outcome = check(generate(int(line)), compile_function)
        faulthandler.cancel_dump_traceback_later()
        answers.write(json.dumps({**vars(outcome), "graphs": reset(name)}) + "\n")
        answers.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--seeds", type=int, nargs=2, metavar=("FIRST", "LAST"))
    parser.add_argument("--file")
    parser.add_argument("--source", action="store_true", help="print the program, run nothing")
    parser.add_argument("--shrink", action="store_true", help="make a program that fails smaller")
    parser.add_argument("--compile", default="smelt", choices=("identity", "smelt", "torch"))
    parser.add_argument("--backend", default="eager")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    faulthandler.enable()
    torch.set_num_threads(1)
    compile_function = compile_functions(arguments.backend)[arguments.compile]
    if arguments.serve:
        return serve(arguments.compile, compile_function)
    if arguments.seeds:
        failed = 0
        for seed in range(*arguments.seeds):
            outcome = check(generate(seed), compile_function)
            reset(arguments.compile)
            failed += outcome.status != "same"
            text = f"{seed}: {outcome.status}, {outcome.raised} of {outcome.steps} steps raise\n{outcome.detail}"
            print(text.strip(), flush=True)
        return failed > 0
    source = open(arguments.file).read() if arguments.file else generate(arguments.seed)
    shown = source.removeprefix(PRELUDE).lstrip()
    if arguments.source:
        return print(source)
    if arguments.shrink:
        found = check_alone(source, compile_function)
        if found.status == "same":
            return print("it is the same")
        shown = source = shrink(source, lambda s: check_alone(s, compile_function, 10).status == found.status)
    print(shown)
    outcome = check_alone(source, compile_function)
    print(f"{outcome.status}\n{outcome.detail}")
    if outcome.status == "crash":
        sys.stdout.flush()
        check(source, compile_function)  # here, for the stack
    return outcome.status != "same"


if __name__ == "__main__":
    sys.exit(main())
