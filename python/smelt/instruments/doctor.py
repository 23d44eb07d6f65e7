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
import time

import torch

from .. import _built_for, _compile, _native
from . import machine
from .problems import one_line

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
        if torch.cuda.is_available():
            yield _smoke_test('cuda')


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
    target, version = _native.cpu_target(), getattr(_built_for, 'LLVM', '')
    wanted = os.environ.get('SMELT_CPU_TARGET')
    if version and target == 'none' and wanted == 'none':
        return Finding('LLVM', NOTE, f"{version}, and SMELT_CPU_TARGET=none: PyTorch's kernels are called, nothing is fused",
                       'unset SMELT_CPU_TARGET')
    if version and target == 'none':
        return Finding('LLVM', NOTE, f"{version}, and no machine code for this processor, which has no AVX2: PyTorch's kernels are called",
                       'use a processor with AVX2 and FMA')
    if target == 'none':
        return Finding('LLVM', BAD, "this smelt was built without LLVM: PyTorch's kernels are called, nothing is fused",
                       'install LLVM 19 or newer (Debian: llvm-19-dev libzstd-dev zlib1g-dev) and build smelt again')
    text = f'{version}{": " if version else ""}machine code for {target}'
    if wanted and wanted != target:
        return Finding('LLVM', NOTE, f'{text}, though SMELT_CPU_TARGET={wanted}', 'SMELT_CPU_TARGET is avx2 or none, or not set')
    return Finding('LLVM', GOOD, text + (f' (SMELT_CPU_TARGET={wanted})' if wanted else ''))


def _switched_off():
    found = [f'{name}={os.environ[name]}' for name in ('SMELT_DISABLE', 'SMELT_LOG') if os.environ.get(name)]
    if _compile.is_off():
        return Finding('switches', NOTE, 'SMELT_DISABLE is set: smelt.compile returns what it is given',
                       'unset SMELT_DISABLE')
    return Finding('switches', GOOD, ', '.join(found) or 'none set')


_OLDEST_GPU = (7, 0)  # NVRTC of CUDA 12 makes code for it, and the kernels use its instructions


def _gpu():
    """The GPU and the libraries for it. Without a GPU these are not missed: that they are there or not is told."""
    has_gpu = torch.cuda.is_available()
    if has_gpu:
        for index in range(torch.cuda.device_count()):
            yield _one_gpu(index)
    elif torch.version.cuda is None:
        yield Finding('GPU', NOTE, 'this PyTorch was built without CUDA: the processor is used',
                      'for a GPU install a PyTorch with CUDA (https://pytorch.org/get-started) and smelt for it')
    else:
        yield Finding('GPU', NOTE, f'PyTorch has CUDA {torch.version.cuda} and sees no GPU',
                      'look at nvidia-smi: the driver may be missing or too old, or CUDA_VISIBLE_DEVICES empty')
    cuda = (torch.version.cuda or '13').split('.')[0]
    wheel = 'nvidia-cuda-nvrtc' if int(cuda) >= 13 else f'nvidia-cuda-nvrtc-cu{cuda}'
    yield _library('NVRTC', 'nvrtc', 'kernels for the GPU are made by it', f'pip install {wheel}', has_gpu)
    yield _library('cuBLASLt', 'cublasLt', 'matrix products use it', 'it comes with a PyTorch for CUDA: install that again', has_gpu)
    yield _library('cuDNN', 'cudnn', 'convolutions use it', 'it comes with a PyTorch for CUDA: install that again', has_gpu)


def _one_gpu(index):
    properties = torch.cuda.get_device_properties(index)
    text = (f'{properties.name}, sm_{properties.major}{properties.minor}, {properties.total_memory / 2**30:.0f} GiB, '
            f'CUDA {torch.version.cuda}')
    if (properties.major, properties.minor) < _OLDEST_GPU:
        return Finding(f'GPU {index}', NOTE, f"{text}: too old for smelt's kernels, PyTorch's are called",
                       f'use a GPU of sm_{_OLDEST_GPU[0]}{_OLDEST_GPU[1]} or newer')
    return Finding(f'GPU {index}', GOOD, text)


def _library(name, library, use, remedy, is_needed=True):
    folders = [*site.getsitepackages(), site.getusersitepackages(), *sys.path]
    found = [path for folder in dict.fromkeys(folders) if folder
             for path in sorted(glob.glob(f'{folder}/nvidia/*/lib/lib{library}.so*')) if '-builtins' not in path]
    found += [path for path in [ctypes.util.find_library(library)] if path]
    for path in found:
        try:
            ctypes.CDLL(path)
            return Finding(name, GOOD, os.path.basename(path))
        except OSError:
            continue
    if not is_needed:
        return Finding(name, GOOD, f'lib{library} is not here, and without a GPU not needed')
    return Finding(name, NOTE, f'lib{library} is not found: {use}', remedy)


def _packages():
    for name, what in (('rich', 'tables and progress of the commands'), ('matplotlib', 'smelt bench --plot')):
        if importlib.util.find_spec(name) is None:
            yield Finding(name, NOTE, f'not installed: {what} go without', f'pip install {name}')
    if shutil.which('c++') is None and shutil.which('g++') is None:
        yield Finding('compiler', NOTE, 'no C++ compiler: only needed to build smelt again')


def _smoke_test(device='cpu'):
    """A small model, forward and backward, compiled and as it is."""
    name = 'smoke test' if device == 'cpu' else 'smoke test on the GPU'
    start = time.perf_counter()
    try:
        generator = torch.Generator().manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.LayerNorm(64), torch.nn.Linear(64, 8))
        model.to(device)
        x = torch.randn(16, 32, generator=generator).to(device)
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
        return Finding(name, BAD, one_line(error),
                       'please report it, with the output of smelt doctor --json')
    kernels = after['kernels'] - before['kernels']
    if after['segments'] == before['segments']:
        return Finding(name, NOTE, 'the model ran as it is: nothing was compiled', 'see the lines above')
    return Finding(name, GOOD, f'a small model, forward and backward, agrees with eager; {kernels} kernels made, '
                   f'{time.perf_counter() - start:.1f} s')
