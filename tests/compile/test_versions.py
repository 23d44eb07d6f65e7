"""Tensors count the writes to them. A compiled function leaves the counts that eager leaves."""
import pytest
import torch
from torch import nn

import smelt


def compare(function, *make, calls=3):
    """What a function gives, and the versions that it leaves, call by call: plain and compiled."""
    compiled = smelt.compile(function)
    for number in range(calls):
        seen = []
        for call in (function, compiled):
            torch.manual_seed(number)
            arguments = [m() for m in make]
            for argument in arguments:
                for _ in range(number):  # the version at the start is another one in each call
                    with torch.no_grad():
                        argument.add_(1)
            result = call(*arguments)
            seen.append((result, [a._version for a in arguments], [a.detach().clone() for a in arguments]))
        (expected, versions, contents), (found, found_versions, found_contents) = seen
        assert found_versions == versions
        for one, other in zip(contents, found_contents, strict=True):
            torch.testing.assert_close(one, other)
        results = [value if isinstance(value, tuple) else (value,) for value in (expected, found)]
        for one, other in zip(*results, strict=True):
            if isinstance(one, torch.Tensor):
                torch.testing.assert_close(one, other)
                assert one._version == other._version
            else:
                assert one == other


def ones():
    return torch.ones(4, 4)


WRITES = {
    "method": lambda x: x.add_(1),
    "operator": lambda x: x.__imul__(2),
    "copy": lambda x: x.copy_(torch.ones(4, 4)),
    "fill": lambda x: x.fill_(3.0),
    "zero": lambda x: x.zero_(),
    "view": lambda x: x.view(-1).add_(1),
    "row": lambda x: x[0].mul_(3),
    "views of views": lambda x: x.t()[1:, 0].sub_(1),
    "item": lambda x: x.__setitem__(0, 5.0),
    "mask": lambda x: x.masked_fill_(x > 2, 0.0),
    "out": lambda x: torch.add(x, 1, out=x),
    "detach": lambda x: x.detach().add_(1),
    "data": lambda x: x.data.add_(1),
    "foreach": lambda x: torch._foreach_add_([x], 1.0),
    "foreach views": lambda x: torch._foreach_mul_([x[0], x[1]], 2.0),
    "index": lambda x: x.index_add_(0, torch.tensor([1, 0]), torch.ones(2, 4)),
    "scatter": lambda x: x.scatter_(0, torch.zeros(1, 4, dtype=torch.long), 7.0),
    "composite": lambda x: x.clamp_(0, 9).relu_().addcmul_(x, x),
}


@pytest.mark.parametrize("name", WRITES)
def test_a_write(name):
    write = WRITES[name]

    def f(x):
        write(x)
        return x + 1

    compare(f, ones)


@pytest.mark.parametrize("first,second", list(zip(WRITES, [*list(WRITES)[5:], *list(WRITES)[:5]], strict=True)))
def test_two_writes(first, second):
    one, other = WRITES[first], WRITES[second]

    def f(x):
        one(x)
        other(x)
        one(x)
        return x * 2

    compare(f, ones, calls=2)


@pytest.mark.parametrize("name", WRITES)
def test_read_inside(name):
    write = WRITES[name]

    def f(x):
        before = x._version
        write(x)
        between = x._version
        write(x)
        return x + 1, before, between, x._version, x._version - before

    compare(f, ones)


def test_a_branch_on_it():
    def f(x):
        x.add_(1)
        return x * 2 if x._version > 2 else x * 3

    compare(f, ones, calls=5)


def test_what_is_made():
    def f(x):
        y = x.clone()
        before = y._version
        y.add_(1)
        y.mul_(2)
        return y, before, y._version, y[0]

    compare(f, ones)


def test_of_a_view_of_an_argument():
    def f(x):
        view = x.view(-1)
        x.add_(1)
        return view._version, view + 1, x.detach()._version, x.data._version

    compare(f, ones)


@pytest.mark.parametrize("other", [lambda x: x[0], lambda x: x.data], ids=["view", "data"])
def test_an_argument_and_another_of_its_memory(other):
    def f(x, y):
        y.add_(1)
        x.mul_(2)
        x.mul_(2)
        y.add_(1)
        return x + 1

    compiled = smelt.compile(f)
    for _ in range(3):
        seen = []
        for call in (f, compiled):
            x = torch.ones(4, 4)
            y = other(x)
            call(x, y)
            seen.append((x._version, y._version, x.tolist()))
        assert seen[0] == seen[1]


def test_without_gradients_and_with():
    def f(x, w):
        with torch.no_grad():
            w.sub_(0.1)
            w.sub_(0.1)
        x.add_(1)
        return (x * w).sum()

    compare(f, ones, lambda: torch.ones(4, 4, requires_grad=True))


def buffers(model):
    return [buffer._version for buffer in model.buffers()]


@pytest.mark.parametrize("train", [True, False])
def test_batch_norm(train):
    models = [nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 4), nn.BatchNorm1d(4)).train(train) for _ in range(2)]
    compiled = smelt.compile(models[1])
    for _ in range(3):
        x = torch.randn(8, 4)
        models[0](x), compiled(x)
        assert buffers(models[0]) == buffers(models[1])


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop])
def test_a_step_of_an_optimizer(kind, foreach):
    def versions(model, optimizer):
        state = [value for p in model.parameters() for _, value in sorted(optimizer.state[p].items())]
        return [t._version for t in [*model.parameters(), *state] if isinstance(t, torch.Tensor)]

    models = []
    for _ in range(2):
        torch.manual_seed(0)
        model = nn.Linear(4, 4)
        optimizer = kind(model.parameters(), lr=0.1, foreach=foreach, **({"momentum": 0.9} if kind is torch.optim.SGD else {}))

        def step(x, model=model, optimizer=optimizer):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        models.append((model, optimizer, step))
    compiled = smelt.compile(models[1][2])
    for _ in range(4):
        x = torch.randn(8, 4)
        models[0][2](x), compiled(x)
        assert versions(*models[0][:2]) == versions(*models[1][:2])


# -- what a backward pass refuses


def gradient(call, x, w):
    try:
        call(x, w).sum().backward()
    except RuntimeError as error:
        return "modified by an inplace operation" in str(error)
    return w.grad.tolist()


SAVED = {
    "input": lambda x, w: x * w,
    "square": lambda x, w: (x * x) * w,
    "product": lambda x, w: x @ w,
}
LATER = {
    "nothing": lambda x: None,
    "write": lambda x: x.add_(1),
    "two writes": lambda x: x.add_(1).sub_(1),
    "data": lambda x: x.data.add_(1),
    "detach": lambda x: x.detach().add_(1),
    "view": lambda x: x[0].add_(1),
    "empty view": lambda x: x[4:].add_(1),
}


@pytest.mark.parametrize("when", ["inside", "behind"])
@pytest.mark.parametrize("later", LATER)
@pytest.mark.parametrize("saved", SAVED)
def test_what_was_saved_and_written_since(saved, later, when):
    first, second = SAVED[saved], LATER[later]

    def f(x, w):
        y = first(x, w)
        if when == "inside":
            second(x)
        return y

    compiled = smelt.compile(f)
    for _ in range(3):
        seen = []
        for call in (f, compiled):
            torch.manual_seed(0)
            x, w = torch.randn(4, 4), torch.randn(4, 4, requires_grad=True)

            def run(x, w, call=call):
                y = call(x, w)
                if when == "behind":
                    second(x)
                return y

            seen.append(gradient(run, x, w))
        if isinstance(seen[0], list):
            torch.testing.assert_close(torch.tensor(seen[0]), torch.tensor(seen[1]))
        else:
            assert seen[0] == seen[1]


MADE = {
    "zeros": lambda x: torch.zeros(3), "ones": lambda x: torch.ones(2, 3), "full": lambda x: torch.full((3,), 2.0),
    "like": lambda x: torch.zeros_like(x), "new": lambda x: x.new_ones(3), "arange": lambda x: torch.arange(3), "eye": lambda x: torch.eye(3),
    "rand": lambda x: torch.rand(3), "randperm": lambda x: torch.randperm(3), "linspace": lambda x: torch.linspace(0, 1, 3),
    "tensor": lambda x: torch.tensor([1.0, 2.0]), "written": lambda x: torch.ones(3).add_(1).mul_(2),
    "leaf": lambda x: torch.ones(3).requires_grad_(), "parameter": lambda x: nn.Parameter(torch.ones(3)),
}


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("name", MADE)
def test_of_what_the_call_makes(name, backend):
    function = MADE[name]
    compiled = smelt.compile(lambda x: (function(x), x * 2), **({"backend": "eager"} if backend == "eager" else {}))
    x = torch.ones(2)
    for _ in range(3):
        assert compiled(x)[0]._version == function(x)._version


DATA = {
    "data": lambda x: (x.data, x.data),
    "a view of it": lambda x: (v := x.data, v[1:], v.t()),
    "beside the tensor": lambda x: (x.data, x.detach(), x[1:], x),
    "changed": lambda x: (v := x.data, v.mul_(2), v[0].add_(1), x),
    "both changed": lambda x: (v := x.data, x.add_(1), v.mul_(2), x.view(-1).sub_(1), v.view(-1), x[0]),
    "a kernel beside it": lambda x: (x.data.t().contiguous().t(), x.data, x * 2 + 1),
}


@pytest.mark.parametrize("later", (None, 0, 1))
@pytest.mark.parametrize("name", DATA)
def test_data_that_is_returned_counts_for_itself(name, later):
    def use(function):
        x = torch.ones(4, 4)
        results = function(x)
        if later is not None:
            results[later].add_(1)
        return [t._version for t in (x, *results)], [t.clone() for t in (x, *results)]

    compiled = smelt.compile(DATA[name])
    for _ in range(3):
        versions, contents = use(compiled)
        expected, expected_contents = use(DATA[name])
        assert versions == expected
        torch.testing.assert_close(contents, expected_contents)
