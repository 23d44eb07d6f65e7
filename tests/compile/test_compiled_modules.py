"""A compiled nn.Module is the model in all but speed: its class, its parameters, its attributes, its files."""
import collections
import copy
import gc
import io
import pickle
import threading
import weakref

import pytest
import torch
from torch import nn

import smelt


class Net(nn.Module):
    """A small model with a bit of everything."""

    def __init__(self, width=8):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, width), nn.Linear(width, 4)])
        self.norm = nn.BatchNorm1d(4)
        self.dropout = nn.Dropout(0.5)
        self.register_buffer('seen', torch.zeros(()))
        self.scale = 2.0

    @property
    def width(self):
        return self.layers[0].out_features

    def features(self, x):
        return self.layers[0](x).relu()

    def forward(self, x, *, extra=0.0):
        self.seen += 1
        return self.dropout(self.norm(self.layers[1](self.features(x)))) * self.scale + extra

    def __len__(self):
        return len(self.layers)

    def __getitem__(self, index):
        return self.layers[index]

    def __contains__(self, layer):
        return layer in list(self.layers)


def pair(cls=Net, *args, **kwargs):
    torch.manual_seed(0)
    model = cls(*args).eval()
    return model, smelt.compile(model, **kwargs)


def same(compiled, model, *args, **kwargs):
    for _ in range(2):
        torch.testing.assert_close(compiled(*args, **kwargs), model(*args, **kwargs))


def train(model, steps=3):
    torch.manual_seed(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(torch.randn(16, 4)).pow(2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


# -- class and attributes


def test_it_is_an_instance_of_the_models_class():
    model, compiled = pair()
    assert compiled is not model and isinstance(compiled, Net) and compiled.__class__ is Net
    assert type(compiled).__name__ == 'Net' and type(compiled).__qualname__ == 'Net'
    assert type(compiled).__module__ == __name__ and type(compiled).__doc__ == Net.__doc__
    assert type(compiled) is type(smelt.compile(Net()))
    assert repr(compiled) == repr(model) and dir(compiled) == dir(model)
    assert compiled.__dict__ is model.__dict__ and vars(compiled) is vars(model)
    same(compiled, model, torch.randn(3, 4))
    same(compiled, model, torch.randn(3, 4), extra=1.0)


def test_its_attributes_are_the_models():
    model, compiled = pair()
    compiled.scale = 5.0
    assert model.scale == 5.0
    same(compiled, model, torch.randn(3, 4))
    model.scale = 7.0
    assert compiled.scale == 7.0
    same(compiled, model, torch.randn(3, 4))
    compiled.new = nn.Linear(2, 2)
    assert model.new is compiled.new and 'new.weight' in model.state_dict()
    del compiled.new
    assert not hasattr(model, 'new') and not hasattr(compiled, 'new')
    compiled.weight = nn.Parameter(torch.ones(2))
    assert dict(model.named_parameters())['weight'] is compiled.weight
    assert compiled.width == model.width == 8
    compiled.register_buffer('other', torch.ones(1))
    assert model.other is compiled.other
    assert compiled.get_submodule('layers.0') is model.layers[0]


def test_missing_attributes_raise_the_models_error():
    model, compiled = pair()
    for name in ('missing', '_smelt', 'forward_'):
        with pytest.raises(AttributeError) as expected:
            getattr(model, name)
        with pytest.raises(AttributeError) as raised:
            getattr(compiled, name)
        assert str(raised.value) == str(expected.value)
    with pytest.raises(AttributeError):
        del compiled.missing


def test_length_items_iteration_and_membership():
    model, compiled = pair()
    assert len(compiled) == 2 and compiled[1] is model.layers[1] and model.layers[0] in compiled
    plain = nn.Sequential(collections.OrderedDict(a=nn.Linear(2, 3), b=nn.ReLU()))
    sequential = smelt.compile(plain)
    assert len(sequential) == 2 and sequential[0] is plain[0] and list(sequential) == list(plain)
    assert sequential.a is plain.a and type(sequential[:1]) is nn.Sequential
    sequential.append(nn.Linear(3, 1))
    assert len(plain) == 3
    same(sequential, plain, torch.randn(5, 2))
    items = smelt.compile(nn.ModuleDict({'x': nn.ReLU()}))
    assert 'x' in items and list(items.keys()) == ['x']


def test_methods_of_the_class():
    model, compiled = pair()
    x = torch.randn(3, 4)
    torch.testing.assert_close(compiled.features(x), model.features(x))
    torch.testing.assert_close(compiled.forward(x), model.forward(x))
    torch.testing.assert_close(compiled.__call__(x), model(x))
    torch.testing.assert_close(smelt.compile(model.features)(x), model.features(x))


def test_the_class_makes_plain_models():
    model, compiled = pair()
    other = type(compiled)(width=3)
    assert isinstance(other, Net) and other.__class__ is Net and other.width == 3
    x = torch.randn(3, 4)
    torch.testing.assert_close(other.eval()(x), other.forward(x))
    assert type(copy.deepcopy(other)) is Net and type(pickle.loads(pickle.dumps(other))) is Net
    assert other.__class__(width=2).width == 2


def test_a_class_is_refused():
    with pytest.raises(smelt.Error, match=r'Net\(\.\.\.\)') as raised:
        smelt.compile(Net)
    assert isinstance(raised.value, TypeError)


def test_compiling_twice_compiles_the_model():
    model, compiled = pair()
    again = smelt.compile(compiled, mode='max-autotune')
    assert type(again) is type(compiled) and again.__dict__ is model.__dict__
    same(again, model, torch.randn(3, 4))


def test_a_script_module_runs_as_it_is():
    script = torch.jit.trace(nn.Linear(2, 2), torch.ones(1, 2))
    compiled = smelt.compile(script)
    same(compiled, script, torch.randn(3, 2))


def test_classes_of_many_kinds():
    class Registered(nn.Module):
        names = []

        def __init_subclass__(cls, *, label, **kwargs):
            Registered.names.append(label)

        def forward(self, x):
            return x + 1

    class WithLabel(Registered, label='a'):
        pass

    class WithSlots(nn.Module):
        __slots__ = ('extra',)

        def forward(self, x):
            return x + self.extra

    class WithCall(nn.Module):
        def forward(self, x):
            return x * 2

        def __call__(self, x):
            return super().__call__(x) + 1

    class WithGetattr(nn.Module):
        def __getattr__(self, name):
            return 3 if name == 'three' else super().__getattr__(name)

        def forward(self, x):
            return x * self.three

    class WithCompiledForward(nn.Module):
        @smelt.compile
        def forward(self, x):
            return x.sin()

    for cls in (WithLabel, WithSlots, WithCall, WithGetattr, WithCompiledForward):
        model = cls()
        if cls is WithSlots:
            model.extra = 1
        compiled = smelt.compile(model)
        same(compiled, model, torch.randn(3))
        assert isinstance(compiled, cls)
        if cls is WithSlots:
            compiled.extra = 5
            assert model.extra == 5
            same(compiled, model, torch.randn(3))
        if cls is WithGetattr:
            assert compiled.three == 3
    assert Registered.names == ['a']


def test_an_abstract_base_class():
    import abc

    class Base(nn.Module, abc.ABC):
        @abc.abstractmethod
        def forward(self, x): ...

    class Made(Base):
        def forward(self, x):
            return x + 1

    compiled = smelt.compile(Made())
    assert isinstance(compiled, Base) and not isinstance(Made(), type(compiled))
    same(compiled, Made(), torch.ones(2))


def test_a_lazy_module():
    torch.manual_seed(0)
    model = nn.Sequential(nn.LazyLinear(3), nn.ReLU())
    compiled = smelt.compile(model)
    x = torch.randn(2, 5)
    same(compiled, model, x)
    assert model[0].weight.shape == (3, 5)
    alone = nn.LazyLinear(3)
    compiled = smelt.compile(alone)
    same(compiled, alone, x)
    assert compiled.__class__ is nn.Linear and repr(compiled) == repr(alone)


def test_parametrizations():
    from torch.nn.utils import parametrizations

    for first in (True, False):
        torch.manual_seed(0)
        model = nn.Linear(4, 4)
        compiled = smelt.compile(model)
        compiled(torch.ones(1, 4))
        parametrizations.weight_norm(compiled if first else model)
        x = torch.randn(3, 4)
        same(compiled, model, x)
        torch.testing.assert_close(compiled.weight, model.weight)
        assert list(compiled.state_dict()) == list(model.state_dict())


# -- nn.Module's own machinery


def test_train_and_eval():
    model, compiled = pair()
    x = torch.randn(16, 4)
    compiled(x)
    assert compiled.train() is compiled and model.training and model.norm.training
    torch.manual_seed(3)
    result = compiled(x)
    torch.manual_seed(3)
    torch.testing.assert_close(result, Net.__call__(model.train(), x))
    model.eval()
    assert not compiled.training
    same(compiled, model, x)


def test_to_double_and_requires_grad():
    model, compiled = pair()
    compiled(torch.randn(3, 4))
    assert compiled.to(torch.float64) is compiled
    assert model.layers[0].weight.dtype == torch.float64
    same(compiled, model, torch.randn(3, 4, dtype=torch.float64))
    model.float()
    same(compiled, model, torch.randn(3, 4))
    compiled.requires_grad_(False)
    assert not compiled(torch.randn(3, 4)).requires_grad
    compiled.requires_grad_(True)
    assert compiled(torch.randn(3, 4)).requires_grad


@pytest.mark.skipif(not torch.cuda.is_available(), reason='needs CUDA')
def test_to_cuda():
    model, compiled = pair()
    compiled(torch.randn(3, 4))
    compiled.cuda()
    same(compiled, model, torch.randn(3, 4, device='cuda'))


def test_names_are_the_models():
    model, compiled = pair()
    assert list(compiled.state_dict()) == list(model.state_dict())
    for walk in ('named_parameters', 'named_buffers', 'named_children'):
        names, others = list(getattr(compiled, walk)()), list(getattr(model, walk)())
        assert [n for n, _ in names] == [n for n, _ in others] and all(a is b for (_, a), (_, b) in zip(names, others))
    assert [n for n, _ in compiled.named_modules()] == [n for n, _ in model.named_modules()]
    assert next(compiled.modules()) is compiled


def test_apply_and_zero_grad():
    model, compiled = pair()
    compiled(torch.randn(3, 4)).sum().backward()
    assert model.layers[0].weight.grad is not None
    compiled.zero_grad()
    assert model.layers[0].weight.grad is None
    compiled.apply(lambda m: nn.init.zeros_(m.weight) if isinstance(m, nn.Linear) else None)
    assert not model.layers[0].weight.any()
    same(compiled, model, torch.randn(3, 4))


def test_hooks():
    model, compiled = pair()
    x, calls = torch.randn(3, 4), []
    compiled(x)
    handles = [
        compiled.register_forward_pre_hook(lambda m, args: (args[0] * 2,)),
        model.register_forward_hook(lambda m, args, out: calls.append(type(m).__name__) or out + 1),
        model.layers[0].register_forward_hook(lambda m, args, out: out * 3),
        compiled.register_full_backward_hook(lambda m, grads, outs: calls.append('backward')),
    ]
    same(compiled, model, x)
    assert calls == ['Net'] * 4
    compiled(x.clone().requires_grad_()).sum().backward()
    assert calls.count('backward') == 1
    for handle in handles:
        handle.remove()
    calls.clear()
    same(compiled, model, x)
    assert calls == []


def test_as_a_part_of_another_module():
    model, compiled = pair()
    outer = nn.Sequential(nn.Linear(4, 4), model, nn.Linear(4, 1)).eval()
    names, x = list(outer.state_dict()), torch.randn(3, 4)
    expected = outer(x)
    outer[1] = compiled
    assert list(outer.state_dict()) == names
    assert [n for n, _ in outer.named_modules()][2] == '1'
    for _ in range(2):
        torch.testing.assert_close(outer(x), expected)
    optimizer = torch.optim.SGD(outer.parameters(), lr=0.1)
    outer(x).sum().backward()
    before = model.layers[0].weight.clone()
    optimizer.step()
    assert not torch.equal(model.layers[0].weight, before)
    whole = smelt.compile(outer)
    same(whole, outer, x)
    assert smelt.explain(whole)(x).break_count == 0
    same(copy.deepcopy(whole), outer, x)


def test_training():
    eager, (_, compiled) = pair()[0], pair()
    eager.train(), compiled.train()
    torch.testing.assert_close(train(compiled), train(eager))
    for a, b in zip(compiled.state_dict().values(), eager.state_dict().values()):
        torch.testing.assert_close(a, b)


def test_changed_parameters_count():
    model, compiled = pair()
    x = torch.randn(3, 4)
    before = compiled(x)
    with torch.no_grad():
        model.layers[0].weight.mul_(2)
    same(compiled, model, x)
    model.layers[1] = nn.Linear(8, 4)
    same(compiled, model, x)
    compiled.layers[0].weight = nn.Parameter(torch.randn(8, 4))
    same(compiled, model, x)
    assert not torch.allclose(compiled(x), before)


def test_weights_that_are_shared():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, tokens):
            return self.head(self.embed(tokens))

    model, compiled = pair(Tied)
    same(compiled, model, torch.tensor([1, 4]))
    assert len(list(compiled.parameters())) == 1
    clone = copy.deepcopy(compiled)
    assert clone.head.weight is clone.embed.weight and clone.head.weight is not model.head.weight


# -- saving and copying


def test_state_dicts_go_both_ways(tmp_path):
    x = torch.randn(3, 4)
    for source, target in (pair()[0], smelt.compile(Net().eval())), (pair()[1], Net().eval()):
        target(x)
        torch.save(source.state_dict(), tmp_path / 'state.pt')
        assert str(target.load_state_dict(torch.load(tmp_path / 'state.pt'))) == '<All keys matched successfully>'
        torch.testing.assert_close(target(x), source(x))
    model, compiled = pair()
    with pytest.raises(RuntimeError, match='for Net'):
        compiled.load_state_dict({'wrong': torch.ones(1)})
    compiled.load_state_dict({name: torch.zeros_like(t) for name, t in model.state_dict().items()}, assign=True)
    same(compiled, model, x)


def test_whole_models_are_saved(tmp_path):
    model, compiled = pair(Net, 6, mode='max-autotune')
    x = torch.randn(3, 4)
    compiled(x)
    torch.save(compiled, tmp_path / 'model.pt')
    loaded = torch.load(tmp_path / 'model.pt', weights_only=False)
    assert type(loaded) is type(compiled) and loaded.width == 6
    torch.testing.assert_close(loaded(x), model(x))
    torch.save(model, tmp_path / 'model.pt')
    torch.testing.assert_close(smelt.compile(torch.load(tmp_path / 'model.pt', weights_only=False))(x), model(x))
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        torch.testing.assert_close(pickle.loads(pickle.dumps(compiled, protocol))(x), model(x))
    buffer = io.BytesIO()
    torch.save({'model': compiled, 'plain': model}, buffer)
    buffer.seek(0)
    both = torch.load(buffer, weights_only=False)
    assert both['model'].layers is both['plain'].layers


def test_deepcopy_then_train_one():
    model, compiled = pair()
    x = torch.randn(3, 4)
    expected = compiled(x)
    clone = copy.deepcopy(compiled)
    assert type(clone) is type(compiled) and clone.__dict__ is not compiled.__dict__
    assert clone.layers[0].weight is not model.layers[0].weight
    torch.testing.assert_close(clone(x), expected)
    train(clone.train())
    clone.eval()
    torch.testing.assert_close(compiled(x), expected)
    assert not torch.allclose(clone(x), expected)
    plain = Net().eval()
    plain.load_state_dict(clone.state_dict())
    torch.testing.assert_close(clone(x), plain(x))


def test_deepcopy_keeps_what_is_shared():
    model, compiled = pair()
    both = copy.deepcopy({'model': model, 'compiled': compiled, 'again': compiled})
    assert both['compiled'] is both['again'] and both['compiled'].__dict__ is both['model'].__dict__


def test_shallow_copy():
    model, compiled = pair()
    clone = copy.copy(compiled)
    assert type(clone) is type(compiled) and clone.__dict__ is not compiled.__dict__
    assert clone.layers is model.layers
    clone.scale = 9.0
    assert model.scale == 2.0
    same(clone, copy.copy(clone), torch.randn(3, 4))


# -- lifetime and threads


def test_a_model_is_freed_with_its_code():
    def make():
        model, compiled = pair()
        compiled(torch.randn(3, 4))
        compiled(torch.randn(3, 4))
        return [weakref.ref(thing) for thing in (model, compiled, model.layers[0].weight, compiled._modules['norm'])]

    references = make()
    gc.collect()
    assert [reference() for reference in references] == [None] * 4


def test_a_model_that_holds_its_compiled_self_is_freed():
    def make():
        model, compiled = pair()
        object.__setattr__(model, 'fast', compiled)
        model.fast_features = smelt.compile(model.features)
        model.fast(torch.randn(3, 4))
        model.fast_features(torch.randn(3, 4))
        return weakref.ref(model), weakref.ref(compiled), weakref.ref(model.layers[0].weight)

    references = make()
    gc.collect()
    assert [reference() for reference in references] == [None] * 3


def test_a_class_made_in_a_function_is_freed():
    def make():
        class Local(nn.Module):
            def forward(self, x):
                return x + 1

        compiled = smelt.compile(Local())
        compiled(torch.ones(2))
        return weakref.ref(Local), weakref.ref(type(compiled))

    references = make()
    for _ in range(3):
        gc.collect()
    assert [reference() for reference in references] == [None] * 2


def test_del_runs_once():
    class Closing(nn.Module):
        closed = []

        def forward(self, x):
            return x + 1

        def __del__(self):
            Closing.closed.append(self.__class__.__name__)

    model = Closing()
    compiled = smelt.compile(model)
    compiled(torch.ones(1))
    del compiled
    gc.collect()
    assert Closing.closed == []
    del model
    gc.collect()
    assert Closing.closed == ['Closing']


def test_threads_call_one_model_at_once():
    model, compiled = pair()
    inputs = [torch.randn(size, 4) for size in (2, 3, 5)]
    with torch.no_grad():
        expected = [Net.forward(model, x) for x in inputs]
    errors, start = [], threading.Barrier(24)

    def work(seed):
        try:
            start.wait(30)
            with torch.no_grad():
                for i in range(30):
                    k = (seed + i) % len(inputs)
                    torch.testing.assert_close(compiled(inputs[k]), expected[k])
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,), daemon=True) for seed in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), 'a thread hangs'
    if errors:
        raise errors[0]


def test_beside_module_compile():
    dynamo = pytest.importorskip('torch._dynamo')
    model, compiled = pair()
    x = torch.randn(3, 4)
    expected = model(x)
    compiled(x)
    model.compile(backend='eager')
    torch.testing.assert_close(compiled(x), expected)
    torch.testing.assert_close(torch.compile(compiled, backend='eager')(x), expected)
    dynamo.reset()
    torch.testing.assert_close(compiled(x), expected)


def test_a_disabled_part():
    model, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)), torch.randn(3, 4)
    expected, names = model(x), list(model.state_dict())
    model[1] = smelt.disable(model[1])
    compiled = smelt.compile(model)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), expected)
    assert list(model.state_dict()) == names and repr(model[1]) == 'ReLU()'
    # The loop over the layers can't be compiled as one around the break.
    assert {at.reason for at in smelt.explain(model)(x).breaks} <= {'disabled', 'iterator'}


def test_explain_a_model():
    model, compiled = pair()
    x = torch.randn(3, 4)
    for report in (smelt.explain(model)(x), smelt.explain(compiled)(x)):
        assert report.graph_count == 1 and report.break_count == 0 and report.name == 'Net'
    both = smelt.explain(lambda x: compiled(x) + model(x))(x)
    assert both.graph_count == 1 and both.break_count == 0
    note = smelt.explain(model, mode='reduce-overhead')(x).mode_note
    assert note == "mode 'reduce-overhead' has nothing of its own on cpu yet: runs as default"
