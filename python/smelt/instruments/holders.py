"""What a function may change besides the contents of tensors, kept and put back: containers, attributes, and names that are global or
of a function around it.

It is followed as far as names lead: through its closure and its defaults to the globals and the methods that its code names. Objects
of the standard library are not looked into, containers aside: loggers, locks.
"""
import collections
import dis
import functools
import inspect
import io
import random
import sys
import types
import warnings

import torch

from .._reach import Reach

_MISSING = object()
_OF_EVERY_MODULE = frozenset(vars(torch.nn.Module()))


def reach_of(roots):
    """A Reach of the roots, what modules have besides parameters, buffers and modules (counters, lists, caches), and the methods
    that are named."""
    reach = _Reach()
    reach.walk(roots)
    classes, number, done = _Classes(reach), 0, set()
    while number < len(reach._alive):
        value = reach._alive[number]
        number += 1
        if isinstance(value, torch.nn.Module):
            for part in value.modules():
                if id(part) not in done:
                    done.add(id(part))
                    for name, held in list(part.__dict__.items()):
                        if name not in _OF_EVERY_MODULE:
                            reach.walk(held)
                    classes.add(type(part))
        elif isinstance(value, types.FunctionType):
            classes.use(facts_of(value.__code__).names)
            for held in _named(value):
                if isinstance(held, type):
                    classes.add(held)
        else:
            classes.add(type(value))
    reach.classes = classes.found
    return reach


def _is_users(thing):
    package = (getattr(thing, '__module__', None) or '').split('.')[0]
    return package == '__main__' or package not in ('torch', 'smelt', 'numpy') and package not in sys.stdlib_module_names


_LOOKED_INTO = ('builtins', 'collections', 'functools', 'types', '_thread')


class _Reach(Reach):
    def _visit(self, value):
        kind = value if isinstance(value, types.FunctionType) else type(value)
        if _is_users(kind) or (kind.__module__ or '').split('.')[0] in ('torch', *_LOOKED_INTO):
            super()._visit(value)

    def _add(self, values):
        """Of a method of a builtin class its object, the list of log.append."""
        super()._add([value.__self__ if isinstance(value, types.BuiltinFunctionType) else value for value in values])


# Methods that nobody calls in the middle of a call.
_ASIDE = {'__init_subclass__', '__class_getitem__', '__subclasshook__', '__reduce__', '__reduce_ex__', '__getstate__', '__setstate__',
          '__copy__', '__deepcopy__', '__repr__', '__str__', '__dir__', '__sizeof__', '__del__'}


class _Classes:
    """Those of what was reached: a method is walked when some code names it."""

    def __init__(self, reach):
        self.found, self._reach, self._used, self._waiting = {}, reach, set(), {}

    def add(self, kind):
        for one in kind.__mro__:
            if one in self.found or not _is_users(one):
                continue
            self.found[one] = None
            for name, member in list(vars(one).items()):
                for function in _functions_in(member):
                    if name in self._used or name == 'forward' or name.startswith('__') and name not in _ASIDE:
                        self._reach.walk(function)
                    else:
                        self._waiting.setdefault(name, []).append(function)

    def use(self, names):
        for name in names - self._used:
            self._used.add(name)
            for function in self._waiting.pop(name, ()):
                self._reach.walk(function)


def _functions_in(member):
    if isinstance(member, types.FunctionType):
        yield member
    elif isinstance(member, (staticmethod, classmethod)):
        yield from _functions_in(member.__func__)
    elif isinstance(member, property):
        for function in (member.fget, member.fset, member.fdel):
            yield from _functions_in(function)
    elif isinstance(member, functools.cached_property):
        yield from _functions_in(member.func)


def _cells(function):
    for cell in function.__closure__ or ():
        try:
            yield cell, cell.cell_contents
        except ValueError:  # not filled yet
            yield cell, _MISSING


def _named(function):
    """What is behind the names in a function's code."""
    for name in facts_of(function.__code__).names:
        yield function.__globals__.get(name)
    for _, held in _cells(function):
        yield held


_Facts = collections.namedtuple('_Facts', 'names globals attributes')  # all, and those that are set


@functools.lru_cache(maxsize=1 << 14)
def facts_of(code):
    names, set_globals, set_attributes = set(code.co_names), set(), set()
    for instruction in dis.get_instructions(code):
        if instruction.opname in ('STORE_GLOBAL', 'DELETE_GLOBAL'):
            set_globals.add(instruction.argval)
        elif instruction.opname in ('STORE_ATTR', 'DELETE_ATTR'):
            set_attributes.add(instruction.argval)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            for mine, its in zip((names, set_globals, set_attributes), facts_of(constant)):
                mine |= its
    return _Facts(names, set_globals, set_attributes)


class Holders:
    """All that holds something, with what it held when this was made. `lost` says what can't be put back."""

    def __init__(self, reach):
        self._kept, self._seen, self._iterators, self.lost = [], set(), [], []
        for value in reach._alive:
            self._keep_all_of(value)
        functions = [value for value in reach._alive if isinstance(value, types.FunctionType) and _is_users(value)]
        attributes = set().union(*(facts_of(function.__code__).attributes for function in functions))
        names, modules = {}, {}
        for function in functions:
            for cell, _ in _cells(function):
                self._keep(cell, _Cell)
            for name in facts_of(function.__code__).globals:
                names[id(function.__globals__), name] = function.__globals__
            modules |= {id(held): held for held in _named(function) if isinstance(held, types.ModuleType)}
        for held in modules.values():
            names |= {(id(vars(held)), name): vars(held) for name in attributes & vars(held).keys()}
        self._kept += [_Name(space, name) for (_, name), space in names.items()]
        self._kept += [_Class(kind, attributes) for kind in reach.classes]

    def _keep(self, value, how):
        if id(value) not in self._seen:
            self._seen.add(id(value))
            self._kept.append(how(value))

    def _keep_all_of(self, value):
        if isinstance(value, torch.nn.Module):
            for part in value.modules():
                for holder in (part.__dict__, part._parameters, part._buffers):
                    if isinstance(holder, dict):  # those of TorchScript are no dicts, and can't be changed by a call
                        self._keep(holder, _Dict)
        elif isinstance(value, torch.optim.Optimizer):
            for holder in (value.state, *value.state.values(), *value.param_groups):
                self._keep(holder, _Dict)
        elif isinstance(value, torch.Tensor):
            return
        for kind, how in _HOW.items():
            if isinstance(value, kind):
                self._keep(value, how)
        if type(value).__module__ == 'numpy' and type(value).__name__ == 'ndarray' and value.flags.writeable:
            self._keep(value, _Array)
        if hasattr(bits := getattr(value, 'bit_generator', None) or getattr(value, '_bit_generator', None), 'state'):
            self._keep(bits, _Bits)
        if hasattr(type(value), '__next__') and not isinstance(value, io.IOBase) and not _is_users(type(value)):
            self._keep_iterator(value)
        if isinstance(attributes := getattr(value, '__dict__', None), dict) and not isinstance(value, (torch.nn.Module, type)):
            self._keep(attributes, _Dict)
        for one in type(value).__mro__ if _is_users(type(value)) else ():
            slots = vars(one).get('__slots__', ())
            self._kept += [_Slot(value, name) for name in ((slots,) if isinstance(slots, str) else slots)
                           if isinstance(vars(one).get(name), types.MemberDescriptorType)]

    def _keep_iterator(self, value):
        try:
            self._iterators.append((value, _position_of(value)))
        except TypeError:
            self.lost.append(f'an iterator of type {type(value).__name__}')

    def advanced(self):
        """The iterators that stand elsewhere now: they can't be put back either."""
        return [f'an iterator of type {type(value).__name__}' for value, position in self._iterators if _position_of(value) != position]

    def restore(self):
        for kept in self._kept:
            kept.restore()


def _position_of(iterator):
    """What changes when it is advanced; a TypeError where that can't be seen."""
    if isinstance(iterator, types.GeneratorType):
        state = inspect.getgeneratorstate(iterator)
        if state in (inspect.GEN_SUSPENDED, inspect.GEN_RUNNING):
            raise TypeError('where it stands may look alike after each step')
        return state
    with warnings.catch_warnings():
        warnings.simplefilter('ignore', DeprecationWarning)
        reduced = iterator.__reduce__()
    if not isinstance(reduced, tuple):
        raise TypeError('it has no position')
    return _comparable(reduced[1:])


def _comparable(value):
    if isinstance(value, tuple):
        return tuple(_comparable(part) for part in value)
    if isinstance(value, (int, float, str, type(None))):
        return value
    if hasattr(type(value), '__next__'):
        return _position_of(value)
    return (id(value), len(value)) if isinstance(value, list) else id(value)


class _Dict:
    """By the methods of the builtin class, whatever a class derived from it has. In steps of one key, so that another thread never
    finds it empty; in one go where the order would be another one."""

    def __init__(self, holder):
        self._holder, self._kind = holder, collections.OrderedDict if isinstance(holder, collections.OrderedDict) else dict
        self._copy = {key: dict.__getitem__(holder, key) for key in self._keys()}

    def _keys(self):
        return list(self._kind.keys(self._holder))

    def restore(self):
        kind, holder, copy = self._kind, self._holder, self._copy
        for key in self._keys():
            if key not in copy:
                kind.__delitem__(holder, key)
        for key, value in copy.items():
            if dict.get(holder, key, _MISSING) is not value:
                kind.__setitem__(holder, key, value)
        if any(one is not other for one, other in zip(self._keys(), copy)):
            kind.clear(holder)
            for key, value in copy.items():
                kind.__setitem__(holder, key, value)


class _Sequence:
    """A list or a deque."""

    def __init__(self, holder):
        self._holder, self._copy = holder, list(holder)

    def restore(self):
        holder, copy = self._holder, self._copy
        if len(holder) == len(copy) and all(one is other for one, other in zip(holder, copy)):
            return
        if isinstance(holder, list):
            holder[:] = copy
        else:
            holder.clear()
            holder.extend(copy)


class _Set:
    def __init__(self, holder):
        self._holder, self._copy = holder, set(holder)

    def restore(self):
        if self._holder != self._copy:
            self._holder.clear()
            self._holder.update(self._copy)


class _Bytes:
    def __init__(self, holder):
        self._holder, self._copy = holder, bytes(holder)

    def restore(self):
        if self._holder != self._copy:
            self._holder[:] = self._copy


class _Array:
    """Of NumPy."""

    def __init__(self, holder):
        self._holder, self._copy = holder, holder.copy()

    def restore(self):
        self._holder[...] = self._copy


class _Draws:
    """A generator of random numbers of Python's."""

    def __init__(self, generator):
        self._generator, self._state = generator, generator.getstate()

    def restore(self):
        self._generator.setstate(self._state)


class _Bits:
    """One of NumPy's."""

    def __init__(self, generator):
        self._generator, self._state = generator, generator.state

    def restore(self):
        self._generator.state = self._state


class _Cell:
    """Of a closure."""

    def __init__(self, cell):
        self._cell, self._contents = cell, self._now(cell)

    @staticmethod
    def _now(cell):
        try:
            return cell.cell_contents
        except ValueError:  # not filled
            return _MISSING

    def restore(self):
        if self._now(self._cell) is self._contents:
            return
        if self._contents is _MISSING:
            del self._cell.cell_contents
        else:
            self._cell.cell_contents = self._contents


class _Name:
    """A global name, of the function's module or of another one."""

    def __init__(self, names, name):
        self._names, self._name, self._value = names, name, names.get(name, _MISSING)

    def restore(self):
        if self._value is _MISSING:
            self._names.pop(self._name, None)
        elif self._names.get(self._name, _MISSING) is not self._value:
            self._names[self._name] = self._value


class _Class:
    """Attributes of a class, of those that some code sets."""

    def __init__(self, kind, attributes):
        self._kind, self._attributes, self._copy = kind, attributes, self._found(kind, attributes)

    @staticmethod
    def _found(kind, attributes):
        return {name: vars(kind)[name] for name in attributes & vars(kind).keys() if not hasattr(vars(kind)[name], '__set__')}

    def restore(self):
        now = self._found(self._kind, self._attributes)
        for name in now.keys() - self._copy.keys():
            type.__delattr__(self._kind, name)
        for name, value in self._copy.items():
            if now.get(name, _MISSING) is not value:
                type.__setattr__(self._kind, name, value)


class _Slot:
    def __init__(self, value, name):
        self._of, self._name, self._value = value, name, getattr(value, name, _MISSING)

    def restore(self):
        now = getattr(self._of, self._name, _MISSING)
        if now is self._value:
            return
        if self._value is _MISSING:
            object.__delattr__(self._of, self._name)
        else:
            object.__setattr__(self._of, self._name, self._value)


# Of classes derived from these too, where they change themselves by the same methods.
_HOW = {dict: _Dict, list: _Sequence, collections.deque: _Sequence, set: _Set, bytearray: _Bytes, random.Random: _Draws}
