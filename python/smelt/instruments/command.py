"""The command line: smelt bench, explain, verify, doctor.

Exit codes: 0, all is well; 1, a regression or a mismatch was found; 2, the command could not be carried out, and one
line on stderr says why (--debug shows the traceback).
"""
import argparse
import contextlib
import json
import sys
import warnings

from .problems import Problem, one_line

_COMMANDS = {'bench': 'bench_command', 'explain': 'explain_command', 'verify': 'verify_command',
             'doctor': 'doctor_command'}


_stdout = None  # as it was when a command began


class _Parser(argparse.ArgumentParser):
    """Says in one line what is wrong with the arguments."""

    def error(self, message):
        self.exit(2, f'smelt: {message}; see {self.prog} --help\n')


def print_json(data):
    """The result of a command with --json; a text is JSON already."""
    print(data if isinstance(data, str) else json.dumps(data, indent=2), file=_stdout or sys.stdout)


def make_parser():
    parser = _Parser(prog='smelt', description='Measure, look into, check and operate what smelt '
                                     'compiles.', epilog='smelt COMMAND --help has examples of each.')
    parser.add_argument('--version', action='store_true', help='the version of smelt and what it was built for')
    parts = parser.add_subparsers(metavar='COMMAND', dest='command')
    for name, module in _COMMANDS.items():
        _module(module).add_to(parts, name)
    return parser


def main(argv=None):
    """Runs a command; gives the exit code."""
    global _stdout
    parser = make_parser()
    arguments = parser.parse_args(argv)
    _stdout = sys.stdout
    if arguments.version:
        return _print_version()
    if arguments.command is None:
        parser.print_help()
        return 2
    if not arguments.debug:
        warnings.filterwarnings('ignore', module='torch')
    try:
        # With --json stdout is for that alone: what the user's code prints goes to stderr.
        with contextlib.redirect_stdout(sys.stderr) if arguments.json else contextlib.nullcontext():
            return _module(_COMMANDS[arguments.command]).run(arguments) or 0
    except Problem as problem:
        if arguments.debug:
            raise
        return _failed(problem)
    except SystemExit as stop:
        if arguments.debug:
            raise
        return _failed(f'{getattr(arguments, "target", None) or "the target"} ended the process: sys.exit({stop.code!r})')
    except KeyboardInterrupt:
        print('smelt: interrupted', file=sys.stderr)
        return 130
    except BrokenPipeError:
        sys.stderr.close()  # the reader has gone, as head does
        return 0
    except Exception as error:
        if arguments.debug:
            raise
        return _failed(f'{one_line(error)}. This should not happen: please report it with what --debug shows')


def _failed(text):
    print(f'smelt: {text}', file=sys.stderr)
    return 2


def _module(name):
    import importlib
    return importlib.import_module(f'.{name}', __package__)


def _print_version():
    import smelt
    from smelt import _built_for
    print(f'smelt {smelt.__version__}, built for PyTorch {_built_for.TORCH} and Python {_built_for.PYTHON}')
    return 0


def add_command(parts, name, help, examples):
    """The parser of a command, with what all of them take."""
    parser = parts.add_parser(name, help=help, description=help[0].upper() + help[1:] + '.',
                              epilog='examples:\n' + examples, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--json', action='store_true', help='the result as JSON on stdout')
    parser.add_argument('--debug', action='store_true', help='a traceback where a line would say what went wrong')
    return parser


def add_target(parser, optional=False):
    parser.add_argument('target', metavar='TARGET', nargs='?' if optional else None,
                        help='file.py:make_model or package.module:make_model, a function that returns '
                        '(model, inputs); with --inputs, the model or function itself')
    parser.add_argument('--inputs', metavar='EXPRESSION',
                        help='TARGET is the model or function itself, called with this: "torch.randn(8, 16)"; it may use '
                        'batch_size and the names of --sweep')
    parser.add_argument('--device', help='passed to make_model(device=...); with --inputs, where model and inputs go')
    parser.add_argument('--threads', type=int, help="of PyTorch's (default: its own choice)")


def load_target(arguments):
    import torch

    from .target import Target
    if arguments.threads is not None:
        if arguments.threads < 1:
            raise Problem('--threads is at least 1')
        torch.set_num_threads(arguments.threads)
    return Target(arguments.target, arguments.inputs)
