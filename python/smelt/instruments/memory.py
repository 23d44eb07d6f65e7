"""The peak of tensor memory in a call, to the byte.

On CUDA the caching allocator keeps the count. On the CPU PyTorch's allocator reports every block to the profiler, and
the count is made from those reports. Both count what the call allocates, not what was there before (parameters,
inputs). Scratch memory that a library takes from the system by itself is not seen.
"""
import contextlib
import os
import sys

import torch


def peak_bytes(call, devices):
    """{device: bytes}."""
    found = {'cpu': _peak_cpu(call)}
    if 'cuda' in devices:
        found['cuda'] = _peak_cuda(call)
    return found


def _peak_cuda(call):
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    call()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def _peak_cpu(call):
    live = peak = 0
    for _, size, device in over_time(call):
        if device == 'cpu':
            live += size
            peak = max(peak, live)
    return peak


def over_time(call):
    """[(nanoseconds, bytes, 'cpu' or 'cuda')] of each block of memory that the call takes, or gives back as a negative size."""
    os.environ.setdefault('KINETO_LOG_LEVEL', '99')  # the profiler tells stderr of its every start and stop
    from torch.profiler import ProfilerActivity, profile, record_function
    marker = 'smelt: the measured call'
    with without_stderr(), profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as profiled:
        with record_function(marker):
            call()
    events = profiled.profiler.kineto_results.events()
    start = next(event.start_ns() for event in events if event.name() == marker)
    devices = {torch.autograd.DeviceType.CPU: 'cpu', torch.autograd.DeviceType.CUDA: 'cuda'}
    reports = [event for event in events if event.name() == '[memory]' and event.start_ns() >= start
               and event.device_type() in devices]
    return [(event.start_ns() - start, event.nbytes(), devices[event.device_type()])
            for event in sorted(reports, key=lambda e: e.start_ns())]


@contextlib.contextmanager
def without_stderr():
    """The profiler says there that it does not know blocks from before it started."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
