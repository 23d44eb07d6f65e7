"""The name "smelt" among those that Hugging Face's accelerate knows.

accelerate, and the Trainer of transformers through it, take the names of back ends from a closed list (the enum
DynamoBackend) and pass them on to torch.compile. There smelt is registered, so the list is all that is in the way of
TrainingArguments(torch_compile=True, torch_compile_backend="smelt").
"""
import importlib.abc
import importlib.util
import sys

MODULE = 'accelerate.utils.dataclasses'  # where the enum is
NAME = 'SMELT'


def add_name():
    """Adds the name now, or when accelerate is imported."""
    if MODULE in sys.modules:
        _add_to(sys.modules[MODULE])
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def _add_to(module):
    names = getattr(module, 'DynamoBackend', None)
    if names is None or NAME in names.__members__:
        return
    member = str.__new__(names, NAME)
    member._name_ = member._value_ = NAME
    member.__objclass__ = names
    names._member_names_.append(NAME)
    names._member_map_[NAME] = names._value2member_map_[NAME] = member


class _Finder(importlib.abc.MetaPathFinder):
    """Waits for the module to be imported, and is gone then."""

    def find_spec(self, name, path, target=None):
        if name != MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module):
                execute(module)
                _add_to(module)
            spec.loader.exec_module = exec_module
        return spec
