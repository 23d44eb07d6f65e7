"""Random programs that read all kinds of things, and random changes of what they have read.

generate(seed) gives a world for hostile_worlds.py: the source of a module with a function `f`, and statements that change
one thing each that the program can reach: an attribute, a class, a base, a default, a cell, an item, a hook, a switch of
PyTorch's. Whoever wants more to be tried adds a part to World: what it defines, how it is read, and how it is changed.

    ./dev python tests/compile/random_mutations.py 17           the program of a seed, and where it differs
    ./dev python tests/compile/random_mutations.py 0 500        many
"""

import random
import re
import sys

import torch

import hostile_worlds

NUMBERS = ["0", "1", "2", "3", "5", "-1", "0.5", "2.0", "1.5", "True"]


class World:
    """What a program is made of so far: definitions, expressions that give numbers, statements that change something."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.parts = []      # source
        self.readers = []    # functions of a depth that give an expression for a number
        self.tensors = []    # expressions over y that give a tensor
        self.effects = []    # statements
        self.changes = []    # functions that give a statement
        self.state = []      # expressions for what is compared after each call
        self.restores = []   # statements
        self.count = 0

    def name(self, prefix):
        self.count += 1
        return f"{prefix}{self.count}"

    def number(self):
        return self.random.choice(NUMBERS)

    def small(self):
        return str(self.random.randint(0, 4))

    def chance(self, of):
        return self.random.random() < of

    def pick(self, choices):
        return self.random.choice(choices)

    def add(self, source):
        self.parts.append(source)

    def read(self, *expressions):
        for expression in expressions:
            self.readers.append(expression if callable(expression) else lambda depth, text=expression: text)

    def change(self, *statements):
        for statement in statements:
            self.changes.append(statement if callable(statement) else lambda text=statement: text)

    def value(self, depth=2):
        """An expression for a number."""
        if depth == 0 or self.chance(0.1):
            return self.number()
        return self.pick(self.readers)(depth)

    def noted(self, text, of=0.3):
        return f"note({text!r}); " if self.chance(of) else ""


# -- parts -------------------------------------------------------------------------------------------------------------


def add_globals(w):
    for _ in range(w.random.randint(1, 2)):
        g = w.name("g")
        w.add(f"{g} = {w.number()}")
        w.read(g)
        w.change(lambda: f"{g} = {w.number()}", f"{g} = 'text'", f"del {g}")
        w.effects.append(f"global {g}; {g} = {g} + 1")


SPECIAL = {
    "__len__": ("int(self.k) % 4", ["len({o})", "(1 if {o} else 2)", "int(not {o})", "int(bool({o}))", "int(any([{o}]))"]),
    "__bool__": ("self.k > 1", ["(1 if {o} else 2)", "int(not {o})", "int(bool({o}))", "len([q for q in [{o}] if q])",
                                "len(list(filter(None, [{o}])))"]),
    "__index__": ("int(self.k) % 2", ["[5, 6, 7][{o}]", "(5, 6, 7)[{o}]", "y[{o}].sum()", "operator.index({o})",
                                      "len([1, 2, 3][:{o}])", "y[:, {o}:].sum()", "len(range({o}))", "y.sum({o}).sum()",
                                      "len('ab' * {o})", "torch.zeros({o}).numel()"]),
    "__float__": ("float(self.k)", ["float({o})", "math.floor({o})", "math.sqrt(abs(float({o})))", "(y * float({o})).sum()"]),
    "__int__": ("int(self.k)", ["int({o})", "len('%d' % {o})"]),
    "__call__": ("self.k + sum(a)", ["{o}()", "{o}(1)", "sum(map({o}, [1, 2]))", "max([1, 2], key={o})", "{o}(*[1, 2])",
                                     "functools.reduce({o}, [1, 2])"]),
    "__getitem__": ("[self.k, 7][a[0]]", ["{o}[0]", "sum({o})", "len(list({o}))", "operator.itemgetter(0)({o})",
                                          "int(7 in {o})", "max(*{o})"]),
    "__contains__": ("a[0] == self.k", ["int(1 in {o})", "int({o}.k in {o})", "int(operator.contains({o}, 2))"]),
    "__iter__": ("iter([self.k, 1])", ["sum({o})", "len([*{o}])", "max({o})", "sum(q for q in {o})", "sorted({o})[0]",
                                       "sum(list(zip({o}, {o}))[0])", "sum(q for _, q in enumerate({o}))"]),
    "__eq__": ("self.k == getattr(a[0], 'k', a[0])", ["int({o} == 1)", "int({o} in [1, 2])", "[1, 2, {o}].count(2)",
                                                      "int([{o}] == [1])", "int({o} != 2)"]),
    "__lt__": ("self.k < getattr(a[0], 'k', a[0])", ["int({o} < 2)", "int(2 > {o})", "int(min([{o}, {o}]) is {o})",
                                                     "int(sorted([{o}, {o}])[0] is {o})"]),
    "__add__": ("self.k + a[0]", ["({o} + 1)", "operator.add({o}, 2)", "({o} + y).sum()", "({o} + 3)"]),
    "__radd__": ("self.k + a[0]", ["(1 + {o})", "sum([{o}])", "sum([1, {o}])"]),
    "__neg__": ("-self.k", ["(-{o})", "operator.neg({o})"]),
    "__str__": ("f's{self.k}'", ["len(str({o}))", "len(f'{{{o}}}')", "len('%s' % {o})", "len('{{}}'.format({o}))"]),
    "__repr__": ("f'r{self.k}'", ["len(repr({o}))", "len(f'{{{o}!r}}')", "len(str([{o}]))", "len(repr(({o}, 1)))"]),
    "__hash__": ("int(self.k)", ["int(hash({o}) == hash({o}))", "len({{{o}, 1}})", "{{{o}: 3}}[{o}]"]),
    "__enter__": ("self.k", ["using({o})"]),
    "__getattr__": ("missing(a[0]) if a[0].startswith('_') else self.__dict__.get('k', 4) + 1",
                    ["{o}.other", "getattr({o}, 'another')", "int(hasattr({o}, 'foo'))"]),
}


def add_class(w):
    c, m = w.name("C"), None
    bases = [p for p in w.classes if w.chance(0.3)][:1]
    if w.chance(0.3):
        m = w.name("M")
        w.add(f"""class {m}(type):
    plain = {w.number()}
    @property
    def p(cls): {w.noted('meta p')}return cls.ck + 1
    def method(cls, a=1): return cls.ck + a
    def __getattr__(cls, name):
        if name.startswith('_'): raise AttributeError(name)
        {w.noted('meta getattr')}return cls.ck + 2""")
        w.read(f"{c}.plain", f"{c}.p", f"{c}.method()", f"{c}.unknown", f"getattr({c}, 'p')")
        w.change(lambda: f"{m}.plain = {w.number()}", lambda: f"{m}.p = property(lambda cls: {w.number()})",
                 lambda: f"{m}.__getattr__ = lambda cls, name: {w.number()}", lambda: f"{c}.unknown = {w.number()}",
                 lambda: f"{m}.method = lambda cls, a=1: {w.number()}", f"del {m}.p", lambda: f"{m}.p = {w.number()}",
                 f"{m}.__len__ = lambda cls: 2")
        bases = []
    slots = not bases and w.chance(0.15)
    lines = [f"class {c}({', '.join(bases + ([f'metaclass={m}'] if m else []))}):"]
    if slots:
        lines.append("    __slots__ = ('k', 'j', '__weakref__')")
    lines.append(f"    ck = {w.number()}")
    lines.append(f"    def __init__(self, k={w.number()}):\n        self.k = k\n        self.j = {w.number()}")
    readers = ["{o}.k", "{o}.j", "{o}.ck", c + ".ck", "getattr({o}, 'k')", "getattr({o}, 'missing', 3)",
               "int(hasattr({o}, 'extra'))", f"int(isinstance({{o}}, {c}))", f"int(issubclass({c}, object))",
               f"int(type({{o}}) is {c})", f"len({c}.__name__)", f"{c}({{n}}).k", f"{c}().ck"]
    if not slots:
        readers += ["{o}.__dict__['k']", "len(vars({o}))", "vars({o}).get('j', 2)"]
        w.change(lambda: f"{c}.instance.extra = {w.number()}", f"del {c}.instance.extra")
    if w.chance(0.5):
        lines.append(f"    @property\n    def p(self):\n        {w.noted('p')}return self.k + self.ck")
        readers += ["{o}.p", "operator.attrgetter('p')({o})"]
        w.change(lambda: f"{c}.p = property(lambda self: {w.number()})", f"del {c}.p", lambda: f"{c}.p = {w.number()}")
        if w.chance(0.5):
            lines.append("    @p.setter\n    def p(self, v):\n        note('set p')\n        self.k = v")
            w.effects.append(f"{c}.instance.p = 2")
    if w.chance(0.4):
        lines.append(f"    def m(self, a={w.number()}, *, b={w.number()}):\n        {w.noted('m')}return self.k + a * b")
        readers += ["int({o}.m == OTHER.m)", "int({o}.m in [OTHER.m])", "[OTHER.m].count({o}.m)", "{{{o}.m: 2}}.get(OTHER.m, 4)",
                    "len({{{o}.m, OTHER.m}})", "len({{{o}, OTHER}})", "{{({o}, 1): 2}}.get((OTHER, 1), 3)", "int(({o}, 1) == (OTHER, 1))"]
        readers += ["{o}.m()", "{o}.m({n})", "{o}.m(b={n})", "operator.methodcaller('m')({o})", f"{c}.m({{o}})"]
        w.change(lambda: f"{c}.m = lambda self, a=1, *, b=1: {w.number()}",
                 lambda: f"{c}.m.__defaults__ = ({w.number()},)", lambda: f"{c}.m.__kwdefaults__ = {{'b': {w.number()}}}",
                 lambda: f"{c}.m.__kwdefaults__['b'] = {w.number()}", f"del {c}.m")
        if not slots:
            w.change(lambda: f"{c}.instance.m = lambda a=1, *, b=1: {w.number()}", f"del {c}.instance.m")
    if w.chance(0.3):
        lines.append("    @classmethod\n    def cm(cls): return cls.ck + 1\n    @staticmethod\n    def sm(): return 4")
        readers += ["{o}.cm()", c + ".cm()", "{o}.sm()"]
        w.change(lambda: f"{c}.sm = staticmethod(lambda: {w.number()})",
                 lambda: f"{c}.cm = classmethod(lambda cls: {w.number()})")
    if w.chance(0.3):
        lines.append("    d = Descriptor()")
        readers += ["{o}.d", f"{c}.d"]
        w.change(lambda: f"Descriptor.shift = {w.number()}", f"{c}.__dict__['d'].own = 5",
                 "Descriptor.__get__ = lambda self, o, t=None: 9", f"del {c}.d",
                 "Descriptor.__set__ = lambda self, o, v: None")
    if w.chance(0.15) and not slots:
        lines.append("    @functools.cached_property\n    def cp(self):\n        note('cp')\n        return self.k * 2")
        readers += ["{o}.cp"]
        w.change(f"{c}.instance.__dict__.pop('cp', None)")
    for special in w.random.sample(sorted(SPECIAL), w.random.randint(0, 3)):
        if slots and special == "__getattr__":
            continue
        body, uses = SPECIAL[special]
        lines.append(f"    def {special}(self, *a):\n        {w.noted(special)}return {body}")
        if special == "__enter__":
            lines.append(f"    def __exit__(self, *a): {w.noted('exit')}pass")
        if special == "__eq__" and w.chance(0.7):
            lines.append("    __hash__ = object.__hash__")
        readers += uses
        w.change(f"del {c}.{special}")
        if special not in ("__iter__", "__getitem__", "__getattr__", "__str__", "__repr__"):
            w.change(lambda special=special: f"{c}.{special} = lambda self, *a: 1")
    w.add("\n".join(lines))
    o = w.name("o")
    w.add(f"{o} = {c}({w.number()})\n{c}.instance = {o}")
    w.classes.append(c)
    w.objects.append(o)
    other = w.name("o")
    w.add(f"{other} = {c}({w.number()})")
    for reader in readers:
        if w.chance(0.6):
            w.read(lambda depth, reader=reader.replace("OTHER", other): reader.format(o=o, n=w.value(depth - 1)))
    w.change(lambda: f"{o}.k = {w.number()}", lambda: f"{o}.k = {w.number()}", lambda: f"{o}.j = {w.number()}", f"del {o}.k",
             lambda: f"{c}.ck = {w.number()}", lambda: f"{c}.k = {w.number()}" if not slots else "0", f"{o}.k = 'text'",
             f"{other} = {o}", f"{other} = {c}()", f"{c}.__name__ = 'Other'", lambda: f"{o} = {c}({w.number()})\n{c}.instance = {o}",
             f"{o}.__class__ = type('Sub', ({c},), {{'ck': 8}})", f"{c}.extra = 6",
             f"class Other({c}):\n    ck = 3\n    p = 5\n{o} = Other()\n{c}.instance = {o}",
             f"{c}.__getattribute__ = lambda self, name: (note('ga'), object.__getattribute__(self, name))[1]",
             f"{c}.__getattribute__ = object.__getattribute__")
    for special in w.random.sample(sorted(SPECIAL), 2):
        if special not in ("__getattr__", "__iter__", "__getitem__"):
            w.change(lambda special=special: f"{c}.{special} = lambda self, *a: {w.small()}")
    if bases:
        w.change(f"{c}.__bases__ = (Loose,)", f"{bases[0]}.ck = 9", f"{bases[0]}.p = 3")
    w.effects += [f"{o}.k = {o}.k + 1", f"{o}.j = {w.number()}", f"setattr({o}, 'k', 2)"]
    w.state.append(f"[getattr({o}, n, None) for n in ('k', 'j', 'extra')]")


def add_container(w):
    kind = w.pick(["list", "dict", "tuple", "set", "ordered", "default", "deque", "named", "space", "nested", "counter", "user",
                   "chain", "proxy", "array", "bytes"])
    v = w.name("v")
    n, m = w.number(), w.number()
    o = w.pick(w.objects) if w.objects and w.chance(0.4) else m
    if kind == "list":
        w.add(f"{v} = [{n}, {o}, 2]")
        w.read(f"{v}[0]", f"len({v})", f"{v}[-1]", f"sum({v}[:1])", f"len([q for q in {v}])", f"int(2 in {v})", f"{v}.count(2)",
               f"{v}[::-1][0]", f"len({v} + [1])", f"sum(1 for q in {v} if q)", f"(lambda *a: len(a))(*{v})", f"int({v} == [1, 2])")
        w.change(lambda: f"{v}[0] = {w.number()}", f"{v}.append(1)", f"{v}.clear()", f"{v}.reverse()", f"{v} = [3]", f"del {v}[0]",
                 f"{v}[:] = [1, 2, 3, 4]", f"{v} = (1, 2, 3)", f"class L(list):\n    def __len__(self): return 7\n{v} = L([4, 5])")
        w.effects += [f"{v}.append(3)", f"{v}[0] = 4", f"{v} and {v}.pop()", f"{v}.insert(0, 1)"]
    elif kind in ("dict", "ordered", "default", "counter", "user"):
        made = {"dict": "dict", "ordered": "collections.OrderedDict", "default": "collections.defaultdict",
                "counter": "collections.Counter", "user": "collections.UserDict"}[kind]
        first = "lambda: 3, " if kind == "default" else ""
        w.add(f"{v} = {made}({first}{{'a': {n}, 'b': {m}}})")
        w.read(f"{v}['a']", f"{v}.get('c', 2)", f"len({v})", f"int('b' in {v})", f"len(list({v}))", f"sum({v}.values())",
               f"len(sorted({v}))", f"[*{v}.items()][0][1]", f"len({{**{v}}})", f"dict({v}).get('a', 1)", f"int({v} == {{'a': 1}})",
               f"(lambda **q: len(q))(**{v})", f"{v}[next(iter({v}))]")
        w.change(lambda: f"{v}['a'] = {w.number()}", f"{v}['c'] = 5", f"del {v}['b']", f"{v}.clear()", f"{v} = {{'b': 2, 'a': 1}}",
                 f"{v}['a'] = {v}.pop('a', 0)", f"{v}.update(z=1)")
        if kind == "default":
            w.change(f"{v}.default_factory = lambda: 8")
            w.read(f"{v}['new']")
        w.effects += [f"{v}['n'] = 1", f"{v}['a'] = {v}.get('a', 0) + 1", f"{v}.pop('b', None)", f"{v}.setdefault('q', 4)"]
    elif kind == "tuple":
        w.add(f"{v} = ({n}, {o}, 2)")
        w.read(f"{v}[0]", f"len({v})", f"len({v} * 2)", f"int({v}[2] in (1, 2))", f"{v}.index(2)")
        w.change(lambda: f"{v} = ({w.number()}, 1, 2)", f"{v} = [1, 2, 3]")
    elif kind == "set":
        w.add(f"{v} = {{1, 2}}")
        w.read(f"len({v})", f"int(1 in {v})", f"sum({v})", f"sorted({v})[0]", f"len({v} | {{7}})", f"max({v})")
        w.change(f"{v}.add(5)", f"{v}.discard(1)", f"{v} = {{2, 3}}")
        w.effects += [f"{v}.add(9)", f"{v}.discard(2)"]
    elif kind == "deque":
        w.add(f"{v} = collections.deque([{n}, 2])")
        w.read(f"{v}[0]", f"len({v})", f"sum({v})")
        w.change(f"{v}.append(3)", f"{v}[0] = 6", f"{v}.rotate()")
        w.effects += [f"{v}.append(1)"]
    elif kind == "named":
        w.add(f"{v}T = collections.namedtuple('{v}T', 'a b')\n{v} = {v}T({n}, {m})")
        w.read(f"{v}.a", f"{v}[1]", f"{v}._replace(a=2).b", f"len({v})", f"{v}._asdict()['a']")
        w.change(lambda: f"{v} = {v}T({w.number()}, 1)", f"{v}T.a = property(lambda self: 11)", f"{v}T.__len__ = lambda self: 4")
    elif kind == "space":
        w.add(f"{v} = types.SimpleNamespace(a={n})")
        w.read(f"{v}.a", f"getattr({v}, 'b', 2)", f"len(vars({v}))")
        w.change(lambda: f"{v}.a = {w.number()}", f"{v}.b = 3", f"del {v}.a")
        w.effects += [f"{v}.c = 1"]
    elif kind == "nested":
        w.add(f"{v} = {{'l': [{n}, ({m}, {{'q': {n}}})], 'o': {o}}}")
        w.read(f"{v}['l'][0]", f"{v}['l'][1][1]['q']", f"len({v}['l'])", f"{v}['l'][1][0]")
        w.change(lambda: f"{v}['l'][0] = {w.number()}", f"{v}['l'][1][1]['q'] = 6", f"{v}['l'] = [1, (2, {{'q': 3}})]",
                 f"{v}['l'].append(1)")
        w.effects += [f"{v}['l'][1][1]['q'] = 2"]
    elif kind == "chain":
        w.add(f"{v} = collections.ChainMap({{'a': {n}}}, {{'b': {m}}})")
        w.read(f"{v}['a']", f"{v}['b']", f"len({v})", f"{v}.get('z', 1)")
        w.change(f"{v}.maps[0]['a'] = 7", f"{v}.maps.append({{'z': 2}})", f"{v}['b'] = 8")
    elif kind == "proxy":
        w.add(f"{v}d = {{'a': {n}}}\n{v} = types.MappingProxyType({v}d)")
        w.read(f"{v}['a']", f"len({v})", f"int('b' in {v})")
        w.change(f"{v}d['a'] = 7", f"{v}d['b'] = 2", f"{v} = types.MappingProxyType({{'a': 1}})")
    elif kind == "array":
        w.add(f"{v} = np.array([{n}, 2.0])")
        w.read(f"float({v}[0])", f"len({v})", f"float({v}.sum())", f"float(torch.from_numpy({v}).sum())")
        w.change(f"{v}[0] = 9.0", f"{v} = np.zeros(3)")
    elif kind == "bytes":
        w.add(f"{v} = bytearray(b'ab')")
        w.read(f"{v}[0]", f"len({v})", f"len(bytes({v}))")
        w.change(f"{v}[0] = 5", f"{v}.append(1)")
    w.state.append(v if kind != "proxy" else f"dict({v})")


def add_function(w):
    f = w.name("f")
    kind = w.pick(["plain", "closure", "partial", "cached", "wraps", "dispatch", "generator", "lambda", "method", "recursive", "global", "factory"])
    a, b = w.number(), w.number()
    inner = w.value(1) if w.readers else "1"
    if kind == "plain":
        w.add(f"def {f}(a, b={a}, *, c={b}):\n    {w.noted(f)}return a + b * c\ndef {f}other(a, b=3, *, c=4): return a - b - c")
        w.read(lambda d: f"{f}({w.value(d - 1)})", f"{f}(1, c=2)", f"sum(map({f}, [1, 2]))", f"{f}.__defaults__[0]", f"len({f}.__name__)",
               f"getattr({f}, 'extra', 1)", f"len(inspect.signature({f}).parameters)", f"{f}.__kwdefaults__['c']")
        w.change(lambda: f"{f}.__defaults__ = ({w.number()},)", lambda: f"{f}.__kwdefaults__ = {{'c': {w.number()}}}",
                 f"{f}.__kwdefaults__['c'] = 7", f"{f}.__code__ = {f}other.__code__", f"{f}.extra = 3", f"{f} = {f}other",
                 f"{f}.__signature__ = inspect.signature(lambda q: q)", f"{f}.__name__ = 'longer_name'", f"{f}.__defaults__ = None",
                 f"{f} = lambda a, b=1, *, c=1: a")
    elif kind == "closure":
        w.add(f"def make_{f}():\n    u, t = {a}, [{b}]\n    def inner(q):\n        nonlocal u\n        {'u = u + 1; ' if w.chance(0.3) else ''}return q * u + t[0]\n"
              f"    def setter(q):\n        nonlocal u\n        u = q\n    return inner, setter, t\n{f}, {f}set, {f}t = make_{f}()")
        w.read(lambda d: f"{f}({w.value(d - 1)})", f"{f}.__closure__[1].cell_contents", f"max([1, 2], key={f})")
        w.change(lambda: f"{f}set({w.number()})", f"{f}t[0] = 6", f"{f}.__closure__[1].cell_contents = 4", f"{f} = make_{f}()[0]",
                 f"{f}t.append(1)", f"{f}.__closure__[0].cell_contents = [3]")
    elif kind == "partial":
        w.add(f"def {f}b(a, b, c={a}): return a + b * c\n{f} = functools.partial({f}b, {b}, c=2)\n{f}n = functools.partial({f}, b=1)")
        w.read(f"{f}(1)", f"{f}n()", f"{f}.args[0]", f"{f}.keywords['c']", f"sum(map({f}, [1, 2]))", f"len({f}.keywords)")
        w.change(f"{f}.keywords['c'] = 5", f"{f}.__setstate__(({f}b, (7,), {{'c': 1}}, {{}}))", f"{f}n.keywords['b'] = 3",
                 f"{f} = functools.partial({f}b, 1)", f"{f}b.__defaults__ = (9,)", f"{f}.keywords.clear()")
    elif kind == "cached":
        w.add(f"{f}k = {a}\n@functools.lru_cache\ndef {f}(q): return q + {f}k")
        w.read(f"{f}(1)", f"{f}({w.small()})")
        w.change(f"{f}.cache_clear(); {f}k = 5", f"{f} = lambda q: 3")
    elif kind == "wraps":
        w.add(f"def {f}w(a): return a + {a}\n@functools.wraps({f}w)\ndef {f}(*q, **kw): {w.noted('wrapped')}return {f}w(*q, **kw) + 1")
        w.read(f"{f}(1)", f"{f}.__wrapped__(2)", f"len(inspect.signature({f}).parameters)", f"len({f}.__name__)")
        w.change(f"{f}w = lambda a: 5", f"{f}.__wrapped__ = lambda a, b=1: 6", f"{f}w.__code__ = (lambda a: 8).__code__")
    elif kind == "dispatch":
        w.add(f"@functools.singledispatch\ndef {f}(q): return 0\n@{f}.register\ndef _(q: int): return {a}\n")
        w.read(f"{f}(1)", f"{f}(1.5)", f"{f}('a')")
        w.change(f"{f}.register(int, lambda q: 5)", f"{f}.register(float, lambda q: 6)", f"{f}.register(str)(lambda q: 7)")
    elif kind == "generator":
        w.add(f"def {f}(n):\n    {w.noted('gen')}\n    for q in range(n):\n        yield q + {a} if not False else 0\n    {w.noted('end')}yield {b}".replace("\n    \n", "\n"))
        w.read(f"sum({f}(2))", f"next({f}(1))", f"len(list({f}(3)))", f"max({f}(2))", f"[*{f}(1)][0]", f"sum(a * b for a, b in zip({f}(2), {f}(3)))")
        w.change(f"{f} = lambda n: iter([1, n])", f"{f}.__code__ = (lambda n: (q for q in range(n + 1))).__code__")
    elif kind == "lambda":
        w.add(f"{f} = {{'a': lambda q: q + {a}, 'b': lambda q: {inner}}}")
        w.read(f"{f}['a'](1)", f"{f}['b'](2)", f"sum(h(1) for h in {f}.values())")
        w.change(f"{f}['a'] = lambda q: 3", f"{f}['c'] = lambda q: 4", f"{f}['a'].__code__ = (lambda q: q * 9).__code__")
    elif kind == "method" and w.objects:
        o = w.pick(w.objects)
        w.add(f"def {f}f(self, a=1): return self.j + a\n{f} = types.MethodType({f}f, {o})")
        w.read(f"{f}()", f"{f}(2)", f"{f}.__self__.j")
        w.change(f"{f}f.__defaults__ = (4,)", f"{f}.__self__.j = 8", f"{f} = types.MethodType(lambda self: 2, {o})")
    elif kind == "recursive":
        w.add(f"def {f}(n): return {a} if n <= 0 else {f}(n - 1) + 1")
        w.read(f"{f}(2)")
        w.change(f"{f} = lambda n: 4")
    elif kind == "factory":
        made = w.pick(["class", "function"])
        if made == "class":
            w.add(f"""class {f}B:
    def m(self, y=torch.ones(2, 3)): return {a}
def {f}make(base, n):
    class K(base):
        def m(self, y=torch.ones(2, 3)):
            {w.noted(f, 0.5)}{'print(n, file=io.StringIO()); ' if w.chance(0.6) else ''}return super().m() + n
    return K
{f}1 = {f}make({f}B, {b})
{f}2 = {f}make({f}1, 2)
{f}3 = {f}make({f}2, 5)
{f} = {f}3()""")
            w.read(f"{f}.m()", f"{f}1().m()", f"super({f}3, {f}).m()")
            w.change(f"{f} = {f}2()", f"{f}.__class__ = {f}1", f"{f}3.m.__closure__[0].cell_contents = {f}2", f"{f}B.m = lambda self: 7",
                     f"{f}2.__bases__ = ({f}B,)", f"del {f}2.m")
        else:
            w.add(f"""def {f}make(inner, n):
    def g(y=torch.ones(2, 3)):
        {w.noted(f, 0.5)}{'print(n, file=io.StringIO()); ' if w.chance(0.6) else ''}return (inner() if inner else {a}) + n
    return g
{f} = {f}make({f}make({f}make(None, 1), {b}), 3)""")
            w.read(f"{f}()", f"{f}.__closure__[0].cell_contents()")
            w.change(f"{f} = {f}make({f}, 4)", f"{f} = {f}.__closure__[0].cell_contents", f"{f}.__closure__[1].cell_contents = 8",
                     f"{f}.__closure__[0].cell_contents = None")
    elif kind == "global":
        w.add(f"def {f}(): return {inner}")
        w.read(f"{f}()")
        w.change(f"{f}.__code__ = (lambda: 2).__code__")


def add_module(w):
    m = w.name("net")
    w.add(f"""class {m}C(nn.Module):
    scale = {w.number()}
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.full((3,), 2.0))
        self.register_buffer('b', torch.ones(3))
        self.k = {w.number()}
        self.lin = nn.Linear(3, 3)
        self.layers = nn.ModuleList([nn.Identity(), nn.ReLU()])
        with torch.no_grad():
            self.lin.weight.fill_(0.5)
            self.lin.bias.fill_(0.25)
    def forward(self, x):
        {w.noted('forward')}
        for layer in self.layers:
            x = layer(x)
        return self.lin(x * self.w + self.b * self.k) * self.scale
{m} = {m}C()""".replace("        \n", ""))
    w.tensors += [f"{m}(y)", f"{m}.lin(y)", f"{m}.w * y", f"y + {m}.b", f"F.linear(y, {m}.lin.weight)"]
    w.read(f"{m}.k", f"{m}.scale", f"int({m}.training)", f"len({m}.layers)", f"len(list({m}.parameters()))", f"int({m}.w.requires_grad)",
           f"len(list({m}.children()))", f"{m}.lin.in_features", f"int(hasattr({m}, 'extra'))", f"len({m}._forward_hooks)",
           f"len([n for n, _ in {m}.named_buffers()])", f"int(isinstance({m}.lin, nn.Linear))")
    w.change(lambda: f"{m}.k = {w.number()}", f"{m}.w = nn.Parameter(torch.full((3,), 3.0))", f"{m}.b = torch.zeros(3)", f"{m}.eval()",
             f"{m}.train()", f"{m}.layers.append(nn.Tanh())", f"{m}.layers[0] = nn.Sigmoid()", f"{m}.lin = nn.Identity()",
             f"{m}.w.requires_grad_(False)", f"{m}C.scale = 3.0", f"{m}.scale = 4.0", f"{m}.extra = 1",
             f"{m}.h = {m}.register_forward_hook(lambda s, a, o: (note('hook'), o + 1)[1])", f"{m}.h.remove()",
             f"{m}.h = {m}.lin.register_forward_pre_hook(lambda s, a: (a[0] * 2,))",
             f"{m}C.forward = lambda self, x: x * 7", f"{m}.forward = lambda x: x * 8", f"del {m}.forward",
             f"with torch.no_grad(): {m}.w.mul_(2)", f"{m}.w.data = torch.zeros(3)", f"{m}.register_buffer('b2', torch.ones(1))",
             f"{m}.lin.bias = None", f"{m}.b = None", f"{m}.lin.forward = lambda x: x - 1", f"{m}.double(); {m}.float()",
             f"{m} = {m}C()", f"{m}.__class__ = type('Sub', ({m}C,), {{'scale': 9.0}})", f"{m}.layers = nn.ModuleList()")
    w.effects += [f"{m}.k = {m}.k + 1", f"{m}.b.add_(1)", f"{m}.count = getattr({m}, 'count', 0) + 1"]
    w.state.append(f"[{m}.__dict__.get('k'), {m}.__dict__.get('count'), {m}._buffers.get('b')]")


def add_ambient(w):
    kind = w.pick(["grad", "dtype", "autocast", "threads", "deterministic", "mkldnn", "anomaly", "device", "precision", "sdp", "einsum"])
    table = {
        "grad": (["int(torch.is_grad_enabled())"], ["torch.set_grad_enabled(False)", "torch.set_grad_enabled(True)"],
                 "torch.set_grad_enabled(True)"),
        "dtype": (["torch.get_default_dtype().itemsize", "torch.tensor(1.0).dtype.itemsize", "torch.zeros(1).element_size()",
                   "(torch.arange(2) / 3).element_size()"],
                  ["torch.set_default_dtype(torch.float64)", "torch.set_default_dtype(torch.float32)"],
                  "torch.set_default_dtype(torch.float32)"),
        "autocast": (["int(torch.is_autocast_enabled('cpu'))", "torch.get_autocast_dtype('cpu').itemsize",
                      "int(torch.get_autocast_dtype('cpu') == torch.bfloat16)", "int(torch.is_autocast_cache_enabled())",
                      "(y @ y.t()).element_size()", "in_autocast(y)"],
                     ["torch.set_autocast_dtype('cpu', torch.float16)", "torch.set_autocast_enabled('cpu', True)",
                      "torch.set_autocast_enabled('cpu', False)", "torch.set_autocast_cache_enabled(False)"],
                     "torch.set_autocast_dtype('cpu', torch.bfloat16); torch.set_autocast_enabled('cpu', False); "
                     "torch.set_autocast_cache_enabled(True)"),
        "threads": (["torch.get_num_threads()"], ["torch.set_num_threads(2)", "torch.set_num_threads(3)"], "torch.set_num_threads(1)"),
        "deterministic": (["int(torch.are_deterministic_algorithms_enabled())",
                           "int(torch.is_deterministic_algorithms_warn_only_enabled())"],
                          ["torch.use_deterministic_algorithms(True, warn_only=True)", "torch.use_deterministic_algorithms(False)"],
                          "torch.use_deterministic_algorithms(False)"),
        "mkldnn": (["int(torch.backends.mkldnn.enabled)"], ["torch.backends.mkldnn.enabled = False", "torch.backends.mkldnn.enabled = True"],
                   "torch.backends.mkldnn.enabled = True"),
        "anomaly": (["int(torch.is_anomaly_enabled())"], ["torch.autograd.set_detect_anomaly(True)", "torch.autograd.set_detect_anomaly(False)"],
                    "torch.autograd.set_detect_anomaly(False)"),
        "device": (["len(str(torch.get_default_device()))", "len(str(torch.zeros(1).device))"],
                   ["torch.set_default_device('meta')", "torch.set_default_device(None)"], "torch.set_default_device(None)"),
        "precision": (["len(torch.get_float32_matmul_precision())"],
                      ["torch.set_float32_matmul_precision('high')", "torch.set_float32_matmul_precision('highest')"],
                      "torch.set_float32_matmul_precision('highest')"),
        "sdp": (["int(torch.backends.cuda.flash_sdp_enabled())", "int(torch.backends.cuda.math_sdp_enabled())"],
                ["torch.backends.cuda.enable_flash_sdp(False)", "torch.backends.cuda.enable_math_sdp(False)"],
                "torch.backends.cuda.enable_flash_sdp(True); torch.backends.cuda.enable_math_sdp(True)"),
        "einsum": (["int(torch.backends.opt_einsum.enabled)"], ["torch.backends.opt_einsum.enabled = False"],
                   f"torch.backends.opt_einsum.enabled = {torch.backends.opt_einsum.enabled}"),
    }
    readers, changes, restore = table[kind]
    w.add("def in_autocast(y):\n    with torch.autocast('cpu'):\n        return (y @ y.t()).element_size()")
    w.read(*readers)
    w.change(*changes)
    w.restores.append(restore)


def add_process(w):
    kind = w.pick(["environ", "context", "local", "weak", "enum", "data", "abc", "protocol", "meta check", "module", "logging",
                   "patch", "slots", "weakset", "iterator", "flag", "descriptor", "left generator", "leaf", "new tensor"])
    n = w.name("z")
    if kind == "environ":
        w.add(f"os.environ['{n}'] = '1'")
        w.read(f"int(os.environ.get('{n}', 5))", f"int('{n}' in os.environ)", f"int(os.getenv('{n}', '7'))")
        w.change(f"os.environ['{n}'] = '2'", f"os.environ.pop('{n}', None)")
        w.restores.append(f"os.environ.pop('{n}', None)")
    elif kind == "context":
        w.add(f"{n} = contextvars.ContextVar('{n}', default={w.number()})")
        w.read(f"{n}.get()", f"{n}.get(3)")
        w.change(lambda: f"{n}.set({w.number()})")
        w.effects.append(f"{n}.set(2)")
    elif kind == "local":
        w.add(f"{n} = threading.local()\n{n}.a = {w.number()}")
        w.read(f"{n}.a", f"getattr({n}, 'b', 1)")
        w.change(lambda: f"{n}.a = {w.number()}", f"{n}.b = 2", f"del {n}.a")
    elif kind == "descriptor":
        # Whether what a class has is a descriptor, and which of the two kinds, is up to the class of that.
        get = w.pick(["", f"\n    def __get__(self, o, t=None): {w.noted('get')}return {w.number()}"])
        w.add(f"class {n}D:\n    v = {w.number()}{get}\n    def __add__(self, other): return 20\n    __radd__ = __mul__ = __rmul__ = __add__\n"
              f"class {n}M(type): pass\nclass {n}C(metaclass={n}M):\n    d = {n}D()\n{n} = {n}C()\n{n}2 = {n}C()\n{n}2.__dict__['d'] = {w.number()}")
        w.read(f"({n}.d + 1)", f"({n}2.d + 1)", f"({n}C.d + 1)", f"getattr({n}.d, 'v', 3)", f"(getattr({n}2, 'd') + 1)", f"len(vars({n}2))")
        w.change(lambda: f"{n}D.__get__ = lambda self, o, t=None: {w.number()}", f"{n}D.__set__ = lambda self, o, v: note('set')",
                 f"del {n}D.__get__", f"del {n}D.__set__", f"{n}2.__dict__.pop('d', None)", f"{n}.__dict__['d'] = 5", f"{n}C.d = 4",
                 lambda: f"{n}M.d = property(lambda cls: {w.number()})", f"{n}D.__delete__ = lambda self, o: None", f"{n}D.v = 8")
        w.effects.append(f"{n}.d = 6")
        w.state.append(f"sorted(vars({n})), sorted(vars({n}2))")
    elif kind == "left generator":
        ends = w.pick(["", f"\n    finally: note('left {n}')"])
        body = "\n        ".join(["for q in " + n + ":", f"    {w.noted('next')}yield q * {w.number()}"])
        w.add(f"{n} = [1, 0, 2, 3]\ndef {n}g():\n    {'try' if ends else 'if True'}:\n        {body}{ends}")
        w.read(f"int(all({n}g()))", f"int(any({n}g()))", f"next({n}g(), 5)", f"int(2 in {n}g())", f"len(list(zip({n}g(), 'ab')))",
               f"sum(itertools.islice({n}g(), 2))", f"next((q for q in {n}g() if q), 7)", f"int(all(q < 2 for q in {n}))",
               f"len([*itertools.takewhile(lambda q: q, {n}g())])", f"(lambda a, *b: a)(*{n}g())")
        w.change(f"{n}[0] = 0", f"{n}.reverse()", f"{n}.clear()", f"{n}.append(2)", f"{n} = (4, 4)", f"{n} = iter([1, 0, 1] * 30)")
    elif kind == "leaf":
        # Leaves that the call makes: a pass to them is made later, from what the call keeps.
        made = w.pick(["torch.full((3,), 2.0, requires_grad=True)", "torch.full((3,), 2.0).requires_grad_()", "nn.Parameter(torch.full((3,), 2.0))",
                       "y[0].detach().clone().requires_grad_()"])
        more = w.pick(["0", "w.register_hook(lambda g: g * 2)", "w.register_post_accumulate_grad_hook(lambda p: note('post'))", "h.retain_grad()"])
        w.add(f"{n} = []\n{n}k = 1.0\ndef {n}f(y):\n    w = {made}\n    h = w * {n}k\n    {more}\n    {n}.append((w, h, (h * y).sum(), (w * w * y).sum()))\n"
              f"    return w\ndef {n}s():\n    seen = []\n    while {n}:\n        w, h, *sums = {n}.pop()\n        torch.autograd.backward(sums)\n"
              f"        seen.append((type(w).__name__, w.is_leaf, w.grad.tolist(), h.retains_grad and h.grad.tolist()))\n    return seen")
        w.read(f"{n}f(y).sum().item()", f"int({n}f(y).is_leaf)", f"int({n}f(y).requires_grad)")
        w.change(f"{n}k = 3.0", f"{n}k = torch.tensor(2.0)", "torch.manual_seed(1)")
        w.state.append(f"{n}s()")
    elif kind == "new tensor":
        made = w.pick(["torch.zeros(3)", "torch.ones(3)", "torch.full((3,), 2.0)", "torch.zeros_like(y)", "y.new_ones(3)", "torch.arange(3.0)", "torch.eye(3)",
                       "torch.rand(3)", "torch.tensor([1.0, 2.0])", "torch.randperm(3)", "torch.linspace(0, 1, 3)"])
        w.add(f"torch.manual_seed(0)\n{n} = 1\ndef {n}f(y):\n    t = {made}\n    for _ in range({n}): t.add_(1)\n    return t")
        w.read(f"{n}f(y)._version", f"{n}f(y).sum()", f"int({n}f(y).is_leaf)", f"{n}f(y).storage_offset()")
        w.change(f"{n} = 0", f"{n} = 2", "torch.manual_seed(1)")
    elif kind == "weak":
        w.add(f"class {n}C: a = {w.number()}\n{n}o = {n}C()\n{n} = weakref.ref({n}o)\n{n}d = weakref.WeakValueDictionary(k={n}o)")
        w.read(f"int({n}() is None)", f"({n}().a if {n}() else 4)", f"len({n}d)", f"int('k' in {n}d)", f"getattr({n}d.get('k'), 'a', 2)")
        w.change(f"{n}o = {n}C()", f"{n}C.a = 3", f"{n}o.a = 6", f"{n} = weakref.ref({n}o)", f"{n}d['j'] = {n}o")
    elif kind == "weakset":
        w.add(f"class {n}C: pass\n{n}o = {n}C()\n{n} = weakref.WeakSet([{n}o])\n{n}k = weakref.WeakKeyDictionary({{{n}o: 2}})")
        w.read(f"len({n})", f"int({n}o in {n})", f"{n}k.get({n}o, 5)", f"len({n}k)")
        w.change(f"{n}o = {n}C()", f"{n}.add({n}o)", f"{n}k[{n}o] = 6")
    elif kind == "enum":
        w.add(f"class {n}(enum.Enum):\n    A = 1\n    B = 2\n    def go(self): return self.value + {w.number()}\n{n}e = {n}.A\n"
              f"class {n}I(enum.IntEnum):\n    A = 1\n    B = 2")
        w.read(f"{n}e.value", f"{n}e.go()", f"{n}(2).value", f"len({n})", f"int({n}e is {n}.A)", f"sum(q.value for q in {n})", f"{n}I.A + 1",
               f"{n}['B'].value", f"len(str({n}e))", f"len({n}e.name)", f"getattr({n}e, 'extra', 0)", f"y[{n}I.A].sum()", f"int({n}e in {n})")
        w.change(f"{n}e = {n}.B", f"{n}.go = lambda self: 7", f"{n}.A._value_ = 5", f"{n}.A.extra = 3", f"{n}.__str__ = lambda self: 'e'",
                 f"{n}I.__add__ = lambda a, b: 4", f"{n}I.A._value_ = 6")
    elif kind == "data":
        frozen = w.pick(["", "(frozen=True)", "(eq=False)", "(order=True)"])
        w.add(f"@dataclasses.dataclass{frozen}\nclass {n}C:\n    a: float = {w.number()}\n    b: int = 2\n{n} = {n}C()")
        w.read(f"{n}.a", f"dataclasses.asdict({n})['a']", f"dataclasses.replace({n}, b=3).a", f"int({n} == {n}C())", f"len(repr({n}))",
               f"len(dataclasses.fields({n}))", f"{n}C(4).a", f"{n}C().b", f"dataclasses.astuple({n})[1]")
        w.change(f"object.__setattr__({n}, 'a', 6)", f"{n}C.b = 9", f"{n} = {n}C(8)", f"{n}C.__eq__ = lambda s, o: False",
                 f"{n}C.__init__.__defaults__ = (1, 1)", f"{n}C.__repr__ = lambda s: 'd'")
        w.state.append(f"{n}.a")
    elif kind == "abc":
        w.add(f"class {n}B(abc.ABC): pass\nclass {n}C: pass\n{n} = {n}C()")
        w.read(f"int(isinstance({n}, {n}B))", f"int(issubclass({n}C, {n}B))", f"int(isinstance({n}, (int, {n}B)))",
               f"int(isinstance({n}, collections.abc.Iterable))", f"int(isinstance({n}C(), {n}B))", f"int(isinstance({n}, {n}B | int))")
        w.change(f"{n}B.register({n}C)", f"class {n}D({n}C):\n    def __iter__(self): return iter(())\n{n} = {n}D()", f"{n} = 3",
                 f"{n}C.__bases__ = (Loose,)", f"{n}B.register(int)", f"{n}.__class__ = {n}B")
    elif kind == "protocol":
        w.add(f"@typing.runtime_checkable\nclass {n}P(typing.Protocol):\n    a: int\nclass {n}C: pass\n{n} = {n}C()")
        w.read(f"int(isinstance({n}, {n}P))", f"int(isinstance({n}, ({n}P, int)))")
        w.change(f"{n}.a = 1", f"{n}C.a = 2", f"del {n}.a", f"{n} = 5", f"{n} = {n}C()")
    elif kind == "meta check":
        w.add(f"{n}k = 1\nclass {n}M(type):\n    def __instancecheck__(cls, o): {w.noted('check')}return {n}k > 1\n"
              f"    def __subclasscheck__(cls, o): return {n}k > 1\nclass {n}(metaclass={n}M): pass")
        w.read(f"int(isinstance(3, {n}))", f"int(issubclass(int, {n}))", f"int(isinstance(y, (str, {n})))", f"matched(4, {n})")
        w.change(f"{n}k = 2", f"{n}M.__instancecheck__ = lambda cls, o: False", f"del {n}M.__subclasscheck__")
    elif kind == "module":
        w.add(f"{n} = types.ModuleType('{n}')\n{n}.a = {w.number()}\nsys.modules['{n}'] = {n}\ndef {n}f():\n    import {n} as q\n    return q.a")
        w.read(f"{n}.a", f"{n}f()", f"getattr({n}, 'b', 2)", f"sys.modules['{n}'].a", f"int(hasattr({n}, 'c'))")
        w.change(lambda: f"{n}.a = {w.number()}", f"{n}.b = 7", f"{n}.__getattr__ = lambda name: 5", f"sys.modules['{n}'] = types.SimpleNamespace(a=6)",
                 f"del {n}.a", f"{n}2 = types.ModuleType('x'); {n}2.a = 8; sys.modules['{n}'] = {n}2")
        w.restores.append(f"sys.modules.pop('{n}', None)")
    elif kind == "logging":
        w.add(f"import logging\n{n} = logging.getLogger('{n}')")
        w.read(f"int({n}.isEnabledFor(10))", f"{n}.level")
        w.change(f"{n}.setLevel(10)", f"{n}.setLevel(50)")
        w.restores.append(f"import logging; logging.getLogger('{n}').setLevel(0)")
    elif kind == "patch":
        target, call = w.pick([("torch.Tensor.__mul__", "(y * 2).sum()"), ("torch.Tensor.relu", "y.relu().sum()"), ("F.relu", "F.relu(y).sum()"),
                               ("torch.Tensor.__getitem__", "y[0].sum()"), ("torch.add", "torch.add(y, 1).sum()"), ("torch.Tensor.__neg__", "(-y).sum()"),
                               ("torch.Tensor.__radd__", "(1 + y).sum()"), ("math.sqrt", "math.sqrt(4.0)"), ("torch.Tensor.__lt__", "(y < 2).sum()"),
                               ("nn.Identity.forward", "nn.Identity()(y).sum()"), ("torch.Tensor.sum", "y.sum()"), ("operator.add", "operator.add(1, 2)"),
                               ("torch.Tensor.__rsub__", "(1 - y).sum()"), ("torch.Tensor.ndim", "y.ndim"), ("torch.Tensor.__len__", "len(y)")])
        owner, attribute = target.rsplit(".", 1)
        w.add(f"{n}missing = object()\n{n} = vars({owner}).get('{attribute}', {n}missing)\n{n}k = 3.0")
        w.read(call)
        if attribute == "ndim":
            w.change(f"{target} = property(lambda self: {n}k)")
        elif attribute == "__len__":
            w.change(f"{target} = lambda self: int({n}k)")
        else:
            w.change(f"{target} = lambda *a, **kw: torch.full((1,), {n}k)")
        put_back = (f"({'setattr'}({owner}, '{attribute}', {n}) if {n} is not {n}missing else "
                    f"(delattr({owner}, '{attribute}') if '{attribute}' in vars({owner}) else 0))")
        w.change(f"{n}k = 4.0", put_back)
        w.restores.append(put_back)
    elif kind == "slots":
        w.add(f"class {n}C:\n    __slots__ = ('a', 'b')\n{n} = {n}C()\n{n}.a = {w.number()}")
        w.read(f"{n}.a", f"getattr({n}, 'b', 3)", f"int(hasattr({n}, 'b'))")
        w.change(lambda: f"{n}.a = {w.number()}", f"{n}.b = 4", f"del {n}.a", f"{n} = {n}C(); {n}.a = 7")
        w.effects.append(f"{n}.b = 5")
        w.state.append(f"[getattr({n}, q, None) for q in 'ab']")
    elif kind == "iterator":
        w.add(f"{n} = iter([1, 2, 3] * 40)\n{n}c = itertools.count(2)")
        w.read(f"next({n})", f"next({n}c)", f"next({n}, 9)")
        w.change(f"next({n})", f"{n} = iter([5] * 40)", f"{n}c = itertools.repeat(3)")
    elif kind == "flag":
        w.add(f"class {n}C:\n    @property\n    def __class__(self): return {n}R if {n}k > 1 else {n}C\nclass {n}R: pass\n{n}k = 1\n{n} = {n}C()")
        w.read(f"int(isinstance({n}, {n}R))", f"len({n}.__class__.__name__)", f"int(type({n}) is {n}R)")
        w.change(f"{n}k = 2", f"del {n}C.__class__")


def add_transform(w):
    """torch.func, on functions that read what changes."""
    t, inner = w.name("t"), w.value(2)
    w.add(f"""{t}k = {w.number()}
{t}w = torch.full((3,), 2.0)
{t}net = nn.Linear(3, 3)
with torch.no_grad():
    {t}net.weight.fill_(0.5)
    {t}net.bias.fill_(0.25)
{t}p = {{name: one.detach().clone() for name, one in {t}net.named_parameters()}}
def {t}(a, y=torch.ones(2, 3)):
    {w.noted('under ' + t)}return (a * {t}w * {t}k + {inner}).sum()""")
    w.tensors += [f"torch.func.vmap({t})(y)", f"torch.func.grad({t})(y)", f"torch.func.vmap(torch.func.grad({t}))(y)",
                  f"torch.func.jacrev(lambda a: a * {t}k)(y).sum()", f"torch.func.jvp({t}, (y,), (y,))[1]",
                  f"torch.func.functional_call({t}net, {t}p, (y,))",
                  f"torch.func.grad(lambda p: torch.func.functional_call({t}net, p, (y,)).sum())({t}p)['bias']"]
    w.read(f"torch.func.vmap({t})(y).sum()", f"int({t}net.weight is {t}net._parameters['weight'])")
    w.change(lambda: f"{t}k = {w.number()}", f"{t}w.mul_(2)", f"{t}w = torch.ones(3)", f"{t}w.requires_grad_()", f"{t}k = torch.tensor(3.0)",
             f"{t}net.register_forward_hook(lambda m, a, o: (note('hook'), o * 2)[1])", f"{t}p['weight'] = torch.ones(3, 3)",
             f"del {t}p['bias']", f"{t} = lambda a: a.sum()", f"{t}.__code__ = (lambda a, y=None: (a * a).sum()).__code__",
             f"{t}net.bias = None", f"{t}net.forward = lambda x: x * 4")
    w.effects += [f"{t}w.add_(1)", f"{t}p['bias'] = {t}p['bias'] + 1"]
    w.state.append(f"[{t}w, {t}p.get('bias')]")


def add_flow(w):
    """Generators, handlers and managers, which note what they do and in which order."""
    b, one, other = w.name("b"), w.value(1), w.value(1)
    w.add(f"""class {b}E(Exception): pass
class {b}D:
    def __init__(self, n): self.n = n
    def __del__(self): note('del', self.n)
    def __enter__(self):
        note('enter', self.n)
        return self
    def __exit__(self, kind, *rest):
        note('exit', kind and kind.__name__)
        return {b}k > 1
{b}k = {w.number()}
def {b}gen(y=torch.ones(2, 3)):
    try:
        got = yield {one}
        note('sent', got)
        yield {other}
        if {b}k > 1: raise {b}E('late')
    finally:
        note('closed')
def {b}raise(y=torch.ones(2, 3)):
    try:
        if {b}k: raise {b}E({one})
        return 1
    except {b}E as e:
        note('caught', str(e))
        return 2
    else:
        note('else')
    finally:
        note('finally')
def {b}with(y=torch.ones(2, 3)):
    with {b}D(1) as d, {b}D(2):
        if {b}k: raise {b}E('inside')
        return d.n
    return 5
def {b}sent():
    g = {b}gen()
    a = next(g)
    return (a, g.send(3))[1]
def {b}from():
    def outer():
        got = yield from {b}gen()
        yield 7
    return sum(1 for q in outer())
def {b}star():
    try: raise ExceptionGroup('g', [ValueError(1), {b}E(2)])
    except* {b}E as e: note('star', len(e.exceptions))
    except* ValueError: note('value')
    return 3
def {b}drop():
    kept = [{b}D(n) for n in range(2)]
    kept.pop(0)
    note('dropped')
    return len(kept)
def {b}weak():
    d = {b}D(9)
    r = weakref.ref(d, lambda q: note('dead'))
    alive = r() is d
    del d
    return int(alive) + int(r() is None) * 2""")
    w.read(f"{b}raise()", f"{b}with()", f"next({b}gen())", f"sum(1 for q in {b}gen())", f"{b}sent()", f"{b}from()", f"{b}star()",
           f"{b}drop()", f"{b}weak()", f"len([*{b}gen()])", f"max({b}gen(), default=0)", f"{b}D(4).n")
    w.change(lambda: f"{b}k = {w.number()}", f"{b}D.__exit__ = lambda self, *a: True", f"del {b}D.__del__", f"{b}E.__str__ = lambda self: 'E'",
             f"{b}E.__bases__ = (ValueError,)", f"{b}D.n = 6", f"{b}gen = lambda: iter([1, 2])", f"{b}E = KeyError", f"{b}k = 'text'")


COMMON = """class Descriptor:
    shift = 1
    own = 0
    def __get__(self, o, t=None): return getattr(o, 'ck', 5) + self.shift + self.own
class Loose:
    ck = 12
    def m(self, a=2, *, b=3): return 13
def using(c):
    with c as v: return v
def matched(v, C):
    match v:
        case C(): return 1
    return 2
def missing(name): raise AttributeError(name)
"""

WRAPS = ["({0} + {1})", "({0} * {1})", "({0} if {1} else {0})", "max({0}, {1})", "min({0}, 3)", "int({0} == {1})", "abs({0})", "[{0}, {1}][0]",
         "({0}, {1})[1]", "len([{0}, {1}])", "{{'a': {0}}}['a']", "sum([{0}, {1}])", "float({0})", "round(float({0}), 1)", "(lambda q: q + 1)({0})",
         "len('{{}}'.format({0}))", "sum(q * {0} for q in range(2))", "next(q for q in [{0}, {1}])", "sorted([{0}, {1}])[0]", "attempt(lambda: {0})",
         "int({0} is None)", "(y * {0}).sum()", "int({0} in [1, 2])", "dict(a={0}).get('a')", "len(str({0}))", "int(isinstance({0}, int))"]
TENSORS = ["y * {0}", "y + {0}", "y - {0}", "torch.relu(y) + {0}", "y.clone().add_({0})", "torch.where(y > {0}, y, -y)", "y if {0} else y * 2", "y @ (y.t() * {0}) @ y",
           "F.dropout(y, 0.0) * {0}", "y.sum() * {0} + y", "torch.full_like(y, {0})", "y.roll(int({0}) % 3, 1)", "y.to(torch.float32) * {0}"]


def own_change(w):
    """A change of what the program reads as a statement of its own, which may be where a graph ends."""
    change = w.pick(w.changes)()
    is_plain = re.match(r"(del )?\w+[.\[]", change) and "\n" not in change and "lambda" not in change.split("=")[0]
    return change if is_plain else f"exec({change!r}, globals())"


def generate(seed):
    """(source, changes)"""
    w = World(seed)
    w.classes, w.objects = [], []
    adders = [add_globals, add_class, add_class, add_container, add_container, add_function, add_function, add_module, add_ambient,
              add_process, add_process, add_process, add_transform, add_flow]
    add_globals(w)
    for adder in w.random.sample(adders, w.random.randint(2, 5)):
        adder(w)
    for wrap in w.random.sample(WRAPS, 6):
        w.readers.append(lambda depth, wrap=wrap: wrap.format(w.value(depth - 1), w.value(depth - 1)) if depth > 1 else w.number())
    lines = ["def f(x):", "    y = x", "    acc = []"]
    declared = set()
    for _ in range(w.random.randint(2, 6)):
        kind = w.random.random()
        if kind < 0.45:
            lines.append(f"    acc.append({w.value(3)})")
        elif kind < 0.75:
            lines.append("    y = " + (w.pick(w.tensors) if w.tensors and w.chance(0.4) else w.pick(TENSORS).format(w.value(2))))
        elif kind < 0.9 and w.effects:
            effect = w.pick(w.effects) if w.chance(0.7) else own_change(w)
            if effect.startswith("global "):
                declared.add(effect.split(";")[0])
                effect = effect.split("; ", 1)[1]
            lines.append(f"    {effect}")
        elif kind < 0.95:
            lines.append(f"    if {w.value(2)}:\n        acc.append({w.value(1)})\n    else:\n        y = y * 2")
        else:
            lines.append(f"    try:\n        acc.append({w.value(2)})\n    except (AttributeError, TypeError, KeyError) as e:\n"
                         "        acc.append(type(e).__name__)")
    lines[1:1] = [f"    {one}" for one in sorted(declared)]
    lines.append("    return y, acc")
    common = COMMON + "def attempt(g):\n    try: return g()\n    except Exception: return 17\n"
    restore = "def restore():\n" + "".join(f"    {one}\n" for one in w.restores) if w.restores else ""
    state = f"def state(): return [{', '.join(w.state)}]" if w.state else "def state(): return 0"
    changes = [w.pick(w.changes)() for _ in range(w.random.randint(3, 6))]
    return "\n".join([common, *w.parts, *lines, state, restore]), changes


def check(seed, compile_function):
    """Where the program of a seed differs; empty if it does not."""
    source, changes = generate(seed)
    return hostile_worlds.differences(source, changes, compile_function, calls=3)


if __name__ == "__main__":
    import warnings

    import smelt

    warnings.simplefilter("ignore")
    first, *last = [int(one) for one in sys.argv[1:]]
    failed = 0
    for seed in range(first, last[0] if last else first + 1):
        problem = check(seed, lambda f: smelt.compile(f, backend="eager"))
        smelt.reset()
        if problem:
            failed += 1
            print(f"--- seed {seed}: {problem}", flush=True)
    print(f"{failed} of {(last[0] if last else first + 1) - first} differ")
