#!/usr/bin/env python3
"""Checks what a compiler does not: format, layers, sizes, names, and what may be written where.

Run by ./dev check and ./dev test; `--fix` formats the C++ in place and checks nothing. That every header compiles
alone is checked by the build (cmake/layers.cmake), given that each .cpp includes its own header first.
"""

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

import check_layers

ROOT = Path(__file__).resolve().parent.parent

CPP = ('.h', '.cpp', '.cu', '.cuh')
MAX_LINES = {'.cpp': 800, '.cu': 800, '.py': 800, '.h': 300, '.cuh': 300}
UNFINISHED = {'util', 'utils', 'helper', 'helpers', 'common', 'misc', 'manager'}

# Where an op may be called by its name: its row, its meaning and its facts, and the passes that look for patterns of
# ops. Elsewhere ops are known by their facts.
OPS_FOLDER = 'src/ops/'
PASSES_FOLDER = 'src/passes/'
PATTERN_PASSES = (
    'align_products', 'compute_before_views', 'decompose', 'draw_in_kernels', 'fold_constants', 'fold_into_weights', 'fuse_activations',
    'fuse_sums', 'layout_twins', 'let_go_unread', 'loose_extremes', 'narrow_saved', 'pack_convolutions', 'pack_products',
    'put_channels_last', 'simplify_views', 'split_joint')  # fmt: skip
OP_NAME = re.compile(r'"(?:aten|prims|mkldnn|onednn|mkl|quantized|torchvision)::')
# The text of an op's name, compared with something in quotes.
OP_TEXT = r'\b(?:op_?|name)(?:\.|->)(?:str|name)\(\)|schema\(\)\.name\(\)'
COMPARED_NAME = re.compile(rf'(?:{OP_TEXT})\s*(?:[=!]=|\.(?:r?find|starts_with|ends_with|contains|compare)\()\s*"')

# A back end is asked for by what it can do; its name is its own folder's and the user's.
NAMED_BACKEND = re.compile(r'\bfind_backends?\(\s*"')

# What smelt replaces, it does not import.
REPLACED = r'(?:torch\.(?:_dynamo|_inductor|_functorch|fx)|triton)'
IS_REPLACED = re.compile(REPLACED + r'(?:\.|$)')
CPP_IMPORT = re.compile(r'import\w*\s*\(\s*"' + REPLACED + r'[."]', re.I)

MACHINE_PATH = re.compile(r'(?<![\w.}])/(?:work|root|home)/')


def tree_files():
    """Every file of the tree that is ours: what git tracks or would track."""
    listing = subprocess.run(['git', 'ls-files', '-z', '-co', '--exclude-standard'], cwd=ROOT, capture_output=True)
    if listing.returncode == 0:
        names = listing.stdout.decode().split('\0')
    else:
        names = [str(p.relative_to(ROOT)) for p in ROOT.rglob('*')]
        names = [n for n in names if not re.match(r'(\.venv|\.git|build|dist)/|.*__pycache__/', n)]
    return sorted(name for name in set(names) if name and (ROOT / name).is_file())


def cpp_files(files):
    return [f for f in files if f.endswith(CPP)]


def clang_format(files, *args):
    """Runs the clang-format beside this Python; None where there is none."""
    tool = shutil.which('clang-format', path=str(Path(sys.executable).parent)) or shutil.which('clang-format')
    if tool is None:
        return None
    return subprocess.run([tool, *args, *files], cwd=ROOT, capture_output=True, text=True)


def check_format(files):
    files = cpp_files(files)
    if not files:
        return
    result = clang_format(files, '--dry-run', '-Werror')
    if result is None:
        print('check: clang-format is not installed, format not checked')
    elif result.returncode:
        bad = sorted(set(re.findall(r'^(\S+?):\d+:\d+: error', result.stderr, re.M)))
        yield from (f'{name}: not formatted; ./dev fix does it' for name in bad)
        if not bad:
            yield result.stderr.strip()


def check_size(name, text):
    limit = MAX_LINES.get(Path(name).suffix)
    lines = text.count('\n')
    if limit and lines > limit:
        yield f'{name}: {lines} lines, more than {limit}; split it by what its parts do'


def check_name(name):
    path = Path(name)
    if path.suffix in (*CPP, '.py', '.def') and UNFINISHED & set(path.stem.lower().split('_')):
        yield f'{name}: a name that says nothing; call the file by its one main thing'
    if name.startswith('src/') and path.suffix in CPP and not re.fullmatch(r'[a-z0-9_]+', path.stem):
        yield f'{name}: file names are snake_case'


def check_own_header(name, text):
    header = Path(name).with_suffix('.h')
    if not name.startswith('src/') or not name.endswith('.cpp') or not (ROOT / header).exists():
        return
    own = header.relative_to('src').as_posix()
    first = next((match[2] for match in check_layers.INCLUDE.finditer(text)), None)
    if first != own:
        yield f'{name}: include its own header "{own}" first, which shows that the header compiles alone'


def may_name_ops(name):
    path = Path(name)
    is_pass = name.startswith(PASSES_FOLDER) and path.stem in PATTERN_PASSES
    return name.startswith(OPS_FOLDER) or is_pass or '_test.' in name or not name.endswith(CPP)


def check_op_names(name, text):
    if not name.startswith(('src/', 'include/')) or may_name_ops(name):
        return
    for number, line in enumerate(text.splitlines(), 1):
        code = line.split('//')[0]
        # smelt's own ops have no row: graph/effects.h and graph/numbers.h have them.
        if OP_NAME.search(code) or (COMPARED_NAME.search(code) and '"smelt::' not in code):
            yield f'{name}:{number}: names an op; what is known of one stands in its row (src/ops)'


def check_backend_names(name, text):
    if not name.startswith('src/') or name.startswith('src/codegen/') or '_test.' in name:
        return
    for match in NAMED_BACKEND.finditer(text):
        line = text.count('\n', 0, match.start()) + 1
        yield f'{name}:{line}: asks for a back end by name; backend_for() finds one by device (src/backend)'


def replaced_modules(tree):
    """(line, module) for each use of a module that smelt replaces."""
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f'{node.module}.{alias.name}' for alias in node.names)]
        elif isinstance(node, ast.Attribute):
            names = [ast.unparse(node)]  # torch._dynamo imports itself when it is looked up
        elif isinstance(node, ast.Call) and 'import' in ast.unparse(node.func):
            names = [arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
        for name in names:
            if IS_REPLACED.match(name):
                yield node.lineno, name
                break


def check_imports(name, text):
    found = []
    if name.startswith('python/') and name.endswith('.py'):
        found = replaced_modules(ast.parse(text))
    elif name.startswith(('src/', 'include/')) and name.endswith(CPP):
        found = ((text.count('\n', 0, m.start()) + 1, m[0]) for m in CPP_IMPORT.finditer(text))
    for line, module in sorted(set(found)):
        yield f'{name}:{line}: uses {module}, which smelt replaces and never loads'


def check_paths(name, text):
    for number, line in enumerate(text.splitlines(), 1):
        if MACHINE_PATH.search(line):
            yield f'{name}:{number}: a path of one machine'


def check(files):
    yield from check_layers.check(ROOT)
    for name in files:
        yield from check_name(name)
        try:
            text = (ROOT / name).read_text()
        except UnicodeDecodeError:
            continue
        for one_check in (check_size, check_own_header, check_op_names, check_backend_names, check_imports, check_paths):
            yield from one_check(name, text)
    yield from check_format(files)


def fix(files):
    result = clang_format(cpp_files(files), '-i')
    if result is None:
        sys.exit('clang-format is not installed')
    sys.stderr.write(result.stderr)
    return result.returncode


def main():
    files = tree_files()
    if sys.argv[1:] == ['--fix']:
        return fix(files)
    errors = [error.replace(f'{ROOT}/', '') for error in check(files)]
    print('\n'.join(errors + [f'check: {len(files)} files, {len(errors)} error(s)']))
    return bool(errors)


if __name__ == '__main__':
    sys.exit(main())
