"""Random programs on tensors whose sizes differ from call to call: shapes are read, computed with, compared and handed to ops.

A program is the text of a function of two tensors of n rows and m columns. What it does at some sizes may be an error; then it
must be the same kind of error compiled.
"""
import random

import torch

import smelt

SIZES = (2, 3, 4, 5, 6, 7, 8, 12, 16)

_MATRIX = (  # of two matrices x and y of the same shape and the size names in scope: a matrix of n rows
    'torch.tanh({x}) + {y}', '{x} * {y}.shape[0]', '{x} / {x}.size(-1)', '({x} - {y}.mean(0)).relu()',
    '{x}.softmax({d})', '{x}.cumsum({d})', '{x} + torch.arange({x}.shape[1])', '{x} * torch.arange({x}.shape[0])[:, None]',
    'torch.where({x} > {y}, {x}, {y})', '{x}.flip(0)', '{x} - {x}.amax({d}, keepdim=True)',
    '{x}.view(-1).view({x}.shape)', '{x}.reshape({x}.shape[0] * {x}.shape[1]).view({x}.shape[0], -1)',
    '{x} @ ({y}.t() @ {y}) / {x}.numel()', 'F.layer_norm({x}, {x}.shape[1:])', '{x} + torch.ones({x}.shape[0], 1)',
    '{x}.t().contiguous().t() * 2', '{x}.clone().add_({y})', '{x}.expand(2, *{x}.shape).sum(0)',
    '{x} * (1 / {x}.shape[0]) + len({y})', '{x}[torch.arange({x}.shape[0])]', '{x}.index_select(0, torch.arange({x}.size(0)))',
    'torch.cat([{x}[:1], {x}[1:]])', 'F.pad({x}, (1, 1))[:, 1:-1]', '{x}.roll(1, 0)', 'torch.zeros({x}.shape) + {x}',
    '{x}.sort({d}).values', '{x}.unsqueeze(1).repeat(1, 2, 1).sum(1)', '{x}.masked_fill(torch.ones({x}.shape[0], {x}.shape[1]).triu() > 0, 0.5)',
    '{x}.new_full({x}.shape, {x}.shape[0]) - {y}', '{x} * max({x}.shape[0], 4)', '{x} + min({x}.shape)',
    '{x}.chunk(2, 1)[0].sum() + {x}', 'torch.stack([{x}, {y}], 1).view({x}.shape[0], 2, -1).mean(1)',
    '{x}[:, : {x}.shape[1] // 2].sum(1, keepdim=True) + {y}', '{x}[: {x}.shape[0]] - {y}[-{y}.shape[0]:]',
    '{x}[{x}.shape[0] - 1] + {x}', '{x}[{x}.shape[0] // 2] * {y}', '{x}.roll({x}.shape[0] // 2, 0)',
    '{x}.t()[{x}.shape[1] - 1][:, None] - {y}', 'Box({x}).scaled({y})', '{x} * Box({y}).rows + Box({x}).columns',
)
_WRITES = ('{new}[: {k}] = {x}.shape[0]', '{new}[: {new}.shape[0] // 2] += {new}[{new}.shape[0] - {new}.shape[0] // 2:]',
           '{new}[{new}.shape[0] - 1] = {x}.shape[1]', '{new}[: {k}] += {new}[{new}.shape[0] - {k}:]', '{new}[:, : {k}] = {x}.shape[0]')
_GUARDS = ('{x}.shape[0] > {k}', '{x}.shape[0] % 2 == 0', '{x}.shape == {y}.shape', 'len({x}) <= {k}', '{x}.numel() > {k} * 3',
           '{x}.shape[0] == {x}.shape[1]', '{x}.size(0) - {x}.size(1) < {k}')
_RESULTS = ('{x}', '({x}, {y}.sum())', '({x}.sum(0), {x}.shape, {y}.shape[0] * 2)', '{x}.mean()', '[{x}, list({x}.shape)]', '({x} * 2, {x}.shape[1:])')


class Box:
    """Sizes in the fields of an object."""

    def __init__(self, x):
        self.rows, self.columns = x.shape
        self.both = (self.rows, self.columns)

    def scaled(self, y):
        return y.reshape(self.both) * self.rows + torch.ones(self.both)


def program(seed):
    """The text of a function f(a, b)."""
    chance = random.Random(seed)
    names, lines = ['a', 'b'], []

    def fill(text):
        return text.format(x=chance.choice(names), y=chance.choice(names), d=chance.choice((0, 1)), k=chance.randrange(2, 9))

    for i in range(chance.randrange(2, 8)):
        new = f't{i}'
        if chance.random() < 0.2:
            lines += [f'    if {fill(chance.choice(_GUARDS))}:', f'        {new} = {fill(chance.choice(_MATRIX))}', '    else:',
                      f'        {new} = {fill(chance.choice(_MATRIX))}']
        elif chance.random() < 0.1:
            lines.append(f'    {new} = {chance.choice(names)}.clone()')
            lines.append('    ' + chance.choice(_WRITES).format(new=new, x=chance.choice(names), k=chance.randrange(1, 4)))
        else:
            lines.append(f'    {new} = {fill(chance.choice(_MATRIX))}')
        names.append(new)
    names = names[-2:]
    return '\n'.join(['def f(a, b):', *lines, f'    return {fill(chance.choice(_RESULTS))}'])


def sizes(seed, count=5):
    """Rows and columns of each call: 0 and 1 come too, and most often columns stay."""
    chance = random.Random(seed ^ 0x5EED)
    columns = chance.choice(SIZES)
    calls = []
    for i in range(count):
        rows = chance.choice((0, 1)) if chance.random() < 0.15 else chance.choice(SIZES)
        calls.append((rows, columns if chance.random() < 0.8 else chance.choice(SIZES)))
    return calls


def _run(function, inputs):
    try:
        return function(*(x.clone() for x in inputs)), None
    except Exception as error:
        return None, type(error)


def _same(found, wanted):
    if isinstance(wanted, torch.Tensor):
        return (isinstance(found, torch.Tensor) and found.shape == wanted.shape and found.dtype == wanted.dtype
                and torch.allclose(found, wanted, rtol=1e-4, atol=1e-4, equal_nan=True))
    if isinstance(wanted, (list, tuple)):
        return type(found) is type(wanted) and len(found) == len(wanted) and all(map(_same, found, wanted))
    return type(found) is type(wanted) and found == wanted


def check(seed, **settings):
    """What differs, as text; '' if nothing does."""
    text = program(seed)
    scope = {'torch': torch, 'F': torch.nn.functional, 'Box': Box}
    exec(compile(text, f'<program {seed}>', 'exec'), scope)
    compiled = smelt.compile(scope['f'], **settings)
    torch.manual_seed(seed)
    with torch.no_grad():
        for rows, columns in sizes(seed):
            inputs = [torch.randn(rows, columns), torch.randn(rows, columns)]
            wanted, error = _run(scope['f'], inputs)
            found, other = _run(compiled, inputs)
            if error is not other or not (error or _same(found, wanted)):
                return f'{text}\n# at {rows} x {columns}: {error} {wanted}\n# compiled: {other} {found}'
    return ''
