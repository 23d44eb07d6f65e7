"""Compiled code in several processes: collectives are done once, in order, whoever compiles; DDP and FSDP train as in eager."""

import os
import subprocess
import sys

import pytest

# Each case is a function of (rank, smelt, torch, dist) that raises where something is wrong.
PROGRAM = '''
import datetime, gc, os, sys
import torch, torch.distributed as dist
from torch import nn
torch.set_num_threads(1)
rank = int(os.environ["RANK"])
dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", rank=rank, world_size=2, timeout=datetime.timedelta(seconds=200))
import smelt


def make_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def train(model, optimizer, x):
    optimizer.zero_grad()
    loss = model(x).pow(2).mean()
    loss.backward()
    optimizer.step()
    return loss.detach()


def assert_trains_alike(eager, compiled, step=train, steps=5):
    optimizers = [torch.optim.SGD(model.parameters(), 0.1) for model in (eager, compiled)]
    for i in range(steps):
        torch.manual_seed(10 * i + rank)
        x = torch.randn(4, 8)
        torch.testing.assert_close(step(compiled, optimizers[1], x), train(eager, optimizers[0], x))
    for ours, theirs in zip(compiled.parameters(), eager.parameters()):
        full = (lambda p: p.full_tensor() if hasattr(p, "full_tensor") else p)
        torch.testing.assert_close(full(ours).detach(), full(theirs).detach())


def one_rank_compiles():
    """Sums are right although only one of the processes compiles."""
    import torch.distributed._functional_collectives as functional

    def in_place(x):
        y = x * 2
        dist.all_reduce(y)
        return y * 3

    def all_reduced(x):
        return functional.all_reduce(x * 2, "sum", dist.group.WORLD) * 3

    def gathered(x):
        return functional.all_gather_tensor(x * 2, 0, dist.group.WORLD).sum(0) * 3  # of two rows each

    def branching(x):
        y = functional.all_reduce(x * 2, "sum", dist.group.WORLD)
        return y * 3 if y.sum().item() > 0 else y * 5

    for function in (in_place, all_reduced, gathered, branching):
        run = smelt.compile(function) if rank == 0 else function
        for i, sign in enumerate((1, 1, -1, 1, -1)):
            got = run(torch.full((2, 2), float(sign * (rank + 1 + i))))
            factor = 5 if function is branching and sign < 0 else 3
            summed = (2 * (1 + i) + 2 * (2 + i)) * sign  # over both ranks
            want = torch.full_like(got, float(summed * factor * (2 if function is gathered else 1)))
            assert torch.equal(got, want), (function.__name__, i, got, want)
        dist.barrier()


def ddp_of_compiled():
    parallel = nn.parallel.DistributedDataParallel
    assert_trains_alike(parallel(make_model()), parallel(smelt.compile(make_model())))


def compiled_ddp():
    parallel = nn.parallel.DistributedDataParallel
    compiled = smelt.compile(parallel(make_model()))
    assert type(compiled) is parallel
    assert_trains_alike(parallel(make_model()), compiled)
    with compiled.no_sync():
        compiled(torch.randn(4, 8)).sum().backward()
    assert smelt.stats()["segments"] <= 4, smelt.stats()


def compiled_step():
    parallel = nn.parallel.DistributedDataParallel
    assert_trains_alike(parallel(make_model()), parallel(make_model()), step=smelt.compile(train))


def fsdp():
    from torch.distributed.fsdp import fully_shard

    def shard(model):
        for layer in model:
            if isinstance(layer, nn.Linear):
                fully_shard(layer)
        return fully_shard(model)

    assert_trains_alike(shard(make_model()), smelt.compile(shard(make_model())))


try:
    globals()[sys.argv[1]]()
    print("fine", flush=True)
    # Without these PyTorch itself aborts in one run of five, eager or compiled: its threads go on when the process ends.
    gc.collect()
    dist.barrier()
finally:
    dist.destroy_process_group()
'''


@pytest.mark.slow
@pytest.mark.parametrize("case", ["one_rank_compiles", "ddp_of_compiled", "compiled_ddp", "compiled_step", "fsdp"])
def test_two_processes(case, tmp_path):
    """A process that hangs is a failure. They find each other by a file: a port that was free may be taken by then."""
    environment = dict(os.environ, WORLD_SIZE="2")
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, case, str(tmp_path / "store")],
            env={**environment, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    outputs = []
    try:
        for process in processes:
            outputs.append(process.communicate(timeout=500)[0])
    finally:
        for process in processes:
            process.kill()
    for process, output in zip(processes, outputs):
        assert process.returncode == 0 and "fine" in output, output[-3000:]
