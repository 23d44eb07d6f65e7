"""Which nodes of a graph share a kernel, and why the groups end where they do."""
import re

from .kernels import groups_in


def nodes_of(graph):
    """[{id, op, type, inputs, part, text}] of a graph's text, for drawing it."""
    rows, part = [], ''
    for line in graph.splitlines():
        if line.startswith('#'):
            part = line.lstrip('# ').split(',')[0].split(':')[0]
        elif match := re.match(r'\s*(?:input )?(%\d+(?:, %\d+)*): (.*?) = (\S+?)(?:\((.*)\)((?: \w+)*)|\s+(.*))?$', line):
            names = re.findall(r'%\d+', match[1])
            op = match[3] if match[4] is not None else f'{match[3]} {match[6] or ""}'.strip()
            rows.append({'id': names[0], 'names': names, 'op': op, 'type': match[2], 'part': part,
                         'inputs': re.findall(r'%\d+', match[4] or ''), 'is_view': (match[5] or '').split() == ['view'], 'text': line.strip()})
    return rows


def set_groups(nodes, lines):
    """Gives each node the `group` that it is in: the kernel's name and its number in the schedule; '' for what PyTorch computes
    and for what computes nothing."""
    schedules = [groups_in(text) for category, text in lines if category == 'schedule']
    parts = {}
    for node in nodes:
        parts.setdefault(node['part'], []).append(node)
    for part in parts.values():
        texts = {node['text'] for node in part}
        # The schedule of this very graph: all that it fuses is there.
        fitting = [groups for groups in schedules if groups and all(text in texts for _, group in groups for text in group)]
        groups = max(fitting, key=lambda groups: sum(len(group) for _, group in groups), default=[])
        group_of = {text: f'{name} ({number})' for number, (name, group) in enumerate(groups, 1) for text in group}
        for node in part:
            node['group'] = group_of.get(node['text'], '')


def calls_of(lines):
    """[{op, why}]: ops that PyTorch computes, and the reason for which they share no kernel."""
    found = {}
    for category, text in lines:
        if category == 'schedule':
            for line in text.splitlines():
                if match := re.match(r'# (\S+): (.*)', line):
                    found[match[1]] = {'op': match[1], 'why': match[2]}
    return list(found.values())


def boundaries_of(lines):
    """[{before, after, why}]: kernels of which one reads the other, and the reason for which they are two."""
    found = []
    for category, text in lines:
        if category == 'schedule':
            for match in re.finditer(r'^# (\S+) and (\S+) are two kernels: (.*)$', text, re.M):
                row = dict(zip(('before', 'after', 'why'), match.groups()))
                if row not in found:
                    found.append(row)
    return found


def ends_of_groups(nodes, calls, boundaries):
    """[{before, after, why}] of a graph: each place where a group ends because something else goes on."""
    why_called = {row['op']: row['why'] for row in calls}
    why_apart = {(row['before'], row['after']): row['why'] for row in boundaries}
    made_by, part, found = {}, None, []
    for node in nodes:
        if node['part'] != part:  # names start from %0 again
            made_by, part = {}, node['part']
        sources = [made_by[name] for name in node['inputs'] if made_by.get(name)]
        if node['is_view'] and not node['group']:  # whoever reads it reads what it is a view of
            here = sources[0] if sources else ''
        else:
            here = node['group'] or (node['op'] if '::' in node['op'] else '')
            for before in sources:
                why = _why(before, here, why_called, why_apart) if here and before != here else ''
                if why and (row := {'before': before, 'after': here, 'why': why}) not in found:
                    found.append(row)
        made_by |= dict.fromkeys(node['names'], here)
    return found


def _why(before, after, why_called, why_apart):
    for one in (before, after):
        if one in why_called:
            return f'{one}: {why_called[one]}'
    return why_apart.get((before.split(' (')[0], after.split(' (')[0]), '')
