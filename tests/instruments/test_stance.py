"""smelt.stance: a program that runs is switched to eager and back, and kept from compiling."""
import threading

import pytest
import torch
from torch import nn

import smelt


def scaled(x):
    return torch.sin(x) * 2


def hits():
    return smelt.stats()['cache_hits']


def test_eager_and_back():
    fast, x = smelt.compile(scaled), torch.randn(4)
    fast(x)
    before = hits()
    with smelt.stance('eager'):
        assert smelt.stance() == 'eager'
        assert torch.equal(fast(x), scaled(x))
        assert hits() == before
    assert smelt.stance() == 'default'
    fast(x)
    assert hits() == before + 1  # what was compiled has been kept
    taken = smelt.stance('eager')
    fast(x)
    assert hits() == before + 1
    taken.restore()
    smelt.stance('default')
    fast(x)
    assert hits() == before + 2


def test_of_one_function():
    one, other, x = smelt.compile(scaled), smelt.compile(lambda x: x + 1), torch.randn(4)
    for fast in (one, other, one, other):
        fast(x)
    before = hits()
    with smelt.stance('eager', one):
        assert smelt.stance(fn=one) == 'eager' and smelt.stance(fn=other) == 'default'
        one(x)
        assert hits() == before
        other(x)
        assert hits() == before + 1
    one(x)
    assert hits() == before + 2


def test_of_a_model_and_its_parts():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    fast, x = smelt.compile(model), torch.randn(2, 4)
    fast(x)
    with smelt.stance('eager', fast):
        before = hits()
        fast(x)
        assert hits() == before
    model[0] = smelt.compile(model[0])
    model(x)
    with smelt.stance('eager', model):
        before = hits()
        model(x)
        assert hits() == before
    model(x)
    assert hits() > before


@pytest.mark.parametrize('per_function', (False, True))
def test_eager_on_recompile(per_function):
    fast, x = smelt.compile(scaled), torch.randn(4)
    fast(x)
    before = smelt.stats()
    with smelt.stance('eager_on_recompile', fast if per_function else None):
        fast(x)
        other = torch.randn(5)
        assert torch.equal(fast(other), scaled(other))
    after = smelt.stats()
    assert after['segments'] == before['segments'] and after['recompiles'] == before['recompiles']
    assert after['cache_hits'] == before['cache_hits'] + 1
    fast(other)
    assert smelt.stats()['segments'] == before['segments'] + 1


def test_eager_on_recompile_of_what_is_new():
    fast = smelt.compile(scaled)
    with smelt.stance('eager_on_recompile'):
        assert torch.equal(fast(torch.ones(3)), scaled(torch.ones(3)))
    assert smelt.stats()['segments'] == 0


@pytest.mark.parametrize('per_function', (False, True))
def test_fail_on_recompile(per_function):
    fast, x = smelt.compile(scaled), torch.randn(4)
    fast(x)
    with smelt.stance('fail_on_recompile', fast if per_function else None):
        fast(x)
        with pytest.raises(smelt.RecompileError, match='x: size at dimension 0 is 5, was 4.*smelt.warmup'):
            fast(torch.randn(5))
        fast(x)
    fast(torch.randn(5))


def test_fail_on_recompile_of_what_is_new():
    with smelt.stance('fail_on_recompile'):
        with pytest.raises(smelt.RecompileError, match='nothing has been compiled here yet'):
            smelt.compile(scaled)(torch.ones(3))


def test_a_failure_leaves_blocks_in_order():
    @smelt.compile
    def function(x, y):
        with torch.no_grad():
            x = x * 2
            print(end='')  # a break
            return x + y
    function(torch.ones(2), torch.ones(2))
    with smelt.stance('fail_on_recompile'):
        with pytest.raises(smelt.RecompileError):
            function(torch.ones(2), torch.ones(2, 2))
    assert torch.is_grad_enabled()


def test_a_failure_can_be_caught_by_the_function():
    @smelt.compile
    def function(x):
        try:
            print(end='')
            return torch.sin(x)
        except smelt.RecompileError:
            return 'caught'
    function(torch.ones(2))
    function(torch.ones(2))
    with smelt.stance('fail_on_recompile'):
        assert isinstance(function(torch.ones(2)), torch.Tensor)


def test_other_threads_see_it():
    fast, x = smelt.compile(scaled), torch.randn(4)
    fast(x)
    before, seen = hits(), []

    def call():
        fast(x)
        seen.append(hits())
    with smelt.stance('eager'):
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
    assert seen == [before]


@pytest.mark.parametrize('per_function', (False, True))
def test_blocks_of_threads_end_in_any_order(per_function):
    """Each takes away its own stance: none is left behind when all have ended."""
    fn = smelt.compile(scaled) if per_function else None
    first, second = smelt.stance('eager', fn), smelt.stance('fail_on_recompile', fn)
    first.restore()
    assert smelt.stance(fn=fn) == 'fail_on_recompile'
    second.restore()
    assert smelt.stance(fn=fn) == 'default'
    first.restore()  # once more is nothing
    assert smelt.stance(fn=fn) == 'default'


def test_many_threads_take_stances():
    fast, x, seen = smelt.compile(scaled), torch.randn(4), []

    def work(name):
        for _ in range(200):
            with smelt.stance(name):
                seen.append(torch.equal(fast(x), scaled(x)))
    threads = [threading.Thread(target=work, args=(name,)) for name in ('eager', 'eager_on_recompile', 'default')]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(seen) and len(seen) == 600 and smelt.stance() == 'default'


def test_nested_blocks_and_what_is_taken_for_good_in_them():
    with smelt.stance('eager'):
        with smelt.stance('fail_on_recompile'):
            smelt.stance('eager_on_recompile')
            assert smelt.stance() == 'eager_on_recompile'
        assert smelt.stance() == 'eager'
    assert smelt.stance() == 'default'
    smelt.stance('eager')
    with smelt.stance('fail_on_recompile'):
        pass
    assert smelt.stance() == 'eager'
    smelt.stance('default')
    assert smelt.stance() == 'default'


def test_a_stance_that_is_taken_again_and_again_costs_no_memory():
    from smelt import _stance
    with smelt.stance('eager'):
        for _ in range(100):
            smelt.stance('eager')
            smelt.stance('default')
        assert len(_stance._of_process._entries) <= 3
    assert smelt.stance() == 'default'


def test_a_rollback_in_a_block_stays():
    from smelt import _stance
    fast = smelt.compile(scaled)
    with smelt.stance('fail_on_recompile', fast):
        _stance.taken_of(smelt._compile.native_of(fast)).settle('eager')
        assert smelt.stance(fn=fast) == 'eager'
    assert smelt.stance(fn=fast) == 'eager'
    smelt.stance('default', fast)
    assert smelt.stance(fn=fast) == 'default'


def test_wrong_uses():
    with pytest.raises(smelt.OptionError, match='there are .default., .eager.'):
        smelt.stance('lazy')
    with pytest.raises(smelt.ArgumentError, match='what smelt.compile returned'):
        smelt.stance('eager', scaled)
    assert smelt.stance() == 'default'


# -- warm-up


def test_warmup_compiles_ahead():
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(), nn.Linear(8, 2)).train()
    fast = smelt.compile(model, dynamic=False)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    done = smelt.warmup(fast, [torch.randn(3, 4), (torch.randn(5, 4),), {'input': torch.randn(7, 4)}], backward=True)
    assert done.inputs == 3 and done.segments >= 3 and done.not_compiled == []
    for name, value in model.state_dict().items():
        assert torch.equal(value, state[name]), name
    assert all(parameter.grad is None for parameter in model.parameters())
    with smelt.stance('fail_on_recompile'):
        fast(torch.randn(3, 4)).sum().backward()
        fast(torch.randn(5, 4))
        fast(input=torch.randn(7, 4))
        with pytest.raises(smelt.RecompileError):
            fast(torch.randn(9, 4))


def test_warmup_of_a_step():
    model = nn.Linear(4, 2)
    optimizer = torch.optim.Adam(model.parameters())

    @smelt.compile
    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss
    before = model.weight.detach().clone()
    smelt.warmup(step, [torch.randn(3, 4)])
    assert torch.equal(model.weight, before) and not optimizer.state and model.weight.grad is None
    for _ in range(3):
        step(torch.randn(3, 4))
    assert optimizer.state[model.weight]['step'] == 3


def test_warmup_takes_what_is_compiled():
    with pytest.raises(smelt.ArgumentError, match='smelt.warmup takes'):
        smelt.warmup(scaled, [torch.ones(3)])
