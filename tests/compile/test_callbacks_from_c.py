"""Python code that C code calls back: special methods, inside builtins, containers, PyTorch and numpy.

What such a method reads is guarded, and what it does is done again by each call, or the graph ends there. Each expression is
tried with an object whose method reads an attribute, a global and a class, which are changed between calls; then the method
itself is replaced and taken away.
"""

import re
import warnings

import hostile_worlds
import pytest

import smelt

# By method: the body of the class, and expressions over two of its objects, o and p.
METHODS = {
    "__index__": ("""def __index__(self): note('index', self.k); return self.k + shift""", [
        "x[:o]", "x[o]", "x[o:]", "x[::o]", "x[0, o]", "x[[o]]", "x[(o,)]", "x[..., :o]", "x.narrow(0, 0, o)",
        "torch.zeros(o)", "torch.zeros((o, 2))", "torch.zeros([o, 2])", "torch.arange(o)", "x.sum(o)",
        "x.reshape(-1, o)", "x.repeat(o, 1)", "x.roll(o)", "x.select(0, o)", "torch.tensor(o)",
        "torch.tensor([o, 3])", "x.split(o)", "x.topk(o)", "torch.full((o,), 2.0)", "F.pad(x, (o, 0))",
        "[5, 6, 7][o]", "(5, 6, 7)[o]", "[5, 6, 7][:o]", '"abc"[o]', "range(o)", "list(range(o))", "bin(o)", "hex(o)",
        "oct(o)", "operator.index(o)", "int(o)", "float(o)", "complex(o)", "[0] * o", "o * [0]", '"ab" * o',
        "(1,) * o", "bytes(o)", "round(2.56789, o)", "math.factorial(o)", "math.comb(5, o)", "slice(o).indices(5)",
        "[5, 6, 7].pop(o)", "list(itertools.islice([5, 6, 7], o))", "list(itertools.repeat(1, o))", '"x".center(o)',
        '"%d" % o', '"{:d}".format(operator.index(o))', "np.zeros(o)", "np.arange(o)", "torch.ones(3).view(o, -1)",
        "math.ldexp(1.0, o)", "torch.randn(2, generator=torch.Generator().manual_seed(o))", "x.transpose(0, o)",
        "x.flatten(o)", "torch.cat([x, x], o)", "x.index_select(0, torch.tensor([o]))", "memoryview(b'abcdef')[o]",
        "[1, 2, 3].insert(o, 9)", "x.new_zeros(o)", "x.new_full((o,), 1.0)", "torch.eye(o)",
        "torch.linspace(0, 1, o)", "max(range(o))", "len(range(o))", "sum(range(o))", "int.to_bytes(5, o, 'big')",
        "(5).to_bytes(o, 'big')", "np.ones((3, 3))[o]", "collections.deque([1, 2, 3], o)", "sys.intern('a') * o",
        "math.gcd(o, 6)", "math.perm(4, o)", "divmod(7, operator.index(o))", "x.size(o)", "x.stride(o)",
        "x.squeeze(o)",
    ]),
    "__float__": ("""def __float__(self): note('float', self.k); return float(self.k + shift)""", [
        "float(o)", "math.sqrt(o)", "math.floor(o)", "math.isclose(o, 2.0)", "complex(o)", '"%f" % o',
        '"%.2f" % (o,)', "torch.full((2,), o)", "x.add(o)", "x.pow(o)", "x.clamp(o)", "x * float(o)",
        "torch.tensor(o)", "torch.tensor([o, 1.0])", "torch.scalar_tensor(o)", "x.fill_(o)", "np.sqrt(o)",
        "np.float32(o)", "np.array([o])", "math.fsum([o, 1.0])", "math.hypot(o, 1.0)", "math.prod([1.0, float(o)])",
        "math.atan2(o, 1.0)", "F.dropout(x, o)", "F.leaky_relu(x, o)", "torch.arange(0, o)", "x + o", "o + x",
        "torch.lerp(x, x, o)", "x.masked_fill(x > 1, o)", "torch.where(x > 1, x, o)", "math.fmod(o, 2.0)",
        "np.full((2,), o)", "np.add(1.0, o)", "range(3)[0] + float(o)", "F.layer_norm(x, (3,), eps=o)",
    ]),
    "__int__": ("""def __int__(self): note('int', self.k); return self.k + shift""", [
        "int(o)", "'%d' % o", "int(o) + 1", "x[int(o)]", "np.int64(o)", "math.trunc(o)", "torch.tensor(int(o))",
        "x.sum(o)",
    ]),
    "__len__": ("""def __len__(self): note('len', self.k); return self.k + shift""", [
        "len(o)", "bool(o)", "(1 if o else 2)", "(not o)", "(o and 1)", "operator.length_hint(o)",
        "list(filter(None, [o])) == [o]", "any([o])", "all([o])", "operator.truth(o)", "operator.not_(o)",
        "torch.zeros(len(o))", "x.sum(0, keepdim=o)", "sorted([2, 1], reverse=bool(o))", "max([o, p], key=len) is o",
        "[q for q in (1, 2) if o]", "list(map(len, [o]))",
    ]),
    "__bool__": ("""def __bool__(self): note('bool', self.k); return self.k + shift > 2""", [
        "bool(o)", "(1 if o else 2)", "(not o)", "(o and 1)", "list(filter(None, [o])) == [o]",
        "list(filter(bool, [o])) == [o]", "any([o])", "all([o])", "operator.truth(o)", "operator.not_(o)",
        "sorted([2, 1], reverse=o)", "x.sum(0, keepdim=o)", "list(zip([1], [1, 2], strict=o))",
        "next((q for q in [o, p] if q), None) is o", "list(itertools.takewhile(bool, [o])) == [o]", "[1, 2][bool(o)]",
        "torch.tensor(o)", "list(itertools.compress([1, 2], [o, p]))", "np.array([1, 2])[bool(o)]",
        "functools.reduce(lambda a, b: a or b, [o, 0]) == 0", "print(end='', flush=o)", "dict(a=1) if o else 0",
    ]),
    "__getitem__": ("""def __getitem__(self, i):
  note('item', i)
  if isinstance(i, int) and i >= 3: raise IndexError(i)
  return self.k + shift + (i if isinstance(i, int) else 0)""", [
        "o[0]", "o['a']", "list(o)", "tuple(o)", "[q for q in o]", "(9 in o)", "sum(o)", "max(o)", "sorted(o)",
        "list(zip(o, o))", "list(enumerate(o))", "list(map(abs, o))", "set(o)", "operator.itemgetter(1)(o)", "[*o]",
        "{*o}", "(lambda *a: a)(*o)", "list(iter(o))", "'{0[a]}'.format(o)", "torch.tensor(list(o))",
        "[0].__iadd__(o)", "list(itertools.chain(o, o))", "operator.contains(o, 3)",
        "operator.indexOf(o, operator.getitem(o, 1))", "operator.countOf(o, 3)", "dict.fromkeys(o)",
        "np.array(list(o))", "min(o)", "any(o)", "next(iter(o))", "collections.Counter(o)", "collections.deque(o)",
        "frozenset(o)", "list(itertools.accumulate(o))", "functools.reduce(operator.add, o)", "x[o[0]:]",
        "'%(a)s' % o", "'ab'.translate(o)",
    ]),
    "__iter__": ("""def __iter__(self): note('iter', self.k); return iter([self.k + shift, 1, 2])""", [
        "list(o)", "tuple(o)", "[q for q in o]", "(9 in o)", "(4 in o)", "sum(o)", "max(o)", "sorted(o)",
        "list(zip(o, o))", "list(enumerate(o))", "list(map(abs, o))", "set(o)", "[*o]", "(lambda *a: a)(*o)",
        "list(iter(o))", "[0].__iadd__(o)", "list(itertools.chain(o, o))",
        "list(itertools.chain.from_iterable([o, p]))", "operator.countOf(o, 1)", "dict.fromkeys(o)", "min(o)",
        "any(o)", "all(o)", "next(iter(o))", "collections.Counter(o)", "collections.deque(o)", "frozenset(o)",
        "list(itertools.accumulate(o))", "functools.reduce(operator.add, o)", "list(itertools.product(o, [1]))",
        "list(itertools.islice(o, 2))", "bytes(o)", "math.fsum(o)", "math.prod(o)", "heapq.nsmallest(1, o)",
        "','.join(map(str, o))", "torch.tensor(list(o))", "set([1]).union(o)", "{1}.issubset(o)",
        "{1}.intersection(o)", "{1} == set(o)", "collections.OrderedDict.fromkeys(o)", "list(reversed(list(o)))",
        "np.fromiter(o, float)", "math.dist(o, o)", "(lambda a, b, c: a)(*o)", "list(itertools.combinations(o, 2))",
        "list(filter(None, o))", "[].extend(o)", "'%s' % list(o)", "(a1 := 0, [*o, *p])",
    ]),
    "__next__": ("""def __iter__(self): return self
 def __next__(self):
  note('next', self.k)
  self.i = getattr(self, 'i', 0) + 1
  if self.i % 4 == 0: raise StopIteration
  return self.k + shift""", [
        "list(o)", "next(o)", "next(o, 5)", "[q for q in o]", "sum(o)", "max(o, default=0)", "list(zip(o, [1, 2]))",
        "list(map(abs, o))", "tuple(o)", "set(o)", "list(itertools.islice(o, 2))", "dict.fromkeys(o)", "[*o]",
        "(3 in o)", "sorted(o)", "collections.deque(o)", "list(itertools.chain([1], o))",
        "functools.reduce(operator.add, o, 0)", "bytes(o)",
    ]),
    "__contains__": ("""def __contains__(self, a): note('contains', a); return a == self.k + shift""", [
        "(2 in o)", "(5 in o)", "(2 not in o)", "operator.contains(o, 2)", "[q for q in (1, 2, 3, 5) if q in o]",
        "list(filter(o.__contains__, [1, 2, 5]))",
    ]),
    "__eq__": ("""def __eq__(self, b): note('eq'); return self.k + shift == getattr(b, 'k', b)
 __hash__ = None""", [
        "(o == 2)", "(o == p)", "(o != p)", "(2 == o)", "(o in [p])", "(p in [o])", "[p, o].index(o)",
        "[p, o].count(p)", "[o, 1].count(2)", "(o,) == (p,)", "[o] == [p]", "{1: o} == {1: p}", "[o] != [p]",
        "([o] < [p] if o != p else 0)", "(1, p, o).index(2)", "operator.eq(o, p)", "collections.deque([o]).count(p)",
        "operator.countOf([o, p], 2)", "operator.indexOf([1, o], 5)", "(o == x.shape[0])", "[o, 7].remove(7)",
        "[7, o].remove(p)", "(o == None)", "slice(o) == slice(p)",
        "types.SimpleNamespace(a=o) == types.SimpleNamespace(a=p)",
        "list(itertools.groupby([o, p], key=lambda z: z)) != []", "range(5).index(2)", "range(5).count(o)",
        "(o in range(5))", "(o in (1, 5))", "[i for i, z in enumerate([o, p]) if z == 5]",
    ]),
    "__hash__": ("""def __hash__(self): note('hash'); return self.k + shift
 def __eq__(self, b): note('eq'); return isinstance(b, int) and b == self.k or b is self""", [
        "hash(o)", "len({o, p})", "{o: 1}[o]", "(o in {2, 5})", "(o in {2: 1, 5: 2})", "len(frozenset([o, p]))",
        "{2: 1, 5: 2}.get(o)", "hash((o, 1))", "{2: 1, 5: 2}.setdefault(o, 3)", "{2: 1}.pop(o, 7)",
        "collections.Counter([o])[o]", "{2, 3}.discard(o)", "{2} & {o}", "len({2}.union({o}))", "len({1: o})",
        "dict([(o, 1)])[o]", "{2}.isdisjoint([o])", "{o}.issuperset([2])", "cached(o)", "hash(frozenset([o]))",
        "{**{}, 'a': 1}", "dict.fromkeys([o])[o]", "len({2, 3} - {o})", "len({2: 0}.keys() & {o})",
    ]),
    "__lt__": ("""def __lt__(self, b): note('lt'); return (self.k + shift) % 5 < (b.k + shift) % 5
 def __gt__(self, b): note('gt'); return (self.k + shift) % 5 > (b.k + shift) % 5""", [
        "sorted([o, p])[0] is o", "min([o, p]) is o", "max(o, p) is o", "(o < p)", "(o > p)", "(o, 1) < (p, 1)",
        "[o] < [p]", "heapq.nsmallest(1, [o, p])[0] is o", "heapq.heappushpop([p], o) is o",
        "bisect.bisect_left([o], p)", "bisect.bisect([p], o)", "sort_list([p, o])[0] is o",
        "max([o, p], key=lambda z: z) is o", "sorted([(p, 1), (o, 2)])[0][1]", "sorted([p, o], reverse=True)[0] is o",
        "heapq.nlargest(1, [p, o])[0] is o", "bisect.insort([o], p)", "heapify([p, o])[0] is o", "operator.lt(o, p)",
        "min((o, 1), (p, 1))[0] is o", "list(heapq.merge([o], [p]))[0] is o", "max([[o], [p]])[0] is o",
        "sorted({'a': p, 'b': o}.items(), key=lambda z: z[1])[0][0]",
        "bisect.bisect_left([1, 2, 3], 2, key=lambda z: z + shift)",
    ]),
    "__str__": ("""def __str__(self): note('str'); return f'S{self.k + shift}'
 def __repr__(self): note('repr'); return f'R{self.k + shift}'""", [
        "str(o)", "repr(o)", "f'{o}'", "f'{o!r}'", "f'{o!s:>6}'", "'%s' % o", "'%s' % (o,)", "'%r' % (o,)",
        "'{}'.format(o)", "'{0!r}'.format(o)", "'{:>6}'.format(str(o))", "str([o])", "repr((o,))", "str({1: o})",
        "f'{[o]}'", "format(o)", "ascii(o)", "' '.join(map(str, [o]))", "str(ValueError(o))", "repr(ValueError(o))",
        "'%s' % [o]", "str(types.SimpleNamespace(a=o))", "f'{o}' + 'a'", "'{a}'.format(a=o)", "'%(a)s' % {'a': o}",
        "'{a}'.format_map({'a': o})", "str(collections.deque([o]))", "repr(slice(o))",
        "str(collections.OrderedDict(a=o))", "repr(functools.partial(abs, o))[-3:]", "str({'a': [o]})",
        "f'{ {1: (o,)} }'", "str(Box(o))", "repr(Pair(o, 1))", "str(Named(o))", "'|'.join(str(z) for z in [o])",
        "'x'.replace('x', str(o))", "len(str(o))", "str(collections.defaultdict(int, {1: o}))", "f'{o=}'",
        "'{0:>5}'.format(f'{o}')", "str((o, [o]))", "str(dict(a=o).values())", "repr(collections.ChainMap({1: o}))",
        "repr(itertools.repeat(o))", "str(frozenset([1])) + repr(o)", "'%a' % o", "str(BaseException(o, 1))",
        "str(KeyError(o))", "str(iter)[:3] + f'{o}'",
    ]),
    "__format__": ("""def __format__(self, spec): note('format', spec); return f'F{self.k + shift}{spec}'""", [
        "f'{o}'", "f'{o:abc}'", "format(o)", "format(o, 'q')", "'{}'.format(o)", "'{:z}'.format(o)",
        "'{a:z}'.format(a=o)", "'{0:{1}}'.format(o, 'w')", "'{a}'.format_map({'a': o})",
    ]),
    "__call__": ("""def __call__(self, *a): note('call'); return self.k + shift""", [
        "o()", "o(1)", "list(map(o, [1, 2]))", "sorted([3, 1], key=o)", "max([1, 2], key=o)",
        "functools.reduce(o, [1, 2, 3])", "functools.partial(o, 1)()", "list(filter(o, [1]))",
        "list(itertools.islice(iter(o, 77), 2))", "collections.defaultdict(o)['a']",
        "list(itertools.starmap(o, [(1,)]))", "list(itertools.accumulate([1, 2], o))", "operator.call(o)",
        "callable(o)", "list(itertools.takewhile(o, [1]))", "[1, 2].sort(key=o)", "min([1], key=o)",
        "sum(map(o, [1, 2]))", "list(itertools.groupby([1, 2], o))[0][0]", "list(itertools.dropwhile(o, [1]))",
        "heapq.nsmallest(1, [1, 2], key=o)", "bisect.bisect_left([1, 2], 1, key=o)",
        "__import__('re').sub('a', lambda m: str(o()), 'aa')", "torch.zeros(2).map_(torch.ones(2), o)",
        "torch.zeros(2).apply_(o)", "x.new_tensor(o())", "torch.utils._pytree.tree_map(o, [1, 2])",
        "list(itertools.filterfalse(o, [0]))",
    ]),
    "__getattr__": ("""def __getattr__(self, n):
  if n.startswith('__'): raise AttributeError(n)
  note('getattr', n); return self.k + shift""", [
        "o.foo", "getattr(o, 'foo')", "hasattr(o, 'foo')", "operator.attrgetter('foo')(o)", "'{0.foo}'.format(o)",
        "getattr(o, 'foo', 3)", "list(map(operator.attrgetter('foo'), [o]))", "f'{o.foo}'",
        "sorted([o], key=operator.attrgetter('foo')) == [o]", "x * o.foo",
    ]),
    "__getattribute__": ("""def __getattribute__(self, n):
  if n.startswith('_') or n == 'k': return object.__getattribute__(self, n)
  note('getattribute', n); return self.k + shift""", [
        "o.foo", "getattr(o, 'foo')", "hasattr(o, 'foo')", "operator.attrgetter('foo')(o)", "'{0.foo}'.format(o)",
        "x * o.foo",
    ]),
    "__add__": ("""def __add__(self, b): note('add'); return (self.k + shift) * (b if isinstance(b, torch.Tensor) else 1)
 __radd__ = __add__
 def __iadd__(self, b): note('iadd'); return self.k + shift
 __mul__ = __rmul__ = __sub__ = __rsub__ = __truediv__ = __rtruediv__ = __matmul__ = __rmatmul__ = __pow__ = __rpow__ = __mod__ = __rmod__ = __and__ = __rand__ = __or__ = __ror__ = __add__""", [
        "(o + 1)", "(1 + o)", "(o + p)", "(x + o)", "(o + x)", "(x * o)", "(x - o)", "(x / o)", "(x @ o)", "(o @ x)",
        "(x ** o)", "(x & o)", "(x % o)", "operator.add(o, 1)", "sum([o, 1])", "operator.iadd(o, 1)",
        "functools.reduce(operator.add, [1, o])", "torch.add(x, o)", "x.add(o)", "(o - x)", "(2 ** o)",
        "('a%s' % (o + 1,))", "list(itertools.accumulate([1, o]))", "list(map(operator.add, [o], [1]))", "pow(o, 2)",
        "([1] + o)", "(o + [1])", "('a' + o)", "('%s' % o)[:0] + str(o + 1)", "math.prod([o, 2])", "(np.ones(2) + o)",
        "(o + np.ones(2))", "x.mul(o)", "torch.sum(x + o)",
    ]),
    "__neg__": ("""def __neg__(self): note('neg'); return self.k + shift
 __abs__ = __invert__ = __pos__ = __round__ = __trunc__ = __floor__ = __ceil__ = __neg__
 def __divmod__(self, b): note('divmod'); return self.k + shift""", [
        "-o", "abs(o)", "~o", "+o", "round(o)", "math.trunc(o)", "math.floor(o)", "math.ceil(o)", "divmod(o, 1)",
        "operator.neg(o)", "int(o)", "list(map(abs, [o]))", "torch.neg(o)", "torch.abs(o)",
    ]),
    "__array__": ("""def __array__(self, *a, **kw): note('array'); return np.full(2, float(self.k + shift), dtype=np.float32)""", [
        "np.asarray(o)", "np.array(o)", "torch.tensor(o)", "torch.as_tensor(o)", "np.sum(o)", "torch.asarray(o)",
        "np.sqrt(o)", "torch.from_numpy(np.asarray(o))", "(np.ones(2) + o)", "x.new_tensor(np.asarray(o))",
        "np.stack([o, o])", "torch.tensor(np.asarray(o))",
    ]),
    "__array_interface__": ("""@property
 def __array_interface__(self): note('ai'); return np.full(2, float(self.k + shift), dtype=np.float32).__array_interface__""", [
        "np.asarray(o).shape", "torch.as_tensor(np.asarray(o)).shape",
    ]),
    "__torch_function__": ("""def __torch_function__(self, func, types, args=(), kwargs=None): note('tf'); return torch.full((2,), float(self.k + shift))""", [
        "torch.add(x, o)", "torch.matmul(x, o)", "(x + o)", "x.add(o)", "torch.stack([x, o])", "F.relu(o)",
        "torch.sum(o)", "torch.zeros_like(o)", "torch.where(x > 1, x, o)", "torch.cat((x, o))", "x[o]", "x.sum(o)",
        "torch.tensor(o)", "torch.as_tensor(o)", "(x == o)", "F.linear(x, o)", "torch.max(o)", "torch.full((2,), o)",
        "x.mul_(o)", "torch.einsum('ij,ij->i', x, o)",
    ]),
    "__torch_function__ class": ("""@classmethod
 def __torch_function__(cls, func, types, args=(), kwargs=None): note('tf'); return torch.full((2,), float(cls.k + shift))""", [
        "torch.add(x, o)", "torch.matmul(x, o)", "(x + o)", "x.add(o)", "torch.stack([x, o])", "F.relu(o)",
        "torch.sum(o)", "torch.zeros_like(o)", "torch.where(x > 1, x, o)", "F.linear(x, o)",
    ]),
    "__enter__": ("""def __enter__(self): note('enter'); return self.k + shift
 def __exit__(self, *a): note('exit')""", [
        "with_(o)", "contextlib.ExitStack().enter_context(o)", "with_stack(o)",
    ]),
    "__reversed__": ("""def __reversed__(self): note('rev'); return iter([self.k + shift])""", [
        "list(reversed(o))", "[z for z in reversed(o)]",
    ]),
    "__length_hint__": ("""def __length_hint__(self): note('hint'); return self.k + shift
 def __iter__(self): return iter([1, self.k])""", [
        "operator.length_hint(o)", "list(o)", "tuple(o)", "[].extend(o)",
    ]),
    "__fspath__": ("""def __fspath__(self): note('fspath'); return f'p{self.k + shift}'""", [
        "os.fspath(o)", "os.path.join('a', o)", "os.path.basename(o)", "os.path.exists(o)",
        "str(__import__('pathlib').PurePosixPath(o))", "os.path.split(o)",
    ]),
    "__complex__": ("""def __complex__(self): note('complex'); return complex(self.k + shift)""", [
        "complex(o)", "__import__('cmath').sqrt(o)", "torch.full((2,), complex(o))",
    ]),
    "__get__": ("""class D:
  def __get__(self, i, t=None): note('get'); return (i or t).k + shift
  def __set__(self, i, v): note('set', v); i.j = v
 d = D()""", [
        "o.d", "getattr(o, 'd')", "hasattr(o, 'd')", "operator.attrgetter('d')(o)", "setattr(o, 'd', 3)",
        "'{0.d}'.format(o)", "x * o.d", "type(o).d", "vars(o).get('d')",
    ]),
    "property": ("""@property
 def d(self): note('prop'); return self.k + shift
 @functools.cached_property
 def c(self): note('cached'); return self.k + shift
 @classmethod
 def cm(cls): return cls.k + shift
 @staticmethod
 def sm(): return shift""", [
        "o.d", "getattr(o, 'd')", "operator.attrgetter('d')(o)", "'{0.d}'.format(o)", "x * o.d", "o.c", "x * o.c",
        "o.cm()", "type(o).cm()", "o.sm()", "x + o.sm()",
    ]),
    "__copy__": ("""def __copy__(self): note('copy'); return self.k + shift
 def __deepcopy__(self, memo): note('deepcopy'); return self.k + shift
 def __reduce__(self): note('reduce'); return (int, (self.k + shift,))""", [
        "copy.copy(o)", "copy.deepcopy(o)", "copy.deepcopy([o])", "copy.deepcopy({1: o})", "copy.copy([o])[0] is o",
    ]),
    "__class_getitem__": ("""def __class_getitem__(cls, i): note('cgi'); return cls.k + shift""", [
        "C[1]", "type(o)[2]", "operator.getitem(C, 1)",
    ]),
    "__dir__": ("""def __dir__(self): note('dir'); return [f'a{self.k + shift}']
 def __sizeof__(self): note('size'); return self.k + shift""", [
        "dir(o)", "o.__dir__()", "o.__sizeof__()",
    ]),
    "__init_subclass__": ("""def __init_subclass__(cls, **kw): note('sub'); cls.z = cls.k + shift
 def __set_name__(self, owner, name): note('set_name'); owner.y = self.k + shift""", [
        "type('T', (C,), {}).z", "type('T', (), {'a': o}).y", "make_class().z",
    ]),
    "__getstate__": ("""def __getstate__(self): note('gs'); return {'k': self.k + shift}""", [
        "copy.copy(o).k", "copy.deepcopy(o).k",
    ]),
    "__new__": ("""def __new__(cls, *a): note('new'); s = object.__new__(cls); s.k = cls.k + shift; return s
 def __init__(self, *a): note('init', self.k)""", [
        "C().k", "type(o)(1).k", "[c().k for c in [C]]", "list(map(C, [1]))[0].k",
    ]),
    "__del__": ("""def __del__(self): note('del')""", [
        "(C(), 1)[1]",
    ]),
}
# What a method is replaced by, where nothing else would do: it must come to an end.
OTHERS = {
    "__index__": "lambda s: 1", "__float__": "lambda s: 1.5", "__int__": "lambda s: 1", "__len__": "lambda s: 1",
    "__bool__": "lambda s: False", "__getitem__": "lambda s, i: [7, 8][i]", "__iter__": "lambda s: iter([7])",
    "__next__": "lambda s: [].pop()",
}

WORLD = """
shift = 0
class C:
 k = 2
 {body}
o, p = C(), C()
p.k = 5
@functools.lru_cache
def cached(v): return v.k
def sort_list(l): l.sort(); return l
def heapify(l): heapq.heapify(l); return l
def with_(c):
    with c as v: return v
def with_stack(c):
    with contextlib.ExitStack() as s: return s.enter_context(c)
class Box:
    def __init__(self, v): self.v = v
    def __repr__(self): return f'Box({{self.v!r}})'
@dataclasses.dataclass
class Pair: a: object; b: object
class Named(typing.NamedTuple): a: object
def make_class():
    class T(C): pass
    return T
def f(x):
    y = x + 1
    return (y, {expression})
"""


@pytest.mark.parametrize("name", METHODS)
def test_callbacks(name):
    body, expressions = METHODS[name]
    method = "d" if name in ("property", "__get__") else re.search(r"def (\w+)", body).group(1)
    other = OTHERS.get(method, "lambda s, *a: note('other')")
    changes = ["o.k = 3", "shift = 1", "C.k = 4", f"C.{method} = {other}", "p.k = 1"]
    if name != "__hash__":  # an address after that
        changes.append(f"del C.{method}")
    problems = []
    for expression in expressions:
        smelt.reset()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            world = WORLD.format(body=body, expression=expression)
            problems.append(hostile_worlds.differences(world, changes, lambda f: smelt.compile(f, backend="eager")))
    assert not any(problems), "\n".join(problems)
