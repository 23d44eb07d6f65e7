"""The user's source, line by line: what is compiled, where graphs break, what Python runs.

An eager call is traced by Python itself, which tells the lines that are run. Of those, a line at which a graph ends is a
break; lines of functions that are called from such a line, and have no segment of their own, are run by Python; the rest
is compiled. In a function for which there is no segment at all everything is Python's.
"""
import linecache
import os
import sys
import sysconfig

import torch

_OWN = (os.path.dirname(torch.__file__), os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
        sysconfig.get_path('stdlib'), '<')
_MOST_FILES = 20


def _is_users(name):
    return not name.startswith(_OWN) or 'site-packages' in name and not name.startswith(_OWN[0])


def coloured_sources(original, args, kwargs, report, state):
    """[{file, functions: [{name, lines: [{number, text, state}]}]}] with state 'compiled', 'break', 'eager' or ''."""
    breaks = {(at['file'], at['line']) for at in report['breaks']}
    roots = {(segment['file'], segment['function']) for segment in report['segments'] if segment['ops']}
    seen = _run_lines(original, args, kwargs, breaks, roots)
    state.restore()
    any_compiled = bool(roots) and not report['rollbacks']
    files = {}
    for code, (lines, is_pythons) in seen.items():
        states = {}
        for line in lines:
            if (code.co_filename, line) in breaks:
                states[line] = 'break'
            else:
                states[line] = 'eager' if is_pythons or not any_compiled else 'compiled'
        files.setdefault(code.co_filename, []).append(_function(code, states))
    return [{'file': name, 'functions': sorted(functions, key=lambda f: f['lines'][0]['number'])}
            for name, functions in list(files.items())[:_MOST_FILES]]


def _function(code, states):
    numbers = [line for *_, line in code.co_lines() if line]
    first, last = code.co_firstlineno, max([code.co_firstlineno, *numbers])
    lines = [{'number': number, 'text': linecache.getline(code.co_filename, number).rstrip('\n'),
              'state': states.get(number, '')} for number in range(first, last + 1)]
    return {'name': code.co_qualname, 'lines': lines}


def _run_lines(call, args, kwargs, breaks, roots):
    """{code: (lines that were run, whether Python runs it at a break)} of an eager call."""
    seen = {}

    def at_break(frame):
        while frame is not None:
            code = frame.f_code
            if (code.co_filename, code.co_qualname) in roots and (code.co_filename, frame.f_lineno) not in breaks:
                return False
            if (code.co_filename, frame.f_lineno) in breaks:
                return True
            frame = frame.f_back
        return False

    def trace(frame, event, argument):
        code = frame.f_code
        if event != 'call' or not _is_users(code.co_filename):
            return None
        is_root = (code.co_filename, code.co_qualname) in roots
        lines, is_pythons = seen.get(code, (set(), False))
        seen[code] = (lines, is_pythons or (not is_root and at_break(frame.f_back)))

        def trace_lines(frame, event, argument):
            if event == 'line':
                lines.add(frame.f_lineno)
            return trace_lines
        return trace_lines
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call(*args, **kwargs)
    finally:
        sys.settrace(before)
    return seen
