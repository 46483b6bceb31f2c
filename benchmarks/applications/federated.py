"""Federated averaging: a copy of the model for each of some clients, local epochs, clipped and noised updates, weights by their data."""

import copy
import random

import torch
import torch.nn as nn
import torch.nn.functional as F


class Net(nn.Module):
    def __init__(s):
        super().__init__()
        s.c = nn.Conv1d(4, 8, 3, padding=1)
        s.b = nn.BatchNorm1d(8)
        s.f = nn.Linear(8, 3)

    def forward(s, x):
        return s.f(F.relu(s.b(s.c(x))).mean(2))


class Client:
    def __init__(s, n, k):
        g = torch.Generator().manual_seed(k)
        s.x = torch.randn(n, 4, 10, generator=g) + 0.1 * k
        s.y = torch.randint(0, 3, (n,), generator=g)

    def train(s, m, lr, epochs, size, mu):
        start = [p.detach().clone() for p in m.parameters()]
        opt = torch.optim.SGD(m.parameters(), lr, momentum=0.5)
        total, n = 0.0, 0
        for _ in range(epochs):
            for at in torch.randperm(len(s.x)).split(size):
                if len(at) < 2:
                    continue
                opt.zero_grad()
                l = F.cross_entropy(m(s.x[at]), s.y[at])
                if mu:
                    l = l + mu / 2 * sum((p - q).pow(2).sum() for p, q in zip(m.parameters(), start))
                l.backward()
                opt.step()
                total += l.item()
                n += 1
        return m.state_dict(), total / max(n, 1)


def average(states, weights):
    total = sum(weights)
    return {
        k: sum(w / total * s[k] for s, w in zip(states, weights)) if states[0][k].is_floating_point() else states[0][k] for k in states[0]
    }


def program(compile_):
    m = Net()
    clients = [Client(6 + 3 * k, k) for k in range(5)]

    def around(chosen, lr, epochs, mu, clip):
        states, weights, losses = [], [], []
        before = {k: v.clone() for k, v in m.state_dict().items()}
        for k in chosen:
            local = copy.deepcopy(m)
            state, loss = clients[k].train(local, lr, epochs, 5, mu)
            if clip:
                norm = torch.sqrt(sum((state[n] - v).pow(2).sum() for n, v in before.items() if v.is_floating_point()))
                scale = min(1.0, clip / (norm.item() + 1e-6))
                state = {n: before[n] + scale * (v - before[n]) if v.is_floating_point() else v for n, v in state.items()}
            states.append(state)
            weights.append(len(clients[k].x))
            losses.append(loss)
        m.load_state_dict(average(states, weights))
        return losses

    @torch.no_grad()
    def accuracy():
        m.eval()
        right = [(m(c.x).argmax(1) == c.y).float().mean().item() for c in clients]
        m.train()
        return right

    around, accuracy = compile_(around), compile_(accuracy)

    def f(i):
        out = around(random.sample(range(5), 1 + i % 3), 0.1 / (1 + i // 10), 1 + i % 2, 0.01 * (i % 2), 1.0 if i % 3 == 0 else None)
        return [*out, *(accuracy() if i % 4 == 3 else []), m.f.weight.sum()]

    return f
