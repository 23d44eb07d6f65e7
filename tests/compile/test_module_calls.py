"""What nn.Module does in Python before forward() runs is written down at once; it must show nowhere."""
import inspect
import traceback

import pytest
import torch
from torch import nn

import smelt


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3))
        self.register_buffer('shift', torch.randn(3))

    def forward(self, x, *, scale=1.0):
        return x * self.weight * scale + self.shift


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()

    def forward(self, x):
        return self.inner(x, scale=2.0).relu()


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Outer()


def check(model, compiled, x, calls=3):
    for _ in range(calls):
        torch.testing.assert_close(compiled(x), model(x))


def test_one_graph(model):
    compiled = smelt.compile(model)
    x = torch.randn(2, 3)
    check(model, compiled, x)
    assert smelt.stats()['graph_breaks'] == 0


def test_calls_are_short():
    """Of 37 and 12 instructions of nn.Module's code per call, and 28 per attribute, few are followed."""
    for depth in (1, 101):
        smelt.reset()
        layers = [Inner() for _ in range(depth)]

        def call_all(x, layers=layers):
            for layer in layers:
                x = layer(x)
            return x

        smelt.compile(call_all, backend='eager')(torch.randn(3))
        stats = smelt.stats()
        assert stats['graph_breaks'] == 0 and stats['instructions'] < 40 + 25 * depth


@pytest.mark.parametrize('name', ['weight', 'shift'])
def test_state_is_replaced(model, name):
    compiled = smelt.compile(model)
    x = torch.randn(2, 3)
    check(model, compiled, x)
    new = torch.randn(3)
    setattr(model.inner, name, nn.Parameter(new) if name == 'weight' else new)
    check(model, compiled, x)


def test_a_buffer_becomes_an_attribute(model):
    compiled = smelt.compile(model)
    x = torch.randn(2, 3)
    check(model, compiled, x)
    del model.inner.shift
    model.inner.__dict__['shift'] = torch.full((3,), 7.0)
    check(model, compiled, x)
    # Parameters come first.
    del model.inner.__dict__['shift']
    model.inner._buffers['shift'] = torch.zeros(3)
    check(model, compiled, x)
    model.inner._parameters['shift'] = nn.Parameter(torch.ones(3))
    check(model, compiled, x)


def test_the_class_gets_an_attribute(model):
    class Late(Inner):
        pass

    model.inner = Late()
    compiled = smelt.compile(model)
    x = torch.randn(2, 3)
    check(model, compiled, x)
    Late.shift = property(lambda self: torch.full((3,), 5.0))
    check(model, compiled, x)


def test_missing_attribute(model):
    compiled = smelt.compile(model)
    x = torch.randn(2, 3)
    check(model, compiled, x)
    del model.inner.shift
    for call in (model, compiled):
        with pytest.raises(AttributeError, match="'Inner' object has no attribute 'shift'"):
            call(x)


def test_hooks_come_and_go(model):
    seen = []
    compiled = smelt.compile(model)
    x = torch.randn(2, 3)
    check(model, compiled, x)
    handle = model.inner.register_forward_hook(lambda module, args, result: seen.append(1) or result * 3)
    check(model, compiled, x)
    assert len(seen) == 6
    handle.remove()
    check(model, compiled, x)
    assert len(seen) == 6


def test_hooks_for_all_modules(model):
    seen = []
    compiled = smelt.compile(model)
    x = torch.randn(2, 3)
    check(model, compiled, x)
    handle = nn.modules.module.register_module_forward_pre_hook(lambda module, args: seen.append(type(module)))
    try:
        check(model, compiled, x, calls=2)
    finally:
        handle.remove()
    assert seen.count(Inner) == 4
    check(model, compiled, x)
    assert seen.count(Inner) == 4


def test_a_hook_is_registered_on_the_way():
    class Registers(Outer):
        def forward(self, x):
            before = self.inner(x)
            handle = self.inner.register_forward_hook(lambda module, args, result: result + 100)
            during = self.inner(x)
            handle.remove()
            return before, during, self.inner(x)

    model = Registers()
    compiled = smelt.compile(model)
    x = torch.randn(2, 3)
    for _ in range(3):
        for ours, eagers in zip(compiled(x), model(x)):
            torch.testing.assert_close(ours, eagers)


def test_forward_of_the_object(model):
    compiled = smelt.compile(model)
    x = torch.randn(2, 3)
    check(model, compiled, x)
    model.inner.forward = lambda x, scale: x * scale
    check(model, compiled, x)
    del model.inner.forward
    check(model, compiled, x)


def test_compiled_call_of_the_object(model):
    compiled = smelt.compile(model)
    x = torch.randn(2, 3)
    check(model, compiled, x)
    model.inner._compiled_call_impl = lambda x, scale: x - scale
    check(model, compiled, x)


def test_the_class_is_patched(model, monkeypatch):
    compiled = smelt.compile(model)
    x = torch.randn(2, 3)
    check(model, compiled, x)

    def patched(self, *args, **kwargs):
        return self.forward(*args, **kwargs) * 10

    monkeypatch.setattr(Inner, '_call_impl', patched)
    check(model, compiled, x)
    monkeypatch.undo()
    check(model, compiled, x)
    monkeypatch.setattr(nn.Module, '__getattr__',
                        lambda self, name: torch.ones(3) if name == 'shift' else self._parameters.get(name)
                        if name in self._parameters else self._modules[name])
    check(model, compiled, x)


def test_a_getter_behind_its_own():
    class Delegates(Inner):
        def __getattr__(self, name):
            if name == 'other':
                return 4.0
            return super().__getattr__(name)

        def forward(self, x):
            return super().forward(x) * self.other

    model = Delegates()
    compiled = smelt.compile(model)
    check(model, compiled, torch.randn(2, 3))
    assert smelt.stats()['graph_breaks'] == 0


def test_frames_are_there():
    stacks = []

    class Looks(nn.Module):
        def forward(self, x):
            stacks.append([frame.function for frame in inspect.stack()][:6])
            return x + 1

    class Calls(nn.Module):
        def __init__(self):
            super().__init__()
            self.looks = Looks()

        def forward(self, x):
            return self.looks(x) * 2

    model = Calls()
    x = torch.randn(3)
    model(x)
    compiled = smelt.compile(model)
    check(model, compiled, x)
    assert [stack[:4] for stack in stacks] == [stacks[0][:4]] * len(stacks)
    assert stacks[0][:4] == ['forward', '_call_impl', '_wrapped_call_impl', 'forward']


def test_traceback():
    class Fails(nn.Module):
        def forward(self, x, y):
            return x @ y

    class Calls(nn.Module):
        def __init__(self):
            super().__init__()
            self.fails = Fails()

        def forward(self, x):
            return self.fails(x, y=x)

    model = Calls()
    texts = []
    for call in (model, smelt.compile(model)):
        with pytest.raises(RuntimeError) as caught:
            call(torch.randn(2, 3))
        frames = traceback.extract_tb(caught.value.__traceback__)
        texts.append([(frame.name, frame.lineno) for frame in frames][-4:])
        assert 'mat1 and mat2' in str(caught.value)
    assert texts[0] == texts[1]


def test_a_module_made_inside():
    def made(x):
        layer = Inner()
        return layer(x).shape

    compiled = smelt.compile(made)
    for _ in range(3):
        assert compiled(torch.randn(2, 3)) == (2, 3)


def test_wrong_arguments(model):
    compiled = smelt.compile(model)
    for call in (model, compiled):
        with pytest.raises(TypeError, match='forward\\(\\) missing 1 required positional argument'):
            call()
        with pytest.raises(TypeError, match="unexpected keyword argument 'other'"):
            call(torch.randn(2, 3), other=1)
