"""torch.compile(model, backend="smelt"): what PyTorch's own capture found is compiled by smelt.

PyTorch loads compile_graph by the entry point that pyproject.toml names, and calls it once for each graph that it has
captured. Such a graph is a callable like any other here: its forward() is compiled by smelt.compile.
"""
from . import _settings
from ._compile import check_python, compile_with, is_off, say_once


def compile_graph(module, example_inputs, *, mode=None, options=None):
    """What is called in the place of a captured graph. `mode` and `options` are those of smelt.compile.

    The example inputs have no contents (they are FakeTensors), so nothing is run here: the first call compiles, with
    the tensors that it is given.
    """
    settings = _settings.check(mode=mode, options=options)
    if hasattr(module, 'real_recompile'):
        module.real_recompile()  # its code is written when it is asked for
    if is_off():
        return module.forward
    check_python(settings)
    say_once(settings.notes(), stacklevel=2)
    return compile_with(module.forward, settings)
