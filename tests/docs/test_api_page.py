"""docs/api.md is what tools/write_api_page.py writes, and the stubs name what the package has."""
import ast
import runpy
from pathlib import Path

import smelt

ROOT = Path(__file__).resolve().parents[2]


def test_the_api_page_is_up_to_date():
    tool = runpy.run_path(str(ROOT / 'tools' / 'write_api_page.py'))
    assert tool['PAGE'].read_text() == tool['page'](), 'run ./dev python tools/write_api_page.py'


def test_the_stubs_have_all_names():
    tree = ast.parse((ROOT / 'python' / 'smelt' / '__init__.pyi').read_text())
    names = {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    names |= {node.target.id for node in tree.body if isinstance(node, ast.AnnAssign)}
    assert set(smelt.__all__) <= names
    assert (ROOT / 'python' / 'smelt' / 'py.typed').exists()


def test_the_stubs_have_the_parameters():
    import inspect
    tree = ast.parse((ROOT / 'python' / 'smelt' / '__init__.pyi').read_text())
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name not in ('explain',):
            found = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            real = inspect.signature(getattr(smelt, node.name)).parameters
            wanted = [name for name, p in real.items() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
            assert sorted(argument.arg for argument in found) == sorted(wanted), node.name
