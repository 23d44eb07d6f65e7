"""Random tensors for the shape tests: transposed, sliced, expanded, channels-last, empty, odd strides.

SMELT_SHAPES_ALL=1 makes ten times as many calls, SMELT_SHAPES_SEED=n others, SMELT_SHAPES_DEVICE=cuda makes them on
a GPU.
"""

import os
import random

# oneDNN would use AMX where the processor has it, also where the machine it runs on does not let it.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import torch

DEVICE = os.environ.get("SMELT_SHAPES_DEVICE", "cpu")
CALLS = 600 if os.environ.get("SMELT_SHAPES_ALL") == "1" else 60
DTYPES = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
          torch.float32, torch.float64, torch.complex64, torch.complex128]  # fmt: skip
FLOATS = [torch.float32, torch.float32, torch.float64, torch.bfloat16, torch.float16]


class Layouts:
    """Random tensors."""

    def __init__(self, seed):
        self.rng = random.Random(seed + os.environ.get("SMELT_SHAPES_SEED", ""))
        self.choice = self.rng.choice
        self.chance = lambda p: self.rng.random() < p

    def dense(self, shape, dtype):
        if dtype == torch.bool:
            return torch.randint(0, 2, shape, device=DEVICE).bool()
        if not dtype.is_floating_point and not dtype.is_complex:
            return torch.randint(1, 5, shape, device=DEVICE).to(dtype)
        return (torch.rand(shape, device=DEVICE) * 0.8 + 0.1).to(dtype)

    def tensor(self, shape, dtype=torch.float32):
        shape, rank, pick = list(shape), len(shape), self.rng.random()
        if rank == 0 or pick < 0.3:
            return self.dense(shape, dtype)
        if pick < 0.5:
            order = self.rng.sample(range(rank), rank)
            back = [order.index(d) for d in range(rank)]
            return self.dense([shape[d] for d in order], dtype).permute(back)
        if pick < 0.65:
            dim, step = self.rng.randrange(rank), self.choice([1, 2])
            large = list(shape)
            large[dim] = large[dim] * step + self.choice([0, 1, 2])
            return self.dense(large, dtype).narrow(dim, 0, shape[dim] * step)[(slice(None),) * dim + (slice(None, None, step),)]
        if pick < 0.75:
            return self.dense([1 if self.chance(0.5) else size for size in shape], dtype).expand(shape)
        if rank in (4, 5) and pick < 0.95:
            last = torch.channels_last if rank == 4 else torch.channels_last_3d
            if self.chance(0.6):
                return self.dense(shape, dtype).contiguous(memory_format=last)
            large = list(shape)
            large[1] += 2
            return self.dense(large, dtype).contiguous(memory_format=last).narrow(1, 1, shape[1])
        dim = self.rng.randrange(rank)
        large = list(shape)
        large[dim] += 1
        return self.dense(large, dtype).narrow(dim, 1, shape[dim])

    def shape(self, rank=None, least=0):
        rank = self.choice([0, 1, 2, 2, 3, 3, 4, 4, 5]) if rank is None else rank
        sizes = [0, 1, 2, 3, 4, 5] if self.chance(0.1) and least == 0 else [1, 2, 3, 4, 5]
        return [self.choice(sizes) for _ in range(rank)]

    def broadcast(self, shape):
        pick = self.rng.random()
        if pick < 0.6:
            return list(shape)
        shape = [1 if self.chance(0.35) else size for size in shape]
        return shape[self.rng.randrange(len(shape) + 1) :] if pick > 0.85 else shape

    def index(self, shape, bound, dtype=torch.int64):
        return self.tensor(shape, torch.int64).remainder(max(bound, 1)).to(dtype)
