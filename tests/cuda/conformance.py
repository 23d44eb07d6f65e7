"""Runs suites of conformance cases on a GPU: opinfo and models as they are, inductor and dynamo with CUDA as the default device.

    ./dev python tests/cuda/conformance.py FOLDER [--suites opinfo,models] [--shard I/N] [--limit N] [--workers N]
        [--max-seconds S] [--pytorch DIR] [--json DIR]

FOLDER has the suites: scripts opinfo.py, inductor.py, dynamo.py, models.py, each with the options --compiler, --cases, --shard, --limit,
--workers, --max-seconds and --json. Nothing of it is copied. What fails with smelt is run again without any compiler: what fails then as
well is the case's own fault on this machine, and is counted apart. The exit status is 1 if a case fails with smelt alone.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

SUITES = ('opinfo', 'models', 'inductor', 'dynamo')
ON_A_DEVICE = ('opinfo', 'models')  # they have an environment variable for it
BAD = ('failed', 'crashed', 'timeout')
_DEFAULT_DEVICE = "import torch\ntorch.set_default_device('cuda')\n"


def run(arguments, suite, compiler, more, work):
    """The results of one suite, case by case."""
    found = work / f'{suite}-{compiler}.json'
    environment = dict(os.environ, CONFORMANCE_DEVICE='cuda')
    if suite not in ON_A_DEVICE:
        (work / 'sitecustomize.py').write_text(_DEFAULT_DEVICE)
        environment['PYTHONPATH'] = os.pathsep.join([str(work), environment.get('PYTHONPATH', '')])
        more = [*more, '--pytorch', arguments.pytorch]
    command = [sys.executable, str(arguments.folder / f'{suite}.py'), '--compiler', compiler, '--json', str(found), '--show', '0',
               '--workers', str(arguments.workers), *more]
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=False)
    return json.loads(found.read_text())['results'] if found.exists() else None


def check(arguments, suite, work):
    """How many cases fail with smelt alone."""
    chosen = [word for name in ('shard', 'limit', 'max_seconds') if (value := getattr(arguments, name)) is not None
              for word in ('--' + name.replace('_', '-'), str(value))]
    results = run(arguments, suite, 'smelt.compile', chosen, work)
    if results is None:
        print(f'{suite}: it could not be run')
        return 1
    bad = {row['id']: row for row in results if row['status'] in BAD}
    without = {}
    if bad:
        cases = work / 'cases'
        cases.write_text('\n'.join(bad))
        without = {row['id']: row['status'] for row in run(arguments, suite, 'none', ['--cases', str(cases)], work) or ()}
    mine = sorted(name for name in bad if without.get(name) not in BAD)
    passed = sum(row['status'] == 'passed' for row in results)
    print(f'{suite}: {passed} passed, {len(mine)} fail with smelt alone, {len(bad) - len(mine)} without it too, '
          f'{len(results) - passed - len(bad)} skipped')
    for name in mine:
        print(f"  {bad[name]['status']:8s} {name}: {str(bad[name].get('reason', ''))[:200]}")
    if arguments.json:
        arguments.json.mkdir(parents=True, exist_ok=True)
        (arguments.json / f'{suite}.json').write_text(json.dumps({'results': results, 'smelt_alone': mine}, indent=1))
    return len(mine)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('folder', type=pathlib.Path)
    parser.add_argument('--suites', default='opinfo,models')
    parser.add_argument('--shard')
    parser.add_argument('--limit', type=int)
    parser.add_argument('--max-seconds', type=float)
    parser.add_argument('--workers', type=int, default=4)
    parser.add_argument('--pytorch', help="folder with PyTorch's tests, for inductor and dynamo")
    parser.add_argument('--json', type=pathlib.Path, help='a folder for the results, case by case')
    arguments = parser.parse_args()
    suites = arguments.suites.split(',')
    if unknown := set(suites) - set(SUITES):
        parser.error(f'there is no suite {", ".join(sorted(unknown))}; there are {", ".join(SUITES)}')
    if not arguments.pytorch and set(suites) - set(ON_A_DEVICE):
        parser.error('inductor and dynamo take --pytorch')
    arguments.folder = arguments.folder.resolve()
    with tempfile.TemporaryDirectory() as work:
        return min(1, sum(check(arguments, suite, pathlib.Path(work)) for suite in suites))


if __name__ == '__main__':
    sys.exit(main())
