"""Energy that a call takes: from the GPU's own counter (NVML) and the processor's (RAPL), where they can be read."""
import ctypes
import glob
import os
import time

import torch

SECONDS = 1.0  # the counters move some ten times a second: a loop of calls is long enough for a percent or so


class Rapl:
    """The packages of an Intel or AMD processor, by the kernel's powercap files."""

    name = 'cpu'

    def __init__(self, root='/sys/class/powercap'):
        self.zones = [zone for zone in glob.glob(f'{root}/intel-rapl:*') if zone.count(':') == 1]
        self.problem = '' if self.zones else 'the kernel shows no energy counter of the processor'
        try:
            self._read()
        except PermissionError:
            self.problem = f'{root}/intel-rapl:*/energy_uj is readable by root alone'
        except (OSError, ValueError) as error:
            self.problem = str(error)
        self.problem = self.problem or ('' if self.zones else 'no RAPL')

    def _read(self):
        return [int(open(f'{zone}/energy_uj').read()) for zone in self.zones]

    def start(self):
        self._before = self._read()

    def joules(self):
        total = 0
        for zone, before, after in zip(self.zones, self._before, self._read()):
            if after < before:  # it started from zero again
                after += int(open(f'{zone}/max_energy_range_uj').read())
            total += after - before
        return total * 1e-6


class Nvml:
    """The GPU that PyTorch uses, by NVIDIA's management library."""

    name = 'cuda'

    def __init__(self, library='libnvidia-ml.so.1'):
        self.problem, self._device = '', ctypes.c_void_p()
        try:
            self._library = ctypes.CDLL(library)
        except OSError:
            self.problem = f'{library} is not there'
            return
        # PyTorch's numbers of GPUs are not NVML's where CUDA_VISIBLE_DEVICES chooses some of them.
        number = torch.cuda.current_device()
        name = f'GPU-{getattr(torch.cuda.get_device_properties(number), "uuid", "")}'
        if self._library.nvmlInit_v2():
            self.problem = 'NVML does not start'
        elif self._library.nvmlDeviceGetHandleByUUID(name.encode(), ctypes.byref(self._device)) and (
                'CUDA_VISIBLE_DEVICES' in os.environ or
                self._library.nvmlDeviceGetHandleByIndex_v2(number, ctypes.byref(self._device))):
            self.problem = f'NVML finds no {name}'
        if self.problem:
            return
        try:
            self._read()
        except OSError as error:
            self.problem = str(error)

    def _read(self):
        millijoules = ctypes.c_ulonglong()
        status = self._library.nvmlDeviceGetTotalEnergyConsumption(self._device, ctypes.byref(millijoules))
        if status:
            raise OSError(f'this GPU counts no energy (NVML says {status})')
        return millijoules.value

    def start(self):
        self._before = self._read()

    def joules(self):
        return (self._read() - self._before) * 1e-3


def meters(devices):
    """([usable meters], {device: why there is none})."""
    all_meters = [Rapl(), *([Nvml()] if 'cuda' in devices else [])]
    return [m for m in all_meters if not m.problem], {m.name: m.problem for m in all_meters if m.problem}


def per_call(call, usable, wait):
    """{device: joules of one call}, from a loop of calls. The work that it starts on devices is waited for every now and then,
    so that the loop is as long as its work."""
    wait()
    for meter in usable:
        meter.start()
    count, start = 0, time.perf_counter()
    while time.perf_counter() - start < SECONDS:
        for _ in range(8):
            call()
        count += 8
        wait()
    return {meter.name: meter.joules() / count for meter in usable}
