"""What a graph depends on and the code behind it changes: the class that was looked at, its bases and special methods, a
function's code. Also what has to be there to be deleted, and arguments that do not fit until a default is changed."""

import hostile_worlds
import pytest

import smelt

CLASSES = """
class A:
    k = 1
    def m(self): return 1
class B:
    k = 2
    def m(self): return 2
o = A()
class P: pass
class Q(Exception): pass
class R(Exception): pass
class S(Q): pass
class L(list): pass
l = L([1])
class D(dict): pass
d = D(a=1)
class N(nn.Module):
    def forward(self, x): return x + 1
class M(nn.Module):
    def forward(self, x): return x + 2
net = N()
class T(torch.Tensor): pass
weight = torch.ones(2)
def g(): return 1
def h(): return 2
c1, c2 = g.__code__, h.__code__
class Shown:
    def __str__(self):
        o.__class__ = B
        return 'shown'
    def __format__(self, how):
        o.__class__ = B
        return 'shown'
class Compared(float):
    def __lt__(self, other):
        o.__class__ = B
        return False
heap = [Compared(1.0), Compared(2.0)]
class Loader(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith('_'): raise AttributeError(name)
        o.__class__ = B
        return 3
sys.modules['loader_of_b'] = Loader('loader_of_b')
def restore(): sys.modules.pop('loader_of_b', None)
def caught():
    try: raise S()
    except R: return 1
    except Q: return 2
def matched(v):
    match v:
        case P(): return 1
    return 2
"""

# What is read first, and what is changed then.
CHANGED = [
    ("o.k, type(o).__name__, isinstance(o, A)", "o.__class__ = B if type(o) is A else A"),
    ("type(o)", "setattr(o, '__class__', B if type(o) is A else A)"),
    ("o.m()", "object.__setattr__(o, '__class__', B if type(o) is A else A)"),
    ("net(x)", "net.__class__ = M if type(net) is N else N"),
    ("type(weight)", "weight.__class__ = T if type(weight) is torch.Tensor else torch.Tensor"),
    ("g()", "g.__code__ = c2 if g.__code__ is c1 else c1"),
    ("o.m()", "A.m.__code__ = B.m.__code__"),
    ("bool(o)", "A.__len__ = lambda s: 0"),
    ("o == 1", "A.__eq__ = lambda s, t: True"),
    ("o.k", "A.__getattribute__ = lambda s, n: 7"),
    ("getattr(o, 'other', 0)", "A.__getattr__ = lambda s, n: 7"),
    ("setattr(o, 'k', 2)", "A.__setattr__ = lambda s, n, v: note(n)"),
    ("len(l)", "L.__len__ = lambda s: 5"),
    ("sum(l)", "L.__iter__ = lambda s: iter([7])"),
    ("1 in l", "L.__contains__ = lambda s, t: False"),
    ("d['a']", "D.__getitem__ = lambda s, k: 20"),
    ("isinstance(S(), R)", "S.__bases__ = (R,)"),
    ("caught()", "S.__bases__ = (R,)"),
    ("matched(net)", "N.__bases__ = (P, nn.Module)"),
    ("type(o).__name__", "print(Shown(), file=io.StringIO())"),
    ("type(o).__name__", "f'{Shown():3}'"),
    ("type(o).__name__", "heapq.heapify(heap)"),
    ("type(o).__name__", "from loader_of_b import anything"),
    ("type(o).__name__", "exec('o.__class__ = B', globals())"),
]


@pytest.mark.parametrize('read, change', CHANGED)
def test_a_change_by_what_ends_the_graph(read, change):
    source = f"import io\n{CLASSES}\ndef f(x):\n    r = {read}\n    y = x * 2\n    {change}\n    return y, r, {read}\n"
    assert not hostile_worlds.differences(source, [], lambda f: smelt.compile(f, backend='eager'))


PRESENT = """
class A: pass
class F: __slots__ = ('k',)
o, s, g, table, ordered = A(), F(), 1, {'k': 1}, collections.OrderedDict(k=1)
o.k = s.k = 1
class Key:
    def __init__(self, k): self.k = k
    def __hash__(self): return 1
    def __eq__(self, other): return self.k == other.k
keys = {Key(1): 1, Key(2): 2}
model = nn.Linear(2, 2)
weight = torch.zeros(2)
def state(): return weight
"""


@pytest.mark.parametrize('deleted, put_back', [
    ("del o.k", "o.k = 2"), ("delattr(o, 'k')", "o.k = 2"), ("del s.k", "s.k = 2"), ("del table['k']", "table['k'] = 2"),
    ("del ordered['k']", "ordered['k'] = 2"), ("del keys[Key(1)]", "keys[Key(1)] = 3"), ("del g", "g = 2"),
    ("del model.bias", "model.bias = None"), ("del vars(o)['k']", "o.k = 2"), ("object.__delattr__(o, 'k')", "o.k = 2"),
])
def test_what_is_deleted_has_to_be_there(deleted, put_back):
    """Else the error comes first, and no tensor has been changed."""
    source = f"{PRESENT}\ndef f(x):\n    global g\n    {deleted}\n    weight.add_(1)\n    return x + weight.sum()\n"
    assert not hostile_worlds.differences(source, [put_back, "0"], lambda f: smelt.compile(f, backend='eager'), calls=2)


UNFIT = """
def g(a, b=1): return a
def k(a, *, b=1): return a
def later(a, b=1): yield a
class A:
    def __init__(self, a=1): pass
    def m(self, a, b=1): return a
    def __add__(self, other, b=1): return 5
    def __getitem__(self, at, b=1): return 6
    def __len__(self, b=1): return 7
    def __bool__(self, b=1): return True
    def __lt__(self, other, b=1): return True
    def __call__(self, b=1): return 8
    @property
    def p(self, b=1): return 9
class N(nn.Module):
    def forward(self, x, b=2): return x * b
net = N()
o = object.__new__(A)
functions = [g, later, N.forward, A.p.fget, *[v for v in vars(A).values() if isinstance(v, types.FunctionType)]]
defaults = [one.__defaults__ for one in functions]
def spoil():
    k.__kwdefaults__ = None
    for one in functions: one.__defaults__ = None
def mend():
    k.__kwdefaults__ = {'b': 2}
    for one, known in zip(functions, defaults): one.__defaults__ = known
spoil()
"""


@pytest.mark.parametrize('call', [
    "g(1)", "k(1)", "list(later(1))", "A() and 1", "o.m(1)", "o + 1", "o[0]", "len(o)", "bool(o)", "o < 1", "o()", "o.p", "net(x)",
    "sum(map(g, [1, 2]))", "sorted([1, 2], key=g)", "max([1, 2], key=k)", "list(filter(g, [1]))", "functools.reduce(o.m, [1, 2])",
    "min([o, o]) is o", "functools.partial(g, 1)()", "[one() for one in [o]]",
])
def test_arguments_that_do_not_fit_yet(call):
    source = (f"{UNFIT}\ndef f(x):\n    try:\n        r = {call}\n    except TypeError:\n        r = 'unfit'\n    return x * 2, r\n")
    assert not hostile_worlds.differences(source, ["mend()", "spoil()"], lambda f: smelt.compile(f, backend='eager'))


FACTORY = """
class Base:
    def m(self, x): return x
def derived(base, n):
    class K(base):
        def m(self, x):
            {between}
            return super().m(x) + n
    return K
first = derived(Base, 1)
second = derived(first, 2)
third = derived(second, 3)
o = third()
def f(x): return o.m(x)
"""


@pytest.mark.parametrize('between', ["note(n)", "print(n, file=io.StringIO())", "pass"])
def test_methods_of_one_code_in_several_classes(between):
    """What super() asks is in a cell: the code, and the class of the object, are the same in all of them."""
    changes = ["third.m.__closure__[0].cell_contents = second", "third.m.__closure__[0].cell_contents = third", "o = second()"]
    source = "import io\n" + FACTORY.format(between=between)
    assert not hostile_worlds.differences(source, changes, lambda f: smelt.compile(f, backend='eager'))


METHODS = """
class A:
    def m(self): return 1
a, b = A(), A()
table, other = {}, {}
held = [a.m]
"""


@pytest.mark.parametrize('read', [
    "a.m == b.m", "a.m != b.m", "a.m in [b.m]", "(a.m, 1) == (b.m, 1)", "{a.m: 1}.get(b.m)", "b.m in {a.m}", "b.m in held",
    "hash(a.m) == hash(b.m)", "table.get == other.get", "table.get in [other.get]", "{table.get: 1}.get(other.get)",
    "[b.m].count(a.m)", "{'k': a.m} == {'k': b.m}", "{(a.m, 1): 2}.get((b.m, 1))", "functools.partial(a.m).func == functools.partial(b.m).func",
])
def test_methods_are_equal_if_their_objects_are_the_same(read):
    source = f"{METHODS}\ndef f(x): return x * 2, {read}\n"
    changes = ["b = a; other = table", "b = A(); other = {}"]
    assert not hostile_worlds.differences(source, changes, lambda f: smelt.compile(f, backend='eager'))


CALLED_BACK = """
class K:
    def __init__(self, k): self.k = k
    def __lt__(self, other, *, sign=1): return self.k * sign < other.k * sign
    def __repr__(self, *, text='R'): return text
    def __index__(self, *, i=1): return i
def key(a, b=1, *, c=2): return a * b * c
def hook(g, *, m=1.0): return g * m
items = [K(1), K(2)]
p = torch.ones(2, 3, requires_grad=True)
def hooked(x):
    p.grad = None
    y = p * x
    y.register_hook(hook)
    y.sum().backward()
    return p.grad
"""


@pytest.mark.parametrize('read, function, name', [
    ("[q.k for q in sorted(items)]", "K.__lt__", "sign"), ("str(items)", "K.__repr__", "text"), ("x[:, K(1)]", "K.__index__", "i"),
    ("sorted([3, 1, 2], key=key)", "key", "c"), ("max([3, 1, 2], key=key)", "key", "c"), ("hooked(x)", "hook", "m"),
])
def test_keyword_defaults_of_what_c_calls(read, function, name):
    value = {"text": "'other'", "i": "0"}.get(name, "-2")
    changes = [f"{function}.__kwdefaults__[{name!r}] = {value}", f"{function}.__kwdefaults__ = {{{name!r}: {value}}}"]
    source = f"{CALLED_BACK}\ndef f(x): return x * 2, {read}\n"
    assert not hostile_worlds.differences(source, changes, lambda f: smelt.compile(f, backend='eager'))


GENERATORS = """
def made_by(n, kept):
    def g(x):
        {inside}
        for i in range(n):
            kept.append(i)
            yield x * n
    return g
first = made_by(2, log)
"""


@pytest.mark.parametrize('inside', ["print(n, file=io.StringIO())", "pass"])
@pytest.mark.parametrize('use', ["[*first(x)]", "next(first(x))", "sum(first(x))", "first(x)", "zip(first(x), first(x))", "(y for y in first(x))"])
def test_generators_of_functions_of_one_code(use, inside):
    """A cached call makes the generator by the function that is there, not by the one that was there."""
    source = (f"import io\n{GENERATORS.format(inside=inside)}\ndef f(x):\n    return {use}\n"
              "def drive(call):\n    result = call(torch.ones(2))\n"
              "    return list(result) if hasattr(result, '__next__') else result\n")
    changes = ["first = made_by(1, log)", "first = made_by(3, log)"]
    assert not hostile_worlds.differences(source, changes, lambda f: smelt.compile(f, backend='eager'))


@pytest.mark.parametrize('read', [
    "table[(o, 1)]", "table.get((o, 1))", "(o, 1) in table", "{(a, 1): 2}.get((o, 1), 3)", "len({(a, 1), (o, 1)})", "table.pop((o, 1))",
    "table.setdefault((o, 2), len(table))", "table[Pair(o, 1)]", "nested[(o, (1, (o,)))]",
])
def test_objects_in_tuples_as_keys(read):
    source = ("class A: pass\na, b = A(), A()\no = a\nPair = collections.namedtuple('Pair', 'first second')\n"
              "table, nested = {}, {(a, (1, (a,))): 5, (b, (1, (b,))): 6}\n"
              f"def f(x): return x * 2, {read}\ndef drive(call):\n    table.update({{(a, 1): 5, (b, 1): 6}})\n"
              "    return call(torch.ones(2))\n")
    assert not hostile_worlds.differences(source, ["o = b", "o = A(); table[(o, 1)] = 7; nested[(o, (1, (o,)))] = 8", "o = a"],
                                          lambda f: smelt.compile(f, backend='eager'))
