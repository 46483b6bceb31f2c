"""Retrieval with an index that grows: towers trained with hard negatives out of it, documents added and removed, ranked lists judged."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Tower(nn.Module):
    def __init__(s, v=80, d=24):
        super().__init__()
        s.e = nn.EmbeddingBag(v, d, mode="mean")
        s.f = nn.Sequential(nn.Linear(d, d), nn.GELU(), nn.Linear(d, d))

    def forward(s, rows):
        flat = torch.tensor([w for r in rows for w in r])
        starts = [0]
        for r in rows[:-1]:
            starts.append(starts[-1] + len(r))
        return F.normalize(s.f(s.e(flat, torch.tensor(starts))), dim=1)


class Index:
    def __init__(s, d=24):
        s.vectors = torch.zeros(0, d)
        s.ids = []
        s.where = {}

    def add(s, ids, vectors):
        fresh = [j for j, k in enumerate(ids) if k not in s.where]
        for j, k in enumerate(ids):
            if k in s.where:
                s.vectors[s.where[k]] = vectors[j]
        for j in fresh:
            s.where[ids[j]] = len(s.ids)
            s.ids.append(ids[j])
        if fresh:
            s.vectors = torch.cat([s.vectors, vectors[fresh]])

    def remove(s, k):
        at = s.where.pop(k, None)
        if at is None:
            return
        last = s.ids.pop()
        if last != k:
            s.ids[at] = last
            s.where[last] = at
            s.vectors[at] = s.vectors[-1]
        s.vectors = s.vectors[:-1]

    def search(s, q, k):
        v, i = (q @ s.vectors.t()).topk(min(k, len(s.ids)))
        return v, [[s.ids[j] for j in row] for row in i.tolist()]


def program(compile_):
    m = Tower()
    opt = torch.optim.AdamW(m.parameters(), 3e-3)
    index, docs = Index(), {}

    def ingest(new, gone):
        docs.update(new)
        with torch.no_grad():
            index.add(list(new), m(list(new.values())))
        for k in gone:
            index.remove(k)
        return len(index.ids)

    def train(queries, right):
        with torch.no_grad():
            _, found = index.search(m(queries), 3)
        hard = []
        for r, row in zip(right, found):
            hard.append(next((k for k in row if k != r), r))
        q = m(queries)
        c = m([docs[k] for k in right] + [docs[k] for k in hard])
        l = F.cross_entropy(q @ c.t() / 0.1, torch.arange(len(queries)))
        opt.zero_grad()
        l.backward()
        opt.step()
        return l.item()

    @torch.no_grad()
    def judge(queries, right, k=5):
        _, found = index.search(m(queries), k)
        mrr = sum(1 / (row.index(r) + 1) if r in row else 0.0 for r, row in zip(right, found))
        return mrr / len(queries), float(index.vectors.norm())

    ingest, train, judge = compile_(ingest), compile_(train), compile_(judge)

    def words(n):
        return torch.randint(0, 80, (n,)).tolist()

    def f(i):
        new = {(7 * i + j) % 60: words(4 + (i + j) % 5) for j in range(5 + i % 3)}
        out = [ingest(new, [(3 * i) % 60] if i % 2 else [])]
        right = [index.ids[(i + 3 * j) % len(index.ids)] for j in range(2 + i % 3)]
        queries = [docs[k][:3] + words(1) for k in right]
        out.append(train(queries, right))
        if i % 3 == 2:
            out += judge(queries, right)
        return out

    return f
