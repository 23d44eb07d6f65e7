"""What smelt raises."""
from ._native import Error, InternalError, RecordError

for _error in (Error, InternalError, RecordError):
    _error.__module__ = 'smelt'
Error.__doc__ = 'A wrong use of smelt; the message says what, where and what to do.'
RecordError.__doc__ = "The function can't be written down; it can run eagerly. The message says why, and where in your code."
InternalError.__doc__ = 'A broken invariant of smelt itself: please report it.'
