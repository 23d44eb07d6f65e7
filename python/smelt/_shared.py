"""An object that is another one but for its __call__: what smelt.compile and smelt.disable return for an nn.Module.

It is an instance of a subclass of the object's class that has the same name, and its __dict__ is the object's own. So
parameters, buffers, hooks and attributes are the same whichever of the two they are read or set on, and every method of
the class works on both. What is its own is in two slots: the callable in the place of __call__, and the original.
"""
import abc
import copy
import functools
import struct
import types
import weakref

from ._native import InstanceCall, mark_disabled

try:
    from _abc import _abc_init
except ImportError:
    _abc_init = None


class _Shared:
    """First base of the classes made here."""

    __slots__ = ()

    def __init_subclass__(cls, **kwargs):
        """The original class's own is not told of a subclass that nobody wrote."""


class _Plain:
    pass


# class -> weak reference to the class made of it, for compiled and for disabled objects
_compiled_classes, _disabled_classes = weakref.WeakKeyDictionary(), weakref.WeakKeyDictionary()


def can_share(instance):
    """All of the object's state is in its __dict__ and its slots."""
    cls = type(instance)
    members = [member for base in cls.__mro__ for member in vars(base).values()]
    slots = sum(isinstance(member, types.MemberDescriptorType) for member in members)
    return (isinstance(getattr(instance, '__dict__', None), dict)
            and cls.__basicsize__ == _Plain.__basicsize__ + slots * struct.calcsize('P'))


def shared(original, call):
    """The object again, with `call` in the place of its __call__; None: its own, disabled."""
    cls = _class_of(type(original), _disabled_classes if call is None else _compiled_classes)
    instance = object.__new__(cls)
    object.__setattr__(instance, '__dict__', original.__dict__)
    cls._smelt_original.__set__(instance, original)
    cls._smelt_call.__set__(instance, call)
    return instance


def is_shared(value):
    return isinstance(value, _Shared)


def original_of(instance):
    """The object behind; None for one that has none, such as type(compiled)(...)."""
    try:
        return type(instance)._smelt_original.__get__(instance)
    except AttributeError:
        return None


def call_of(instance):
    try:
        return type(instance)._smelt_call.__get__(instance)
    except AttributeError:
        return None


def _class_of(base, classes):
    found = classes.get(base, lambda: None)()
    if found is None:
        found = _make_class(base)
        call = InstanceCall(found._smelt_call, base.__call__) if classes is _compiled_classes else _disabled_call(base)
        type.__setattr__(found, '__call__', call)
        classes[base] = weakref.ref(found)
    return found


def _disabled_call(base):
    def __call__(self, *args, **kwargs):
        original = original_of(self)
        return base.__call__(self if original is None else original, *args, **kwargs)
    mark_disabled(__call__)
    return __call__


def _make_class(base):
    members = {
        '__module__': base.__module__,
        '__qualname__': base.__qualname__,
        '__doc__': base.__doc__,
        '__slots__': ('_smelt_call', '_smelt_original'),
        '__class__': property(lambda self: _class_behind(self, base), _set_class),
        '__getattr__': _getattr(base),
        '__reduce_ex__': lambda self, protocol: _reduce(self, base, protocol),
        '__copy__': lambda self: _copied(self, base, copy.copy),
        '__deepcopy__': lambda self, memo: _copied(self, base, functools.partial(copy.deepcopy, memo=memo)),
    }
    if hasattr(base, '__del__'):
        members['__del__'] = lambda self: base.__del__(self) if original_of(self) is None else None
    for parent in base.__mro__:
        for name, member in vars(parent).items():
            if isinstance(member, types.MemberDescriptorType):
                members.setdefault(name, _slot(member))
    return _new_class(type(base), base.__name__, (_Shared, base), members)


def _new_class(meta, name, bases, members):
    """Without the metaclass's own code, which may count classes or want arguments."""
    try:
        cls = type.__new__(meta, name, bases, members)
    except TypeError:  # a metaclass of C
        return meta(name, bases, members)
    if issubclass(meta, abc.ABCMeta) and _abc_init is not None:
        _abc_init(cls)
    return cls


def _behind(self, base):
    """The original; for an instance without one, itself as an instance of the original's class."""
    original = original_of(self)
    if original is None:
        original = object.__new__(base)
        object.__setattr__(original, '__dict__', self.__dict__)
    return original


def _class_behind(self, base):
    original = original_of(self)
    return base if original is None else type(original)


def _set_class(self, cls):
    original = original_of(self)
    if original is None:
        raise TypeError(f"the class of a {type(self).__name__} made by the class of a compiled one can't be set")
    original.__class__ = cls


def _getattr(base):
    inherited = getattr(base, '__getattr__', None)

    def __getattr__(self, name):
        original = original_of(self)
        if original is not None:
            return getattr(original, name)
        if inherited is not None:
            return inherited(self, name)
        raise AttributeError(f'{base.__name__!r} object has no attribute {name!r}')
    return __getattr__


def _slot(member):
    """A slot of the class: the original's."""
    def owner(self):
        original = original_of(self)
        return self if original is None else original
    return property(lambda self: member.__get__(owner(self)), lambda self, value: member.__set__(owner(self), value),
                    lambda self: member.__delete__(owner(self)))


def _recompile(self, original):
    from ._compile import recompile
    return recompile(call_of(self), original)


def _reduce(self, base, protocol):
    original = original_of(self)
    if original is None:
        return _behind(self, base).__reduce_ex__(protocol)
    from ._compile import reduce_shared
    return reduce_shared(original, call_of(self))


def _copied(self, base, copied):
    original = original_of(self)
    return copied(_behind(self, base)) if original is None else _recompile(self, copied(original))
