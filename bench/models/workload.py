"""A model together with what it takes to run and train it."""
from dataclasses import dataclass, replace
from typing import Callable

import torch


@dataclass
class Workload:
    module: torch.nn.Module
    inputs: tuple             # of tensors; the last one is the target where the loss needs one
    loss: Callable            # (output, *targets) -> scalar
    targets: int = 1          # how many of the inputs, counted from the end, are targets
    description: str = ''

    def to(self, device):
        return replace(self, module=self.module.to(device), inputs=tuple(t.to(device) for t in self.inputs))

    def forward(self, *inputs):
        """Inference: evaluation mode, no gradients. Takes all inputs and leaves the targets alone."""
        self.module.eval()
        with torch.no_grad():
            return self.module(*inputs[:len(inputs) - self.targets])

    def step(self, *inputs):
        """Training up to the optimizer: fresh gradients in every parameter's .grad. Returns the loss."""
        self.module.train()
        self.module.zero_grad()
        split = len(inputs) - self.targets
        loss = self.loss(self.module(*inputs[:split]), *inputs[split:])
        loss.backward()
        return loss.detach()

    def state(self):
        """Every tensor that step() changes, by name: gradients, and buffers such as running statistics."""
        tensors = {name: buffer for name, buffer in self.module.named_buffers()}
        tensors.update((f'{name}.grad', p.grad) for name, p in self.module.named_parameters() if p.grad is not None)
        return {name: tensor.detach().clone() for name, tensor in tensors.items()}

    def restore_buffers(self, state):
        """Puts the buffers back to what state() saw."""
        with torch.no_grad():
            for name, buffer in self.module.named_buffers():
                buffer.copy_(state[name])
