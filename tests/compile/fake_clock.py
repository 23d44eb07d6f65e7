"""A clock that goes as the test says."""
import contextlib

from smelt import _native


class Clock:
    """`tick`: nanoseconds that pass whenever somebody looks."""

    def __init__(self, tick=0):
        self.time, self.tick = 0, tick

    def __call__(self):
        self.time += self.tick
        return int(self.time)


@contextlib.contextmanager
def clock(tick=0):
    made = Clock(tick)
    _native.set_clock(made)
    try:
        yield made
    finally:
        _native.use_cpu_clock()  # as all tests have it
