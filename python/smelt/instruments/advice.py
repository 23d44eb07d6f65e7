"""What to do about a call, in the order of what it may win."""


def advice(data):
    """[{seconds, text}], what is expected to win most first. Seconds are of one call; what costs once has none, and comes last."""
    call = data['profiled_seconds'] or data['compiled_seconds']
    found = [row for rows in (_breaks, _idle_gpu, _kernels, _pytorch, _slower) for row in rows(data, call)]
    found = sorted(found, key=lambda row: -row[0]) + list(_once(data))
    return [{'seconds': seconds, 'text': text} for seconds, text in found]


def _of_call(seconds, call):
    """"up to 120 us of a call (12 %)"."""
    from .terminal import seconds as text
    return f'up to {text(seconds)} of a call ({100 * seconds / call:.0f} %)' if call else f'up to {text(seconds)} of a call'


def _breaks(data, call):
    outside = max(0.0, data['shares'].get('python', 0.0))
    for at in data['breaks']:
        gain = outside / len(data['breaks'])
        yield gain, (f'{at["file"]}:{at["line"]}: {at["sentence"]}. Remedy: {at["remedy"]}. May win {_of_call(gain, call)}: '
                     f'what Python takes around the {len(data["breaks"])} breaks, shared out to them.')


def _idle_gpu(data, call):
    idle = call - data['device_seconds']
    if data['device_seconds'] and idle > 0.25 * call and data['mode'] not in ('reduce-overhead', 'max-autotune'):
        yield idle, (f'The GPU waits for the host. mode="reduce-overhead" launches a graph as a whole and may win '
                     f'{_of_call(idle, call)}.')


def _kernels(data, call):
    for row in data['kernels']:
        if row.get('of_machine', 1.0) < 0.3 and row['seconds'] > 0.05 * call and row['bytes'] > 1 << 20:
            lost = row['seconds'] * (1 - row['of_machine'])
            yield lost, (f'The kernel {row["name"]} moves its bytes at {100 * row["of_machine"]:.0f} % of the speed of a copy: it '
                         f'computes more than it moves. A smaller dtype (torch.autocast) may win {_of_call(lost, call)}.')


def _pytorch(data, call):
    spent = {}
    for row in data['timeline']:
        if row['name'].startswith('aten::') and row['depth'] <= 2:
            spent[row['name']] = spent.get(row['name'], 0.0) + row['seconds']
    frozen = data.get('frozen_seconds')
    if frozen is not None and frozen < 0.97 * data['compiled_seconds']:
        gain = data['compiled_seconds'] - frozen
        yield gain, (f'options={{"freeze": True}} wins {_of_call(gain, data["compiled_seconds"]).removeprefix("up to ")}, as measured '
                     'here: weights are prepared once.')
    for name, seconds in sorted(spent.items(), key=lambda item: -item[1])[:3]:
        if call and seconds > 0.1 * call:
            yield seconds / 2, (f'{name} of PyTorch takes {100 * seconds / call:.0f} % of the call. In a dtype of half the size '
                                f'(torch.autocast) it may win {_of_call(seconds / 2, call)} where the processor has instructions '
                                'for that.')


def _slower(data, call):
    """Where the quickest calls say so too: what else the machine does slows others down."""
    ones, others = data['rounds']['compiled'], data['rounds']['eager']
    lost = min(data['compiled_seconds'] - data['eager_seconds'], min(ones) - min(others))
    if lost > 0.03 * min(others):
        yield lost, (f'Compiled it is slower than eager by {_of_call(lost, data["compiled_seconds"]).removeprefix("up to ")}. smelt bench '
                     'TARGET --where says which submodules gain; a function that measures slower goes back to eager by itself.')


_MOST_REASONS = 4


def _once(data):
    for sentence in data['rollbacks'][-1:]:
        yield 0.0, f'Python runs what smelt had compiled: {sentence}'
    reasons = data['recompiles']
    if not reasons:
        return
    cost = data['first_call'] / max(1, len(data['segments']))
    told = '; '.join(reasons[:_MOST_REASONS]) + (f'; and {len(reasons) - _MOST_REASONS} more' if len(reasons) > _MOST_REASONS else '')
    yield 0.0, (f'Compiled again {_times(len(reasons))}, which takes about {cost * 1e3:.0f} ms each: {told}. Warm up with inputs like these '
                '(smelt.warmup), or keep what changes as it is.')


def _times(count):
    return 'once' if count == 1 else f'{count} times'
