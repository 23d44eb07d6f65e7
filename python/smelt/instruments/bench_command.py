"""smelt bench: its options, its table, its history and its check."""
import json
import sys

from . import drift, history, terminal
from .command import add_command, add_target, load_target
from .problems import Problem

EXAMPLES = """\
  smelt bench net.py:make_model                          eager against smelt
  smelt bench net.py:make_model --peer torch.compile     and against torch.compile
  smelt bench net.py:make_model --train --batch-sizes 1,8,64
  smelt bench net.py:make_model --whole-step             the training step as one compiled function
  smelt bench net.py:make_model --option freeze=true --plot out.png
  smelt bench net.py:make_model --where                  what compiling each submodule is worth
  smelt bench net.py:make_model --save release           into the history, under a name
  smelt bench net.py:make_model --check release          exit code 1 if it has become slower
  smelt bench mymodels:relu_chain --inputs "torch.randn(512, 512)"
"""


def add_to(parts, name):
    parser = add_command(parts, name, 'what compiling is worth, measured: eager against smelt in interleaved rounds',
                         EXAMPLES)
    add_target(parser)
    parser.add_argument('--mode', action='append', default=[], help='of smelt.compile; may be given several times')
    parser.add_argument('--backend', action='append', default=[], help='of smelt.compile; may be given several times')
    parser.add_argument('--option', action='append', default=[], metavar='NAME=VALUE',
                        help='of smelt.compile(options=...); may be given several times')
    parser.add_argument('--peer', action='append', default=[], metavar='torch.compile[:MODE]',
                        help='is measured as well')
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
                        'or a file of --json; exit code 1 if a row is slower')
    parser.add_argument('--tolerance', type=float, default=drift.TOLERANCE, metavar='PART',
                        help=f'with --check: what is no regression (default: {drift.TOLERANCE})')
    parser.add_argument('--absolute', action='store_true', help='with --check: do not divide out what eager lost too')
    parser.add_argument('--history', metavar='FILE', help='where the history is (default: $SMELT_HISTORY, or '
                        'smelt/history.sqlite where the system keeps data of users)')


def run(arguments):
    from .contestants import INFERENCE, TRAINING, WHOLE_STEP, chosen, parse_options
    kind = WHOLE_STEP if arguments.whole_step else TRAINING if arguments.train else INFERENCE
    contestants = chosen(arguments.mode, arguments.backend, parse_options(arguments.option), arguments.peer)
    sweep = _sweep(arguments)
    if arguments.plot:
        from . import plot
        plot.check(arguments.plot)
    target = load_target(arguments)
    if arguments.where:
        return _where(arguments, target, contestants, kind, sweep)
    path = arguments.history or history.default_path()
    from . import machine
    from .bench import run as measure
    base = None
    if arguments.check:
        base = history.baseline(arguments.check, path, target.text, kind, machine.hardware())
    with terminal.progress(target.text, 1.0) as told:
        found = measure(target, contestants, kind=kind, sweep=sweep, device=arguments.device,
                        seconds=arguments.seconds, rounds_=arguments.rounds, with_memory=not arguments.no_memory,
                        with_energy=not arguments.no_energy, told=told)
    if base is not None:
        runs = history.load(path, target.text, kind, found['hardware'])
        found['check'] = drift.compare(found, base, runs, arguments.tolerance, arguments.absolute)
        if not found['check']:
            raise Problem(f'the baseline {arguments.check} has none of the rows that were measured')
    if arguments.save is not None:
        found['saved_as'] = history.save(path, found, arguments.save)
    if arguments.plot:
        plot.draw(found, arguments.plot)
    if arguments.json:
        print(json.dumps(found, indent=2))
    else:
        _show(found, path)
    return 1 if any(row['slower'] for row in found.get('check', ())) else 0


def _sweep(arguments):
    """{parameter: values} of --batch-sizes and --sweep."""
    texts = [f'batch_size={arguments.batch_sizes}'] if arguments.batch_sizes else []
    sweep = {}
    for text in [*texts, *arguments.sweep]:
        name, _, values = text.partition('=')
        try:
            sweep[name] = [int(part) for part in values.split(',')]
        except ValueError:
            raise Problem(f'{text!r}: the values are to be whole numbers with commas between, 1,8,64') from None
        if min(sweep[name]) < 1:
            raise Problem(f'{text!r}: the values are to be whole numbers from 1 on')
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
    if 'saved_as' in found:
        print(f'saved as run {found["saved_as"]} in {path}')
    for row in found.get('check', ()):
        print(_finding(row))


def _name(row):
    return ', '.join([row['label'], *(f'{name} {value}' for name, value in row['point'].items())])


def _table(found):
    with_memory = any('memory' in row for row in found['rows'])
    with_energy = any('energy' in row for row in found['rows'])
    columns = ['', 'mean', 'median', '95 %', 'p95', 'p99', 'per s', 'first call',
               *(['memory'] if with_memory else []), *(['energy'] if with_energy else []), 'speed-up', '95 %']
    rows = []
    for row in found['rows']:
        cells = [_name(row), *(terminal.seconds(row[key]) for key in ('mean', 'median')),
                 f'{terminal.seconds(row["low"])} .. {terminal.seconds(row["high"])}',
                 *(terminal.seconds(row[key]) for key in ('p95', 'p99')), f'{row["throughput"]:.4g}',
                 terminal.seconds(row['first_call'])]
        if with_memory:
            cells.append(' + '.join(terminal.bytes_(value) for value in row['memory'].values()))
        if with_energy:
            cells.append(' + '.join(f'{value:.3g} J' for value in row['energy'].values()))
        rows.append([*cells, f'{row["speedup"]:.2f}', f'{row["speedup_low"]:.2f} .. {row["speedup_high"]:.2f}'])
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
        print(json.dumps({'target': target.text, 'kind': kind, 'rows': rows}, indent=2))
        return
    cells = [[f'{row["name"]} ({row["type"]})', str(row['calls']), row['note'], '', '', ''] if 'note' in row else
             [f'{row["name"]} ({row["type"]})', str(row['calls']), terminal.seconds(row['eager']),
              terminal.seconds(row['compiled']), ('-' if row['saved'] < 0 else '') + terminal.seconds(abs(row['saved'])),
              f'{row["speedup"]:.2f} ({row["speedup_low"]:.2f} .. {row["speedup_high"]:.2f})'] for row in rows]
    terminal.table(['submodule', 'calls', 'eager', 'compiled', 'saved per step', 'speed-up (95 %)'], cells)
    worth = [row for row in rows if row.get('speedup_low', 0) > 1.02 and not row['name'].startswith('(')]
    if worth:
        name = worth[0]['name']
        print(f'the most is won by compiling {name}: model.{name} = smelt.compile(model.{name})')
