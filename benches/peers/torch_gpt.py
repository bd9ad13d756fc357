#!/usr/bin/env python3
"""The contestant's GPT and its update in PyTorch, one step at a time on batches it is sent.

A peer for speed and for the loss curve: the bench sends both sides the same tokens, in turn.

    first line on stdin   JSON: vocab, context, width, head_dim, windows, threads, seed; for a GPU "cuda": true, and
                          "compile": true for torch.compile
    then for each step    JSON line {"progress": p, "rows": B, "micro": n}, and n·B·(context+1) u16 ids
    on stdout             JSON line {"seconds": s, "loss": nats, "peak_bytes": b} a step; b is 0 on a CPU

On a CPU everything is f32 and eager. On a GPU it is what one would write for speed: bf16 under autocast and in the
tables, FlashAttention, and FlexAttention where there is a window, which skips what lies outside of it.
Needs torch and numpy.
"""

import json
import sys
import time

import numpy
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

POLAR = (  # Polar Express, arXiv 2505.16932
    (8.156554524902461, -22.48329292557795, 15.878769915207462),
    (4.042929935166739, -2.808917465908714, 0.5000178451051316),
    (3.8916678022926607, -2.772484153217685, 0.5060648178503393),
    (3.285753657755655, -2.3681294933425376, 0.46449024233003106),
    (2.3465413258596377, -1.7097828382687081, 0.42323551169305323),
)


def norm(x):
    return F.rms_norm(x, x.shape[-1:])


class Block(nn.Module):
    def __init__(self, c, width, value):
        super().__init__()
        self.d, self.heads = c["head_dim"], width // c["head_dim"]
        shapes = dict(q=(width, width), k=(width, width), v=(width, width), out=(width, width))
        shapes |= dict(up=(4 * width, width), down=(width, 4 * width))
        bound = (3 / width) ** 0.5
        for name, shape in shapes.items():
            w = torch.empty(shape).uniform_(-bound, bound)
            setattr(self, name, nn.Parameter(w * 0 if name in ("out", "down") else w))
        self.table = self.gate = None
        if value:
            self.table = nn.Parameter(torch.empty(c["vocab"], width).uniform_(-bound, bound))
            self.gate = nn.Parameter(torch.zeros(self.heads, min(32, width)))

    def matrices(self):
        return [p for n, p in self.named_parameters() if n != "table"]

    def forward(self, x, ids, rotary, mask):
        h = norm(x)
        split = lambda y: y.unflatten(-1, (self.heads, self.d))
        q, k, v = split(F.linear(h, self.q)), split(F.linear(h, self.k)), split(F.linear(h, self.v))
        if self.table is not None:
            gate = 2 * torch.sigmoid(F.linear(h[..., : self.gate.shape[1]], self.gate))
            v = v + gate.unsqueeze(-1) * split(F.embedding(ids, self.table))
        q, k = norm(turn(q, *rotary)).to(v.dtype), norm(turn(k, *rotary)).to(v.dtype)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        if mask is None or torch.is_tensor(mask):
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        else:
            y = flex_attention(q, k, v, block_mask=mask)
        x = x + F.linear(y.transpose(1, 2).flatten(2), self.out)
        return x + F.linear(F.relu(F.linear(norm(x), self.up)).square(), self.down)


def turn(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos + b * sin, b * cos - a * sin), -1)


class Gpt(nn.Module):
    def __init__(self, c):
        super().__init__()
        vocab, width, depth, time_ = c["vocab"], c["width"], len(c["windows"]), c["context"]
        self.wte = nn.Parameter(torch.randn(vocab, width))
        self.head = nn.Parameter(torch.randn(vocab, width) * 0.001)
        self.residual, self.shortcut = nn.Parameter(torch.ones(depth)), nn.Parameter(torch.full((depth,), 0.1))
        self.blocks = nn.ModuleList(Block(c, width, (depth - 1 - l) % 2 == 0) for l in range(depth))
        frequency = 10_000.0 ** (-torch.arange(0, c["head_dim"], 2) / c["head_dim"])
        angle = torch.outer(torch.arange(time_), frequency)[:, None]
        self.rotary = angle.cos(), angle.sin()
        gap = torch.arange(time_)[:, None] - torch.arange(time_)
        self.masks = [None if w >= time_ else (gap >= 0) & (gap <= w) for w in c["windows"]]

    def on_gpu(self, c):
        """Moves it to the GPU, its tables as bf16; windows as masks of blocks where it is compiled."""
        self.cuda()
        for table in [self.wte, *(b.table for b in self.blocks if b.table is not None)]:
            table.data = table.data.bfloat16()
        self.rotary = [r.cuda().bfloat16() for r in self.rotary]
        blocks = {}
        for layer, (w, mask) in enumerate(zip(c["windows"], self.masks)):
            if mask is None:
                continue
            if w not in blocks:
                near = lambda b, h, q, k, w=w: (q >= k) & (q - k <= w)
                whole = (None, None, c["context"], c["context"])
                blocks[w] = create_block_mask(near, *whole, device="cuda") if c.get("compile") else mask.cuda()
            self.masks[layer] = blocks[w]
        return self

    def forward(self, ids, targets):
        x = start = norm(F.embedding(ids, self.wte))
        for l, block in enumerate(self.blocks):
            x = self.residual[l] * x + self.shortcut[l] * start
            x = block(x, ids, self.rotary, self.masks[l])
        logits = F.linear(norm(x), self.head).float()
        return F.cross_entropy((15 * torch.tanh(logits / 15)).flatten(0, 1), targets.flatten())


class Update:
    def __init__(self, model, width, compiled=False):
        self.wrap = (lambda f: torch.compile(f, dynamic=False)) if compiled else (lambda f: f)
        self.adam, self.muon = self.wrap(adam), self.wrap(muon)
        wide, self.steps = (width / 768) ** -0.5, 0
        singles = [(model.wte, 0.6 * wide, 0.8), (model.head, 0.004 * wide, 0.8)]
        singles += [(model.residual, 0.005, 0.8), (model.shortcut, 0.5, 0.96)]
        singles += [(b.table, 0.6 * wide, 0.8) for b in model.blocks if b.table is not None]
        self.singles = [(p, lr, b, torch.zeros_like(p), torch.zeros_like(p)) for p, lr, b in singles]
        groups = {}
        for p in (p for b in model.blocks for p in b.matrices()):
            groups.setdefault(p.shape, []).append(p)
        self.groups = []
        for (r, k), ps in groups.items():
            at = ps[0].device
            second = torch.zeros((len(ps), r, 1) if r >= k else (len(ps), 1, k), device=at)
            self.groups.append((ps, torch.zeros(len(ps), r, k, device=at), second))

    @torch.no_grad()
    def __call__(self, progress):
        momentum = 0.85 + 0.1 * min(self.steps / 300, 1)
        self.steps += 1
        scale = min(1.0, (1 - progress) / 0.5)
        # numbers that change from step to step as tensors: a compiled function would be compiled anew for each
        number = lambda x: torch.tensor(x)
        for p, lr, beta1, m, v in self.singles:
            first = number(lr * scale / (1 - beta1**self.steps))
            self.adam(p, p.grad, m, v, beta1, first, number(1 / (1 - 0.95**self.steps)))
        for ps, moment, second in self.groups:
            g, w = torch.stack([p.grad for p in ps]), torch.stack(list(ps))
            lr = number(0.04 * scale * max(1, g.shape[1] / g.shape[2]) ** 0.5)
            w = self.muon(g, w, moment, second, number(momentum), lr, number(0.2 * (1 - progress)))
            torch._foreach_copy_(list(ps), list(w.unbind()))


def adam(p, grad, m, v, beta1, lr, correction):
    m.lerp_(grad, 1 - beta1)
    v.lerp_(grad.square(), 0.05)
    p.sub_(lr * m / ((v * correction).sqrt() + 1e-10))


def muon(g, w, moment, second, momentum, lr, decay):
    r, k = g.shape[1:]
    moment.add_((g - moment) * (1 - momentum))
    x = g + (moment - g) * momentum
    x = x / (x.norm(dim=(1, 2), keepdim=True) * 1.02 + 1e-6)
    if x.is_cuda:
        x = x.bfloat16()
    for a, b, c in POLAR:
        if r > k:
            s = x.mT @ x
            x = a * x + x @ (b * s + c * (s @ s))
        else:
            s = x @ x.mT
            x = a * x + (b * s + c * (s @ s)) @ x
    # NorMuon, arXiv 2510.05491
    x = x.float()
    mean = x.square().mean(2 if r >= k else 1, keepdim=True)
    before = mean.sum((1, 2), keepdim=True).sqrt()
    second.lerp_(mean, 0.05)
    s = second.clamp_min(1e-10).rsqrt()
    after = (mean * s.square()).sum((1, 2), keepdim=True).sqrt()
    x = x * (s * (before / after.clamp_min(1e-10)))
    return w - lr * (x + decay * w * (x * w >= 0))


def main():
    source = sys.stdin.buffer
    c = json.loads(source.readline())
    cuda, compiled = c.get("cuda", False), c.get("compile", False)
    torch.set_num_threads(c["threads"])
    torch.set_float32_matmul_precision("high" if cuda else "highest")
    torch.manual_seed(c["seed"])
    model = Gpt(c).on_gpu(c) if cuda else Gpt(c)
    update = Update(model, c["width"], compiled)
    forward = torch.compile(model, dynamic=False) if compiled else model
    device = "cuda" if cuda else "cpu"
    done = torch.cuda.synchronize if cuda else lambda: None
    while line := source.readline():
        step = json.loads(line)
        micro = step.get("micro", 1)
        shape = micro, step["rows"], c["context"] + 1
        ids = numpy.frombuffer(source.read(2 * shape[0] * shape[1] * shape[2]), "<u2").reshape(shape)
        ids = torch.from_numpy(ids.astype(numpy.int64)).to(device)
        done()
        began = time.perf_counter()
        total = 0
        for part in ids:
            with torch.autocast(device, torch.bfloat16, enabled=cuda):
                loss = forward(part[:, :-1], part[:, 1:]) / micro
            loss.backward()
            total += loss.detach()
        update(step["progress"])
        model.zero_grad(set_to_none=True)
        loss = total.item()
        done()
        seconds = time.perf_counter() - began
        peak = torch.cuda.max_memory_allocated() if cuda else 0
        print(json.dumps({"seconds": seconds, "loss": loss, "peak_bytes": peak}), flush=True)


if __name__ == "__main__":
    main()
