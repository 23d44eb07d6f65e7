"""A recorded graph against the eager function it was recorded from: time, peak memory, and difference."""
from dataclasses import dataclass

import torch

from .memory import peak_bytes
from .timing import Timing, alternate


@dataclass
class Comparison:
    timing: Timing          # eager first, replay second
    eager_bytes: int        # peak tensor memory
    replay_bytes: int
    difference: float       # the largest between any two elements; 0.0 means equal bit for bit
    eager_difference: float  # likewise between eager and eager: not 0 where kernels add up in no fixed order

    @property
    def memory_ratio(self):
        return self.replay_bytes / self.eager_bytes if self.eager_bytes else 1.0


def compare(workload, function, graph, seconds, device='cpu'):
    """Sets graph.run against `function`, a method of the workload, for about that many seconds."""

    def eager():
        return function(*workload.inputs)

    def replay():
        return graph.run(*workload.inputs)

    return Comparison(timing=alternate(eager, replay, seconds, device),
                      eager_bytes=_peak(workload, eager, device), replay_bytes=_peak(workload, replay, device),
                      difference=_difference(workload, eager, replay),
                      eager_difference=_difference(workload, eager, eager))


def _peak(workload, call, device):
    """The peak of a call in a row of calls: gradients are there when it starts, and the count has seen them come."""
    workload.module.zero_grad()
    return peak_bytes(call, prepare=call, device=device)


def _difference(workload, one, other):
    """From the same state and the same seed, what do the two return and leave behind?"""
    start = workload.state()
    seen = []
    for call in (one, other):
        workload.restore_buffers(start)
        torch.manual_seed(1)
        seen.append([call(), *workload.state().values()])
    return max((_largest_difference(a, b) for a, b in zip(*seen, strict=True)), default=0.0)


def _largest_difference(a, b):
    if a.shape != b.shape or a.dtype != b.dtype:
        return float('inf')
    if torch.equal(a.flatten().view(torch.uint8), b.flatten().view(torch.uint8)):
        return 0.0
    return (a.double() - b.double()).abs().nan_to_num(nan=float('inf')).max().item()
