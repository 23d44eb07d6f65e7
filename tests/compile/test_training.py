"""Compiled code that takes part in autograd: forward and backward as kernels, against eager."""

import copy
import os

import generated
import pytest
import torch
import torch.nn.functional as F
from native_check import TOLERANCE
from random_tensor_programs import generate
from torch import nn
from torch.utils.checkpoint import checkpoint

import smelt

# Without kernels nothing is gained, and training is left to the log.
pytestmark = pytest.mark.skipif(not generated.HAS_KERNELS, reason='built without LLVM')
BACKENDS = pytest.mark.parametrize("backend", ("native", "interpret"))
FIRST = int(os.environ.get("SMELT_RANDOM_FIRST", "0"))


def assert_compiled(tensor):
    """Its gradient is computed by a compiled backward."""
    assert tensor.grad_fn.name() == "SmeltBackward"


def weigh(results):
    """A loss that gives each element another gradient."""
    return sum((y * torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view(y.shape)).sum() for y in results)


def tensors_of(result):
    return [y for y in (result if isinstance(result, (tuple, list)) else [result]) if isinstance(y, torch.Tensor)]


def step(model, call, inputs, seed):
    """Results, gradients and buffers of one step."""
    inputs = [x.detach().clone().requires_grad_(x.requires_grad) for x in inputs]
    model.zero_grad()
    torch.manual_seed(seed)
    results = tensors_of(call(*inputs))
    weigh([y for y in results if y.requires_grad]).backward()
    leaves = [*model.parameters(), *inputs]
    return results, [x.grad for x in leaves], [b.clone() for b in model.buffers()], torch.get_rng_state()


def assert_same(mine, theirs, near=1e-5):
    for a, b in zip(mine[0], theirs[0], strict=True):
        assert (a.dtype, a.shape, a.stride(), a.requires_grad, a.is_leaf) == (
            b.dtype, b.shape, b.stride(), b.requires_grad, b.is_leaf)  # fmt: skip
    for a, b in zip(mine[1], theirs[1], strict=True):
        assert (a is None) == (b is None)
        assert a is None or (a.dtype, a.stride()) == (b.dtype, b.stride())
    for a, b in zip(mine[:3], theirs[:3]):
        a, b = ([t for t in tensors if t is not None] for tensors in (a, b))
        torch.testing.assert_close(a, b, rtol=near, atol=near)
    assert torch.equal(mine[3], theirs[3])


def check(model, *inputs, backend="native", compiled=True, near=1e-5, steps=3):
    reference = copy.deepcopy(model)
    call = smelt.compile(model, backend=backend)
    for seed in range(steps):
        theirs = step(reference, reference, inputs, seed)
        mine = step(model, call, inputs, seed)
        assert_same(mine, theirs, near)
    if compiled:
        for y in mine[0]:
            if y.requires_grad:
                assert_compiled(y)
    return call


class Small(nn.Module):
    """A module of a function and parameters."""

    def __init__(self, function, *shapes):
        super().__init__()
        self.function = function
        self.weights = nn.ParameterList(torch.randn(shape) for shape in shapes)

    def forward(self, *inputs):
        return self.function(*inputs, *self.weights)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 5))

    def forward(self, x, target):
        logits = self.body(x)
        return F.cross_entropy(logits, target), logits.softmax(-1)


def mlp():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 4))


MODELS = {
    "mlp": (mlp, lambda: [torch.randn(5, 8)]),
    "input": (mlp, lambda: [torch.randn(5, 8, requires_grad=True)]),
    "conv and batch norm": (
        lambda: nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3)),
        lambda: [torch.randn(2, 3, 8, 8)],
    ),
    "layer norm and dropout": (
        lambda: nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Dropout(0.3), nn.Linear(16, 4)),
        lambda: [torch.randn(5, 8)],
    ),
    "cross entropy": (Classifier, lambda: [torch.randn(6, 8), torch.randint(0, 5, (6,))]),
    "embedding": (
        lambda: nn.Sequential(nn.Embedding(10, 8, padding_idx=1), nn.LayerNorm(8), nn.Linear(8, 3)),
        lambda: [torch.randint(0, 10, (4, 6))],
    ),
    "transformer": (
        lambda: nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, dropout=0.2),
        lambda: [torch.randn(2, 5, 16)],
    ),
}  # fmt: skip


@BACKENDS
@pytest.mark.parametrize("name", MODELS)
def test_models(name, backend):
    make, inputs = MODELS[name]
    before = smelt.stats()["ops_native"]
    check(make(), *inputs(), backend=backend)
    assert smelt.stats()["ops_native"] > before


@pytest.mark.parametrize("name", MODELS)
def test_evaluation_with_gradients(name):
    make, inputs = MODELS[name]
    check(make().eval(), *inputs())


@pytest.mark.parametrize("make", (lambda p: torch.optim.SGD(p, 0.05, momentum=0.9), lambda p: torch.optim.Adam(p, 0.01)))
@pytest.mark.parametrize("name", ("mlp", "conv and batch norm", "cross entropy"))
def test_learning(name, make):
    build, inputs = MODELS[name]
    model, inputs = build(), inputs()
    reference = copy.deepcopy(model)
    losses = []
    for module, call in ((reference, reference), (model, smelt.compile(model))):
        optimizer = make(module.parameters())
        curve = []
        for i in range(10):
            if i == 5:  # goes on where it was
                state = copy.deepcopy(optimizer.state_dict())
                optimizer = make(module.parameters())
                optimizer.load_state_dict(state)
            optimizer.zero_grad()
            loss = tensors_of(call(*inputs))[0].square().mean()
            loss.backward()
            optimizer.step()
            curve.append(loss.item())
        losses.append(curve)
    torch.testing.assert_close(losses[1], losses[0], rtol=1e-5, atol=1e-5)
    if isinstance(optimizer, torch.optim.SGD):  # Adam makes a step of what is only rounding
        mine, theirs = ([*m.parameters(), *m.buffers()] for m in (model, reference))
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("frozen", ((0,), (2,), (0, 2), (0, 4)))
def test_frozen_layers(frozen):
    model = mlp()
    for i in frozen:
        model[i].requires_grad_(False)
    check(model, torch.randn(5, 8))


def test_thawed_later():
    model = mlp()
    model[0].requires_grad_(False)
    call = check(model, torch.randn(5, 8))
    model[0].requires_grad_(True)
    theirs = step(model, model, [torch.ones(5, 8)], 0)
    assert_same(step(model, call, [torch.ones(5, 8)], 0), theirs)


# -- what of the outputs is used


def two_outputs(x, w, b):
    return (x @ w).relu(), torch.log(b * x)


@pytest.mark.parametrize("which", (0, 1))
def test_unused_outputs(which):
    """What is not used gives None, not 0, and is not computed: 0 times infinity would be NaN."""
    model = Small(two_outputs, (4, 3), (4,))
    reference = copy.deepcopy(model)
    compiled = smelt.compile(model)
    x = torch.randn(5, 4).abs()
    x[0, 0] = 0
    for _ in range(3):
        grads = []
        for module, call in ((reference, reference), (model, compiled)):
            module.zero_grad()
            leaf = x.clone().requires_grad_()
            results = call(leaf)
            results[which].nan_to_num(0, 0, 0).sum().backward()
            grads.append([leaf.grad, *(p.grad for p in module.parameters())])
        assert [g is None for g in grads[0]] == [g is None for g in grads[1]]
        torch.testing.assert_close([g for g in grads[1] if g is not None], [g for g in grads[0] if g is not None],
                                   equal_nan=True)  # fmt: skip
    assert_compiled(results[0])


def test_an_output_used_twice():
    model = mlp()
    reference = copy.deepcopy(model)
    compiled = smelt.compile(model)
    x = torch.randn(5, 8)
    for _ in range(2):
        for module, call in ((reference, reference), (model, compiled)):
            module.zero_grad()
            y = call(x)
            (y.sum() + (y * y).sum()).backward()
        torch.testing.assert_close([p.grad for p in model.parameters()], [p.grad for p in reference.parameters()])
    assert_compiled(y)


def test_outputs_without_gradient():
    def function(x, w):
        h = x @ w
        return h.tanh(), (h * 2).detach(), h.argmax(-1), 3, "text"

    check(Small(function, (4, 3)), torch.randn(5, 4))


def test_islands_without_gradient():
    def function(x, w):
        with torch.no_grad():
            scale = (w * w).sum()
        return (x @ w) / scale, (x.detach() * w.sum()).tanh()

    check(Small(function, (4, 3)), torch.randn(5, 4, requires_grad=True))


def test_gradient_layouts():
    """Strides of what comes in and what goes out."""

    def function(x, w):
        return (x @ w).t().tanh(), (x * 2).expand(2, -1, -1) + 1

    check(Small(function, (4, 3)), torch.randn(5, 4, requires_grad=True))
    check(Small(function, (4, 3)), torch.randn(4, 5).t().requires_grad_())


# -- the engine's ways


def pair(function=None, *shapes):
    model = Small(function, *shapes) if function else mlp()
    return copy.deepcopy(model), model, smelt.compile(model)


def both(run, function=None, *shapes, times=3):
    """run(module, call) gives the same for both, several times."""
    reference, model, compiled = pair(function, *shapes)
    for _ in range(times):
        theirs, mine = run(reference, reference), run(model, compiled)
        torch.testing.assert_close(mine, theirs)


def grads(module):
    return [p.grad.clone() for p in module.parameters()]


def test_accumulation():
    def run(module, call):
        module.zero_grad()
        for i in range(3):
            call(torch.full((5, 8), 0.1 * i)).sum().backward()
        return grads(module)

    both(run)


def test_several_forwards_before_backward():
    def run(module, call):
        module.zero_grad()
        losses = [call(torch.full((5, 8), 0.1 * i)).square().sum() for i in range(3)]
        for loss in losses:
            loss.backward()
        return grads(module)

    both(run)


def test_retained_graphs():
    def run(module, call):
        module.zero_grad()
        y = call(torch.ones(5, 8)).square().sum()
        y.backward(retain_graph=True)
        y.backward()
        with pytest.raises(RuntimeError, match="second time"):
            y.backward()
        return grads(module)

    both(run)


def test_backward_twice_where_nothing_is_saved():
    def run(module, call):
        module.zero_grad()
        y = call(torch.ones(4))
        y.backward(torch.ones(4))
        y.backward(torch.ones(4))
        return grads(module)

    both(run, lambda x, w: x + w + 1, (4,))


@pytest.mark.parametrize("dropout", (0.0, 0.4))
def test_double_backward(dropout):
    """A gradient penalty."""

    def function(x, w, v):
        return F.dropout(torch.tanh(x @ w), dropout) @ v

    def run(module, call):
        module.zero_grad()
        torch.manual_seed(3)
        x = torch.linspace(-1, 1, 20).view(5, 4).requires_grad_()
        y = call(x)
        (grad,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        (y.mean() + (grad.norm(dim=1) - 1).square().mean()).backward()
        return [x.grad, grad, torch.get_rng_state(), *grads(module)]

    both(run, function, (4, 6), (6, 1))


def test_double_backward_with_batch_norm():
    """The statistics are counted once."""
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 1))
    reference = copy.deepcopy(model)
    compiled = smelt.compile(model)
    for _ in range(3):
        outcomes = []
        for module, call in ((reference, reference), (model, compiled)):
            module.zero_grad()
            x = torch.linspace(-1, 1, 20).view(5, 4).requires_grad_()
            (grad,) = torch.autograd.grad(call(x).sum(), x, create_graph=True)
            grad.square().sum().backward()
            some = [p.grad for p in module.parameters() if p.grad is not None]
            outcomes.append([x.grad, grad, *some, *(b.clone() for b in module.buffers())])
        torch.testing.assert_close(outcomes[1], outcomes[0], rtol=1e-4, atol=1e-5)


def test_an_input_that_depends_on_another():
    def run(module, call):
        module.zero_grad()
        x = torch.linspace(-1, 1, 4).requires_grad_()
        y = call(x, x * 2)
        (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        first.square().sum().backward()
        return [x.grad, first, *grads(module)]

    both(run, lambda x, z, w: (x * z * w).sin(), (4,))


def test_hooks():
    def run(module, call):
        seen = {}

        def hook(i):
            return lambda g: seen.__setitem__(i, g.clone()) or g * 2

        module.zero_grad()
        handles = [p.register_hook(hook(i)) for i, p in enumerate(module.parameters())]
        y = call(torch.ones(5, 8))
        y.register_hook(lambda g: g * 3)
        y.retain_grad()
        y.sum().backward()
        for handle in handles:
            handle.remove()
        return [y.grad, *(seen[i] for i in sorted(seen)), *grads(module)]

    both(run)


def test_only_some_gradients():
    def run(module, call):
        y = call(torch.ones(5, 8))
        return torch.autograd.grad(y.sum(), [module[0].weight, module[4].bias])

    both(run)


def test_saved_tensor_hooks():
    def run(module, call):
        module.zero_grad()
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
            call(torch.ones(5, 8)).sum().backward()
        return grads(module)

    both(run)


@pytest.mark.parametrize("reentrant", (False, True))
def test_inside_a_checkpoint(reentrant):
    def run(module, call):
        module.zero_grad()
        x = torch.ones(5, 8, requires_grad=True)
        checkpoint(call, x, use_reentrant=reentrant).sum().backward()
        return [x.grad, *grads(module)]

    both(run)


def test_anomaly_mode():
    def run(module, call):
        module.zero_grad()
        with torch.autograd.detect_anomaly(check_nan=True):
            call(torch.ones(5, 8)).sum().backward()
        return grads(module)

    with pytest.warns(UserWarning, match="Anomaly"):
        both(run)


# -- changes between forward and backward


def changed(what, function, *shapes):
    _, model, compiled = pair(function, *shapes)
    for call in (model, compiled, compiled, compiled):
        x = torch.ones(4)
        y = call(x)
        with torch.no_grad():
            what(model, x, y)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()
    assert_compiled(compiled(torch.ones(4)))


def test_a_saved_parameter_is_changed():
    changed(lambda model, x, y: model.weights[0].add_(1), lambda x, w: (x * w * w).sin(), (4,))


def test_a_saved_input_is_changed():
    changed(lambda model, x, y: x.add_(1), lambda x, w: (x * w).sin(), (4,))


def test_a_saved_output_is_changed():
    changed(lambda model, x, y: y.add_(1), lambda x, w: (x * w).exp(), (4,))


def test_a_view_of_something_saved_is_changed():
    changed(lambda model, x, y: y.add_(1), lambda x, w: (x * w).exp().view(2, 2), (4,))


def test_what_is_not_saved_may_change():
    def run(module, call):
        module.zero_grad()
        x = torch.ones(4, requires_grad=True)
        y = call(x)
        with torch.no_grad():
            module.weights[0].add_(1)
            x.add_(1)
            y.add_(1)
        y.sum().backward()
        return [x.grad, *grads(module)]

    both(run, lambda x, w: x + w + 1, (4,))


def test_a_copy_is_saved_of_what_may_change():
    """The backward computes the activation's argument anew, of a bias that eager does not save."""
    model = nn.Sequential(nn.BatchNorm1d(16), nn.SiLU(), nn.Linear(16, 16), nn.GroupNorm(4, 16), nn.SiLU()).double()
    x = torch.randn(512, 16, dtype=torch.float64)

    def run(module, call):
        module.zero_grad()
        y = call(x)
        with torch.no_grad():
            module[0].bias.add_(1)
            module[3].bias.add_(1)
        weigh([y]).backward()
        return [y.detach(), *grads(module)]

    reference, compiled = copy.deepcopy(model), smelt.compile(model)
    for _ in range(3):
        torch.testing.assert_close(run(model, compiled), run(reference, reference))
    assert_compiled(compiled(x))


def test_outputs_changed_in_place():
    def run(module, call):
        module.zero_grad()
        y = call(torch.ones(4))
        y.mul_(2)
        y[:2].exp_()
        y.sum().backward()
        return [y.detach(), *grads(module)]

    both(run, lambda x, w: (x * w).sin(), (4,))


# -- modes


def test_no_grad_and_back():
    def run(module, call):
        module.zero_grad()
        x = torch.ones(5, 8)
        with torch.no_grad():
            first = call(x)
        assert not first.requires_grad
        call(x).sum().backward()
        with torch.inference_mode():
            third = call(x).clone()
        return [first, torch.tensor(third.tolist()), *grads(module)]

    both(run)


def test_autocast():
    model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 4))
    reference = copy.deepcopy(model)
    compiled = smelt.compile(model)
    x = torch.randn(5, 8)
    for _ in range(3):
        outcomes = []
        for module, call in ((reference, reference), (model, compiled)):
            module.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                y = call(x)
            y.float().square().sum().backward()
            outcomes.append([y, *grads(module)])
        assert y.dtype == torch.bfloat16
        torch.testing.assert_close(outcomes[1], outcomes[0], rtol=4e-2, atol=4e-2)
    assert_compiled(y)


def test_anything_else_is_left_to_the_log():
    """In-place changes of inputs that take part, outputs that are inputs or views of them."""

    def function(x, w):
        y = x * 2
        y.mul_(w)
        return y, w.view(2, 2), x

    check(Small(function, (4,)), torch.randn(4, requires_grad=True), compiled=False)


def test_gradcheck():
    def function(x, w):
        return torch.softmax(x @ w, -1), (x.exp() * w.sum()).sum()

    inputs = [torch.randn(3, 4, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    inputs[1] = torch.randn(4, 2, dtype=torch.float64, requires_grad=True)
    compiled = smelt.compile(function)
    compiled(*inputs)
    assert_compiled(compiled(*inputs)[0])
    assert torch.autograd.gradcheck(compiled, inputs)
    assert torch.autograd.gradgradcheck(compiled, inputs)


@pytest.mark.parametrize("make", (nn.LSTM, nn.GRU, nn.RNN))
def test_recurrent(make):
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = make(4, 5, batch_first=True)

        def forward(self, x):
            return self.inner(x)[0].tanh()

    check(Recurrent(), torch.randn(2, 6, 4), compiled=False)


def test_equal_results():
    check(Small(lambda x, w: ((x * w).exp(), (x * w).exp(), x * w), (4,)), torch.randn(4))


def test_sparse_gradients():
    model = nn.Sequential(nn.Embedding(10, 4, sparse=True), nn.Tanh())
    reference = copy.deepcopy(model)
    compiled = smelt.compile(model)
    for _ in range(3):
        for module, call in ((reference, reference), (model, compiled)):
            module.zero_grad()
            call(torch.tensor([1, 2, 2])).sum().backward()
        assert model[0].weight.grad.is_sparse
        torch.testing.assert_close(model[0].weight.grad.to_dense(), reference[0].weight.grad.to_dense())


def test_a_sparse_gradient_comes_in():
    def run(module, call):
        module.zero_grad()
        y = call(torch.ones(4, 3))
        F.embedding(torch.tensor([1, 1, 2]), y, sparse=True).sum().backward()
        return grads(module)

    both(run, lambda x, w: (x * w).sin(), (4, 3))


def test_hooks_inside():
    def function(x, w):
        h = x * w
        if h.requires_grad:
            h.register_hook(lambda g: g * 2)
            h.retain_grad()
        return h.sin(), h

    def run(module, call):
        module.zero_grad()
        y, h = call(torch.ones(4))
        y.sum().backward()
        return [h.grad, *grads(module)]

    both(run, function, (4,))


def test_segments():
    """Several compiled pieces, one behind the other."""

    @smelt.disable
    def outside(x):
        return x * 2

    def function(x, w, v):
        h = torch.tanh(x @ w)
        return F.gelu(outside(h) @ v), h.sum()

    check(Small(function, (4, 3), (3, 4)), torch.randn(5, 4))


def test_a_kernel_that_fails():
    """What is out of range is what eager says it is, and nothing is changed."""
    model = nn.Sequential(nn.Embedding(10, 4), nn.Tanh())
    compiled = smelt.compile(model)
    compiled(torch.tensor([1, 2]))
    assert_compiled(compiled(torch.tensor([1, 2])))
    with pytest.raises(IndexError):
        compiled(torch.tensor([1, 10]))
    assert_compiled(compiled(torch.tensor([1, 2])))


def test_threads():
    from concurrent.futures import ThreadPoolExecutor

    reference, model, compiled = pair()
    compiled(torch.ones(5, 8)).sum().backward()
    inputs = [torch.full((5, 8), 0.1 * i) for i in range(16)]

    def grad_of(call, module, x):
        return torch.autograd.grad(call(x).square().sum(), list(module.parameters()))

    with ThreadPoolExecutor(4) as pool:
        mine = list(pool.map(lambda x: grad_of(compiled, model, x), inputs))
    torch.testing.assert_close(mine, [grad_of(reference, reference, x) for x in inputs])


def test_nothing_is_leaked():
    import gc
    import weakref

    _, model, compiled = pair()
    for _ in range(3):
        x = torch.ones(5, 8, requires_grad=True)
        y = compiled(x)
        alive = weakref.ref(x), weakref.ref(y)
        y.sum().backward()
        del x, y
        gc.collect()
        assert alive[0]() is None and alive[1]() is None
        y = compiled(torch.ones(5, 8))  # and never used
        del y


def test_deviation_of_equal_numbers():
    def function(x):
        return torch.std(x, 0, correction=0), torch.std(x, 1).sum() * 2

    check(Small(function), torch.rand(1, 8).expand(5, 8).clone().requires_grad_())


def test_a_scalar_that_is_a_row(capfd):
    """What reads it as a scalar is computed once per row, and finds what the row has kept."""

    def function(x, places):
        row = (x * 2).reshape(-1)
        shares = torch.sigmoid(torch.softmax(row, -1))
        return torch.exp(-shares.abs()), shares[places] * torch.tanh(row)

    check(Small(function), torch.tensor(0.7, requires_grad=True), torch.tensor([0, 0, 0, 0]))
    check(Small(lambda x: torch.cumsum((x * 2).reshape(-1), 0).reshape(()) + x), torch.tensor(0.7, requires_grad=True))
    assert "kernels could not be made" not in capfd.readouterr().err


# -- random programs


def random_step(function, inputs, seed):
    inputs = [x.clone().requires_grad_() if x.is_floating_point() else x.clone() for x in inputs]
    torch.manual_seed(seed)
    results = tensors_of(function(*[x * 1 if x.requires_grad else x for x in inputs]))
    tracked = [y for y in results if y.requires_grad and not y.is_complex()]
    for y in tracked:
        y.retain_grad()  # also where others are computed from it
    if tracked:
        weigh(tracked).backward()
    return results, [x.grad for x in inputs], [y.grad for y in tracked]


@pytest.mark.parametrize("block", range(20))
def test_random_programs(block):
    """SMELT_RANDOM_FIRST is the first seed."""
    for seed in range(FIRST + block * 10, FIRST + (block + 1) * 10):
        with torch.no_grad():
            program = generate(seed)
        function = program.function()
        try:
            theirs = random_step(function, program.inputs(), seed)
        except (RuntimeError, IndexError):
            continue  # a result is changed that autograd needs
        near = max(TOLERANCE[program.coarsest or torch.float64], 1e-4) * 5
        for backend in ("native", "interpret"):
            smelt.reset()
            compiled = smelt.compile(function, backend=backend)
            for _ in range(2):
                mine = random_step(compiled, program.inputs(), seed)
                for what, a, b in zip(("result", "gradient", "retained"), mine, theirs):
                    for i, (x, y) in enumerate(zip(a, b, strict=True)):
                        assert (x is None) == (y is None), f"{backend}, {what} {i}\n{program}"
                        if x is None:
                            continue
                        size = max(1.0, y.detach().to(torch.complex128).abs().nan_to_num(0, 0, 0).max().item() if y.numel() else 1.0)
                        scale = max(float(program.scale), size)
                        torch.testing.assert_close(x, y, rtol=near, atol=near * scale, equal_nan=True,
                                                   msg=lambda text: f"{backend}, {what} {i}: {text}\n{program}")  # fmt: skip
