"""Models of many kinds."""

import math

import torch
import torch.nn.functional as F
from runs_data import classifier, mlp, points, tokens, values
from torch import nn


def mlp_sgd(t):
    net = mlp(8, 32, 4, act=nn.ReLU)
    classifier(t, net, torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9), points(30))


def wgan_clipped_weights(t):
    make, judge = mlp(4, 16, 8), mlp(8, 16, 1)
    generator, critic = t.model(make), t.model(judge)
    opt_g, opt_d = (torch.optim.RMSprop(m.parameters(), lr=1e-3) for m in (make, judge))

    def critic_step(real):
        opt_d.zero_grad()
        with torch.no_grad():
            fake = generator(torch.randn(len(real), 4))
        loss = critic(fake).mean() - critic(real).mean()
        loss.backward()
        opt_d.step()
        for p in judge.parameters():
            p.data.clamp_(-0.05, 0.05)
        return loss

    def generator_step():
        for p in judge.parameters():
            p.requires_grad_(False)
        opt_g.zero_grad()
        loss = -critic(generator(torch.randn(16, 4))).mean()
        loss.backward()
        opt_g.step()
        for p in judge.parameters():
            p.requires_grad_(True)
        return loss

    critic_step, generator_step = t.step(critic_step), t.step(generator_step)
    for i, (x, _) in enumerate(points(12)):
        torch.manual_seed(i)
        t.note(critic_step(x))
        if i % 3 == 2:
            t.note(generator_step())
    t.end(make, judge, opt_g, opt_d)


def wgan_gradient_penalty(t):
    make, judge = mlp(4, 16, 8), mlp(8, 16, 1)
    generator, critic = t.model(make), t.model(judge)
    opt_g, opt_d = (torch.optim.Adam(m.parameters(), lr=1e-3, betas=(0.0, 0.9), eps=1e-4) for m in (make, judge))

    def train_step(real, _):
        fake = generator(torch.randn(real.size(0), 4)).detach()
        alpha = torch.rand(real.size(0), 1)
        mixed = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
        out = critic(mixed)
        gradients = torch.autograd.grad(outputs=out, inputs=mixed, grad_outputs=torch.ones_like(out),
                                        create_graph=True, retain_graph=True, only_inputs=True)[0]  # fmt: skip
        penalty = ((gradients.norm(2, dim=1) - 1) ** 2).mean()
        d_loss = critic(fake).mean() - critic(real).mean() + 10.0 * penalty
        opt_d.zero_grad()
        d_loss.backward()
        opt_d.step()
        opt_g.zero_grad()
        g_loss = -critic(generator(torch.randn(real.size(0), 4))).mean()
        g_loss.backward()
        opt_g.step()
        return d_loss, g_loss

    t.train(t.step(train_step), points(10), make, judge, opt_g, opt_d)


class Vae(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode, self.mu, self.logvar, self.decode = nn.Linear(8, 16), nn.Linear(16, 3), nn.Linear(16, 3), mlp(3, 16, 8)

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        return mu + torch.randn_like(std) * std if self.training else mu

    def forward(self, x):
        h = F.relu(self.encode(x))
        mu, logvar = self.mu(h), self.logvar(h)
        return torch.sigmoid(self.decode(self.reparameterize(mu, logvar))), mu, logvar


def vae_with_annealing(t):
    net = Vae()
    model = t.model(net)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2, eps=1e-4)

    def train_step(x, beta):
        recon, mu, logvar = model(x)
        bce = F.binary_cross_entropy(recon, x, reduction="sum")
        kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
        loss = bce + beta * kld
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss, bce.item(), kld.item()

    batches = [(x.sigmoid(), min(1.0, i / 8)) for i, (x, _) in enumerate(points(15))]
    t.train(t.step(train_step), batches, net, optimizer)


class Clicks(nn.Module):
    def __init__(self, sparse):
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(20, 6, mode=mode, sparse=sparse) for mode in ("sum", "mean"))
        self.one = nn.Embedding(20, 6, sparse=sparse)
        self.bottom, self.top = mlp(8, 16, 6, act=nn.ReLU), mlp(6 + 6, 16, 1, act=nn.ReLU)

    def forward(self, dense, ids, offsets):
        dense = self.bottom(dense)
        parts = [dense] + [bag(ids, offsets) for bag in self.bags] + [self.one(ids[offsets])]
        parts = torch.stack(parts, 1)
        pairs = torch.bmm(parts, parts.transpose(1, 2))
        i, j = torch.tril_indices(4, 4, -1)
        return self.top(torch.cat([dense, pairs[:, i, j]], 1)).squeeze(1)


def clicks(t, sparse, optimizers_of):
    net = Clicks(sparse)
    model = t.model(net)
    optimizers = optimizers_of(net)

    def train_step(dense, ids, offsets, y):
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss = F.binary_cross_entropy_with_logits(model(dense, ids, offsets), y)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        return loss

    ids = [torch.randint(20, (48,)) for _ in range(10)]
    batches = [(x, i, torch.arange(0, 48, 3), (y % 2).float()) for (x, y), i in zip(points(10), ids)]
    t.train(t.step(train_step), batches, net, *optimizers)


def recommender_dense(t):
    clicks(t, False, lambda net: [torch.optim.Adagrad(net.parameters(), lr=0.02)])


def recommender_sparse_sgd(t):
    clicks(t, True, lambda net: [torch.optim.SGD(net.parameters(), lr=0.05)])


def recommender_sparse_adam(t):
    def optimizers_of(net):
        sparse = [*net.bags.parameters(), *net.one.parameters()]
        dense = [*net.bottom.parameters(), *net.top.parameters()]
        return [torch.optim.SparseAdam(sparse, lr=1e-2, eps=1e-4), torch.optim.Adam(dense, lr=1e-2, eps=1e-4)]

    clicks(t, True, optimizers_of)


class Experts(nn.Module):
    """Each expert gets the rows that were sent to it."""

    def __init__(self):
        super().__init__()
        self.gate, self.experts = nn.Linear(8, 4), nn.ModuleList(mlp(8, 16, 8) for _ in range(4))

    def forward(self, x):
        weights, chosen = F.softmax(self.gate(x), -1).topk(2, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            rows, slot = torch.where(chosen == i)
            if rows.numel() == 0:
                continue
            out.index_add_(0, rows, expert(x[rows]) * weights[rows, slot, None])
        return out


def mixture_of_experts(t):
    net = nn.Sequential(Experts(), nn.Linear(8, 4))
    classifier(t, net, torch.optim.SGD(net.parameters(), lr=0.1), points(8))


def mixture_of_experts_dense(t):
    class Soft(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate, self.experts = nn.Linear(8, 3), nn.ModuleList(nn.Linear(8, 4) for _ in range(3))

        def forward(self, x):
            gates = torch.softmax(self.gate(x) + torch.randn(len(x), 3) * 0.1, 1)
            return torch.einsum("be,bec->bc", gates, torch.stack([e(x) for e in self.experts], 1))

    net = Soft()
    classifier(t, net, torch.optim.Adam(net.parameters(), lr=1e-2, eps=1e-4), points(10))


def siamese_contrastive(t):
    net = mlp(8, 16, 4, act=nn.ReLU)
    model = t.model(net)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, eps=1e-4)

    def train_step(a, b, same):
        d = F.pairwise_distance(model(a), model(b))
        loss = (same * d.pow(2) + (1 - same) * torch.clamp(1.0 - d, min=0.0).pow(2)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    batches = [(x[:8], x[8:], (y[:8] == y[8:]).float()) for x, y in points(10)]
    t.train(t.step(train_step), batches, net, optimizer)


def simclr_temperature(t):
    net = mlp(8, 16, 6, act=nn.ReLU)
    temperature = nn.Parameter(torch.tensor(0.5))
    model = t.model(net)
    optimizer = torch.optim.SGD([*net.parameters(), temperature], lr=0.05)

    def train_step(x, _):
        views = torch.cat([x + 0.1 * torch.randn_like(x), x + 0.1 * torch.randn_like(x)])
        z = F.normalize(model(views), dim=1)
        sim = z @ z.t() / temperature
        sim.fill_diagonal_(-1e9)
        n = x.size(0)
        loss = F.cross_entropy(sim, torch.cat([torch.arange(n, 2 * n), torch.arange(n)]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            temperature.clamp_(0.05, 1.0)
        return loss, temperature

    t.train(t.step(train_step), points(10), net)


def triplet(t):
    net = mlp(8, 16, 4)
    model = t.model(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    criterion = nn.TripletMarginWithDistanceLoss(distance_function=lambda a, b: 1 - F.cosine_similarity(a, b), margin=0.5)

    def train_step(x, _):
        optimizer.zero_grad()
        loss = criterion(model(x[:5]), model(x[5:10]), model(x[10:15]))
        loss.backward()
        optimizer.step()
        return loss

    t.train(t.step(train_step), points(10), net)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.time, self.body = mlp(16, 16, 8, act=nn.SiLU), mlp(16, 32, 8, act=nn.SiLU)

    def forward(self, x, step):
        freq = torch.exp(-math.log(10000) * torch.arange(8, dtype=torch.float32) / 8)
        angles = step[:, None].float() * freq[None]
        return self.body(torch.cat([x, self.time(torch.cat([angles.sin(), angles.cos()], -1))], -1))


def diffusion_with_ema(t):
    net, average = Denoiser(), Denoiser()
    average.load_state_dict(net.state_dict())
    average.requires_grad_(False)
    model = t.model(net)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, eps=1e-4)
    kept = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 50), 0)

    def train_step(x, _):
        step = torch.randint(0, 50, (x.shape[0],))
        noise = torch.randn_like(x)
        a = kept[step].unsqueeze(1)
        loss = F.mse_loss(model(a.sqrt() * x + (1 - a).sqrt() * noise, step), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for mine, theirs in zip(average.parameters(), net.parameters()):
                mine.mul_(0.99).add_(theirs, alpha=0.01)
        return loss

    t.train(t.step(train_step), points(12), net, average, optimizer)


class GraphNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 4)

    def spread(self, x, edges):
        source, target = edges
        out = torch.zeros_like(x).index_add(0, target, x[source])
        count = torch.zeros(x.size(0)).scatter_add_(0, target, torch.ones(target.size(0)))
        return out / count.clamp(min=1).unsqueeze(-1)

    def forward(self, x, edges):
        x = F.relu(self.first(self.spread(x, edges) + x))
        far = torch.full_like(x, -9.0).scatter_reduce(0, edges[1][:, None].expand(-1, 16), x[edges[0]], "amax")
        return self.second(x + far.tanh())


def graph_net(t):
    net = GraphNet()
    model = t.model(net)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2, weight_decay=5e-4, eps=1e-4)
    edges, known = torch.randint(16, (2, 40)), torch.arange(16) < 9

    def train_step(x, y):
        net.train()
        optimizer.zero_grad()
        loss = F.nll_loss(F.log_softmax(model(x, edges), dim=1)[known], y[known])
        loss.backward()
        optimizer.step()
        return float(loss)

    t.train(t.step(train_step), points(10), net, optimizer)


def two_towers_shared_encoder(t):
    """Several heads, one loss each, weights learned."""
    body, a, b = mlp(8, 16, 16, act=nn.ReLU), nn.Linear(16, 4), nn.Linear(16, 1)
    log_vars = nn.Parameter(torch.zeros(2))
    model = t.model(body)
    optimizer = torch.optim.Adam([*body.parameters(), *a.parameters(), *b.parameters(), log_vars], lr=1e-2, eps=1e-4)

    def train_step(x, y):
        h = model(x)
        losses = torch.stack([F.cross_entropy(a(h), y), F.smooth_l1_loss(b(h).squeeze(-1), x[:, 0])])
        loss = (torch.exp(-log_vars) * losses + log_vars).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return {"loss": loss, "parts": losses.tolist()}

    t.train(t.step(train_step), points(10), body, a, b, optimizer)


def double_precision(t):
    net = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.Softplus(), nn.Linear(16, 1)).double()
    classifier(t, net, torch.optim.Adam(net.parameters(), lr=1e-2), values(15, dtype=torch.float64), F.huber_loss)


def embedding_max_norm(t):
    net = nn.Sequential(nn.Embedding(20, 8, max_norm=1.0, scale_grad_by_freq=True), nn.Flatten(), nn.Linear(80, 4))
    batches = ((ids, ids[:, 0] % 4) for (ids,) in tokens(8))
    classifier(t, net, torch.optim.SGD(net.parameters(), lr=0.1), batches)


def physics_informed(t):
    """Derivatives of the model by its input are in the loss."""
    net = mlp(1, 16, 16, 1)
    model = t.model(net)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2, eps=1e-4)

    def train_step(x):
        x = x.clone().requires_grad_(True)
        u = model(x)
        du = torch.autograd.grad(u, x, torch.ones_like(u), create_graph=True)[0]
        ddu = torch.autograd.grad(du, x, torch.ones_like(du), create_graph=True)[0]
        loss = ((ddu + u) ** 2).mean() + (model(torch.zeros(1, 1)) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    t.train(t.step(train_step), [(torch.rand(12, 1),) for _ in range(10)], net, optimizer)


def quantized_straight_through(t):
    class Quantize(nn.Module):
        def __init__(self):
            super().__init__()
            self.codes = nn.Embedding(6, 4)

        def forward(self, z):
            nearest = torch.cdist(z, self.codes.weight).argmin(1)
            q = self.codes(nearest)
            loss = F.mse_loss(q, z.detach()) + 0.25 * F.mse_loss(z, q.detach())
            return z + (q - z).detach(), loss, nearest

    encoder, quantize, decoder = mlp(8, 16, 4), Quantize(), mlp(4, 16, 8)
    net = nn.ModuleList([encoder, quantize, decoder])
    encode, quant, decode = t.model(encoder), t.model(quantize), t.model(decoder)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, eps=1e-4)

    def train_step(x, _):
        optimizer.zero_grad()
        q, extra, codes = quant(encode(x))
        loss = F.mse_loss(decode(q), x) + extra
        loss.backward()
        optimizer.step()
        return loss, codes.unique().numel()

    t.train(t.step(train_step), points(10), net, optimizer)


RUNS = (mlp_sgd, wgan_clipped_weights, wgan_gradient_penalty, vae_with_annealing, recommender_dense,
        recommender_sparse_sgd, recommender_sparse_adam, mixture_of_experts, mixture_of_experts_dense,
        siamese_contrastive, simclr_temperature, triplet, diffusion_with_ema, graph_net, two_towers_shared_encoder,
        double_precision, embedding_max_norm, physics_informed, quantized_straight_through)  # fmt: skip
