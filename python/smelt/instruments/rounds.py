"""Calls timed against each other on a machine that does other things as well.

The contestants take turns, so that whatever slows the machine down meets all of them; who goes first changes from round
to round. A sample is one call, or the mean of a loop of calls where one is too short for the clock. Work that a call starts on a
GPU is waited for in each call, so a sample is how long one takes alone; back_to_back() measures what a GPU does when it is not.
"""
import gc
import math
import time

import torch

SHORTEST = 100e-6  # seconds that a sample takes at least
LEAST, MOST = 10, 2000  # rounds
WARM_UP = 3  # calls of each contestant, after its first

clock = time.perf_counter


def wait_for(devices):
    for device in devices:
        if device == 'cuda':
            torch.cuda.synchronize()


def devices_in_use():
    """Those that a call may have left work on."""
    return ['cuda'] if torch.cuda.is_available() and torch.cuda.is_initialized() else []


def once(call, devices=()):
    """Seconds of one call, the work that it started on devices included."""
    start = clock()
    call()
    wait_for(devices)
    return clock() - start


def in_turn(calls, seconds, devices=(), rounds=None, told=lambda done, text=None: None):
    """{name: [seconds per call, round by round]} of {name: call}, measured for about so many seconds."""
    loops, spent = {}, 0.0
    for name, call in calls.items():
        took = min(once(call, devices) for _ in range(WARM_UP))
        loops[name] = max(1, math.ceil(SHORTEST / max(took, 1e-9)))
        spent += took * loops[name]
    count = rounds or int(min(max(seconds / max(spent, 1e-9), LEAST), MOST))
    samples = {name: [] for name in calls}
    names = list(calls)
    was_collecting = gc.isenabled()
    gc.collect()
    gc.disable()  # or a collection falls into one call and not the other
    try:
        for number in range(count):
            first = number % len(names)
            for name in names[first:] + names[:first]:
                samples[name].append(_sample(calls[name], loops[name], devices))
            told((number + 1) / count)
    finally:
        if was_collecting:
            gc.enable()
    return samples


def _sample(call, loop, devices):
    if loop == 1:
        return once(call, devices)

    start = clock()
    for _ in range(loop):
        call()
        wait_for(devices)
    return (clock() - start) / loop


BACK_TO_BACK = 5, 20  # loops, and calls in each


def back_to_back(calls, devices):
    """{name: seconds per call} of calls that are not waited for one by one: the host starts the next while a GPU computes."""
    loops, length = BACK_TO_BACK
    took = {name: [] for name in calls}
    for _ in range(loops):
        for name, call in calls.items():
            wait_for(devices)
            start = clock()
            for _ in range(length):
                call()
            wait_for(devices)
            took[name].append((clock() - start) / length)
    return {name: median(values) for name, values in took.items()}


# -- what is said of samples


def quantile(values, part):
    """Of the values, with what lies between two of them in proportion."""
    values = sorted(values)
    place = part * (len(values) - 1)
    low = math.floor(place)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (place - low)


def median(values):
    return quantile(values, 0.5)


def interval(values):
    """Where the median lies with 95 % confidence: the order statistics around it, whatever the distribution."""
    values = sorted(values)
    reach = 0.98 * math.sqrt(len(values))
    low, high = math.floor(len(values) / 2 - reach), math.ceil(len(values) / 2 + reach)
    return values[max(low, 0)], values[min(high, len(values) - 1)]


def describe(values):
    low, high = interval(values)
    return {'mean': sum(values) / len(values), 'median': median(values), 'p95': quantile(values, 0.95),
            'p99': quantile(values, 0.99), 'least': min(values), 'low': low, 'high': high, 'rounds': len(values)}


def ratio(ones, others):
    """How many times longer the ones take: (median over the rounds, low, high)."""
    ratios = [a / b for a, b in zip(ones, others)]
    return (median(ratios), *interval(ratios))
