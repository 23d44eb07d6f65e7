"""A cached call costs the same whatever instruments have been used and switched off again."""
import torch

import smelt
from smelt.instruments import rounds


def least(call, x):
    """Of many short loops the quickest: what else the machine does falls into others."""
    def loop():
        for _ in range(50):
            call(x)
    return min(rounds.once(loop) for _ in range(10))


def costs_at_most(times, make, other):
    """Whether what other() makes is called as cheaply as what make() makes, but for so many times. Where two functions lie in memory is a
    matter of some percent: of each there are several, and the quickest counts."""
    x = torch.ones(3)
    best = {make: float('inf'), other: float('inf')}
    for _ in range(8):
        pair = {of: of() for of in best}
        for fast in pair.values():
            fast(x), fast(x)
        for _ in range(8):
            for of, fast in pair.items():
                best[of] = min(best[of], least(fast, x))
            if best[other] < times * best[make]:
                return
    assert False, [seconds / 50 for seconds in best.values()]


def untouched():
    return smelt.compile(lambda x: x + 1)


def test_instruments_that_are_off_cost_nothing():
    def used():
        x, fast = torch.ones(3), smelt.compile(lambda x: x + 1)
        smelt.explain(fast)(x)._inspect()
        assert smelt.verify(fast, x)
        with smelt.stance('eager', fast), smelt.stance('fail_on_recompile'):
            fast(x)
        smelt.set_log('all')
        smelt.set_log('')
        smelt.warmup(fast, [x])
        return fast
    costs_at_most(1.05, untouched, used)


def test_a_call_that_is_not_checked_costs_little():
    """verify_every counts down, and that is all, in the calls between."""
    costs_at_most(1.1, untouched, lambda: smelt.compile(lambda x: x + 1, options={'verify_every': 1_000_000_000}))
