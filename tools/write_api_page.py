#!/usr/bin/env python3
"""Writes docs/api.md from the docstrings: `./dev python tools/write_api_page.py`. A test compares the two."""
import inspect
import textwrap
from pathlib import Path

import smelt

PAGE = Path(__file__).resolve().parent.parent / 'docs' / 'api.md'
HEAD = '''# API

What `import smelt` gives. Written by `tools/write_api_page.py` from the docstrings.
'''


def section(name):
    value = getattr(smelt, name)
    if isinstance(value, str):
        return f'## smelt.{name}\n\nA path: where CMake finds smelt.\n'
    signature = '' if inspect.isclass(value) else str(inspect.signature(value))
    text = f'## smelt.{name}\n\n'
    if signature:
        text += f'```\nsmelt.{name}{signature}\n```\n\n'
    text += f'```text\n{inspect.getdoc(value) or ""}\n```\n'
    if inspect.isclass(value) and not issubclass(value, BaseException):
        if fields := getattr(value, '__dataclass_fields__', {}):
            text += '\nIts attributes: ' + ', '.join(f'`{field}`' for field in fields) + '.\n'
        for method, member in vars(value).items():
            if not method.startswith('_') and inspect.isfunction(member) and member.__doc__:
                text += f'\n`{method}{inspect.signature(member)}`\n\n```text\n{textwrap.dedent(inspect.getdoc(member))}\n```\n'
    return text


def page():
    return HEAD + ''.join('\n' + section(name) for name in sorted({*smelt.__all__, *smelt._RESULTS}, key=lambda name: (name.lower(), name)))


if __name__ == '__main__':
    PAGE.write_text(page())
