"""The kernels of a call: what each computes and moves, how long it takes, and how fast that is on this machine."""
import functools
import math
import re
import time

import torch

from . import rounds

_SIZES = {'f64': 8, 'f32': 4, 'bf16': 2, 'f16': 2, 'i64': 8, 'i32': 4, 'i16': 2, 'i8': 1, 'u8': 1, 'b8': 1, 'c64': 8, 'c128': 16}
_NOT_COUNTED = {'load', 'store', 'constant', 'convert', 'index', 'select'}
_SMALLEST, _LARGEST = 1 << 16, 1 << 26  # bytes of a copy on the CPU: in a cache, and in memory
_MEASURE = 0.05  # seconds of copies of one size


@functools.cache
def measured_bandwidth(device='cpu', size=_LARGEST):
    """Bytes per second that copies of `size` bytes move, read and written: of the quickest of some. On the CPU also of a copy by
    pieces, which one thread makes: on a machine that does other things several threads wait for each other, and may do so each time."""
    one, other = torch.zeros(size // 4, device=device), torch.zeros(size // 4, device=device)
    whole = [(other, one)] * (max(1, (1 << 20) // size) if device == 'cpu' else 10)
    ways = [whole, list(zip(other.split(_PIECE), one.split(_PIECE)))] if device == 'cpu' and size // 4 > _PIECE else [whole]
    return max(2 * size * (len(pairs) if pairs is whole else 1) / _quickest(pairs, device) for pairs in ways)


_PIECE = 32_000  # floats: PyTorch copies so many by one thread


def _quickest(pairs, device):
    """Seconds of these copies."""
    best, end, count = math.inf, time.perf_counter() + _MEASURE, 0
    while count < 5 or time.perf_counter() < end:
        rounds.wait_for([device])
        start = time.perf_counter()
        for other, one in pairs:
            other.copy_(one)
        rounds.wait_for([device])
        best = min(best, time.perf_counter() - start)
        count += 1
    return best


def bandwidth_for(device, moved):
    """Of a copy that moves as many bytes: on the CPU they may lie in a cache. On a GPU it is that of its memory."""
    if device != 'cpu':
        return measured_bandwidth(device, 1 << 29)
    return measured_bandwidth('cpu', min(max(1 << max(moved // 2, 1).bit_length(), _SMALLEST), _LARGEST))


def kernels_of(lines, timeline, device):
    """One row for each kernel that was made: its ops, its loops, what it moves and computes, how long it takes."""
    ops, rows, made = {}, {}, {}
    for category, text in lines:
        if category == 'schedule':
            for name, nodes in groups_in(text):
                ops.setdefault(name, nodes)
        row = _kernel(text.strip()) if category == 'code' else None
        if row is not None:
            row = rows.setdefault((row['name'], row['code']),
                                  row | {'ops': ops.get(row['name'], []), 'runs': 0, 'seconds': 0.0})
            made.setdefault(row['name'], []).append(row)
    _count_launches(made, timeline)
    found = sorted(rows.values(), key=lambda row: -row['seconds'])
    for row in found:
        if row['runs'] and row['seconds'] > 0:
            row['bandwidth'] = row['bytes'] * row['runs'] / row['seconds']
            row['of_machine'] = row['bandwidth'] / bandwidth_for(device, row['bytes'])
    return found


def _count_launches(made, timeline):
    """Adds the runs and the seconds of each kernel. On a GPU its own times count, and the launches on the host do not."""
    launches = device_launches(made, timeline) or host_launches(made, timeline)
    runs = {name: sum(names.count(name) for names, _ in launches) for name in made}
    seen = dict.fromkeys(made, 0)
    for names, seconds in launches:
        launched = []
        for name in names:
            # Kernels of one name are launched in the order in which they were made, unless they are launched otherwise often.
            rows = made[name] if runs[name] == len(made[name]) else list({id(row): row for row in made[name]}.values())
            launched.append(rows[seen[name] % len(rows)])
            seen[name] += 1
        moved = sum(row['bytes'] for row in launched) or 1
        for row in launched:  # those that are launched together share the time by the bytes that they move
            row['runs'] += 1
            row['seconds'] += seconds * (row['bytes'] / moved if len(launched) > 1 else 1.0)


def host_launches(made, timeline):
    """[([names], seconds)] of the spans "smelt::a" and "smelt::a+b"."""
    found = []
    for row in timeline:
        names = row['name'].removeprefix('smelt::').split('+')
        if not row['on_device'] and row['name'].startswith('smelt::') and all(name in made for name in names):
            found.append((names, row['seconds']))
    return found


def device_launches(made, timeline):
    """The same of a GPU, where a kernel "a" is called smelt_a, a second part of it smelt_a_finish, and one in the place of three
    of which "a" is the first smelt_a_joined_3. The host has the names of those that it starts together."""
    entries, found = {_entry(name): name for name in made}, []
    batches = [names for names, _ in host_launches(made, timeline) if len(names) > 1]
    for row in timeline:
        if not row['on_device']:
            continue
        joined = re.fullmatch(r'(\w+)_joined_(\d+)', row['name'])
        entry = joined[1] if joined else row['name']
        is_finish = entry not in entries
        name = entries.get(entry.removesuffix('_finish') if is_finish else entry)
        if name is None:
            continue
        names = _members(name, int(joined[2]), batches) if joined else [name]
        if not is_finish:
            found.append((names, row['seconds']))
            continue
        for number in range(len(found) - 1, -1, -1):
            if name in found[number][0]:
                found[number] = (found[number][0], found[number][1] + row['seconds'])
                break
    return found


def _members(first, count, batches):
    """The names of `count` kernels that are one on the GPU, of the batch with the first of them."""
    for names in batches:
        if first in names and len(names) - names.index(first) >= count:
            return names[names.index(first):][:count]
    return [first]


def _entry(name):
    """What the code generator for CUDA calls a kernel."""
    return re.sub('_+', '_', 'smelt_' + re.sub('[^a-zA-Z0-9]', '_', name[:100]))


def groups_in(schedule):
    """[(kernel, [its nodes])] of a schedule's text."""
    found, current = [], None
    for line in schedule.splitlines():
        if match := re.match(r'kernel (\S+?)\(', line):
            current = []
            found.append((match[1], current))
        elif line.startswith('  ') and current is not None:
            current.append(line.strip())
        else:
            current = None
    return found


def _kernel(text):
    head = re.match(r'kernel "([^"]*)" outer \[([^\]]*)\] inner \[([^\]]*)\]', text)
    if not head:
        return None
    outer, inner = (_product(part) for part in (head[2], head[3]))
    moved = flops = 0
    points = outer
    for line in text.splitlines():
        if match := re.match(r'b\d+: (\w+)\[(\d*)\] (input|output|inout)', line.strip()):
            moved += _SIZES.get(match[1], 4) * int(match[2] or 1) * (2 if match[3] == 'inout' else 1)
        elif line.startswith('inner stage'):
            points = outer * inner
        elif line.startswith('outer stage'):
            points = outer
        elif match := re.match(r'v\d+: (?:f\w+|bf16) = (\w+)', line.strip()):
            flops += points if match[1] not in _NOT_COUNTED else 0
    return {'name': head[1], 'code': text, 'bytes': moved, 'flops': flops, 'outer': head[2], 'inner': head[3]}


def _product(text):
    numbers = [int(part) for part in text.split(',') if part.strip().isdigit()]
    return math.prod(numbers) if numbers else 1
