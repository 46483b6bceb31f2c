"""Proximal policy optimization: an environment of NumPy, a buffer of lists, minibatches of a random permutation."""

import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Categorical


class AC(nn.Module):
    def __init__(s):
        super().__init__()
        s.b = nn.Sequential(nn.Linear(4, 64), nn.Tanh())
        s.p = nn.Linear(64, 3)
        s.v = nn.Linear(64, 1)

    def act(s, o):
        h = s.b(o)
        d = Categorical(logits=s.p(h))
        a = d.sample()
        return a, d.log_prob(a), s.v(h).squeeze(-1)

    def evaluate(s, o, a):
        h = s.b(o)
        d = Categorical(logits=s.p(h))
        return d.log_prob(a), s.v(h).squeeze(-1), d.entropy()


class Env:
    def __init__(s):
        s.t = 0
        s.s = np.zeros(4, dtype=np.float32)

    def reset(s):
        s.t = 0
        s.s = np.random.randn(4).astype(np.float32)
        return s.s

    def step(s, a):
        s.t += 1
        s.s = (s.s * 0.9 + (a - 1) * 0.1).astype(np.float32)
        return s.s, float(-np.abs(s.s).sum()), s.t >= 10 or np.random.rand() < 0.1, {}


class Buffer:
    def __init__(s):
        s.clear()

    def clear(s):
        s.obs = []
        s.act = []
        s.lp = []
        s.rew = []
        s.done = []
        s.val = []

    def add(s, *x):
        for l, v in zip((s.obs, s.act, s.lp, s.rew, s.done, s.val), x):
            l.append(v)


def program(compile_):
    ac = AC()
    opt = torch.optim.Adam(ac.parameters(), 3e-4)
    env = Env()
    buf = Buffer()

    @torch.no_grad()
    def rollout(n):
        o = env.reset()
        for _ in range(n):
            t = torch.from_numpy(o)
            a, lp, v = ac.act(t)
            o2, r, dn, _ = env.step(a.item())
            buf.add(t.clone(), a, lp, r, dn, v)
            o = env.reset() if dn else o2

    def update():
        R = 0
        rets = []
        for r, dn in zip(reversed(buf.rew), reversed(buf.done)):
            if dn:
                R = 0
            R = r + 0.99 * R
            rets.insert(0, R)
        rets = torch.tensor(rets)
        obs = torch.stack(buf.obs)
        act = torch.stack(buf.act)
        lp = torch.stack(buf.lp)
        val = torch.stack(buf.val)
        adv = rets - val
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)
        ls = []
        for _ in range(3):
            for idx in torch.randperm(len(obs)).split(16):
                l, v, e = ac.evaluate(obs[idx], act[idx])
                ratio = (l - lp[idx]).exp()
                s1 = ratio * adv[idx]
                s2 = ratio.clamp(0.8, 1.2) * adv[idx]
                loss = -torch.min(s1, s2).mean() + 0.5 * (rets[idx] - v).pow(2).mean() - 0.01 * e.mean()
                opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(ac.parameters(), 0.5)
                opt.step()
                ls.append(loss.item())
        buf.clear()
        return sum(ls) / len(ls)

    rollout_c = compile_(rollout)
    update_c = compile_(update)

    def step(i):
        rollout_c(30 + i % 7)
        return update_c()

    return step
