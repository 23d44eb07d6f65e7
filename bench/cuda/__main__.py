"""Work of an NVIDIA GPU: eager, smelt's ways, torch.compile's modes if asked for. A process for each row, all in turn.

  model, model/graph   smelt.compile of the model or function, modes "default" and "reduce-overhead"
  step, step/graph     smelt.compile of the whole step around it, likewise
  --peer MODE          torch.compile(mode=MODE) of the model beside them; its first call takes up to a minute

Per contestant: microseconds per step (median, launch and synchronization included), seconds of the first call and of
the first ten, peak memory of the first call and of later ones, millijoules per step (NVML), and how far it is from
eager: the relative difference (2-norm) of results and of what the step changes, after the first step and after ten. The first way of smelt's starts with nothing compiled; the others find kernels that it made.

Must hold: the best of smelt's ways within the row's limit, which is the figure asked for, or the best of torch.compile's
modes on an H200 (PyTorch 2.11); no way below eager; the first call at most a tenth of torch.compile's; the first call's
memory at most eager's + 10 %.
"""
import argparse
import contextlib
import ctypes
import gc
import json
import os
import pathlib
import select
import signal
import sys
import tempfile
import time
import traceback

os.environ.setdefault('PYTORCH_NVML_BASED_CUDA_CHECK', '1')  # the parent must not start CUDA: its children do

import torch  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
import smelt  # noqa: E402
from smelt import _native  # noqa: E402

from measure import median  # noqa: E402
from models import cuda_rows  # noqa: E402

# Microseconds on an H200: what must be reached, and the goal; seconds: the first call of torch.compile there.
LIMITS = {'simple_step': (60, 50, 4.0), 'evaluate_features': (20, 18, 0.6), 'norm_chain': (115, 110, 1.1),
          'softmax': (285, 280, 1.5), 'resnet50_inference': (1960, 1400, 9.3), 'resnet50_training': (12560, 9500, 32),
          'gpt2_inference': (3299, 2400, 12), 'gpt2_training': (13679, 9000, 23.6), 'llama_forward': (3754, 3400, None),
          'llama_decode': (400, 300, None), 'vit': (3659, 3000, None), 'unet_block': (494, 420, None),
          'dlrm_step': (400, 300, None), 'adamw_clip': (1400, 1300, 51), 'cross_entropy': (2495, 2000, None),
          'resnet50_channels_last': (12883, 9500, 50), 'small_functions': (250, 200, None)}
ROWS = {make.__name__: make for make in cuda_rows.ALL}
SMELT = {'model': ('target', 'default'), 'model/graph': ('target', 'reduce-overhead'),
         'step': ('whole', 'default'), 'step/graph': ('whole', 'reduce-overhead')}
NEAR = 2e-2  # the largest relative difference of results of bfloat16 and TF32
CALLS = 10   # before a contestant is measured


class Energy:
    """Millijoules since some time, by NVML."""

    def __init__(self):
        self.count = None
        with contextlib.suppress(OSError):
            library, device = ctypes.CDLL('libnvidia-ml.so.1'), ctypes.c_void_p()
            if library.nvmlInit_v2() == 0 and library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) == 0:
                self.count = lambda out: library.nvmlDeviceGetTotalEnergyConsumption(device, ctypes.byref(out))

    def per_call(self, call, seconds):
        if self.count is None:
            return None
        before, after, calls, end = ctypes.c_ulonglong(), ctypes.c_ulonglong(), 0, time.perf_counter() + seconds
        if self.count(before) != 0:
            return None
        while time.perf_counter() < end:
            call()
            calls += 1
        torch.cuda.synchronize()
        self.count(after)
        return (after.value - before.value) / calls


def tensors_of(value):
    if isinstance(value, torch.Tensor):
        return [value.detach()]
    return [tensor for item in value for tensor in tensors_of(item)] if isinstance(value, (list, tuple)) else []


class Contestant:
    def __init__(self, make, name):
        gc.collect()
        torch.cuda.empty_cache()
        self.before = torch.cuda.memory_allocated()
        torch.manual_seed(0)
        self.kept = []
        self.row = make()
        self.step = self.compiled(name)

    def compiled(self, name):
        target, wrap = self.row.target, self.row.wrap
        if name == 'eager':
            return wrap(target)
        if name in SMELT:
            part, mode = SMELT[name]
            compile = lambda f: smelt.compile(f, mode=mode)  # noqa: E731
            if part == 'whole':
                return compile(wrap(target))
        else:
            compile = lambda f: torch.compile(f, mode=None if name == 'torch default' else name[6:])  # noqa: E731
        return wrap([compile(f) for f in target] if isinstance(target, list) else compile(target))

    def seen(self, output):
        """What the step gave and changed."""
        return tensors_of(output) + tensors_of(self.row.state)

    def start(self, eager):
        """The first calls: seconds, megabytes, distance from what eager kept."""
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        begin = time.perf_counter()
        output = self.step()
        torch.cuda.synchronize()
        result = {'first_s': time.perf_counter() - begin, 'first_mb': self.peak()}
        spent = result['first_s']
        result['distance'] = self.compare(eager, 0, self.seen(output))
        begin = time.perf_counter()
        for _ in range(CALLS - 1):
            del output
            output = self.step()
        torch.cuda.synchronize()
        result['ten_s'] = spent + time.perf_counter() - begin
        result['later'] = self.compare(eager, 1, self.seen(output))
        del output
        torch.cuda.reset_peak_memory_stats()
        self.step()
        torch.cuda.synchronize()
        return result | {'peak_mb': self.peak()}

    def compare(self, eager, index, seen):
        if eager is not self:
            return distance(seen, eager.kept[index])
        self.kept.append([tensor.clone() for tensor in seen])
        self.before += sum(tensor.numel() * tensor.itemsize for tensor in self.kept[-1])
        return 0.0

    def peak(self):
        return (torch.cuda.max_memory_allocated() - self.before) / 2**20


def distance(some, others):
    """Of all elements together: a bias whose gradient is 0 but for rounding tells nothing by itself."""
    apart = size = 0.0
    for a, b in zip(some, others, strict=True):
        if a.is_floating_point():
            apart += (a.float() - b.float()).norm().item() ** 2
            size += b.float().norm().item() ** 2
        else:
            apart += (a != b).sum().item()
            size += b.numel()
    return (apart / (size or 1.0)) ** 0.5


def where(step, calls=3):
    """The kernels of a step: how many, how long, and the longest."""
    from torch.profiler import ProfilerActivity, profile
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        for _ in range(calls):
            step()
        torch.cuda.synchronize()
    kernels = {}
    for event in profiled.events():
        if str(event.device_type).endswith('CUDA'):
            count, total = kernels.get(event.name, (0, 0.0))
            kernels[event.name] = (count + 1, total + event.device_time_total)
    ordered = sorted(kernels.items(), key=lambda kernel: -kernel[1][1])
    return {'kernels': sum(count for count, _ in kernels.values()) / calls,
            'device_us': sum(total for _, total in kernels.values()) / calls,
            'longest': [f'{total / calls:9.1f} us {count / calls:6.1f} x {name[:100]}'
                        for name, (count, total) in ordered[:10]]}


def measure_row(name, arguments):
    torch.set_float32_matmul_precision('high')
    energy, result = Energy(), {}
    contestants = {}
    for contestant in ['eager', *arguments.ways, *(f'torch {mode}' for mode in arguments.peer)]:
        try:
            _native.forget_cuda_graphs()
            made = Contestant(ROWS[name], contestant)
            result[contestant] = made.start(contestants.get('eager', made))
            result['source'] = made.row.source
            if contestant in SMELT:
                result[contestant]['graphs'] = _native.cuda_graphs()
            contestants[contestant] = made
        except Exception as error:
            result[contestant] = {'error': f'{type(error).__name__}: {error}'[:300]}
            traceback.print_exc()
    contestants['eager'].kept = []
    times = {contestant: [] for contestant in contestants}
    end = time.perf_counter() + arguments.seconds * len(contestants)
    while time.perf_counter() < end or min(map(len, times.values())) < 5:
        for contestant, made in contestants.items():
            for _ in range(5):
                begin = time.perf_counter()
                made.step()
                torch.cuda.synchronize()
                times[contestant].append(time.perf_counter() - begin)
    for contestant, made in contestants.items():
        result[contestant]['us'] = 1e6 * median(times[contestant])
        result[contestant]['mj'] = energy.per_call(made.step, 0.3)
        if arguments.where:
            try:
                result[contestant]['where'] = where(made.step)
            except Exception:
                traceback.print_exc()
    return result


def in_child(name, arguments):
    """The row, measured in a fork of this process that may take `arguments.limit` seconds."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        os.environ.pop('PYTORCH_NVML_BASED_CUDA_CHECK', None)  # programs run without it
        try:
            text = json.dumps(measure_row(name, arguments))
        except Exception as error:
            traceback.print_exc()
            text = json.dumps({'error': f'{type(error).__name__}: {error}'[:300]})
        with os.fdopen(writer, 'w') as out:
            out.write(text)
        sys.stdout.flush()
        os._exit(0)
    os.close(writer)
    end, text = time.monotonic() + arguments.limit, b''
    try:
        while ready := select.select([reader], [], [], max(end - time.monotonic(), 0))[0]:
            if not (piece := os.read(reader, 1 << 16)):
                break
            text += piece
        if not ready:
            return {'error': f'took more than {arguments.limit} s'}
        return json.loads(text) if text else {'error': 'the process died'}
    finally:
        os.close(reader)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def failures(name, result):
    must, _, torch_first = LIMITS[name]
    done = {way: result[way] for way in SMELT if 'us' in result.get(way, {})}
    for way in SMELT:
        if 'error' in result.get(way, {}):
            yield f'{way}: {result[way]["error"]}'
    if not done or 'us' not in result.get('eager', {}):
        yield 'not measured'
        return
    best = min(value['us'] for value in done.values())
    limit = min([must] + [value['us'] for way, value in result.items() if way.startswith('torch') and 'us' in value])
    if best > limit:
        yield f'{best:.1f} us, must be {limit:.1f}'
    for way, value in done.items():
        if value['us'] > 1.03 * result['eager']['us']:
            yield f'{way} slower than eager'
        if not value['distance'] < NEAR:
            yield f'{way} differs from eager by {value["distance"]:.1e}'
        if torch_first and value['first_s'] > torch_first / 10:
            yield f'{way}: first call {value["first_s"]:.2f} s, must be {torch_first / 10:.2f}'
        if value['first_mb'] > 1.1 * result['eager']['first_mb'] + 2:
            yield f'{way}: first call {value["first_mb"]:.0f} MB, eager {result["eager"]["first_mb"]:.0f}'


def show(name, result):
    print(f'{name} (must {LIMITS[name][0]}, goal {LIMITS[name][1]}; model: {result.get("source", "?")})')
    for way, value in result.items():
        if not isinstance(value, dict):
            continue
        if 'us' not in value:
            print(f'  {way:22}{value.get("error", "?")}')
            continue
        energy = '' if value['mj'] is None else f'{value["mj"]:8.1f} mJ'
        print(f'  {way:22}{value["us"]:10.1f} us   first {value["first_s"]:6.2f} s, ten {value["ten_s"]:6.2f} s'
              f'{value["first_mb"]:8.0f} MB{value["peak_mb"]:8.0f} MB{energy}   {value["distance"]:.1e} {value["later"]:.1e}')
        if graphs := value.get('graphs'):
            print(f'    graphs: {graphs["captured"]} captured, {graphs["launched"]} launched, {graphs["refused"]} refused'
                  + ''.join(f'; {reason[:160]}' for reason in dict.fromkeys(graphs['reasons'])))
        if 'where' in value:
            print(f'    {value["where"]["kernels"]:.0f} kernels, {value["where"]["device_us"]:.1f} us on the device')
            for line in value['where']['longest']:
                print(f'      {line}')
    for failure in result['failures']:
        print(f'  !! {failure}')
    sys.stdout.flush()


def table(results):
    """As docs/cuda.md has it."""
    ways = ['eager', *SMELT]
    others = sorted({way for result in results.values() for way in result if way.startswith('torch')})
    lines = [f'| row | {" | ".join(ways + others)} | must | goal |', '|---' * (3 + len(ways + others)) + '|']
    for name, result in results.items():
        cells = [f'{result[way]["us"]:.1f}' if 'us' in result.get(way, {}) else '-' for way in ways + others]
        lines.append(f'| {name} | {" | ".join(cells)} | {LIMITS[name][0]} | {LIMITS[name][1]} |')
    return '\n'.join(lines)


def main():
    parser = argparse.ArgumentParser(prog='./dev bench cuda', description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('rows', nargs='*', metavar='ROW', help=f'of {", ".join(ROWS)} (default: all)')
    parser.add_argument('--ways', default=','.join(SMELT), help=f'of {", ".join(SMELT)} (default: all)')
    parser.add_argument('--peer', default='', help='modes of torch.compile, with commas between')
    parser.add_argument('--seconds', type=float, default=0.5, help='how long a contestant is measured (default: 0.5)')
    parser.add_argument('--limit', type=float, default=120, help='seconds that a row may take (default: 120)')
    parser.add_argument('--where', action='store_true', help='the longest kernels of each contestant')
    parser.add_argument('--json', metavar='FILE', help='write everything there')
    arguments = parser.parse_args()
    arguments.ways = [way for way in arguments.ways.split(',') if way]
    arguments.peer = [mode for mode in arguments.peer.split(',') if mode]
    if unknown := (set(arguments.rows) - set(ROWS)) | (set(arguments.ways) - set(SMELT)):
        parser.error(f'unknown: {", ".join(sorted(unknown))}')
    if not torch.cuda.is_available():
        sys.exit('this machine has no GPU')
    with tempfile.TemporaryDirectory() as folder:  # torch.compile finds nothing that it made before
        os.environ |= {'TORCHINDUCTOR_CACHE_DIR': folder, 'TRITON_CACHE_DIR': folder,
                       'TORCHINDUCTOR_FORCE_DISABLE_CACHES': '1'}
        results = {}
        for name in arguments.rows or ROWS:
            result = in_child(name, arguments)
            if 'error' in result:
                result = {'eager': result}
            result['failures'] = list(failures(name, result))
            results[name] = result
            show(name, result)
            if arguments.json:
                pathlib.Path(arguments.json).write_text(json.dumps(results, indent=1))
    print(f'\nPyTorch {torch.__version__}, Python {sys.version.split()[0]}\n{table(results)}')
    return any(result['failures'] for result in results.values())


if __name__ == '__main__':
    sys.exit(main())
