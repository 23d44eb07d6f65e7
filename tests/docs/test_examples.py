"""The documentation's Python examples run, and its links lead somewhere."""
import re
import shlex
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


def commands(page):
    """The command lines of a page: in blocks that are no Python, cron and CI lines included, and whole ones in running text."""
    text = page.read_text()
    blocks = [block for language, block in re.findall(r'^```(\w*)\n(.*?)^```$', text, re.M | re.S) if language != 'python']
    lines = [line for block in blocks for line in block.splitlines()] + re.findall(r'`(smelt [^`\n]+\.py:[^`\n]+)`', text)
    for line in lines:
        for found in re.findall(r'\bsmelt (?:bench|explain|verify|doctor)\b[^|&>]*', line):
            yield re.split(r'\s{3,}', found)[0].strip()  # what follows is an explanation


@pytest.mark.parametrize('page', [page for page in PAGES if any(commands(page))], ids=name)
def test_command_lines_are_understood(page):
    from smelt.instruments.command import make_parser
    for line in commands(page):
        make_parser().parse_args([word for word in shlex.split(line)[1:] if word not in ('[...]', '...')])


def test_there_are_examples_for_cron_and_ci():
    text = (ROOT / 'docs' / 'measure.md').read_text()
    assert re.search(r'^0 3 \* \* \*.*smelt bench --check', text, re.M) and re.search(r'^- run: smelt bench .*--check', text, re.M)
