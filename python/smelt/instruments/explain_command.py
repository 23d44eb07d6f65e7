"""smelt explain: its options and what it prints."""
import dataclasses
import sys

from . import terminal
from .command import add_command, add_target, load_target, print_json
from .log_lines import by_stage
from .problems import Problem, check_file, of_users_code, whole_numbers

EXAMPLES = """\
  smelt explain net.py:make_model                       graphs, breaks, recompiles, kernels, advice
  smelt explain net.py:make_model --html report.html    all of it as one page that needs no network
  smelt explain net.py:make_model --trace trace.json    the time line of a call for Perfetto
  smelt explain net.py:make_model --train               of a training step, compiled as a whole
  smelt explain net.py:make_model --batch-sizes 8,16    and what other sizes compile again
"""


def add_to(parts, name):
    parser = add_command(parts, name, 'what smelt made of a model: graphs, breaks and why, kernels, times, advice', EXAMPLES)
    add_target(parser)
    parser.add_argument('--mode', default='default', help='of smelt.compile')
    parser.add_argument('--backend', default='native', help='of smelt.compile')
    parser.add_argument('--option', action='append', default=[], metavar='NAME=VALUE',
                        help='of smelt.compile(options=...); may be given several times')
    parser.add_argument('--batch-size', type=int, help='passed to make_model(batch_size=...)')
    parser.add_argument('--batch-sizes', metavar='N,N,...', help='the first is explained; the others are called as well, and '
                        'what they compile again is told')
    parser.add_argument('--train', action='store_true', help='explain a training step, compiled as a whole')
    parser.add_argument('--gradients', action='store_true', help='record gradients in the call (default: it is inference)')
    parser.add_argument('--html', metavar='FILE', help='a page with everything')
    parser.add_argument('--trace', metavar='FILE', help='the time line, as Perfetto and chrome://tracing read it')


def run(arguments):
    import torch

    from .contestants import TRAINING, Contestant, checked, make_step, parse_options
    from .inspection import inspect
    from .timeline import chrome_trace
    settings = checked(mode=arguments.mode, backend=arguments.backend, options=parse_options(arguments.option))
    for path, option in ((arguments.html, '--html'), (arguments.trace, '--trace')):
        if path:
            check_file(path, option)
    sizes = whole_numbers('--batch-sizes', arguments.batch_sizes) if arguments.batch_sizes else [arguments.batch_size]
    target = load_target(arguments)
    case = target.make(batch_size=sizes[0], device=arguments.device)
    call, args, kwargs = case.model, case.args, case.kwargs
    if arguments.train:
        call, args, kwargs = make_step(case, Contestant('eager', lambda model: model), TRAINING), (), {}
    others = [] if arguments.train else [target.make(batch_size=size, device=arguments.device) for size in sizes[1:]]
    settings = dataclasses.replace(settings, options={'rollback': False, **settings.options})
    with terminal.progress(target.text, 1.0) as told:
        try:
            with torch.set_grad_enabled(arguments.train or arguments.gradients):
                earlier = _called_with(call, settings, [case, *others]) if others else None
                data = inspect(call, settings, args, kwargs, earlier, told)
        except Problem:
            raise
        except Exception as error:
            raise of_users_code(error, target.text) from error
    data['target'] = target.text
    if arguments.trace:
        _write(arguments.trace, chrome_trace(data))
    if arguments.html:
        from .page import page_of
        _write(arguments.html, page_of(data))
    if arguments.json:
        print_json(data)
    else:
        _show(data)
    return 0


def _called_with(call, settings, cases):
    """A Report of one compiled function after calls with the inputs of each case."""
    from .. import _compile, _explain
    compiled = _compile.compile_with(call, settings)
    for case in cases:
        compiled(*case.args, **case.kwargs)
    return _explain._report(compiled, (call, cases[0].args, cases[0].kwargs))


def _write(path, text):
    try:
        with open(path, 'w') as file:
            file.write(text)
    except OSError as error:
        raise Problem(f'{path} can not be written: {error.strerror}') from error


def _show(data):
    print(data['text'])
    _show_source(data['sources'])
    others = [reason for reason in data['recompiles'] if reason not in data['text']]
    if others:
        print('\nrecompiles of the calls with other sizes', *others, sep='\n  ')
    print(f'\ntimes: eager {terminal.seconds(data["eager_seconds"])}, compiled '
          f'{terminal.seconds(data["compiled_seconds"])}, first call {terminal.seconds(data["first_call"])}')
    if data['shares']:
        parts = {'kernels': "smelt's kernels", 'pytorch': "PyTorch's ops", 'between': 'between them', 'python': 'Python and guards'}
        print('a profiled call: ' + ', '.join(f'{text} {terminal.seconds(data["shares"][name])}' for name, text in parts.items()))
    for device, rows in data['memory'].items():
        print(f'memory that a call takes on the {device}: {terminal.bytes_(max(0, *(live for _, live in rows), 0))} at its peak')
    if data['device_seconds']:
        print(f'the GPU is busy for {terminal.seconds(data["device_seconds"])} of {terminal.seconds(data["profiled_seconds"])}')
    if stages := by_stage(data['stages']):
        print('compiling: ' + ', '.join(f'{name} {terminal.seconds(took)}' for name, took in stages.items()))
    if data['kernels']:
        print()
        terminal.table(['kernel', 'ops', 'runs', 'time', 'bytes', 'flops', 'of bandwidth'],
                       [[row['name'], str(len(row['ops'])), str(row['runs']), terminal.seconds(row['seconds']),
                         terminal.bytes_(row['bytes']), f'{row["flops"]:.3g}',
                         f'{100 * row["of_machine"]:.0f} %' if 'of_machine' in row else '-'] for row in data['kernels']])
        print(f'of bandwidth: against a copy of as many bytes; a large one moves {data["bandwidth"] / 1e9:.1f} GB/s here')
    for row in data['calls']:
        print(f'{row["op"]}: {row["why"]}')
    for row in data['boundaries']:
        print(f'{row["before"]} and {row["after"]} are two kernels: {row["why"]}')
    if data['advice']:
        print('\nadvice, what may win most first')
        for row in data['advice']:
            print(f'  {row["text"]}')


_MARKS = {'compiled': ('+', '32'), 'break': ('!', '31'), 'eager': ('-', '33'), '': (' ', '')}


def _show_source(sources):
    """The user's lines, marked and coloured by what became of them; of libraries the lines that are not compiled, with their
    neighbours."""
    if not sources:
        return
    print('\nsource: + compiled, ! a graph ends, - run by Python')
    colours, whole = sys.stdout.isatty(), []
    for file in sources:
        for function in file['functions']:
            is_librarys = 'site-packages' in file['file'] or 'dist-packages' in file['file']
            shown = _not_compiled(function['lines']) if is_librarys else function['lines']
            if not shown:
                whole.append(function['name'])
                continue
            print(f'  {function["name"]}, {file["file"]}')
            before = None
            for line in shown:
                if before is not None and line['number'] > before + 1:
                    print('         ...')
                before = line['number']
                mark, colour = _MARKS[line['state']]
                text = f'  {mark} {line["number"]:>5}  {line["text"]}'
                print(f'\033[{colour}m{text}\033[0m' if colours and colour else text)
    if whole:
        names = ', '.join(whole[:_MOST_NAMES]) + (f' and {len(whole) - _MOST_NAMES} more' if len(whole) > _MOST_NAMES else '')
        print(f'  compiled as a whole, of libraries: {names} (--html shows them)')


_MOST_NAMES = 12
_NEIGHBOURS = 2


def _not_compiled(lines):
    """Those at which a graph ends or that Python runs, and some around them."""
    at = [number for number, line in enumerate(lines) if line['state'] in ('break', 'eager')]
    return [line for number, line in enumerate(lines) if any(abs(number - other) <= _NEIGHBOURS for other in at)]
