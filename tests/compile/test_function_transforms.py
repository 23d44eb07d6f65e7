"""torch.func and vmap in compiled functions: their ops are those of one graph, and all is as in eager."""
import copy

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, grad_and_value, hessian, jacfwd, jacrev, jvp, stack_module_state, vjp, vmap
from torch.utils._pytree import tree_flatten

import smelt

PROGRAMS = {}


def program(make):
    """`make` gives the function anew, with its state, and what makes its arguments."""
    PROGRAMS[make.__name__] = make
    return make


def rows(*sizes):
    return torch.randn(*sizes)


@program
def gradient():
    return lambda x: grad(lambda y: (y.sin() ** 2).sum())(x), lambda: (rows(8),)


@program
def made_outside():
    derived = grad(lambda y: (y.sin() ** 2).sum())
    return lambda x: derived(x) + 1, lambda: (rows(8),)


@program
def value_too():
    return lambda x: grad_and_value(lambda y: (y.sin() ** 2).sum())(x), lambda: (rows(8),)


@program
def second_gradient():
    return lambda x: grad(lambda y: grad(lambda z: (z.sin() * z).sum())(y).sum())(x), lambda: (rows(8),)


@program
def several_arguments():
    return lambda x, y: grad(lambda a, b: (a * b).sum() * a.sum(), argnums=(0, 1))(x, y), lambda: (rows(8), rows(8))


@program
def further_results():
    return lambda x: grad(lambda y: ((y.sin() ** 2).sum(), (y * 2, {'x': y + 1})[0]), has_aux=True)(x), lambda: (rows(8),)


@program
def mapped():
    return lambda x, y: vmap(lambda a, b: a @ b + a.sum())(x, y), lambda: (rows(5, 4), rows(5, 4))


@program
def dimensions():
    return lambda x, y: vmap(lambda a, b: a @ b, in_dims=(1, None), out_dims=1)(x, y), lambda: (rows(4, 5), rows(4, 3))


@program
def mapped_twice():
    return lambda x, y: vmap(vmap(torch.dot, (None, 0)), (0, None))(x, y), lambda: (rows(5, 4), rows(6, 4))


@program
def in_chunks():
    return lambda x: vmap(lambda a: a.sin().sum(), chunk_size=2)(x), lambda: (rows(5, 4),)


@program
def containers():
    def inner(parts):
        return {'a': parts['x'] * 2, 'b': (parts['y'] + 1, parts['x'].sum())}
    return lambda parts: vmap(inner)(parts), lambda: ({'x': rows(3, 4), 'y': rows(3)},)


@program
def different_random_numbers():
    return lambda x: vmap(lambda a: a + torch.rand(4), randomness='different')(x), lambda: (rows(5, 4),)


@program
def the_same_random_numbers():
    return lambda x: vmap(lambda a: a + torch.rand(4), randomness='same')(x), lambda: (rows(5, 4),)


@program
def dropout():
    return lambda x: vmap(nn.functional.dropout, randomness='different')(x), lambda: (rows(5, 4),)


@program
def gradients_of_rows():
    return (lambda w, x: vmap(grad(lambda w, x: (w @ x).tanh().sum()), (None, 0))(w, x)), lambda: (rows(3, 4), rows(6, 4))


@program
def backward_jacobian():
    return lambda x: jacrev(lambda y: y.sin() * y.sum())(x), lambda: (rows(5),)


@program
def backward_jacobian_in_chunks():
    return lambda x: jacrev(lambda y: y.sin() * y.sum(), chunk_size=2)(x), lambda: (rows(5),)


@program
def forward_jacobian():
    return lambda x: jacfwd(lambda y: y.sin() * y.sum())(x), lambda: (rows(5),)


@program
def second_derivatives():
    return lambda x: hessian(lambda y: (y.sin() * y.sum()).sum())(x), lambda: (rows(5),)


@program
def directional():
    return lambda x, t: jvp(lambda y: y.sin() * 2, (x,), (t,)), lambda: (rows(5), rows(5))


@program
def no_tangent_beside_infinity():
    """A tangent that is not there is no zero to multiply by."""
    return lambda x, t: jvp(lambda y: y * (y.detach() / 0), (x,), (t,)), lambda: (rows(5), rows(5))


@program
def pulled_back():
    def f(x, t):
        out, pull = vjp(lambda y: y.sin() * 2, x)
        return out, pull(t)[0]
    return f, lambda: (rows(5), rows(5))


@program
def functional_model():
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    parameters = {name: p.detach() for name, p in model.named_parameters()}

    def f(parameters, x):
        return grad_and_value(lambda p: functional_call(model, p, (x,)).pow(2).mean())(parameters)
    return f, lambda: (parameters, rows(6, 4))


@program
def gradients_of_samples():
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    parameters = {name: p.detach() for name, p in model.named_parameters()}

    def loss(p, x, y):
        return nn.functional.cross_entropy(functional_call(model, p, (x.unsqueeze(0),)), y.unsqueeze(0))
    return (lambda p, x, y: vmap(grad(loss), in_dims=(None, 0, 0))(p, x, y)), lambda: (parameters, rows(6, 4), torch.randint(3, (6,)))


@program
def ensemble():
    models = [nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)) for _ in range(3)]
    parameters, buffers = stack_module_state(models)
    base = copy.deepcopy(models[0]).to('meta')

    def f(x):
        return vmap(lambda p, b, x: functional_call(base, (p, b), (x,)), in_dims=(0, 0, None))(parameters, buffers, x)
    return f, lambda: (rows(6, 4),)


@program
def learning_to_learn():
    model = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
    parameters = dict(model.named_parameters())

    def loss(p, x, y):
        return (functional_call(model, p, (x,)) - y).pow(2).mean()

    def adapted(xs, ys, xq, yq):
        found = grad(loss)(parameters, xs, ys)
        return loss({k: parameters[k] - 0.1 * found[k] for k in parameters}, xq, yq)

    def f(*tasks):
        return torch.autograd.grad(vmap(adapted)(*tasks).mean(), list(parameters.values()))
    return f, lambda: (rows(3, 5, 2), rows(3, 5, 1), rows(3, 5, 2), rows(3, 5, 1))


@program
def laplacian():
    model = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))

    def f(x):
        h = vmap(hessian(lambda x: model(x).squeeze()))(x)
        loss = (h[:, 0, 0] + h[:, 1, 1]).pow(2).mean()
        return torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)[0]
    return f, lambda: (rows(7, 2),)


@program
def changed_in_place():
    def inner(a):
        a = a.clone()
        a.add_(1)
        a[0] = 3.0
        return a
    return lambda x: vmap(inner)(x), lambda: (rows(5, 4),)


@program
def argument_changed_in_place():
    def inner(a):
        a.mul_(2)
        return a.sum()
    return lambda x: (vmap(inner)(x), x + 1), lambda: (rows(5, 4),)


@program
def under_no_grad():
    def f(x):
        with torch.no_grad():
            return grad(lambda y: (y * y).sum())(x)
    return f, lambda: (rows(5).requires_grad_(),)


@program
def forward_of_a_gradient():
    return lambda x: grad(lambda y: (y ** 3).sum())(x).sum(), lambda: (rows(5).requires_grad_(),)


def flat(result):
    return tree_flatten(result)[0]


def compare(make, calls=4):
    torch.manual_seed(0)
    plain, arguments = make()
    torch.manual_seed(0)
    traced, same_arguments = make()
    compiled = smelt.compile(traced)
    for call in range(calls):
        results = []
        for function, give in ((plain, arguments), (compiled, same_arguments)):
            torch.manual_seed(call)
            given = give()
            result = flat(function(*given))
            leaves = [one for one in flat(given) if one.requires_grad and one.is_leaf]
            if leaves and result[0].requires_grad:
                result += torch.autograd.grad(result[0].sum(), leaves)
            results.append([*result, *flat(given), torch.rand(1)])
        torch.testing.assert_close(results[1], results[0], equal_nan=True)
        assert [one.requires_grad for one in results[1]] == [one.requires_grad for one in results[0]]
        assert torch._C._functorch.peek_interpreter_stack() is None
    return smelt.explain(compiled)(*same_arguments())


@pytest.mark.parametrize('name', PROGRAMS)
def test_a_transform_is_part_of_the_graph(name):
    report = compare(PROGRAMS[name])
    assert report.break_count == 0 and report.graph_count == 1, report


@pytest.mark.parametrize('backend', ['eager', 'interpret'])
@pytest.mark.parametrize('name', ['gradients_of_rows', 'second_derivatives', 'changed_in_place'])
def test_other_back_ends(name, backend):
    function, arguments = PROGRAMS[name]()
    compiled = smelt.compile(function, backend=backend)
    for _ in range(3):
        given = arguments()
        torch.testing.assert_close(compiled(*given), function(*given))


def test_other_sizes_and_numbers():
    def f(x, n, scale):
        return vmap(lambda a: (a * scale).reshape(n, -1).sum(0))(x)
    compiled = smelt.compile(f)
    for size, n, scale in ((3, 2, 1.0), (4, 2, 2.0), (5, 3, 3.0), (1, 1, 3.0), (6, 2, 4.5), (3, 2, 1.0), (7, 6, 0.0)):
        x = rows(size, 6)
        torch.testing.assert_close(compiled(x, n, scale), f(x, n, scale))


def test_what_a_transform_reads_is_guarded():
    factor, table = torch.ones(4), {'k': 2.0, 'dims': 0}

    def f(x):
        return vmap(lambda a: a * factor * table['k'], in_dims=table['dims'])(x)
    compiled = smelt.compile(f)
    x = rows(4, 4)
    for change in (lambda: None, lambda: factor.mul_(3), lambda: table.update(k=5.0), lambda: table.update(dims=1), lambda: table.update(dims=0)):
        change()
        for _ in range(2):
            torch.testing.assert_close(compiled(x), f(x))


def test_effects_are_those_of_eager():
    def make():
        seen = []

        def inner(a):
            seen.append(a.dim())
            return a * 2

        def f(x):
            return vmap(inner)(x), len(seen)
        return f
    plain, compiled = make(), smelt.compile(make())
    for _ in range(4):
        x = rows(5, 4)
        expected, found = plain(x), compiled(x)
        torch.testing.assert_close(found[0], expected[0])
        assert found[1] == expected[1]


def test_a_compiled_function_under_a_transform():
    compiled = smelt.compile(lambda a: a.sin() * a.sum())
    x = rows(5, 4)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), x.sin() * x.sum())
        torch.testing.assert_close(vmap(compiled)(x), vmap(lambda a: a.sin() * a.sum())(x))
        torch.testing.assert_close(grad(lambda y: compiled(y).sum())(x), grad(lambda y: (y.sin() * y.sum()).sum())(x))
    assert torch._C._functorch.peek_interpreter_stack() is None


def test_a_model_gets_its_parameters_back():
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3, track_running_stats=False))
    before = dict(model.named_parameters())

    def f(x):
        return grad(lambda p: functional_call(model, p, (x,)).square().sum())({name: p * 2 for name, p in before.items()})
    compiled = smelt.compile(f)
    for _ in range(3):
        x = rows(5, 3)
        torch.testing.assert_close(compiled(x), f(x), atol=1e-4, rtol=1e-4)
        after = dict(model.named_parameters())
        assert list(after) == list(before) and all(after[name] is before[name] for name in before)
        assert list(model[0]._parameters) == ['weight', 'bias']


def test_what_was_put_into_a_module_may_be_gone_before_the_end():
    """A plain tensor that ops made, which each call puts there and takes out again: it shares its history with the result."""
    model = nn.Linear(4, 4)

    def f(x):
        return functional_call(model, {'weight': model.weight * 2}, (x,)).sum()
    compiled = smelt.compile(f)
    for _ in range(3):
        x = rows(3, 4)
        found, expected = (torch.autograd.grad(one(x), list(model.parameters())) for one in (compiled, f))
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize('backend', ['native', 'interpret'])
def test_zeros_without_memory(backend):
    """The derivative of sgn() is such."""
    weight = rows(4, 5).requires_grad_()

    def f(x):
        return ((x @ weight).sgn() * (x @ weight) / 0).sum()
    compiled = smelt.compile(f, backend=backend)
    for _ in range(3):
        x = rows(3, 4)
        found, expected = (torch.autograd.grad(one(x), weight) for one in (compiled, f))
        torch.testing.assert_close(found, expected, equal_nan=True)


def test_no_tangent_times_a_parameter():
    """It is zero, and takes part in autograd."""
    weight = rows(5).requires_grad_()

    def f(x):
        return jvp(grad(lambda y: (y.abs() * weight).sum()), (x,), (x + 1,))[1]
    compiled = smelt.compile(f)
    for _ in range(3):
        x = rows(5)
        found, expected = compiled(x), f(x)
        assert found.requires_grad and expected.requires_grad
        torch.testing.assert_close(found, expected)


# What ends a graph inside of a transform: CPython runs all of it, and what comes behind is compiled.

class Doubled(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x * 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, g):
        return g * 2


def raises_inside(x):
    try:
        vmap(lambda a: a.view(77))(x)
    except RuntimeError as error:
        return x * len(str(error))


def reads_a_number(x):
    try:
        return vmap(lambda a: a * a.sum().item())(x)
    except RuntimeError:
        return vmap(lambda a: a * 2)(x)


def branches(x):
    def inner(a):
        return (a * 2).sum() if a.sum() > 0 else (a * 3).sum()
    return grad(inner)(x)


def raises_its_own(x):
    def inner(a):
        raise KeyError(len(a))
    try:
        grad(inner)(x)
    except KeyError as error:
        return x + error.args[0]


def calls_a_custom_function(x):
    return vmap(grad(lambda a: Doubled.apply(a).sin().sum()))(x)


def prints(x):
    def inner(a):
        print('traced', end='')
        return a + 1
    return vmap(inner)(x)


def keeps_a_pull_back(x):
    return vjp(torch.sin, x)[1]


def keeps_a_wrapped_tensor(x):
    kept = []

    def inner(a):
        kept.append(a * 2)
        return a.sum()
    return grad(inner)(x), torch.func.debug_unwrap(kept[0]).sum()


def writes_without_a_gradient(x):
    return torch.func.functionalize(lambda y: y.clone().add_(1))(x)


@pytest.mark.parametrize('function', [raises_inside, reads_a_number, branches, raises_its_own, calls_a_custom_function, prints,
                                      keeps_a_pull_back, keeps_a_wrapped_tensor, writes_without_a_gradient])
def test_what_is_no_graph_is_as_in_eager(function, capsys):
    def whole(x):
        y = x + 1
        return function(y), y * 3
    compiled = smelt.compile(whole)
    for call in range(5):
        torch.manual_seed(call)
        x = rows(3, 4) - 2 * (call % 2)
        printed, results = [], []
        for one in (whole, compiled):
            result = one(x)
            result = (result[0](x) if callable(result[0]) else result[0], result[1])
            results.append(result)
            printed.append(capsys.readouterr().out)
            assert torch._C._functorch.peek_interpreter_stack() is None
        torch.testing.assert_close(results[1], results[0])
        assert printed[1] == printed[0]


def test_an_error_of_the_first_call_leaves_no_level_open():
    def f(x):
        return vmap(lambda a: a.view(77))(x)
    compiled = smelt.compile(f)
    for _ in range(2):
        with pytest.raises(RuntimeError, match='77'):
            compiled(rows(3, 4))
        assert torch._C._functorch.peek_interpreter_stack() is None
