"""smelt verify: its options and what it prints."""
from . import terminal
from .command import add_command, add_target, load_target, print_json
from .problems import Problem, check_file, of_users_code

EXAMPLES = """\
  smelt verify net.py:make_model                    outputs, gradients and changed state, against eager and fp64
  smelt verify net.py:make_model --train            of a whole training step
  smelt verify net.py:make_model --option freeze=true
  smelt verify net.py:make_model --script bad.py    where a script that shows a mismatch is written
"""


def add_to(parts, name):
    parser = add_command(parts, name, 'whether compiled results are right: against eager and an fp64 reference', EXAMPLES)
    add_target(parser)
    parser.add_argument('--mode', default='default', help='of smelt.compile')
    parser.add_argument('--backend', default='native', help='of smelt.compile')
    parser.add_argument('--option', action='append', default=[], metavar='NAME=VALUE',
                        help='of smelt.compile(options=...); may be given several times')
    parser.add_argument('--train', action='store_true', help='verify a training step: forward, backward, optimizer')
    parser.add_argument('--no-gradients', action='store_true', help='call it without recording gradients')
    parser.add_argument('--batch-size', type=int, help='passed to make_model(batch_size=...)')
    parser.add_argument('--no-bisect', action='store_true', help='after a mismatch, do not look for the culprit')
    parser.add_argument('--script', metavar='FILE', help='where the script that shows a mismatch is written')


def run(arguments):
    import torch

    from .contestants import TRAINING, Contestant, checked, make_step, parse_options
    from .verify import verify_call
    settings = checked(mode=arguments.mode, backend=arguments.backend, options=parse_options(arguments.option))
    if arguments.script:
        check_file(arguments.script, '--script')
    target = load_target(arguments)
    case = target.make(batch_size=arguments.batch_size, device=arguments.device)
    call, args, kwargs = case.model, case.args, case.kwargs
    if arguments.train:
        call, args, kwargs = make_step(case, Contestant('eager', lambda model: model), TRAINING), (), {}
    with terminal.progress(target.text) as told:
        try:
            with torch.set_grad_enabled(not arguments.no_gradients):
                found = verify_call(call, args, kwargs, settings=settings, bisect=not arguments.no_bisect,
                                    script=arguments.script, told=lambda text: told(None, text))
        except Problem:
            raise
        except Exception as error:
            raise of_users_code(error, target.text) from error
    print_json(found.json()) if arguments.json else print(found)
    return 0 if found.ok else 1
