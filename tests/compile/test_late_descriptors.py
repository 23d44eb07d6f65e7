"""What a class has is a descriptor, or becomes one, by what its own class has: no later call may differ from plain Python's."""

import hostile_worlds
import pytest

import smelt

DESCRIPTORS = {
    "becomes one": ("class D: v = 2", ["D.__get__ = lambda self, o, t=None: 7", "del D.__get__"]),
    "takes precedence": ("class D:\n    def __get__(self, o, t=None): return 5", ["D.__set__ = lambda *a: None", "del D.__set__"]),
    "by deletion": ("class D:\n    def __get__(self, o, t=None): return 5", ["D.__delete__ = lambda *a: None"]),
    "no more": ("class D:\n    def __get__(self, o, t=None): return 5\n    def __set__(self, o, v): note('set')", ["del D.__set__", "del D.__get__"]),
    "of a base": ("class B: pass\nclass D(B):\n    def __get__(self, o, t=None): return 5", ["B.__set__ = lambda *a: None"]),
}
READS = {"of the object": "getattr(o, 'd')", "of the class": "C.d", "by the metaclass": "C.m", "of an object without": "bare.d", "by super": "S().d"}


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("name", DESCRIPTORS)
def test_descriptors_that_change(name, read):
    setup, changes = DESCRIPTORS[name]
    source = f"""
{setup}
class M(type): m = D()
class C(metaclass=M): d = D()
class S(C):
    @property
    def d(self): return super().d
o, bare = C(), C()
o.__dict__['d'] = 3
type.__setattr__(C, 'm', 4)
def f(x):
    value = {READS[read]}
    return x * (value if isinstance(value, int) else value.v if hasattr(value, 'v') else 9)
"""
    problem = hostile_worlds.differences(source, changes, lambda f: smelt.compile(f, backend="eager"))
    assert not problem, problem
