"""smelt.verify: a call compiled, in eager and in fp64, from one start, and what the three have come to.

What is compared: what the function returns, the gradients of that for all leaves it can reach, and the tensors that it
changed. The state is put back after each of the calls, so nothing is changed by a verification.
"""
import dataclasses
import itertools
import json
import math

import torch

from .. import _compile, _native, _settings, _tree
from .difference import Difference, compare
from .state import State, copy_of, is_plain


@dataclasses.dataclass
class Verification:
    """`ok`, and a Difference for each output, gradient and changed tensor. bool() of it is `ok`."""

    name: str
    ok: bool
    outputs: list
    gradients: list
    changed: list
    notes: list
    settings: dict
    culprit: object = None  # a narrow.Culprit, after a mismatch

    def __bool__(self):
        return self.ok

    @property
    def rows(self):
        return [*self.outputs, *self.gradients, *self.changed]

    def json(self):
        return json.dumps(_jsonable(dataclasses.asdict(self)), indent=2, default=str, allow_nan=False)

    def __str__(self):
        from .terminal import plain_table
        lines = [f'{self.name}: {"agrees with eager" if self.ok else "DIFFERS from eager"} '
                 f'({len(self.outputs)} outputs, {len(self.gradients)} gradients, {len(self.changed)} changed tensors)']
        cells = [[row.name, f'{row.dtype}{row.shape}', f'{row.max_abs:.2e}', f'{row.max_rel:.2e}', f'{row.max_ulp:.0f}',
                  _or_dash(row.compiled_from_fp64), _or_dash(row.eager_from_fp64),
                  ('ok' if row.ok else 'OFF') + (f', {row.note}' if row.note else '')] for row in self.rows]
        lines.append(plain_table(['', 'type', 'abs', 'rel', 'ulp', 'from fp64', 'eager from fp64', ''], cells))
        lines += self.notes
        if self.culprit is not None:
            lines.append(str(self.culprit))
        return '\n'.join(lines)


def _jsonable(value):
    """JSON has no infinities: they are texts."""
    if isinstance(value, dict):
        return {key: _jsonable(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_jsonable(part) for part in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _or_dash(value):
    return '-' if value is None else f'{value:.2e}'


@dataclasses.dataclass
class Outcome:
    """What a call came to."""

    values: list     # outputs: tensors and Python values, in the order of the structure
    gradients: dict  # name -> tensor
    changed: dict    # name -> tensor


def verify_call(fn, args=(), kwargs=None, *, settings=None, bisect=True, script=None, told=lambda text: None):
    """A Verification of fn(*args, **kwargs). `fn` may be compiled already: then its settings are used. After a mismatch
    the culprit is looked for, and a script that shows it is written to `script`, or beside the temporary files."""
    kwargs = kwargs or {}
    _compile.check_callable(fn, 'smelt.verify')
    native = _compile.native_of(fn)
    original = _compile.original_of(fn)
    if settings is None:
        settings = native._settings if native is not None else _settings.check()
    settings = with_options(settings, rollback=False)
    state = State(original, args, kwargs)
    told('eager')
    eager = outcome(original, args, kwargs, state)
    notes = [f'it reaches {what}, which can not be put back: its calls may differ for that' for what in state.lost + state.advanced()]
    has_drawn = state_draws(original, args, kwargs, state)
    told('fp64 reference')
    reference, why = (None, 'it draws random numbers') if has_drawn else in_fp64(original, args, kwargs, state)
    if reference is None:
        notes.append(f'no fp64 reference: {why}')
    told('compiled')
    compiled, has_run = compiled_outcome(original, args, kwargs, settings, state)
    if not has_run:
        notes.append('nothing ran compiled: Python ran the second call too (smelt explain says why)')
    found = Verification(_name(original), True, *differences(compiled, eager, reference), notes, _shown(settings))
    found.ok = all(row.ok for row in found.rows)
    if found.ok:
        return found
    from .conditioning import spread_of
    told('how sensitive it is')
    spread = spread_of(original, args, kwargs, state, eager)
    found.outputs, found.gradients, found.changed = differences(compiled, eager, reference, spread)
    found.ok = all(row.ok for row in found.rows)
    if not found.ok and bisect:
        from .narrow import narrow
        found.culprit = narrow(original, args, kwargs, settings, state, eager, reference, spread, script, told)
    return found


def verify(fn, /, *args, **kwargs):
    """smelt.verify without options."""
    return verify_call(fn, args, kwargs)


def with_options(settings, **options):
    return dataclasses.replace(settings, options={**settings.options, **options})


def _shown(settings):
    keywords = settings.keywords()
    return keywords | {'backend': keywords['backend'] if isinstance(keywords['backend'], str)
                       else _name(keywords['backend'])}


def _name(value):
    return getattr(value, '__qualname__', None) or type(value).__name__


def outcome(call, args, kwargs, state, with_gradients=True):
    """Calls from the state, and puts it back."""
    state.restore()
    try:
        result = call(*args, **kwargs)
        tensors = []
        structure = _tree.flatten(result, tensors)
        values = [copy_of(tensor) if is_plain(tensor) else tensor.detach() for tensor in tensors]
        values += list(_tree.values_of(structure))
        # Before the gradients are asked for, which may write to buffers of hooks.
        changed = state.changed()
        return Outcome(values, gradients(tensors, state) if with_gradients else {}, changed)
    finally:
        state.restore()


def gradients(outputs, state):
    """Of a fixed weighted sum of the outputs; none where the function has run its own backward pass."""
    outputs = [tensor for tensor in outputs if tensor.requires_grad and tensor.grad_fn is not None]
    leaves = [(name, tensor) for name, tensor in zip(state.names, state.tensors) if tensor.requires_grad]
    if not outputs or not leaves:
        return {}
    generator = torch.Generator().manual_seed(0)
    weights = [torch.randn(tensor.shape, generator=generator, dtype=torch.float32).to(tensor) for tensor in outputs]
    try:
        found = torch.autograd.grad(outputs, [tensor for _, tensor in leaves], weights, allow_unused=True)
    except RuntimeError:  # the graph has been freed by the function
        return {}
    return {f'gradient of {name}': copy_of(grad) for (name, _), grad in zip(leaves, found)
            if grad is not None and is_plain(grad)}


def state_draws(call, args, kwargs, state):
    """Whether the call draws random numbers."""
    state.restore()
    try:
        call(*args, **kwargs)
        return state.has_drawn()
    finally:
        state.restore()


def compiled_outcome(original, args, kwargs, settings, state):
    """(what the call comes to when it is run compiled, whether something compiled has run)."""
    compiled = _compile.compile_with(original, settings)
    outcome(compiled, args, kwargs, state)  # compiles, forward and backward
    outcome(compiled, args, kwargs, state)  # a second variant, where the first call was another one
    before = _native.counters()['cache_hits']
    found = outcome(compiled, args, kwargs, state)
    return found, _native.counters()['cache_hits'] > before


def in_fp64(call, args, kwargs, state):
    """(the outcome with every floating-point tensor in fp64, '') or (None, why not)."""
    state.restore()
    narrow = [tensor for tensor in state.tensors
              if tensor.is_floating_point() and tensor.dtype != torch.float64 and tensor.is_leaf]
    if any(tensor.is_floating_point() and not tensor.is_leaf for tensor in state.tensors):
        return None, 'it is given tensors that are results themselves'
    before, default = [tensor.data for tensor in narrow], torch.get_default_dtype()
    grads = [tensor.grad for tensor in narrow]
    try:
        torch.set_default_dtype(torch.float64)
        for tensor in narrow:
            tensor.grad = None
            tensor.data = tensor.data.double()
        wide = State(call, args, kwargs)
        wide.names = state.names
        return outcome(call, args, kwargs, wide), ''
    except Exception as error:
        return None, f'in fp64 it raises {type(error).__name__}: {str(error).splitlines()[0]}'
    finally:
        torch.set_default_dtype(default)
        for tensor, data, grad in zip(narrow, before, grads):
            tensor.grad = None
            tensor.data = data
            tensor.grad = grad
        state.restore()


def differences(compiled, eager, reference, spread=None):
    """(of outputs, of gradients, of changed tensors)."""
    outputs = [compare(f'output {number}', one, other, wide, moves) for number, (one, other, wide, moves) in enumerate(
        zip(compiled.values, eager.values, _padded(reference), _padded(spread)))]
    if len(compiled.values) != len(eager.values):
        outputs.append(Difference('outputs', 'count', [], abs(len(compiled.values) - len(eager.values)), 0, 0, None, None,
                                  False, f'{len(compiled.values)} compiled, {len(eager.values)} in eager'))
    return (outputs, *(_of_named(*(getattr(one, kind) if one else {} for one in (compiled, eager, reference, spread)))
                       for kind in ('gradients', 'changed')))


def _padded(found):
    """The tensors among the values of an Outcome, None in the place of others and behind."""
    return itertools.chain((value if isinstance(value, torch.Tensor) else None for value in (found.values if found else ())),
                           itertools.repeat(None))


def _of_named(compiled, eager, reference, spread):
    rows = []
    for name in [*eager, *(name for name in compiled if name not in eager)]:
        if name in compiled and name in eager:
            rows.append(compare(name, compiled[name], eager[name], reference.get(name), spread.get(name)))
        else:
            rows.append(Difference(name, '', [], float('inf'), 0, 0, None, None, False,
                                   'in eager alone' if name in eager else 'compiled alone'))
    return rows
