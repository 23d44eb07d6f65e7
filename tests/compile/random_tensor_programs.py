"""Random straight-line programs over tensors, for the schedule and the kernels: a program is a function's text and what
makes its inputs, both from a seed. It is run while it is made, so that every op takes what it is given.

What amplifies rounding is left out: numbers stay small, and what jumps (comparisons, casts to integers, positions) only
looks at values that are the same bit for bit however they are computed.
"""

import dataclasses
import random

import torch

SIZES = (1, 2, 3, 4, 5, 7, 8, 16, 17, 33, 64, 100)
LARGEST = 6000  # elements of a tensor
FLOATS = (torch.float32, torch.float32, torch.float32, torch.float64, torch.bfloat16, torch.float16)
COMPLEX = (torch.complex64, torch.complex128)
WHOLE = (torch.int64, torch.int64, torch.int32, torch.uint8, torch.bool)

UNARY = ("torch.relu(X)", "torch.sigmoid(X)", "torch.tanh(X)", "torch.exp(-X.abs())", "X.abs()", "-X", "torch.sin(X)",
         "torch.cos(X)", "torch.erf(X)", "F.gelu(X)", "F.silu(X)", "torch.sqrt(X.abs() + 0.5)", "torch.rsqrt(X * X + 1)",
         "torch.log1p(X.abs())", "X * 0.5 + 1", "F.softplus(X)", "F.leaky_relu(X, 0.1)", "torch.atan(X)", "X.clamp(-1, 2)",
         "torch.square(torch.tanh(X))", "1 - X", "2.0 / (X.abs() + 1)", "F.hardswish(X)", "torch.expm1(-X.abs())",
         "X.clone()", "F.dropout(X, 0.5, False)", "torch.zeros_like(X) + X", "X.contiguous() + 0",
         "torch.where(torch.isnan(X), 0, X)")  # fmt: skip
UNARY_WHOLE = ("X + 1", "-X", "X * 2", "X // 3", "X % 5", "X.bitwise_not()", "X.clamp(0, 3)", "X ^ 1", "X.sign()",
               "torch.ones_like(X)")  # fmt: skip
EXACT = ("X > 0", "X.to(torch.int64)", "X.floor()", "X.round()", "X.sign()", "torch.isfinite(X)", "X != X.round()",
         "torch.argmax(X, DIM)", "torch.argmin(X, DIM, True)", "X.trunc()", "X == X")  # fmt: skip
BINARY = ("X + Y", "X - Y", "X * torch.tanh(Y)", "torch.maximum(X, Y)", "torch.minimum(X, Y)", "X / (Y.abs() + 0.75)",
          "torch.where(MASK, X, Y)", "torch.lerp(X, X + 1, 0.3) + Y", "torch.add(X, Y, alpha=0.5)",
          "torch.addcmul(X, X, torch.sin(Y), value=0.5)", "torch.atan2(X, Y.abs() + 1)", "torch.hypot(X, Y)")  # fmt: skip
BINARY_WHOLE = ("X + Y", "X * Y", "X & Y", "X | Y", "torch.maximum(X, Y)", "X == Y", "X < Y", "torch.where(MASK, X, Y)")
REDUCE = ("X.sum(DIMS, KEEP)", "X.mean(DIMS, KEEP)", "torch.amax(X, DIMS, KEEP)", "torch.amin(X, DIMS, KEEP)",
          "X.var(DIMS, correction=0, keepdim=KEEP)", "torch.logsumexp(X, DIMS, KEEP)", "X.sum()", "X.mean()", "X.max()",
          "torch.std(X, DIM, correction=0, keepdim=KEEP)", "torch.linalg.vector_norm(X, 2, DIMS, KEEP)",
          "torch.prod(torch.tanh(X), DIM, KEEP)", "X.max(DIM, KEEP)[0]", "X.abs().sum(DIMS, KEEP).sqrt()")  # fmt: skip
REDUCE_WHOLE = ("X.sum(DIMS, KEEP)", "torch.amax(X, DIMS, KEEP)", "(X > 0).any(DIM, KEEP)", "(X > 0).all()", "X.min()")
NORMAL = ("torch.softmax(X, DIM)", "torch.log_softmax(X, DIM)", "F.layer_norm(X, X.shape[-1:])",
          "X - X.mean(DIM, True)", "X / (X.abs().sum(DIM, True) + 1)", "F.normalize(X, dim=DIM)",
          "(X - torch.amax(X, DIM, True)).exp()", "F.rms_norm(X, X.shape[-1:])",
          "F.layer_norm(X, X.shape[-2:]) if X.dim() > 1 else X", "F.softmin(X, DIM)", "X.cumsum(DIM) * 0.1",
          "F.glu(torch.cat([X, X], DIM), DIM)", "torch.sort(X, DIM)[0]")  # fmt: skip
VIEWS = ("X.reshape(-1)", "X.transpose(DIM, DIM2)", "X.unsqueeze(DIM)", "X.squeeze()", "X.flatten(0, DIM)",
         "X.select(DIM, -1)", "X.narrow(DIM, 0, max(1, X.shape[DIM] // 2))", "X[..., ::2]", "X[..., 1:]", "X.flip(DIM)",
         "X.unsqueeze(0).expand(3, *X.shape)", "X.permute(PERM)", "X.t() if X.dim() == 2 else X[:1]",
         "X.unfold(DIM, 1, 1)", "X.chunk(2, DIM)[0]", "X.movedim(DIM, DIM2)", "X.diagonal() if X.dim() > 1 else X[:2]",
         "X.reshape(X.shape[::-1])", "X.detach()", "X.split(2, DIM)[-1]", "X.unbind(DIM)[0]", "X.view_as(X)",
         "X.broadcast_to(X.shape)", "X.swapaxes(DIM, DIM2).contiguous()", "X.roll(1, DIM)",
         "X.repeat_interleave(2, DIM)", "X.repeat((2,) + (1,) * (X.dim() - 1))", "F.pad(X, (1, 2))", "F.pad(X, (0, -1))",
         "torch.tril(X) if X.dim() > 1 else X", "X.index_select(DIM, PLACES(X.shape[DIM]))", "X[PLACES(X.shape[0])]",
         "torch.gather(X, DIM, PLACES(X.shape[DIM]).expand(X.shape[:-1] + (4,)) if DIM == -1 else torch.zeros_like(X, dtype=torch.int64))",
         "torch.cat([X, X * 1], DIM)", "torch.stack([X, X], DIM)", "X.masked_fill(X == 1, 0)", "X[..., PLACES(X.shape[-1])]",
         "X.index_fill(DIM, PLACES(X.shape[DIM]), 1)", "torch.take(X, PLACES(X.numel()))")  # fmt: skip
JOIN = ("torch.cat([X, Y], DIM)", "torch.stack([X, Y])", "torch.stack([X, Y], -1)", "torch.cat([Y, X, Y], DIM)",
        "torch.cat([X[:1], Y], 0)")  # fmt: skip
INPLACE = ("X.add_(1)", "X.mul_(0.5)", "X.clamp_(-1, 1)", "X[..., 0] = 1", "X[:1].mul_(2)", "X.copy_(Y)", "X.sub_(Y)",
           "X.transpose(0, -1).add_(1)", "X[..., ::2] = Y[..., ::2]", "X.fill_(0.5)", "X.neg_()", "X.relu_()",
           "X.view(-1)[0] = 3", "X.zero_()", "X.index_fill_(0, PLACES(X.shape[0]), 2)")  # fmt: skip
IMAGES = ("F.interpolate(IMAGE(X), scale_factor=2, mode='bilinear')",
          "F.interpolate(IMAGE(X), size=(5, 7), mode='bilinear', align_corners=True)",
          "F.interpolate(IMAGE(X), scale_factor=1.5, mode='bicubic')", "F.interpolate(IMAGE(X), scale_factor=2)",
          "F.interpolate(IMAGE(X)[:, :, 0], size=9, mode='linear')", "F.adaptive_avg_pool2d(IMAGE(X), (2, 3))",
          "F.max_pool2d(F.pad(IMAGE(X), (1, 1, 1, 1)), 2)", "F.avg_pool2d(IMAGE(X), 3, 1, 1)",
          "F.pad(IMAGE(X), (1, 0, 0, 1), mode='replicate')", "F.unfold(IMAGE(X), 1)",
          "F.pixel_unshuffle(F.interpolate(IMAGE(X), scale_factor=2), 2)")  # fmt: skip
UNARY_COMPLEX = ("X * 2", "-X", "X.conj() + 1", "X.abs()", "X.real + 1", "torch.view_as_real(X) * 2", "X * 1j",
                 "X.clone()", "torch.exp(X * 0.1)")  # fmt: skip
BINARY_COMPLEX = ("X + Y", "X - Y", "X * Y * 0.1", "torch.where(MASK, X, Y)")
CALLS = ("X @ X.mT * 0.01 if X.dim() > 1 else X", "F.linear(X, torch.ones(3, X.shape[-1], dtype=X.dtype)) * 0.05",
         "X.reshape(-1, X.shape[-1]).mT.mm(X.reshape(-1, X.shape[-1])) * 0.01")  # fmt: skip


@dataclasses.dataclass
class Program:
    seed: int
    text: str
    specs: list  # of the inputs
    scale: float  # the largest number anywhere
    coarsest: torch.dtype  # the floating dtype of the fewest bits

    def function(self):
        scope = {"torch": torch, "F": torch.nn.functional, "PLACES": places, "IMAGE": image}
        exec(compile(self.text, f"<random tensor program {self.seed}>", "exec"), scope)
        return scope["f"]

    def inputs(self):
        made = []
        for spec in self.specs:
            made.append(make_input(spec, made))
        return made

    def __str__(self):
        return f"seed {self.seed}\n" + "\n".join(map(str, self.specs)) + "\n" + self.text


def places(size):
    """Positions in a dimension, some of them twice."""
    return torch.tensor([size - 1, 0, size // 2, 0])


def image(x):
    """The last two dimensions, or the only one, as pixels."""
    return x.reshape(1, -1, *x.shape[-2:]) if x.dim() > 1 else x.reshape(1, 1, 1, -1)


def make_input(spec, before):
    dtype, shape, layout, seed = spec
    if layout == "same" and before:
        return before[seed % len(before)].view_as(before[seed % len(before)])
    generator = torch.Generator().manual_seed(seed)

    def values(sizes):
        if dtype == torch.bool:
            return torch.rand(sizes, generator=generator) > 0.5
        if dtype.is_complex:
            parts = (torch.randn((*sizes, 2), generator=generator) * 2).round(decimals=2)
            return torch.view_as_complex(parts).to(dtype)
        if not dtype.is_floating_point:
            return torch.randint(0 if dtype == torch.uint8 else -5, 6, sizes, generator=generator).to(dtype)
        return (torch.randn(sizes, generator=generator) * 2).round(decimals=2).to(dtype)

    if not shape or layout in ("plain", "same"):
        return values(shape)
    if layout == "transposed":
        return values(shape[::-1]).permute(*reversed(range(len(shape))))
    if layout == "steps":
        return values((*shape[:-1], shape[-1] * 2 + 1))[..., 1::2]
    if layout == "expanded":
        return values((1, *shape[1:])).expand(shape)
    return values((shape[0] + 2, *shape[1:]))[1:-1]  # offset


class Maker:
    def __init__(self, seed, mutates_inputs=True):
        self.random = random.Random(seed)
        self.seed, self.mutates_inputs = seed, mutates_inputs
        self.lines, self.values, self.exact = [], {}, set()
        self.inputs = set()
        self.scale = 1.0

    def choice(self, items):
        return self.random.choice(items)

    def make(self):
        self.make_inputs()
        for _ in range(self.random.randrange(4, 22)):
            self.step()
        names = list(self.values)
        results = self.random.sample(names, min(len(names), self.random.randrange(1, 5)))
        if names[-1] not in results:
            results.append(names[-1])
        body = "".join(f"    {line}\n" for line in self.lines)
        text = f"def f({', '.join(f'i{n}' for n in range(len(self.specs)))}):\n{body}    return {', '.join(results)},\n"
        floats = [value.dtype for value in self.values.values() if value.is_floating_point()]
        coarsest = max(floats, key=lambda dtype: torch.finfo(dtype).eps)
        return Program(self.seed, text, self.specs, self.scale, coarsest)

    def make_inputs(self):
        rank = self.choice((0, 1, 1, 2, 2, 2, 3, 3, 4))
        base = [self.choice(SIZES) for _ in range(rank)]
        while torch.Size(base).numel() > LARGEST // 4:
            base[self.random.randrange(rank)] = self.choice((1, 2, 3))
        if rank and self.random.random() < 0.02:
            base[self.random.randrange(rank)] = 0
        self.specs = []
        for n in range(self.random.randrange(1, 5)):
            shape = list(base)
            for dim in range(rank):
                if n and self.random.random() < 0.15:
                    shape[dim] = 1
            if n and self.random.random() < 0.2:
                shape = shape[1:]
            dtype = self.choice(FLOATS) if n == 0 or self.random.random() < 0.75 else self.choice(WHOLE)
            if n and self.random.random() < 0.05:
                dtype = self.choice(COMPLEX)
            layouts = ("plain", "plain", "plain", "transposed", "steps", "expanded", "offset")
            layout = "same" if n and self.random.random() < 0.08 else self.choice(layouts)
            self.specs.append((dtype, tuple(shape), layout, self.random.randrange(1000)))
        before = []
        for n, spec in enumerate(self.specs):
            before.append(make_input(spec, before))
            self.values[f"i{n}"] = before[-1]
            self.exact.add(f"i{n}")
            self.inputs.add(f"i{n}")

    # -- one line

    def step(self):
        for _ in range(30):
            if self.try_step():
                return

    def try_step(self):
        kinds = {self.pointwise: 8, self.binary: 7, self.reduce: 4, self.normal: 3, self.view: 7, self.join: 2,
                 self.inplace: 2, self.cast: 2, self.call: 0.7, self.exactly: 1, self.image: 1}  # fmt: skip
        kind = self.random.choices(list(kinds), list(kinds.values()))[0]
        names = list(self.values)
        x = self.random.choices(names, [1 + i for i in range(len(names))])[0]
        line = kind(x, self.values[x])
        return line is not None and self.add(x, *line)

    def add(self, x, text, exact=False, second=None):
        dims = max(1, self.values[x].dim())
        text = text.replace("PERM", repr(tuple(self.random.sample(range(dims), dims))))
        text = text.replace("DIMS", repr(tuple(sorted(self.random.sample(range(dims), self.random.randrange(1, dims + 1))))))
        text = text.replace("DIM2", str(self.random.randrange(dims)))
        text = text.replace("DIM", str(self.random.randrange(-1, dims)))
        text = text.replace("KEEP", str(self.random.random() < 0.5))
        masks = [name for name, value in self.values.items() if value.dtype == torch.bool]
        if "MASK" in text and not masks:
            return False
        text = text.replace("MASK", self.choice(masks)) if masks else text
        text = _replaced(text, "X", x)
        text = _replaced(text, "Y", second) if second else text
        is_statement = " = " in text or "_(" in text
        scope = {"torch": torch, "F": torch.nn.functional, "PLACES": places, "IMAGE": image}
        scope |= self.values
        name = f"v{len(self.lines)}"
        try:
            if is_statement:
                exec(text, scope)
                made = self.values[x]
            else:
                made = eval(text, scope)
        except (RuntimeError, IndexError, TypeError, ValueError):
            return False
        if not isinstance(made, torch.Tensor) or made.numel() > LARGEST or made.dim() > 6:
            return False
        if made.numel() == 0 and self.values[x].numel() and self.random.random() < 0.9:
            return False
        if made.numel() and (made.is_floating_point() or made.is_complex()):
            if not is_statement and not made.abs().max() < 200:
                return False
            self.scale = max(self.scale, made.abs().nan_to_num().max().item())
        if is_statement:
            # Whatever shares its memory is only as exact as this.
            self.exact = {n for n in self.exact if not _shares(self.values[n], made)}
            self.lines.append(text)
            return True
        self.values[name] = made
        if exact or not (made.is_floating_point() or made.is_complex()):
            self.exact.add(name)
        self.lines.append(f"{name} = {text}")
        return True

    def pointwise(self, x, value):
        if value.is_floating_point():
            return (self.choice(UNARY),)
        if value.is_complex():
            return (self.choice(UNARY_COMPLEX),)
        return self.choice(UNARY_WHOLE), True

    def partner(self, x, value):
        """Something that broadcasts with it."""
        fitting = []
        for name, other in self.values.items():
            try:
                torch.broadcast_shapes(value.shape, other.shape)
            except RuntimeError:
                continue
            if other.is_complex() != value.is_complex():
                continue
            if other.is_floating_point() == value.is_floating_point() or self.random.random() < 0.2:
                fitting.append(name)
        return self.choice(fitting) if fitting else None

    def binary(self, x, value):
        y = self.partner(x, value)
        if y is None:
            return None
        if value.is_complex():
            return self.choice(BINARY_COMPLEX), False, y
        if value.is_floating_point() and self.values[y].is_floating_point():
            return self.choice(BINARY), False, y
        return self.choice(BINARY_WHOLE[:2] if value.is_floating_point() or self.values[y].is_floating_point()
                           else BINARY_WHOLE), False, y  # fmt: skip

    def reduce(self, x, value):
        if value.is_complex():
            return (self.choice(REDUCE[:2]),)
        return (self.choice(REDUCE),) if value.is_floating_point() else (self.choice(REDUCE_WHOLE), True)

    def normal(self, x, value):
        return (self.choice(NORMAL),) if value.is_floating_point() and value.dim() else None

    def view(self, x, value):
        return self.choice(VIEWS), x in self.exact

    def join(self, x, value):
        same = [n for n, other in self.values.items() if other.shape == value.shape]
        return self.choice(JOIN), False, self.choice(same)

    def cast(self, x, value):
        if value.is_complex():
            return None
        to = self.choice(FLOATS + (WHOLE if x in self.exact else ()))
        return f"X.to({to})", not to.is_floating_point

    def call(self, x, value):
        return (self.choice(CALLS),) if value.dtype == torch.float32 and value.dim() else None

    def image(self, x, value):
        return (self.choice(IMAGES),) if value.is_floating_point() and value.dim() else None

    def exactly(self, x, value):
        return (self.choice(EXACT), True) if value.is_floating_point() and x in self.exact else None

    def inplace(self, x, value):
        outside = any(_shares(value, self.values[name]) for name in self.inputs)
        if (outside and not self.mutates_inputs) or not value.is_floating_point() or not _is_whole(value):
            return None
        y = self.partner(x, value)
        if y is None or torch.broadcast_shapes(value.shape, self.values[y].shape) != value.shape:
            return None
        return self.choice(INPLACE), False, y


def _replaced(text, letter, name):
    """The letter where it is a name."""
    out = ""
    for i, c in enumerate(text):
        alone = not (i and (text[i - 1].isalnum() or text[i - 1] in "_.")) and not text[i + 1 : i + 2].isalnum()
        out += name if c == letter and alone else c
    return out


def _shares(a, b):
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


def _is_whole(tensor):
    """No element of it stands for two."""
    return all(stride > 0 for stride, size in zip(tensor.stride(), tensor.shape) if size > 1)


def generate(seed, mutates_inputs=True):
    return Maker(seed, mutates_inputs).make()
