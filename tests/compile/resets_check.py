"""Compiled functions that are reset while they run, in every way that code can run in the middle of one. Prints
the case before it runs it, so that the last line of a crash tells which one it was; run by
test_reset_while_running.py with freed memory overwritten (MALLOC_PERTURB_)."""

import functools
import gc
import itertools
import os
import sys
import threading
import warnings

import torch

import smelt

library = torch.library.Library("resets_check", "FRAGMENT")
library.define("poke(Tensor x) -> Tensor")
called = []  # what runs in the middle of a call
library.impl("poke", lambda x: (run_called(), x + 0)[1], "CPU")
poke = torch.ops.resets_check.poke
rubbish = []


def run_called():
    for function in called:
        function()


def fill_freed_memory():
    rubbish.extend(os.urandom(n) for n in range(1, 400))
    del rubbish[:]


# -- who resets


def reset():
    smelt.reset()
    fill_freed_memory()


def reset_and_collect():
    smelt.reset()
    gc.collect()
    fill_freed_memory()


def reset_on_a_thread():
    thread = threading.Thread(target=reset)
    thread.start()
    thread.join()


def reset_by_a_destructor():
    class Dropped:
        def __del__(self):
            reset()

    Dropped()


def reset_twice_around_a_call():
    reset()
    del called[:]
    compiled_now[0](*arguments_now[0])
    reset()


RESETS = [reset, reset_and_collect, reset_on_a_thread, reset_by_a_destructor, reset_twice_around_a_call]
compiled_now, arguments_now = [None], [None]


# -- where code runs in the middle of a call


def in_an_op(x):
    y = poke(x * 2)
    return y * 3 if y.sum().item() > 0 else y * 5


def in_an_op_of_many(x):
    y = poke(x * 2)
    for i in range(8):
        y = y * 2 - i
    return y


def behind_a_break(x):
    y = x * 2
    print(end="", file=sys.stdout)
    return poke(y) + 1


def inner(x):
    y = x + 1
    print(end="", file=sys.stdout)
    return poke(y)


def in_a_callee(x):
    return inner(x) * 2


def in_a_loop(x):
    for i in range(4):
        x = poke(x) + i
        print(end="", file=sys.stdout)
    return x


class Held:
    def __del__(self):
        run_called()


def in_a_destructor(x):
    held = Held()
    y = x * 2
    held = None  # noqa: F841
    return y + 1


class Stored:
    def __setattr__(self, name, value):
        run_called()
        object.__setattr__(self, name, value)


stored = Stored()


def in_a_setter(x):
    stored.value = x * 2
    return stored.value + 1


@functools.lru_cache
def remembered(n):
    run_called()
    return n + 1


def in_a_cached_function(x):
    return x * remembered(x.shape[0])


def in_a_hook_of_saved_tensors(x):
    return (x.exp() * x).sum()


class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        run_called()
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        run_called()
        return gradient * 2


def in_a_custom_function(x):
    return Function.apply(x) + 1


def in_a_backward_pass(x):
    y = (x * 2).sin()
    y.register_hook(lambda gradient: run_called())
    y.sum().backward()
    return x.grad


def in_a_warning(x):
    warnings.warn("here")
    return x * 2


def as_recursion(x, depth=3):
    y = poke(x) + 1
    return y if depth == 0 else compiled_now[0](y, depth - 1)


PLACES = [
    in_an_op,
    in_an_op_of_many,
    behind_a_break,
    in_a_callee,
    in_a_loop,
    in_a_destructor,
    in_a_setter,
    in_a_cached_function,
    in_a_hook_of_saved_tensors,
    in_a_custom_function,
    in_a_backward_pass,
    in_a_warning,
    as_recursion,
]


def inputs_of(place, turn):
    size = 3 + turn % 3
    x = torch.full((size,), 1.0 if turn % 2 else -1.0)
    if place in (in_a_hook_of_saved_tensors, in_a_custom_function, in_a_backward_pass):
        x.requires_grad_()
    return (x,)


def run(function, place, arguments):
    if place is not in_a_hook_of_saved_tensors:
        return function(*arguments)

    def pack(tensor):
        run_called()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        return function(*arguments)


def check(place, act):
    smelt.reset()
    compiled = smelt.compile(place, options={"recompile_limit": 2})
    for turn in range(9):
        del called[:]
        remembered.cache_clear()
        expected = run(place, place, inputs_of(place, turn)) if place is not as_recursion else inputs_of(place, turn)[0] + 4
        arguments = inputs_of(place, turn)
        compiled_now[0], arguments_now[0] = compiled, inputs_of(place, turn)
        if turn % 3 == 2:
            called.append(act)
        remembered.cache_clear()
        found = run(compiled, place, arguments)
        assert torch.equal(found, expected), (place.__name__, act.__name__, turn, found, expected)
        compiled._segments()
        smelt.stats()


def main():
    warnings.simplefilter("ignore")
    for place, act in itertools.product(PLACES, RESETS):
        if place in (in_a_loop, in_a_backward_pass, in_a_destructor) and act is reset_twice_around_a_call:
            continue  # these call themselves without an end
        print(place.__name__, act.__name__, flush=True)
        check(place, act)
    print("done")


if __name__ == "__main__":
    main()
