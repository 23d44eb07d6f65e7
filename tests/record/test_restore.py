"""Nothing stays switched on or changed after a recording, however it ends."""

import pytest
import torch
import torch.nn.functional as F
from record_check import clone, same, same_state
from torch import nn

import smelt
from smelt import _record


def thread_state():
    """What PyTorch keeps per thread and in globals that a recording touches."""
    return {
        "included": str(torch._C._dispatch_tls_local_include_set()),
        "excluded": str(torch._C._dispatch_tls_local_exclude_set()),
        "reapply views": torch._C._functionalization_reapply_views_tls(),
        "grad mode": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "autocast cache": torch.is_autocast_cache_enabled(),
        "recording": smelt._native.is_recording(),
        "rng": torch.get_rng_state().tolist(),
        "seed": torch.initial_seed(),
        "functorch": torch._C._functorch.peek_interpreter_stack(),
        "dispatch modes": torch._C._len_torch_dispatch_stack(),
    }


def objects_of(tensors):
    return [(id(t), type(t), t.data_ptr(), t.requires_grad, t._version, id(t.grad), t.is_leaf) for t in tensors]


class Block(nn.Module):
    """A small transformer with dropout, tied weights and batch norm."""

    def __init__(self, width=8, heads=2, words=11):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.batch_norm = nn.BatchNorm1d(width)
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.embed.weight
        self.heads = heads

    def forward(self, i, target):
        x = F.dropout(self.embed(i), 0.1)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + F.dropout(self.out(y), 0.1)
        x = x + self.down(F.gelu(self.up(self.norm2(x))))
        x = self.batch_norm(x.flatten(0, 1)).relu_()
        return F.cross_entropy(self.head(x), target.flatten())


def step(model, optimizer, i, target):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(i, target)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.detach()


def training():
    model = Block()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    i, target = torch.randint(0, 11, (2, 5)), torch.randint(0, 11, (2, 5))
    step(model, optimizer, i, target)
    return model, optimizer, i, target


def test_failure_at_every_op():
    arguments = training()
    graph = smelt.record(step, *arguments)
    model = arguments[0]
    reference = clone(arguments)
    torch.manual_seed(5)
    expected = step(*reference)
    before, state = clone(arguments), thread_state()
    tensors = [*model.parameters(), *model.buffers(), *arguments[2:]]
    tensors += [p.grad for p in model.parameters()]
    objects = objects_of(tensors)
    failures = 0
    while True:
        try:
            _record._record(step, arguments, {}, fail_at=failures)
            break
        except RuntimeError as error:
            assert "injected failure" in str(error)
        assert thread_state() == state
        assert objects_of(tensors) == objects
        if failures % 10 == 0:  # eager goes on as if nothing had happened, and a new recording is the same
            same_state(arguments, before)
            trial = clone(arguments)
            torch.manual_seed(5)
            same(step(*trial), expected)
            same_state(trial, reference)
            torch.set_rng_state(torch.tensor(state["rng"], dtype=torch.uint8))
        failures += 1
    assert failures > 150
    assert str(smelt.record(step, *arguments)) == str(graph)
    same_state(arguments, before)
    torch.manual_seed(5)
    same(graph.run(*arguments), expected)
    same_state(arguments, reference)


@pytest.mark.parametrize("how", ["returns", "raises", "refused", "shape error", "swallowed"])
@pytest.mark.parametrize("around", ["plain", "no_grad", "inference", "autocast"])
def test_state_after(how, around):
    contexts = {
        "plain": lambda: torch.enable_grad(),
        "no_grad": lambda: torch.no_grad(),
        "inference": lambda: torch.inference_mode(),
        "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    }
    w = torch.randn(3, requires_grad=True)

    def fn(x):
        y = F.dropout(w * x, 0.5)
        if how == "raises":
            raise KeyError("no")
        if how == "refused":
            y.sum().item()
        if how == "shape error":
            y @ torch.ones(5, 5)
        if how == "swallowed":
            try:
                y.sum().item()
            except RuntimeError:
                pass
        return y

    with contexts[around]():
        before, objects = thread_state(), objects_of([w])
        try:
            smelt.record(fn, torch.ones(3))
        except (KeyError, RuntimeError):
            pass
        assert thread_state() == before
        assert objects_of([w]) == objects


def test_functorch_level_left_open_by_an_exception():
    def fn(x):
        return torch.vmap(lambda p: torch.func.grad(lambda q: q @ torch.ones(7))(p))(x)

    before = thread_state()
    with pytest.raises(RuntimeError):
        smelt.record(fn, torch.ones(2, 3))
    assert thread_state() == before


def test_failure_while_arguments_are_taken():
    w = torch.randn(3, requires_grad=True)
    state, objects = thread_state(), objects_of([w])
    with pytest.raises(smelt.RecordError):
        smelt.record(lambda *a: None, w, torch.eye(3).to_sparse())
    assert thread_state() == state and objects_of([w]) == objects
    (w * 2).sum().backward()


def test_default_generator_is_seeded_again_after_a_failure():
    torch.manual_seed(42)
    expected = torch.rand(3)
    torch.manual_seed(42)
    with pytest.raises(ValueError):
        smelt.record(lambda: int(torch.rand(3).shape[0] - 3 and "x" or "y"))
    same(torch.rand(3), expected)


def test_generator_of_the_user_after_a_failure():
    generator = torch.Generator().manual_seed(9)
    state = generator.get_state()

    def fn(generator):
        torch.rand(3, generator=generator)
        generator.manual_seed(1)
        raise KeyError("no")

    with pytest.raises(KeyError):
        smelt.record(fn, generator)
    same(generator.get_state(), state)


def test_gradients_set_by_hand_before_a_failure():
    w = torch.randn(3, requires_grad=True)
    w.grad = torch.ones(3)
    grad = w.grad

    def fn():
        w.grad = None
        (w * 2).sum().backward()
        w.requires_grad_(False)
        raise KeyError("no")

    with pytest.raises(KeyError):
        smelt.record(fn)
    assert w.grad is grad and w.requires_grad
    same(grad, torch.ones(3))


def test_requires_grad_switched_inside():
    """The gradient is right; the flag of the caller's tensor is as before (a run does not set it)."""

    def fn(x):
        x.requires_grad_()
        return torch.autograd.grad((x * x).sum(), x)[0]

    x = torch.randn(3)
    graph = smelt.record(fn, x)
    assert not x.requires_grad
    same(graph.run(x), x * 2)
