"""Two calls timed against each other on a machine that does other things as well.

The calls take turns, so that whatever slows the machine down meets both; which one goes first changes from pair to
pair. Each pair gives a ratio, and the median of the ratios is what counts.
"""
import gc
import math
import time
from dataclasses import dataclass

import torch


def median(values):
    values = sorted(values)
    middle = len(values) // 2
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2


@dataclass
class Timing:
    """Seconds of two calls, pair by pair."""
    first: list
    second: list

    @property
    def ratio(self):
        """How many times longer the first takes."""
        return median(self._ratios())

    @property
    def interval(self):
        """Where the ratio lies with 95 % confidence: the order statistics around the median, whatever the
        distribution."""
        ratios = sorted(self._ratios())
        reach = 0.98 * math.sqrt(len(ratios))
        low, high = math.floor(len(ratios) / 2 - reach), math.ceil(len(ratios) / 2 + reach)
        return ratios[max(low, 0)], ratios[min(high, len(ratios) - 1)]

    def _ratios(self):
        return [a / b for a, b in zip(self.first, self.second)]


def once(call, device='cpu'):
    """Seconds of one call, the work it started on the device included, and what it returned."""
    start = time.perf_counter()
    result = call()
    if torch.device(device).type == 'cuda':
        torch.cuda.synchronize()
    return time.perf_counter() - start, result


def timed(call, device='cpu'):
    return once(call, device)[0]


def alternate(first, second, seconds, device='cpu', least=6, most=400):
    """Calls both in turn for about that many seconds, after two calls each that are not counted."""
    for call in (first, second):
        timed(call, device)
    one_pair = timed(first, device) + timed(second, device)
    pairs = int(min(max(seconds / one_pair, least), most))
    timing = Timing([], [])
    gc.collect()
    gc.disable()  # or a collection falls into one call and not the other
    try:
        for i in range(pairs):
            if i % 2:
                timing.second.append(timed(second, device))
                timing.first.append(timed(first, device))
            else:
                timing.first.append(timed(first, device))
                timing.second.append(timed(second, device))
    finally:
        gc.enable()
    return timing
