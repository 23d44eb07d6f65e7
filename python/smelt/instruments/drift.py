"""Whether a measurement is slower than an earlier one, beyond noise.

A row is slower if three things hold. Its median moved by more than the tolerance. It moved by more than three times what
it has moved from run to run before, where the history knows at least eight runs. And the confidence intervals of the two
medians lie apart, by half the tolerance. Times of two days are not of one machine: it may be hotter, or shared. What
slowed eager down in the same rounds is divided out, unless absolute times are asked for; then eager is a row like the
others.
"""
import math

from .rounds import median

TOLERANCE = 0.1
_LEAST_RUNS = 8


def compare(now, base, runs=(), tolerance=TOLERANCE, absolute=False):
    """A finding per row that both have: a dict with 'slower', 'ratio', 'since' and the numbers behind them."""
    old = {_key(row): row for row in base['rows']}
    findings = []
    for row in now['rows']:
        if _key(row) not in old or (row['label'] == 'eager' and not absolute):
            continue
        findings.append(_judge(row, old[_key(row)], now, base, runs, tolerance, absolute))
    return findings


def _judge(row, before, now, base, runs, tolerance, absolute):
    machine = 1.0 if absolute else _machine(row, now, base)
    ratio = row['median'] / before['median'] / machine
    least = row['low'] / before['high'] / machine
    earlier = [_relative(run, row, absolute) for run in runs]
    earlier = [value for value in earlier if value is not None]
    noise = _spread(earlier) if len(earlier) >= _LEAST_RUNS else 0.0
    limit = max(math.log1p(tolerance), 3 * noise)
    slower = math.log(ratio) > limit and math.log(least) > math.log1p(tolerance) / 2
    return {'label': row['label'], 'point': row['point'], 'ratio': ratio, 'least': least,
            'median': row['median'], 'before': before['median'], 'machine': machine, 'noise': noise,
            'limit': math.exp(limit), 'slower': slower,
            'since': _since(row, before, base, runs, limit, absolute) if slower else ''}


def _key(row):
    return row['label'], *sorted(row['point'].items())


def _eager_of(measurement, row):
    return next((other for other in measurement['rows']
                 if other['label'] == 'eager' and other['point'] == row['point']), None)


def _machine(row, now, base):
    """How much longer eager took than it did then."""
    one, other = _eager_of(now, row), _eager_of(base, row)
    return one['median'] / other['median'] if one and other else 1.0


def _relative(run, row, absolute):
    """The logarithm of a row's time in a run, against eager's there."""
    found = next((other for other in run['rows'] if _key(other) == _key(row)), None)
    if found is None:
        return None
    eager = None if absolute else _eager_of(run, row)
    return math.log(found['median'] / (eager['median'] if eager else 1.0))


def _spread(values):
    """The standard deviation, whatever a few outliers are."""
    middle = median(values)
    return 1.4826 * median([abs(value - middle) for value in values])


def _since(row, before, base, runs, limit, absolute):
    """The first of the last runs that are all slow, as text."""
    start = _relative(base, row, absolute)
    first = None
    for run in reversed(runs):
        value = _relative(run, row, absolute)
        if value is None:
            continue
        if value - start <= limit:
            break
        first = run
    if first is None:
        return 'since this run'
    versions = first['versions']
    return f'since {first["time"]} (run {first["id"]}, smelt {versions["smelt"]}, torch {versions["torch"]})'
