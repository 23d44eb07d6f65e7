"""Classes, modules and exceptions that are known by identity, and change nevertheless; how iterators, keywords and sets end up.

Families of programs, each read in several ways: no call, neither the first nor a later one, may differ from plain Python's.
"""

import warnings

import hostile_worlds
import pytest

import smelt


def differs(source, changes=()):
    smelt.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return hostile_worlds.differences(source, changes, lambda f: smelt.compile(f, backend="eager"))


def check(setup, expressions, changes=()):
    body = "\ndef f(x):\n    y = x + 1\n    return y, {}\n"
    problems = [differs(setup + body.format(one), changes) for one in expressions]
    assert not any(problems), "\n".join(problems)


# What has another class from then on: what is there, how it is read, and changes.
OTHER_CLASSES = {
    "module": ("""
class Own(types.ModuleType):
    def __getattr__(self, name): note(name); return 40
class First(types.ModuleType):
    def __getattribute__(self, name): return 99 if name == 'k' else super().__getattribute__(name)
m = types.ModuleType('m')
m.k = 2
""", ["m.k", "getattr(m, 'other', 3)", "m.__dict__['k']", "vars(m).get('k')", "type(m) is Own", "m.__name__", "hasattr(m, 'other')"],
        ["m.__class__ = Own", "Own.k = property(lambda self: 60)", "Own.k = 7", "m.__class__ = First",
         "First.__getattribute__ = lambda self, name: 7", "m.__class__ = types.ModuleType"]),
    "class": ("""
class M1(type): pass
class M2(type):
    @property
    def k(cls): return 50
    def __len__(cls): return 3
    def __getattr__(cls, name): return 6
    def __call__(cls, *a): return 'made by M2'
class C(metaclass=M1): k = 3
""", ["C.k", "getattr(C, 'other', 2)", "C() == 'made by M2'", "type(C).__name__", "C.__dict__['k']", "hasattr(C, '__len__')", "vars(C)['k']"],
        ["C.__class__ = M2", "M2.k = property(lambda cls: 4)", "M2.k = 9", "del M2.__getattr__", "C.__class__ = M1",
            "M1.__call__ = lambda cls, *a: 'made by M1'", "del M1.__call__", "type.__setattr__(M1, 'other', 8)"]),
    "member": ("""
class E(enum.Enum):
    A = 1
    @property
    def p(self): return 3
class Other(enum.Enum):
    @property
    def p(self): return 8
""", ["E.A.p", "type(E.A).__name__", "isinstance(E.A, E)", "E.A.value"], ["E.A.__class__ = Other", "Other.p = property(lambda self: 1)"]),
    "abstract": ("""
class A(abc.ABC): pass
class B(A):
    def __init__(self): self.k = 2
class D(A, dict): pass
class N(A):
    def __new__(cls): return super().__new__(cls)
@dataclasses.dataclass
class P(A): k: int = 1
""", ["type(A()).__name__", "B().k", "len(D(a=1))", "type(N()).__name__", "P(2).k", "type(object.__new__(B)).__name__", "P().k"],
        [f"{name}.__abstractmethods__ = frozenset([{method}])" for method in ("'m'", "") for name in "ABDNP"]),
}


@pytest.mark.parametrize("name", OTHER_CLASSES)
def test_another_class(name):
    check(*OTHER_CLASSES[name])


# -- which handler gets an exception

HANDLERS = {
    "classes": "except A: return 'A'\n    except C: return 'C'\n    except Exception: return 'other'",
    "a tuple": "except (C, KeyError): return 'C'\n    except (ValueError, A): return 'A'\n    except Exception: return 'other'",
    "a variable": "except kinds[0]: return 'kind'\n    except Exception: return 'other'",
    "isinstance": "except Exception as e: return 'A' if isinstance(e, A) else 'C' if isinstance(e, C) else 'other'",
}


@pytest.mark.parametrize("handler", HANDLERS)
@pytest.mark.parametrize("raised", ["B('q')", "B", "D('q') from None", "made"])
def test_bases_of_exceptions(handler, raised):
    source = f"""
class A(Exception): pass
class B(A): pass
class C(Exception): pass
class D(B): pass
made = D('kept')
kinds = [A]
def g():
    try: raise {raised}
    {HANDLERS[handler]}
def f(x):
    y = x * 2
    return y, g()
"""
    changes = ["B.__bases__ = (C,)", "B.__bases__ = (Exception,)", "kinds[0] = (C, B)", "B.__bases__ = (C, A)"]
    assert not differs(source, changes)


# -- what an iterator returns at its end

RETURNED = ["x * 2", "(x, 2)", "'text'", "None", "ValueError('v')", "StopIteration(3)", "()"]
ENDS = ["next(it)", "it.__next__()", "it.send(None)", "next(it, 'default')", "list(it)", "[*it]", "step(it)",
        "operator.methodcaller('__next__')(it)", "next(delegating(it))", "next(iter(it))"]


@pytest.mark.parametrize("returned", RETURNED)
def test_a_generator_returns(returned):
    setup = f"""
def returns(x):
    yield 1
    return {returned}
def delegating(it):
    got = yield from it
    return got, 'delegated'
def step(it): return next(it)
def ends(it, advance):
    next(it)
    try: return advance(it)
    except StopIteration as e: return type(e.value).__name__, e.value, e.args
"""
    check(setup, [f"ends(returns(x), lambda it: {end})" for end in ENDS])


@pytest.mark.parametrize("arguments", ["", "'end'", "x, 2", "None"])
def test_an_iterator_of_its_own_class_ends(arguments):
    setup = f"""
class Own:
    def __init__(self, x): self.x, self.n = x, 0
    def __iter__(self): return self
    def __next__(self):
        x = self.x
        self.n += 1
        if self.n > 1: raise StopIteration({arguments})
        return self.n
    def send(self, value): return next(self)
def delegating(it):
    got = yield from it
    return got, 'delegated'
def step(it): return next(it)
def ends(it, advance):
    next(it)
    try: return advance(it)
    except StopIteration as e: return e.value, e.args
"""
    check(setup, [f"ends(Own(x), lambda it: {end})" for end in ENDS])


# -- the words of what unpacking raises

CALLS = ["g(**{'a': 1}, **{'a': 2})", "g(**5)", "g(*5)", "g(*x, *5)", "g(1, **{1: 2})", "g(1, **{'b': 1}, **{1: 2})", "{**5}", "[*5]",
         "(*5,)", "{*5}", "g(1, **Plain())", "g(1, **Keys())", "g(1, **{'a': 3})", "o.m(**{'z': 1}, **{'z': 2})", "o(**{'z': 1}, **{'z': 2})",
         "torch.add(**{'input': x}, **{'input': 2})", "dict(**{'a': 1}, **{'a': 2})", "Plain(**{'a': 1}, **{'a': 2})",
         "functools.partial(g, a=1)(**{'b': 1}, **{'b': 2})", "nn.Identity()(**{'b': 1}, **{'b': 2})", "g(**{'a': 1}, **Keys())"]


@pytest.mark.parametrize("handling", [False, True])
def test_what_unpacking_says(handling):
    setup = """
class Plain: pass
class Keys:
    def keys(self): return ['a', 1]
    def __getitem__(self, key): return key
class Other:
    def m(self, **kw): return kw
    def __call__(self, **kw): return kw
o = Other()
def g(a, **kw): return a
def said(call):
    try: return call()
    except TypeError as e: return 'type', str(e)
    except KeyError as e: return 'key', str(e)
def handling(call):
    try: raise ValueError
    except ValueError: return said(call)
"""
    check(setup, [f"{'handling' if handling else 'said'}(lambda: {call})" for call in CALLS])


# -- the order of a set that C code made

SETS = ["s ^ {2, 9}", "s | {9, 17}", "s - {1}", "s & {3, 7, 100}", "s.copy()", "set(s)", "s.symmetric_difference([9])", "s.union([33, 9])",
        "{v + 32 for v in s}", "set(list(s) + [9])", "frozenset(s) ^ {9}", "set(range(40)) - set(range(3, 37))"]


@pytest.mark.parametrize("made", SETS)
def test_sets_keep_their_order(made):
    setup = "s = {1, 2, 3}\ndef run(): return " + made + "\n"
    body = "\ndef f(x):\n    s.add(x.shape[0] + 5)\n    s.discard(1)\n    y = x * len(s)\n    return y, made()\n"
    source = setup + "def made(): return run()\n" + body + "def drive(call):\n    y, found = call(torch.ones(2, 3))\n    return y, list(found)\n"
    assert not differs(source, ["s.add(100)", "s.update(range(50, 90))", "s.clear()", "s.update([64, 8, 0])"])


# -- who is asked for an operator, and how often

REFUSING = ["o + x", "x + o", "o + np.ones(2)", "np.ones(2) + o", "o + 1", "1 + o", "o + o", "o + p", "p + o", "o + 'text'", "i + 1", "1 + i", "i + x",
            "x + i", "i + i", "o + collections.deque([1])", "o + collections.Counter('a')", "add_in_place(o, x)", "add_in_place(i, 1)",
            "add_in_place(i, x)", "operator.add(o, x)", "sum([o, x])", "o + np.float64(2)", "i + np.int64(2)", "o + fractions.Fraction(1, 2)"]


@pytest.mark.parametrize("method", ["__add__", "__radd__", "__iadd__", "__add__, __radd__", "__add__, __radd__, __iadd__"])
def test_operators_that_refuse(method):
    bodies = "".join(f"    def {one}(self, other): note('{one}', type(other).__name__); return NotImplemented\n" for one in method.split(", "))
    setup = f"""
import fractions
class C:
    k = 1
{bodies}
class P(C): pass
class I(int):
{bodies}
o, p, i = C(), P(), I(3)
def add_in_place(a, b):
    a += b
    return a
"""
    check(setup, REFUSING, ["C.__add__ = lambda self, other: 5", "I.__radd__ = lambda self, other: 6", "del C.__add__"])


# -- methods of other kinds than functions, where C code calls back

KINDS = {
    "an object that is called": "class Called:\n        def __call__(self, *a): note('called', len(a)); return C.k\n    {name} = Called()",
    "what a descriptor gives": "class Gives:\n        def __get__(self, o, t=None): note('given'); return lambda *a: C.k\n    {name} = Gives()",
    "static": "@staticmethod\n    def {name}(*a): note('static', len(a)); return C.k",
    "of the class": "@classmethod\n    def {name}(cls, *a): note('class', len(a)); return cls.k",
    "a property": "@property\n    def {name}(self):\n        note('property')\n        return lambda *a: self.k",
    "none": "{name} = None",
}
USES = {
    "__hash__": ["{2: 1}.pop(o, 7)", "{2: 1}.get(o, 7)", "o in {2: 1}", "{o}", "{2}.isdisjoint([o])", "{2: 1}.setdefault(o, 4)", "hash(o)", "hash((o, 1))",
                 "{2, 3}.discard(o)", "{(o, 1): 2}[(o, 1)]", "collections.Counter([o])[o]", "collections.OrderedDict([(o, 1)]).pop(o)", "frozenset([o]) == {o}"],
    "__torch_function__": ["torch.add(x, o)", "F.relu(o)", "torch.stack([x, o])", "x.sum(o)", "x + o", "torch.cat((x, o))"],
    "__index__": ["x[o]", "[1, 2, 3][o]", "range(o)", "torch.zeros(o)", "x.sum(o)", "operator.index(o)", "'ab' * o"],
    "__len__": ["len(o)", "bool(o)", "list(filter(None, [o])) == [o]", "[1][not o:]"],
    "__iter__": ["next(iter(o), 3)", "functools.reduce(operator.add, o, 0)", "sum(o)", "max(o)", "dict.fromkeys(o)"],
    "__eq__": ["o == 1", "1 in [o]", "[o] == [1]", "[o, 1].index(1)", "(o,) != (1,)"],
    "__call__": ["o()", "list(map(o, [1]))", "sorted([2, 1], key=o)", "functools.partial(o, 1)()"],
}


@pytest.mark.parametrize("name", USES)
@pytest.mark.parametrize("kind", KINDS)
def test_methods_of_other_kinds(kind, name):
    setup = f"""
class C:
    k = 1
    {KINDS[kind].replace("{name}", name)}
    {"__hash__ = object.__hash__" if name == "__eq__" else ""}
o = C()
"""
    changes = ["C.k = 0", f"C.{name} = lambda self, *a: {'iter([4])' if name == '__iter__' else 1}"]
    check(setup, USES[name], changes)
