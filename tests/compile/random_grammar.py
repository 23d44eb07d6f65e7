"""The grammar of the random programs, as text.

A line of EXPRESSIONS is a way to write an expression of a kind, a line of SIMPLE or a paragraph of COMPOUND a way to
write a statement; a number and "|" in front is its weight. In all of them

    $int          any expression of that kind        $int.var     a variable of the kind that may be assigned
    $int.atom     a variable or a literal            $int.name    any variable of the kind
    $int.new      a new variable                     $int.fixed   a new variable that nothing else assigns
    $i:int.bind   the variable of a comprehension or lambda, called $i afterwards, and hidden in $ints.outer
    ...           a block of statements; ...! one in which something is likely to raise
    ^             in front: makes a list longer, which a function must not do that runs while the list is iterated

Loops run over a handful of things or count a fixed variable, numbers and containers are cut down where they grow, and
functions only call functions written before them: so every program ends. What may raise is rare outside of try blocks.
"""

from random_tables import expressions, statements, weighted

EXPRESSIONS = {
    "int": """
        3| $int + $int
        2| $int - $int
        2| $int * $int % 17
        $int // 3
        -$int
        ~$int & 15
        $int ^ 5
        abs($int)
        len($ints)
        len($table)
        len($str)
        sum($ints)
        max($ints, default=0)
        min($int, $int)
        max($int, $int, 2)
        $table.get($str, $int)
        $int if $bool else $int
        int($bool)
        sum($i:int.bind * $int for $i in $ints.outer) % 1009
        sum(1 for $i:int.bind in $ints.outer if $bool)
        sum($a:int.bind * $b:int.bind for $a, $b in zip($ints.outer, $ints.outer)) % 1009
        functools.reduce(lambda $a:int.bind, $b:int.bind: $a - $b, $ints.outer, $int.outer)
        functools.partial(spread, $int)($int)
        (lambda $a:int.bind, $b:int.bind=2: $int)($int.outer)
        divmod($int, 4)[1]
        2| $fn.name($int)
        $fn.name($int, step=$int)
        spread($int, *$ints, scale=2)
        spread($int, $int, **$table)
        factorial($int % 5)
        remember($int)
        next(iter($ints), $int)
        next((n for n in $ints if n > $int), -1)
        $T2.size(0)
        $T2.shape[-1]
        $T2.dim()
        $T2.numel()
        len($T2)
        2| int(torch.clamp($T0, -9, 9).item())
        ($T2 > 0).sum().item()
        $str.count('a')
        getattr($box.name, 'k')
        getattr($box.name, 'missing', $int)
        $box.name.double
        2| $box.name.bump($int)
        $box.name.total($int, scale=2)
        $box.name + $int
        $box.name($int, step=2)
        len($box.name)
        Box.made
        Box.clip($int)
        Color($int % 3 + 1).value
        $pair[0]
        Pair($int, $T2).n
        Point($int, $T2).moved(2).a
        sum(counting($int % 4, $int))
        G_INT + $int
        G_LIST[0]
        len(LOG)
        [$int, $int, $int][$int % 3]
        {True: $int, False: $int}[$bool]
        ($n:int.walrus := $int) + $n
        int(f'''{$int.atom}''') + 1
        random.randrange(5)
        math.gcd($int, 12)
        int(math.atan($float) * 3)
        round(math.tanh($float) * 4)
        math.floor(math.atan($float) * 2)
        pow($int % 7, 2)
        $net.name.calls
    """,
    "float": """
        2| $float * 0.5
        $float + $int
        $int / 4
        float($int)
        math.sqrt(abs($int))
        math.sin($int)
        math.atan($float)
        math.hypot($float, $int)
        abs($float)
        math.copysign($float, $int)
        round($float, 2)
        min($float, $float)
        2| $T0.item()
        float($T0)
        random.random()
        $float if $bool else $float
        G_FLOAT + $float
    """,
    "bool": """
        3| $int > $int
        $int == $int
        $int < $int <= 5
        $float < $float
        not $bool
        $bool and $bool
        $bool or $int > 2
        $str in $table
        $int in $ints
        $int in $bag
        $int not in ($int, 2)
        isinstance($any, int)
        isinstance($any, (torch.Tensor, list))
        isinstance($box.name, SubBox)
        hasattr($box.name, 'missing')
        any($i:int.bind > $int for $i in $ints.outer)
        all($bool for $i:int.bind in $ints.outer)
        $str.startswith('a')
        $T2.requires_grad
        $box.name is $box.name
        $T2 is $T2
        $ints is $ints
        $ints == $ints
        callable($fn.name)
        $net.name.training
        torch.is_grad_enabled()
        bool($box.name)
        2| bool($tcond)
        Color($int % 3 + 1) is Color.RED
        $int
        $ints
        type($any) is int
    """,
    "tcond": """
        $T0 > 0
        $T2.sum() > $float
        $T0 < $T0
        ($T2 > 0).any()
        torch.equal($T2, $T2)
        $T2.mean() > $T0
    """,
    "str": """
        f'''{$int.atom}-{$str.atom}'''[:12]
        f'''{$float.atom:.2f} {$int.atom!r:>4}'''
        f'''{$int.atom + 1}{$str.atom.upper()}'''[:12]
        ($str + $str)[:12]
        str($int)[:9]
        $str.upper()
        $str[::-1]
        $str[1:]
        '-'.join(str($i:int.bind) for $i in $ints.outer)[:12]
        '%d:%s' % ($int % 99, $str)
        '{} {n}'.format($str, n=$int % 99)
        repr($ints)[:20]
        type($any).__name__
        str($T2.dtype)
        $str.replace('a', 'bc')[:12]
        $str.split('-')[0]
        str(tuple($T2.shape))
        Color($int % 3 + 1).name
        $str if $bool else $str
        ''.join(sorted($table))
    """,
    "ints": """
        2| [$int, $int]
        [*$ints, $int][:8]
        list(range($int % 5))
        [$i:int.bind * 2 for $i in $ints.outer]
        [$int for $i:int.bind in $ints.outer]
        [$i:int.bind for $i in $ints.outer if $bool]
        [$a:int.bind + $b:int.bind for $a in $ints.outer[:2] for $b in $ints.outer[:2]]
        sorted($ints)
        sorted($ints, key=lambda $i:int.bind: $int, reverse=$bool.outer)
        $ints[1:]
        $ints[::-1]
        $ints[-2:]
        ($ints + $ints)[:8]
        ($ints * 2)[:8]
        sorted($bag)
        list($table.values())
        list(map($fn.name, $ints))
        list(map(lambda $i:int.bind: $int, $ints.outer))
        list(filter(lambda $i:int.bind: $bool, $ints.outer))
        [a + b for a, b in zip($ints, $ints)]
        [i * v % 97 for i, v in enumerate($ints, $int)]
        list(reversed($ints))
        $ints.copy()
        list(counting($int % 4))
        [*$box.name]
        list($T2.shape)
        list(itertools.chain($ints, $ints))[:8]
        list(itertools.accumulate($ints))
        list(itertools.islice(itertools.count($int), 3))
        [n for pair in $table.items() for n in pair[1:]]
        list(dict.fromkeys($ints))
        list(collections.deque($ints, maxlen=3))
        (lambda *a, **k: [*a, *k.values()])(*$ints, z=$int)
        $ints if $bool else G_LIST
    """,
    "tensors": """
        2| [$T2, $T2]
        [$i:T2.bind * $float for $i in $tensors.outer]
        [*$tensors, $T2][:4]
        $tensors[:1]
        list(halves($T2, 2))
        list(map(torch.sin, $tensors))
        sorted($tensors, key=lambda v: v.sum().item())
        [a - b for a, b in zip($tensors, $tensors)]
        list(($T2 + 0).unbind(0)) and [$T2]
    """,
    "T2": """
        4| $T2 + $T2
        3| $T2 * $float
        2| $T2 - $int
        2| $T2 * $T2
        $int - $T2
        $T2 * $T1
        $T2 + $T0
        2| torch.relu($T2)
        $T2.sin()
        torch.tanh($T2)
        $T2.clamp(min=$float)
        torch.where($T2 > 0, $T2, $T2)
        -$T2
        $T2.abs() ** 0.5
        $T2.t().contiguous().t()
        $T2.clone()
        $T2 / ($int % 7 + 1.5)
        $T2.detach()
        3| $net.name($T2 + torch.zeros(3))
        $net.name($T2, flip=$bool)
        $box.name.scale($T2)
        $box.name.keep($T2).t
        3| $tfn.name($T2)
        torch.stack([$T2.sum(), $T2.mean()]).view(1, 2).sum(1, keepdim=True)
        sum($tensors, $T2)
        functools.reduce(torch.add, $tensors, $T2)
        torch.cat([$a:T2.name, $a]).mean(0, keepdim=True)
        $T2.softmax(-1)
        F.dropout($T2, 0.5, $bool)
        torch.rand_like($T2)
        $T2[:1]
        $T2[:, :1]
        $T2[..., -1:]
        $T2[$int % 2:]
        $T2 if $bool else $T2
        max($tensors, key=lambda v: float(v.sum()), default=$T2)
        torch.zeros_like($T2)
        torch.full_like($T2, $float)
        $T2.masked_fill($T2 > $float, 0.5)
        $T2.to(torch.float64)
        fold($T2, $int % 3)
        shifted($T2, by=$int)
        Pair(n=$int, t=$T2).t
        $pair[1]
        G_T * $T2
        next(halves($T2, 1))
        (lambda $v:T2.bind: $T2)($T2.outer)
        (torch.add if $bool else torch.mul)($T2, $int)
        $T2.mul($float).add_(1)
        ($T2 > $float).to($T2.dtype)
        torch.arange($int % 4 + 1).sum() * $T2
    """,
    "T1": """
        3| $T2.sum(0)
        $T2.mean(dim=0)
        $T1 * $float
        $T1 + $T1
        $T2[0]
        $T2.max(0).values
        $T1.exp().clamp(max=9)
        $net.name.gain * $float
    """,
    "T0": """
        3| $T2.sum()
        $T1.max()
        2| $T2.mean()
        $T0 * $float
        $T0 + $T0
        torch.tensor($float)
        ($T2 * $T2).sum()
        torch.tensor([$int, $int]).sum() * 0.5
        torch.zeros(()) + $int
        $net.name.count + 1
    """,
    "table": """
        {'a': $int, 'b': $int}
        {**$table, $str: $int}
        dict($table)
        {str($i:int.bind): $int for $i in $ints.outer[:3]}
        $table | {'c': $int}
        dict(zip('abc', $ints))
        dict(a=$int, z=$int)
        collections.OrderedDict(b=$int, a=$int)
        collections.Counter($str)
        {k: v + 1 for k, v in $table.items()}
    """,
    "bag": """
        {$int, $int}
        set($ints)
        $bag | {$int}
        $bag & $bag
        $bag - {$int}
        {$i:int.bind % 3 for $i in $ints.outer}
        frozenset($ints)
    """,
    "pair": "2| ($int, $T2) \n Pair($int, $T2) \n Pair(t=$T2, n=$int) \n (lambda *a: a)($int, $T2)",
    "box": "Box($int, $T2) \n 2| Box($int) \n SubBox($int) \n Box.make($int) \n SubBox.make($int)",
    "any": "$int \n $float \n $bool \n $str \n 3| $T2 \n $T1 \n $T0 \n $ints \n $tensors \n $table \n $bag \n $pair \n "
    "$box \n None \n $fn.name \n $net.name \n Point($int, $T2) \n Color.RED \n torch.Size([1, 2]) \n G_LIST \n "
    "lambda $v:T2.bind: $T2 \n functools.partial(shifted, by=$int) \n slice($int, None) \n range($int % 9) \n Box",
    "result": "8| $T2 \n 3| ($any, $any) \n [$any, $T2] \n {'r': $any, 's': $T2} \n $any \n 2| ($T2, $T0, $int)",
}

# Expressions that may well raise: in try blocks, and rarely elsewhere.
RISKY = {
    "int": "$int // $int \n $ints[$int] \n $table[$str] \n int($str) \n refuse($int) \n $box.name.missing \n "
    "next(iter($ints)) \n $ints.index($int) \n $box.name[$int] \n ord($str) \n $undefined \n min($ints) \n "
    "spread() \n $int + $str \n int($T2) \n $T2.shape[$int] \n max($bag) \n $none.real",
    "float": "$int / $int \n math.sqrt($float) \n math.log($int) \n round($T0.item())",
    "bool": "$str < $int \n bool($T2)",
    "str": "$str[$int] \n '%d' % $str \n $str + $int",
    "T2": "$T2 + torch.ones(5, 7) \n torch.stack($tensors).sum(0) \n $T2.view(-1, 4) \n $T2 @ $T2 \n "
    "$T2[$int:] + $T2[1:] \n $T2[9] \n torch.cat([]) \n $tensors[$int] \n $T2.nonsense \n torch.add($T2) \n "
    "$T2.sum(5) \n $T2 + $str",
    "T1": "$T1[$int] * $T1 \n $T1 + $T2[0]",
    "table": "dict($ints) \n {$ints: 1}",
}

LITERALS = {
    "int": "0 1 2 3 5 -1 7".split(),
    "float": "0.5 1.5 -0.25 2.0".split(),
    "bool": ["True", "False"],
    "str": ["'ab'", "'a-c'", "''", "'x'"],
    "T0": ["torch.tensor(2.0)"],
    "T1": ["torch.full((1,), 0.5)"],
    "T2": ["torch.full((1, 1), 1.5)"],
    "ints": ["[1, 2, 3]", "[]"],
    "tensors": ["[torch.ones(1, 1)]"],
    "table": ["{'a': 1}", "{}"],
    "bag": ["{1, 2}"],
    "pair": ["(1, torch.ones(1, 1))"],
    "box": ["Box(2)"],
    "tcond": ["torch.tensor(True)"],
    "undefined": ["undefined"],
    "none": ["None"],
}

SIMPLE = """
8| $T2.new = $T2
3| $T2.var = $T2
2| $int.new = $int
2| $int.var = $int
2| $int.var += $int
$int.var -= $int
$float.new = $float
$bool.new = $bool
$float.var *= 0.5
$str.new = $str
$str.var = $str
$ints.new = $ints
$tensors.new = $tensors
$table.new = $table
$bag.new = $bag
$pair.new = $pair
$T1.new = $T1
$T0.new = $T0
2| $box.new = $box
$a:ints.new = $b:ints.new = $ints
$int.new, $T2.new = $pair
$int.new, $int.new = $int, $int
$int.new, *$ints.new = $int, *$ints
*$ints.new, $int.new = [$int, *$ints]
$a:int.var, $b:int.var = $b, $a
($int.new, ($str.new, $T2.new)) = $int, ($str, $T2)
^2| $ints.name.append($int)
^$ints.name.extend($ints[:2])
^$ints.name.insert($int, $int)
$ints.name.sort(key=lambda $i:int.bind: $int)
$ints.name.reverse()
^$ints.name[:1] = [$int, $int]
$ints.name[:] = $ints[:4]
del $ints.name[:1]
^$ints.var += [$int]
^2| $tensors.name.append($T2)
del $tensors.name[2:]
2| $table.name[$str] = $int
$table.name.update(a=$int, c=$int)
$table.name.setdefault($str, $int)
$table.name.pop($str, None)
$table.name |= {'q': $int}
$b:table.name['n'] = $b.get('n', 0) + 1
$a:bag.var = $a | {$int}
$box.name.k = $int
$box.name.k += $int
$box.name.x = $float
$box.name.t = $T2
$box.name.double = $int
^$box.name.items.append($int)
$box.name.extra = $any
setattr($box.name, 'k', $int)
$box.name.table[$str] = $int
$box.name[0] = $int
$box.name.bump()
Box.made += 1
$net.name.calls += 1
$net.name.note = $any
$net.name.train($bool)
$T2.name.add_(1)
$T2.name.detach().add_(1)
$T2.var += $T2
$T2.var *= $float
$T2.name[0] = $float
$T2.name[:, 0] += 1
$T2.name.mul_($T0.detach())
$T2.name.copy_($T2.detach())
$T1.var = $T1
$T0.var = $T0
$T0.var += $T0
torch.sin($T2, out=torch.empty(0))
2| print($int, $str)
print(f'''{$int.atom} {$float.atom}''', end=';')
print($T2.detach())
print(*$ints, sep=',')
LOG.append($any)
LOG.append($str)
^G_LIST.append($int)
G_LIST[:] = [$int]
G_TABLE['n'] = G_TABLE.get('n', 0) + $int
G_T.add_($float)
assert $bool or $int < 99, $str
pass
$fn.new = make_counter($int)
$fn.new = lambda $i:int.bind, step=$int.outer: $int
$tfn.new = lambda $v:T2.bind: $T2
$tfn.new = functools.partial(torch.add, $int)
$tfn.new = $box.name.scale
$int.new = sum($genfn.name($int))
"""

COMPOUND = """
if len($a:ints.name) < 9:
    $a.append($int)

if $a:ints.name:
    $int.new = $a.pop()

if $a:ints.name:
    $a[0] = $int

if $a:ints.name:
    $a[-1] += $int

for $i:int.fixed, $v:T2.fixed in enumerate($a:tensors.name):
    $a[$i] = $v * $float

if 'a' in $a:table.name:
    del $a['a']

for $k:str.fixed, $v:int.fixed in $table.items():
    ...

for $k:str.fixed in sorted($table):
    ...

for $i:int.fixed in sorted($bag):
    ...

if hasattr($b:box.name, 'extra'):
    del $b.extra

2| def $f:fn.new($a:int.param, step=$int.outer):
    ...
    return $int

def $f:fn.new($a:int.param, *more, step=1, **named):
    nonlocal $int.local
    $int.var += 1
    ...
    return $int + step + len(more)

2| def $f:tfn.new($v:T2.param, $n:int.param=$int.outer):
    ...
    return $T2

def $f:tfn.new($v:T2.param):
    nonlocal $b:T2.local
    $b = $b + $v
    return $b

def $f:genfn.new($a:int.param):
    ...
    yield $int
    for $i:int.fixed in range(2):
        yield $int
    ...

for $i:int.fixed in $genfn.name($int):
    ...

$a:gen.new = $genfn.name($int)
$int.new = next($a, 0)
...
$ints.new = list($a)

3| if $bool:
    ...

2| if $bool:
    ...
else:
    ...

if $bool:
    ...
elif $bool:
    ...
else:
    ...

3| if $tcond:
    ...
else:
    ...

2| if $tcond:
    ...

4| for $i:int.fixed in range($int % 4):
    ...

2| for $i:int.fixed in range(3):
    ...

for $i:int.fixed in $ints[:4]:
    ...
else:
    ...

for $v:T2.fixed in $tensors[:3]:
    ...

for $i:int.fixed, $j:int.fixed in enumerate($ints[:3]):
    ...

for $i:int.fixed, $v:T2.fixed in zip($ints[:3], $tensors):
    ...

for $i:int.fixed in reversed(range(2)):
    ...

for $i:int.fixed in reversed($ints[:3]):
    ...

for $i:int.fixed in set($ints[:4]):
    ...

for $i:int.fixed in filter(None, $ints[:4]):
    ...

for $i:int.fixed in map(abs, $ints[:3]):
    ...

for $i:int.fixed, ($j:int.fixed, $k:int.fixed) in zip(range(3), enumerate($ints[:3])):
    ...

with torch.profiler.record_function('marked'):
    ...

with contextlib.ExitStack() as stack:
    stack.enter_context(torch.no_grad())
    stack.callback(LOG.append, $int)
    ...

with contextlib.suppress(KeyError), contextlib.nullcontext():
    ...!

for $v:T1.fixed in $T2:
    ...

for $v:T2.fixed in halves($T2, 2):
    ...

for $a:int.fixed, *$b:ints.new in [(1, 2, 3), ($int, $int)]:
    ...

2| $i:int.fixed = 0
while $i < 3:
    $i += 1
    ...

$i:int.fixed = 0
while $i < 4 and $bool:
    $i += 1
    ...
else:
    ...

$i:int.fixed = $int % 4
while $i:
    $i -= 1
    ...

$i:int.fixed = 0
while $T2.abs().sum() > $float and $i < 3:
    $i += 1
    ...

$i:int.fixed = 0
while True:
    $i += 1
    if $i > 2:
        break
    ...

3| try:
    ...!
except ($error, $error) as $e:err.new:
    print(type($e).__name__, $e)
    ...

try:
    ...!
except Exception:
    ...
else:
    ...

2| try:
    ...!
except $error:
    ...
finally:
    ...

try:
    ...
finally:
    LOG.append('finally')
    ...

try:
    ...!
    raise Refused($int)
except Refused as $e:err.new:
    $int.var = $e.n

try:
    raise KeyError($str)
except (KeyError, ValueError):
    ...

try:
    try:
        ...!
        raise ValueError($str)
    except ValueError as $e:err.new:
        raise RuntimeError(str($e)) from $e
except RuntimeError as $e:err.new:
    print(repr($e.__cause__))

2| with Scope($str):
    ...

with Scope($str, $error) as $s:scope.new:
    ...!

with Scope('a', (ValueError, ArithmeticError)), scope('b', $int) as $i:int.fixed:
    ...!

with scope($str):
    ...
    if $bool:
        raise ValueError($str)

2| with torch.no_grad():
    ...

with torch.enable_grad():
    ...

with torch.autocast('cpu', dtype=torch.bfloat16, enabled=$bool):
    $T2.var = $T2

with contextlib.suppress($error):
    ...!

with contextlib.ExitStack() as stack:
    stack.callback(LOG.append, $int)
    ...

match $int % 3:
    case 0:
        ...
    case 1 | 2 if $bool:
        ...
    case _:
        ...

match $table:
    case {'a': $a:int.fixed, **rest}:
        ...
    case _:
        ...

match $any:
    case [$a:any.new, *_]:
        LOG.append('list')
    case torch.Tensor():
        ...
    case Box(k=$k:int.fixed):
        ...
    case None | True | 0:
        ...

if ($n:int.walrus := len($ints)) > 1:
    $int.var = $n

$p:point.new = Point($int, $T2)
$p.seen.append($int)
$p.t = $p.t + $p.a
$T2.new = $p.t

$d:deque.new = collections.deque($ints, maxlen=3)
$d.append($int)
$d.appendleft($int)
$ints.new = list($d)

$a:gen.new = halves($T2, 3)
$T2.new = next($a)
$T2.new = $a.send($T2)
$a.close()

$a:iter.new = iter($ints[:4])
for $i:int.fixed in $a:
    ...
    break
$ints.new = list($a)

with $net.name.linear.register_forward_hook(lambda m, i, o: o * 2):
    $T2.new = $net.name($T2)
"""

# Only where they make sense: in a loop, in a function that returns $result, where something may be raised.
IN_LOOP = """
break

continue

2| if $bool:
    break

2| if $bool:
    continue

if $tcond:
    break
"""

IN_MAIN = """
2| if $bool:
    return $result

if $tcond:
    return $result
"""

RAISES = """
raise $error($str)

2| $int.new = $int

2| $T2.new = $T2

if $bool:
    raise $error($str)

assert $bool, $str
"""

ERRORS = ("ValueError", "KeyError", "IndexError", "ZeroDivisionError", "RuntimeError", "TypeError", "AttributeError",
          "Refused", "LookupError", "ArithmeticError", *6 * ["Exception"])


EXPRESSIONS, RISKY = expressions(EXPRESSIONS), expressions(RISKY)
STATEMENTS = weighted(SIMPLE.strip().splitlines()) + statements(COMPOUND)
IN_LOOP, IN_MAIN, RAISES = map(statements, (IN_LOOP, IN_MAIN, RAISES))
