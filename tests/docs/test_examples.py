"""The documentation's Python examples run, and its links lead somewhere."""
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / 'README.md', ROOT / 'CONTRIBUTING.md', ROOT / 'src' / 'README.md', *sorted((ROOT / 'docs').rglob('*.md'))]


def name(page):
    return str(page.relative_to(ROOT))


def python_blocks(page):
    """(line, code) of each ```python block."""
    text = page.read_text()
    for match in re.finditer(r'^```python\n(.*?)^```$', text, re.M | re.S):
        yield text.count('\n', 0, match.start(1)) + 1, match[1]


@pytest.mark.parametrize('page', [page for page in PAGES if any(python_blocks(page))], ids=name)
def test_examples_run(page, capsys):
    namespace = {'__name__': page.stem}
    for line, code in python_blocks(page):
        exec(compile('\n' * (line - 1) + code, str(page), 'exec'), namespace)


@pytest.mark.parametrize('page', PAGES, ids=name)
def test_links_lead_somewhere(page):
    for target in re.findall(r'\]\(([^)#:]+)(?:#[^)]*)?\)', page.read_text()):
        assert (page.parent / target).exists(), f'{name(page)} links to {target}'
