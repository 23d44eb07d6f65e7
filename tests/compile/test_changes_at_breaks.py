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
