"""smelt explain: its options and what it prints."""
import dataclasses
import json

from . import terminal
from .command import add_command, add_target, load_target
from .problems import Problem, of_users_code

EXAMPLES = """\
  smelt explain net.py:make_model                       graphs, breaks, recompiles, kernels, advice
  smelt explain net.py:make_model --html report.html    all of it as one page that needs no network
  smelt explain net.py:make_model --trace trace.json    the time line of a call for Perfetto
  smelt explain net.py:make_model --train               of a training step, compiled as a whole
"""


def add_to(parts, name):
    parser = add_command(parts, name, 'what smelt made of a model: graphs, breaks and why, kernels, times, advice', EXAMPLES)
    add_target(parser)
    parser.add_argument('--mode', default='default', help='of smelt.compile')
    parser.add_argument('--backend', default='native', help='of smelt.compile')
    parser.add_argument('--option', action='append', default=[], metavar='NAME=VALUE',
                        help='of smelt.compile(options=...); may be given several times')
    parser.add_argument('--batch-size', type=int, help='passed to make_model(batch_size=...)')
    parser.add_argument('--train', action='store_true', help='explain a training step, compiled as a whole')
    parser.add_argument('--gradients', action='store_true', help='record gradients in the call (default: it is inference)')
    parser.add_argument('--html', metavar='FILE', help='a page with everything')
    parser.add_argument('--trace', metavar='FILE', help='the time line, as Perfetto and chrome://tracing read it')


def run(arguments):
    import torch

    from .contestants import TRAINING, Contestant, _checked, make_step, parse_options
    from .inspection import chrome_trace, inspect
    settings = _checked(mode=arguments.mode, backend=arguments.backend, options=parse_options(arguments.option))
    target = load_target(arguments)
    case = target.make(batch_size=arguments.batch_size, device=arguments.device)
    call, args, kwargs = case.model, case.args, case.kwargs
    if arguments.train:
        call, args, kwargs = make_step(case, Contestant('eager', lambda model: model), TRAINING), (), {}
    settings = dataclasses.replace(settings, options={'rollback': False, **settings.options})
    with terminal.progress(target.text):
        try:
            with torch.set_grad_enabled(arguments.train or arguments.gradients):
                data = inspect(call, settings, args, kwargs)
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
        print(json.dumps(data, indent=2))
    else:
        _show(data)
    return 0


def _write(path, text):
    try:
        with open(path, 'w') as file:
            file.write(text)
    except OSError as error:
        raise Problem(f'{path} can not be written: {error.strerror}') from error


def _show(data):
    print(data['text'])
    print(f'\ntimes: eager {terminal.seconds(data["eager_seconds"])}, compiled '
          f'{terminal.seconds(data["compiled_seconds"])}, first call {terminal.seconds(data["first_call"])}')
    if data['shares']:
        parts = {'kernels': "smelt's kernels", 'pytorch': "PyTorch's ops", 'between': 'between them', 'python': 'Python and guards'}
        print('a profiled call: ' + ', '.join(f'{text} {terminal.seconds(data["shares"][name])}' for name, text in parts.items()))
    stages = sorted(data['stages'], key=lambda row: -row['seconds'])[:6]
    if stages:
        print('compiling: ' + ', '.join(f'{row["name"]} {terminal.seconds(row["seconds"])}' for row in stages))
    if data['kernels']:
        print()
        terminal.table(['kernel', 'ops', 'runs', 'time', 'bytes', 'flops', 'of bandwidth'],
                       [[row['name'], str(len(row['ops'])), str(row['runs']), terminal.seconds(row['seconds']),
                         terminal.bytes_(row['bytes']), f'{row["flops"]:.3g}',
                         f'{100 * row["of_machine"]:.0f} %' if 'of_machine' in row else '-'] for row in data['kernels']])
    for row in data['calls']:
        print(f'{row["op"]}: {row["why"]}')
    for row in data['boundaries']:
        print(f'{row["before"]} and {row["after"]} are two kernels: {row["why"]}')
    if data['advice']:
        print('\nadvice, what may win most first')
        for row in data['advice']:
            print(f'  {row["text"]}')
