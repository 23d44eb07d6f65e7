"""docs/api.md is what tools/write_api_page.py writes, and the stubs name what the package has."""
import ast
import dataclasses
import inspect
import runpy
from pathlib import Path

import pytest

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


STUBS = ast.parse((ROOT / 'python' / 'smelt' / '__init__.pyi').read_text())
FUNCTIONS = [node for node in STUBS.body if isinstance(node, ast.FunctionDef)]
CLASSES = {node.name: node for node in STUBS.body if isinstance(node, ast.ClassDef)}


def has_default(parameter):
    return parameter.default is not parameter.empty


@pytest.mark.parametrize('name', sorted({node.name for node in FUNCTIONS}))
def test_the_stubs_have_the_parameters(name):
    """Names, kinds and which have a default: of overloads each has all names."""
    real = inspect.signature(getattr(smelt, name)).parameters
    if name == 'explain':  # takes the keywords of compile
        real = {'model': real['model']} | {key: value for key, value in inspect.signature(smelt.compile).parameters.items()
                                           if key not in ('model', 'disable')}
    wanted = {key: p for key, p in real.items() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
    overloads = [node for node in FUNCTIONS if node.name == name]
    seen = set()
    for node in overloads:
        positional = [*node.args.posonlyargs, *node.args.args]
        found = {argument.arg for argument in [*positional, *node.args.kwonlyargs]}
        seen |= found
        assert found <= wanted.keys(), name
        for argument in node.args.kwonlyargs:
            assert wanted[argument.arg].kind is inspect.Parameter.KEYWORD_ONLY, (name, argument.arg)
        for argument in positional:
            assert wanted[argument.arg].kind is not inspect.Parameter.KEYWORD_ONLY, (name, argument.arg)
        with_default = {argument.arg for argument in positional[len(positional) - len(node.args.defaults):]}
        with_default |= {argument.arg for argument, default in zip(node.args.kwonlyargs, node.args.kw_defaults) if default is not None}
        assert all(has_default(wanted[key]) for key in with_default), name
    assert seen == wanted.keys(), name


def test_the_stubs_have_what_functions_return():
    """Classes, their fields, methods and properties."""
    assert smelt._RESULTS.keys() <= CLASSES.keys()
    for name, node in CLASSES.items():
        real = getattr(smelt, name)
        fields = {part.target.id for part in node.body if isinstance(part, ast.AnnAssign)}
        methods = {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
        assert all(hasattr(real, method) for method in methods), name
        if dataclasses.is_dataclass(real):
            assert fields == {field.name for field in dataclasses.fields(real)}, name
        public = {key for key, value in vars(real).items() if not key.startswith('_') and (callable(value) or isinstance(value, property))}
        assert public <= methods | fields, name
        assert not [base.id for base in node.bases if isinstance(base, ast.Name) and base.id not in [kind.__name__ for kind in real.__mro__]]


def test_results_are_loaded_when_they_are_asked_for():
    assert isinstance(smelt.stance('default'), smelt.Stance) and isinstance(smelt.verify(len, 'ab'), smelt.Verification)
    assert smelt.WarmUp.__name__ == 'WarmUp' and smelt.Culprit and smelt.Difference and smelt.Segment and smelt.Break
    with pytest.raises(AttributeError, match='no attribute .nothing'):
        smelt.nothing
