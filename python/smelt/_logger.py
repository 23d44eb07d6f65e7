"""Log lines for a logger of Python's. What logs may be in the middle of a trace, where no other Python code can run: the
lines wait, and a thread of its own hands them on."""
import atexit
import sys
import threading

from . import _native

_WAIT = 0.2  # seconds
turn = threading.Lock()  # held by who takes lines
_running = None  # (thread, event that stops it, logger)


def start(logger):
    global _running
    _native.keep_log_lines(True)
    ended = threading.Event()
    thread = threading.Thread(target=_hand_on, args=(logger, ended), name='smelt-log', daemon=True)
    _running = thread, ended, logger
    thread.start()


def stop():
    """Hands on what waits, and gives the lines back to standard error."""
    global _running
    if _running is None:
        return
    thread, ended, logger = _running
    _running = None
    ended.set()
    thread.join()
    _tell(logger, 0.0)
    _native.keep_log_lines(False)


def is_running():
    return _running is not None


def _hand_on(logger, ended):
    while not ended.is_set():
        with turn:
            _tell(logger, _WAIT)


def _tell(logger, seconds):
    for category, text in _native.take_log_lines(seconds):
        try:
            logger.getChild(category).info(text.strip())
        except Exception as error:  # a broken handler stops nothing else
            sys.unraisablehook(_Unraisable(error))


class _Unraisable:
    """As sys.unraisablehook takes it."""

    err_msg, object = "smelt's log", None

    def __init__(self, error):
        self.exc_type, self.exc_value, self.exc_traceback = type(error), error, error.__traceback__


atexit.register(stop)
