"""How the benches and the demo measure: time, tensor memory, and the difference between two ways to compute."""
from .compare import Comparison, compare
from .memory import peak_bytes
from .timing import Timing, alternate, median, once

__all__ = ['Comparison', 'Timing', 'alternate', 'compare', 'median', 'once', 'peak_bytes']
