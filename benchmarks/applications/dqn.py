"""Deep Q-learning: a deque of named tuples, random samples, states that may be None, a target network."""

import collections
import copy
import random

import torch
import torch.nn as nn

T = collections.namedtuple("T", "s a r n d")


class Replay:
    def __init__(s, c):
        s.m = collections.deque(maxlen=c)

    def push(s, *a):
        s.m.append(T(*a))

    def sample(s, k):
        return random.sample(s.m, k)

    def __len__(s):
        return len(s.m)


class Agent:
    def __init__(s):
        s.q = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 3))
        s.t = copy.deepcopy(s.q)
        s.o = torch.optim.RMSprop(s.q.parameters(), 1e-3)
        s.mem = Replay(200)
        s.eps = 1.0
        s.n = 0

    def act(s, st):
        s.eps = max(0.05, s.eps * 0.99)
        if random.random() < s.eps:
            return random.randrange(3)
        with torch.no_grad():
            return s.q(st[None]).argmax(1).item()

    def learn(s, b=16):
        if len(s.mem) < b:
            return 0.0
        x = T(*zip(*s.mem.sample(b)))
        mask = torch.tensor([n is not None for n in x.n])
        ns = [n for n in x.n if n is not None]
        q = s.q(torch.stack(x.s)).gather(1, torch.tensor(x.a)[:, None]).squeeze(1)
        nx = torch.zeros(b)
        if ns:
            with torch.no_grad():
                nx[mask] = s.t(torch.stack(ns)).max(1)[0]
        l = nn.functional.smooth_l1_loss(q, torch.tensor(x.r) + 0.99 * nx)
        s.o.zero_grad()
        l.backward()
        for p in s.q.parameters():
            p.grad.data.clamp_(-1, 1)
        s.o.step()
        s.n += 1
        if s.n % 7 == 0:
            s.t.load_state_dict(s.q.state_dict())
        return l.item()


def program(compile_):
    a = Agent()
    act = compile_(a.act)
    learn = compile_(a.learn)

    def f(i):
        s = torch.randn(4)
        tot = []
        for _ in range(6):
            x = act(s)
            d = random.random() < 0.2
            n = None if d else s * 0.9 + 0.1 * x
            a.mem.push(s, x, float(s.sum()), n, d)
            s = torch.randn(4) if d else n
            tot.append(learn())
        return tot

    return f
