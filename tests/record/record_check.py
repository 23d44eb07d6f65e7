"""Runs a function eagerly and as a recorded graph, and compares all that both leave behind, bit by bit."""

import copy
import dataclasses

import torch

import smelt


def check(fn, *args, runs=2, seed=7, dynamic_shapes=None, **kwargs):
    """Eager on one copy of the arguments, record and run on another; returns the graph.

    Compared after every run: results, the tensors reached by the arguments (modules and optimizers included) with
    their .grad, which memory the results share, and the state of the default generator.
    """
    eager, recorded = clone((args, kwargs)), clone((args, kwargs))
    before, state = clone(recorded), torch.get_rng_state()
    graph = smelt.record(fn, *recorded[0], dynamic_shapes=dynamic_shapes, **recorded[1])
    assert torch.equal(torch.get_rng_state(), state), "recording drew random numbers"
    same_state(recorded, before)
    assert smelt._native.normalise_graph(str(graph)) == str(graph)
    for run in range(runs):
        torch.manual_seed(seed + run)
        expected = fn(*eager[0], **eager[1])
        state = torch.get_rng_state()
        torch.manual_seed(seed + run)
        actual = graph.run(*recorded[0], **recorded[1])
        same(actual, expected)
        assert sharing(actual, recorded) == sharing(expected, eager)
        same_state(recorded, eager)
        assert torch.equal(torch.get_rng_state(), state), "another state of the default generator"
    return graph


def clone(value):
    """A deep copy with the gradients, which copies of parameters lack."""
    copied = copy.deepcopy(value)
    for old, new in zip(tensors_in(value), tensors_in(copied), strict=True):
        if old.is_leaf and old.grad is not None:
            new.grad = old.grad.clone()
    return copied


def with_grads(model):
    """The model with some gradient in every parameter."""
    for p in model.parameters():
        p.grad = torch.randn_like(p)
    return model


def same(actual, expected, where="result"):
    """Equal structures of bit-equal tensors: dtype, shape, strides, conjugation and every byte."""
    if isinstance(expected, torch.Tensor):
        assert isinstance(actual, torch.Tensor), f"{where} is {actual!r}"
        for what in ("dtype", "shape", "device", "is_conj", "is_neg", "stride"):
            a, e = getattr(actual, what), getattr(expected, what)
            a, e = (a() if callable(a) else a), (e() if callable(e) else e)
            assert a == e, f"{where}.{what}: {a}, expected {e}"
        assert torch.equal(bits(actual), bits(expected)), f"{where}: {actual}, expected {expected}"
    elif isinstance(expected, dict):
        assert type(actual) is type(expected) and list(actual) == list(expected), where
        for key in expected:
            same(actual[key], expected[key], f"{where}[{key!r}]")
    elif isinstance(expected, (list, tuple)):
        assert type(actual) is type(expected) and len(actual) == len(expected), where
        for i, (a, e) in enumerate(zip(actual, expected)):
            same(a, e, f"{where}[{i}]")
    elif dataclasses.is_dataclass(expected):
        assert type(actual) is type(expected), where
        same(vars(actual), vars(expected), where)
    else:
        assert actual == expected, f"{where}: {actual!r}, expected {expected!r}"


def bits(tensor):
    plain = torch.empty(tensor.numel(), dtype=tensor.dtype)
    return plain.copy_(tensor.detach().reshape(-1)).view(torch.uint8)


def tensors_in(value):
    """The tensors reached by a structure of arguments, modules and optimizers, in a fixed order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, torch.nn.Module):
        return [*value.parameters(), *value.buffers()]
    if isinstance(value, torch.optim.Optimizer):
        return [t for state in value.state.values() for t in tensors_in(state)]
    if dataclasses.is_dataclass(value):
        value = vars(value)
    if isinstance(value, dict):
        value = list(value.values())
    return [t for item in value for t in tensors_in(item)] if isinstance(value, (list, tuple)) else []


def same_state(actual, expected):
    """The tensors reached by both have equal contents and equal .grad."""
    pairs = list(zip(tensors_in(actual), tensors_in(expected), strict=True))
    for i, (a, e) in enumerate(pairs):
        same(a, e, f"tensor {i}")
        assert a.requires_grad == e.requires_grad and type(a) is type(e)
        if e.is_leaf:
            same(a.grad, e.grad, f"tensor {i}.grad")


def sharing(results, arguments):
    """For each result the first argument and the first result whose memory it shares, and whether it is that one."""
    known = tensors_in(arguments)
    returned = tensors_in(results)

    def first(tensor, among):
        for i, other in enumerate(among):
            if tensor is other:
                return i, "itself"
        for i, other in enumerate(among):
            if other.numel() and tensor.untyped_storage().data_ptr() == other.untyped_storage().data_ptr():
                return i, tensor.storage_offset() - other.storage_offset()
        return None

    return [(first(t, known), first(t, returned)) for t in returned if t.numel()]
