"""What smelt logs while a block runs, as a list."""
import contextlib
import re

from .. import _logger, _native


@contextlib.contextmanager
def collected(categories):
    """Gives a list that has (category, message) of these categories when the block has ended; what SMELT_LOG switched on is
    silent meanwhile."""
    before, lines = _native.enabled_log(), []
    with _logger.turn:
        _native.keep_log_lines(True)
        _native.set_log(categories)
        try:
            yield lines
        finally:
            _native.set_log(before)
            lines += _native.take_log_lines()
            if not _logger.is_running():
                _native.keep_log_lines(False)


def stages_of(lines):
    """[{stage, name, seconds, note}], one for each stage and pass, summed over all graphs."""
    found = {}
    for category, text in lines:
        if category != 'perf':
            continue
        for line in text.splitlines():
            match = re.match(r'(\w+)\s+(\S+)\s+([\d.]+) ms\s+(\S+)\s*(.*)', line)
            if not match:
                continue
            stage, name, took, changed, note = match.groups()
            row = found.setdefault((stage, name), {'stage': stage, 'name': name, 'seconds': 0.0, 'changed': 0, 'note': ''})
            row['seconds'] += float(took) * 1e-3
            row['changed'] += changed == 'changed'
            row['note'] = note
    # Lowering is told with the schedule and the code in it.
    lower = found.get(('compile', 'lower'))
    if lower:
        inner = sum(row['seconds'] for (stage, _), row in found.items() if stage in ('schedule', 'codegen'))
        lower['seconds'] = max(0.0, lower['seconds'] - inner)
    return list(found.values())


def by_stage(stages):
    """{stage: seconds}, in the order in which they come."""
    found = {}
    for row in stages:
        found[row['stage']] = found.get(row['stage'], 0.0) + row['seconds']
    return found
