"""A whole training step in one compiled function: backward(), gradients, numbers read from tensors, branches on them."""
import copy
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import smelt


def make_model(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))


def batch(i, rows=5):
    generator = torch.Generator().manual_seed(i)
    return (torch.randn(rows, 8, generator=generator), torch.randint(0, 4, (rows,), generator=generator))


def descend(model, rate=0.1):
    with torch.no_grad():
        for p in model.parameters():
            if p.grad is not None:
                p.sub_(p.grad, alpha=rate)


def state(model):
    return [x.detach().clone() for p in model.parameters() for x in (p, p.grad) if x is not None]


def assert_same(found, expected, tolerance=1e-5):
    assert len(found) == len(expected)
    for one, other in zip(found, expected):
        if isinstance(other, torch.Tensor):
            torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)
        else:
            assert one == other or math.isclose(one, other, rel_tol=tolerance)


def plain_step(model):
    def step(x, y):
        for p in model.parameters():
            p.grad = None
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        descend(model)
        return loss
    return step


def check(make_step, calls=5, backend='native', breaks=0, model=make_model):
    """make_step(model) gives the function; what it returns and leaves behind is as in eager at each call."""
    plain, compiled = model(), model()
    expected_step = make_step(plain)
    step = smelt.compile(make_step(compiled), backend=backend)
    for i in range(calls):
        x, y = batch(i)
        expected, found = expected_step(x, y), step(x, y)
        assert_same(found if isinstance(found, tuple) else (found,), expected if isinstance(expected, tuple) else (expected,))
        assert_same(state(compiled), state(plain))
    report = smelt.explain(step)(*batch(0))
    if breaks is not None:
        assert report.break_count == breaks, str(report)
    return report


BACKENDS = pytest.mark.parametrize('backend', ['native', 'eager', 'interpret'])


@BACKENDS
def test_set_to_none(backend):
    report = check(plain_step, backend=backend)
    assert report.segments[0].graph.count('smelt::backward') == (backend == 'eager')


@BACKENDS
def test_gradients_are_added_to_those_that_are_there(backend):
    def make_step(model):
        for p in model.parameters():
            p.grad = torch.ones_like(p)

        def step(x, y):
            for p in model.parameters():
                p.grad.mul_(0.5)
            F.cross_entropy(model(x), y).backward()
            descend(model)
        return lambda x, y: (step(x, y), 0)[1]
    check(make_step, backend=backend)


@BACKENDS
def test_two_passes_in_a_step(backend):
    def make_step(model):
        def step(x, y):
            for p in model.parameters():
                p.grad = None
            total = 0.0
            for part in range(2):
                loss = F.cross_entropy(model(x[part::2]), y[part::2]) / 2
                loss.backward()
                total = total + loss.detach()
            descend(model)
            return total
        return step
    check(make_step, backend=backend)


@BACKENDS
def test_a_number_is_returned(backend):
    def make_step(model):
        def step(x, y):
            for p in model.parameters():
                p.grad = None
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            descend(model)
            return loss.item(), 2 * loss.item() - 1, x.shape[0]
        return step
    report = check(make_step, backend=backend)
    assert not report.recompiles


def test_numbers_in_containers_and_attributes():
    class Run:
        total = 0.0

    def make_step(model):
        run, losses = Run(), []

        def step(x, y):
            loss = F.cross_entropy(model(x), y)
            losses.append(loss.item())
            run.total += loss.item()
            return {'loss': loss.item(), 'all': len(losses)}['loss'], run.total, sum(losses[-1:])
        return step
    check(make_step, breaks=None)


@BACKENDS
def test_a_branch_on_the_loss_is_checked(backend):
    taken = []

    def make_step(model):
        def step(x, y):
            for p in model.parameters():
                p.grad = None
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            if loss.item() > 1.4:
                descend(model, 0.3)
                return loss, 'fast'
            descend(model, 0.01)
            return loss, 'slow'
        return step
    plain, compiled = make_model(), make_model()
    expected_step, step = make_step(plain), smelt.compile(make_step(compiled), backend=backend)
    for i in range(12):
        x, y = batch(i)
        (loss, name), (expected, wanted) = step(x, y), expected_step(x, y)
        taken.append(wanted)
        assert name == wanted
        torch.testing.assert_close(loss, expected)
        assert_same(state(compiled), state(plain))
    assert set(taken) == {'fast', 'slow'}
    assert smelt.explain(step)(*batch(0)).break_count == 0


def test_where_guesses_are_wrong_there_are_no_more():
    def fn(x):
        y = x.sin()
        if y.sum().item() > 0:
            return y * 2
        return y - 1
    compiled = smelt.compile(fn)
    for i in range(60):
        x = torch.full((3,), 1.0 if i % 2 else -1.0)
        torch.testing.assert_close(compiled(x), fn(x))
    report = smelt.explain(compiled)(torch.ones(3))
    assert report.break_count >= 1
    assert len(report.recompiles) < 8


def test_a_tensor_decides_behind_a_backward_pass():
    def make_step(model):
        def step(x, y):
            for p in model.parameters():
                p.grad = None
            F.cross_entropy(model(x), y).backward()
            norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
            if norm > 1e-3:
                for p in model.parameters():
                    p.grad.div_(norm)
            descend(model)
            return norm
        return step
    check(make_step)


def test_a_run_that_does_not_hold_leaves_nothing_behind():
    """The check comes after the gradients, and for the log after the first parameter has been changed."""
    def make_step(model):
        def step(x, y):
            for p in model.parameters():
                p.grad = None
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            first = list(model.parameters())[0]
            with torch.no_grad():
                first.mul_(1.5)
            if first.abs().max().item() > 3:
                with torch.no_grad():
                    first.div_(4)
            return loss
        return step
    for backend in ('native', 'eager', 'interpret'):
        check(make_step, calls=9, backend=backend)


@BACKENDS
def test_a_run_that_does_not_hold_leaves_versions(backend):
    """What autograd has saved before is not outdated by a change that was taken back."""
    def change(w):
        w.mul_(1.5)
        if w.abs().max().item() > 3:
            w.div_(4)
        return w + 1
    compiled = smelt.compile(change, backend=backend)
    plain, own = torch.ones(4), torch.ones(4)
    for _ in range(9):
        torch.testing.assert_close(compiled(own), change(plain))
        assert own._version <= plain._version  # two changes may be one


@BACKENDS
def test_the_loss_is_used_up(backend):
    model = make_model()

    def step(x, y):
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss
    compiled = smelt.compile(step, backend=backend)
    for i in range(3):
        loss = compiled(*batch(i))
        assert loss.requires_grad and not loss.is_leaf
        with pytest.raises(RuntimeError, match='a second time'):
            loss.backward()


def test_a_graph_that_is_kept():
    def make_step(model):
        def step(x, y):
            for p in model.parameters():
                p.grad = None
            loss = F.cross_entropy(model(x), y)
            loss.backward(retain_graph=True)
            return loss * 2
        def run(x, y):
            out = step(x, y)
            out.backward()
            return out.detach()
        return run
    check(make_step)


def test_gradient_penalty():
    def make_step(model):
        def step(x, y):
            for p in model.parameters():
                p.grad = None
            x = x.clone().requires_grad_()
            loss = F.cross_entropy(model(x), y)
            slope, = torch.autograd.grad(loss, x, create_graph=True)
            (loss + slope.square().sum()).backward()
            descend(model)
            return loss.detach()
        return step
    check(make_step, breaks=None)


def test_frozen_shared_and_unused_parameters():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(3)
            self.first, self.last, self.unused = nn.Linear(8, 8), nn.Linear(8, 4), nn.Linear(2, 2)
            self.first.bias.requires_grad_(False)
            self.tied = self.first

        def forward(self, x):
            return self.last(self.tied(self.first(x).relu()))

    check(plain_step, model=Odd)


def test_statistics_and_dropout():
    def noisy():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 4))

    def make_step(model):
        def step(x, y):
            torch.manual_seed(7)
            for p in model.parameters():
                p.grad = None
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            descend(model)
            return loss, model[1].running_mean.clone(), model[1].num_batches_tracked.clone()
        return step
    check(make_step, model=noisy, breaks=None)


def test_smaller_last_batch_and_back():
    model, plain = make_model(), make_model()

    def make_step(model):
        def step(x, y):
            for p in model.parameters():
                p.grad = None
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            descend(model)
            return loss
        return step
    step, expected_step = smelt.compile(make_step(model)), make_step(plain)
    for epoch in range(3):
        for i, rows in enumerate([5, 5, 3]):
            torch.testing.assert_close(step(*batch(i, rows)), expected_step(*batch(i, rows)))
    assert len(smelt.explain(step)(*batch(0)).recompiles) == 1


def test_from_compiled_to_eager_and_back():
    model, plain = make_model(), make_model()

    def make_step(model):
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

        def step(x, y):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss
        return step, optimizer
    step, optimizer = make_step(model)
    expected_step, expected = make_step(plain)
    compiled = smelt.compile(step)
    for i in range(9):
        run = step if i in (4, 5) else compiled
        torch.testing.assert_close(run(*batch(i)), expected_step(*batch(i)))
        found, wanted = optimizer.state_dict(), expected.state_dict()
        assert found['param_groups'] == wanted['param_groups']
        for key, entry in wanted['state'].items():
            assert_same(list(found['state'][key].values()), list(entry.values()))
    again = torch.optim.Adam(model.parameters(), lr=0.01)
    again.load_state_dict(copy.deepcopy(optimizer.state_dict()))


def test_nan_is_as_in_eager():
    def make_step(model):
        def step(x, y):
            for p in model.parameters():
                p.grad = None
            loss = F.cross_entropy(model(x * float('nan')), y)
            loss.backward()
            descend(model)
            return 0 if loss.isnan() else loss
        return step
    plain, compiled = make_model(), make_model()
    expected_step, step = make_step(plain), smelt.compile(make_step(compiled))
    for i in range(3):
        assert step(*batch(i)) == expected_step(*batch(i)) == 0
        assert all(a.isnan().equal(b.isnan()) for a, b in zip(state(compiled), state(plain)))


def test_an_error_in_the_middle_leaves_what_eager_leaves():
    def make_step(model):
        def step(x, y):
            for p in model.parameters():
                p.grad = None
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            descend(model)
            return loss
        return step
    plain, compiled = make_model(), make_model()
    expected_step, step = make_step(plain), smelt.compile(make_step(compiled))
    for i in range(3):
        step(*batch(i)), expected_step(*batch(i))
    x, y = batch(3)
    y[1] = 7  # there are 4 classes
    for run in (step, expected_step):
        with pytest.raises(IndexError, match='Target 7 is out of bounds'):
            run(x, y)
    assert_same(state(compiled), state(plain))
    torch.testing.assert_close(step(*batch(4)), expected_step(*batch(4)))
    assert_same(state(compiled), state(plain))


def test_numbers_that_python_can_not_compute():
    def fn(x):
        scale = 1 / x.sum().item()
        return x * scale
    compiled = smelt.compile(fn)
    for i in range(3):
        torch.testing.assert_close(compiled(torch.ones(3)), fn(torch.ones(3)))
    with pytest.raises(ZeroDivisionError):
        compiled(torch.zeros(3))
    torch.testing.assert_close(compiled(torch.ones(3)), fn(torch.ones(3)))


@BACKENDS
def test_a_pass_goes_on_in_front_of_a_break(backend):
    """The graph of the generator is made by one program, and gone through by the next."""
    @smelt.disable
    def between(model):
        descend(model, 0.01)

    def make():
        torch.manual_seed(0)
        generator = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 8))
        return nn.ModuleList([generator, nn.Sequential(nn.Linear(8, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))])

    def make_step(model):
        generator, critic = model

        def step(x, y):
            made = generator(x).tanh()
            for p in model.parameters():
                p.grad = None
            critic(made.detach()).square().mean().backward()
            between(critic)
            for p in generator.parameters():
                p.grad = None
            loss = critic(made).mean()
            loss.backward()
            descend(generator)
            return loss.detach()
        return step
    check(make_step, calls=8, backend=backend, breaks=None, model=make)


@BACKENDS
def test_gradients_that_a_step_drops_at_its_end(backend):
    """Those that were there at the start are gone as well."""
    def make_step(model):
        calls = {'count': 0}

        def step(x, y):
            calls['count'] += 1
            F.cross_entropy(model(x), y).backward()
            if calls['count'] % 3 == 0:
                descend(model)
                for p in model.parameters():
                    p.grad = None
            return calls['count']
        return step
    check(make_step, calls=9, backend=backend)


def test_a_wrong_guess_gives_back_the_gradients_that_were_dropped():
    """zero_grad() was made by a run that turned out to be none; the guards on gradients hold for what is there."""
    model = make_model()

    def step(x, y, limit):
        model.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return 1 if loss.item() > limit.item() else 2

    compiled = smelt.compile(step)
    limits = [torch.tensor(value) for value in (0.0, 0.0, 9.0, 9.0, 0.0, 9.0, 0.0)]
    found = []
    for i, limit in enumerate(limits):
        found.append(compiled(*batch(i), limit))
        if i == 3:
            known = smelt.stats()['recompiles']
    assert found == [1, 1, 2, 2, 1, 2, 1]
    assert smelt.stats()['recompiles'] == known == 2
