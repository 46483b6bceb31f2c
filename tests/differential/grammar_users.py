"""What the themes `users` and `training` have beside the grammar: what programs of PyTorch's users are made of.

A module with parameters, running statistics, a counter, a log and a cache by size; two optimizers; averaged weights; settings whose numbers
change between calls; a history that grows over calls; tensors of ragged lengths; numbers of NumPy and floats as arguments; functions that
return early where a size says so; functions that are compiled themselves. Sizes of 0 and 1 are as usual as others there.
"""

from __future__ import annotations

from tests.differential.grammar import blocks, rows

PRELUDE = '''
class Settings:
    """Numbers that somebody else changes."""

    def __init__(self):
        self.rate, self.limit, self.ratio = 0.1, 4, np.float64(0.5)


class Memory:
    """Tensors of the last calls, of any sizes."""

    def __init__(self, most):
        self.parts, self.most, self.total = [], most, 0

    def push(self, t):
        self.parts.append(t)
        self.total += t.numel()
        if len(self.parts) > self.most:
            self.total -= self.parts.pop(0).numel()
        return len(self.parts)

    def flat(self):
        if not self.parts:
            return torch.zeros(0)
        return torch.cat([t.reshape(-1) for t in self.parts])


class Net(torch.nn.Module):
    """Parameters of sizes that suit any input, statistics, a counter, a log, a cache by size."""

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor(0.5))
        self.shift = torch.nn.Parameter(torch.tensor([0.25]))
        self.act = torch.nn.Sequential(torch.nn.Tanh(), torch.nn.LeakyReLU(0.1))
        self.drop = torch.nn.Dropout(0.25)
        self.register_buffer("mean", torch.zeros(()))
        self.register_buffer("seen", torch.tensor(0))
        self.register_buffer("last", None, persistent=False)
        self.steps, self.momentum, self.best = 0, 0.1, None
        self.log, self.cache = [], {}

    def positions(self, n):
        if n not in self.cache:
            self.cache[n] = torch.arange(n, dtype=torch.float32) / max(n, 1)
        return self.cache[n]

    def note(self, t):
        with torch.no_grad():
            self.mean.lerp_(t.mean(), self.momentum) if t.numel() else None
            self.seen += t.shape[0]
        self.steps += 1
        self.last = t.detach()
        self.log.append((self.steps, tuple(t.shape)))
        del self.log[:-3]

    def forward(self, t, gain=1.0, mask=None):
        if t.shape[0] == 0:
            return t * self.scale
        if self.training:
            self.note(t)
        out = self.act((t - self.mean) * self.scale + self.shift) * gain
        if mask is not None:
            out = out.masked_fill(mask, self.momentum)
        return out + self.positions(t.shape[0])[:, None]

    def noisy(self, t):
        return self.drop(t) * self.scale

    def heads(self, t):
        return (t * self.scale).sum(), (t + self.shift).pow(2).mean()


torch.manual_seed(0)
NET, SETTINGS, MEMORY, AVERAGE = Net(), Settings(), Memory(3), []
SGD = torch.optim.SGD([NET.scale], lr=0.1, momentum=0.5)
ADAM = torch.optim.Adam([{"params": [NET.shift]}], lr=0.05)
RAGGED = []


def early(t, limit):
    if t.shape[0] <= 1:
        return t + 1
    if t.numel() > limit:
        return t * 0.5
    total = t.sum()
    return t if t.dim() != 2 else t - total


def pooled(parts):
    kept = [p for p in parts if p.shape[0]]
    if not kept:
        return torch.zeros(1)
    return torch.stack([p.mean() for p in kept])


def padded(parts):
    longest = max((p.shape[0] for p in parts), default=0)
    out = torch.zeros(len(parts), longest)
    for i, p in enumerate(parts):
        out[i, : p.shape[0]] = p
    return out


@pliant.compile
def nested(t, k):
    return early(t * k, 7) + t.shape[0]


@pliant.compile
def nested_state(t):
    SETTINGS.limit += 1
    if t.numel() == 0:
        return t
    return NET(t, SETTINGS.rate)


def minimise(loss, *optimizers, clip=None):
    for o in optimizers:
        o.zero_grad()
    loss.backward()
    if clip is not None:
        torch.nn.utils.clip_grad_norm_(NET.parameters(), clip)
    for o in optimizers:
        o.step()
    return loss.detach()


def average(decay):
    with torch.no_grad():
        if not AVERAGE:
            AVERAGE.extend(p.clone() for p in NET.parameters())
        for a, p in zip(AVERAGE, NET.parameters()):
            a.mul_(decay).add_(p, alpha=1 - decay)
'''

NAMES = ("NET", "SETTINGS", "MEMORY", "AVERAGE", "SGD", "ADAM", "RAGGED")
"""The globals of it that are compared."""

EXPRESSIONS: dict[str, list[str]] = {
    "T": rows(r"""
NET(<T>)
NET(<T>, <F>)
NET(<T>, gain=<I>, mask=<M>)
NET.noisy(<T>)
NET.scale * <T> + NET.shift
<T> * NET.mean
<T> * SETTINGS.rate
<T> + SETTINGS.limit
<T> * SETTINGS.ratio
<T> * thing + <I>
<T> * float(k)
<T> * k
<T> + NET.positions(x.shape[0])[:, None]
<T> + NET.positions(<I> % 5).sum()
early(<T>, <I>)
early(<T>, SETTINGS.limit)
nested(<T>, <I>)
nested(<T>, <F>)
nested_state(<T>)
<T> - pooled(RAGGED).sum()
<T> + padded(RAGGED).sum()
<T> + MEMORY.flat().sum()
<T> + torch.from_numpy(vec).float().sum()
torch.nn.functional.pad(<T>, (1, 0))[:, 1:]
torch.nn.functional.dropout(<T>, 0.5, NET.training)
<T>.narrow(0, 0, x.shape[0] // 2).sum() + <T>
torch.cat(<T>.split(<I> % 3 + 1))
torch.cat(<T>.chunk(<I> % 3 + 1, dim=1), dim=1)
torch.cat([<T>[: <I> % 4], <T>[<I> % 4 :]])[: x.shape[0]]
(<T> if x.numel() else <T> + 1)
(NET(<T>) if NET.training else <T>)
sum((t * (i + 1) for i, t in enumerate(<L>)), <T>)
"""),
    "R": rows(r"""
<T>[: <I> % 3].sum(0)
<T>.mean(0)
NET(<T>).sum(0)
"""),
    "C": rows(r"""
sum(NET.heads(<T>))
NET.heads(<T>)[<I> % 2]
NET.scale
NET.mean
(<T> * <M>).sum() / (<M>).sum().clamp(min=1)
torch.nn.functional.mse_loss(NET(<T>), <T>)
<T>.sum() * thing
torch.as_tensor(k).float()
torch.tensor(vec.sum()).float()
"""),
    "A": rows(r"""
RAGGED[<I> % len(RAGGED)]
torch.cat(RAGGED)
pooled(RAGGED)
padded(RAGGED)[0]
MEMORY.flat()
NET.shift
NET.positions(<I> % 4)
torch.from_numpy(vec) * 1.0
torch.nn.utils.rnn.pad_sequence(RAGGED, batch_first=True)[-1]
<A>[: <I> % 3]
<A>[<I> % 3 :]
"""),
    "I": rows(r"""
NET.steps % 50
SETTINGS.limit % 50
len(NET.log)
len(NET.cache)
len(MEMORY.parts)
MEMORY.total % 50
len(RAGGED)
RAGGED[<I> % len(RAGGED)].shape[0]
max(r.shape[0] for r in RAGGED)
x.numel()
<T>[: <I> % 3].shape[0]
x.shape[0] // 2
-(-x.shape[0] // 2)
vec.shape[0]
int(thing) % 7
"""),
    "F": rows(r"""
SETTINGS.rate
thing
SETTINGS.rate * <F>
NET.momentum
1 / (NET.steps + 1)
SGD.param_groups[0]['lr']
float(k)
float(SETTINGS.ratio)
float(vec.sum())
thing / (x.shape[0] + 1)
"""),
    "B": rows(r"""
NET.training
x.shape[0] == 0
x.shape[0] <= 1
x.numel() > SETTINGS.limit
SETTINGS.rate > <F>
NET.last is None
NET.best is not None
NET.steps % 2 == 0
<I> in NET.cache
NET.scale.grad is None
thing > 0
"""),
    "L": rows(r"""
[NET(t) for t in <L>]
[early(t, <I>) for t in <L>]
"""),
}

STATEMENTS: list[str] = rows(r"""
NET.train(<B>)
NET.eval()
NET.steps += <I> % 3
NET.momentum = <F>
NET.best = <C>.detach()
NET.last = <T>.detach()
NET.cache.clear()
NET.cache[<I> % 4] = <A>.detach()
NET.log.append(<I>)
SETTINGS.rate = <F>
SETTINGS.limit = <I> % 50
SETTINGS.rate *= 0.5
SETTINGS.ratio = k
MEMORY.push(<T>.detach())
MEMORY.push(<A>)
MEMORY.push(<R>)
<new:I> = MEMORY.push(<T>)
average(<F>)
SGD.zero_grad()
ADAM.zero_grad(set_to_none=False)
<new:T> = NET(<T>)
<new:T> = early(<T>, SETTINGS.limit)
<new:T> = nested(<T>, <F>)
<new:T> = nested_state(<T>)
<new:C> = pooled(RAGGED).sum()
""") + blocks(r"""
if x.shape[0] == 0:
    return <ret>

if x.numel() <= SETTINGS.limit:
    return <ret>

if x.shape[1] == 1:
    <block>
else:
    <block>

<new:T> = <T>.clone()
<=1>[1:] = <T>[1:]

<new:T> = <T>.clone()
<=1>[:, <I> % 3 :] *= <F>
<=1>[: <I> % 3].zero_()

<new:T> = <T>.clone()
<=1>[-1:] += <I>
<=1>[::2] = <T>[::2]

<new:T> = <T>.clone()
<=1>[..., :1].clamp_(max=thing)
<=1>[: x.shape[0] // 2].copy_(<T>[: x.shape[0] // 2])

<new:T> = torch.zeros_like(<T>)
for i in range(x.shape[0]):
    <=1>[i] = <T>[i] * i

<new:T> = torch.zeros(x.shape)
for i, r in enumerate(RAGGED[: x.shape[0]]):
    <=1>[i, : r.shape[0]] = r[: x.shape[1]]

<new:C> = minimise(NET(<T>).pow(2).sum(), SGD)

<new:C> = minimise(torch.nn.functional.mse_loss(NET(<T>), <T>), SGD, ADAM, clip=<F>)

<new:C> = minimise(sum(NET.heads(<T>)), ADAM)
<new:C> = minimise(NET.heads(<T>)[1] * thing, ADAM)

first, second = NET.heads(<T>)
first.backward(retain_graph=True)
if <B>:
    second.backward()
    ADAM.step()
SGD.step()
SGD.zero_grad()

first, second = NET.heads(NET(<T>))
(first + SETTINGS.rate * second).backward()
if NET.steps % 2 == 0:
    SGD.step()
    SGD.zero_grad()

<new:C> = torch.autograd.grad(NET(<T>).sum() + NET.scale, NET.scale)[0]

with torch.no_grad():
    NET.scale.mul_(0.9)
    <block>

with torch.no_grad():
    NET.shift.copy_(<C>.clamp(-1, 1).reshape(1))

with torch.no_grad():
    NET.mean.copy_(<C>)
    <new:T> = NET(<T>)

for group in SGD.param_groups:
    group['lr'] = max(group['lr'] * 0.5, 1e-3)

if NET.best is None or <C> < NET.best:
    NET.best = <C>.detach()

parts = []
for <loc:I> in range(<I> % 4):
    parts.append(<A>)
    <block>
<new:A> = torch.cat(parts) if parts else <A>

parts = {}
for r in RAGGED:
    parts.setdefault(r.shape[0], []).append(r)
<new:L> = [<T> + torch.stack(rows).mean() for rows in parts.values() if rows[0].shape[0]] or [<T>]

<new:L> = []
state = <T>
for t in <L>[:4]:
    state = torch.tanh(state * NET.scale + t)
    <=1>.append(state)
    <loop>
<=1>.append(state)

while len(MEMORY.parts) > 1:
    MEMORY.parts.pop(0)

out = np.zeros(vec.shape[0] + 1)
out[1:] = vec
<new:F> = float(out.sum())
<new:T> = <T> + torch.as_tensor(out).float().sum()
""")
