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


def rows_of(page, heading):
    """The first cells of the tables under a heading, joined."""
    text = page.read_text().split(f'\n## {heading}\n', 1)[1].split('\n## ')[0]
    return ' '.join(line.split('|')[1] for line in text.splitlines() if line.startswith('| '))


def test_whoever_comes_from_torch_compile_finds_each_argument_and_function():
    import inspect

    import torch
    page = ROOT / 'docs' / 'coming_from_torch_compile.md'
    arguments = rows_of(page, 'Arguments')
    assert not [name for name in inspect.signature(torch.compile).parameters if not re.search(rf'\b{name}\b', arguments)]
    functions = rows_of(page, 'Functions')
    assert not [name for name in torch.compiler.__all__ if not re.search(rf'\b{name}\b', functions)]


def test_the_page_names_smelts_own_arguments_and_options():
    from smelt import _settings
    rows = rows_of(ROOT / 'docs' / 'compile.md', 'Arguments')
    assert not [name for name in (*_settings.KEYWORDS, *_settings.OPTIONS) if f'`{name}`' not in rows]


def test_each_topic_of_the_log_is_on_the_page():
    import smelt
    with pytest.raises(smelt.Error) as error:
        smelt.set_log('nothing')
    known = re.findall(r'^  (\w+): ', str(error.value), re.M)
    rows = rows_of(ROOT / 'docs' / 'measure.md', 'Logs')
    assert len(known) > 10 and not [name for name in known if f'`{name}`' not in rows]
