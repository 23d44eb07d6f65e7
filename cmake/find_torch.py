"""Which torch smelt is built against, asked of the Python interpreter that will run it.

CMake runs this file and reads `key=value` lines; the packaging reads it as a metadata provider (pyproject.toml),
so that the wheel demands the torch it was compiled for. torch is looked up, never imported: that is fast, and it
also finds the user's torch from inside pip's isolated build, where site-packages is on disk but not on sys.path.
"""

import importlib.util
import re
import site
import sys
import sysconfig
from pathlib import Path

# Installed for the build when the environment has no torch of its own.
DEFAULT = "torch==2.13.0"
OLDEST = (2, 11)


def find_torch():
    """The folder of the torch package, or None."""
    spec = importlib.util.find_spec("torch")
    if spec and spec.origin:
        return Path(spec.origin).parent
    for folder in (sysconfig.get_path("platlib"), site.getusersitepackages()):
        if (Path(folder) / "torch" / "version.py").exists():
            return Path(folder) / "torch"
    return None


def torch_version(torch):
    text = (torch / "version.py").read_text()
    return re.search(r"^__version__ = '([^'+]+)", text, re.M)[1]


def find_python_library():
    """The library of this interpreter, for programs that embed it; nothing where it is linked into the interpreter."""
    library = Path(sysconfig.get_config_var("LIBDIR") or "") / (sysconfig.get_config_var("LDLIBRARY") or "")
    return library if library.suffix == ".so" and library.exists() else ""


def get_requires_for_dynamic_metadata(settings):
    return [] if find_torch() else [DEFAULT]


def dynamic_wheel(settings):
    return {"dependencies": True}


def dynamic_metadata(settings, project):
    # torch promises no stable C++ interface, so a wheel is good for the version it was compiled against.
    torch = find_torch()
    return {"dependencies": [f"torch=={torch_version(torch)}" if torch else DEFAULT]}


def main():
    torch = find_torch()
    if torch is None:
        sys.exit(f"{sys.executable} has no torch; install one first: pip install {DEFAULT}")
    version = torch_version(torch)
    if tuple(int(n) for n in version.split(".")[:2]) < OLDEST:
        sys.exit(f"torch {version} is too old; smelt needs {'.'.join(map(str, OLDEST))} or newer")
    print(f"torch_dir={torch}")
    print(f"torch_version={version}")
    print(f"python_include={sysconfig.get_path('include')}")
    print(f"python_library={find_python_library()}")
    print(f"python_version={sys.version_info.major}.{sys.version_info.minor}")
    print(f"extension_suffix={sysconfig.get_config_var('EXT_SUFFIX')}")


if __name__ == "__main__":
    main()
