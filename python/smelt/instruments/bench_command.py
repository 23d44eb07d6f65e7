"""smelt bench: its options, its table, its history and its check."""
import sys

from . import drift, history, terminal
from .command import add_command, add_target, load_target, print_json
from .problems import Problem, whole_numbers

EXAMPLES = """\
  smelt bench net.py:make_model                          eager against smelt
  smelt bench net.py:make_model --peer                   and against torch.compile
  smelt bench net.py:make_model --train --batch-sizes 1,8,64
  smelt bench net.py:make_model --whole-step             the training step as one compiled function
  smelt bench net.py:make_model --option freeze=true --plot out.png
  smelt bench net.py:make_model --where                  what compiling each submodule is worth
  smelt bench net.py:make_model --save release           into the history, under a name
  smelt bench --check release                            measures that again; exit code 1 if it has become slower
  smelt bench mymodels:relu_chain --inputs "torch.randn(512, 512)"
  smelt bench mymodels:relu_chain --inputs "torch.randn(rows, 512)" --sweep rows=64,512
"""


def add_to(parts, name):
    parser = add_command(parts, name, 'what compiling is worth, measured: eager against smelt in interleaved rounds',
                         EXAMPLES)
    add_target(parser, optional=True)
    parser.add_argument('--mode', action='append', default=[], help='of smelt.compile; may be given several times')
    parser.add_argument('--backend', action='append', default=[], help='of smelt.compile; may be given several times')
    parser.add_argument('--option', action='append', default=[], metavar='NAME=VALUE',
                        help='of smelt.compile(options=...); may be given several times')
    parser.add_argument('--peer', action='append', nargs='?', const='torch.compile', default=[],
                        metavar='torch.compile[:MODE]', help='is measured as well; without a value, torch.compile')
    parser.add_argument('--train', action='store_true', help='forward, backward and optimizer step; the model is '
                        'compiled')
    parser.add_argument('--whole-step', action='store_true', help='the same; the whole step is compiled')
    parser.add_argument('--batch-sizes', metavar='N,N,...', help='passed to make_model(batch_size=...), one after the '
                        'other')
    parser.add_argument('--sweep', action='append', default=[], metavar='NAME=N,N,...', help='any other parameter of '
                        'make_model, a size of the inputs, say; all combinations are measured')
    parser.add_argument('--seconds', type=float, default=5.0, help='how long all rounds take, about (default: 5)')
    parser.add_argument('--rounds', type=int, help='how many rounds (default: as many as --seconds allows, 10 to 2000)')
    parser.add_argument('--no-memory', action='store_true', help='do not measure the peak of memory')
    parser.add_argument('--no-energy', action='store_true', help='do not measure energy')
    parser.add_argument('--where', action='store_true', help='per submodule: what compiling it alone saves')
    parser.add_argument('--depth', type=int, default=2, help='with --where: how deep names go (default: 2)')
    parser.add_argument('--plot', metavar='FILE', help='.png, .svg or .html (takes matplotlib)')
    parser.add_argument('--save', nargs='?', const='', metavar='NAME', help='into the history, under a name')
    parser.add_argument('--check', metavar='BASELINE', help="against a run: 'last', a name or number of the history, "
                        'or a file of --json; exit code 1 if a row is slower. Without TARGET the baseline is '
                        'measured again, as it was')
    parser.add_argument('--tolerance', type=float, default=drift.TOLERANCE, metavar='PART',
                        help=f'with --check: what is no regression (default: {drift.TOLERANCE})')
    parser.add_argument('--absolute', action='store_true', help='with --check: do not divide out what eager lost too')
    parser.add_argument('--history', metavar='FILE', help='where the history is (default: $SMELT_HISTORY, or '
                        'smelt/history.sqlite where the system keeps data of users)')


def run(arguments):
    from .contestants import INFERENCE, TRAINING, WHOLE_STEP, chosen, parse_options
    path = arguments.history or history.default_path()
    _find_target(arguments, path)
    _check_numbers(arguments)
    kind = WHOLE_STEP if arguments.whole_step else TRAINING if arguments.train else INFERENCE
    contestants = chosen(arguments.mode, arguments.backend, parse_options(arguments.option), arguments.peer)
    sweep = _sweep(arguments)
    if arguments.plot:
        from . import plot
        plot.check(arguments.plot)
    if arguments.save is not None:
        history.check(path)
    target = load_target(arguments)
    if arguments.where:
        return _where(arguments, target, contestants, kind, sweep)
    from . import machine
    from .bench import run as measure
    base, name = None, _described(arguments)
    if arguments.check:
        base = history.baseline(arguments.check, path, name, kind, machine.hardware())
    with terminal.progress(target.text, 1.0) as told:
        found = measure(target, contestants, kind=kind, sweep=sweep, device=arguments.device,
                        seconds=arguments.seconds, rounds_=arguments.rounds, with_memory=not arguments.no_memory,
                        with_energy=not arguments.no_energy, told=told)
    found |= {'target': name, 'arguments': {key: getattr(arguments, key) for key in _KEPT}}
    if base is not None:
        runs = history.load(path, name, kind, found['hardware'])
        if base['hardware'] != found['hardware']:
            found['check_note'] = _other_hardware(base['hardware'], found['hardware'])
        found['check'] = drift.compare(found, base, runs, arguments.tolerance, arguments.absolute)
        if not found['check']:
            raise Problem(f'the baseline {arguments.check} has none of the rows that were measured')
    if arguments.save is not None:
        found['saved_as'] = history.save(path, found, arguments.save)
    if arguments.plot:
        plot.draw(found, arguments.plot)
    if arguments.json:
        print_json(found)
    else:
        _show(found, path)
    return 1 if any(row['slower'] for row in found.get('check', ())) else 0


# What a baseline is measured again with.
_KEPT = ('target', 'inputs', 'device', 'threads', 'mode', 'backend', 'option', 'peer', 'train', 'whole_step', 'batch_sizes',
         'sweep')


def _find_target(arguments, path):
    """Where TARGET was taken for the value of an option that may stand alone, or is the baseline's."""
    if arguments.target is None:
        for number, value in enumerate(arguments.peer):
            if ':' in value and not value.startswith('torch.compile'):
                arguments.target, arguments.peer[number] = value, 'torch.compile'
    if arguments.target is None and arguments.save and ':' in arguments.save:
        arguments.target, arguments.save = arguments.save, ''
    if arguments.target is None and arguments.check:
        for key, value in history.arguments_of(arguments.check, path).items():
            if key in _KEPT:
                setattr(arguments, key, value)
    if arguments.target is None:
        raise Problem('what is to be measured? smelt bench file.py:make_model')


def _check_numbers(arguments):
    for name, least in (('rounds', 1), ('depth', 1)):
        value = getattr(arguments, name)
        if value is not None and value < least:
            raise Problem(f'--{name} is at least {least}')
    for name in ('seconds', 'tolerance'):
        if not 0 < getattr(arguments, name) < float('inf'):
            raise Problem(f'--{name} is to be larger than 0')


def _described(arguments):
    """TARGET with what makes another measurement of it."""
    return ' '.join([arguments.target, *([f'--inputs "{arguments.inputs}"'] if arguments.inputs is not None else []),
                     *([f'--device {arguments.device}'] if arguments.device else [])])


def _other_hardware(before, now):
    changed = [f'{name} was {before.get(name)}, is {now.get(name)}' for name in now if before.get(name) != now[name]]
    return f'the baseline was measured on other hardware: {"; ".join(changed)}'


def _sweep(arguments):
    """{parameter: values} of --batch-sizes and --sweep."""
    texts = [f'batch_size={arguments.batch_sizes}'] if arguments.batch_sizes else []
    sweep = {}
    for text in [*texts, *arguments.sweep]:
        name, _, values = text.partition('=')
        sweep[name] = whole_numbers(repr(text), values)
    return sweep


def _show(found, path):
    hardware, versions = found['hardware'], found['versions']
    print(f'{found["target"]}, {found["kind"]}: smelt {versions["smelt"]}, PyTorch {versions["torch"]}, '
          f'{hardware["cpu"]}, {hardware["threads"]} threads' + ''.join(f', {gpu}' for gpu in hardware['gpus']))
    terminal.table(*_table(found))
    for device, why in found['energy_not_available'].items():
        print(f'energy of the {device}: not available ({why})')
    for row in found['rows']:
        if row['stages']:
            parts = [f'{name} {terminal.seconds(took)}' for name, took in row['stages'].items()]
            print(f'{_name(row)}: first call {terminal.seconds(row["first_call"])}, of it ' + ', '.join(parts))
        for sentence in row.get('rollbacks', ()):
            print(f'{_name(row)}: {sentence}')
    if 'saved_as' in found:
        print(f'saved as run {found["saved_as"]} in {path}')
    if 'check_note' in found:
        print(f'note: {found["check_note"]}')
    for row in found.get('check', ()):
        print(_finding(row))


def _name(row):
    return ', '.join([row['label'], *(f'{name} {value}' for name, value in row['point'].items())])


def _table(found):
    with_memory = any('memory' in row for row in found['rows'])
    with_energy = any('energy' in row for row in found['rows'])
    columns = ['', 'median', '95 %', 'speed-up', '95 %', 'mean', 'p95', 'p99', 'per s', 'first call',
               *(['memory'] if with_memory else []), *(['energy'] if with_energy else [])]
    rows = []
    for row in found['rows']:
        cells = [_name(row), terminal.seconds(row['median']),
                 f'{terminal.seconds(row["low"])} .. {terminal.seconds(row["high"])}',
                 f'{row["speedup"]:.2f}', f'{row["speedup_low"]:.2f} .. {row["speedup_high"]:.2f}',
                 *(terminal.seconds(row[key]) for key in ('mean', 'p95', 'p99')), terminal.count(row['throughput']),
                 terminal.seconds(row['first_call'])]
        if with_memory:
            cells.append(' + '.join(terminal.bytes_(value) for value in row['memory'].values()))
        if with_energy:
            cells.append(' + '.join(f'{value:.3g} J' for value in row['energy'].values()))
        rows.append(cells)
    return columns, rows


def _finding(row):
    what = (f'{_name(row)}: {terminal.seconds(row["median"])} against {terminal.seconds(row["before"])}, '
            f'{row["ratio"]:.2f} times')
    if abs(row['machine'] - 1) > 0.02:
        what += f' (eager took {row["machine"]:.2f} times as long, which is divided out)'
    return f'SLOWER {what}, limit {row["limit"]:.2f}, {row["since"]}' if row['slower'] else f'holds  {what}'


def _where(arguments, target, contestants, kind, sweep):
    from .bench import where
    if len(contestants) > 2 or any(len(values) > 1 for values in sweep.values()):
        print('smelt: --where measures one mode, one back end and one size: the first', file=sys.stderr)
    with terminal.progress(target.text, 1.0) as told:
        rows = where(target, contestants[1], kind=kind, point={name: values[0] for name, values in sweep.items()},
                     device=arguments.device, seconds=arguments.seconds, depth=arguments.depth, told=told)
    if arguments.json:
        print_json({'target': target.text, 'kind': kind, 'rows': rows})
        return
    cells = [[f'{row["name"]} ({row["type"]})', str(row['calls']), row['note'], '', '', ''] if 'note' in row else
             [f'{row["name"]} ({row["type"]})', str(row['calls']), terminal.seconds(row['eager']),
              terminal.seconds(row['compiled']), ('-' if row['saved'] < 0 else '') + terminal.seconds(abs(row['saved'])),
              f'{row["speedup"]:.2f} ({row["speedup_low"]:.2f} .. {row["speedup_high"]:.2f})'] for row in rows]
    terminal.table(['submodule', 'calls', 'eager', 'compiled', 'saved per step', 'speed-up (95 %)'], cells)
    if worth := [row['name'] for row in rows if row.get('speedup_low', 0) > 1.02]:
        print(f'the most is won by compiling {worth[0].strip("()")}: {_how_to_compile(worth[0])}')


def _how_to_compile(name):
    """A line of Python; of the whole model, (the whole model)."""
    if name.startswith('('):
        return 'model = smelt.compile(model)'
    parts = name.split('.')
    if not all(part.isidentifier() or part.isdecimal() for part in parts):
        return f'model.set_submodule({name!r}, smelt.compile(model.get_submodule({name!r})))'
    place = 'model' + ''.join(f'[{part}]' if part.isdecimal() else f'.{part}' for part in parts)
    return f'{place} = smelt.compile({place})'
