"""options={'verify_every': n}: one call in n is checked against eager, and a function that is off goes back to eager."""
import warnings

from .. import _tree
from .difference import compare
from .problems import one_line
from .state import State, copy_of, is_plain


def check(compiled, args, kwargs):
    """In the place of a call of a CompiledFunction: the result of the call, eager's if the two differ.

    The function is called twice from one start: what it changes in tensors, modules, optimizers, lists and dicts that
    it can reach is put back in between. What it prints or writes elsewhere happens twice.
    """
    every = compiled._settings.options['verify_every']
    compiled._watch(None, 0)
    bound = compiled._bound
    try:
        state = State(compiled._function, args, kwargs)
        expected_result = compiled._function(*args, **kwargs)
        expected, changed = _kept(expected_result), state.changed()
        state.restore()
        try:
            result = compiled(*(args if bound is None else args[1:]), **kwargs)
            off = _first_off(_kept(result), expected) or _first_off_state(state.changed(), changed, state.before())
        except Exception as error:  # eager has raised nothing
            off = f'it raised {one_line(error)}'
        if off is None:
            compiled._watch(check, every)
            return result
        state.restore()
        _roll_back(compiled, off)
        return compiled._function(*args, **kwargs)
    except BaseException:
        compiled._watch(check, every)
        raise


def _kept(result):
    """Tensors as they are now, then the numbers and texts beside them."""
    tensors = []
    structure = _tree.flatten(result, tensors)
    return [*(copy_of(tensor) if is_plain(tensor) else tensor.detach() for tensor in tensors), *_tree.values_of(structure)]


def _first_off(found, expected):
    """What is off first, as a clause; None if nothing is."""
    if len(found) != len(expected):
        return f'it has {len(found)} values, and eager {len(expected)}'
    return _first_of(compare(f'output {number}', one, other) for number, (one, other) in enumerate(zip(found, expected)))


def _first_off_state(found, expected, before):
    for name in sorted(found.keys() ^ expected.keys()):
        if name not in before:
            return f'{name} is set {"in eager" if name in expected else "compiled"} alone'
    return _first_of(compare(name, found.get(name, before.get(name)), expected.get(name, before.get(name)))
                     for name in {**expected, **found})


def _first_of(differences):
    for one in differences:
        if not one.ok:
            return one.name + (f': {one.note}' if one.note else
                               f' is off by {one.max_abs:.3g} ({one.max_ulp:.0f} units in the last place)')
    return None


def _roll_back(compiled, off):
    compiled._set_stance('eager')
    code = compiled._function.__code__
    warnings.warn(f'smelt: {compiled._function.__qualname__} ({code.co_filename}:{code.co_firstlineno}) gave another result '
                  f'than eager: {off}. It is left to Python from now on; smelt.verify says what is wrong, and '
                  'smelt.stance("default", fn) switches it on again.', RuntimeWarning, stacklevel=3)
