"""smelt doctor: its options and its list."""
import dataclasses

from . import terminal
from .command import add_command, print_json

EXAMPLES = """\
  smelt doctor               what is here and what is missing, with a remedy for each
  smelt doctor --json        the same for a bug report
  smelt doctor --no-smoke    without compiling a small model
"""


def add_to(parts, name):
    parser = add_command(parts, name, 'whether smelt can do its work here: versions, hardware, libraries, a smoke test',
                         EXAMPLES)
    parser.add_argument('--no-smoke', action='store_true', help='do not compile a small model')


def run(arguments):
    from .doctor import BAD, examine
    with terminal.progress('smoke test'):
        found = list(examine(smoke=not arguments.no_smoke))
    if arguments.json:
        print_json([dataclasses.asdict(finding) for finding in found])
    else:
        width = max(len(finding.name) for finding in found)
        for finding in found:
            print(f'{finding.state:<8}{finding.name:<{width}}  {finding.text}')
            if finding.remedy:
                print(f'{"":<8}{"":<{width}}  -> {finding.remedy}')
    return 1 if any(finding.state == BAD for finding in found) else 0
