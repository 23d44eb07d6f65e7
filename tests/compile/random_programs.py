"""Random Python programs over tensors: deterministic from a seed, and always ending. random_grammar.py has the grammar.

A program is a module: the classes and functions of random_prelude.py, generated functions, `world()` with the objects
that live over all calls, `target(w)` that gives the callable to compile, and STEPS, the calls: step(f, w) changes
something now and then (a global, an attribute, a mode), and calls f.
"""

import ast
import os
import random
import re

from random_grammar import ERRORS, EXPRESSIONS, IN_LOOP, IN_MAIN, LITERALS, RAISES, RISKY, STATEMENTS

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "random_prelude.py")) as file:
    PRELUDE = file.read()

PARAMETERS = (("t", "T2", 1), ("u", "T2", 0.5), ("v", "T1", 0.3), ("ts", "tensors", 0.3), ("xs", "ints", 0.4),
              ("table", "table", 0.3), ("box", "box", 0.4), ("net", "net", 0.35), ("x", "float", 0.4),
              ("flag", "bool", 0.3), ("s", "str", 0.2), ("pair", "pair", 0.15), ("bag", "bag", 0.15),
              ("call", "fn", 0.2), ("n", "int", 0.7))

# What is given for a parameter: the first one as a rule.
ARGUMENTS = {
    "T2": ["tensor(SEED, SHAPEMORE)"],
    "T1": ["tensor(SEED, 3)", "tensor(SEED, 1)"],
    "tensors": ["w['ts']", "[tensor(SEED, SHAPE), tensor(7, 2, 3)]", "[]"],
    "ints": ["w['xs']", "[4, 2]", "[5]"],
    "table": ["w['table']", "{'a': 7}", "{}"],
    "box": ["w['box']", "Box(5)", "SubBox(1, w['t'])"],
    "net": ["w['net']"],
    "float": ["0.5", "1.5", "-2.0"],
    "bool": ["True", "False"],
    "str": ["'a'", "'q'"],
    "pair": ["(1, w['t'])", "Pair(2, tensor(SEED, 2, 3))"],
    "bag": ["w['bag']", "{7}"],
    "fn": ["w['counter']", "lambda n, step=1: n * step + 1", "w['box'].bump"],
    "int": ["2", "3", "7", "0"],
}

# What happens between two calls.
CHANGES = (
    "global G_INT\nG_INT += 3", "global G_FLOAT\nG_FLOAT = -1.5", "global G_T\nG_T = torch.full((1, 3), -0.5)",
    "global factorial\nfactorial = lambda n: n + 1", "G_LIST.append(9)", "G_TABLE['b'] = 4", "Box.late = 1",
    "Box.clip = staticmethod(lambda n: n)", "w['xs'].append(5)", "w['table']['c'] = 3", "w['ts'].pop()",
    "w['box'].k += 2", "w['box'].x = 1.25", "w['box'].items = [4, 4, 4]", "w['box'].t = tensor(5, 2, 3)",
    "w['box'].bump = lambda by=1: by * 2", "w['net'].train(not w['net'].training)", "w['net'].requires_grad_(False)",
    "w['net'].gain = nn.Parameter(torch.ones(3))", "w['net'].layers[0] = nn.Sigmoid()",
    "w['net'].linear.weight.data.mul_(0.5)", "w['box'].unused = 1", "remember.__defaults__[0].clear()",
)

CONTEXTS = ("torch.no_grad()", "torch.inference_mode()", "torch.autocast('cpu', dtype=torch.bfloat16)")

PLACEHOLDER = re.compile(r"\$(?:([a-z]):)?([A-Za-z]\w*)"
                         r"(?:\.(var|name|local|atom|new|fixed|param|bind|outer|walrus)\b)?")


class NotHere(Exception):
    """The production needs a variable that is not there."""


class Scope:
    """The variables that can be used at a place, as (name, kind, assignable), and what kind of place it is."""

    def __init__(self, outer=None, **facts):
        self.variables = list(outer.variables) if outer else []
        for fact in ("loop", "main", "risky", "function"):
            setattr(self, fact, facts.get(fact, getattr(outer, fact, False)))

    def block(self, **facts):
        return Scope(self, **facts)

    def nested_function(self):
        """In there, only what is reached through an object can be assigned."""
        inner = Scope(self, loop=False, main=False, function=True)
        inner.variables = [(name, kind, "." in name) for name, kind, _ in self.variables if "super" not in name]
        return inner

    def add(self, name, kind, assignable=True):
        self.variables.append((name, kind, assignable))
        if kind == "box":
            for attribute, of in (("k", "int"), ("x", "float"), ("items", "ints"), ("t", "T2"), ("table", "table")):
                self.variables.append((f"{name}.{attribute}", of, True))

    def names(self, kind, assignable=False):
        return [name for name, of, can in self.variables if of == kind and (can or not assignable)]


class Generator:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.count = 0
        self.lines = []
        self.helpers = []  # (name, kind) of the functions written so far
        self.enclosing = []  # what nonlocal can name

    def chance(self, probability):
        return self.random.random() < probability

    def pick(self, table):
        return self.random.choices([text for _, text in table], [weight for weight, _ in table])[0]

    def fresh(self, kind):
        self.count += 1
        return f"{kind[0].lower()}{self.count}"

    def write(self, indent, text):
        self.lines += ["    " * indent + line for line in text.splitlines()]

    # --- expressions --------------------------------------------------------------------------------------------------

    def expression(self, kind, scope, depth=0):
        if kind == "error":
            return self.random.choice(ERRORS)
        names = scope.names(kind)
        if names and self.chance(0.4 + 0.2 * depth):
            return self.random.choice(names[-6:] + names[:2])
        if kind not in EXPRESSIONS or depth > 2 or (kind in LITERALS and self.chance(0.15)):
            return self.atom(kind, scope)
        for _ in range(20):
            table = EXPRESSIONS[kind]
            if kind in RISKY and self.chance(0.2 if scope.risky else 0.001):
                table = RISKY[kind]
            try:
                return f"({self.expand(self.pick(table), Scope(scope), depth + 1, outer=scope)})"
            except NotHere:
                pass
        return self.atom(kind, scope)

    def atom(self, kind, scope):
        names = scope.names(kind)
        if names and self.chance(0.8):
            return self.random.choice(names)
        if kind not in LITERALS:
            if kind in ("any", "result"):
                return self.expression("T2", scope, 3)
            raise NotHere
        return f"({self.random.choice(LITERALS[kind])})"

    def expand(self, text, scope, depth=0, outer=None, labels=None, new=None):
        """The text with its placeholders replaced. `outer` is the scope without the names that the text binds; the
        variables that it makes are appended to `new`."""
        labels = {} if labels is None else labels

        def replace(match):
            label, kind, how = match.groups()
            if len(kind) == 1 and label is None:
                return labels[kind]
            if how in ("var", "name", "local"):
                names = scope.names(kind, assignable=how == "var")
                if how == "local":
                    names = [name for name, of in self.enclosing if of == kind]
                if not names:
                    raise NotHere
                got = self.random.choice(names)
                if how == "local":
                    new.append((got, kind, True))
            elif how == "bind" or how == "walrus" and new is None:
                got = self.fresh(kind)
                scope.add(got, kind, False)
            elif how in ("new", "fixed", "param", "walrus"):
                got = self.fresh(kind)
                new.append((got, kind, how in ("new", "param")))
            elif how == "outer":
                got = self.expression(kind, outer, depth)
            elif how == "atom":
                got = self.atom(kind, scope)
            else:
                got = self.expression(kind, scope, depth)
            if label:
                labels[label] = got
            return got

        return PLACEHOLDER.sub(replace, text)

    # --- statements ---------------------------------------------------------------------------------------------------

    def block(self, scope, indent, size, depth):
        for _ in range(size):
            self.statement(scope, indent, depth)

    def statement(self, scope, indent, depth):
        table = STATEMENTS
        if scope.risky and self.chance(0.3):
            table = RAISES
        elif scope.loop and self.chance(0.15):
            table = IN_LOOP
        elif scope.main and self.chance(0.06):
            table = IN_MAIN
        for _ in range(30):
            template = self.pick(table)
            if scope.function and template.startswith(("^", "def ")) or "..." in template and depth >= 3:
                continue
            before, variables = len(self.lines), list(scope.variables)
            try:
                return self.template(template.lstrip("^"), scope, indent, depth)
            except NotHere:
                del self.lines[before:]
                scope.variables = variables
                table = STATEMENTS
        self.write(indent, "pass")

    def template(self, template, scope, indent, depth):
        stack, labels = [(0, scope)], {}
        for line in template.splitlines():
            text = line.lstrip()
            level = (len(line) - len(text)) // 4
            while stack[-1][0] > level:
                stack.pop()
            here = stack[-1][1]
            if text in ("...", "...!"):
                inner = here.block(risky=here.risky or text == "...!")
                self.block(inner, indent + level, self.random.choice((1, 1, 2, 2, 3)), depth + 1)
            else:
                new = []
                self.write(indent + level, self.expand(text, Scope(here), outer=here, labels=labels, new=new))
                target = here
                if text.endswith(":"):
                    target = self.body(text, here)
                    stack.append((level + 1, target))
                    if text.startswith("def "):
                        here.add(*new.pop(0)[:2], False)
                for variable in new:
                    target.add(*variable)

    def body(self, header, here):
        """The scope of the block under a header."""
        if not header.startswith("def "):
            return here.block(loop=here.loop or header.startswith(("for ", "while ")))
        self.enclosing = [(name, kind) for name, kind, assignable in here.variables
                          if assignable and "." not in name and not name.startswith("G_")]
        return here.nested_function()

    # --- the program --------------------------------------------------------------------------------------------------

    def program(self):
        parameters = [(name, kind) for name, kind, probability in PARAMETERS if self.chance(probability)]
        signature = ", ".join(name + "=3" * (name == "n") for name, _ in parameters)
        style = self.random.choices(("function", "method", "closure", "module"), (7, 1, 1, 1))[0]
        for i in range(self.random.randrange(3)):
            self.helper(f"help{i}")
        scope = self.function_scope(parameters, main=True)
        for line in {"function": ["def main({}):"], "closure": ["def make_main(c_t, c_int):", "    def main({}):"],
                     "method": ["class Target(Box):", "    def main(self, {}):"],
                     "module": ["class Model(Net):", "    def forward(self, {}):"]}[style]:
            self.write(0, line.format(signature))
        indent = 1 if style == "function" else 2
        self.globals(scope, indent)
        if style == "method":
            scope.add("self", "box", False)
        elif style == "module":
            scope.variables += [("self.calls", "int", True), ("self.gain", "T1", False), ("self.count", "T0", False),
                                ("super().forward", "tfn", False)]
        elif style == "closure":
            self.write(indent, "nonlocal c_int")
            scope.variables += [("c_int", "int", True), ("c_t", "T2", False)]
        self.block(scope, indent, self.random.choice((3, 5, 7, 9, 12)), 0)
        self.write(indent, "return " + self.expression("result", scope))
        if style == "closure":
            self.write(1, "return main")
        self.world(style)
        self.steps(parameters)
        source = ast.unparse(ast.parse("\n".join(self.lines))) + "\n"
        compile(source, "program", "exec")
        return PRELUDE + "\n\n" + source

    def function_scope(self, parameters, **facts):
        scope = Scope(**facts)
        for name, kind in self.helpers:
            scope.add(name, kind, False)
        for name, kind in parameters:
            scope.add(name, kind)
        return scope

    def globals(self, scope, indent):
        for name, kind in (("G_INT", "int"), ("G_FLOAT", "float"), ("G_T", "T2")):
            if self.chance(0.25):
                self.write(indent, f"global {name}")
                scope.add(name, kind)
            elif self.chance(0.3):
                scope.add(name, kind, False)

    def helper(self, name):
        """A function of the module that those after it may call."""
        kind, first, returned = self.random.choice((("tfn", "T2", "T2"), ("fn", "int", "int")))
        self.write(0, f"def {name}(a, step=1):")
        scope = self.function_scope([("a", first), ("step", "int")], function=True)
        self.globals(scope, 1)
        self.block(scope, 1, self.random.choice((1, 2, 3)), 1)
        self.write(1, "return " + self.expression(returned, scope))
        self.helpers.append((name, kind))

    def world(self, style):
        grad, box = self.chance(0.5), self.random.choice(("Box", "SubBox"))
        self.write(0, f"""
def world():
    w = {{'t': tensor(1, 2, 3), 'net': Net({grad}), 'box': {box}(3), 'counter': make_counter(2)}}
    w.update(xs=[3, 1, 2], table={{'a': 1, 'b': 2}}, bag={{1, 4}}, ts=[tensor(2, 2, 3), w['t']])""")
        if style in ("method", "module"):
            self.write(1, f"w['self'] = {'Target(4)' if style == 'method' else f'Model({grad})'}")
        target = {"function": "main", "closure": "make_main(w['t'], 3)", "method": "w['self'].main",
                  "module": "w['self']"}
        self.write(0, f"    return w\ndef target(w):\n    return {target[style]}\nSTEPS = []")

    def steps(self, parameters):
        """Calls: the same again with other tensors most of the time, something else changed now and then."""
        grad = self.chance(0.2)
        for i in range(self.random.choice((4, 5, 5, 6, 8))):
            shape, dtype, given_grad = "2, 3", "", ", grad=True" if grad else ""
            self.write(0, f"@STEPS.append\ndef step{i}(f, w):")
            if i >= 2:
                if self.chance(0.2):
                    shape = self.random.choice(("4, 3", "1, 3", "2, 5", "5, 3"))
                if self.chance(0.07):
                    dtype = ", dtype=torch." + self.random.choice(("float64", "int64", "bfloat16"))
                    given_grad = given_grad if "int" not in dtype else ""
                if self.chance(0.4):
                    self.write(1, self.random.choice(CHANGES))
            plain = i < 3 or self.chance(0.6)
            for k, (name, kind) in enumerate(parameters):
                value = ARGUMENTS[kind][0] if plain else self.random.choice(ARGUMENTS[kind])
                for what, by in (("SEED", str(10 * i + k)), ("SHAPE", shape), ("MORE", dtype + given_grad)):
                    value = value.replace(what, by)
                self.write(1, f"{name} = {value}")
            tensors = [name for name, kind in parameters if kind == "T2"]
            if i >= 3 and len(tensors) > 1 and self.chance(0.2):
                self.write(1, f"{tensors[1]} = {tensors[0]}" + self.random.choice(("", "[:1]", ".detach()")))
            named = self.chance(0.2)
            arguments = ", ".join(f"{name}={name}" if named and k else name for k, (name, _) in enumerate(parameters))
            context = self.random.choice(CONTEXTS) if i >= 2 and self.chance(0.15) else "contextlib.nullcontext()"
            names = ", ".join(name for name, _ in parameters)
            self.write(1, f"w['given'] = [{names}]\nwith {context}:\n    return f({arguments})")


def generate(seed):
    """The source of the program of that seed."""
    for attempt in range(100):
        try:
            return Generator(f"{seed}/{attempt}").program()
        except (SyntaxError, ValueError):  # an assignment expression where none may be, a quote in an f-string
            continue
    raise AssertionError(f"no program for seed {seed}")
