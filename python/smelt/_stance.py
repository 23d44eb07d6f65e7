"""smelt.stance: what compiled functions do from now on; a service is switched to eager while it runs, and back."""
import threading
import weakref

import torch

from . import _native
from ._compile import native_of
from ._errors import ArgumentError, OptionError

STANCES = ('default', 'eager', 'fail_on_recompile', 'eager_on_recompile')


_lock = threading.RLock()  # a Stance may be dropped while one is taken
_of_function = weakref.WeakKeyDictionary()


class _Taken:
    """The stances that were taken of one thing, of which the last one counts. Blocks of several threads need not end in the order in which
    they began: each takes away its own."""

    def __init__(self, get, put):
        self._get, self._put, self._base, self._entries = get, put, None, []

    def take(self, stance):
        self._forget()
        if not self._entries:
            self._base = self._get()
        self._entries.append((stance.name, weakref.ref(stance)))
        self._set()

    def give_back(self, stance):
        """With it goes what was taken later and can't be given back any more."""
        places = [place for place, (_, of) in enumerate(self._entries) if of() is stance]
        if places:
            place, = places
            self._entries[place:] = [entry for entry in self._entries[place + 1:] if entry[1]() is not None]
            self._set()

    def settle(self, name):
        """For good, whatever has been taken before."""
        self._base, self._entries = name, []
        self._set()

    def _set(self):
        self._put(self._entries[-1][0] if self._entries else self._base)

    def _forget(self):
        """Of those that nobody can give back any more: the first ones count as what was there before, and of a row the last."""
        while self._entries and self._entries[0][1]() is None:
            self._base = self._entries.pop(0)[0]
            if not self._entries:
                self._set()
        self._entries = [entry for entry, after in zip(self._entries, [*self._entries[1:], None])
                         if after is None or entry[1]() is not None or after[1]() is not None]


_of_process = _Taken(_native.process_stance, _native.set_process_stance)


def taken_of(function):
    """Of a CompiledFunction."""
    if function not in _of_function:
        weak = weakref.ref(function)  # which is not kept alive by its own entry

        def put(name):
            weak()._set_stance('as_process' if name == 'default' else name)
        _of_function[function] = _Taken(lambda: weak()._stance(), put)
    return _of_function[function]


class Stance:
    """A stance that has been taken. As a context manager, or by restore(), what was before comes back."""

    def __init__(self, name, functions):
        self.name = name
        with _lock:
            self._taken = [_of_process] if functions is None else [taken_of(function) for function in functions]
            for taken in self._taken:
                taken.take(self)

    def restore(self):
        with _lock:
            for taken in self._taken:
                taken.give_back(self)

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
    Where several are taken, by nested blocks or by threads, the one that was taken last and is not given back counts.
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
