"""torch.compile(..., backend="smelt"): PyTorch's own capture, smelt's code; and what PyTorch's exporters make of what
smelt has compiled: the model itself."""
import copy
import functools
import importlib.metadata
import inspect
import io
import pickle
import subprocess
import sys

import pytest
import torch
from torch import nn

import smelt

torch_compile = functools.partial(torch.compile, backend='smelt')


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)
        self.register_buffer('calls', torch.zeros(()))

    def forward(self, x, *, scale=1.0):
        self.calls += 1
        return self.second(torch.relu(self.norm(self.first(x)))) * scale


def losses(model, call, steps=4):
    optimizer, found = torch.optim.SGD(model.parameters(), lr=0.1), []
    for step in range(steps):
        torch.manual_seed(step)
        loss = call(torch.randn(6, 4)).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.item())
    return found


def test_it_is_registered():
    assert 'smelt' in torch._dynamo.list_backends()
    points = [point for point in importlib.metadata.entry_points(group='torch_dynamo_backends') if point.name == 'smelt']
    assert {point.value for point in points} == {'smelt._torch_compile:compile_graph'}


@pytest.mark.parametrize('way', ['function', 'method', 'decorator'])
def test_training(way):
    torch.manual_seed(0)
    plain = Net()
    model = copy.deepcopy(plain)
    if way == 'function':
        call = torch_compile(model)
    elif way == 'method':
        model.compile(backend='smelt')
        call = model
    else:
        @torch_compile
        def call(x):
            return model(x)
    before = smelt.stats()['runs']
    assert losses(model, call) == pytest.approx(losses(plain, plain), rel=1e-5)
    assert smelt.stats()['runs'] > before and model.calls == plain.calls == 4
    for ours, theirs in zip(model.state_dict().values(), plain.state_dict().values(), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_inference_modes_and_precision():
    model = Net().eval()
    compiled, x = torch_compile(model), torch.randn(5, 4)
    for context in (torch.no_grad, torch.inference_mode, functools.partial(torch.autocast, 'cpu', torch.bfloat16)):
        for _ in range(2):
            with context():
                torch.testing.assert_close(compiled(x, scale=2.0), model(x, scale=2.0))


def test_graphs_with_breaks_between_them():
    def f(x):
        y = x.sin()
        torch._dynamo.graph_break()
        if y.sum() > 0:
            return y.cos()
        return y.exp()

    compiled = torch_compile(f)
    for x in (torch.ones(3), -torch.ones(3), torch.ones(3)):
        torch.testing.assert_close(compiled(x), f(x))
    assert smelt.stats()['segments'] >= 3


@pytest.mark.parametrize('dynamic', [True, False, None])
def test_sizes_that_change(dynamic):
    def f(x, n):
        return x.reshape(-1, n).sum(1) * x.shape[0] + n

    compiled = torch_compile(f, dynamic=dynamic)
    for rows in range(2, 7):
        x = torch.randn(rows, 6, requires_grad=True)
        for n in (2, 3):
            ours, = torch.autograd.grad(compiled(x, n).sum(), x)
            theirs, = torch.autograd.grad(f(x, n).sum(), x)
            torch.testing.assert_close(ours, theirs)
            torch.testing.assert_close(compiled(x, n), f(x, n))


def test_options_are_forwarded():
    x = torch.randn(4)
    compiled = torch_compile(lambda x: x.sin() + 1, options={'fusion': 'none'})
    torch.testing.assert_close(compiled(x), x.sin() + 1)
    with pytest.raises(Exception, match="no option 'fused'; there are 'background', 'disabled_passes', 'freeze'"):
        torch_compile(lambda x: x.sin() + 1, options={'fused': 1})(x)
    with pytest.raises(Exception, match="no mode 'fastest'; there are 'default'"):
        torch_compile(lambda x: x.sin() + 1, mode='fastest')(x)


def test_a_back_end_runs_nothing_when_it_is_given_a_graph():
    seen = []

    @torch.library.custom_op('smelt_test::counted', mutates_args=())
    def counted(x: torch.Tensor) -> torch.Tensor:
        seen.append(type(x).__name__)
        return x.clone()

    counted.register_fake(torch.empty_like)
    compiled = torch_compile(lambda x: counted(x) + 1)
    for _ in range(3):
        compiled(torch.ones(2))
    assert set(seen) == {'Tensor'}  # and no FakeTensor


def test_switched_off(monkeypatch):
    monkeypatch.setenv('SMELT_DISABLE', '1')
    x = torch.randn(3)
    before = smelt.stats()['segments']
    torch.testing.assert_close(torch_compile(lambda x: x.sin() + 1)(x), x.sin() + 1)
    assert smelt.stats()['segments'] == before


# -- exporters


def exported(model, args, how):
    if how == 'strict':
        return torch.export.export(model, args, strict=True).module()
    if how == 'not strict':
        return torch.export.export(model, args, strict=False).module()
    return torch.jit.trace(model, args)


@pytest.mark.filterwarnings('ignore::DeprecationWarning')
@pytest.mark.parametrize('called_before', [False, True])
@pytest.mark.parametrize('how', ['strict', 'not strict', 'jit.trace'])
def test_exporters_export_the_model_itself(how, called_before):
    model = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 2)).eval()
    compiled, x = smelt.compile(model), torch.randn(3, 4)
    if called_before:
        compiled(x)
    found, plain = exported(compiled, (x,), how), exported(model, (x,), how)
    torch.testing.assert_close(found(x), model(x))
    assert list(found.state_dict()) == list(plain.state_dict())
    if how != 'jit.trace':
        ops = [[str(node.target) for node in one.graph.nodes] for one in (found, plain)]
        assert ops[0] == ops[1]
    else:
        assert [node.kind() for node in found.inlined_graph.nodes()] == [node.kind() for node in plain.inlined_graph.nodes()]


@smelt.compile
def inner(x, n=2):
    return x.sin() * n


@pytest.mark.parametrize('strict', [True, False])
def test_what_is_compiled_inside_is_exported_too(strict):
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.part = smelt.compile(nn.Linear(4, 4))

        def forward(self, x):
            return inner(self.part(x), n=3)

    model, x = Outer().eval(), torch.randn(2, 4)
    found = torch.export.export(model, (x,), strict=strict)
    torch.testing.assert_close(found.module()(x), model(x))
    assert {'linear', 'sin'} <= {node.target.__name__.split('.')[0] for node in found.graph.nodes
                                 if node.op == 'call_function'}


@pytest.mark.filterwarnings('ignore::DeprecationWarning')
def test_torchscript_of_a_compiled_function():
    def f(x: torch.Tensor, n: int):
        return x * n + 1

    scripted, x = torch.jit.script(smelt.compile(f)), torch.randn(3)
    torch.testing.assert_close(scripted(x, 3), f(x, 3))


@pytest.mark.filterwarnings('ignore::DeprecationWarning')
def test_torchscript_of_a_compiled_model():
    model, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), torch.randn(2, 4)
    scripted = torch.jit.script(smelt.compile(model))
    torch.testing.assert_close(scripted(x), model(x))
    assert list(scripted.state_dict()) == list(model.state_dict())


@pytest.mark.parametrize('dynamo', [True, False])
def test_onnx(dynamo):
    pytest.importorskip('onnx')
    if dynamo:
        pytest.importorskip('onnxscript')
    model, x, files = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval(), torch.randn(2, 4), []
    for one in (model, smelt.compile(model)):
        file = io.BytesIO()
        torch.onnx.export(one, (x,), file, dynamo=dynamo)
        files.append(file.getvalue())
    assert len(files[0]) > 100 and len(files[0]) == len(files[1])


# -- copies, pickles, looks


def test_compiled_things_stay_what_they_are():
    def f(x, *, scale: float = 2.0):
        """Scales."""
        return x * scale

    compiled, x = smelt.compile(f), torch.randn(3)
    assert inspect.signature(compiled) == inspect.signature(f) and compiled.__doc__ == 'Scales.'
    assert inspect.unwrap(compiled) is f and compiled.__name__ == 'f'

    @functools.wraps(compiled)
    def around(*args, **kwargs):
        return compiled(*args, **kwargs) + 1

    torch.testing.assert_close(around(x, scale=3.0), f(x, scale=3.0) + 1)
    torch.testing.assert_close(compiled.__call__(x), f(x))
    assert smelt.stats()['frames'] == 2
    torch.testing.assert_close(type(compiled).__call__(compiled, x), f(x))

    model = smelt.compile(Net().eval())
    assert inspect.signature(model.forward) == inspect.signature(Net().forward)
    again = [copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    again.append(torch.load(file, weights_only=False))
    y = torch.randn(2, 4)
    for one in again:
        torch.testing.assert_close(one(y), model(y))
        torch.testing.assert_close(one.__call__(y), model(y))


# -- names that libraries pass on


ENUM = '''
import enum

class DynamoBackend(str, enum.Enum):
    NO = 'NO'
    INDUCTOR = 'INDUCTOR'
'''


@pytest.mark.parametrize('order', ['import accelerate.utils.dataclasses, smelt', 'import smelt, accelerate.utils.dataclasses'])
def test_accelerates_list_of_names(tmp_path, order):
    (tmp_path / 'accelerate' / 'utils').mkdir(parents=True)
    for name in ('accelerate/__init__.py', 'accelerate/utils/__init__.py'):
        (tmp_path / name).write_text('')
    (tmp_path / 'accelerate' / 'utils' / 'dataclasses.py').write_text(ENUM)
    program = f'''
import pickle, sys
sys.path.insert(0, {str(tmp_path)!r})
{order}
from accelerate.utils.dataclasses import DynamoBackend
import smelt._accelerate
smelt._accelerate.add_name()
one = DynamoBackend('SMELT')
assert one is DynamoBackend['SMELT'] and one.value.lower() == 'smelt' and one in list(DynamoBackend) and one != 'NO'
assert pickle.loads(pickle.dumps(one)) is one and len(DynamoBackend) == 3
assert not any(type(finder).__module__ == 'smelt._accelerate' for finder in sys.meta_path)
'''
    done = subprocess.run([sys.executable, '-c', program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_accelerate():
    accelerate = pytest.importorskip('accelerate')
    model, plain = nn.Linear(4, 2), nn.Linear(4, 2)
    plain.load_state_dict(model.state_dict())
    prepared = accelerate.Accelerator(cpu=True, dynamo_backend='smelt').prepare(model)
    before = smelt.stats()['frames']
    assert losses(model, prepared) == pytest.approx(losses(plain, plain), rel=1e-5)
    assert smelt.stats()['frames'] > before
