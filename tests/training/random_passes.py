"""Functions at random, of tensors with and without gradients, and passes through what they return: to be compared with eager.

The functions run passes of their own, write, detach, draw, and call custom functions; the inputs are leaves, computed of leaves by nodes that
keep a tensor or none, or plain, and differ in that from call to call."""
import linecache
import random

import torch

import smelt


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a * b

    @staticmethod
    def backward(ctx, grad):
        a, b = ctx.saved_tensors
        return grad * b * 3, grad.cos() * a


OPS = (
    *[f"{{t}} = {{a}} {sign} {{b}}" for sign in "+-*"] * 3,
    *[f"{{t}} = torch.{name}({{a}} * 0.5)" for name in ("sin", "cos", "tanh", "sigmoid", "exp", "relu", "square", "neg")],
    "{t} = {a}.detach()",
    "with torch.no_grad(): {t} = {a} * 2",
    *[f"{{t}} = {{a}}.clone(); {{t}}.{write}" for write in ("mul_(2)", "add_({b})", "mul_({b})", "zero_()", "copy_({b})", "sin_()")],
    "{t} = ({a} * 1)[:2]; {t} = torch.cat([{t}, {b}[2:]])",
    "{t} = {a}.clone(); {t}[1] = {b}[0]",
    "{t} = {a}.clone(); {t}[:2].mul_({b}[1])",
    "{t} = {a}.clone().view(2, 2); {t} = ({t} @ {t}).view(4)",
    "{t} = torch.where({a} > 0, {b}, {a})",
    "{t} = torch.dropout({a}, 0.5, True)",
    "{t} = ({a} * 0.3).requires_grad_() if not {a}.requires_grad else {a} * 0.3",
    "{t} = {a}.view(2, 2).t().reshape(4)",
    "{t}, other = torch.chunk({a} * 1.5, 2); {t} = torch.cat([other, {t}])",
    "{t} = Product.apply({a}, {b})",
)


def make_function(choose):
    """Its text, and how many results it gives."""
    names, lines, passes = ["x", "p", "q", "w", "v"], [], choose.random() < 0.5
    for number in range(choose.randint(3, 12)):
        a, b = (choose.choice(names[-6:] + names) for _ in range(2))
        t = f"t{number}"
        lines.append(choose.choice(OPS).format(t=t, a=a, b=b))
        names.append(t)
        if passes and choose.random() < 0.15:
            of = ", ".join(choose.sample(["w", "v", "p", "q", *names[5:]], choose.randint(1, 3)))
            graph, keep = choose.random() < 0.4, choose.choice([True, True, None])
            lines += [f"g{number} = torch.ones(4)", f"if {t}.requires_grad:",
                      f"    found = torch.autograd.grad({t}.sum(), [z for z in [{of}] if z.requires_grad] or [{t}], allow_unused=True, "
                      f"create_graph={graph}, retain_graph={keep})",
                      f"    g{number} = sum([z for z in found if z is not None], torch.zeros(4))"]  # fmt: skip
            names.append(f"g{number}")
        elif passes and choose.random() < 0.12:
            lines.append(f"if {t}.requires_grad: {t}.{choose.choice(['sum', 'mean', 'prod'])}().backward(retain_graph={choose.random() < 0.6})")
    if passes and choose.random() < 0.3:
        lines.append("with torch.no_grad(): w.mul_(0.9)")
    results = choose.sample(names[5:], min(choose.randint(1, 4), len(names) - 5))
    lines.append("return " + "".join(f"{name}{choose.choice(['', '.sum()'])}, " for name in results))
    return "def function(x, p, q, w, v):\n    " + "\n    ".join(lines), len(results)


def make_passes(choose, results):
    """What is done with the results of a call: passes from some of them, each with or without what the next needs."""
    passes = []
    for _ in range(choose.randint(1, 4)):
        some = [i for i in range(results) if choose.random() < 0.5] or [choose.randrange(results)]
        passes.append(("backward", some, choose.random() < 0.4))
    if choose.random() < 0.4:
        passes.insert(0, ("grad", choose.randrange(results), choose.sample("wvpq", choose.randint(1, 3))))
    if choose.random() < 0.2:
        passes = [("graph", choose.randrange(results), choose.sample("wvpq", choose.randint(1, 3)))]
    return passes


def inputs_of(kinds, w, u):
    made = []
    for kind, leaf in zip(kinds, (w, u)):
        made.append({"leaf": lambda: torch.randn(4).requires_grad_(), "plain": lambda: torch.randn(4),
                     "keeps nothing": lambda leaf=leaf: leaf + 1.0, "keeps": lambda leaf=leaf: torch.tanh(leaf * 1.1)}[kind]())  # fmt: skip
    return made


def run_pass(step, results, named):
    if step[0] == "backward":
        roots = [results[i].sum() for i in step[1] if results[i].requires_grad]
        if roots:
            torch.autograd.backward(roots, retain_graph=step[2])
        return []
    root, wanted = results[step[1]], [named[name] for name in step[2] if named[name].requires_grad]
    if not root.requires_grad or not wanted:
        return []
    found = torch.autograd.grad(root.sum(), wanted, allow_unused=True, create_graph=step[0] == "graph", retain_graph=True)
    if step[0] == "graph":
        again = sum((g.square().sum() for g in found if g is not None and g.requires_grad), torch.zeros(()))
        if again.requires_grad:
            again.backward()
    return [None if g is None else g.detach().clone() for g in found]


def play(seed, options):
    """All that is seen of calls and passes; options: of smelt.compile, None for eager."""
    choose = random.Random(seed)
    text, results = make_function(choose)
    passes = make_passes(choose, results)
    name = f"<function {seed} {options}>"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    scope = {"torch": torch, "Product": Product}
    exec(compile(text, name, "exec"), scope)
    function = scope["function"] if options is None else smelt.compile(scope["function"], **options)
    torch.manual_seed(seed)
    w, v, u = (torch.randn(4).requires_grad_() for _ in range(3))
    kinds, notes = None, [text]
    for call in range(5):
        if kinds is None or seed % 2:
            kinds = [choose.choice(["leaf", "plain", "keeps nothing", "keeps"]) for _ in range(2)]
        if call == 2:
            w.grad = v.grad = u.grad = None
        x, (p, q) = torch.randn(4), inputs_of(kinds, w, u)
        leaves = [w, v, u, *[t for t in (p, q) if t.is_leaf]]
        try:
            made = function(x, p, q, w, v)
            notes.append([(t.detach().clone(), t.requires_grad) for t in made])
            for step in passes:
                notes.append(run_pass(step, made, {"w": w, "v": v, "p": p, "q": q}))
                notes.append([None if t.grad is None else t.grad.detach().clone() for t in leaves])
        except RuntimeError as error:  # which gradients were added to before is the engine's affair
            notes.append(str(error).split(":")[0][:60])
            for leaf in leaves:
                leaf.grad = None
    notes.append(torch.get_rng_state())
    return notes
