"""What every random program begins with: see random_programs.py."""

import collections, contextlib, dataclasses, enum, functools, itertools, math, random, typing
import torch
from torch import nn
from torch.nn import functional as F

G_INT = 2
G_FLOAT = 0.5
G_LIST = [1, 2]
G_TABLE = {'a': 1}
G_T = torch.full((1, 1), 1.5)
LOG = []

def tensor(seed, *shape, dtype=torch.float32, grad=False):
    drawn = torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 2
    return drawn.to(dtype).requires_grad_(grad)

class Box:
    made = 0
    def __init__(self, k, t=None):
        Box.made += 1
        self.k, self.x = k, 0.5
        self.items = [k, 1]
        self.table = {'a': k}
        self.t = torch.ones(1, 1) if t is None else t
    @property
    def double(self):
        return self.k * 2
    @double.setter
    def double(self, value):
        self.k = value // 2
    @classmethod
    def make(cls, k):
        return cls(k + 1)
    @staticmethod
    def clip(n):
        return max(-9, min(n, 9))
    def bump(self, by=1):
        self.k = (self.k + by) % 101
        return self.k
    def total(self, *more, scale=1):
        return (sum(self.items) + sum(more)) * scale
    def scale(self, t):
        return t * self.x + self.k
    def keep(self, t):
        self.t = t
        return self
    def __len__(self):
        return len(self.items)
    def __getitem__(self, i):
        return self.items[i]
    def __setitem__(self, i, value):
        self.items[i] = value
    def __contains__(self, n):
        return n in self.items
    def __iter__(self):
        yield from self.items
    def __add__(self, n):
        return self.k + n
    def __call__(self, n, *, step=1):
        self.k = (self.k + step) % 53
        return self.k - n
    def __bool__(self):
        return self.k % 2 == 0

class SubBox(Box):
    __slots__ = ('extra',)
    def __init__(self, k, t=None):
        super().__init__(k, t)
        self.extra = k
    def bump(self, by=1):
        self.extra += 1
        return super().bump(by) + 1
    def __getattr__(self, name):
        if name.startswith('lazy'):
            return len(name)
        raise AttributeError(name)

class Scope:
    def __init__(self, name, swallow=()):
        self.name, self.swallow = name, swallow
    def __enter__(self):
        LOG.append('enter ' + self.name)
        return self
    def __exit__(self, kind, value, trace):
        LOG.append(f'exit {self.name} {kind.__name__ if kind else None}')
        return kind is not None and issubclass(kind, self.swallow)

@contextlib.contextmanager
def scope(name, value=1):
    LOG.append('in ' + name)
    try:
        yield value + 1
    except ValueError as e:
        LOG.append(f'caught {e}')
    finally:
        LOG.append('out ' + name)

@dataclasses.dataclass(eq=False)
class Point:
    a: int
    t: torch.Tensor
    seen: list = dataclasses.field(default_factory=list)
    def moved(self, by):
        return dataclasses.replace(self, a=self.a + by)

class Pair(typing.NamedTuple):
    n: int
    t: torch.Tensor

class Color(enum.Enum):
    RED = 1
    GREEN = 2
    BLUE = 3

class Refused(Exception):
    def __init__(self, n):
        super().__init__(f'refused {n}')
        self.n = n

class Net(nn.Module):
    def __init__(self, grad):
        super().__init__()
        with torch.no_grad():
            self.linear = nn.Linear(3, 3)
            self.linear.weight.copy_(tensor(11, 3, 3))
            self.linear.bias.copy_(tensor(12, 3))
        self.requires_grad_(grad)
        self.gain = nn.Parameter(torch.full((3,), 0.5), requires_grad=grad)
        self.register_buffer('count', torch.zeros(()))
        self.layers = nn.ModuleList([nn.Tanh(), nn.ReLU()])
        self.calls = 0
        self.last = None
    def forward(self, t, flip=False):
        self.calls += 1
        if self.training:
            self.count += 1
        for layer in self.layers:
            t = layer(self.linear(t)) * self.gain
        self.last = t.detach()
        return -t if flip else t

def counting(n, start=0):
    try:
        for i in range(n):
            yield i + start
    finally:
        LOG.append('counted')

def halves(t, n):
    for _ in range(n):
        t = t * 0.5
        got = yield t
        if got is not None:
            t = t + got

def factorial(n):
    return 1 if n <= 1 else n * factorial(n - 1)

def fold(t, depth):
    return t if depth <= 0 else fold(torch.tanh(t) + depth, depth - 1)

def refuse(n):
    if n % 3 == 0:
        raise Refused(n)
    return n

def spread(first, *rest, scale=1, **named):
    LOG.append((first, rest, sorted(named)))
    return (first + sum(rest) + sum(named.values())) * scale

def traced(fn):
    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        LOG.append(fn.__name__)
        return fn(*args, **kwargs)
    return wrapper

@traced
def shifted(t, by=1):
    return t + by

def remember(value, seen=[]):
    seen.append(value)
    return len(seen)

def make_counter(start):
    count = start
    def bump(by, step=1):
        nonlocal count
        count = (count + by * step) % 1009
        return count
    return bump
