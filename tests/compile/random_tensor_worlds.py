"""Random programs over tensors, forward and backward, whose world changes between calls: modules, hooks, custom functions,
modes, contexts, generators, destructors, views on one memory.

generate(seed) gives a world for hostile_worlds.py. In it `f` is compiled and `drive` calls it as a user would: it makes the
input, calls, makes a backward pass, and gives all that can be seen of the results. Whoever wants more to be tried adds a part.

    ./dev python tests/compile/random_tensor_worlds.py 17             the program of a seed, and where it differs
    ./dev python tests/compile/random_tensor_worlds.py 0 500 native   many, with a back end
"""

import sys

import hostile_worlds
import random_mutations

FACTORS = ["0.5", "2.0", "1.5", "-1.0", "3"]
SMOOTH = ["torch.sin({y})", "{y} * {c}", "torch.tanh({y}) + {c}", "F.softmax({y}, -1)", "{y}.flip(0)", "{y} + {y}.mean()",
          "{y}.clone()", "F.layer_norm({y}, (3,))", "torch.cat([{y}[:1], {y}[1:]])", "torch.stack([{y}[1], {y}[0]])",
          "{y}.detach() + {y}", "torch.where({y} > {c}, {y}, -{y})", "{y}[torch.tensor([1, 0])]", "{y}.expand(2, 2, 3)[0].clone()",
          "{y}.t().contiguous().t()", "({y} @ torch.arange(9.0).view(3, 3)) * 0.1", "{y} - {y}.amax(-1, keepdim=True)", "{y}.reshape(-1).reshape(2, 3)",
          "{y}.unbind(0)[0] + {y}", "torch.addcmul({y}, {y}, {y}, value=0.1)", "{y}.masked_fill({y} > 1, 0.5)", "{y} * {x}", "{y} + {x}.sum()",
          "F.dropout({y}, 0.0)", "{y}.square() * 0.1", "{y} / ({y}.abs() + 1)"]


class World(random_mutations.World):
    def __init__(self, seed):
        super().__init__(seed)
        self.blocks = []   # functions from lines to lines around them
        self.exact = True  # the compiled program draws no numbers in another order

    def factor(self):
        return self.pick(FACTORS)

    def tensor(self, depth=1, y="y"):
        """An expression of y's shape."""
        expression = self.pick(self.tensors) if self.tensors and self.chance(0.5) else self.pick(SMOOTH)
        inner = f"({self.tensor(depth - 1, y)})" if depth > 0 and self.chance(0.5) else y
        return expression.replace("{y}", inner).replace("{x}", "x").replace("{c}", self.factor())

    def block(self, head, after=()):
        heads = head.split("\n")
        inner = " " * (len(heads[-1]) - len(heads[-1].lstrip()) + 4)
        self.blocks.append(lambda lines: [*heads, *(inner + one for one in lines), *after])


# -- parts -------------------------------------------------------------------------------------------------------------


def add_net(w):
    """A module, and what users do to modules."""
    m = w.name("net")
    w.add(f"""class {m}C(nn.Module):
    factor = {w.factor()}
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)
        self.norm = nn.BatchNorm1d(3)
        self.w = nn.Parameter(torch.full((3,), 2.0))
        self.register_buffer('seen', torch.zeros(()))
        self.more = nn.ModuleDict({{'r': nn.ReLU()}})
        self.plist = nn.ParameterList([nn.Parameter(torch.ones(3))])
        with torch.no_grad():
            for i, p in enumerate(self.parameters()): p.copy_(torch.linspace(-1, 1.5, p.numel()).view_as(p) * (i + 1) * 0.2)
    def forward(self, x, scale={w.factor()}):
        {w.pick(['pass', 'self.seen += 1', "note('forward')", 'self.last = x', 'self.calls = getattr(self, "calls", 0) + 1'])}
        for name, one in self.more.items():
            x = one(x)
        x = {w.pick(['self.a(x)', 'self.b(torch.tanh(self.a(x)))', 'self.norm(self.a(x))', 'self.a(x) + self.b(x)'])}
        for p in self.plist:
            x = x * p
        return x * self.w * self.factor * scale
torch.manual_seed(3)
{m} = {m}C()""")
    w.tensors += [f"{m}({{y}})", f"{m}({{y}}, scale=2.0)", f"{m}.a({{y}})", f"({{y}} * {m}.w)", f"{m}.forward({{y}})",
                  f"torch.func.functional_call({m}, dict({m}.named_parameters()), ({{y}},))"]
    w.change(f"{m}.a = nn.Linear(3, 3); nn.init.constant_({m}.a.weight, 0.3); nn.init.zeros_({m}.a.bias)", f"{m}.b = {m}.a",
             f"{m}.a.weight = {m}.b.weight", f"{m}.w = nn.Parameter(torch.ones(3))", f"{m}.w.data = torch.full((3,), 4.0)",
             f"with torch.no_grad(): {m}.w.add_(1)", f"{m}.w.requires_grad_(False)", f"{m}.requires_grad_(False)", f"{m}.requires_grad_(True)",
             f"{m}.eval()", f"{m}.train()", f"{m}.norm.eval()", f"{m}.norm.track_running_stats = False", f"{m}.norm.momentum = None",
             f"{m}.register_buffer('extra', torch.ones(3))", f"del {m}._buffers['seen']; {m}.seen = torch.ones(())", f"{m}.seen = torch.full((), 5.0)",
             f"{m}.more['t'] = nn.Tanh()", f"{m}.more.pop('r')", f"{m}.more['r'] = nn.Identity()", f"{m}.plist.append(nn.Parameter(torch.full((3,), 0.5)))",
             f"{m}.plist = nn.ParameterList()", f"{m}C.factor = 0.25", f"{m}.factor = 0.75", f"{m}C.forward.__defaults__ = (0.1,)",
             f"{m} = copy.deepcopy({m})", f"{m}.load_state_dict({{k: v * 0.5 for k, v in {m}.state_dict().items()}})",
             f"{m}.load_state_dict({{k: v * 0.5 for k, v in {m}.state_dict().items()}}, assign=True)", f"{m}.double().float()", f"{m}.zero_grad()",
             f"{m}.zero_grad(set_to_none=False)", f"torch.nn.utils.parametrize.register_parametrization({m}.a, 'weight', nn.Tanh())",
             f"torch.nn.utils.parametrizations.weight_norm({m}.b)", f"import torch.nn.utils.prune as prune; prune.l1_unstructured({m}.a, 'weight', 2)",
             f"{m}.h = {m}.register_forward_hook(lambda s, a, o: (note('hook'), o * 2)[1])", f"{m}.h = {m}.a.register_forward_pre_hook(lambda s, a: (a[0] + 1,))",
             f"{m}.h = {m}.register_full_backward_hook(lambda s, i, o: note('backward', [t.tolist() for t in o if t is not None]))",
             f"{m}.h = {m}.a.register_full_backward_pre_hook(lambda s, o: (o[0] * 2,))", f"{m}.h.remove()",
             f"{m}.h = {m}.register_forward_hook(lambda s, a, k, o: o + k.get('scale', 1), with_kwargs=True)",
             f"{m}.h = {m}.a.weight.register_hook(lambda g: g * 2)", f"{m}.h = {m}.w.register_post_accumulate_grad_hook(lambda p: note('post', p.grad.tolist()))",
             f"{m}.a.register_forward_hook(lambda s, a, o: (_ for _ in ()).throw(ValueError('hook')))", f"{m}.a._forward_hooks.clear()",
             f"{m}C.__call__ = lambda self, *a, **k: nn.Module.__call__(self, *a, **k) + 1", f"del {m}C.__call__",
             f"{m}.a.__class__ = type('Other', (nn.Linear,), {{'forward': lambda self, x: F.linear(x, self.weight) * 3}})",
             f"{m}.a.forward = functools.partial(F.linear, weight={m}.b.weight)", f"{m}.w = None", f"del {m}.w", f"torch.utils.swap_tensors({m}.w, nn.Parameter(torch.zeros(3)))",
             f"{m}.a.weight.grad = torch.ones(3, 3)", f"{m}.w.grad = None", f"{m}.a.to(torch.float64)", f"{m}.a.weight.data = {m}.a.weight.data.t()",
             f"{m}.more.insert = 1", f"{m}.add_module('new', nn.Identity())", f"{m}.w._version", f"{m}.a.bias.data.resize_(3).fill_(1)", f"{m}.a.bias.untyped_storage().fill_(0)")
    w.state.append(f"[None if p.grad is None else p.grad.clone() for p in {m}.parameters()], [b.clone() for b in {m}.buffers()], {m}.__dict__.get('calls'),"
                   f" type({m}.__dict__.get('last')).__name__, {m}.training")


def add_function_class(w):
    """A custom autograd function."""
    n = w.name("Fn")
    saves = w.pick(["ctx.save_for_backward(x)", "ctx.save_for_backward(x, None)", "ctx.x = x.detach()", "ctx.save_for_backward(y)", "ctx.save_for_backward(x, y); ctx.k = 2",
                    "ctx.save_for_backward(x * 2)", "ctx.save_for_backward()", "ctx.shape = x.shape; ctx.save_for_backward(x)"])
    more = w.pick(["", "; ctx.set_materialize_grads(False)", "; ctx.mark_non_differentiable(mask)", "; note('forward', ctx.needs_input_grad)", f"; ctx.c = {n}k"])
    dirty = w.chance(0.15)
    results = w.pick(["y", "y", "y, mask", "y, y.sum()", "y, x"]) if not dirty else "x"
    if "mark_non" in more and not dirty:
        results = "y, mask"
    first = "[0]" if "," in results else ""
    grads = ", ".join("abc"[:results.count(",") + 1])
    body = w.pick(["a * 2", f"a * {n}k", "a * ctx.saved_tensors[0]" if "save_for_backward(x" in saves or "save_for_backward(y" in saves else "a * 3", "a.clone()", "None",
                   "torch.ones_like(a)", "a.cos()", f"{n}Inner.apply(a)" if w.chance(0.3) else "a + 1"])
    guard = "\n        if a is None: return None, None"
    w.add(f"""{n}k = 1.5
class {n}Inner(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x * 0.5
    @staticmethod
    def backward(ctx, g): return g * 0.25
class {n}(torch.autograd.Function):
    k = {w.factor()}
    @staticmethod
    def forward(ctx, x, c):
        {w.noted('fwd')}y = {'x.mul_(c); ctx.mark_dirty(x); y = x' if dirty else f'x * c * {n}.k'}
        mask = x > 0
        {saves}{more}
        return {results}
    @staticmethod
    {w.pick(['', '@torch.autograd.function.once_differentiable', '']) or '# plain'}
    def backward(ctx, {grads}):{guard}
        {w.noted('bwd', 0.5)}return {body}, None""")
    argument = "{y}.clone()" if dirty else "{y}"
    w.tensors += [f"{n}.apply({argument}, 2.0){first}", f"{n}.apply({argument}, {n}k){first}", f"{n}.apply({argument} * 1, 2.0){first} + {{y}}"]
    w.change(f"{n}k = 2.5", f"{n}.k = 0.5", f"{n}.backward = staticmethod(lambda ctx, *g: (torch.ones(2, 3), None))", f"{n}.forward = staticmethod(lambda ctx, x, c: (x - c,) * {results.count(',') + 1})",
             f"{n}.backward = staticmethod(lambda ctx, *g: (_ for _ in ()).throw(ValueError('backward')))", f"{n}Inner.backward = staticmethod(lambda ctx, g: g)", f"{n}k = torch.tensor(2.0)")


def add_modes(w):
    n = w.name("mode")
    w.add(f"{n}g = {w.pick(['True', 'False'])}")
    heads = ["with torch.no_grad():", "with torch.enable_grad():", f"with torch.set_grad_enabled({n}g):", "with torch.autocast('cpu', dtype=torch.bfloat16):",
             f"with torch.autocast('cpu', enabled={n}g):", "with torch.inference_mode():", f"with torch.inference_mode({n}g):", "with torch.autograd.graph.save_on_cpu():",
             "with torch.autograd.graph.saved_tensors_hooks(lambda t: (note('pack'), t)[1], lambda t: (note('unpack'), t)[1]):", "with torch.random.fork_rng():",
             "with torch.autograd.profiler.record_function('here'):", "with warnings.catch_warnings():", f"with torch.autograd.set_multithreading_enabled({n}g):",
             "with torch.device('cpu'):", "with contextlib.nullcontext():", "with torch._C.DisableTorchFunctionSubclass():", "with torch.autograd.set_detect_anomaly(False):",
             "with contextlib.ExitStack() as stack:", "with torch.sparse.check_sparse_tensor_invariants():", "with torch.autograd.graph.disable_saved_tensors_hooks('no'):",
             "with torch.nn.utils.parametrize.cached():", "with torch.autograd.forward_ad.dual_level():", "with torch.backends.mkldnn.flags(enabled=True):"]
    for head in w.random.sample(heads, 4):
        w.block(head)
    w.block("with contextlib.ExitStack() as stack:\n    stack.enter_context(torch.no_grad())\n    stack.callback(note, 'left')\n    if True:")
    w.change(f"{n}g = not {n}g", f"{n}g = 1", f"{n}g = 0", "torch.set_grad_enabled(False)", "torch.set_grad_enabled(True)", "torch.set_autocast_enabled('cpu', True)",
             "torch.set_autocast_enabled('cpu', False)", "torch.set_default_dtype(torch.float64)", "torch.set_default_dtype(torch.float32)",
             "torch.autograd.set_detect_anomaly(True)", "torch.autograd.set_detect_anomaly(False)", "torch.use_deterministic_algorithms(True, warn_only=True)",
             "torch.set_default_device('cpu')", "torch.set_default_device(None)", "torch.set_autocast_dtype('cpu', torch.float16)",
             "hooks = torch.autograd.graph.saved_tensors_hooks(lambda t: (note('packed'), t * 1)[1], lambda t: t); hooks.__enter__()", "hooks.__exit__()")
    w.tensors += ["(torch.no_grad()(lambda q: q * 2)({y}) + {y})", "({y} * (2 if torch.is_grad_enabled() else 3))", "({y} * (2 if {y}.requires_grad else 3))",
                  "({y} * {y}.element_size())", "({y} * (1 + torch.is_inference_mode_enabled()))", "({y} * (1 + {y}.is_inference()))"]
    w.restores += ["torch.set_grad_enabled(True); torch.set_autocast_enabled('cpu', False); torch.set_default_dtype(torch.float32)",
                   "torch.autograd.set_detect_anomaly(False); torch.use_deterministic_algorithms(False); torch.set_default_device(None); torch.set_autocast_dtype('cpu', torch.bfloat16)",
                   "'hooks' in globals() and attempt(lambda: hooks.__exit__())", "torch.clear_autocast_cache()"]


def add_user_contexts(w):
    """Context managers of the user's own, that look, change and swallow."""
    n = w.name("cm")
    swallow = w.pick(["False", "True", "t is ValueError", f"{n}s"])
    w.add(f"""{n}s = True
{n}boom = False
class {n}:
    depth = 0
    def __enter__(self):
        {w.noted('enter')}{n}.depth += 1
        return {n}.depth
    def __exit__(self, t, v, tb):
        {n}.depth -= 1
        note('exit', t and t.__name__)
        return {swallow}
@contextlib.contextmanager
def {n}g(k):
    {w.noted('begin')}{w.pick(['pass', 'old = torch.is_grad_enabled(); torch.set_grad_enabled(False)'])}
    try:
        yield k * 2
    {w.pick(['except ValueError:', 'except ZeroDivisionError:', 'except Exception as e:'])}
        note('caught')
        {w.pick(['pass', 'raise', 'raise KeyError(1)'])}
    finally:
        note('ends')
        torch.set_grad_enabled(True)
def {n}r(y):
    if {n}boom: raise {n}boom
    return y * 2
class {n}deco(contextlib.ContextDecorator):
    def __enter__(self): note('deco'); return self
    def __exit__(self, *a): note('undeco', a[0] is None)
@{n}deco()
def {n}d(y): return {n}r(y) + 1""")
    w.block(f"with {n}() as depth:")
    w.block(f"with {n}(), {n}g(1) as k:")
    w.block(f"with {n}g(3) as k:", after=["acc.append(k)"])
    w.block("with contextlib.suppress(ValueError, RuntimeError):")
    w.block("try:", after=["except ValueError as e:", "    acc.append(str(e))", "else:", "    y = y + 1", "finally:", "    note('finally')"])
    w.block("try:", after=["except (KeyError, ZeroDivisionError):", "    acc.append('other')"])
    w.block("for turn in range(2):\n    try:", after=["    finally:", f"        if turn == {w.pick(['0', '1', '5'])}: {w.pick(['break', 'continue', 'pass'])}"])
    w.tensors += [f"{n}r({{y}})", f"{n}d({{y}})", f"{n}r({{y}} + 1)"]
    w.effects += [f"y = {n}r(y)", f"acc.append(attempt(lambda: {n}r(y).sum()))"]
    w.change(f"{n}boom = ValueError('boom')", f"{n}boom = KeyError('k')", f"{n}boom = False", f"{n}boom = StopIteration(2)", f"{n}boom = asyncio.CancelledError('off')", f"{n}s = not {n}s",
             f"{n}boom = ZeroDivisionError", f"{n}.__exit__ = lambda self, *a: True", f"{n}.__enter__ = lambda self: note('patched')", f"{n}boom = torch.OutOfMemoryError('none')",
             f"{n}boom = ExceptionGroup('g', [ValueError('v')])", f"{n}deco.__exit__ = lambda self, *a: True")
    w.state.append(f"{n}.depth")


def add_generators(w):
    """Generators and coroutines, some of them half consumed or alive over calls."""
    n = w.name("gen")
    w.add(f"""def {n}(y, k={w.factor()}):
    try:
        for i in range(3):
            {w.noted('yields')}got = yield y * (i + 1) * k
            if got is not None: y = y + got
    finally:
        note('closed')
def {n}from(y):
    result = yield from {n}(y)
    return result
def {n}drive(y):
    g = {n}(y); a = next(g); b = g.send(a * 0.5); {w.pick(['g.close()', 'del g', 'note(next(g, 0) is 0)', 'g.throw(ValueError) if False else None'])}
    return b
async def {n}co(y):
    {w.noted('co')}return y * {w.factor()} + {n}k
class {n}Aw:
    def __init__(self, y): self.y = y
    def __await__(self):
        got = yield 5
        return self.y * (got or 1)
async def {n}outer(y):
    async with {n}ACM() as k:
        async for q in {n}agen(y):
            y = y + q * k
    return await {n}co(y) + await {n}Aw(y)
class {n}ACM:
    async def __aenter__(self): note('aenter'); return 0.5
    async def __aexit__(self, *a): note('aexit')
async def {n}agen(y):
    for i in range(2):
        yield y * i
def {n}run(co):
    try:
        sent = None
        while True:
            sent = co.send(sent)
    except StopIteration as e:
        return e.value
{n}k = 1.0
{n}live = {n}(torch.ones(2, 3))
{n}count = itertools.count(1)
{n}keep = []""")
    w.tensors += [f"next({n}({{y}}))", f"sum({n}({{y}}))", f"{n}drive({{y}})", f"{n}run({n}co({{y}}))", f"{n}run({n}outer({{y}}))", f"[*{n}from({{y}})][-1]", f"({{y}} * next({n}count))",
                  f"sum(q * 0.5 for q in {n}({{y}}))", f"next(q for i, q in enumerate({n}({{y}})) if i == 1)", f"functools.reduce(torch.add, {n}({{y}}))",
                  f"max({n}({{y}}), key=lambda q: q.sum().item())", f"list(map(lambda q: q + 1, {n}({{y}})))[0]", f"({{y}} + next({n}live, 0))",
                  f"asyncio.run({n}co({{y}}))", f"(lambda a, *b: a + len(b))(*{n}({{y}}))", f"dict(enumerate({n}({{y}})))[1]"]
    w.effects += [f"{n}keep.append({n}(y)); acc.append(next({n}keep[-1]))", f"{n}keep and acc.append(next({n}keep[-1], 'over'))", f"{n}keep and {n}keep.pop().close()",
                  f"a, *b = {n}(y); y = y + a", f"acc.append([q.sum() for q in {n}(y)])", f"it = iter({n}(y)); next(it); acc.append(it)", f"for q in {n}(y):\n        y = y + q\n        break",
                  f"for q in {n}live:\n        y = y + q\n        if q.sum() > 1: break", f"z = zip({n}(y), {n}(y)); acc.append(next(z)[1])"]
    w.change(f"{n}.__defaults__ = (0.1,)", f"{n}k = 4.0", f"{n}live = {n}(torch.zeros(2, 3))", f"next({n}live, 0)", f"{n}live.close()", f"{n}keep.clear()", f"{n}count = itertools.repeat(2.0)",
             f"{n}co = lambda y: {n}Aw(y).__await__()", f"{n}keep and next({n}keep[0], 0)", f"{n}ACM.__aexit__ = {n}co", f"{n}Aw.__await__ = lambda self: iter(())")
    w.state.append(f"len({n}keep)")


def add_lifetimes(w):
    """Destructors, weak references, finalizers, the collector."""
    n = w.name("life")
    w.add(f"""class {n}:
    def __init__(self, t, k=0): self.t, self.k = t, k
    def __del__(self): note('del', self.k)
class {n}N:
    def __init__(self, t): self.t = t
{n}o = {n}N(torch.ones(2, 3))
{n}r = weakref.ref({n}o)
{n}t = torch.full((2, 3), 2.0)
{n}tr = weakref.ref({n}t)
{n}cache = weakref.WeakKeyDictionary()
{n}kept = []
def {n}use(y):
    o = {n}(y, {w.pick(['1', '2'])})
    return o.t * 2
def {n}cycle(y):
    o = {n}N(y); weakref.finalize(o, note, 'final')
    return o.t + 1""")
    w.tensors += [f"{n}use({{y}})", f"{n}({{y}}).t * 2", f"({{y}} + ({n}r().t if {n}r() else 0))", f"({{y}} * ({n}tr() if {n}tr() is not None else 3))",
                  f"{n}cache.setdefault({n}o, {{y}}.detach() * 0 + 1) * {{y}}", f"{n}cycle({{y}})"]
    w.effects += [f"{n}kept.append({n}(y, 3))", f"{n}kept.clear()", f"tmp = {n}(y, 4); tmp = None", f"tmp = {n}(y, 5); note('then')", f"ref = weakref.ref(y, lambda r: note('gone')); y = y + 1; acc.append(ref() is None)",
                  f"tmp = {n}N(y); r = weakref.ref(tmp, lambda q: note('dead')); del tmp; note('after')", "gc.collect()", f"{n}cache.clear()", "del acc[:1]",
                  "tmp = y * 2; r = weakref.ref(tmp); del tmp; acc.append(r() is None)", "acc.append(sys.getrefcount(y) > 100)"]
    w.change(f"{n}o = {n}N(torch.zeros(2, 3))", f"{n}t = None", f"{n}t = torch.full((2, 3), 5.0); {n}tr = weakref.ref({n}t)", f"del {n}.__del__", f"{n}.__del__ = lambda self: note('patched')", "gc.collect()",
             f"{n}kept.clear()", f"{n}o.t = torch.full((2, 3), 7.0)", f"{n}cache[{n}o] = torch.full((2, 3), 3.0)")
    w.state.append(f"len({n}kept), len({n}cache)")


def add_memory(w):
    """Views, one memory under several names, storages."""
    n = w.name("mem")
    w.add(f"""{n} = torch.linspace(0, 1, 12)
{n}v = {n}[3:9].view(2, 3)
{n}p = nn.Parameter(torch.full((2, 3), 0.5))
{n}list = [torch.zeros(2, 3), {n}v]
{n}out = torch.zeros(2, 3)""")
    w.tensors += [f"({{y}} + {n}v)", f"({{y}} * {n}[:6].view(2, 3))", f"({{y}} * {n}p)", f"{{y}} + {n}list[1]", f"torch.as_strided({n}, (2, 3), (1, 2)) * {{y}}", f"({{y}} + {n}p.data)", f"({{y}} + {n}.storage_offset() + {n}v.storage_offset())",
                  f"{{y}}.clone().add_({n}v)", f"{{y}}.clone().t().mul_(2).t()", f"({{y}} + {n}p.detach().view(-1)[0])", f"torch.cat([{n}list[0], {n}list[1]])[:2] + {{y}}", f"({{y}} * {n}._version)",
                  f"{{y}} * (1 + ({n}v.data_ptr() == {n}[3:].data_ptr()))"]
    w.effects += [f"{n}.add_(1)", f"{n}v.mul_(0.5)", f"{n}[3:6] = 0.25", f"{n}v.data.fill_(0.125)", f"torch.add(y.detach(), 1, out={n}out); acc.append({n}out)", f"{n}v.copy_(y.detach())", f"{n}list.append(y.detach())",
                  f"{n}list[0].add_(y.detach())", f"acc.append({n}v)", f"acc.append(y[0]); y = y + 1", "z = y.clone(); z[0] = 1; y = z", "z = y * 1; v = z.view(-1); v.mul_(2); y = z + v.view(2, 3)",
                  f"{n}v.detach().zero_()", "z = y * 1; z.detach().fill_(1); y = z * 2", "y = y.clone(); y.detach_(); y = y * x", f"with torch.no_grad(): {n}p.mul_(0.5)", "acc.append(x.view(-1))", "acc.append(x)",
                  f"{n}.untyped_storage().resize_({n}.untyped_storage().nbytes())", "z = torch.zeros(2, 3); z.set_(y.detach()); acc.append(z)", "z = y.clone(); z.resize_(3, 2); acc.append(z)"]
    w.change(f"{n}.zero_()", f"{n}v = {n}[6:12].view(2, 3)", f"{n}v = {n}[:6].view(3, 2).t()", f"{n}v.data = torch.ones(2, 3)", f"{n}p.data = {n}[:6].view(2, 3)", f"{n} = torch.arange(12.0)", f"{n}list.reverse()",
             f"{n}v.set_(torch.full((2, 3), 3.0))", f"{n}v = {n}v.clone()", f"{n}list[0] = {n}list[1]", f"{n}v = {n}v.double()", f"{n}v = torch.ones(3).expand(2, 3)", f"{n}p = {n}v", f"{n}v = nn.Parameter({n}v.detach())",
             f"{n}.resize_(24).fill_(0.5)", f"{n}v.resize_(2, 3)", f"{n}v = torch.ones(2, 3, requires_grad=True)", f"{n}out = {n}v", f"{n}v = torch.ones(1, 3)", f"{n}v = torch.tensor(2.0)", f"{n}p.requires_grad_(False)", f"{n}v = {n}v * {n}p")
    w.state.append(f"{n}.clone(), {n}v.detach().clone(), {n}out.clone(), [t.detach().clone() for t in {n}list], None if {n}p.grad is None else {n}p.grad.clone()")


def add_hooks(w):
    n = w.name("hook")
    w.add(f"""{n}k = 2.0
{n}w = torch.full((2, 3), 0.5, requires_grad=True)
{n}h = {n}w.register_hook(lambda g: g * {n}k)
def {n}see(g):
    note('grad', g.tolist())
    return {w.pick(['None', 'g * 2', f'g * {n}k', 'g.clone()'])}
def {n}on(y):
    if y.requires_grad: y.register_hook({w.pick([f'{n}see', 'lambda g: g * 3', f'lambda g: g * {n}k'])})
    return y
def {n}retain(y):
    if y.requires_grad: y.retain_grad()
    {n}kept.append(y)
    return y
{n}kept = []""")
    w.tensors += [f"({{y}} * {n}w)", f"{n}on({{y}} * 1)", f"{n}retain({{y}} * 1)", f"{n}on({{y}} * 1) * {n}w"]
    w.change(f"{n}k = 3.0", f"{n}h.remove()", f"{n}h = {n}w.register_hook({n}see)", f"{n}see = lambda g: g * 5", f"{n}w = torch.ones(2, 3, requires_grad=True)", f"{n}kept.clear()", f"{n}w.grad = None",
             f"{n}h = {n}w.register_post_accumulate_grad_hook(lambda p: note('acc'))", f"{n}w.requires_grad_(False)", f"{n}h = {n}w.register_hook(lambda g: (_ for _ in ()).throw(ValueError('in hook')))")
    w.state.append(f"{n}w.grad, [t.grad for t in {n}kept[-2:] if t.requires_grad and (t.is_leaf or t.retains_grad)]")


def add_step(w):
    """A training step in the program itself."""
    n = w.name("opt")
    optimizer = w.pick(["torch.optim.SGD([{p}], lr=0.1, momentum=0.9)", "torch.optim.Adam([{p}], lr=0.1)", "torch.optim.SGD([{p}], lr=0.1)", "torch.optim.AdamW([{p}], lr=0.1, amsgrad=True)", "torch.optim.RMSprop([{p}], lr=0.05)"])
    w.add(f"""{n}p = nn.Parameter(torch.full((2, 3), 0.5))
{n} = {optimizer.replace('{p}', n + 'p')}
{n}s = torch.optim.lr_scheduler.StepLR({n}, 2, gamma=0.5)
def {n}step(y):
    {n}.zero_grad({w.pick(['', 'set_to_none=False'])})
    with torch.enable_grad():
        loss = ((y.detach() * {n}p) ** 2).mean()
        {w.pick(['loss.backward()', f'torch.autograd.backward(loss, inputs=[{n}p])', f'{n}p.grad = torch.autograd.grad(loss, {n}p)[0]'])}
    {w.pick(['', f'torch.nn.utils.clip_grad_norm_([{n}p], 0.5)', f'torch.nn.utils.clip_grad_value_([{n}p], 0.01)']) or 'pass'}
    {n}.step()
    {w.pick(['pass', f'{n}s.step()'])}
    return loss""".replace("()\n    zero_grad", "()"))
    w.effects += [f"acc.append({n}step(y))", f"acc.append({n}step(y).item())", f"{n}step(y); y = y * {n}p.detach()"]
    w.tensors += [f"({{y}} * {n}p)", f"({{y}} + {n}p.detach())"]
    w.change(f"{n}.param_groups[0]['lr'] = 0.5", f"{n}.param_groups[0]['weight_decay'] = 0.1", f"{n}.state.clear()", f"{n}p.data = torch.ones(2, 3)", f"{n}.add_param_group({{'params': [nn.Parameter(torch.ones(1))]}})",
             f"{n}.load_state_dict({n}.state_dict())", f"{n}p.requires_grad_(False)", f"{n} = torch.optim.SGD([{n}p], lr=0.2)", f"{n}.register_step_post_hook(lambda o, a, k: note('stepped'))", f"{n}.param_groups[0]['maximize'] = True",
             f"{n}.param_groups[0]['lr'] = torch.tensor(0.3)", f"{n}p.grad = torch.ones(2, 3)", f"{n}s.step()", f"{n}.param_groups[0]['momentum'] = 0.5", f"{n} = copy.deepcopy({n})", f"{n}.step = lambda: note('no step')",
             f"{n}p.register_hook(lambda g: g * 0.5)")
    w.state.append(f"{n}p.detach().clone(), {n}p.grad, [sorted((k, v) for k, v in s.items()) for s in {n}.state.values()], {n}.param_groups[0]['lr']")


def add_subclasses(w):
    n = w.name("Sub")
    body = w.pick(["return super().__torch_function__(func, types, args, kwargs or {})", "note(func.__name__) if len(log) < 60 else 0; return super().__torch_function__(func, types, args, kwargs or {})",
                   "\n        r = super().__torch_function__(func, types, args, kwargs or {})\n        return r.as_subclass(torch.Tensor) if isinstance(r, cls) else r"])
    w.add(f"""class {n}(torch.Tensor):
    k = {w.factor()}
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        {body}
    def own(self): return self * self.k
class {n}Duck:
    k = 2.0
    def __init__(self, t): self.t = t
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        args = [a.t if isinstance(a, {n}Duck) else a for a in args]
        return func(*args, **(kwargs or {{}})) * cls.k
class {n}Mode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.sin: func = torch.cos
        return func(*args, **(kwargs or {{}}))
class {n}Param(nn.Parameter): pass
{n}t = torch.ones(2, 3).as_subclass({n})
{n}d = {n}Duck(torch.full((2, 3), 0.5))
{n}p = {n}Param(torch.ones(2, 3))
{n}b = nn.Buffer(torch.ones(2, 3))""")
    w.tensors += [f"({{y}} * {n}t).as_subclass(torch.Tensor)", f"{{y}}.as_subclass({n}).own().as_subclass(torch.Tensor)", f"torch.add({{y}}, {n}d)", f"({{y}} * {n}p)", f"({{y}} + {n}b)", f"(torch.sin({n}t) + {{y}})", f"torch.mul({n}d, {{y}})"]
    w.block(f"with {n}Mode():")
    w.effects += [f"acc.append(type(y).__name__)", f"acc.append(isinstance({n}t, {n}))", f"y = y + {n}t", f"acc.append({n}t.own())"]
    w.change(f"{n}.k = 5.0", f"{n}Duck.k = 3.0", f"{n}d.t = torch.zeros(2, 3)", f"{n}t.k = 7.0", f"del {n}.__torch_function__", f"{n}t = torch.ones(2, 3)", f"{n}p.__class__ = {n}", f"{n}.__torch_function__ = torch._C._disabled_torch_function_impl",
             f"{n}Mode.__torch_function__ = lambda self, func, types, args=(), kwargs=None: func(*args, **(kwargs or {{}})) * 2", f"{n}.own = lambda self: self + 1", f"mode = {n}Mode(); mode.__enter__()", "mode.__exit__(None, None, None)")
    w.restores.append("'mode' in globals() and attempt(lambda: mode.__exit__(None, None, None))")


def add_contents(w):
    """What numbers in tensors decide, and numbers read from them."""
    n = w.name("con")
    w.add(f"{n} = torch.tensor({w.pick(['1.0', '-1.0', '2.0'])})\n{n}i = torch.tensor([1, 0])\n{n}m = torch.tensor([True, False])\n{n}n = torch.tensor(2)")
    w.tensors += [f"({{y}} if {n} > 0 else {{y}} * 2)", f"({{y}} * {n}.item())", f"({{y}} * int({n}n))", f"{{y}}[{n}i]", f"({{y}} + {{y}}[{n}m].sum())", f"torch.cat([{{y}}] * int({n}n))[:2]", f"({{y}} * float({n}))",
                  f"({{y}} if bool({n}m.any()) else -{{y}})", f"({{y}} + {n}i.tolist()[0])", f"({{y}} * len({n}m.nonzero()))", f"({{y}} + torch.arange(int({n}n)).sum())", f"(({{y}} * 2) if {{y}}.sum() > 0 else {{y}})",
                  f"{{y}}.index_add(0, {n}i, {{y}})", f"({{y}} * math.sqrt({n}n.item()))", f"({{y}} * ({n} * 2).item() + {n})", f"({{y}} if {n} in (1.0, 2.0) else {{y}} + 1)", f"({{y}} * {{y}}.shape[int({n}i[0])])", f"({{y}} * float(f'{{{n}.item():.1f}}'))",
                  f"torch.from_numpy({{y}}.detach().numpy()) + {{y}}", f"({{y}} + torch.tensor({n}i.numpy().sum()))", f"({{y}} * np.float32(2))", f"({{y}} + torch.tensor(np.array([1.0, 2, 3], dtype=np.float32)))"]
    w.effects += [f"{n}.add_(1)", f"{n}.neg_()", f"acc.append({n}.item())", f"while {n} < 3:\n        y = y + 1\n        {n}.add_(1)", f"acc.append(repr({n}))", f"acc.append({n}n.item() + 1)", f"acc.append(f'{{{n}.item():.2f}}')", f"assert {n} > -100", f"acc.append(y.detach().numpy().copy())",
                  f"for q in {n}i:\n        y = y + q", f"acc.append([int(q) for q in {n}i])", "acc.append(y.detach().sum().item() > 0)"]
    w.change(f"{n}.fill_(-1)", f"{n}.fill_(2)", f"{n}i.copy_(torch.tensor([0, 0]))", f"{n}m.fill_(True)", f"{n}m.fill_(False)", f"{n}n.fill_(3)", f"{n} = torch.tensor(1)", f"{n}i = torch.tensor([0, 1, 1])[:2]", f"{n} = 1.5", f"{n}i[0] = 7", f"{n}n = torch.tensor(0)",
             f"{n} = torch.tensor(float('nan'))", f"{n}m = torch.tensor([1, 0])")
    w.state.append(f"{n} if isinstance({n}, float) else {n}.clone(), {n}i.clone()")


def add_threads(w):
    n = w.name("thr")
    w.add(f"""{n}k = 2.0
{n}l = threading.local(); {n}l.k = 3.0
{n}lock = {w.pick(['threading.Lock()', 'threading.RLock()'])}
{n}queue = queue.Queue()
def {n}in(y):
    made = []
    t = threading.Thread(target=lambda: made.append((y * {n}k, torch.is_grad_enabled()))); t.start(); t.join()
    return made[0][0]
def {n}pool(y):
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda q: q + getattr({n}l, 'k', 1.0), y).result()
def {n}sig(y):
    old = signal.signal(signal.SIGUSR1, lambda *a: note('signal'))
    signal.raise_signal(signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, old)
    return y + 1
def {n}trace(y):
    seen = []
    sys.settrace(lambda frame, event, arg: (seen.append(event) if frame.f_code.co_name == '{n}leaf' else 0) and None)
    try: y = {n}leaf(y)
    finally: sys.settrace(None)
    note(len(seen))
    return y
def {n}leaf(y): return y * 2
def {n}frame(y):
    return y * len(sys._getframe().f_code.co_name) + sys._getframe(1).f_code.co_argcount
def {n}loc(y):
    a = 2; b = locals(); return y * b['a'] + len(b)""")
    w.tensors += [f"{n}in({{y}})", f"{n}pool({{y}})", f"{n}sig({{y}})", f"({{y}} * {n}l.k)", f"{n}trace({{y}})", f"{n}leaf({{y}})", f"{n}frame({{y}})", f"{n}loc({{y}})", f"eval('y * {n}k', globals(), {{'y': {{y}}}})"]
    w.block(f"with {n}lock:")
    w.effects += [f"{n}queue.put(1); acc.append({n}queue.qsize())", f"exec('log.append({n}k)')", "acc.append(sorted(k for k in locals() if len(k) == 1))", f"acc.append({n}lock.acquire(blocking=False)) or {n}lock.release()",
                  "acc.append(traceback.extract_stack()[-1].name)", "acc.append('x' in globals())", "globals()['extra'] = 1", "acc.append(len(inspect.stack()) > 2)"]
    w.change(f"{n}k = 5.0", f"{n}l.k = 1.0", f"del {n}l.k", f"{n}leaf = lambda y: y + 5", f"{n}lock = threading.RLock()", f"{n}queue = queue.Queue()", "sys.setprofile(lambda *a: None)", "sys.setprofile(None)", "sys.settrace(lambda *a: None)", "sys.settrace(None)")
    w.restores.append("sys.settrace(None); sys.setprofile(None)")


def add_nested_compiles(w):
    n = w.name("rec")
    w.add(f"""{n}k = 2.0
def {n}(y, depth):
    if depth == 0: return y * {n}k
    return {n}(y + 1, depth - 1) * 0.5
class {n}Box:
    def __init__(self, t): self.t = t
    def __add__(self, other): return {n}Box(self.t + getattr(other, 't', other))
    def __reduce__(self): note('reduced'); return {n}Box, (self.t,)
    def __deepcopy__(self, memo): note('copied'); return {n}Box(self.t)
    def __getattr__(self, name):
        if name.startswith('_'): raise AttributeError(name)
        return {n}k
    def __setattr__(self, name, value): object.__setattr__(self, name, value)
    def __enter__(self): return self.t
    def __exit__(self, *a): pass
{n}box = {n}Box(2.0)
@functools.lru_cache(maxsize=2)
def {n}cached(k): note('computed'); return torch.full((3,), float(k) * {n}k)
@functools.singledispatch
def {n}any(q): return q
@{n}any.register
def _(q: torch.Tensor): return q * {n}k
@dataclasses.dataclass
class {n}Data:
    t: torch.Tensor
    k: float = {w.factor()}
    def __post_init__(self): {w.noted('post')}pass
{n}Pair = collections.namedtuple('Pair', 'a b')
{n}order = {{'b': lambda q: q * 2, 'a': lambda q: q + 1}}""")
    w.tensors += [f"{n}({{y}}, {w.pick(['1', '2', '3'])})", f"({n}box + {{y}}).t", f"({{y}} * {n}box.missing)", f"copy.deepcopy({n}Box({{y}})).t", f"({{y}} + {n}cached(1))", f"{n}any({{y}})", f"dataclasses.replace({n}Data({{y}}), k=3).t", f"{n}Data({{y}}).t * {n}Data({{y}}).k",
                  f"{n}Pair({{y}}, 1)._replace(b=2).a", f"functools.reduce(lambda q, h: h(q), {n}order.values(), {{y}})", f"copy.copy({n}Pair({{y}}, 2)).a", f"torch.utils.checkpoint.checkpoint(lambda q: torch.sin(q) * {n}k, {{y}}, use_reentrant=False)",
                  f"torch.func.vmap(lambda q: q * {n}k)({{y}})", f"torch.func.grad(lambda q: (q * q * {n}k).sum())({{y}}.detach())", f"torch.utils._pytree.tree_map(lambda q: q * 2, [{{y}}, {{y}}])[0]", f"torch.autograd.functional.jacobian(lambda q: q * {n}k, {{y}}.detach()).sum((2, 3))",
                  f"[q := {{y}} * 2, q + 1][1]", f"torch.jit.script_if_tracing(lambda q: q * 2)({{y}})", f"torch.autograd.grad(({{y}} * {{y}}).sum(), {{y}}, create_graph=True)[0] if {{y}}.requires_grad else {{y}}"]
    w.effects += [f"with {n}Box(y) as q:\n        acc.append(q)", f"{n}box.t = 3.0", f"{n}box.t = {n}box.t + 1", f"acc.append({n}Data(y) is {n}Data(y))", f"acc.append({n}cached.cache_info()[:2])", f"del {n}order['b']", f"{n}order['c'] = {n}order.pop('a')", f"acc.append({n}cached(2) is {n}cached(2))"]
    w.change(f"{n}k = 3.0", f"{n}box.t = 5.0", f"{n}box = {n}Box(1.0)", f"{n}Box.__add__ = lambda self, o: self", f"{n}cached.cache_clear()", f"{n}any.register(torch.Tensor, lambda q: q - 1)", f"{n}order['a'] = {n}order.pop('a', abs)", f"{n}order = {{'z': torch.sin}}",
             f"{n}Data.__init__.__defaults__ = (9.0,)", f"{n}Data.k = 4.0", f"{n}Box.__getattr__ = lambda self, name: 6.0", f"{n}cached(1).add_(1)", f"{n} = lambda y, d: y - d", f"{n}Box.__class_getitem__ = 1", f"{n}any = torch.cos")
    w.state.append(f"{n}cached.cache_info()")


COMMON = """import asyncio, concurrent.futures, gc, pickle, queue, signal, traceback, warnings
import torch.utils.checkpoint, torch.nn.utils.prune, torch.nn.utils.parametrizations
def attempt(g):
    try: return g()
    except Exception as e: return type(e).__name__
def missing(name): raise AttributeError(name)
"""
INPUTS = ["torch.linspace(-1, 1.5, 6).view(2, 3).requires_grad_()", "torch.linspace(-1, 1.5, 6).view(2, 3)", "torch.linspace(-1, 1.5, 6).view(3, 2).t().requires_grad_()",
          "(torch.linspace(-1, 1.5, 6).view(2, 3).requires_grad_() * 2)", "torch.linspace(-1, 1.5, 12).view(2, 6)[:, ::2]", "torch.linspace(-1, 1.5, 6, dtype=torch.float64).view(2, 3)", "nn.Parameter(torch.ones(2, 3))",
          "torch.linspace(-1, 1.5, 3).expand(2, 3)", "torch.arange(6).view(2, 3)", "torch.linspace(-1, 1.5, 8)[2:].view(2, 3)", "torch.ones(2, 3, requires_grad=True).clone()", "torch.full((2, 3), float('nan'))",
          "torch.linspace(-1, 1.5, 9).view(3, 3)[:2]", "torch.ones(2, 3, dtype=torch.bfloat16)", "np.ones((2, 3), dtype=np.float32)", "2.0", "torch.ones(2, 3).as_subclass(nn.Parameter)"]
PARTS = [add_net, add_function_class, add_modes, add_user_contexts, add_generators, add_lifetimes, add_memory, add_hooks, add_step, add_subclasses, add_contents, add_threads, add_nested_compiles]
DRIVE = """
def drive(f):
    x = make_x()
    result = f(x)
    seen = []
    def look(v):
        if isinstance(v, torch.Tensor):
            seen.append(v)
        elif isinstance(v, (list, tuple)):
            for q in v: look(q)
        elif isinstance(v, dict):
            for q in v.values(): look(q)
    look(result)
    shape = [(type(t).__name__, t.requires_grad, t.is_leaf, t.grad_fn is None, t.is_contiguous(), t._is_view() and t._base is x, any(t is s for s in seen[:i]), t is x) for i, t in enumerate(seen)]
    error = None
    parts = [t.double().sum() for t in seen if t.requires_grad and t.is_floating_point()]
    if parts and torch.is_grad_enabled():
        try: sum(parts).backward()
        except Exception as e: error = type(e).__name__ + str(e)[:60]
    return result, shape, error, x.grad if isinstance(x, torch.Tensor) and x.is_leaf else None
"""


def generate(seed):
    """(source, changes)"""
    w = World(seed)
    for part in w.random.sample(PARTS, w.random.randint(1, 4)):
        part(w)
    lines = []
    for _ in range(w.random.randint(2, 6)):
        kind = w.random.random()
        if kind < 0.6 or not w.effects:
            some = [f"y = {w.tensor(2)}"]
        elif kind < 0.9:
            some = [w.pick(w.effects)]
        else:
            some = [f"acc.append({w.tensor(1)})"]
        some = [line for one in some for line in one.replace("\n        ", "\n    ").split("\n")]
        for _ in range(2):
            if w.blocks and w.chance(0.2):
                some = w.pick(w.blocks)(some)
        lines += some
    function = ["def f(x):", "    y = x", "    acc = []", *("    " + one for one in lines), "    return y, acc"]
    w.change(*[f"make_x = lambda: {x}" for x in INPUTS])
    inputs = f"make_x = lambda: {w.pick(INPUTS[:4])}\n"
    restore = "def restore():\n    sys.settrace(None)\n" + "".join(f"    {one}\n" for one in w.restores)
    state = f"def state(): return [{', '.join('(' + one + ',)' for one in w.state)}]" if w.state else "def state(): return 0"
    changes = []
    for _ in range(w.random.randint(3, 6)):
        changes.append(w.pick(w.changes)())
    return "\n".join([COMMON, *w.parts, inputs, *function, DRIVE, state, restore]), changes


def check(seed, compile_function, near=False):
    source, changes = generate(seed)
    return hostile_worlds.differences(source, changes, compile_function, calls=3, near=near)


if __name__ == "__main__":
    import warnings

    import smelt

    warnings.simplefilter("ignore")
    backend = sys.argv.pop() if sys.argv[-1].isalpha() else "eager"
    first, *last = [int(one) for one in sys.argv[1:]]
    end, failed = last[0] if last else first + 1, 0
    for seed in range(first, end):
        problem = check(seed, lambda f: smelt.compile(f, backend=backend), near=backend != "eager")
        smelt.reset()
        if problem:
            failed += 1
            print(f"--- seed {seed}: {problem}", flush=True)
    print(f"{failed} of {end - first} differ")
