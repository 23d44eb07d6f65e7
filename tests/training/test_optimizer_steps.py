"""torch.optim's code followed to its end: the same parameters and the same state as eager's, op by op."""

import gc
import weakref

import generated
import pytest
import torch
from optimizer_check import Pair, make_model, plain, set_grads
from torch import nn

import smelt

# The log is run op by op: what is tested here is what was followed.
OP_BY_OP = {'backend': 'eager'}

OPTIMIZERS = {
    'SGD': (torch.optim.SGD, dict(lr=0.01)),
    'SGD momentum': (torch.optim.SGD, dict(lr=0.01, momentum=0.9)),
    'SGD nesterov': (torch.optim.SGD, dict(lr=0.01, momentum=0.9, nesterov=True, weight_decay=0.1)),
    'SGD for each': (torch.optim.SGD, dict(lr=0.01, momentum=0.9, foreach=True)),
    'SGD one by one': (torch.optim.SGD, dict(lr=0.01, momentum=0.9, foreach=False)),
    'SGD fused': (torch.optim.SGD, dict(lr=0.01, momentum=0.9, fused=True)),
    'Adam fused': (torch.optim.Adam, dict(fused=True)),
    'AdamW fused': (torch.optim.AdamW, dict(fused=True, amsgrad=True)),
    'Adagrad fused': (torch.optim.Adagrad, dict(fused=True)),
    'RMSprop': (torch.optim.RMSprop, {}),
    'RMSprop for each': (torch.optim.RMSprop, dict(foreach=True, momentum=0.9, centered=True)),
    'Adadelta': (torch.optim.Adadelta, {}),
    'Adadelta for each': (torch.optim.Adadelta, dict(foreach=True)),
    'Rprop': (torch.optim.Rprop, {}),
    'Rprop for each': (torch.optim.Rprop, dict(foreach=True)),
    'Muon': (torch.optim.Muon, {}),
    'Adam': (torch.optim.Adam, {}),
    'Adam for each': (torch.optim.Adam, dict(foreach=True, weight_decay=0.1)),
    'Adam amsgrad': (torch.optim.Adam, dict(amsgrad=True)),
    'AdamW': (torch.optim.AdamW, {}),
    'AdamW for each': (torch.optim.AdamW, dict(foreach=True)),
    'Adagrad': (torch.optim.Adagrad, {}),
    'Adagrad for each': (torch.optim.Adagrad, dict(foreach=True)),
    'Adamax': (torch.optim.Adamax, {}),
    'Adamax for each': (torch.optim.Adamax, dict(foreach=True)),
    'NAdam': (torch.optim.NAdam, {}),
    'NAdam for each': (torch.optim.NAdam, dict(foreach=True)),
    'RAdam': (torch.optim.RAdam, {}),
    'RAdam for each': (torch.optim.RAdam, dict(foreach=True)),
    'Adafactor': (torch.optim.Adafactor, {}),
    'Adafactor for each': (torch.optim.Adafactor, dict(foreach=True)),
    'ASGD': (torch.optim.ASGD, {}),
    'ASGD for each': (torch.optim.ASGD, dict(foreach=True)),
}


def parameters_for(cls, model):
    return [p for p in model.parameters() if cls is not torch.optim.Muon or p.dim() == 2]


def steps_of(cls, options):
    def build(model):
        optimizer = cls(parameters_for(cls, model), **options)
        return lambda: optimizer.step(), optimizer.state_dict

    return build


@pytest.mark.parametrize('name', OPTIMIZERS)
def test_a_step_is_one_graph(name):
    pair = Pair(steps_of(*OPTIMIZERS[name]), **OP_BY_OP).run()
    assert pair.breaks() == 0
    # The first step makes the state, the second finds it. RAdam goes another way from the sixth step on.
    assert pair.recompiles(since=2) <= name.startswith('RAdam')


def kernel_runs(call):
    with torch.autograd.profiler.profile() as profile:
        call()
    return sum(event.count for event in profile.key_averages() if event.key.startswith('smelt::') and
               event.key != 'smelt::run')


# Its code takes the larger one of two numbers, of whose types Python decides.
OP_BY_OP_ONLY = ('ASGD', 'ASGD for each')


@pytest.mark.parametrize('name', OPTIMIZERS)
def test_a_step_is_run_by_kernels(name):
    near = 1e-3 if name == 'Muon' else 1e-5  # Muon computes in bfloat16
    pair = Pair(steps_of(*OPTIMIZERS[name]), near=near).run()
    assert pair.breaks() == 0
    if generated.HAS_KERNELS and name not in OP_BY_OP_ONLY:
        assert kernel_runs(pair.compiled) > 0


def test_groups_with_their_own_options():
    def build(model):
        first, second, *rest = model.parameters()
        groups = [dict(params=[first, second]), dict(params=rest, lr=0.5, momentum=0.5)]
        optimizer = torch.optim.SGD(groups, lr=0.1, momentum=0.9)
        return lambda: optimizer.step(), optimizer.state_dict

    pair = Pair(build, **OP_BY_OP).run()
    assert (pair.breaks(), pair.recompiles(since=2)) == (0, 0)


def test_gradients_that_come_and_go():
    pair = Pair(steps_of(torch.optim.SGD, dict(lr=0.1, momentum=0.9)), **OP_BY_OP)
    for without in ((1,), (1,), (), (), (0, 1, 2, 3), (2,), (2,), (1,)):
        pair.step(without=without)
    assert pair.breaks() == 0


def test_an_option_that_is_changed_by_hand():
    optimizers = []

    def build(model):
        optimizers.append(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
        return optimizers[-1].step, optimizers[-1].state_dict

    pair = Pair(build, **OP_BY_OP)
    for lr in (0.1, 0.1, 0.05, 0.03, 0.02, 0.01):
        for optimizer in optimizers:
            optimizer.param_groups[0]['lr'] = lr
        pair.step()
    assert pair.recompiles(since=3) == 0


def test_state_that_is_loaded_is_seen():
    optimizers = []

    def build(model):
        optimizers.append(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
        return optimizers[-1].step, optimizers[-1].state_dict

    pair = Pair(build, **OP_BY_OP).run(3)
    for optimizer in optimizers:
        state = optimizer.state_dict()
        for entry in state['state'].values():
            entry['momentum_buffer'] = entry['momentum_buffer'] * 2
        optimizer.load_state_dict(state)
    pair.run(3)


def test_a_group_that_is_added_is_seen():
    extra, optimizers = [], []

    def build(model):
        extra.append(nn.Parameter(torch.ones(3)))
        optimizers.append(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
        return optimizers[-1].step, optimizers[-1].state_dict

    pair = Pair(build, **OP_BY_OP).run(3)
    for optimizer, parameter in zip(optimizers, extra, strict=True):
        optimizer.add_param_group(dict(params=[parameter], lr=0.5))
        parameter.grad = torch.ones(3)
    pair.run(3)
    assert torch.equal(*extra)
    assert not torch.equal(extra[0], torch.ones(3))


def test_hooks_around_a_step():
    counts = []

    def build(model):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        seen = {'before': 0, 'after': 0}
        counts.append(seen)

        def before(optimizer, args, kwargs):
            seen['before'] += 1

        def after(optimizer, args, kwargs):
            seen['after'] += 2

        optimizer.register_step_pre_hook(before)
        optimizer.register_step_post_hook(after)
        return optimizer.step, optimizer.state_dict

    pair = Pair(build, **OP_BY_OP).run()
    assert counts == [{'before': 6, 'after': 12}] * 2
    assert (pair.breaks(), pair.recompiles(since=2)) == (0, 0)


def test_a_closure():
    def build(model):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        seen = {'calls': 0}

        def closure():
            seen['calls'] += 1
            return seen['calls']

        return lambda: optimizer.step(closure), lambda: (optimizer.state_dict(), seen)

    assert Pair(build, **OP_BY_OP).run().breaks() == 0


@pytest.mark.parametrize('foreach', (None, True))
def test_gradients_set_to_zero(foreach):
    def build(model):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=foreach)
        return lambda: optimizer.zero_grad(set_to_none=False), optimizer.state_dict

    pair = Pair(build, **OP_BY_OP).run()
    assert (pair.breaks(), pair.recompiles()) == (0, 0)


def test_gradients_set_to_none():
    def build(model):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        return optimizer.zero_grad, optimizer.state_dict

    Pair(build, **OP_BY_OP).run()


def test_many_parameters():
    parameters, eager_parameters = ([nn.Parameter(torch.full((2,), float(i))) for i in range(40)] for _ in range(2))
    optimizer, eager = (torch.optim.SGD(p, lr=0.1, momentum=0.9) for p in (parameters, eager_parameters))
    step = smelt.compile(optimizer.step, **OP_BY_OP)
    for _ in range(4):
        for mine, theirs in zip(parameters, eager_parameters, strict=True):
            mine.grad = torch.randn(2)
            theirs.grad = mine.grad.clone()
        step()
        eager.step()
        assert all(torch.equal(a, b) for a, b in zip(parameters, eager_parameters, strict=True))
    # That the state of each is nobody else's is one guard, and not one for each two.
    assert smelt.explain(step)().guard_count < 100 * len(parameters)


def test_states_that_come_to_be_one():
    """Dicts that are changed were different ones."""

    def count(first, second):
        first['n'] = first.get('n', 0) + 1
        second['n'] = second.get('n', 0) + 1
        return torch.ones(2) * first['n']

    compiled = smelt.compile(count)
    for _ in range(3):
        assert torch.equal(compiled({'n': 1}, {'n': 5}), torch.full((2,), 2.0))
    shared = {'n': 1}
    assert torch.equal(compiled(shared, shared), torch.full((2,), 3.0))
    assert shared == {'n': 3}


def test_an_optimizer_can_go():
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    step = smelt.compile(optimizer.step)
    set_grads(model)
    for _ in range(4):
        step()
    gone = weakref.ref(optimizer)
    del optimizer, step
    gc.collect()
    assert gone() is None


def test_compiled_kernels_are_near():
    model, eager_model = make_model(), make_model()
    optimizer, eager = (torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in (model, eager_model))
    step = smelt.compile(optimizer.step)
    for _ in range(4):
        set_grads(model, eager_model)
        step()
        eager.step()
    torch.testing.assert_close(list(model.parameters()), list(eager_model.parameters()))
    assert len(plain(optimizer.state_dict())['state']) == len(list(model.parameters()))
