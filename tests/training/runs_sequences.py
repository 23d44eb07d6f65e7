"""Models that read words one after another."""

import math
import random

import torch
import torch.nn.functional as F
from runs_data import classifier, points, tokens
from torch import nn


class CausalAttention(nn.Module):
    def __init__(self, width, heads, length):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.drop = nn.Dropout(0.1)
        self.register_buffer("mask", torch.tril(torch.ones(length, length)).view(1, 1, length, length))

    def forward(self, x):
        b, n, c = x.size()
        q, k, v = self.qkv(x).split(c, dim=2)
        q, k, v = (u.view(b, n, self.heads, c // self.heads).transpose(1, 2) for u in (q, k, v))
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.mask[:, :, :n, :n] == 0, float("-inf"))
        att = self.drop(F.softmax(att, dim=-1))
        return self.out((att @ v).transpose(1, 2).contiguous().view(b, n, c))


class MiniGpt(nn.Module):
    def __init__(self, vocabulary=20, width=16, length=12):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(nn.ModuleDict(dict(
            ln1=nn.LayerNorm(width), attn=CausalAttention(width, 4, length), ln2=nn.LayerNorm(width),
            mlp=nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width))))
            for _ in range(2))  # fmt: skip
        self.ln, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tok.weight

    def forward(self, idx, targets=None):
        x = self.tok(idx) + self.pos(torch.arange(0, idx.size(1), device=idx.device))
        for block in self.blocks:
            x = x + block["attn"](block["ln1"](x))
            x = x + block["mlp"](block["ln2"](x))
        logits = self.head(self.ln(x))
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(logits.reshape(-1, logits.size(-1)), targets.reshape(-1), ignore_index=-1)


def gpt_tied_weights(t):
    net = MiniGpt()
    model = t.model(net)
    decay = [p for p in net.parameters() if p.dim() >= 2]
    rest = [p for p in net.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}],
                                  lr=1e-3, betas=(0.9, 0.95), eps=1e-4)  # fmt: skip

    def train_step(idx):
        _, loss = model(idx[:, :-1], idx[:, 1:])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        return loss

    t.train(t.step(train_step), tokens(12), net, optimizer)


class Bert(nn.Module):
    def __init__(self, vocabulary=20, width=16):
        super().__init__()
        self.words = nn.Embedding(vocabulary, width, padding_idx=0)
        layer = nn.TransformerEncoderLayer(width, 4, 32, dropout=0.1, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, ids):
        return self.head(self.encoder(self.words(ids), src_key_padding_mask=ids == 0))


def bert_masked_words(t):
    net = Bert()
    model = t.model(net)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, eps=1e-4)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda i: min((i + 1) / 4, 1.0))

    def train_step(ids):
        hidden = torch.rand(ids.shape) < 0.3
        labels = torch.where(hidden, ids, -100)
        logits = model(ids.masked_fill(hidden, 1))
        loss = F.cross_entropy(logits.transpose(1, 2), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    step = t.step(train_step)
    for i, (ids,) in enumerate(tokens(10)):
        torch.manual_seed(i)
        t.note(step(ids))
        schedule.step()
    t.end(net, optimizer, schedule)


class Tagger(nn.Module):
    def __init__(self, kind, **options):
        super().__init__()
        self.words = nn.Embedding(20, 8)
        self.rnn = kind(8, 12, batch_first=True, **options)
        self.head = nn.Linear(12 * (2 if options.get("bidirectional") else 1), 4)

    def forward(self, ids):
        out, _ = self.rnn(self.words(ids))
        return self.head(out[:, -1])


def recurrent(t, kind, **options):
    net = Tagger(kind, **options)
    batches = ((ids, ids[:, -1] % 4) for (ids,) in tokens(10))
    classifier(t, net, torch.optim.Adam(net.parameters(), lr=1e-2, eps=1e-4), batches)


def lstm_two_layers_dropout(t):
    recurrent(t, nn.LSTM, num_layers=2, dropout=0.2)


def lstm_bidirectional(t):
    recurrent(t, nn.LSTM, bidirectional=True)


def lstm_projected(t):
    net = nn.LSTM(8, 12, proj_size=4)
    model = t.model(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def train_step(x, y):
        optimizer.zero_grad()
        out, (h, c) = model(x.view(4, 4, 8))
        loss = (out[-1].mean() - 1) ** 2 + h.square().mean() + c.square().mean()
        loss.backward()
        optimizer.step()
        return loss

    t.train(t.step(train_step), points(8), net)


def gru(t):
    recurrent(t, nn.GRU)


def rnn_relu(t):
    recurrent(t, nn.RNN, nonlinearity="relu")


class Unrolled(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.cell, self.head = nn.Embedding(20, 8), nn.LSTMCell(8, 12), nn.Linear(12, 20)

    def forward(self, ids, state=None):
        h, c = state if state is not None else (torch.zeros(len(ids), 12), torch.zeros(len(ids), 12))
        out = []
        for i in range(ids.shape[1]):
            h, c = self.cell(self.words(ids[:, i]), (h, c))
            out.append(self.head(h))
        return torch.stack(out, 1), (h, c)


def truncated_bptt(t):
    net = Unrolled()
    model = t.model(net)
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-3, eps=1e-4)

    def train_step(x, y, state):
        optimizer.zero_grad()
        out, state = model(x, state)
        loss = F.cross_entropy(out.flatten(0, 1), y.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        optimizer.step()
        return loss, tuple(s.detach() for s in state)

    step = t.step(train_step)
    for (ids,) in tokens(3, length=13):
        state = None
        for begin in range(0, 12, 4):
            loss, state = step(ids[:, begin:begin + 4], ids[:, begin + 1:begin + 5], state)
            t.note(loss, state)
    t.end(net, optimizer)


def truncated_bptt_inside(t):
    """The state is detached inside of the step, and hidden in an attribute."""
    net = nn.GRU(4, 8, batch_first=True)
    head = nn.Linear(8, 1)
    model = t.model(net)
    optimizer = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.05)
    kept = {"h": torch.zeros(1, 4, 8)}

    def train_step(x, y):
        out, h = model(x.view(4, 8, -1)[:, :, :4], kept["h"])
        kept["h"] = h.detach()
        loss = F.mse_loss(head(out), x.view(4, 8, -1)[:, :, 4:5])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    t.train(t.step(train_step), points(10, rows=32), net, head)


def seq2seq_teacher_forcing(t):
    class Seq2Seq(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.encoder, self.decoder = nn.Embedding(20, 8), nn.GRU(8, 12), nn.GRUCell(8, 12)
            self.head = nn.Linear(12, 20)

        def forward(self, source, target, forced):
            _, h = self.encoder(self.words(source.t()))
            h, word, out = h[0], target[:, 0], []
            for i in range(1, target.size(1)):
                h = self.decoder(self.words(word), h)
                logits = self.head(h)
                out.append(logits)
                word = target[:, i] if forced[i] else logits.argmax(1)
            return torch.stack(out, 1)

    net = Seq2Seq()
    model = t.model(net)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, eps=1e-4)
    dice = random.Random(0)

    def train_step(ids, forced):
        optimizer.zero_grad()
        out = model(ids, ids, forced)
        loss = F.cross_entropy(out.reshape(-1, 20), ids[:, 1:].reshape(-1))
        loss.backward()
        optimizer.step()
        return loss

    t.train(t.step(train_step), [(ids, [dice.random() < 0.8] * 5) for (ids,) in tokens(8, length=5)], net, optimizer)


RUNS = (gpt_tied_weights, bert_masked_words, lstm_two_layers_dropout, lstm_bidirectional, lstm_projected, gru,
        rnn_relu, truncated_bptt, truncated_bptt_inside, seq2seq_teacher_forcing)  # fmt: skip
