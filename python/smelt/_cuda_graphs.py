"""Memory that CUDA graphs keep for what they need inside."""
import torch


class Pool:
    """A torch.cuda.MemPool, into which this thread's allocations go between enter() and leave()."""

    def __init__(self, device):
        self._device = device
        with torch.cuda.device(device):
            self._pool = torch.cuda.MemPool()
        self._scopes = []

    def enter(self):
        scope = torch.cuda.use_mem_pool(self._pool, self._device)
        scope.__enter__()
        self._scopes.append(scope)

    def leave(self):
        self._scopes.pop().__exit__(None, None, None)
