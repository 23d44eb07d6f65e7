"""Sizes that come again get programs of their own where these are quicker. By a clock that goes as the test says."""
import pytest
import torch
from torch import nn

import smelt

from fake_clock import clock


# So many runs until the sizes are tried, with a clock by which compiling takes no longer than a run.
UNTIL_TRIED = 15
TRIAL = 28


def block(x, w):
    return torch.softmax(torch.relu(x @ w) + x.shape[0], -1) * x.mean()


def run(fast, arguments, watch, own, calls=UNTIL_TRIED + TRIAL, common=1000, is_first=True):
    """Calls of one size; by either program in turn once it is tried. The first call of all is a trace."""
    results = [fast(*arguments)] if is_first else []
    for call in range(1, calls + 1):
        watch.tick = own if call > UNTIL_TRIED and call % 2 else common
        results.append(fast(*arguments))
    return results


def own_lines(fast, *arguments):
    return [line for segment in smelt.explain(fast)(*arguments).segments for line in segment.own_sizes]


def inputs(rows):
    generator = torch.Generator().manual_seed(rows)
    return torch.randn(rows, 16, generator=generator), torch.randn(16, 16, generator=generator)


def compiled(function=block, **options):
    return smelt.compile(function, dynamic=True, options=options)


def test_a_size_that_comes_again_gets_a_program_of_its_own():
    fast, arguments = compiled(), inputs(24)
    with clock(1000) as watch:
        made = smelt.stats()['own_sizes']
        results = run(fast, arguments, watch, own=500)
        assert smelt.stats()['own_sizes'] == made + 1
        lines = own_lines(fast, *arguments)
        assert len(lines) == 1 and 'a program of its own takes 0.5 us, the one for all sizes 1 us' in lines[0]
        assert '= 24' in lines[0]
        assert 'sizes that come again' in str(smelt.explain(fast)(*arguments))
    expected = block(*arguments)
    for result in [*results, fast(*arguments)]:
        torch.testing.assert_close(result, expected)
    for rows in (2, 3, 24, 65):  # the others go on
        torch.testing.assert_close(fast(*inputs(rows)), block(*inputs(rows)))


def test_one_that_is_no_quicker_stays_with_the_program_for_all():
    fast, arguments = compiled(), inputs(24)
    with clock(1000) as watch:
        run(fast, arguments, watch, own=1000)
        lines = own_lines(fast, *arguments)
        assert len(lines) == 1 and 'no program of its own, it would take 1 us' in lines[0]
        made = smelt.stats()['own_sizes']
        run(fast, arguments, watch, own=1000, calls=200)
        assert smelt.stats()['own_sizes'] == made


def test_sizes_that_come_once_get_none():
    fast = compiled()
    made = smelt.stats()['own_sizes']
    with clock(1000):
        for rows in range(2, 200):
            fast(*inputs(rows))
    assert smelt.stats()['own_sizes'] == made and own_lines(fast, *inputs(7)) == []


@pytest.mark.parametrize('options', [{'specialize': False}, {'rollback': False}])
def test_it_can_be_switched_off(options):
    fast, arguments = compiled(**options), inputs(24)
    made = smelt.stats()['own_sizes']
    with clock(1000) as watch:
        run(fast, arguments, watch, own=500, calls=100)
    assert smelt.stats()['own_sizes'] == made


def test_the_clock_decides_nothing_where_torch_is_to_be_deterministic():
    made, arguments = smelt.stats()['own_sizes'], inputs(24)
    torch.use_deterministic_algorithms(True)
    try:
        fast = compiled()
        with clock(1000) as watch:
            run(fast, arguments, watch, own=500, calls=100)
        assert smelt.stats()['own_sizes'] == made
    finally:
        torch.use_deterministic_algorithms(False)
    with clock(1000) as watch:
        run(fast, arguments, watch, own=500)
    assert smelt.stats()['own_sizes'] == made + 1


def test_there_are_as_many_at_a_time_as_asked_for():
    fast = compiled(specialize=2)
    with clock(1000) as watch:
        for rows in (8, 16, 32):
            run(fast, inputs(rows), watch, own=500, is_first=rows == 8)
        lines = own_lines(fast, *inputs(32))
    assert len(lines) == 2 and all('a program of its own takes' in line for line in lines)
    for rows in (8, 16, 32):
        torch.testing.assert_close(fast(*inputs(rows)), block(*inputs(rows)))


def test_one_that_is_forgotten_makes_room():
    fast = compiled(specialize=1)
    with clock(1000) as watch:
        run(fast, inputs(8), watch, own=500)
        assert '= 8' in own_lines(fast, *inputs(8))[0]
        for _ in range(4096):
            fast(*inputs(16))
        for call in range(TRIAL + 2):
            watch.tick = 500 if call % 2 else 1000
            fast(*inputs(16))
        lines = own_lines(fast, *inputs(16))
    assert len(lines) == 1 and '= 16' in lines[0]


def test_forward_and_backward_have_their_own():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))
    fast = smelt.compile(model, dynamic=True)

    def step(called, x):
        model.zero_grad()
        called(x).pow(2).sum().backward()
        return [parameter.grad.clone() for parameter in model.parameters()]
    x = torch.randn(12, 8)
    made = smelt.stats()['own_sizes']
    with clock(1000) as watch:
        for call in range(1, UNTIL_TRIED + TRIAL + 1):
            watch.tick = 500 if call > UNTIL_TRIED and call % 2 else 1000
            gradients = step(fast, x)
        lines = own_lines(fast, x)
    assert smelt.stats()['own_sizes'] == made + 2
    assert sorted(line.split(',')[0] for line in lines) == ['backward', 'forward']
    for x in (x, torch.randn(5, 8)):
        for found, expected in zip(step(fast, x), step(model, x), strict=True):
            torch.testing.assert_close(found, expected)


def test_frozen_weights_serve_both():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)).eval()
    fast = smelt.compile(model, dynamic=True, options={'freeze': True})
    x = torch.randn(48, 64)
    with torch.no_grad(), clock(1000) as watch:
        for result in run(fast, (x,), watch, own=500):
            torch.testing.assert_close(result, model(x))
        assert len(own_lines(fast, x)) == 1
        model[0].weight.mul_(2)
        torch.testing.assert_close(fast(x), model(x))


@pytest.mark.parametrize('value', [0, -1, 'yes', 1.5, None])
def test_wrong_values_are_errors(value):
    with pytest.raises(smelt.Error, match="the option 'specialize' is True, False or an int of at least 1"):
        smelt.compile(block, options={'specialize': value})
