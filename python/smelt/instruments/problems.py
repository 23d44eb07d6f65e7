"""What the commands say in one line, with exit code 2."""
import os
import traceback

import torch

_NO_GPU = ('Torch not compiled with CUDA', 'Found no NVIDIA driver', 'No CUDA GPUs are available', 'CUDA driver',
           'torch.cuda.is_available() is False')


class Problem(Exception):
    """The user can do something about it; the message says what."""


def of_users_code(error, what):
    """The Problem that an exception from the user's code is."""
    text = one_line(error)
    if not torch.cuda.is_available() and any(sign in str(error) for sign in _NO_GPU):
        return Problem(f'{what} needs a GPU, and PyTorch sees none on this machine ({text})')
    if isinstance(error, torch.OutOfMemoryError):
        return Problem(f'{what} needs more memory than the device has; try a smaller --batch-sizes ({text})')
    line = _users_line(error)
    return Problem(f'{what} raised {text}' + (f' (at {line})' if line else ''))


def one_line(error):
    """The type and the first line of what an exception says."""
    return f'{type(error).__name__}: {error}'.strip().splitlines()[0].removesuffix(':')


def check_file(path, option):
    """Before any work is done: whether a file can be written there."""
    folder = os.path.dirname(path) or '.'
    why = ('it is a folder' if os.path.isdir(path) else f'there is no folder {folder}' if not os.path.isdir(folder)
           else 'permission denied' if not os.access(path if os.path.exists(path) else folder, os.W_OK) else '')
    if why:
        raise Problem(f'{option} {path} can not be written: {why}')


def whole_numbers(what, text):
    """[1, 8, 64] of '1,8,64'."""
    try:
        found = [int(part) for part in text.split(',')]
    except ValueError:
        raise Problem(f'{what}: the values are to be whole numbers with commas between, 1,8,64') from None
    if min(found) < 1:
        raise Problem(f'{what}: the values are to be whole numbers from 1 on')
    return found


def _users_line(error):
    """The innermost line that is neither PyTorch's nor smelt's."""
    own = (os.path.dirname(torch.__file__), os.path.dirname(os.path.dirname(os.path.abspath(__file__))), '<')
    frames = [f for f in traceback.extract_tb(error.__traceback__)
              if not f.filename.startswith(own) and not os.path.abspath(f.filename).startswith(own)
              and 'importlib' not in f.filename]
    return f'{os.path.relpath(frames[-1].filename)}:{frames[-1].lineno}' if frames else ''
