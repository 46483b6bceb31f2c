"""What the themes `loops` and `reports` have beside those of `grammar_users.py`: training loops, and what is made of results.

`loops`: gradients that are accumulated, clipped, scaled, penalised and hooked, tied weights, averaged ones, schedulers, a closure for
LBFGS, checkpoints, batch norm, parts without gradients, `autograd.Function`s. `reports`: records, dicts, lists, strings and tables of what
a model found.
"""

from __future__ import annotations

from tests.differential.grammar import blocks, rows

PRELUDE = '''
import json

from torch.utils.checkpoint import checkpoint


class Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k):
        ctx.save_for_backward(x)
        ctx.k = k
        return x.round() * k

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * ctx.k * (x.abs() < 2), None


class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(1, 3, bias=False), torch.nn.Linear(1, 3, bias=False)  # under a norm its gradients are rounding
        self.down.weight = self.up.weight
        self.norm = torch.nn.BatchNorm1d(3)
        self.gain = torch.nn.Parameter(torch.tensor([1.5]))
        self.frozen = torch.nn.Parameter(torch.tensor([0.5]), requires_grad=False)
        self.again, self.calls = False, 0

    def block(self, h):
        return torch.tanh(self.norm(h) if self.training and h.shape[0] > 1 else h) * self.gain

    def forward(self, t):
        self.calls += 1
        h = self.up(t.reshape(-1, 1))
        h = checkpoint(self.block, h, use_reentrant=False) if self.again else self.block(h)
        return (h @ self.down.weight * self.frozen).reshape(t.shape)


torch.manual_seed(1)
TIED = Tied()
EMA = [p.detach().clone() for p in TIED.parameters()]
RMS = torch.optim.RMSprop(TIED.parameters(), lr=0.01, momentum=0.5)
ADAMW = torch.optim.AdamW([{"params": [TIED.gain], "lr": 0.02}, {"params": list(TIED.norm.parameters())}], lr=0.01)
LBFGS = torch.optim.LBFGS([TIED.gain], lr=0.1, max_iter=2)
STEP_LR = torch.optim.lr_scheduler.StepLR(RMS, 2, 0.5)
LAMBDA_LR = torch.optim.lr_scheduler.LambdaLR(ADAMW, lambda epoch: 1 / (epoch + 1))
SCALER = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=2)
LOSSES = collections.deque(maxlen=4)
REPORT = {}


def loss_of(t, target=None):
    out = TIED(t)
    return out.pow(2).mean() if target is None else torch.nn.functional.smooth_l1_loss(out, target.detach())


def accumulate(parts, optimizer, every=2):
    optimizer.zero_grad()
    for i, part in enumerate(parts):
        if part.numel() == 0:
            continue
        (loss_of(part) / every).backward()
        if (i + 1) % every == 0:
            optimizer.step()
            optimizer.zero_grad()


def clipped(optimizer, most):
    norm = torch.nn.utils.clip_grad_norm_(TIED.parameters(), most)
    optimizer.step()
    return norm.detach()


def scaled(loss, optimizer):
    optimizer.zero_grad()
    SCALER.scale(loss).backward()
    SCALER.unscale_(optimizer)
    torch.nn.utils.clip_grad_value_(TIED.parameters(), 0.5)
    SCALER.step(optimizer)
    SCALER.update()


def follow(decay):
    with torch.no_grad():
        for e, p in zip(EMA, TIED.parameters()):
            e.lerp_(p, 1 - decay)


def penalty(t):
    t = t.detach().requires_grad_(True)
    (g,) = torch.autograd.grad(TIED(t).sum(), t, create_graph=True)
    return (g.norm() - 1) ** 2


@dataclasses.dataclass
class Found:
    label: str
    score: float
    box: torch.Tensor
    tags: list = dataclasses.field(default_factory=list)

    def area(self):
        return float(self.box.prod())

    def told(self):
        return f"{self.label}:{self.score:.2f}x{self.box.numel()}"


Span = collections.namedtuple("Span", "begin end kind")
LABELS = ["cat", "dog", "owl"]


def found_in(t, limit, most=4):
    out = []
    for i, row in enumerate(t.detach()[:most]):
        if row.numel() == 0 or row.max() <= limit:
            continue
        out.append(Found(LABELS[int(row.argmax()) % 3], round(row.max().item(), 3), row.clone()))
    return sorted(out, key=lambda f: (-f.score, f.label))


def spans(mask):
    begin, out = None, []
    for i, on in enumerate(mask.reshape(-1).tolist() + [False]):
        if on and begin is None:
            begin = i
        elif not on and begin is not None:
            out.append(Span(begin, i, LABELS[begin % 3]))
            begin = None
    return out


def suppressed(t, most=5):
    scores, order = t.detach().reshape(-1).sort(descending=True, stable=True)
    kept = []
    for i in order[:most].tolist():
        if all(abs(i - j) > 1 for j in kept):
            kept.append(i)
    return kept


def grouped(found):
    by = {}
    for f in found:
        by.setdefault(f.label, []).append(f)
    return {k: (len(v), max(f.score for f in v)) for k, v in sorted(by.items())}


def decoded(ids):
    return " ".join(LABELS[i % 3][: i % 4 + 1] for i in ids)
'''

NAMES = ("TIED", "EMA", "RMS", "ADAMW", "LOSSES", "REPORT")
"""The globals of it that are compared."""

LOOP_EXPRESSIONS: dict[str, list[str]] = {
    "T": rows(r"""
TIED(<T>)
Straight.apply(<T>, <F>)
TIED(<T>) * NET.scale
TIED(<T>).detach() + <T>
checkpoint(NET, <T>, use_reentrant=False)
<T> * TIED.gain
<T> * EMA[0]
<T> * sum(LOSSES, 1.0)
torch.utils.checkpoint.checkpoint(early, <T>, <I>, use_reentrant=False)
"""),
    "C": rows(r"""
loss_of(<T>)
loss_of(<T>, <T>)
penalty(<T>)
TIED.gain.sum() * <C>
Straight.apply(<T>, <F>).sum()
"""),
    "F": rows(r"""
RMS.param_groups[0]['lr']
ADAMW.param_groups[-1]['lr']
STEP_LR.get_last_lr()[0]
SCALER.get_scale()
float(len(LOSSES))
"""),
    "B": rows(r"""
TIED.training
TIED.gain.grad is None
TIED.up.weight is TIED.down.weight
TIED.gain.requires_grad
TIED.calls % 2 == 0
"""),
    "I": rows(r"""
TIED.calls % 20
len(LOSSES)
STEP_LR.last_epoch
len(RMS.state)
"""),
}

LOOP_STATEMENTS: list[str] = rows(r"""
TIED.train(<B>)
TIED.eval()
TIED.again = <B>
follow(<F>)
follow(0.9)
RMS.zero_grad()
STEP_LR.step()
LAMBDA_LR.step()
accumulate(<L>, RMS)
accumulate(<T>.split(<I> % 3 + 1), ADAMW, 3)
scaled(loss_of(<T>), RMS)
scaled(penalty(<T>) + loss_of(<T>), ADAMW)
LOSSES.append(<C>.item())
LOSSES.append(float(<C>.detach()))
<new:C> = minimise(loss_of(<T>), RMS, clip=<F>)
<new:C> = minimise(penalty(<T>), RMS)
<new:C> = minimise(NET(TIED(<T>)).sum(), RMS, SGD, ADAM)
""") + blocks(r"""
loss = loss_of(<T>)
RMS.zero_grad(set_to_none=<B>)
loss.backward()
<new:C> = clipped(RMS, 0.5)
LOSSES.append(loss.item())

for <loc:I> in range(<I> % 3):
    RMS.zero_grad()
    loss = loss_of(<T>) + 0.1 * TIED.gain.pow(2).sum()
    loss.backward()
    RMS.step()
    STEP_LR.step()
    LOSSES.append(float(loss))

def closure():
    LBFGS.zero_grad()
    loss = TIED.gain.sub(SETTINGS.rate).pow(2).sum() * <F>
    loss.backward()
    return loss
<new:C> = LBFGS.step(closure).detach()

with torch.no_grad():
    before = [p.clone() for p in TIED.parameters()]
<block>
with torch.no_grad():
    for p, old in zip(TIED.parameters(), before):
        p.copy_(old + 0.5 * (p - old))

handle = TIED.gain.register_hook(lambda g: g.clamp(-1, 1))
loss_of(<T>).backward()
handle.remove()
ADAMW.step()
ADAMW.zero_grad()

TIED.gain.requires_grad_(not TIED.gain.requires_grad)
<new:T> = TIED(<T>).detach()
TIED.gain.requires_grad_(True)

was = TIED.training
TIED.eval()
with torch.no_grad():
    <new:T> = TIED(<T>)
TIED.train(was)

for opt in (RMS, ADAMW):
    opt.zero_grad()
loss = sum((loss_of(t) for t in <L>), TIED.gain.sum() * 0)
loss.backward()
ADAMW.step() if <B> else RMS.step()

grads = torch.autograd.grad(loss_of(<T>), [TIED.gain, TIED.up.weight])
with torch.no_grad():
    for p, g in zip([TIED.gain, TIED.up.weight], grads):
        p.sub_(g, alpha=0.1)
<new:C> = sum(g.norm() for g in grads)

(g,) = torch.autograd.grad(loss_of(<T>), TIED.gain, create_graph=True)
fast = TIED.gain - 0.1 * g
(fast * SETTINGS.rate).pow(2).sum().backward()
RMS.step()

state = {k: v.clone() for k, v in TIED.state_dict().items()}
<block>
TIED.load_state_dict(state)
""")

REPORT_EXPRESSIONS: dict[str, list[str]] = {
    "S": rows(r"""
decoded(suppressed(<T>))
' '.join(f.told() for f in found_in(<T>, <F>))
json.dumps(grouped(found_in(<T>, <F>)))
'{:.3f}|{:03d}|{}'.format(<F>, <I>, tuple(<T>.shape))
str(spans(<M>))
','.join(map(str, suppressed(<T>)))
LABELS[<I> % 3].upper().center(9, '*')
"""),
    "I": rows(r"""
len(found_in(<T>, <F>))
len(spans(<M>))
sum(suppressed(<T>)) % 31
sum(s.end - s.begin for s in spans(<M>))
len(REPORT)
collections.Counter(f.label for f in found_in(<T>, 0.0)).total()
int(<T>.argmax()) if x.numel() else -1
"""),
    "F": rows(r"""
max((f.score for f in found_in(<T>, <F>)), default=0.0)
sum(f.area() for f in found_in(<T>, <F>))
round(float(<T>.sum()), 2)
<T>.abs().max().item() if x.numel() else 0.0
"""),
    "T": rows(r"""
<T> + sum(found.box.sum() for found in found_in(<T>, <F>))
<T> * len(spans(<M>))
torch.where(<M>, <T>, float(len(found_in(<T>, 0.5))))
"""),
    "A": rows(r"""
torch.tensor(suppressed(<T>), dtype=torch.float32)
torch.tensor([s.begin for s in spans(<M>)], dtype=torch.float32)
torch.tensor([f.score for f in found_in(<T>, <F>)])
torch.cat([f.box for f in found_in(<T>, <F>)] or [torch.zeros(1)])
<T>.reshape(-1).unique()
<T>.reshape(-1).topk(min(2, x.numel())).values
"""),
    "B": rows(r"""
any(f.label == 'cat' for f in found_in(<T>, <F>))
'dog' in REPORT
spans(<M>) == spans(<M>)
"""),
}

REPORT_STATEMENTS: list[str] = rows(r"""
REPORT.clear()
REPORT[<S>[:12]] = <I>
REPORT[LABELS[<I> % 3]] = <F>
REPORT['spans'] = spans(<M>)
REPORT.update(grouped(found_in(<T>, <F>)))
REPORT['text'] = <S>
REPORT['kept'] = suppressed(<T>)
<new:N> = suppressed(<T>) + [<I>]
<new:S> = decoded(suppressed(<T>))
<new:A> = torch.tensor(sorted(set(suppressed(<T>))), dtype=torch.float32)
""") + blocks(r"""
for f in found_in(<T>, <F>):
    f.tags.append(<S>)
    REPORT[f.label] = dataclasses.replace(f, score=f.score + 1).told()
    <block>

best = max(found_in(<T>, <F>), key=lambda f: f.score, default=None)
if best is not None:
    REPORT['best'] = dataclasses.asdict(best)['label']
    <new:T> = <T> * best.score
else:
    <new:T> = <T>

table2 = [{'name': k, 'size': v.numel(), 'mean': round(float(v.mean()), 3) if v.numel() else None} for k, v in <D>.items()]
REPORT['table'] = sorted(table2, key=lambda r: (r['size'], r['name']))

lines = []
for i, row in enumerate(<T>):
    lines.append(f"{i:>2}: " + ' '.join(f"{v:+.2f}" for v in row.tolist()))
REPORT['lines'] = '\n'.join(lines)

match found_in(<T>, <F>):
    case []:
        REPORT['case'] = 'none'
    case [Found(label='cat') as only]:
        REPORT['case'] = only.told()
    case [first, *others]:
        REPORT['case'] = (first.label, len(others))

while len(REPORT) > 4:
    REPORT.pop(next(iter(REPORT)))

<new:A> = torch.zeros(8)
for s in spans(<M>):
    begin, end, kind = s
    <=1>[begin % 8 : end] += len(kind) * <F>

counts = collections.Counter(i % 3 for i in suppressed(<T>))
REPORT['counts'] = counts.most_common(2)

try:
    REPORT['index'] = suppressed(<T>)[<I> % 3]
except IndexError as err:
    REPORT['index'] = str(err)
""")
