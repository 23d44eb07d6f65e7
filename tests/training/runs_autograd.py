"""Gradients as objects: functions of the user's, hooks, parametrizations, functional calls, gradients of inputs."""

import torch
import torch.nn.functional as F
from runs_data import mlp, points, stepper, values
from torch import nn
from torch.func import functional_call
from torch.nn.utils import parametrize


def simple(t, net, steps=8, lr=0.1):
    optimizer = torch.optim.SGD(net.parameters(), lr=lr)
    t.train(t.step(stepper(t.model(net), optimizer)), points(steps), net)


class Sign(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sign()

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * (x.abs() <= 1)


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.scale = scale
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return -ctx.scale * grad, None


def binary_activations(t):
    class Binary(nn.Module):
        def forward(self, x):
            return Sign.apply(x)

    simple(t, nn.Sequential(nn.Linear(8, 16), Binary(), nn.Linear(16, 4)))


def gradient_reversal(t):
    body, task, domain = mlp(8, 16, 8), nn.Linear(8, 4), nn.Linear(8, 2)
    model = t.model(body)
    optimizer = torch.optim.SGD([*body.parameters(), *task.parameters(), *domain.parameters()], lr=0.1)

    def train_step(x, y, scale):
        optimizer.zero_grad()
        h = model(x)
        loss = F.cross_entropy(task(h), y) + F.cross_entropy(domain(Reverse.apply(h, scale)), y % 2)
        loss.backward()
        optimizer.step()
        return loss

    t.train(t.step(train_step), [(x, y, i / 8) for i, (x, y) in enumerate(points(8))], body, task, domain)


def hook_on_a_parameter(t):
    net = mlp(8, 16, 4)
    net[0].weight.register_hook(lambda grad: grad.clamp(-0.01, 0.01))
    simple(t, net)


def hook_on_an_activation(t):
    net = mlp(8, 16, 4)
    model, optimizer = t.model(net), torch.optim.SGD(net.parameters(), lr=0.1)
    seen = []

    def train_step(x, y):
        optimizer.zero_grad()
        out = model(x)
        out.register_hook(lambda grad: seen.append(grad.norm().item()))
        loss = F.cross_entropy(out, y)
        loss.backward()
        optimizer.step()
        return loss

    t.train(t.step(train_step), points(6), net)
    t.note(seen)


def forward_hooks(t):
    net = mlp(8, 16, 4)
    features = {}
    net[1].register_forward_hook(lambda module, args, out: features.__setitem__("h", out))
    net[2].register_forward_pre_hook(lambda module, args: (args[0] * 0.5,))
    model, optimizer = t.model(net), torch.optim.SGD(net.parameters(), lr=0.1)

    def train_step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y) + 0.1 * features["h"].pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss

    t.train(t.step(train_step), points(6), net)


def backward_hooks(t):
    net = mlp(8, 16, 4)
    norms = []
    net[0].register_full_backward_hook(lambda module, grads_in, grads_out: norms.append(grads_out[0].norm().item()))
    simple(t, net, 6)
    t.note(norms)


def post_accumulate_hooks(t):
    """The optimizer runs in the backward pass."""
    net = mlp(8, 16, 4)
    optimizers = {p: torch.optim.SGD([p], lr=0.1, momentum=0.9) for p in net.parameters()}

    def apply(p):
        optimizers[p].step()
        optimizers[p].zero_grad()

    for p in net.parameters():
        p.register_post_accumulate_grad_hook(apply)
    model = t.model(net)

    def train_step(x, y):
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss

    t.train(t.step(train_step), points(6), net)


def optimizer_hooks(t):
    net = mlp(8, 16, 4)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    calls = []
    optimizer.register_step_pre_hook(lambda o, args, kwargs: calls.append("before"))
    optimizer.register_step_post_hook(lambda o, args, kwargs: calls.append("after"))
    t.train(t.step(stepper(t.model(net), optimizer)), points(6), net)
    t.note(calls)


def spectral_norm(t):
    net = nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(8, 16)), nn.ReLU(), nn.Linear(16, 4))
    simple(t, net)


def spectral_norm_old(t):
    net = nn.Sequential(nn.utils.spectral_norm(nn.Linear(8, 16)), nn.ReLU(), nn.Linear(16, 4))
    simple(t, net)


def weight_norm(t):
    net = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(8, 16)), nn.ReLU(), nn.Linear(16, 4))
    simple(t, net)


def weight_norm_old(t):
    net = nn.Sequential(nn.utils.weight_norm(nn.Linear(8, 16)), nn.ReLU(), nn.Linear(16, 4))
    simple(t, net)


def orthogonal(t):
    net = nn.Sequential(nn.utils.parametrizations.orthogonal(nn.Linear(8, 8)), nn.Tanh(), nn.Linear(8, 4))
    simple(t, net)


class Symmetric(nn.Module):
    def forward(self, x):
        return x.triu() + x.triu(1).transpose(-1, -2)


def own_parametrization(t):
    net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4))
    parametrize.register_parametrization(net[0], "weight", Symmetric())
    simple(t, net)


def pruned(t):
    from torch.nn.utils import prune

    net = mlp(8, 16, 4)
    prune.l1_unstructured(net[0], "weight", amount=0.5)
    simple(t, net)


def functional_parameters(t):
    net = mlp(8, 16, 4)
    params = {k: v.detach().clone().requires_grad_() for k, v in net.named_parameters()}
    optimizer = torch.optim.Adam(params.values(), lr=1e-2)
    model = t.model(net)

    def train_step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(functional_call(model, params, (x,)), y)
        loss.backward()
        optimizer.step()
        return loss

    t.train(t.step(train_step), points(8))
    t.note(params, optimizer.state_dict())


def maml(t, first_order=False):
    net = mlp(8, 16, 1)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2, eps=1e-4)

    def forward(params, x):
        for i in (0, 2):
            x = F.linear(x, params[i], params[i + 1])
            x = torch.tanh(x) if i == 0 else x
        return x

    call = t.model(forward)

    def train_step(x, y):
        optimizer.zero_grad()
        params = list(net.parameters())
        for _ in range(2):
            inner = F.mse_loss(call(params, x[:8]), y[:8])
            grads = torch.autograd.grad(inner, params, create_graph=not first_order)
            params = [p - 0.1 * g for p, g in zip(params, grads)]
        loss = F.mse_loss(call(params, x[8:]), y[8:])
        loss.backward()
        optimizer.step()
        return loss

    t.train(t.step(train_step), values(8), net, optimizer)


def maml_first_order(t):
    maml(t, True)


def maml_functional_call(t):
    net = mlp(8, 16, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    model = t.model(net)

    def train_step(x, y):
        fast = dict(net.named_parameters())
        inner = F.mse_loss(functional_call(model, fast, x[:8]), y[:8])
        grads = torch.autograd.grad(inner, tuple(fast.values()), create_graph=True)
        fast = {k: p - 0.1 * g for (k, p), g in zip(fast.items(), grads)}
        loss = F.mse_loss(functional_call(model, fast, x[8:]), y[8:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    t.train(t.step(train_step), values(6), net)


def func_grad_training(t):
    net = mlp(8, 16, 4)
    params = {k: v.detach().clone() for k, v in net.named_parameters()}

    def loss_of(params, x, y):
        return F.cross_entropy(functional_call(net, params, (x,)), y)

    def train_step(params, x, y):
        grads, loss = torch.func.grad_and_value(loss_of)(params, x, y)
        return {k: p - 0.1 * grads[k] for k, p in params.items()}, loss

    step = t.step(train_step)
    for x, y in points(6):
        params, loss = step(params, x, y)
        t.note(loss)
    t.note(params)


def fgsm(t):
    net = mlp(8, 16, 4)
    model, optimizer = t.model(net), torch.optim.SGD(net.parameters(), lr=0.1)

    def train_step(x, y):
        x = x.detach().clone()
        x.requires_grad = True
        F.cross_entropy(model(x), y).backward()
        bad = torch.clamp(x + 0.1 * x.grad.sign(), -3, 3).detach()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(bad), y)
        loss.backward()
        optimizer.step()
        return loss

    t.train(t.step(train_step), points(8), net)


def pgd(t):
    net = mlp(8, 16, 4)
    model, optimizer = t.model(net), torch.optim.SGD(net.parameters(), lr=0.1)

    def train_step(x, y):
        delta = torch.zeros_like(x).uniform_(-0.1, 0.1).requires_grad_()
        for _ in range(3):
            loss = F.cross_entropy(model(x + delta), y)
            (grad,) = torch.autograd.grad(loss, delta)
            delta.data = (delta.data + 0.05 * grad.sign()).clamp(-0.2, 0.2)
        optimizer.zero_grad()
        loss = F.cross_entropy(model((x + delta).detach()), y)
        loss.backward()
        optimizer.step()
        return loss

    t.train(t.step(train_step), points(6), net)


def inputs_that_require_gradients(t):
    net = mlp(8, 16, 4)
    model = t.model(net)
    images = torch.randn(16, 8, requires_grad=True)
    optimizer = torch.optim.Adam([images], lr=0.1)

    def train_step(_, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), y) + 1e-2 * (images[:, 1:] - images[:, :-1]).abs().mean()
        loss.backward()
        optimizer.step()
        return loss

    t.train(t.step(train_step), points(8), net, optimizer)
    t.note(images, images.grad)


def gradient_penalty_of_double_backward(t):
    net = mlp(8, 16, 4)
    model, optimizer = t.model(net), torch.optim.SGD(net.parameters(), lr=0.1)

    def train_step(x, y):
        x.requires_grad_(True)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward(create_graph=True)
        penalty = sum(p.grad.square().sum() for p in net.parameters())
        optimizer.zero_grad()
        total = loss + 0.1 * penalty
        total.backward()
        optimizer.step()
        return total.detach()

    t.train(t.step(train_step), points(6), net)


def hessian_vector_product(t):
    net = mlp(8, 8, 1)
    model, optimizer = t.model(net), torch.optim.SGD(net.parameters(), lr=0.05)

    def train_step(x, y):
        optimizer.zero_grad()
        params = tuple(net.parameters())
        loss = F.mse_loss(model(x), y)
        grads = torch.autograd.grad(loss, params, create_graph=True)
        hv = torch.autograd.grad(sum((g * g.detach()).sum() for g in grads), params)
        for p, g, h in zip(params, grads, hv):
            p.grad = g.detach() + 0.01 * h
        optimizer.step()
        return loss.detach()

    t.train(t.step(train_step), values(6), net)


def reinforce_episodes(t):
    net = mlp(4, 16, 2)
    model, optimizer = t.model(net), torch.optim.Adam(net.parameters(), lr=1e-2, eps=1e-4)

    def episode(state):
        log_probs, rewards = [], []
        for _ in range(6):
            probs = F.softmax(model(state), dim=-1)
            m = torch.distributions.Categorical(probs)
            action = m.sample()
            log_probs.append(m.log_prob(action))
            rewards.append(1.0 if action.item() == 1 else -0.1)
            state = state + 0.1 * (2 * action.float() - 1)
        returns, running = [], 0.0
        for r in rewards[::-1]:
            running = r + 0.9 * running
            returns.insert(0, running)
        returns = torch.tensor(returns)
        returns = (returns - returns.mean()) / (returns.std() + 1e-6)
        loss = torch.stack([-lp * r for lp, r in zip(log_probs, returns)]).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item(), sum(rewards)

    t.train(t.step(episode), [(torch.randn(4),) for _ in range(8)], net)


def actor_critic_ppo(t):
    actor, critic = mlp(8, 16, 4), mlp(8, 16, 1)
    act, value = t.model(actor), t.model(critic)
    optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=3e-3, eps=1e-5)

    def train_step(x, actions, old, returns):
        dist = torch.distributions.Categorical(logits=act(x))
        ratio = torch.exp(dist.log_prob(actions) - old)
        v = value(x).squeeze(-1)
        advantage = returns - v.detach()
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        policy = -torch.min(ratio * advantage, torch.clamp(ratio, 0.8, 1.2) * advantage).mean()
        loss = policy + 0.5 * F.mse_loss(v, returns) - 0.01 * dist.entropy().mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(actor.parameters(), 0.5)
        optimizer.step()
        return loss

    batches = [(x, y, torch.full((16,), -1.4), x[:, 0]) for x, y in points(8)]
    t.train(t.step(train_step), batches, actor, critic, optimizer)


def gradients_swapped_in_place(t):
    """Noise on gradients, and gradients that are set by hand."""
    net = mlp(8, 16, 4)
    model, optimizer = t.model(net), torch.optim.SGD(net.parameters(), lr=0.1)

    def train_step(x, y):
        net.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        for p in net.parameters():
            p.grad.add_(torch.randn_like(p.grad), alpha=0.01)
            p.grad = p.grad / (p.grad.norm() + 1e-3)
        optimizer.step()
        return loss

    t.train(t.step(train_step), points(6), net)


def gradient_surgery(t):
    """Gradients of two losses, one projected away from the other."""
    net = mlp(8, 16, 4)
    model, optimizer = t.model(net), torch.optim.SGD(net.parameters(), lr=0.1)

    def train_step(x, y):
        params = list(net.parameters())
        out = model(x)
        a = torch.autograd.grad(F.cross_entropy(out, y), params, retain_graph=True)
        b = torch.autograd.grad(out.square().mean(), params)
        dot = sum((u * v).sum() for u, v in zip(a, b))
        scale = torch.where(dot < 0, dot / sum((v * v).sum() for v in b), torch.zeros(()))
        for p, u, v in zip(params, a, b):
            p.grad = u - scale * v
        optimizer.step()
        return dot

    t.train(t.step(train_step), points(6), net)


def detached_and_stopped(t):
    """Byol: a predictor, a target without gradients, parameters swapped under no_grad."""
    online, predictor, target = mlp(8, 16, 8), mlp(8, 8), mlp(8, 16, 8)
    calls = [t.model(m) for m in (online, predictor, target)]
    optimizer = torch.optim.SGD([*online.parameters(), *predictor.parameters()], lr=0.1)

    def train_step(x, _):
        a, b = x + 0.1 * torch.randn_like(x), x * (torch.rand_like(x) > 0.1)
        p = calls[1](calls[0](a))
        with torch.no_grad():
            z = calls[2](b)
        loss = 2 - 2 * F.cosine_similarity(p, z.detach(), dim=-1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for po, pt in zip(online.parameters(), target.parameters()):
            pt.data = pt.data * 0.9 + po.data * 0.1
        return loss

    t.train(t.step(train_step), points(6), online, predictor, target)


def vector_valued_backward(t):
    net = mlp(8, 16, 4)
    model, optimizer = t.model(net), torch.optim.SGD(net.parameters(), lr=0.1)

    def train_step(x, y):
        optimizer.zero_grad()
        losses = F.cross_entropy(model(x), y, reduction="none")
        losses.backward(gradient=torch.linspace(0, 0.1, 16))
        optimizer.step()
        return losses

    t.train(t.step(train_step), points(6), net)


def autograd_backward_of_many(t):
    net = mlp(8, 16, 4)
    model, optimizer = t.model(net), torch.optim.SGD(net.parameters(), lr=0.1)

    def train_step(x, y):
        optimizer.zero_grad()
        out = model(x)
        torch.autograd.backward([F.cross_entropy(out, y), out.square().mean()], [torch.tensor(1.0), torch.tensor(0.1)])
        optimizer.step()
        return out

    t.train(t.step(train_step), points(6), net)


def retained_gradients(t):
    net = mlp(8, 16, 4)
    model, optimizer = t.model(net), torch.optim.SGD(net.parameters(), lr=0.1)

    def train_step(x, y):
        optimizer.zero_grad()
        out = model(x)
        out.retain_grad()
        loss = F.cross_entropy(out, y)
        loss.backward()
        optimizer.step()
        return loss, out.grad.norm()

    t.train(t.step(train_step), points(6), net)


def anomaly_detection(t):
    net = mlp(8, 16, 4)
    model, optimizer = t.model(net), torch.optim.SGD(net.parameters(), lr=0.1)
    step = t.step(stepper(model, optimizer))
    for i, (x, y) in enumerate(points(6)):
        with torch.autograd.set_detect_anomaly(i % 2 == 1):
            t.note(step(x, y))
    t.end(net)


def loss_used_after_the_step(t):
    """The loss is returned and backward is called on it outside."""
    net = mlp(8, 16, 4)
    model, optimizer = t.model(net), torch.optim.SGD(net.parameters(), lr=0.1)

    def loss_of(x, y):
        optimizer.zero_grad()
        return F.cross_entropy(model(x), y)

    step = t.step(loss_of)
    for x, y in points(8):
        loss = step(x, y)
        loss.backward()
        optimizer.step()
        t.note(loss)
    t.end(net)


RUNS = (binary_activations, gradient_reversal, hook_on_a_parameter, hook_on_an_activation, forward_hooks, backward_hooks,
        post_accumulate_hooks, optimizer_hooks, spectral_norm, spectral_norm_old, weight_norm, weight_norm_old,
        orthogonal, own_parametrization, pruned, functional_parameters, maml, maml_first_order, maml_functional_call,
        func_grad_training, fgsm, pgd, inputs_that_require_gradients, gradient_penalty_of_double_backward,
        hessian_vector_product, reinforce_episodes, actor_critic_ppo, gradients_swapped_in_place, gradient_surgery,
        detached_and_stopped, vector_valued_backward, autograd_backward_of_many, retained_gradients, anomaly_detection,
        loss_used_after_the_step)  # fmt: skip
