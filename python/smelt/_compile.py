"""smelt.compile: a callable that does what the given one does, with its tensor work compiled."""
import functools
import os
import sys
import types
import warnings
import weakref

import torch

from . import _background, _native, _self_test, _settings, _shared
from ._errors import ArgumentError, OptionError

_live = weakref.WeakSet()  # every CompiledFunction, for reset()
_said = set()  # what was warned of, once per process


def compile(model=None, *, mode='default', backend='native', dynamic=None, fullgraph=False, options=None, disable=False,
            recompile_limit=None, **unknown):
    """A callable that does what `model` does, with its tensor work compiled.

    model: a function, a method, an nn.Module, or any other callable. A compiled nn.Module is an instance of the model's
    own class over the same parameters: state_dict keys, attributes, train()/eval(), to(), hooks, saving and loading are
    as before. Without `model` the result is a decorator: ``@smelt.compile(fullgraph=True)``.

    mode: 'default', 'reduce-overhead', 'max-autotune', 'max-autotune-no-cudagraphs' or 'lite'.
    backend: 'native'; 'eager', the captured ops one by one, as a baseline for debugging; a name given to
    smelt.register_backend; or a function of (graph, example_inputs) that returns what is called in the graph's place.
    dynamic: None compiles for the sizes at hand, and a size that has changed once is a number from then on, so that one
        program is for all of them. True takes the sizes of all arguments for such numbers from the first call on, False
        none ever. Sizes 0 and 1 are programs of their own. smelt.mark_dynamic and smelt.mark_static say it of one tensor.
    fullgraph: a graph break is a smelt.BreakError that says where it is and what to do.
    options: a dict of 'background', 'freeze', 'fusion', 'max_fused_nodes', 'numerics', 'recompile_limit', 'rollback',
        'specialize' and 'verify_every', and for who looks for a fault 'disabled_passes'.
    disable: returns `model` itself, as the environment variable SMELT_DISABLE=1 does for the whole process.
    recompile_limit: the option of that name.
    """
    settings = _settings.check(mode=mode, backend=backend, dynamic=dynamic, fullgraph=fullgraph, options=options,
                               recompile_limit=recompile_limit, **unknown)
    disabled = _settings.check_disable(disable) or is_off()
    if not disabled:
        say_once(settings.notes(), stacklevel=3)

    is_decorator = model is None

    def apply(model):
        check_callable(model, 'smelt.compile')
        if not disabled:
            check_python(settings)
            say_once(settings.notes_on(model), stacklevel=3 if is_decorator else 4)
        return model if disabled else compile_with(model, settings)
    return apply if model is None else apply(model)


def is_off():
    return bool(_self_test.problems) or os.environ.get('SMELT_DISABLE', '').lower() not in ('', '0', 'false', 'no')


def other_python():
    """What to say where this Python's instructions are not known; '' where they are."""
    if _native.follows_this_python():
        return ''
    return (f'smelt.compile follows Python 3.11 and 3.12; this is {sys.version_info.major}.{sys.version_info.minor}, '
            'where everything runs as it is')


def check_python(settings):
    if not (problem := other_python()):
        return
    if settings.fullgraph:
        raise OptionError(f'fullgraph=True: {problem}')
    warnings.warn(f'smelt: {problem}', RuntimeWarning, stacklevel=4)


def say_once(notes, stacklevel):
    for note in notes:
        if note not in _said:
            _said.add(note)
            warnings.warn(f'smelt: {note}', RuntimeWarning, stacklevel=stacklevel)


def check_callable(model, api):
    if isinstance(model, type) and issubclass(model, torch.nn.Module):
        raise ArgumentError(f'{api} takes an instance of {model.__name__}, not the class; '
                            f'write model = {api}({model.__name__}(...))')
    if not callable(model) and not isinstance(model, (staticmethod, classmethod)):
        raise ArgumentError(f'{api} takes a function, a method, an nn.Module or another callable, '
                            f'not {type(model).__name__}')


def compile_with(model, settings):
    """compile() with settings that are checked."""
    model = original_of(model)
    if is_disabled(model):
        return model
    if isinstance(model, types.FunctionType):
        return _compile_function(model, model, settings)
    if isinstance(model, (staticmethod, classmethod)):
        return type(model)(compile_with(model.__func__, settings))
    if isinstance(model, types.MethodType):
        return types.MethodType(compile_with(model.__func__, settings), model.__self__)
    if isinstance(model, functools.partial):
        # Over the same dict of keywords: what is put into that later counts for both.
        partial = type(model)(model.func)
        partial.__setstate__((compile_with(model.func, settings), model.args, model.keywords, model.__dict__))
        return partial
    if isinstance(model, torch.jit.ScriptModule):
        return model  # TorchScript has compiled it
    if _is_distributed(model):
        return _around(model, compile_with(model.module, settings))
    call = original_of(type(model).__call__)
    if isinstance(call, types.FunctionType) and _keeps_its_class(model):
        return _shared.shared(model, _new(call, settings, bound=model))
    return _compile_function(_calling(model), model, settings)


def _is_distributed(model):
    """A wrapper that talks to other processes around the calls of the model in it, and computes nothing itself."""
    parallel = sys.modules.get('torch.nn.parallel.distributed')
    return parallel is not None and type(model) is parallel.DistributedDataParallel


def _around(wrapper, module):
    """The wrapper again, with `module` in it."""
    around = object.__new__(type(wrapper))
    around.__dict__.update(wrapper.__dict__)
    around.__dict__['_modules'] = {**wrapper._modules, 'module': module}
    return around


def _keeps_its_class(model):
    """The result is an object of the model's class over the same attributes, rather than a function."""
    if isinstance(model, type) or not _shared.can_share(model):
        return False
    return isinstance(model, torch.nn.Module) or (type(model).__module__ or '').split('.')[0] != 'torch'


def _calling(fn):
    """A Python function that calls `fn`, so that there is a frame to compile."""
    def call(*args, **kwargs):
        return fn(*args, **kwargs)
    return call


def _compile_function(function, original, settings):
    return functools.update_wrapper(_new(function, settings, original=original), original)


def _new(function, settings, **more):
    if settings.options.get('background'):
        _background.prepare()
    compiled = _native.CompiledFunction(function, settings=settings, **more, **settings.native())
    _live.add(compiled)
    if every := settings.options.get('verify_every'):
        from .instruments.production import check
        compiled._watch(check, every)
    return compiled


def original_of(model):
    """What `model` was compiled from; itself if it was not."""
    if isinstance(model, _native.CompiledFunction):
        return model._original
    if _shared.is_shared(model) and _shared.call_of(model) is not None:
        return _shared.original_of(model)
    return model


def is_disabled(model):
    """disable() returned it."""
    if isinstance(model, types.FunctionType):
        return _native.is_disabled(model)
    return _shared.is_shared(model) and _shared.original_of(model) is not None and _shared.call_of(model) is None


def native_of(model):
    """The CompiledFunction inside what compile() returned; None if there is none."""
    if isinstance(model, _native.CompiledFunction):
        return model
    if _shared.is_shared(model):
        return native_of(_shared.call_of(model))
    if isinstance(model, (types.MethodType, staticmethod, classmethod)):
        return native_of(model.__func__)
    if isinstance(model, functools.partial):
        return native_of(model.func)
    return None


# -- as other compilers see it
#
# torch.compile and torch.export look at what the class of a callable has as __call__. They find these functions and
# come to the code behind them, as if smelt were not there; whoever calls them by that name gets what is compiled.


def _call_of_function(self, /, *args, **kwargs):
    if torch.compiler.is_dynamo_compiling():
        return self._function(*(() if self._bound is None else (self._bound,)), *args, **kwargs)
    return self(*args, **kwargs)


def _call_of_instance(self, /, *args, **kwargs):
    if torch.compiler.is_dynamo_compiling():
        return self.__wrapped__(*args, **kwargs)
    return self(*args, **kwargs)


_native.show_as_call(_native.CompiledFunction, _call_of_function)
_native.show_as_call(_native.InstanceCall, _call_of_instance)


# -- copies and pickles


def recompile(call, original):
    """A copy of an object that was compiled to `call`, or disabled."""
    return disable(original) if call is None else compile_with(original, call._settings)


def reduce_shared(original, call):
    return (disable, (original,)) if call is None else (_rebuild, (original, call._settings.keywords()))


def reduce_function(compiled):
    """By name where the name leads to the compiled function (it was decorated), else by the original's."""
    name = getattr(compiled, '__qualname__', '')
    try:
        found = functools.reduce(getattr, name.split('.'), sys.modules[compiled.__module__])
    except (AttributeError, KeyError):
        found = None
    if found is compiled:
        return name
    return _rebuild, (compiled._original, compiled._settings.keywords())


def _rebuild(original, keywords):
    return compile(original, **keywords)


# -- what is not compiled


def disable(fn=None, recursive=True, *, reason=None):
    """A function, method, module or other callable that smelt never looks into: a compiled function that calls it
    breaks its graph there, and Python runs it, with everything it calls. `fn` itself stays as it is.

    A decorator (``@smelt.disable``, ``@smelt.disable(reason='...')``) or a function. `reason` is for the reader.
    `recursive` is taken for likeness with torch.compiler.disable: what the callable calls is never looked into.
    """
    if fn is None:
        return functools.partial(disable, recursive=recursive, reason=reason)
    check_callable(fn, 'smelt.disable')
    if is_disabled(fn):
        return fn
    if isinstance(fn, types.FunctionType):
        return _marked(_copy_of(fn))
    if isinstance(fn, (staticmethod, classmethod)):
        return type(fn)(disable(fn.__func__))
    fn = original_of(fn)
    if isinstance(fn, torch.nn.Module) and not isinstance(fn, torch.jit.ScriptModule) and _shared.can_share(fn):
        return _shared.shared(fn, None)
    return _marked(functools.update_wrapper(_calling(fn), fn))


def _copy_of(function):
    copy = types.FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__,
                              function.__closure__)
    copy.__kwdefaults__ = function.__kwdefaults__
    return functools.update_wrapper(copy, function)


def _marked(function):
    _native.mark_disabled(function)
    return function


def is_compiling():
    """True in code that smelt compiles: in each call of a compiled function alike, the first and all others, and in
    everything that it calls. False in what smelt.disable has marked, and outside."""
    return _native.is_compiling()


is_compiling._dynamo_marked_constant = True  # for torch.compile, which can't look into C code


def forget_all():
    """Drops what was compiled, everywhere. Compiled functions compile again when they are called."""
    while True:
        try:
            live = list(_live)
            break
        except RuntimeError:  # another thread compiles something
            pass
    for compiled in live:
        compiled._reset()
