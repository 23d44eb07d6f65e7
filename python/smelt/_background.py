"""Code that is made while calls go on: its threads are ended before the process is, and held up where it forks."""
import atexit
import functools
import os

from . import _native

wait = _native.background_wait  # until all code is there


@functools.cache
def prepare():
    """Before the first graph is given to such a thread."""
    atexit.register(_native.background_end)
    os.register_at_fork(before=_native.background_hold, after_in_parent=lambda: _native.background_let_go(False),
                        after_in_child=lambda: _native.background_let_go(True))
