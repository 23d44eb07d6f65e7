"""The peak of tensor memory in a call, to the byte.

On CUDA the caching allocator keeps the count. On the CPU PyTorch's allocator reports every block to the profiler, and
the count is made from those reports. Both count what the call allocates and what an earlier call left behind
(gradients, for one), and not the parameters and inputs, which were there before: those would only make two
measurements look more alike. Scratch memory that a library takes from the system by itself is not seen.
"""
import os

import torch
from torch.profiler import ProfilerActivity, profile, record_function


os.environ.setdefault('KINETO_LOG_LEVEL', '99')  # the profiler tells stderr of its every start and stop


def peak_bytes(call, prepare, device):
    """The peak in `call()`, with what `prepare()`, run just before, has left alive."""
    return (_peak_cuda if torch.device(device).type == 'cuda' else _peak_cpu)(call, prepare)


def _peak_cuda(call, prepare):
    before = torch.cuda.memory_allocated()
    prepare()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    call()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def _peak_cpu(call, prepare):
    marker = 'the call'
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as profiled:
        prepare()
        with record_function(marker):
            call()
    events = profiled.profiler.kineto_results.events()
    start = next(event.start_ns() for event in events if event.name() == marker)
    reports = [event for event in events if event.name() == '[memory]']
    live = sum(event.nbytes() for event in reports if event.start_ns() < start)
    peak = live
    for event in sorted((e for e in reports if e.start_ns() >= start), key=lambda e: e.start_ns()):
        live += event.nbytes()
        peak = max(peak, live)
    return peak
