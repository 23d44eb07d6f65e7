"""Sizes in the fields of objects that the compiled code makes: they stay numbers of the program."""
import collections
import copy
import dataclasses
import operator
import types
import typing

import pytest
import torch

import smelt

STAYS = {'rollback': False}
BACKENDS = ('eager', 'native')


def agree(found, wanted):
    if isinstance(wanted, torch.Tensor):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    elif isinstance(wanted, (tuple, list)):
        assert type(found) is type(wanted) and len(found) == len(wanted)
        for one, other in zip(found, wanted):
            agree(one, other)
    elif isinstance(wanted, (int, float, str, dict)):
        assert found == wanted and type(found) is type(wanted)
    else:
        assert type(found) is type(wanted)
        fields = getattr(type(wanted), '__slots__', None) or list(vars(wanted))
        for name in fields:
            agree(getattr(found, name), getattr(wanted, name))


def sweep(function, limit, backend='native'):
    smelt.reset()
    compiled = smelt.compile(function, options=STAYS, backend=backend)
    for n, m in ((4, 6), (7, 6), (9, 5), (31, 8), (5, 5), (6, 31), (7, 6)):
        x = torch.randn(n, m)
        agree(compiled(x), function(x))
    assert smelt.stats()['segments'] <= limit, smelt.explain(compiled)(x).recompiles


class Plain:
    def __init__(self, rows, columns):
        self.rows, self.columns = rows, columns
        self.both = (rows, columns)
        self.half = columns / 2

    def area(self):
        return self.rows * self.columns


class Slots:
    __slots__ = ('rows', 'columns')

    def __init__(self, rows, columns):
        self.rows = rows
        self.columns = columns


@dataclasses.dataclass
class Data:
    rows: int
    columns: int
    more: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True, order=True)
class Frozen:
    rows: int
    columns: int


Named = collections.namedtuple('Named', 'rows columns')


class Typed(typing.NamedTuple):
    rows: int
    columns: int = 3

    def area(self):
        return self.rows * self.columns


def plain(x):
    p = Plain(*x.shape)
    return x.view(p.area()) * p.rows, torch.zeros(p.both), x * p.half, p


def slots(x):
    p = Slots(*x.shape)
    return torch.zeros(p.rows, p.columns + 1) + p.rows, p


def data(x):
    p = Data(*x.shape)
    p.more.append(p.rows)
    p.rows += 1
    return torch.zeros(p.rows, p.columns), x * p.rows, p


def frozen(x):
    p = Frozen(*x.shape)
    return x.reshape(p.columns, p.rows), p.rows + 1, p


def named(x):
    p = Named(*x.shape)
    rows, columns = p
    return x.view(p.rows * p.columns), torch.zeros(rows, 2), torch.ones(p[0]), p[1], p


def typed(x):
    p, q = Typed(x.shape[0]), Typed(*x.shape)
    return torch.zeros(p.area()), p.columns, q, q.area()


def nested(x):
    p = Plain(*x.shape)
    q = Data(p, [p.rows])
    q.rows.rows += 2
    return torch.zeros(q.rows.rows), q.columns[0] * x


def by_name(x):
    p = Plain(*x.shape)
    setattr(p, 'rows', getattr(p, 'rows') + 1)
    p.__setattr__('columns', operator.attrgetter('columns')(p) + 1)
    object.__setattr__(p, 'more', p.rows)
    q = copy.copy(p)
    return torch.zeros(p.rows, p.columns), p.more * x, q.rows


@pytest.mark.parametrize('backend', BACKENDS)
@pytest.mark.parametrize('function', [plain, slots, data, frozen, named, typed, nested], ids=lambda f: f.__name__)
def test_sizes_in_fields_stay_numbers(function, backend):
    sweep(function, 3, backend)


def compares(x):
    p, q = Data(*x.shape), Data(x.shape[0], 5)
    return (x + 1 if p == q else x - 1), p == q, Frozen(*x.shape) < Frozen(7, 7), Named(*x.shape) == (7, 6)


def shown(x):
    p = Plain(*x.shape)
    return x * 2, repr(Data(*x.shape)), str(vars(p)), dict(p.__dict__)


def by_dict(x):
    p = Plain(*x.shape)
    fields = p.__dict__
    p.rows = p.rows + 1
    fields['columns'] = x.shape[1] * 2
    p.__dict__.update(more=x.shape[0])
    del p.half
    return torch.zeros(p.rows, p.columns), p.more, dict(fields)


def taken_away(x):
    p = Plain(*x.shape)
    del p.rows
    p.rows = 3
    p.columns = x.shape[0]
    p.columns = 2
    return torch.zeros(p.rows, p.columns), p


def as_dicts(x):
    p = Data(*x.shape)
    q = dataclasses.replace(p, rows=x.shape[0] + 1)
    return torch.zeros(q.rows), dataclasses.asdict(p), dataclasses.astuple(q), Named(*x.shape)._asdict()


def copied(x):
    p = Plain(*x.shape)
    q, r = copy.copy(p), copy.deepcopy(p)
    p.rows = 1
    return torch.zeros(q.rows, r.columns), q, r, p


def of_tuples(x):
    p = Typed(*x.shape)
    return torch.ones(p), p._replace(rows=p.columns), p + (1,), p[::-1], tuple(p), hash(p) == hash(tuple(p)), p.index(x.shape[1])


def simple(x):
    p = types.SimpleNamespace(rows=x.shape[0], columns=x.shape[1])
    p.rows += 1
    return torch.zeros(p.rows, p.columns), p


def kept(x):
    made = [Plain(n, n + 1) for n in x.shape]
    return torch.zeros(made[0].rows, made[-1].columns), made


class Computed:
    """What is asked of it is computed of what it was given."""

    def __init__(self, rows):
        self._rows = rows

    @property
    def rows(self):
        return self._rows

    @rows.setter
    def rows(self, value):
        self._rows = value * 2

    def __getattr__(self, name):
        return self._rows + len(name)

    def __len__(self):
        return self._rows

    def __iter__(self):
        yield self._rows
        yield 2

    def __eq__(self, other):
        return self._rows == other

    def __bool__(self):
        return self._rows > 7

    def __index__(self):
        return self._rows

    def __hash__(self):
        return hash(self._rows)


def computed(x):
    p = Computed(x.shape[0])
    p.rows = p.rows + 1
    return torch.zeros(p.rows), p.other, len(p), list(p), p == 16, bool(p), max(p), sum(p)


def from_c(x):
    p = Computed(x.shape[0])
    return x * 2, sorted([p, 3], key=len) if False else [len(q) for q in (p,)], {p: 1}[p], list(map(len, [p])), operator.index(p)


def raised(x):
    p = Plain(*x.shape)
    try:
        if p.rows > 7:
            raise ValueError(p)
    except ValueError as error:
        return x - error.args[0].rows, error.args[0]
    return x + p.rows, p


@pytest.mark.parametrize('backend', BACKENDS)
@pytest.mark.parametrize('function', [compares, shown, by_dict, by_name, taken_away, as_dicts, copied, of_tuples, simple, kept, computed, from_c, raised],
                         ids=lambda f: f.__name__)
def test_whoever_reads_a_field_sees_what_is_there(function, backend):
    sweep(function, 32, backend)


def test_an_object_that_outlives_the_call():
    kept = []

    @smelt.compile(options=STAYS)
    def function(x):
        p = Plain(*x.shape)
        kept.append(p)
        return x * p.rows

    for n in (4, 7, 9, 31):
        function(torch.randn(n, 6))
    assert [(p.rows, p.columns, p.both, p.half) for p in kept] == [(n, 6, (n, 6), 3.0) for n in (4, 7, 9, 31)]
    assert smelt.stats()['segments'] <= 3


@dataclasses.dataclass
class Output(collections.OrderedDict):
    """A dict with fields, which looks at its fields when it is made."""
    hidden: torch.Tensor = None
    cache: object = None

    def __post_init__(self):
        self.is_small = all(self.__dict__.get(field.name) is None for field in dataclasses.fields(self)[1:])
        for field in dataclasses.fields(self):
            self[field.name] = getattr(self, field.name)

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        super().__setattr__(key, value)


class Row(list):
    pass


class Cache:
    """What it has to say decides nothing."""


def made_with_fields(x, cache):
    out = Output(x * 2, cache)
    row = Row([cache, x])
    row.cache = cache
    return out['hidden'] + 1, out.is_small, out.cache, row.__dict__['cache'], len(vars(row))


@pytest.mark.parametrize('backend', BACKENDS)
def test_who_reads_the_dict_of_an_object_does_not_depend_on_all_that_is_in_it(backend):
    """The one that a call was given is another one in the next call."""
    smelt.reset()
    compiled = smelt.compile(made_with_fields, options=STAYS, backend=backend)
    for _ in range(4):
        x, cache = torch.randn(3, 4), Cache()
        found, wanted = compiled(x, cache), made_with_fields(x, cache)
        agree(found[:2], wanted[:2])
        assert found[2] is cache and found[3] is cache and found[4] == 1
    assert smelt.stats()['segments'] == 1, smelt.explain(compiled)(x, cache).recompiles


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.rows = x.shape[0]
        return x * ctx.__dict__['rows'] + vars(ctx)['rows']

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.rows


def through_context(x):
    return Twice.apply(x) + 1


def through_dict_of_dict(x):
    out = Output(x, x.shape[0])
    out.rows = x.shape[1]
    fields = out.__dict__
    return torch.zeros(fields['rows'], fields['cache']) + out.cache, dict(fields)['rows']


@pytest.mark.parametrize('backend', BACKENDS)
@pytest.mark.parametrize('function', [through_context, through_dict_of_dict], ids=lambda f: f.__name__)
def test_numbers_that_are_read_from_the_dict_of_an_object(function, backend):
    sweep(function, 32, backend)
