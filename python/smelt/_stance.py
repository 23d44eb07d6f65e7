"""smelt.stance: what compiled functions do from now on; a service is switched to eager while it runs, and back."""
import torch

from . import _native
from ._compile import native_of
from ._errors import ArgumentError, OptionError

STANCES = ('default', 'eager', 'fail_on_recompile', 'eager_on_recompile')


class Stance:
    """A stance that has been taken. As a context manager, or by restore(), what was before comes back."""

    def __init__(self, name, functions):
        self.name = name
        self._functions = functions
        if functions is None:
            self._before = _native.process_stance()
            _native.set_process_stance(name)
        else:
            self._before = [function._stance() for function in functions]
            for function in functions:
                function._set_stance('as_process' if name == 'default' else name)

    def restore(self):
        if self._functions is None:
            _native.set_process_stance(self._before)
        else:
            for function, before in zip(self._functions, self._before):
                function._set_stance(before)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.restore()

    def __repr__(self):
        return f'<smelt.stance {self.name!r}>'


def stance(name=None, fn=None):
    """Takes a stance, for the process or for one compiled function or model. As a context manager: for the block.

    'default': what fits nothing compiled is compiled; of one function: as the process has it.
    'eager': Python runs compiled functions; what was compiled is kept.
    'fail_on_recompile': what is compiled is used, and a call that fits nothing compiled is a smelt.RecompileError.
    'eager_on_recompile': what is compiled is used, and Python runs what fits nothing compiled.

    `fn`: what smelt.compile returned, or a module with such parts. Without a name, the stance that is taken is returned.
    A function that is called inside of another compiled one is part of that: the outer one's stance counts.
    """
    functions = None if fn is None else _functions_of(fn)
    if name is None:
        found = _native.process_stance() if functions is None else functions[0]._stance()
        return 'default' if found == 'as_process' else found
    if name not in STANCES:
        raise OptionError(f'smelt.stance has no {name!r}; there are {", ".join(map(repr, STANCES))}')
    return Stance(name, functions)


def _functions_of(fn):
    found = [fn, *(fn.modules() if isinstance(fn, torch.nn.Module) else ())]
    found = [native for native in map(native_of, found) if native is not None]
    if not found:
        raise ArgumentError(f'smelt.stance takes what smelt.compile returned, or a module with such parts, not {fn!r}')
    return list({id(native): native for native in found}.values())
