"""The command line: help, exit codes, one clear line for what can not be done."""
import os
import subprocess
import sys

import pytest
import torch

COMMANDS = ('bench', 'explain', 'verify', 'doctor')


def smelt_process(*arguments, **more):
    return subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, text=True, **more)


def test_import_loads_no_instrument():
    loaded = smelt_process('-c', 'import smelt, sys; print(*sys.modules)').stdout.split()
    assert 'smelt' in loaded
    for name in ('smelt.instruments', 'rich', 'matplotlib', 'sqlite3'):
        assert name not in loaded
    before = set(smelt_process('-c', 'import torch, sys; print(*sys.modules)').stdout.split())
    assert {name.split('.')[0] for name in set(loaded) - before} <= {'smelt'}


def test_python_m_smelt(models, tmp_path):
    done = smelt_process('-m', 'smelt', 'bench', f'{models.name}:make_model', '--rounds', 10, '--json', cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert '"label": "smelt"' in done.stdout and done.stderr == ''
    done = smelt_process('-m', 'smelt', 'bench', 'not_there.py:make_model', cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (2, '', 'smelt: there is no file not_there.py\n')
    done = smelt_process('-m', 'smelt', '--version')
    assert done.returncode == 0 and done.stdout.startswith('smelt 0.')


@pytest.mark.parametrize('command', COMMANDS)
def test_help_has_examples(command, smelt_command, capsys):
    with pytest.raises(SystemExit) as stop:
        smelt_command(command, '--help')
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert 'examples:' in text and f'smelt {command}' in text and '--json' in text and '--debug' in text


def test_no_command_is_help(smelt_command):
    code, out, _ = smelt_command()
    assert code == 2 and all(command in out for command in COMMANDS)


PROBLEMS = {
    'nothing': 'is no target',
    'no_such_file.py:make_model': 'there is no file no_such_file.py',
    'no.such.module:make_model': 'there is no module no.such.module',
    '{models}:not_there': 'has no not_there; it has Net, make_model',
    '{models}:NUMBER': 'is a int, not a function',
    '{models}:make_broken': 'raised ValueError: no weights (at ',
    '{models}:make_calls_that_raise': 'mat1 and mat2 shapes cannot be multiplied',
    '{models}:make_nothing': 'is to return (model, inputs) or a dict',
}


@pytest.mark.parametrize('command', ('bench', 'explain', 'verify'))
@pytest.mark.parametrize('target', PROBLEMS)
def test_problems_are_one_line(command, target, models, smelt_command):
    code, out, err = smelt_command(command, target.format(models=models))
    assert (code, out) == (2, '')
    assert err.startswith('smelt: ') and err.count('\n') == 1 and 'Traceback' not in err
    assert PROBLEMS[target] in err


@pytest.mark.skipif(torch.cuda.is_available(), reason='this machine has a GPU')
@pytest.mark.parametrize('command', ('bench', 'explain', 'verify'))
def test_a_model_that_needs_a_gpu(command, models, smelt_command):
    code, _, err = smelt_command(command, f'{models}:make_on_a_gpu')
    assert code == 2 and 'needs a GPU, and PyTorch sees none on this machine' in err and err.count('\n') == 1


def test_a_file_that_raises_when_it_is_loaded(tmp_path, smelt_command):
    path = tmp_path / 'fails_to_load.py'
    path.write_text('import torch\n1 / 0\n')
    code, _, err = smelt_command('bench', f'{path}:make_model')
    assert code == 2 and 'ZeroDivisionError' in err and f'{os.path.basename(path)}:2' in err


def test_debug_shows_the_traceback(models, smelt_command):
    with pytest.raises(Exception) as raised:
        smelt_command('bench', f'{models}:make_broken', '--debug')
    assert isinstance(raised.value.__cause__, ValueError)


BAD_ARGUMENTS = {
    '--batch-sizes=1,x': 'whole numbers',
    '--mode=fastest': 'has no mode',
    '--option=nothing=1': 'has no option',
    '--option=freeze': 'name=value',
    '--sweep=width': 'whole numbers',
    '--sweep=width=8': 'takes no width',
    '--peer=jax': 'there is no peer',
    '--plot=out.txt': 'is to end with',
    '--device=cpu': 'takes no device',
    '--check=last': 'has no run of',
    '--check=missing.json': 'can not be read',
    '--threads=0': 'at least 1',
}


@pytest.mark.parametrize('argument', BAD_ARGUMENTS)
def test_bad_arguments_of_bench(argument, models, smelt_command):
    code, _, err = smelt_command('bench', f'{models}:make_model', argument)
    assert code == 2 and BAD_ARGUMENTS[argument] in err and err.count('\n') == 1
