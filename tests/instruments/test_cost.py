"""A cached call costs the same whatever instruments have been used and switched off again."""
import torch

import smelt
from smelt.instruments import rounds


def add(x):
    return x + 1


def least(call, x):
    """Of many short loops the quickest: what else the machine does falls into others."""
    def loop():
        for _ in range(50):
            call(x)
    return min(rounds.once(loop) for _ in range(10))


def test_instruments_that_are_off_cost_nothing():
    x = torch.ones(3)
    untouched, used = smelt.compile(add), smelt.compile(lambda x: x + 1)
    for fast in (untouched, used):
        fast(x), fast(x)
    smelt.explain(used)(x)._inspect()
    assert smelt.verify(used, x)
    with smelt.stance('eager', used), smelt.stance('fail_on_recompile'):
        used(x)
    smelt.set_log('all')
    smelt.set_log('')
    smelt.warmup(used, [x])
    best = {untouched: float('inf'), used: float('inf')}
    for _ in range(40):
        for fast in best:
            best[fast] = min(best[fast], least(fast, x))
        if best[used] < 1.05 * best[untouched]:
            return
    assert False, [seconds / 50 for seconds in best.values()]


def test_a_call_that_is_not_checked_costs_little():
    """verify_every counts down, and that is all, in the calls between."""
    x = torch.ones(3)
    plain, checked = smelt.compile(add), smelt.compile(lambda x: x + 1, options={'verify_every': 1_000_000_000})
    for fast in (plain, checked):
        fast(x), fast(x)
    best = {plain: float('inf'), checked: float('inf')}
    for _ in range(40):
        for fast in best:
            best[fast] = min(best[fast], least(fast, x))
        if best[checked] < 1.1 * best[plain]:
            return
    assert False, [seconds / 50 for seconds in best.values()]
