"""What a measurement was made on: hardware and versions."""
import os
import platform
import re
import sys

import torch


def cpu_name():
    try:
        for line in open('/proc/cpuinfo'):
            if line.startswith('model name'):
                return line.split(':', 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def hardware():
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    return {'cpu': cpu_name(), 'cores': os.cpu_count(), 'threads': torch.get_num_threads(), 'gpus': gpus,
            'capability': torch.backends.cpu.get_cpu_capability()}


def _driver():
    """The version of NVIDIA's driver; '' without one."""
    try:
        with open('/proc/driver/nvidia/version') as file:
            found = re.search(r'(\d+\.\d+(?:\.\d+)?)', file.readline())
            return found[1] if found else ''
    except OSError:
        return ''


def versions():
    import smelt
    from smelt import _native
    return {'smelt': smelt.__version__, 'torch': torch.__version__, 'python': platform.python_version(),
            'cuda': torch.version.cuda or '', 'driver': _driver(), 'system': platform.platform(), 'target': _native.cpu_target(),
            'executable': os.path.basename(sys.executable)}
