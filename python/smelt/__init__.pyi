import logging
import os
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Literal, TypeVar, overload

import torch

_T = TypeVar('_T', bound=Callable[..., Any])
_Mode = Literal['default', 'reduce-overhead', 'max-autotune', 'max-autotune-no-cudagraphs', 'lite']
_StanceName = Literal['default', 'eager', 'fail_on_recompile', 'eager_on_recompile']
_Backend = str | None | Callable[[Any, list[torch.Tensor]], Callable[..., Any]]

__version__: str
__all__: list[str]
cmake_prefix_path: str

class Error(RuntimeError): ...
class RecordError(Error): ...
class BreakError(Error): ...
class RecompileError(Error): ...
class SizeError(Error): ...
class OptionError(Error, ValueError): ...
class ArgumentError(Error, TypeError): ...
class InternalError(AssertionError): ...

class Graph:
    def run(self, *args: Any, **kwargs: Any) -> Any: ...
    def explain(self) -> str: ...
    def program(self) -> str: ...
    def __len__(self) -> int: ...

class Segment:
    function: str
    file: str
    line: int
    offset: int
    ops: int
    guards: int
    steps: int
    guard_lines: list[str]
    graph: str
    ends: str
    own_sizes: list[str]
    @property
    def op_by_op(self) -> str: ...

class Break:
    reason: str
    sentence: str
    remedy: str
    file: str
    line: int
    function: str
    module: str
    called_at: str
    text: str

class Report:
    name: str
    segments: list[Segment]
    breaks: list[Break]
    recompiles: list[str]
    mode: str
    backend: str
    mode_note: str
    note: str
    rollbacks: list[str]
    fixed_sizes: list[str]
    @property
    def graph_count(self) -> int: ...
    @property
    def break_count(self) -> int: ...
    @property
    def op_count(self) -> int: ...
    @property
    def guard_count(self) -> int: ...
    def json(self) -> str: ...
    def html(self, path: str | os.PathLike[str]) -> None: ...
    def trace(self, path: str | os.PathLike[str]) -> None: ...

class Difference:
    name: str
    dtype: str
    shape: list[int]
    max_abs: float
    max_rel: float
    max_ulp: float
    compiled_from_fp64: float | None
    eager_from_fp64: float | None
    ok: bool
    note: str

class Culprit:
    part: str
    ops: list[str]
    segment: str
    script: str
    tried: list[str]
    group: str

class Verification:
    name: str
    ok: bool
    outputs: list[Difference]
    gradients: list[Difference]
    changed: list[Difference]
    notes: list[str]
    settings: dict[str, Any]
    culprit: Culprit | None
    @property
    def rows(self) -> list[Difference]: ...
    def json(self) -> str: ...
    def __bool__(self) -> bool: ...

class WarmUp:
    inputs: int
    segments: int
    seconds: float
    not_compiled: list[int]

class Stance:
    name: str
    def restore(self) -> None: ...
    def __enter__(self) -> Stance: ...
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None: ...

@overload
def compile(model: _T, *, mode: _Mode | None = 'default', backend: _Backend = 'native', dynamic: bool | None = None,
            fullgraph: bool = False, options: dict[str, Any] | None = None, disable: bool = False,
            recompile_limit: int | None = None) -> _T: ...
@overload
def compile(model: None = None, *, mode: _Mode | None = 'default', backend: _Backend = 'native',
            dynamic: bool | None = None, fullgraph: bool = False, options: dict[str, Any] | None = None,
            disable: bool = False, recompile_limit: int | None = None) -> Callable[[_T], _T]: ...
@overload
def disable(fn: _T, recursive: bool = True, *, reason: str | None = None) -> _T: ...
@overload
def disable(fn: None = None, recursive: bool = True, *, reason: str | None = None) -> Callable[[_T], _T]: ...
def explain(model: Callable[..., Any], *, mode: _Mode | None = 'default', backend: _Backend = 'native',
            dynamic: bool | None = None, fullgraph: bool = False,
            options: dict[str, Any] | None = None, recompile_limit: int | None = None) -> Callable[..., Report]: ...
def is_compiling() -> bool: ...
def list_backends() -> list[str]: ...
def mark_dynamic(tensor: torch.Tensor, dim: int | Iterable[int], *, min: int | None = None, max: int | None = None,
                 name: str | None = None) -> None: ...
def mark_static(tensor: torch.Tensor, dim: int | Iterable[int] | None = None) -> None: ...
def record(fn: Callable[..., Any], *args: Any, dynamic_shapes: list[dict[int, str] | None] | None = None,
           backend: str = 'eager', **kwargs: Any) -> Graph: ...
@overload
def register_backend(name: _T) -> _T: ...
@overload
def register_backend(name: str) -> Callable[[_T], _T]: ...
@overload
def register_backend(name: str, fn: _T) -> _T: ...
def reset() -> None: ...
def set_log(categories: str, logger: logging.Logger | None = None) -> None: ...
@overload
def stance(name: None = None, fn: Callable[..., Any] | None = None) -> str: ...
@overload
def stance(name: _StanceName, fn: Callable[..., Any] | None = None) -> Stance: ...
def stats() -> dict[str, Any]: ...
def verify(fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Verification: ...
def warmup(fn: Callable[..., Any], inputs: Iterable[torch.Tensor | tuple[Any, ...] | dict[str, Any]], *,
           backward: bool = False) -> WarmUp: ...
