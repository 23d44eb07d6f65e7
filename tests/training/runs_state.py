"""State that is changed in unusual places: parameters replaced, buffers in a forward, batches of many kinds."""

import dataclasses
import random

import torch
import torch.nn.functional as F
from runs_data import mlp, points, stepper, values
from torch import nn


def parameters_replaced(t):
    """Other memory, then other objects."""
    net = mlp(8, 16, 4)
    step = t.step(stepper(t.model(net), torch.optim.SGD(net.parameters(), lr=0.1)))
    for i, (x, y) in enumerate(points(12)):
        if i == 4:
            for p in net.parameters():
                p.data = p.data * 0.5
        if i == 8:
            net.load_state_dict({k: v * 1.5 for k, v in net.state_dict().items()}, assign=True)
        t.note(step(x, y))
    t.end(net)


def optimizer_state_forgotten(t):
    net = mlp(8, 16, 4)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    step = t.step(stepper(t.model(net), optimizer))
    for i, (x, y) in enumerate(points(12)):
        if i == 6:
            optimizer.state.clear()
        t.note(step(x, y))
    t.end(net, optimizer)


def optimizer_exchanged(t):
    net = mlp(8, 16, 4)
    model = t.model(net)
    kept = {"optimizer": torch.optim.Adam(net.parameters(), lr=1e-2)}

    def train_step(x, y):
        kept["optimizer"].zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        kept["optimizer"].step()
        return loss

    step = t.step(train_step)
    for i, (x, y) in enumerate(points(12)):
        if i == 6:
            kept["optimizer"] = torch.optim.SGD(net.parameters(), lr=1e-2, momentum=0.9)
        t.note(step(x, y))
    t.end(net, kept["optimizer"])


def module_to_double(t):
    net = mlp(8, 16, 4)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    step = t.step(stepper(t.model(net), optimizer))
    for i, (x, y) in enumerate(points(8)):
        if i == 4:
            net.double()
        t.note(step(x.double() if i >= 4 else x, y))
    t.end(net, optimizer)


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.calls = nn.Linear(8, 4), 0
        self.register_buffer("mean", torch.zeros(8))
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        self.calls += 1
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
            self.seen += x.shape[0]
        return self.inner(x - self.mean) / (1 + self.calls * 0.01)


def buffers_in_the_forward(t):
    net = Counting()
    t.train(t.step(stepper(t.model(net), torch.optim.SGD(net.parameters(), lr=0.1))), points(10), net)
    t.note(net.calls)


class Codebook(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(8, 4), nn.Linear(4, 8)
        self.register_buffer("codes", torch.randn(6, 4))
        self.register_buffer("count", torch.ones(6))

    def forward(self, x):
        z = self.encoder(x)
        chosen = F.one_hot(torch.cdist(z, self.codes).argmin(1), 6).to(z.dtype)
        q = chosen @ self.codes
        if self.training:
            with torch.no_grad():
                self.count.mul_(0.9).add_(chosen.sum(0), alpha=0.1)
                self.codes.lerp_((chosen.t() @ z) / self.count.unsqueeze(1), 0.1)
        return self.decoder(z + (q - z).detach()), F.mse_loss(z, q.detach())


def codebook_by_averages(t):
    net = Codebook()
    model, optimizer = t.model(net), torch.optim.Adam(net.parameters(), lr=1e-3, eps=1e-4)

    def train_step(x, _):
        optimizer.zero_grad()
        out, extra = model(x)
        loss = F.mse_loss(out, x) + 0.25 * extra
        loss.backward()
        optimizer.step()
        return loss

    t.train(t.step(train_step), points(8), net)


class Stateful(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.head, self.h = nn.GRUCell(8, 8), nn.Linear(8, 4), None

    def forward(self, x):
        self.h = self.rnn(x, self.h.detach() if self.h is not None else None)
        return self.head(self.h)


def state_in_an_attribute(t):
    net = Stateful()
    t.train(t.step(stepper(t.model(net), torch.optim.SGD(net.parameters(), lr=0.1))), points(8), net)
    t.note(net.h)


def batch_norm_variants(t):
    net = nn.Sequential(nn.Linear(8, 16, bias=False), nn.BatchNorm1d(16, momentum=None), nn.ReLU(),
                        nn.Linear(16, 16, bias=False), nn.BatchNorm1d(16, track_running_stats=False, affine=False),
                        nn.Linear(16, 4))  # fmt: skip
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    step = t.step(stepper(t.model(net), optimizer))
    for i, (x, y) in enumerate(points(9)):
        net[1].eval() if i >= 6 else None
        t.note(step(x, y))
    t.end(net)


def depth_by_chance(t):
    class Deep(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers, self.head = nn.ModuleList(nn.Linear(8, 8) for _ in range(2)), nn.Linear(8, 4)

        def forward(self, x):
            for layer in self.layers:
                if self.training and random.random() < 0.3:
                    continue
                x = x + torch.tanh(layer(x))
            return self.head(x)

    random.seed(0)
    net = Deep()
    t.train(t.step(stepper(t.model(net), torch.optim.SGD(net.parameters(), lr=0.1))), points(12), net)


@dataclasses.dataclass
class Batch:
    x: torch.Tensor
    y: torch.Tensor
    weight: float = 1.0


def batches_of_many_kinds(t):
    net = mlp(8, 16, 4)
    model, optimizer = t.model(net), torch.optim.SGD(net.parameters(), lr=0.1)

    def train_step(batch, *, scale=1.0):
        x, y = (batch["x"], batch["y"]) if isinstance(batch, dict) else (batch.x, batch.y)
        optimizer.zero_grad()
        loss = scale * F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return {"loss": loss, "size": len(y)}

    step = t.step(train_step)
    for i, (x, y) in enumerate(points(10)):
        t.note(step({"x": x, "y": y}, scale=1 / (i + 1)) if i % 2 else step(Batch(x, y)))
    t.end(net)


def numpy_comes_in(t):
    net = mlp(8, 16, 4)
    model, optimizer = t.model(net), torch.optim.SGD(net.parameters(), lr=0.1)

    def train_step(x, y):
        x, y = torch.from_numpy(x), torch.as_tensor(y)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach().numpy().item()

    t.train(t.step(train_step), [(x.numpy(), y.numpy()) for x, y in points(6)], net)


def outputs_kept_and_used_later(t):
    """Consistency with the outputs of the step before."""
    net = mlp(8, 16, 4)
    model, optimizer = t.model(net), torch.optim.SGD(net.parameters(), lr=0.1)
    kept = []

    def train_step(x, y):
        optimizer.zero_grad()
        out = model(x)
        loss = F.cross_entropy(out, y)
        if kept:
            loss = loss + 0.1 * F.mse_loss(out, kept[-1])
        loss.backward()
        optimizer.step()
        kept.append(out.detach())
        return loss, out

    t.train(t.step(train_step), points(6), net)
    t.note(kept)


def replay_buffer(t):
    net = mlp(8, 16, 4)
    model, optimizer = t.model(net), torch.optim.SGD(net.parameters(), lr=0.1)
    memory_x, memory_y, at = torch.zeros(32, 8), torch.zeros(32, dtype=torch.long), 0

    def train_step(x, y):
        nonlocal at
        memory_x[at:at + 16] = x
        memory_y[at:at + 16].copy_(y)
        at = (at + 16) % 32
        chosen = torch.randint(0, 32, (16,))
        optimizer.zero_grad()
        loss = F.cross_entropy(model(memory_x[chosen]), memory_y[chosen])
        loss.backward()
        optimizer.step()
        return loss

    t.train(t.step(train_step), points(10), net)
    t.note(memory_x, memory_y, at)


def caught_in_the_step(t):
    net = mlp(8, 16, 4)
    model, optimizer = t.model(net), torch.optim.SGD(net.parameters(), lr=0.1)
    skipped = []

    def train_step(x, y):
        optimizer.zero_grad()
        try:
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        except (RuntimeError, IndexError, ValueError) as error:
            skipped.append(type(error).__name__)
            return None
        return loss

    batches = [(x, y[:5] if i in (3, 6) else y) for i, (x, y) in enumerate(points(9))]
    t.train(t.step(train_step), batches, net)
    t.note(skipped)


def wrong_labels_raise(t):
    net = mlp(8, 16, 4)
    step = t.step(stepper(t.model(net), torch.optim.SGD(net.parameters(), lr=0.1)))
    for i, (x, y) in enumerate(points(8)):
        try:
            t.note(step(x, y + 100 if i in (3, 5) else y))
        except IndexError as error:
            t.note(str(error))
    t.end(net)


def both_are_compiled(t):
    net = mlp(8, 16, 4)
    model, optimizer = t.model(t.model(net)), torch.optim.AdamW(net.parameters(), lr=1e-2)
    t.train(t.step(t.step(stepper(model, optimizer))), points(6), net, optimizer)


def modules_called_several_times(t):
    """Shared layers, a model that is called for each of many parts, gradients summed."""
    layer, head = nn.Linear(8, 8), nn.Linear(8, 4)
    net = nn.Sequential(layer, nn.Tanh(), layer, nn.Tanh(), head)
    model, optimizer = t.model(net), torch.optim.SGD(net.parameters(), lr=0.1)

    def train_step(x, y):
        optimizer.zero_grad()
        out = torch.cat([model(part) for part in x.split(4)])
        loss = F.cross_entropy(out, y)
        loss.backward()
        optimizer.step()
        return loss

    t.train(t.step(train_step), points(6), net)


def scaler_that_is_off(t):
    net = mlp(8, 16, 4)
    model, optimizer = t.model(net), torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", enabled=False)

    def train_step(x, y):
        optimizer.zero_grad()
        with torch.autocast("cpu", enabled=False):
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss

    t.train(t.step(train_step), points(6), net)


def some_parameters_without_gradients(t):
    """A part that only some batches use; its gradients stay what they were, or are None."""
    net = nn.ModuleDict(dict(body=mlp(8, 16), left=nn.Linear(16, 4), right=nn.Linear(16, 4)))
    body = t.model(net["body"])
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)

    def train_step(x, y, left):
        optimizer.zero_grad()
        loss = F.cross_entropy(net["left" if left else "right"](body(x)), y)
        loss.backward()
        optimizer.step()
        return loss

    t.train(t.step(train_step), [(x, y, i % 3 == 0) for i, (x, y) in enumerate(points(12))], net, optimizer)


def zeroed_in_place(t):
    net = mlp(8, 16, 4)
    model, optimizer = t.model(net), torch.optim.SGD(net.parameters(), lr=0.1)

    def train_step(x, y):
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        return loss

    t.train(t.step(train_step), points(6), net)


def dropped_behind_the_step(t):
    net = mlp(8, 16, 4)
    model, optimizer = t.model(net), torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.5)

    def train_step(x, y):
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    t.train(t.step(train_step), points(6), net)


def gradients_kept_from_before(t):
    """Gradients of the last step are still there, and are read before they are dropped."""
    net = mlp(8, 16, 4)
    model, optimizer = t.model(net), torch.optim.SGD(net.parameters(), lr=0.1)

    def train_step(x, y):
        before = [p.grad.clone() if p.grad is not None else torch.zeros_like(p) for p in net.parameters()]
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        with torch.no_grad():
            for p, old in zip(net.parameters(), before):
                p.grad += 0.5 * old
        optimizer.step()
        return loss

    t.train(t.step(train_step), points(8), net)


def noise_with_a_generator(t):
    net = mlp(8, 16, 1)
    model, optimizer = t.model(net), torch.optim.SGD(net.parameters(), lr=0.05)
    generator = torch.Generator().manual_seed(7)

    def train_step(x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x + 0.1 * torch.randn(x.shape, generator=generator)), y)
        loss.backward()
        optimizer.step()
        return loss

    t.train(t.step(train_step), values(8), net)


RUNS = (parameters_replaced, optimizer_state_forgotten, optimizer_exchanged, module_to_double, buffers_in_the_forward,
        codebook_by_averages, state_in_an_attribute, batch_norm_variants, depth_by_chance, batches_of_many_kinds,
        numpy_comes_in, outputs_kept_and_used_later, replay_buffer, caught_in_the_step, wrong_labels_raise,
        both_are_compiled, modules_called_several_times, scaler_that_is_off, some_parameters_without_gradients,
        zeroed_in_place, dropped_behind_the_step, gradients_kept_from_before, noise_with_a_generator)  # fmt: skip
