"""Programs as users write them, who have the documentation: `python -m benchmarks.remote --programs`.

Each is one function of a mesh, and runs without one, too (`HERE`, which leaves everything in this process): what it returns must agree.
They are unlike each other: search, parameter server, evaluation, ensembles, stages, checkpoints, serving, evolution, clustering, ...
"""

from __future__ import annotations

import contextlib
import copy
import math
import pathlib
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import pliant
from pliant import events, remote


class Here:
    """What stands for a mesh in one process: tensors stay as they are."""

    def __init__(self, workers: int) -> None:
        self.workers = workers

    def __len__(self) -> int:
        return self.workers

    def __getitem__(self, rank: int) -> Here:
        return self

    def put(self, value: Any) -> Any:
        return value

    replicate = put

    def shard(self, value: Any, dim: int = 0) -> Any:
        return value

    def place(self, module: Any, plan: Any) -> Any:
        return module


def on(mesh: Any, f: Callable) -> Callable:
    return f if type(mesh) is Here else pliant.compile(f, on=mesh)


def moved(t: Any, rank: int) -> Any:
    return t.to_worker(rank) if isinstance(t, remote.RemoteTensor) else t


def value(t: Any) -> Any:
    return t.detach().cpu() if isinstance(t, torch.Tensor) else t


def data(rows: int, width: int, classes: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, width, generator=g)
    return x, (x[:, :classes].argmax(1) + (x.sum(1) > 0)) % classes


def classifier(seed: int, width: int = 8, hidden: int = 16, classes: int = 4) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, classes))


def step_of(model: nn.Module, optimizer: Any) -> Callable:
    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def search(mesh: Any) -> Any:
    """Hyper-parameters: a trial on each worker; the worse half ends, the better goes on."""
    trials = []
    for i, (rate, decay) in enumerate([(0.3, 0.0), (0.1, 0.0), (0.03, 0.1), (0.01, 0.0), (0.003, 0.1), (0.001, 0.0)]):
        where = mesh[i % len(mesh)]
        model = where.put(classifier(i))
        optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=decay)
        trials.append((i, where, model, on(mesh, step_of(model, optimizer))))
    history = []
    seen = 0
    while len(trials) > 1:
        losses = {}
        for _ in range(3):
            x, y = data(5 + 3 * (seen % 4), 8, 4, seen)
            seen += 1
            for i, where, _model, step in trials:
                losses[i] = step(where.put(x), where.put(y))
        ranked = sorted(trials, key=lambda t: float(losses[t[0]]))
        history.append([(t[0], round(float(losses[t[0]]), 4)) for t in ranked])
        trials = ranked[: (len(ranked) + 1) // 2]
    x, y = data(50, 8, 4, 99)
    best = trials[0]
    with torch.no_grad():
        hits = (best[2](best[1].put(x)).argmax(1) == best[1].put(y)).float().mean()
    return history, best[0], float(hits)


def parameter_server(mesh: Any) -> Any:
    """Parameters on worker 0; the others fetch them, and send gradients, each of batches of its own size."""
    torch.manual_seed(0)
    names = ("w", "b", "v")
    server = {n: mesh[0].put(t) for n, t in zip(names, (torch.randn(8, 6) / 3, torch.zeros(6), torch.randn(6, 4) / 3), strict=True)}

    def gradients(w: Any, b: Any, v: Any, x: Any, y: Any) -> Any:
        loss = F.cross_entropy(torch.tanh(x @ w + b) @ v, y)
        return (loss.detach(), *torch.autograd.grad(loss, (w, b, v)))

    def update(w: Any, b: Any, v: Any, *grads: Any) -> None:
        with torch.no_grad():
            for t, g in zip((w, b, v), grads, strict=True):
                t -= 0.1 * g

    gradients, update = on(mesh, gradients), on(mesh, update)
    losses = []
    for step in range(6):
        sent = []
        for worker in range(1, len(mesh)):
            mine = [moved(server[n], worker).detach().requires_grad_() for n in names]
            x, y = data(3 + (step + worker) % 4, 8, 4, step * 10 + worker)
            loss, *grads = gradients(*mine, mesh[worker].put(x), mesh[worker].put(y))
            losses.append(loss)
            sent.append([moved(g, 0) for g in grads])
        for grads in sent:
            update(*[server[n] for n in names], *grads)
    return [float(x) for x in losses], [value(server[n]) for n in names]


def evaluation(mesh: Any) -> Any:
    """Sentences of all lengths: accuracy, a table of confusions, perplexity, the worst ten."""
    torch.manual_seed(0)
    model = nn.Module()
    model.table, model.out = nn.Embedding(40, 12), nn.Linear(12, 5)
    mesh.replicate(model)

    def judged(ids: Any, lengths: Any, labels: Any) -> Any:
        mask = torch.arange(ids.shape[1])[None] < lengths[:, None]
        h = (model.table(ids) * mask[..., None]).sum(1) / lengths[:, None]
        logits = model.out(h)
        found = logits.argmax(-1)
        table = torch.zeros(5, 5).index_put((labels, found), torch.ones(found.shape[0]), accumulate=True)
        return F.cross_entropy(logits, labels, reduction="none"), (found == labels).sum(), table

    judged = on(mesh, judged)
    g = torch.Generator().manual_seed(3)
    right, total, each, table = 0, 0, [], 0
    with torch.no_grad():
        for batch in range(7):
            rows = [1, 2, 9, 4, 3, 6, 5][batch]
            lengths = torch.randint(1, 12, (rows,), generator=g)
            ids = nn.utils.rnn.pad_sequence([torch.randint(0, 40, (int(n),), generator=g) for n in lengths], batch_first=True)
            labels = torch.randint(0, 5, (rows,), generator=g)
            loss, hits, confused = judged(mesh.shard(ids), mesh.shard(lengths), mesh.shard(labels))
            right, total, table = right + hits, total + rows, confused + table
            each.append(loss)
        every = torch.cat(each)
        worst = every.topk(10)
    return float(right / total), value(table), math.exp(float(every.mean())), value(worst.values), worst.indices.tolist()


def ensemble(mesh: Any) -> Any:
    """A model on each worker; means and votes over all; the best two are averaged into one."""
    models = [mesh[i].put(classifier(i)) for i in range(len(mesh))]
    calls = [on(mesh, m) for m in models]
    x, y = data(23, 8, 4, 5)
    out = []
    with torch.no_grad():
        for rows in (x[:5], x[5:12], x[12:]):
            each = [moved(call(mesh[i].put(rows)).softmax(-1), 0) for i, call in enumerate(calls)]
            stacked = torch.stack(each)
            out.append((stacked.mean(0), stacked.argmax(-1).mode(0).values, stacked.std(0).mean()))
        scores = [float((call(mesh[i].put(x)).argmax(-1) == mesh[i].put(y)).double().mean()) for i, call in enumerate(calls)]
        best = sorted(range(len(scores)), key=scores.__getitem__)[-2:]
        soup = copy.deepcopy(models[best[0]])
        for p, q in zip(soup.parameters(), models[best[1]].parameters(), strict=True):
            p.copy_((p + moved(q, best[0])) / 2)
        made = soup(mesh[best[0]].put(x)).softmax(-1)
    return [[value(t) for t in ts] for ts in out], scores, value(made)


def unequal_stages(mesh: Any) -> Any:
    """A pipeline whose stages are told, the first much larger; micro-batches of unlike sizes, fewer rows than micro-batches."""
    torch.manual_seed(0)
    n = len(mesh)
    stages = [nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.LayerNorm(24), nn.Linear(24, 24), nn.GELU(), nn.Linear(24, 10))]
    stages += [nn.Sequential(nn.Linear(10, 10), nn.Tanh()) for _ in range(n - 2)] + [nn.Linear(10, 4)]
    make = lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)
    whole = nn.Sequential(*stages)
    losses = []
    batches = [data(rows, 6, 4, rows) for rows in (7, 2, 11, 1, 6)]
    if type(mesh) is Here:
        step = step_of(whole, make(whole.parameters()))
        losses = [step(x, y) for x, y in batches]
    else:
        pipe = remote.Pipeline(mesh, stages, F.cross_entropy, make)
        losses = [pipe.step(x, y, micro_batches=3) for x, y in batches]
    return [float(x) for x in losses], [value(p) for p in whole.parameters()]


def resumed(mesh: Any) -> Any:
    """Trained on some workers, gone on with on others; weights cut there, whole here; the optimizer goes on, too."""
    losses = []
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        path = pathlib.Path(folder) / "state.pt"
        meshes: list[Any] = [mesh, mesh, mesh]
        if type(mesh) is not Here:
            meshes[1] = stack.enter_context(remote.mesh(len(mesh) + 2, transport="threads", timeout=60))
        model = optimizer = None
        for i, m in enumerate(meshes):
            before = model, optimizer
            model = classifier(0)
            if i == 1:
                m.place(model, {"0.weight": remote.Shard(0), "0.bias": remote.Shard(0), "2.weight": remote.Shard(1)})
            else:
                m.replicate(model)
            optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
            step = on(m, step_of(model, optimizer))
            if i and type(mesh) is Here:
                model.load_state_dict(before[0].state_dict())
                optimizer.load_state_dict(copy.deepcopy(before[1].state_dict()))
            elif i:
                step(m.shard(data(4, 8, 4, 50)[0]), m.shard(data(4, 8, 4, 50)[1]))  # the optimizer's state is there to be restored
                m.restore(path, {"model": model, "optimizer": optimizer})
            for k in range(4):
                x, y = data(4 + k, 8, 4, i * 7 + k)
                losses.append(step(m.shard(x), m.shard(y)).cpu())
            if type(mesh) is not Here:
                m.checkpoint(path, {"model": model, "optimizer": optimizer})
        return [float(x) for x in losses], [value(p) for p in model.parameters()]


class Mean(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.out = nn.Linear(5, 3)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        mask = torch.arange(x.shape[1])[None] < lengths[:, None]
        return self.out((x * mask[..., None]).sum(1) / lengths[:, None])


def serving(mesh: Any) -> Any:
    """Clients that are threads, a queue of four: whoever comes too early waits."""
    g = torch.Generator().manual_seed(0)
    requests = [torch.randn(1 + (i * 7) % 13, 5, generator=g) for i in range(60)]
    if type(mesh) is Here:
        model = Mean().eval()
        with torch.no_grad():
            return [model(r[None], torch.tensor([r.shape[0]]))[0] for r in requests]
    server = mesh.serve(Mean(), batch=4, queue=4)
    answers: list[Any] = [None] * len(requests)

    def client(first: int) -> None:
        for i in range(first, len(requests), 5):
            answers[i] = server(requests[i])

    threads = [threading.Thread(target=client, args=(i,)) for i in range(5)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120)
    server.close()
    assert server.counts["requests"] == len(requests)
    return answers


def evolution(mesh: Any) -> Any:
    """Evolution strategies: each worker tries disturbances of its own, the controller ranks them."""
    theta = torch.zeros(12)
    g = torch.Generator().manual_seed(4)
    target = torch.randn(12, generator=g)

    def fitness(many: Any) -> Any:
        return -((torch.sin(many) + many - target) ** 2).sum(-1)

    fitness = on(mesh, fitness)
    best = []
    for i in range(8):
        noise = torch.randn(6 + i % 3, 12, generator=g)
        scores = fitness(mesh.shard(theta + 0.3 * torch.cat([noise, -noise]))).cpu()
        order = scores.argsort().argsort().float()
        weights = order / (len(order) - 1) - 0.5
        half = len(noise)
        theta = theta + 0.1 * ((weights[:half] - weights[half:])[:, None] * noise).sum(0)
        best.append(float(scores.max()))
    return best, theta


def clusters(mesh: Any) -> Any:
    """K-means of points that are cut: a loop until nothing moves, centers in place, empty clusters kept."""
    g = torch.Generator().manual_seed(8)
    points = torch.cat([torch.randn(n, 3, generator=g) + 4 * i for i, n in enumerate((13, 7, 21))])
    points = points[torch.randperm(len(points), generator=g)]
    x, centers = mesh.shard(points), mesh.replicate(points[:4].clone())

    def move(x: Any, centers: Any) -> Any:
        nearest = ((x[:, None] - centers[None]) ** 2).sum(-1).argmin(1)
        sums = torch.zeros_like(centers).index_add(0, nearest, x)
        counts = torch.zeros(centers.shape[0]).index_add(0, nearest, torch.ones(x.shape[0]))
        made = torch.where(counts[:, None] > 0, sums / counts.clamp(min=1)[:, None], centers)
        far = (made - centers).norm(dim=1).max()
        centers.copy_(made)
        return far, counts

    move = on(mesh, move)
    rounds = 0
    while rounds < 50:
        far, counts = move(x, centers)
        rounds += 1
        if far < 1e-4:
            break
    return rounds, value(counts), value(centers)


def averaged(mesh: Any) -> Any:
    """Federated averaging: steps of its own on each worker, unequal amounts of data, then the weighted mean of all."""
    models = [mesh[i].put(classifier(0)) for i in range(len(mesh))]
    steps = [on(mesh, step_of(m, torch.optim.SGD(m.parameters(), lr=0.2))) for m in models]
    losses = []
    for round_ in range(3):
        shares = [4 + 3 * i + round_ for i in range(len(mesh))]
        for i, step in enumerate(steps):
            for k in range(2):
                x, y = data(shares[i], 8, 4, round_ * 100 + i * 10 + k)
                losses.append(step(mesh[i].put(x), mesh[i].put(y)))
        with torch.no_grad():
            for ps in zip(*[m.parameters() for m in models], strict=True):
                mean = sum(moved(p.detach(), 0) * n for p, n in zip(ps, shares, strict=True)) / sum(shares)
                for i, p in enumerate(ps):
                    p.copy_(moved(mean, i))
    return [float(x) for x in losses], [value(p) for p in models[-1].parameters()]


def accumulated(mesh: Any) -> Any:
    """Gradients of unequal micro-batches are added, clipped; a schedule of rates; stops early; keeps the best weights."""
    model = mesh.replicate(classifier(2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)

    def forward(x: Any, y: Any, share: float) -> Any:
        loss = F.cross_entropy(model(x), y) * share
        loss.backward()
        return loss.detach()

    def update() -> Any:
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
        return norm

    forward, update = on(mesh, forward), on(mesh, update)
    best, kept, told, patience = math.inf, None, [], 0
    check = data(30, 8, 4, 77)
    for i in range(10):
        parts = [data(n, 8, 4, 10 * i + n) for n in (2, 5, 3 + i % 4)]
        rows = sum(len(y) for _, y in parts)
        losses = [forward(mesh.shard(x), mesh.shard(y), len(y) / rows) for x, y in parts]
        norm = update()
        schedule.step()
        with torch.no_grad():
            held = float(F.cross_entropy(model(mesh.shard(check[0])), mesh.shard(check[1])))
        told.append((float(sum(losses)), float(norm), held))
        if held < best - 1e-3:
            best, patience = held, 0
            kept = {k: v.detach().clone() for k, v in model.state_dict().items()}
        else:
            patience += 1
            if patience > 2:
                break
    model.load_state_dict(kept)
    return told, [value(p) for p in model.parameters()]


def distilled(mesh: Any) -> Any:
    """A teacher on one worker, its answers sent to all; a student on all; an average of its weights."""
    teacher = mesh[0].put(classifier(1, hidden=40)).eval()
    student = mesh.replicate(classifier(9))
    smooth = copy.deepcopy(student)
    optimizer = torch.optim.RMSprop(student.parameters(), lr=0.01)
    ask = on(mesh, lambda x: teacher(x).div(2).softmax(-1))

    def learn(x: Any, wanted: Any) -> Any:
        loss = F.kl_div((student(x) / 2).log_softmax(-1), wanted, reduction="batchmean")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for p, q in zip(smooth.parameters(), student.parameters(), strict=True):
                p.lerp_(q, 0.1)
        return loss

    learn = on(mesh, learn)
    losses = []
    for i in range(6):
        x, _ = data(5 + i * 2, 8, 4, i)
        with torch.no_grad():
            wanted = ask(mesh[0].put(x))
        losses.append(learn(mesh.shard(x), mesh.shard(wanted)))
    return [float(x.detach()) for x in losses], [value(p) for p in smooth.parameters()]


def recommended(mesh: Any) -> Any:
    """Tables of users and things, cut by rows; baskets of all lengths; negative samples; recall of the best ten."""
    torch.manual_seed(0)
    model = nn.Module()
    model.users, model.things = nn.Embedding(30, 8), nn.EmbeddingBag(50, 8, mode="mean")
    mesh.place(model, {"users.weight": remote.Shard(0), "things.weight": remote.Shard(0)})
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)

    def step(user: Any, basket: Any, offsets: Any, wrong: Any) -> Any:
        u, b = model.users(user), model.things(basket, offsets)
        good = (u * b).sum(-1)
        bad = (u[:, None] * model.things.weight[wrong]).sum(-1)
        loss = F.softplus(bad - good[:, None]).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    step = on(mesh, step)
    g = torch.Generator().manual_seed(2)
    losses = []
    for i in range(5):
        rows = 4 + i
        lengths = torch.randint(1, 6, (rows,), generator=g)
        offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)[:-1]])
        basket = torch.randint(0, 50, (int(lengths.sum()),), generator=g)
        user, wrong = torch.randint(0, 30, (rows,), generator=g), torch.randint(0, 50, (rows, 3), generator=g)
        losses.append(step(mesh.shard(user), mesh.replicate(basket), mesh.replicate(offsets), mesh.shard(wrong)))
    with torch.no_grad():
        best = (model.users.weight @ model.things.weight.T).topk(10).indices
    return [float(x) for x in losses], value(best)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(6)
        self.table, self.cell, self.out = nn.Embedding(20, 8), nn.GRUCell(8, 10), nn.Linear(10, 20)

    def forward(self, ids: torch.Tensor, h: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits = []
        for t in range(ids.shape[1]):
            h = self.cell(self.table(ids[:, t]), h)
            logits.append(self.out(h))
        return torch.stack(logits, 1), h


def recurrent(mesh: Any) -> Any:
    """A language model that goes through long texts in windows; its state goes on from window to window; then it writes."""
    model = mesh.replicate(Recurrent())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)

    def step(ids: Any, h: Any) -> Any:
        logits, h = model(ids[:, :-1], h)
        loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach(), h.detach()

    step = on(mesh, step)
    text = torch.randint(0, 20, (5, 30), generator=torch.Generator().manual_seed(1))
    losses, h, at = [], mesh.shard(torch.zeros(5, 10)), 0
    for window in (6, 9, 5, 8):
        loss, h = step(mesh.shard(text[:, at : at + window]), h)
        losses.append(loss)
        at += window - 1
    written = [text[:2, :1]]
    h = mesh.replicate(torch.zeros(2, 10))
    with torch.no_grad():
        for _ in range(6):
            logits, h = model(mesh.replicate(written[-1]), h)
            written.append(logits[:, -1].argmax(-1, keepdim=True).cpu())
    return [float(x) for x in losses], torch.cat(written, 1)


def solved(mesh: Any) -> Any:
    """Conjugate gradients: the matrix cut by rows, a loop that ends when the rest is small; then the largest eigenvalue."""
    g = torch.Generator().manual_seed(5)
    m = torch.randn(17, 17, generator=g, dtype=torch.float64)
    a, b = mesh.shard(m @ m.T + 17 * torch.eye(17, dtype=torch.float64)), mesh.replicate(torch.randn(17, generator=g, dtype=torch.float64))

    def advance(a: Any, x: Any, r: Any, p: Any) -> Any:
        ap = a @ p
        rr = r @ r
        alpha = rr / (p @ ap)
        x = x + alpha * p
        left = r - alpha * ap
        return x, left, left + (left @ left) / rr * p, left.norm()

    advance = on(mesh, advance)
    x, r, p, n = torch.zeros_like(b), b.clone(), b.clone(), 0
    while True:
        x, r, p, rest = advance(a, x, r, p)
        n += 1
        if rest < 1e-9 or n > 40:
            break
    v = torch.ones_like(b)
    for _ in range(12):
        v = a @ v
        v = v / v.norm()
    return value(x), value(v @ (a @ v))


def experts(mesh: Any) -> Any:
    """A mixture of experts, one on each worker: rows go to the expert that the gate names, however many, and come back."""
    torch.manual_seed(0)
    n = len(mesh)
    gate = mesh[0].put(nn.Linear(6, n))
    each = [mesh[i].put(nn.Sequential(nn.Linear(6, 9), nn.GELU(), nn.Linear(9, 3))) for i in range(n)]
    calls = [on(mesh, e) for e in each]
    params = [p for m in (gate, *each) for p in m.parameters()]
    optimizer = torch.optim.SGD(params, lr=0.1)
    losses = []
    for i in range(4):
        x, y = torch.randn(7 + i, 6), torch.randn(7 + i, 3)
        x, y = mesh[0].put(x), mesh[0].put(y)
        share = gate(x).softmax(-1)
        chosen = share.argmax(-1)
        out = torch.zeros_like(y)
        for k in range(n):
            rows = (chosen == k).nonzero().flatten()
            if rows.numel():
                back = moved(calls[k](moved(x[rows], k)), 0)
                out = out.index_add(0, rows, back * share[rows, k, None])
        loss = ((out - y) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    return losses, [value(p) for p in params]


def adversaries(mesh: Any) -> Any:
    """Two models that learn against each other, two optimizers, a penalty on gradients."""
    maker = mesh.replicate(classifier(3, width=4, classes=6))
    judge = mesh.replicate(classifier(4, width=6, classes=1))
    make, look = (torch.optim.Adam(m.parameters(), lr=0.01, betas=(0.5, 0.9)) for m in (maker, judge))

    def judged(real: Any, noise: Any) -> Any:
        fake = maker(noise).detach()
        mixed = ((real + fake) / 2).requires_grad_()
        (slope,) = torch.autograd.grad(judge(mixed).sum(), mixed, create_graph=True)
        loss = judge(fake).mean() - judge(real).mean() + ((slope.norm(dim=1) - 1) ** 2).mean()
        look.zero_grad()
        loss.backward()
        look.step()
        return loss.detach()

    def made(noise: Any) -> Any:
        loss = -judge(maker(noise)).mean()
        make.zero_grad()
        loss.backward()
        make.step()
        return loss.detach()

    judged, made = on(mesh, judged), on(mesh, made)
    g = torch.Generator().manual_seed(6)
    told = []
    for i in range(5):
        rows = 4 + i
        for _ in range(2):
            told.append(judged(mesh.shard(torch.randn(rows, 6, generator=g)), mesh.shard(torch.randn(rows, 4, generator=g))))
        told.append(made(mesh.shard(torch.randn(rows + 1, 4, generator=g))))
    return [float(x) for x in told], [value(p) for p in maker.parameters()]


def mistakes(mesh: Any) -> Any:
    """A loop over batches of which some are bad: each is caught, written down, and the rest goes on unharmed."""
    model = mesh.replicate(nn.Sequential(nn.Embedding(10, 6), nn.Flatten(), nn.Linear(18, 2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = on(mesh, step_of(model, optimizer))
    told: list[Any] = []
    for i in range(8):
        ids = torch.arange(3 * (2 + i)).reshape(-1, 3) % 10
        if i in (2, 5):
            ids[-1, 0] = 99
        try:
            told.append(float(step(mesh.shard(ids), mesh.shard(torch.arange(2 + i) % 2))))
        except (IndexError, remote.Failed) as e:
            told.append("IndexError" if "IndexError" in f"{type(e).__name__} {e}" else str(e))
            optimizer.zero_grad()
    return told, [value(p) for p in model.parameters()]


PROGRAMS: dict[str, Callable] = {
    f.__name__: f
    for f in (
        search, parameter_server, evaluation, ensemble, unequal_stages, resumed, serving, evolution, clusters, averaged, accumulated,
        distilled, recommended, recurrent, solved, experts, adversaries, mistakes,
    )
}  # fmt: skip


def differ(a: Any, b: Any, path: str = "") -> Iterator[str]:
    """Where two results differ by more than sums in another order explain."""
    if isinstance(a, (list, tuple)):
        if len(a) != len(b):
            yield f"{path}: {len(a)} and {len(b)} results"
        for i, (x, y) in enumerate(zip(a, b, strict=False)):
            yield from differ(x, y, f"{path}/{i}")
    elif isinstance(a, torch.Tensor):
        if a.dtype is not b.dtype or a.shape != b.shape or not torch.allclose(a.double(), b.double(), rtol=1e-4, atol=1e-5):
            yield f"{path}: {a} and {b}"
    elif isinstance(a, float):
        if not math.isclose(a, b, rel_tol=2e-4, abs_tol=1e-5):
            yield f"{path}: {a} and {b}"
    elif a != b:
        yield f"{path}: {a} and {b}"


def one(name: str, mesh: Any) -> tuple[list[str], dict[str, int]]:
    """Where a program's results on a mesh are not those of one process, and what the mesh did."""
    torch.manual_seed(0)
    want = PROGRAMS[name](Here(len(mesh)))
    before = dict(mesh.counts)
    refused: list[str] = []
    stop = events.subscribe(lambda e: refused.append(f"{e.kind}: {e.fields.get('text', e.fields.get('what'))}"), ("gathered",))
    torch.manual_seed(0)
    try:
        got = PROGRAMS[name](mesh)
    finally:
        stop()
    counts = {k: mesh.counts[k] - before.get(k, 0) for k in ("messages", "programs", "calls", "collectives")}
    return list(differ(want, got)), counts | {"gathered": len(refused)}


def run(workers: int, transport: str, names: list[str], init: Any = None) -> None:
    with remote.mesh(workers, transport=transport, timeout=120, init=init) as mesh:
        for name in names or PROGRAMS:
            began = time.perf_counter()
            try:
                wrong, counts = one(name, mesh)
                told = "right" if not wrong else "WRONG " + "; ".join(wrong)[:600]
            except Exception as e:
                told, counts = f"RAISED {type(e).__name__}: {e}"[:900], {}
            print(f"{name}: {told} {counts}, {time.perf_counter() - began:.1f} s", flush=True)
        print("leaked", mesh.stats()["leaked"])
