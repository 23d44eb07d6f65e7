"""smelt doctor: what is here, what is missing, and what to do about it."""
import ctypes
import ctypes.util
import dataclasses
import glob
import importlib.util
import os
import shutil
import site
import sys

import torch

from .. import _built_for, _compile, _native
from . import machine

GOOD, NOTE, BAD = 'ok', 'note', 'missing'


@dataclasses.dataclass
class Finding:
    name: str
    state: str  # GOOD, NOTE: something is slower or left out; BAD: smelt can't do its work
    text: str
    remedy: str = ''


def examine(smoke=True):
    """Findings, one after the other."""
    yield _python()
    yield _torch()
    yield _processor()
    yield _code()
    yield _switched_off()
    yield from _gpu()
    yield from _packages()
    if smoke:
        yield _smoke_test()


def _python():
    if problem := _compile.other_python():
        return Finding('Python', BAD, problem, 'use Python 3.11 or 3.12')
    return Finding('Python', GOOD, f'{sys.version.split()[0]}, built for {_built_for.PYTHON}')


def _torch():
    return Finding('PyTorch', GOOD, f'{torch.__version__}, built for {_built_for.TORCH}; smelt {_native.version}')


def _processor():
    features = {name for line in _lines('/proc/cpuinfo') if line.startswith('flags')
                for name in line.split(':', 1)[1].split()}
    known = [name for name in ('avx2', 'fma', 'avx512f', 'avx512_bf16', 'avx512_fp16', 'amx_bf16') if name in features]
    text = f'{machine.cpu_name()}, {os.cpu_count()} cores, {torch.get_num_threads()} threads; {" ".join(known) or "-"}'
    return Finding('processor', GOOD, text)


def _lines(path):
    try:
        with open(path) as file:
            return file.readlines()
    except OSError:
        return []


def _code():
    target = _native.cpu_target()
    if target == 'none':
        return Finding('LLVM', BAD, "this smelt was built without LLVM: PyTorch's kernels are called, nothing is fused",
                       'install LLVM 19 or newer (Debian: llvm-19-dev libzstd-dev zlib1g-dev) and build smelt again')
    wanted = os.environ.get('SMELT_CPU_TARGET')
    note = f' (SMELT_CPU_TARGET={wanted})' if wanted else ''
    return Finding('LLVM', GOOD, f'machine code for {target}{note}')


def _switched_off():
    found = [f'{name}={os.environ[name]}' for name in ('SMELT_DISABLE', 'SMELT_LOG') if os.environ.get(name)]
    if _compile.is_off():
        return Finding('switches', NOTE, 'SMELT_DISABLE is set: smelt.compile returns what it is given',
                       'unset SMELT_DISABLE')
    return Finding('switches', GOOD, ', '.join(found) or 'none set')


def _gpu():
    if not torch.cuda.is_available():
        if torch.version.cuda is None:
            yield Finding('GPU', NOTE, 'this PyTorch was built without CUDA: the processor is used',
                          'for a GPU install a PyTorch with CUDA (https://pytorch.org/get-started) and smelt for it')
        else:
            yield Finding('GPU', NOTE, f'PyTorch has CUDA {torch.version.cuda} and sees no GPU',
                          'look at nvidia-smi: the driver may be missing or too old, or CUDA_VISIBLE_DEVICES empty')
        return
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        yield Finding(f'GPU {index}', GOOD, f'{properties.name}, sm_{properties.major}{properties.minor}, '
                      f'{properties.total_memory / 2**30:.0f} GiB')
    yield _library('NVRTC', 'nvrtc', f'pip install nvidia-cuda-nvrtc-cu{(torch.version.cuda or "12").split(".")[0]}')
    yield _library('cuBLASLt', 'cublasLt', 'it comes with PyTorch: install PyTorch again')
    if torch.backends.cudnn.is_available():
        yield Finding('cuDNN', GOOD, str(torch.backends.cudnn.version()))
    else:
        yield Finding('cuDNN', NOTE, 'not there: convolutions are slow', 'it comes with PyTorch: install PyTorch again')


def _library(name, library, remedy):
    folders = [*site.getsitepackages(), site.getusersitepackages()]
    found = [path for folder in folders for path in glob.glob(f'{folder}/nvidia/**/lib{library}.so*', recursive=True)]
    found += [path for path in [ctypes.util.find_library(library)] if path]
    for path in found:
        try:
            ctypes.CDLL(path)
            return Finding(name, GOOD, os.path.basename(path))
        except OSError:
            continue
    return Finding(name, NOTE, f'lib{library} is not found', remedy)


def _packages():
    for name, what in (('rich', 'tables and progress of the commands'), ('matplotlib', 'smelt bench --plot')):
        if importlib.util.find_spec(name) is None:
            yield Finding(name, NOTE, f'not installed: {what} go without', f'pip install {name}')
    if shutil.which('c++') is None and shutil.which('g++') is None:
        yield Finding('compiler', NOTE, 'no C++ compiler: only needed to build smelt again')


def _smoke_test():
    """A small model, forward and backward, compiled and as it is."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.LayerNorm(64), torch.nn.Linear(64, 8))
    x = torch.randn(16, 32)
    try:
        before = _native.counters()
        fast = _compile.compile(model)
        results = []
        for call in (model, fast, fast):
            model.zero_grad()
            result = call(x)
            result.square().mean().backward()
            results.append([result.detach(), *(p.grad.clone() for p in model.parameters())])
        after = _native.counters()
        for compiled in results[1:]:
            for one, other in zip(results[0], compiled):
                torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    except Exception as error:
        return Finding('smoke test', BAD, f'{type(error).__name__}: {str(error).splitlines()[0]}',
                       'please report it, with the output of smelt doctor --json')
    kernels = after['kernels'] - before['kernels']
    if after['segments'] == before['segments']:
        return Finding('smoke test', NOTE, 'the model ran as it is: nothing was compiled', 'see the lines above')
    return Finding('smoke test', GOOD, f'a small model, forward and backward, agrees with eager; {kernels} kernels made')
