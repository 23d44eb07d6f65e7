"""What smelt raises."""
from ._native import BreakError, Error, InternalError, RecordError


class OptionError(Error, ValueError):
    """A mode, back end or option that smelt does not know; the message lists those it does."""


class ArgumentError(Error, TypeError):
    """An argument of a kind that the function does not take."""


class SizeError(Error):
    """A dimension that smelt.mark_dynamic was told of is fixed by the program."""


class RecompileError(Error):
    """A call fits nothing that is compiled, under smelt.stance('fail_on_recompile')."""


for _error in (ArgumentError, BreakError, Error, InternalError, OptionError, RecompileError, RecordError, SizeError):
    _error.__module__ = 'smelt'
Error.__doc__ = 'A wrong use of smelt; the message says what, where and what to do.'
RecordError.__doc__ = "The function can't be written down; it can run eagerly. The message says why, and where in your code."
BreakError.__doc__ = 'A graph break under fullgraph=True. The message says why, where in your code, and what to do.'
InternalError.__doc__ = 'A broken invariant of smelt itself: please report it.'
