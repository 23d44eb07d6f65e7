"""Optimizers, their groups, schedules of learning rates, averages."""

import copy
import math

import torch
import torch.nn.functional as F
from runs_data import mlp, points, values
from torch import nn
from torch.optim import lr_scheduler, swa_utils


def fit(t, make, steps=8, net=None):
    """`make(parameters)` gives the optimizer."""
    net = net or mlp(8, 16, 4)
    model, optimizer = t.model(net), make(net.parameters())

    def train_step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    t.train(t.step(train_step), points(steps), net, optimizer)


def optimizer_run(name, kind, **options):
    def run(t):
        fit(t, lambda parameters: kind(parameters, **options))

    run.__name__ = name
    return run


def muon(t):
    """Matrices by Muon, vectors by AdamW."""
    net = mlp(8, 16, 4)
    model = t.model(net)
    optimizers = [torch.optim.Muon([p for p in net.parameters() if p.ndim == 2], lr=0.02),
                  torch.optim.AdamW([p for p in net.parameters() if p.ndim < 2], lr=1e-3)]  # fmt: skip

    def train_step(x, y):
        for o in optimizers:
            o.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        for o in optimizers:
            o.step()
        return loss

    t.train(t.step(train_step), points(8), net, *optimizers)


def lbfgs(t, line_search=None):
    """In double precision: eager itself, changed by one bit, is elsewhere after a few line searches."""
    net = mlp(8, 8, 1).double()
    model = t.model(net)
    optimizer = torch.optim.LBFGS(net.parameters(), lr=0.1, max_iter=4, history_size=5, line_search_fn=line_search)

    def train_step(x, y):
        def closure():
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            return loss

        return optimizer.step(closure)

    t.train(t.step(train_step), values(6, dtype=torch.float64), net, optimizer)


def lbfgs_strong_wolfe(t):
    lbfgs(t, "strong_wolfe")


def sgd_with_closure(t):
    net = mlp(8, 16, 4)
    model = t.model(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, nesterov=True, momentum=0.9)

    def train_step(x, y):
        def closure():
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            return loss

        return optimizer.step(closure)

    t.train(t.step(train_step), points(8), net, optimizer)


def maximize(t):
    net = mlp(8, 16, 4)
    model = t.model(net)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, maximize=True)

    def train_step(x, y):
        optimizer.zero_grad()
        reward = F.log_softmax(model(x), 1).gather(1, y[:, None]).mean()
        reward.backward()
        optimizer.step()
        return reward

    t.train(t.step(train_step), points(8), net, optimizer)


class Lion(torch.optim.Optimizer):
    """An optimizer of the user's own."""

    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0):
        if lr <= 0:
            raise ValueError(f"bad rate {lr}")
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                p.data.mul_(1 - group["lr"] * group["weight_decay"])
                state = self.state[p]
                if len(state) == 0:
                    state["exp_avg"] = torch.zeros_like(p)
                    state["step"] = 0
                state["step"] += 1
                beta1, beta2 = group["betas"]
                update = state["exp_avg"] * beta1 + p.grad * (1 - beta1)
                p.add_(update.tanh(), alpha=-group["lr"])
                state["exp_avg"].mul_(beta2).add_(p.grad, alpha=1 - beta2)
        return loss


def custom_optimizer(t):
    fit(t, lambda parameters: Lion(parameters, lr=1e-2, weight_decay=0.1), 12)


class Sam(torch.optim.Optimizer):
    """Two passes for a step: one to climb, one to descend."""

    def __init__(self, params, base, rho=0.05, **options):
        super().__init__(params, dict(rho=rho, **options))
        self.base = base(self.param_groups, **options)
        self.param_groups = self.base.param_groups

    @torch.no_grad()
    def first_step(self):
        norm = torch.norm(torch.stack([p.grad.norm(p=2) for g in self.param_groups for p in g["params"]]), p=2)
        for group in self.param_groups:
            scale = group["rho"] / (norm + 1e-12)
            for p in group["params"]:
                self.state[p]["old"] = p.data.clone()
                p.add_(p.grad * scale)
        self.zero_grad()

    @torch.no_grad()
    def second_step(self):
        for group in self.param_groups:
            for p in group["params"]:
                p.data = self.state[p]["old"]
        self.base.step()
        self.zero_grad()


def sharpness_aware(t):
    net = mlp(8, 16, 4)
    model, optimizer = t.model(net), Sam(net.parameters(), torch.optim.SGD, lr=0.1, momentum=0.9)

    def train_step(x, y):
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.first_step()
        F.cross_entropy(model(x), y).backward()
        optimizer.second_step()
        return loss

    t.train(t.step(train_step), points(8), net)


def sgd_by_hand(t):
    net = mlp(8, 16, 4)
    model = t.model(net)

    def train_step(x, y, lr):
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        with torch.no_grad():
            for p in net.parameters():
                p -= lr * p.grad
                p.grad.zero_()
        return loss

    t.train(t.step(train_step), [(x, y, 0.1 / (1 + i)) for i, (x, y) in enumerate(points(8))], net)


def raw_tensors_by_hand(t):
    """No modules: tensors, .data and .grad = None."""
    w1, b1 = torch.randn(8, 16, requires_grad=True), torch.zeros(16, requires_grad=True)
    w2 = (torch.randn(16, 1) * 0.1).requires_grad_()

    def train_step(x, y):
        loss = (torch.tanh(x @ w1 + b1) @ w2 - y).pow(2).mean()
        loss.backward()
        for w in (w1, b1, w2):
            w.data -= 0.05 * w.grad.data
            w.grad = None
        return loss.item()

    t.train(t.step(train_step), values(10))
    t.note(w1, b1, w2)


def param_groups_with_own_rates(t):
    net = nn.ModuleDict(dict(body=mlp(8, 16, 16), head=nn.Linear(16, 4)))
    body, head = t.model(net["body"]), t.model(net["head"])
    optimizer = torch.optim.SGD([{"params": net["body"].parameters(), "lr": 1e-3},
                                 {"params": net["head"].parameters()}], lr=0.1, momentum=0.9)  # fmt: skip

    def train_step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(head(body(x)), y)
        loss.backward()
        optimizer.step()
        return loss

    t.train(t.step(train_step), points(8), net, optimizer)


def added_param_group(t):
    """The body is unfrozen half way."""
    net = nn.ModuleDict(dict(body=mlp(8, 16, 16), head=nn.Linear(16, 4)))
    body, head = t.model(net["body"]), t.model(net["head"])
    net["body"].requires_grad_(False)
    optimizer = torch.optim.AdamW(net["head"].parameters(), lr=1e-2)

    def train_step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(head(body(x)), y)
        loss.backward()
        optimizer.step()
        return loss

    step = t.step(train_step)
    for i, (x, y) in enumerate(points(12)):
        if i == 6:
            net["body"].requires_grad_(True)
            optimizer.add_param_group({"params": net["body"].parameters(), "lr": 1e-3})
        t.note(step(x, y))
    t.end(net, optimizer)


def rate_changed_by_hand(t):
    net = mlp(8, 16, 4)
    model, optimizer = t.model(net), torch.optim.Adam(net.parameters(), lr=1e-2)

    def train_step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    def batches():
        for i, batch in enumerate(points(16)):
            for group in optimizer.param_groups:
                group["lr"] = 1e-2 * (1 + math.cos(math.pi * i / 16)) / 2
            yield batch

    t.train(t.step(train_step), batches(), net, optimizer)


def rate_in_a_tensor(t):
    net = mlp(8, 16, 4)
    model, optimizer = t.model(net), torch.optim.Adam(net.parameters(), lr=torch.tensor(1e-2), foreach=False)
    schedule = lr_scheduler.ExponentialLR(optimizer, 0.9)

    def train_step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        schedule.step()
        return loss

    t.train(t.step(train_step), points(10), net)


def scheduled(name, make, inside=True, steps=14, kind=torch.optim.SGD, **options):
    """A run with a schedule that is stepped in the step, or behind it."""

    def run(t):
        net = mlp(8, 16, 4)
        model = t.model(net)
        optimizer = kind(net.parameters(), **{"lr": 0.05, "momentum": 0.9, **options} if kind is torch.optim.SGD else {"lr": 1e-2, **options})
        schedule = make(optimizer)

        def train_step(x, y):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            if inside:
                schedule.step()
            return loss

        step = t.step(train_step)
        for x, y in points(steps):
            t.note(step(x, y), schedule.get_last_lr())
            if not inside:
                schedule.step()
        t.end(net, optimizer, schedule)

    run.__name__ = name
    return run


def sequential(optimizer):
    warm = lr_scheduler.LinearLR(optimizer, 0.1, total_iters=4)
    return lr_scheduler.SequentialLR(optimizer, [warm, lr_scheduler.CosineAnnealingLR(optimizer, 10)], milestones=[4])


def chained(optimizer):
    return lr_scheduler.ChainedScheduler([lr_scheduler.ConstantLR(optimizer, 0.3, 3), lr_scheduler.ExponentialLR(optimizer, 0.9)])


SCHEDULES = {
    "step_lr": lambda o: lr_scheduler.StepLR(o, 4, 0.5),
    "multi_step": lambda o: lr_scheduler.MultiStepLR(o, [3, 7, 9], 0.3),
    "exponential": lambda o: lr_scheduler.ExponentialLR(o, 0.9),
    "cosine": lambda o: lr_scheduler.CosineAnnealingLR(o, 10, eta_min=1e-3),
    "warm_restarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 3, 2),
    "one_cycle": lambda o: lr_scheduler.OneCycleLR(o, 0.1, total_steps=20),
    "cyclic": lambda o: lr_scheduler.CyclicLR(o, 1e-3, 0.1, step_size_up=3, mode="triangular2"),
    "polynomial": lambda o: lr_scheduler.PolynomialLR(o, 10, 0.9),
    "lambda_lr": lambda o: lr_scheduler.LambdaLR(o, lambda i: 0.95**i),
    "multiplicative": lambda o: lr_scheduler.MultiplicativeLR(o, lambda i: 0.9),
    "sequential": sequential,
    "chained": chained,
}


def plateau(t):
    net = mlp(8, 16, 4)
    model = t.model(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    schedule = lr_scheduler.ReduceLROnPlateau(optimizer, "min", factor=0.5, patience=1)

    def train_step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        schedule.step(loss.item())
        return loss, optimizer.param_groups[0]["lr"]

    t.train(t.step(train_step), points(16), net, optimizer, schedule)


def plateau_of_epochs(t):
    net = mlp(8, 16, 4)
    model = t.model(net)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    schedule = lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)

    def train_step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    step = t.step(train_step)
    for _ in range(5):
        total = sum(step(x, y) for x, y in points(4))
        schedule.step(total / 4)
        t.note(total, optimizer.param_groups[0]["lr"])
    t.end(net, optimizer)


def averaged(name, inside, **options):
    def run(t):
        net = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))
        model = t.model(net)
        average = swa_utils.AveragedModel(net, **options)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

        def train_step(x, y):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            if inside:
                average.update_parameters(net)
            return loss

        step = t.step(train_step)
        for x, y in points(10):
            t.note(step(x, y))
            if not inside:
                average.update_parameters(net)
        swa_utils.update_bn([x for x, _ in points(3)], average)
        t.end(net, average)

    run.__name__ = name
    return run


def swa_with_schedule(t):
    net = mlp(8, 16, 4)
    model = t.model(net)
    average = swa_utils.AveragedModel(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    usual = lr_scheduler.CosineAnnealingLR(optimizer, 10)
    later = swa_utils.SWALR(optimizer, swa_lr=0.05, anneal_epochs=3)

    def train_step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    step = t.step(train_step)
    for epoch in range(8):
        for x, y in points(2):
            t.note(step(x, y))
        if epoch > 4:
            average.update_parameters(net)
            later.step()
        else:
            usual.step()
    t.end(net, average, optimizer, later)


class Ema:
    """As it stands in many repositories."""

    def __init__(self, module, decay):
        self.module, self.decay, self.updates = copy.deepcopy(module).eval(), decay, 0
        for p in self.module.parameters():
            p.requires_grad_(False)

    @torch.no_grad()
    def update(self, module):
        self.updates += 1
        d = self.decay * (1 - math.exp(-self.updates / 20))
        theirs = module.state_dict()
        for k, v in self.module.state_dict().items():
            if v.dtype.is_floating_point:
                v *= d
                v += (1.0 - d) * theirs[k].detach()


def ema_of_state_dicts(t):
    net = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))
    model, ema = t.model(net), Ema(net, 0.99)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def train_step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        ema.update(net)
        return loss

    t.train(t.step(train_step), points(10), net, ema.module)


def target_network_lerp(t):
    online, target = mlp(8, 16, 4), mlp(8, 16, 4)
    target.load_state_dict(online.state_dict())
    online_call, target_call = t.model(online), t.model(target)
    optimizer = torch.optim.Adam(online.parameters(), lr=1e-2, eps=1e-4)

    def train_step(x, y):
        q = online_call(x).gather(1, y.unsqueeze(1)).squeeze(1)
        with torch.no_grad():
            best = target_call(x + 0.1).max(1)[0]
        loss = F.smooth_l1_loss(q, 1.0 + 0.9 * best)
        optimizer.zero_grad()
        loss.backward()
        for p in online.parameters():
            p.grad.data.clamp_(-1, 1)
        optimizer.step()
        with torch.no_grad():
            for a, b in zip(target.parameters(), online.parameters()):
                a.lerp_(b, 0.05)
        return loss

    t.train(t.step(train_step), points(10), online, target, optimizer)


def foreach_ema_and_clipping(t):
    net, average = mlp(8, 16, 4), mlp(8, 16, 4)
    model = t.model(net)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2, foreach=True, eps=1e-4)

    def train_step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(net.parameters(), 0.1, error_if_nonfinite=True, foreach=True)
        optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(list(average.parameters()), list(net.parameters()), 0.1)
        return loss, norm

    t.train(t.step(train_step), points(10), net, average)


def lookahead_slow_weights(t):
    net = mlp(8, 16, 4)
    model, optimizer = t.model(net), torch.optim.RAdam(net.parameters(), lr=1e-2)
    slow = [p.detach().clone() for p in net.parameters()]
    count = 0

    def train_step(x, y):
        nonlocal count
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        count += 1
        if count % 3 == 0:
            with torch.no_grad():
                for p, s in zip(net.parameters(), slow):
                    s += 0.5 * (p - s)
                    p.copy_(s)
        return loss

    t.train(t.step(train_step), points(14), net, optimizer)
    t.note(slow, count)


O = torch.optim
RUNS = (
    optimizer_run("sgd_nesterov", O.SGD, lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-3),
    optimizer_run("sgd_dampening", O.SGD, lr=0.1, momentum=0.9, dampening=0.1),
    optimizer_run("adam", O.Adam, lr=1e-2),
    optimizer_run("adam_amsgrad", O.Adam, lr=1e-2, amsgrad=True, weight_decay=0.01),
    optimizer_run("adam_fused", O.Adam, lr=1e-2, fused=True),
    optimizer_run("adam_capturable_off_foreach", O.Adam, lr=1e-2, foreach=True),
    optimizer_run("adamw", O.AdamW, lr=1e-2),
    optimizer_run("adamax", O.Adamax, lr=1e-2),
    optimizer_run("nadam", O.NAdam, lr=1e-2, decoupled_weight_decay=True, weight_decay=0.01),
    optimizer_run("radam", O.RAdam, lr=1e-2),
    optimizer_run("adagrad", O.Adagrad, lr=1e-2, lr_decay=0.01, initial_accumulator_value=0.1),
    optimizer_run("adadelta", O.Adadelta, lr=1.0),
    optimizer_run("asgd", O.ASGD, lr=1e-2, t0=3),
    optimizer_run("rmsprop_centered", O.RMSprop, lr=1e-2, centered=True, momentum=0.9),
    optimizer_run("rprop", O.Rprop, lr=1e-2),
    optimizer_run("adafactor", O.Adafactor, lr=1e-2),
    muon, lbfgs, lbfgs_strong_wolfe, sgd_with_closure, maximize, custom_optimizer, sharpness_aware, sgd_by_hand,
    raw_tensors_by_hand, param_groups_with_own_rates, added_param_group, rate_changed_by_hand, rate_in_a_tensor,
    *(scheduled(name + "_inside", make) for name, make in SCHEDULES.items()),
    *(scheduled(name + "_behind", SCHEDULES[name], inside=False, kind=O.Adam) for name in ("step_lr", "cosine", "sequential", "one_cycle")),
    plateau, plateau_of_epochs,
    averaged("swa_inside", True), averaged("swa_behind", False),
    averaged("ema_inside", True, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.9), use_buffers=True),
    averaged("ema_behind", False, avg_fn=lambda a, b, n: 0.9 * a + 0.1 * b),
    swa_with_schedule, ema_of_state_dicts, target_network_lerp, foreach_ema_and_clipping, lookahead_slow_weights,
)  # fmt: skip
