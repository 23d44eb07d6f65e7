#!/usr/bin/env python3
"""Writes docs/ops.md from the table of meanings: `./dev python tools/write_ops_page.py`. A test compares the two."""
from pathlib import Path

from smelt import _native

PAGE = Path(__file__).resolve().parent.parent / 'docs' / 'ops.md'
HEAD = '''# Ops of the native back end

What `smelt.compile` generates code for, on the CPU, where no gradients are recorded. Any other op is called through PyTorch's
dispatcher, and so is one of these with arguments that its rule refuses (complex numbers, for one); `SMELT_LOG=schedule` says which and
why. Written by `tools/write_ops_page.py` from the rows in `src/ops`.
'''
FORMS = {
    'pointwise': 'Element by element',
    'view': 'Views, which kernels look through',
    'gather': 'Read elsewhere: indexing, concatenation, padding',
    'factory': 'Made of nothing',
    'reduction': 'Reductions',
    'scan': 'Running reductions',
    'update': 'Written one after the other at computed places',
    'decompose': 'Written as others of this page, and calls',
}


def page():
    forms = _native.meaning_forms()
    text = HEAD
    for form, title in FORMS.items():
        names = sorted(name.removeprefix('aten::') for name, of in forms.items() if of == form)
        text += f'\n## {title}\n\n' + ', '.join(f'`{name}`' for name in names) + '\n'
    return text


if __name__ == '__main__':
    PAGE.write_text(page())
