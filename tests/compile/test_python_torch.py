"""PyTorch under smelt.compile, values that change without a recompile, and what ends a graph. See plain_check.py."""

import contextlib
import copy
import io
import logging
import math
import operator
import random

import numpy as np
import pytest
import torch
from plain_check import X, Cases, check_case, tensor
from torch import nn
from torch.nn import functional as F

CASES = Cases()
case = CASES.case


# --- torch ------------------------------------------------------------------------------------------------------------


@case()
def in_place_on_arguments():
    def fn(x):
        x.add_(1)
        x[0] = 5
        x[:, 1] *= 2
        view = x.view(-1)
        view[2:4].zero_()
        x += view.sum()
        return view
    return fn


@case((lambda: tensor(0),), (lambda: tensor(1),), (lambda: tensor(2),))
def result_aliases_argument():
    return lambda x: (x, x[0], x.t(), x.view(3, 2), [x, x])


@case()
def tensors_and_results_by_old_means():
    def fn(x):
        made = x.new(2, 3).zero_() + x
        pair = torch.return_types.max((x, made))
        kept = dict[str, int](a=1)
        shallow = copy.copy(kept)
        return made, pair.values + pair.indices, kept, shallow, shallow is kept
    return fn


@case()
def builtin_abs_and_pow():
    class Signed:
        def __init__(self, value):
            self.value = value

        def __abs__(self):
            return self.value.abs() + 1

    return lambda x: (abs(x - 1) + operator.abs(-x), pow(x, 2), pow(2, x), abs(Signed(x)), abs(-3), pow(2, 3, 5))


@case(*[(lambda: tensor(0).requires_grad_(),)] * 3)
def autograd_through_the_call():
    w = tensor(9, 3).requires_grad_()

    def fn(x):
        y = (x * w).relu().sum()
        return y
    return (lambda x: fn(x)), w


@case(whole=False)
def backward_inside():
    w = tensor(9, 3).requires_grad_()

    def fn(x):
        loss = (x * w).pow(2).sum()
        loss.backward()
        grad = torch.autograd.grad((w * 2).sum(), w)[0]
        return loss.detach(), grad
    return fn, w


def net():
    class Block(nn.Module):
        def __init__(self, n):
            super().__init__()
            self.linear, self.norm = nn.Linear(n, n), nn.BatchNorm1d(n)

        def forward(self, x):
            return x + F.relu(self.norm(self.linear(x)))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList([Block(3), Block(3)])
            self.heads = nn.ModuleDict({"a": nn.Linear(3, 2), "b": nn.Linear(3, 1)})
            self.scales = nn.ParameterList([nn.Parameter(torch.ones(3) * i) for i in (1, 2)])
            self.named = nn.ParameterDict({"p": nn.Parameter(torch.ones(3))})
            self.tail = nn.Sequential(nn.Dropout(0.5), nn.Linear(3, 3), nn.GELU())
            self.shared = self.tail[1]
            self.register_buffer("count", torch.zeros(()))
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            self.count += 1
            for block, scale in zip(self.blocks, self.scales):
                x = block(x) * scale
            x = self.shared(self.tail(x)) + self.named["p"]
            return {name: head(x) for name, head in self.heads.items()}
    torch.manual_seed(1)
    return Net()


@case(recompiles=0)
def module_tree_in_training():
    model = net()
    return (lambda x: model(x)), model


@case()
def module_tree_in_eval():
    model = net().eval()
    return (lambda x: model(x)), model


@case()
def forward_hooks():
    model, log = nn.Sequential(nn.Linear(3, 3), nn.ReLU()), []
    model[0].register_forward_pre_hook(lambda m, args: (args[0] + 1,))
    model[0].register_forward_hook(lambda m, args, out: log.append(out.shape) or out * 2)
    model.register_forward_hook(lambda m, args, kwargs, out: out + 1, with_kwargs=True)
    return (lambda x: model(x)), log


@case(whole=False)
def backward_hooks():
    model, log = nn.Sequential(nn.Linear(3, 3), nn.ReLU()), []
    model[0].register_full_backward_hook(lambda m, gi, go: log.append(len(go)))
    model[0].weight.register_hook(lambda g: g * 2)

    def fn(x):
        model.zero_grad()
        model(x).sum().backward()
    return fn, (log, model)


@case(whole=False)
def optimizer_step():
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def fn(x):
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()
    return fn, model


@case(whole=False)
def custom_autograd_function():
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * ctx.saved_tensors[0]
    w = tensor(9).requires_grad_()

    def fn(x):
        y = Double.apply(x * w)
        y.sum().backward()
        return y.detach()
    return fn, w


@case()
def random_numbers_of_torch():
    return lambda x: (F.dropout(x, 0.5), torch.rand(2), torch.rand_like(x), torch.randint(5, (3,)), torch.randperm(4))


@case()
def factories_and_dtypes():
    def fn(x):
        ones = torch.ones(x.shape, dtype=torch.float64)
        return x.to(ones) + ones, torch.tensor([1, 2]), torch.arange(x.size(1)), x.new_zeros(2), x.dtype, x.device
    return fn


# --- values that change without a recompile ---------------------------------------------------------------------------


@case((X, 0.5), (X, 0.25), (X, 3.0), (X, -1.0), recompiles=0)
def float_argument():
    return lambda x, k: x * k + k * 2


@case((X, 2), (X, 3), (X, 7), (X, 11), recompiles=0)
def int_argument_in_tensor_ops():
    return lambda x, n: x * n + (n + 1) * 2


@case(recompiles=0)
def counter_in_an_attribute():
    class Model:
        n, rate = 0, 1.0
    m = Model()

    def fn(x):
        m.n += 1
        m.rate *= 0.5
        return x * m.n + m.rate
    return fn, m


@case((X, 4), (X, 5), (X, 9), (X, 6), recompiles=0)
def arange_over_a_changing_number():
    return lambda x, n: x.sum() + torch.arange(8) * n


@case((X, 1), (X, 1), (X, -1), (X, 1), (X, -2), whole=False, recompiles=1)
def a_branch_is_compiled_once_per_side():
    def fn(x, n):
        return x + 1 if n > 0 else x - 1
    return fn


# --- what ends a graph, and goes on -----------------------------------------------------------------------------------


@case((lambda: tensor(0).abs(),), (lambda: -tensor(0).abs(),), (lambda: tensor(1).abs(),),
      (lambda: -tensor(1).abs(),), whole=False)
def branch_on_a_tensor():
    def fn(x):
        y = x * 2
        if y.sum() > 0:
            y = y.sin()
        else:
            y = y - 1
        return y + x
    return fn


@case(*[(X,)] * 5, whole=False)
def while_on_a_tensor():
    def fn(x):
        n = 0
        while x.abs().sum() > 1:
            x = x / 2
            n += 1
        return x, n
    return fn


@case(*[(X,)] * 4, whole=False)
def item_and_tolist():
    def fn(x):
        y = x + 1
        n = y.sum().item()
        rows = y.tolist()
        return y * n, len(rows), int(y[0, 0]), float(y.max()), bool(y.any()), y.argmax().item()
    return fn


@case(*[(X,)] * 4, whole=False)
def print_in_the_middle():
    def fn(x):
        y = x * 2
        print("y is", y.shape, f"{y.sum().item():.3f}")
        return y + 1
    return fn


@case(*[(X,)] * 4, whole=False)
def breaks_in_loops_try_and_with():
    log = []

    @contextlib.contextmanager
    def scope():
        log.append("in")
        yield
        log.append("out")

    def inner(x):
        y = x + 1
        log.append(round(y.sum().item(), 3))
        return y * 2

    def fn(x):
        for i in range(3):
            with scope():
                try:
                    x = inner(x) / 2
                    if x.mean() > 1:
                        raise ValueError(i)
                except ValueError as e:
                    x = -x
                    log.append(str(e))
                finally:
                    print(i)
        return x
    return fn, log


@case(*[(X,)] * 4, whole=False)
def break_inside_an_inlined_generator():
    def halves(x):
        for i in range(3):
            x = x / 2
            print("half", i)
            yield x

    def fn(x):
        return sum(y * 2 for y in halves(x)) + 1
    return fn


@case(*[(X,)] * 4, whole=False)
def break_with_a_full_stack():
    def fn(x):
        return [x + 1, {"a": (x * 2).sum().item(), "b": f"{x.max().item():.2f}"}, (x - 1) * x.min().item(), x]
    return fn


@case(*[(X,)] * 4, whole=False)
def break_in_a_comprehension():
    def fn(x):
        return [row.sum().item() for row in x], {i: (x[i] * 2).max().item() for i in range(2)}
    return fn


@case(*[(X,)] * 4, whole=False)
def logging_and_files():
    stream = io.StringIO()
    logger = logging.Logger("t")
    logger.addHandler(logging.StreamHandler(stream))

    def fn(x):
        y = x * 2
        logger.warning("shape %s", tuple(y.shape))
        stream.write("written\n")
        return y + len(stream.getvalue())
    return fn, lambda: stream.getvalue()


@case(*[(X,)] * 4, whole=False)
def numpy_calls():
    def fn(x):
        a = (x + 1).numpy()
        b = np.sin(a) + np.float32(2)
        return torch.from_numpy(b) * 2, float(np.sqrt(4.0)), np.arange(3).tolist(), x * np.pi
    return fn


@case(*[(X,)] * 4, whole=False)
def python_random():
    def fn(x):
        return x * random.random() + random.randint(1, 5), random.choice([1, 2, 3])
    return fn


@case()
def math_functions():
    return lambda x: x * math.sqrt(x.shape[0]) + math.pi + math.floor(2.5) + math.log(math.prod(x.shape)) + math.inf


@case(*[(X,)] * 4, whole=False)
def data_dependent_shapes():
    def fn(x):
        y = x[x > 0]
        return y * 2, torch.nonzero(x).shape[0], torch.unique(x.round()), y.shape[0] + 1
    return fn


@case(*[(X,)] * 4, whole=False)
def call_of_a_c_extension():
    import json
    import zlib

    def fn(x):
        y = x + zlib.crc32(b"abc") % 7
        text = json.dumps({"a": [1, 2]})
        return y * len(text)
    return fn


@case(*[(X,)] * 3, whole=False)
def callback_from_c():
    log = []

    def key(v):
        log.append(v)
        return -v

    def fn(x):
        order = sorted([1, 3, 2], key=key)
        best = max([x, x + 1], key=lambda t: t.sum().item())
        return best * order[0], list(map(key, order))
    return fn, log


@pytest.mark.parametrize("case", CASES.all)
def test_like_plain_python(case):
    check_case(case)
