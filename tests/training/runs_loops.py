"""What loops do around a step: accumulation, checkpoints, validation, frozen layers, other sizes."""

import copy
import io
import random

import torch
import torch.nn.functional as F
from runs_data import images, mlp, points, stepper, tokens, values
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential
from torch.utils.data import DataLoader, TensorDataset


def norm_net():
    return nn.Sequential(nn.Linear(8, 16, bias=False), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 4))


def accumulation_in_the_loop(t):
    net = mlp(8, 16, 4)
    model, optimizer = t.model(net), torch.optim.Adam(net.parameters(), lr=1e-2)

    def micro_step(x, y):
        loss = F.cross_entropy(model(x), y) / 4
        loss.backward()
        return loss

    step = t.step(micro_step)
    for i, (x, y) in enumerate(points(16)):
        t.note(step(x, y))
        if (i + 1) % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()
    t.end(net, optimizer)


def accumulation_in_the_step(t):
    net = mlp(8, 16, 4)
    model, optimizer = t.model(net), torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

    def train_step(i, x, y):
        loss = F.cross_entropy(model(x), y)
        (loss / 3).backward()
        if (i + 1) % 3 == 0:
            nn.utils.clip_grad_value_(net.parameters(), 0.05)
            optimizer.step()
            optimizer.zero_grad()
        return loss

    t.train(t.step(train_step), [(i, x, y) for i, (x, y) in enumerate(points(18))], net, optimizer)


def accumulation_of_chunks(t):
    net = mlp(8, 16, 4)
    model, optimizer = t.model(net), torch.optim.AdamW(net.parameters(), lr=1e-2)

    def train_step(x, y):
        optimizer.zero_grad(set_to_none=False)
        total = 0.0
        for a, b in zip(x.chunk(4), y.chunk(4)):
            loss = F.cross_entropy(model(a), b) / 4
            loss.backward()
            total += loss.item()
        optimizer.step()
        return total

    t.train(t.step(train_step), points(10), net, optimizer)


def data_loader_with_a_rest(t):
    net = norm_net()
    model, optimizer = t.model(net), torch.optim.SGD(net.parameters(), lr=0.05)
    x = torch.randn(44, 8)
    data = TensorDataset(x, x[:, :4].argmax(1))
    step = t.step(stepper(model, optimizer))
    for epoch in range(3):
        loader = DataLoader(data, batch_size=16, shuffle=True, generator=torch.Generator().manual_seed(epoch))
        seen = 0.0
        for a, b in loader:
            seen += step(a, b).item() * a.size(0)
        t.note(seen / len(data))
    t.end(net, optimizer)


def growing_sequences(t):
    net = nn.Sequential(nn.Embedding(20, 8), nn.Linear(8, 20))
    model, optimizer = t.model(net), torch.optim.SGD(net.parameters(), lr=0.1)

    def train_step(ids):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(ids[:, :-1]).transpose(1, 2), ids[:, 1:])
        loss.backward()
        optimizer.step()
        return loss

    batches = [(ids[:, :n],) for n, (ids,) in zip((10, 7, 5, 9, 10, 3, 8, 6, 4, 7, 5, 9), tokens(12))]
    t.train(t.step(train_step), batches, net)


def packed_sequences(t):
    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.rnn, self.head = nn.Embedding(20, 8), nn.LSTM(8, 8, batch_first=True), nn.Linear(8, 4)

        def forward(self, ids, lengths):
            packed = nn.utils.rnn.pack_padded_sequence(self.words(ids), lengths, batch_first=True, enforce_sorted=False)
            _, (h, _) = self.rnn(packed)
            return self.head(h[-1])

    net = Reader()
    model, optimizer = t.model(net), torch.optim.SGD(net.parameters(), lr=0.1)

    def train_step(ids, lengths):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(ids, lengths), ids[:, 0] % 4)
        loss.backward()
        optimizer.step()
        return loss

    t.train(t.step(train_step), [(ids, torch.tensor([5, 9, 3, 10 - i % 3])) for i, (ids,) in enumerate(tokens(8))], net)


def validation_in_between(t):
    net = norm_net()
    model, optimizer = t.model(net), torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)

    @torch.no_grad()
    def evaluate(x, y):
        logits = model(x)
        return F.cross_entropy(logits, y).item(), (logits.argmax(1) == y).sum().item() / len(y)

    step, evaluate = t.step(stepper(model, optimizer)), t.step(evaluate)
    for epoch in range(4):
        net.train()
        for i, (x, y) in enumerate(points(4)):
            torch.manual_seed(10 * epoch + i)
            t.note(step(x, y))
        net.eval()
        for x, y in points(2, rows=24):
            t.note(evaluate(x, y))
    t.end(net, optimizer)


def validation_inside_the_step(t):
    net = norm_net()
    model, optimizer = t.model(net), torch.optim.SGD(net.parameters(), lr=0.05)

    def train_step(x, y):
        net.train()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        net.eval()
        with torch.inference_mode():
            accuracy = (model(x).argmax(-1) == y).float().mean()
        return loss.detach(), accuracy.item()

    t.train(t.step(train_step), points(8), net, optimizer)


def set_grad_enabled_phases(t):
    net = norm_net()
    model, optimizer = t.model(net), torch.optim.SGD(net.parameters(), lr=0.05)

    def run_phase(x, y, phase):
        net.train(phase == "train")
        optimizer.zero_grad()
        with torch.set_grad_enabled(phase == "train"):
            out = model(x)
            _, preds = torch.max(out, 1)
            loss = F.cross_entropy(out, y)
            if phase == "train":
                loss.backward()
                optimizer.step()
        return loss.item() * x.size(0), torch.sum(preds == y.data)

    batches = [(x, y, "val" if i % 3 == 2 else "train") for i, (x, y) in enumerate(points(12))]
    t.train(t.step(run_phase), batches, net, optimizer)


def checkpoint_saved_and_loaded(t):
    """Half way everything is stored, made anew, loaded and compiled again."""
    batches = list(points(12))

    def build():
        net = norm_net()
        optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
        return net, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)

    net, optimizer, schedule = build()
    step = t.step(stepper(t.model(net), optimizer))
    file = io.BytesIO()
    for i, (x, y) in enumerate(batches):
        if i == 6:
            torch.save({"net": net.state_dict(), "opt": optimizer.state_dict(), "lr": schedule.state_dict()}, file)
            file.seek(0)
            net, optimizer, schedule = build()
            kept = torch.load(file)
            net.load_state_dict(kept["net"])
            optimizer.load_state_dict(kept["opt"])
            schedule.load_state_dict(kept["lr"])
            step = t.step(stepper(t.model(net), optimizer))
        torch.manual_seed(i)
        t.note(step(x, y))
        schedule.step()
    t.end(net, optimizer, schedule)


def loaded_into_the_same_objects(t):
    net = norm_net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    step = t.step(stepper(t.model(net), optimizer))
    best = None
    for i, (x, y) in enumerate(points(12)):
        torch.manual_seed(i)
        t.note(step(x, y))
        if i == 3:
            best = copy.deepcopy(net.state_dict()), copy.deepcopy(optimizer.state_dict())
        if i == 8:
            net.load_state_dict(best[0])
            optimizer.load_state_dict(best[1])
    t.end(net, optimizer)


def compiled_then_eager_then_compiled(t):
    net = norm_net()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    model = t.model(net)
    eager, fast = stepper(net, optimizer), t.step(stepper(model, optimizer))
    for i, (x, y) in enumerate(points(12)):
        torch.manual_seed(i)
        t.note((eager if 4 <= i < 8 else fast)(x, y))
    t.end(net, optimizer)


def deepcopy_of_the_model(t):
    net = norm_net()
    model = t.model(net)
    step = t.step(stepper(model, torch.optim.SGD(net.parameters(), lr=0.1)))
    for x, y in points(3):
        t.note(step(x, y))
    twin = copy.deepcopy(model)
    other = t.step(stepper(twin, torch.optim.SGD(twin.parameters(), lr=0.01)))
    for x, y in points(4):
        t.note(step(x, y), other(x, y))
    t.note({k: v for k, v in twin.state_dict().items() if not k.startswith("_")})
    t.end(net)


def two_steps_share_a_model(t):
    body, a, b = mlp(8, 16, 16), nn.Linear(16, 4), nn.Linear(16, 8)
    model = t.model(body)
    first = torch.optim.SGD([*body.parameters(), *a.parameters()], lr=0.1)
    second = torch.optim.Adam([*body.parameters(), *b.parameters()], lr=1e-2)

    def classify(x, y):
        first.zero_grad()
        loss = F.cross_entropy(a(model(x)), y)
        loss.backward()
        first.step()
        return loss

    def reconstruct(x):
        second.zero_grad()
        loss = F.mse_loss(b(model(x)), x)
        loss.backward()
        second.step()
        return loss

    classify, reconstruct = t.step(classify), t.step(reconstruct)
    for x, y in points(8):
        t.note(classify(x, y), reconstruct(x))
    t.end(body, a, b, first, second)


def several_losses_retain_graph(t):
    body, a, b = mlp(8, 16, 16), nn.Linear(16, 4), nn.Linear(16, 1)
    model = t.model(body)
    optimizer = torch.optim.SGD([*body.parameters(), *a.parameters(), *b.parameters()], lr=0.05)

    def train_step(x, y):
        optimizer.zero_grad()
        h = model(x)
        first = F.cross_entropy(a(h), y)
        second = F.mse_loss(b(h).squeeze(-1), x[:, 0])
        first.backward(retain_graph=True)
        second.backward()
        optimizer.step()
        return first, second

    t.train(t.step(train_step), points(8), body, a, b)


def two_models_two_backwards(t):
    a, b = mlp(8, 16, 4), mlp(8, 16, 4)
    call_a, call_b = t.model(a), t.model(b)
    opts = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (a, b)]

    def train_step(x, y):
        for o in opts:
            o.zero_grad()
        p, q = F.log_softmax(call_a(x), 1), F.log_softmax(call_b(x), 1)
        la = F.nll_loss(p, y) + F.kl_div(p, q.detach(), log_target=True, reduction="batchmean")
        lb = F.nll_loss(q, y) + F.kl_div(q, p.detach(), log_target=True, reduction="batchmean")
        la.backward()
        lb.backward()
        for o in opts:
            o.step()
        return la, lb

    t.train(t.step(train_step), points(8), a, b)


def distillation(t):
    teacher, student = mlp(8, 32, 4).eval(), mlp(8, 8, 4)
    for p in teacher.parameters():
        p.requires_grad = False
    teach, learn = t.model(teacher), t.model(student)
    optimizer = torch.optim.Adam(student.parameters(), lr=1e-2)
    temperature, alpha = 2.0, 0.3

    def train_step(x, y):
        with torch.no_grad():
            soft = F.softmax(teach(x) / temperature, dim=1)
        out = learn(x)
        loss = F.kl_div(F.log_softmax(out / temperature, dim=1), soft, reduction="batchmean") * temperature**2
        loss = alpha * F.cross_entropy(out, y) + (1 - alpha) * loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    t.train(t.step(train_step), points(10), teacher, student, optimizer)


class Lora(nn.Module):
    def __init__(self, linear, rank=2):
        super().__init__()
        self.linear = linear
        for p in linear.parameters():
            p.requires_grad_(False)
        self.a = nn.Parameter(torch.randn(rank, linear.in_features) * 0.1)
        self.b = nn.Parameter(torch.zeros(linear.out_features, rank))

    def forward(self, x):
        return self.linear(x) + (x @ self.a.T @ self.b.T) * 0.5


def lora(t):
    net = mlp(8, 16, 4)
    net[0], net[2] = Lora(net[0]), Lora(net[2])
    model = t.model(net)
    optimizer = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=1e-2)
    t.train(t.step(stepper(model, optimizer)), points(10), net, optimizer)


def gradual_unfreezing(t):
    net = mlp(8, 16, 16, 4)
    for p in net.parameters():
        p.requires_grad = False
    model, optimizer = t.model(net), torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    step = t.step(stepper(model, optimizer))
    for i, (x, y) in enumerate(points(12)):
        if i % 4 == 0:
            for p in net[4 - i // 2].parameters():
                p.requires_grad = True
        t.note(step(x, y))
    t.end(net, optimizer)


def replaced_head(t):
    net = mlp(8, 16, 3)
    model = t.model(net)
    step = t.step(stepper(model, torch.optim.SGD(net.parameters(), lr=0.1)))
    for x, y in points(4, classes=3):
        t.note(step(x, y))
    net[2] = nn.Linear(16, 5)
    step = t.step(stepper(model, torch.optim.SGD(net.parameters(), lr=0.1)))
    for x, y in points(4, classes=5):
        t.note(step(x, y))
    t.end(net)


def early_stopping(t):
    net = mlp(8, 16, 4)
    model, optimizer = t.model(net), torch.optim.Adam(net.parameters(), lr=0.05)
    best, bad = float("inf"), 0
    step = t.step(stepper(model, optimizer))
    for x, y in points(60):
        loss = step(x, y).item()
        t.note(loss)
        if loss < best - 1e-3:
            best, bad, kept = loss, 0, copy.deepcopy(net.state_dict())
        else:
            bad += 1
            if bad == 4:
                break
    net.load_state_dict(kept)
    t.end(net)


class Trainer:
    """A class of the user's, with a step that keeps count and history."""

    def __init__(self, model, optimizer, clip):
        self.model, self.optimizer, self.clip = model, optimizer, clip
        self.history, self.count, self.running = [], 0, None

    def step(self, x, y):
        self.model.train()
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(x), y)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        self.optimizer.step()
        self.count += 1
        value = loss.item()
        self.running = value if self.running is None else 0.9 * self.running + 0.1 * value
        self.history.append(value)
        return {"loss": value, "norm": norm.item(), "running": self.running}


def trainer_class(t):
    net = norm_net()
    trainer = Trainer(t.model(net), torch.optim.SGD(net.parameters(), lr=0.1), 0.3)
    t.train(t.step(trainer.step), points(12), net)
    t.note(trainer.history, trainer.count)


def nan_in_the_loss(t):
    net = mlp(8, 16, 1)
    model, optimizer = t.model(net), torch.optim.SGD(net.parameters(), lr=0.1)

    def train_step(x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        if torch.isnan(loss):
            return None
        loss.backward()
        optimizer.step()
        return loss

    batches = [(x / 0.0 * 0.0 if i in (3, 6) else x, y) for i, (x, y) in enumerate(values(10))]
    t.train(t.step(train_step), batches, net)


def nan_goes_through(t):
    net = mlp(8, 16, 1)
    model, optimizer = t.model(net), torch.optim.Adam(net.parameters(), lr=0.1)
    batches = [(x * float("nan") if i == 4 else x, y) for i, (x, y) in enumerate(values(7))]
    t.train(t.step(stepper(model, optimizer, F.mse_loss)), batches, net, optimizer)


def nonfinite_norm_raises(t):
    net = mlp(8, 16, 1)
    model, optimizer = t.model(net), torch.optim.SGD(net.parameters(), lr=0.1)

    def train_step(x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0, error_if_nonfinite=True)
        optimizer.step()
        return loss

    step = t.step(train_step)
    for i, (x, y) in enumerate(values(8)):
        try:
            t.note(step(x * float("inf") if i in (3, 5) else x, y))
        except RuntimeError as error:
            t.note(str(error))
    t.end(net)


def autocast_bfloat16(t):
    net = nn.Sequential(nn.Linear(8, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 4))
    model, optimizer = t.model(net), torch.optim.SGD(net.parameters(), lr=0.05)

    def train_step(x, y):
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device_type="cpu", dtype=torch.bfloat16):
            out = model(x)
            loss = F.cross_entropy(out, y)
        loss.backward()
        optimizer.step()
        return loss, out.dtype is torch.bfloat16

    t.train(t.step(train_step), points(6), net)


def scaled(t, dtype=torch.float16, overflow=()):
    net = mlp(8, 32, 4)
    model, optimizer = t.model(net), torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=3)

    def train_step(x, y):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=dtype):
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        return loss, scaler.get_scale()

    batches = [(x * 1e30 if i in overflow else x, y) for i, (x, y) in enumerate(points(10))]
    t.train(t.step(train_step), batches, net, optimizer, scaler)


def scaler_float16(t):
    scaled(t)


def scaler_with_overflow(t):
    scaled(t, torch.bfloat16, (3, 4, 7))


def model_in_bfloat16(t):
    net = mlp(8, 16, 4).to(torch.bfloat16)
    model, optimizer = t.model(net), torch.optim.SGD(net.parameters(), lr=0.05)
    batches = ((x.bfloat16(), y) for x, y in points(5))
    t.train(t.step(stepper(model, optimizer)), batches, net)


class Checkpointed(nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.first, self.second, self.head = mlp(8, 32, 16), mlp(16, 32, 16), nn.Linear(16, 4)
        self.drop, self.reentrant = nn.Dropout(0.2), reentrant

    def forward(self, x):
        x = self.first(x)
        x = checkpoint(lambda h: self.drop(self.second(h)), x, use_reentrant=self.reentrant)
        return self.head(x)


# A graph ends in functions that are called by functions that are called; each call compiles one level more.
def checkpoint_reentrant(t):
    net = Checkpointed(True)
    t.train(t.step(stepper(t.model(net), torch.optim.SGD(net.parameters(), lr=0.1))), points(12), net)


def checkpoint_without_reentry(t):
    net = Checkpointed(False)
    t.train(t.step(stepper(t.model(net), torch.optim.SGD(net.parameters(), lr=0.1))), points(12), net)


def checkpoint_of_a_sequence(t):
    net = mlp(8, 16, 16, 4)

    class Whole(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, x):
            return checkpoint_sequential(self.net, 2, x, use_reentrant=False)

    t.train(t.step(stepper(t.model(Whole()), torch.optim.SGD(net.parameters(), lr=0.1))), points(6), net)


def mixup(t):
    net = norm_net()
    model, optimizer = t.model(net), torch.optim.SGD(net.parameters(), lr=0.1)

    def train_step(x, y):
        lam = torch.distributions.Beta(0.4, 0.4).sample().item()
        order = torch.randperm(x.size(0))
        out = model(lam * x + (1 - lam) * x[order])
        loss = lam * F.cross_entropy(out, y) + (1 - lam) * F.cross_entropy(out, y[order])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    t.train(t.step(train_step), points(10), net)


def cutmix(t):
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 4))
    model, optimizer = t.model(net), torch.optim.SGD(net.parameters(), lr=0.1)
    dice = random.Random(1)

    def train_step(x, y, left, top, size):
        order = torch.randperm(x.size(0))
        x = x.clone()
        x[:, :, top:top + size, left:left + size] = x[order, :, top:top + size, left:left + size]
        lam = 1 - size * size / 64
        out = model(x)
        loss = lam * F.cross_entropy(out, y) + (1 - lam) * F.cross_entropy(out, y[order])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    t.train(t.step(train_step), [(x, y, dice.randrange(3), dice.randrange(3), 4) for x, y in images(10)], net)


def l1_penalty_over_parameters(t):
    net = mlp(8, 16, 4)
    model, optimizer = t.model(net), torch.optim.SGD(net.parameters(), lr=0.1)

    def train_step(x, y):
        optimizer.zero_grad()
        penalty = sum(p.abs().sum() for name, p in net.named_parameters() if "bias" not in name)
        loss = F.cross_entropy(model(x), y) + 1e-3 * penalty
        loss.backward()
        optimizer.step()
        return loss

    t.train(t.step(train_step), points(8), net)


def class_weights_and_ignored(t):
    net = mlp(8, 16, 4)
    model, optimizer = t.model(net), torch.optim.SGD(net.parameters(), lr=0.1)
    criterion = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 0.5, 1.0]), ignore_index=3, reduction="none")

    def focal(out, y):
        ce = criterion(out, y)
        return ((1 - torch.exp(-ce)) ** 2 * ce).mean()

    t.train(t.step(stepper(model, optimizer, focal)), points(8), net)


def metrics_in_lists(t):
    net = mlp(8, 16, 4)
    model, optimizer = t.model(net), torch.optim.SGD(net.parameters(), lr=0.1)
    losses, hits, total = [], 0, 0

    def train_step(x, y):
        nonlocal hits, total
        optimizer.zero_grad()
        out = model(x)
        loss = F.cross_entropy(out, y)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        hits += (out.argmax(1) == y).sum().item()
        total += y.size(0)
        return hits / total

    t.train(t.step(train_step), points(12), net)
    t.note(losses, hits, total)


def whole_epoch_compiled(t):
    net = mlp(8, 16, 4)
    model, optimizer = t.model(net), torch.optim.SGD(net.parameters(), lr=0.1)

    def epoch(batches):
        net.train()
        total = 0.0
        for x, y in batches:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            total += loss.item()
        return total / len(batches)

    t.train(t.step(epoch), [(list(points(4)),)] * 5, net)


def printing_now_and_then(t):
    net = mlp(8, 16, 4)
    model, optimizer = t.model(net), torch.optim.SGD(net.parameters(), lr=0.1)
    lines = []

    def train_step(i, x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        if i % 5 == 0:
            lines.append(f"step {i}: loss {loss.item():.3f}")
        return loss

    t.train(t.step(train_step), [(i, x, y) for i, (x, y) in enumerate(points(22))], net)
    t.note(lines)


RUNS = (accumulation_in_the_loop, accumulation_in_the_step, accumulation_of_chunks, data_loader_with_a_rest,
        growing_sequences, packed_sequences, validation_in_between, validation_inside_the_step, set_grad_enabled_phases,
        checkpoint_saved_and_loaded, loaded_into_the_same_objects, compiled_then_eager_then_compiled, deepcopy_of_the_model,
        two_steps_share_a_model, several_losses_retain_graph, two_models_two_backwards, distillation, lora,
        gradual_unfreezing, replaced_head, early_stopping, trainer_class, nan_in_the_loss, nan_goes_through,
        nonfinite_norm_raises, autocast_bfloat16, scaler_float16, scaler_with_overflow, model_in_bfloat16,
        checkpoint_reentrant, checkpoint_without_reentry, checkpoint_of_a_sequence, mixup, cutmix,
        l1_penalty_over_parameters, class_weights_and_ignored, metrics_in_lists, whole_epoch_compiled,
        printing_now_and_then)  # fmt: skip
