"""What the programs of `stateful.py` are made of: four worlds, and what is done in each. Rows are separated by ` ; ` or the end of a line,
lines of one row by ` @@ `."""

# ruff: noqa: E501

from __future__ import annotations

# -- modules that change ----------------------------------------------------------------------------------------------------
MODULES = """
import collections, copy, contextlib, dataclasses, functools, itertools, math, operator, random, types, weakref, gc
import numpy as np
import torch, torch.nn as nn, torch.nn.functional as F
from torch.nn.utils import parametrize, prune, parametrizations, stateless
import torch.func as tf
HELD, LOG = {}, []
WATCH = ("LOG",)
class Scale(nn.Module):
    def __init__(self, k=2.0): super().__init__(); self.k = k
    def forward(self, w): return w * self.k
class Net(nn.Module):
    kind = "net"
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)
        self.scale, self.mode, self.flag, self.count, self.act = 1.5, "x", True, 0, F.relu
        self.register_buffer("buf", torch.ones(3))
        self.register_buffer("tmp", torch.ones(3) * 2, persistent=False)
        self.register_parameter("none", None)
        self.p = nn.Parameter(torch.ones(3))
        self.items, self.opts = [1.0, 2.0], {"k": 2.0}
    @property
    def ratio(self): return self.scale * 2
    def forward(self, x, k=1.0):
        y = self.act(self.a(x)) * self.scale + self.buf * k
        if self.flag: y = self.b(y)
        return y + self.p
class Dyn(Net):
    def __getattr__(self, name):
        if name.startswith("dyn_"): return self.scale + len(name)
        return super().__getattr__(name)
class Desc:
    def __get__(self, o, t=None): return 1.0 if o is None else o.__dict__.get("hid", 3.0) * 2
    def __set__(self, o, v): o.__dict__["hid"] = v
class Described(Net):
    d = Desc()
    shared = nn.Linear(3, 3)
    def forward(self, x, k=1.0): return super().forward(x, k) * self.d
class Keeps(nn.Module):
    def __init__(self): super().__init__(); self.l = nn.Linear(3, 3); self.seen = []; self.last = None; self.register_buffer("n", torch.zeros(()))
    def forward(self, x):
        y = self.l(x); self.n += 1; self.last = y.detach(); self.seen.append(x.shape[0]); return y
class Own(nn.Module):
    def __init__(self): super().__init__(); self.ps = nn.ParameterList([nn.Parameter(torch.ones(3) * j) for j in range(3)]); self.pd = nn.ParameterDict({"a": nn.Parameter(torch.ones(3))})
    def forward(self, x):
        for p in self.ps: x = x + p
        for k, p in self.pd.items(): x = x * p
        return x
class Lists(nn.Module):
    def __init__(self): super().__init__(); self.ls = nn.ModuleList([nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3)]); self.md = nn.ModuleDict({"r": nn.ReLU(), "t": nn.Tanh()}); self.which = "r"
    def forward(self, x):
        for l in self.ls: x = l(x)
        return self.md[self.which](x)
def build(kind):
    torch.manual_seed(3)
    return KINDS[kind]()
KINDS = {
 "linear": lambda: nn.Linear(3, 3), "net": Net, "dyn": Dyn, "described": Described, "keeps": Keeps, "own": Own, "lists": Lists,
 "seq": lambda: nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3)),
 "bn": lambda: nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)), "drop": lambda: nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.4)),
 "wn": lambda: nn.Sequential(nn.utils.weight_norm(nn.Linear(3, 3)), nn.ReLU()),
 "pwn": lambda: nn.Sequential(parametrizations.weight_norm(nn.Linear(3, 3)), nn.ReLU()),
 "sn": lambda: nn.Sequential(nn.utils.spectral_norm(nn.Linear(3, 3)), nn.ReLU()),
 "psn": lambda: nn.Sequential(parametrizations.spectral_norm(nn.Linear(3, 3)), nn.ReLU()),
 "par": lambda: par(), "prune": lambda: pruned(), "lazy": lambda: nn.Sequential(nn.LazyLinear(3), nn.ReLU(), nn.LazyLinear(3)),
 "ln": lambda: nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3), nn.Dropout(0.2)), "tied": lambda: tied(), "gru": lambda: Gru(),
 "enc": lambda: nn.Sequential(nn.TransformerEncoderLayer(3, 1, 4, 0.0, batch_first=True)),
}
class Gru(nn.Module):
    def __init__(self): super().__init__(); self.g = nn.GRU(3, 3, batch_first=True)
    def forward(self, x): return self.g(x[None])[0][0]
def par():
    s = nn.Sequential(nn.Linear(3, 3), nn.ReLU()); parametrize.register_parametrization(s[0], "weight", Scale()); return s
def pruned():
    s = nn.Sequential(nn.Linear(3, 3), nn.ReLU()); prune.l1_unstructured(s[0], "weight", 0.3); return s
def tied():
    s = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3)); s[2].weight = s[0].weight; return s
def first(m):
    return next((l for l in m.modules() if isinstance(l, nn.Linear)), m)
def hook(m, a, o): LOG.append(("fwd", len(a))); return o * 1.5 if isinstance(o, torch.Tensor) else None
def hook2(m, a, o): LOG.append(("two", type(m).__name__))
def pre(m, a): LOG.append("pre"); return tuple(q * 2 if isinstance(q, torch.Tensor) else q for q in a)
def prekw(m, a, kw): LOG.append(sorted(kw)); return a, kw
def bwd(m, gi, go): LOG.append(("bwd", len(gi), len(go)))
def bwd2(m, gi, go): return tuple(None if g is None else g * 2 for g in gi)
def bpre(m, go): LOG.append("bpre"); return tuple(None if g is None else g * 3 for g in go)
def ghook(g): return g * 2
@dataclasses.dataclass
class DC: m: object; k: float = 2.0
class Hold:
    cls_m = None
    def __init__(self, m): self.m = m
    def meth(self, x): return self.m(x)
    @property
    def prop(self): return self.m
def setup(kind):
    m = build(kind)
    HELD.update(m=m, dc=DC(m), o=Hold(m), d={"m": m}, l=[m], t=(m, 1), part=functools.partial(m.forward if False else m), bound=m.forward, ref=weakref.ref(m), keyed={m: 2.0}, hs=[])
    Hold.cls_m = m
    def clo(x): return m(x)
    HELD["clo"] = clo
    globals()["M"] = m
"""
MODULE_KINDS = 'linear net dyn described keeps own lists seq bn drop wn pwn sn psn par prune lazy ln tied gru enc'.split()
FOUND = """
m = HELD['m'] ; m = M ; m = HELD['o'].m ; m = HELD['o'].prop ; m = HELD['d']['m'] ; m = HELD['l'][0] ; m = HELD['t'][0]
m = HELD['ref']() ; m = next(iter(HELD['keyed'])) ; m = Hold.cls_m ; m = getattr(HELD['dc'], 'm') ; m = vars(HELD['o'])['m'] ; m = a
m, = HELD['keyed']
"""
CALLED = """
y = m(x) ; y = HELD['clo'](x) ; y = HELD['part'](x) ; y = HELD['bound'](x) ; y = HELD['o'].meth(x) ; y = m.forward(x) ; y = m.__call__(x)
y = nn.Module.__call__(m, x) ; y = type(m).forward(m, x) ; y = tf.functional_call(m, dict(m.named_parameters()), (x,))
y = tf.functional_call(m, {k: v * 2 for k, v in m.named_parameters()}, x)
y = stateless.functional_call(m, {k: v + 1 for k, v in m.named_parameters()}, (x,))
y = tf.functional_call(m, (dict(m.named_parameters()), dict(m.named_buffers())), (x,))
y = tf.functional_call(m, {k: v.detach() for k, v in m.named_parameters()}, x, tie_weights=n > 3) ; y = tf.vmap(m)(x) if n else x
y = tf.grad(lambda q: m(q).sum())(x) ; y = tf.grad(lambda ps: tf.functional_call(m, ps, x).sum())(dict(m.named_parameters()))
y = tf.jvp(m, (x,), (x,))[0] ; y = tf.vjp(m, x)[1](x)[0] ; y = tf.jacrev(m)(x) ; y = tf.jacfwd(m)(x)
y = tf.hessian(lambda q: m(q).sum())(x) ; y = tf.functional_call(m, {'nothing.here': x}, x) ; y = copy.deepcopy(m)(x)
y = copy.copy(m)(x) ; y = m(x); y = m(y) if y.shape == x.shape else y ; y = torch.stack([m(q[None])[0] for q in x]) if n else x
y = sum(m(x) for _ in range(2)) ; y = list(map(m, [x, x])) ; with torch.no_grad(): y = m(x) ; with torch.inference_mode(): y = m(x)
y = functools.reduce(lambda q, l: l(q), [m, m], x) ; y = torch.utils.checkpoint.checkpoint(m, x, use_reentrant=False)
ps, bs = tf.stack_module_state([m, copy.deepcopy(m)]); y = tf.vmap(lambda p, b, q: tf.functional_call(m, (p, b), (q,)), in_dims=(0, 0, None))(ps, bs, x)
"""
ASKED = """
r = m.training ; r = first(m).weight.shape, first(m).bias is None ; r = getattr(m, 'scale', None) ; r = m.__dict__.get('mode')
r = vars(m).get('count') ; r = getattr(m, 'ratio', 0) ; r = getattr(m, 'dyn_x', 5) ; r = getattr(m, 'd', 7) ; r = hasattr(m, 'extra')
r = [k for k, _ in m.named_parameters()] ; r = [k for k, _ in m.named_modules()] ; r = [k for k, _ in m.named_buffers()]
r = list(m.state_dict()) ; r = len(list(m.children())) ; r = sum(p.numel() for p in m.parameters())
r = sum(p.numel() for p in m.parameters() if p.requires_grad) ; r = m.training, [l.training for l in m.modules()] ; r = hasattr(m, 'new')
r = m.nb.shape ; r = len(m) ; r = list(m.md) ; r = 'q' in m.md ; r = len(m.ps), list(m.pd) ; r = m.ps[-1]
r = parametrize.is_parametrized(m), parametrize.is_parametrized(first(m)) ; r = prune.is_pruned(m) ; r = m in HELD['keyed']
r = {m: n}[m] ; r = m is HELD['m'], m == HELD['m'] ; r = {m, HELD['m']} == {m} ; r = repr(m) ; r = str(type(m)), m._get_name()
r = m.get_submodule('') is m ; r = m.get_parameter('0.weight') ; r = m.get_buffer('buf') ; r = dir(m)[-3:] ; r = m.extra_repr()
r = next(m.parameters()).dtype ; r = isinstance(m, nn.Sequential) ; r = m._parameters.get('p') ; r = list(m._modules) ; r = sum(m.items)
r = m.opts['k'] ; r = nn.utils.parameters_to_vector(m.parameters()) ; r = copy.deepcopy(m) ; r = copy.deepcopy(m).state_dict()
r = m.to('meta') if n > 90 else None ; r = m.state_dict(prefix='q.', keep_vars=True) ; r = m.a is m.b ; r = m.shared(x) ; r = m.extra
r = m.__getattr__('a') ; r = object.__getattribute__(m, 'training') ; r = m.none is None ; r = [p.grad is None for p in m.parameters()]
r = {k: tuple(v.shape) for k, v in m.named_parameters()} ; r = {k: v.norm().item() for k, v in m.named_parameters()}
r = getattr(first(m).weight, 'tag', None) ; r = m.n + 0 ; r = m._non_persistent_buffers_set
r = torch.autograd.grad(m(x).sum(), list(m.parameters()), allow_unused=True) ; r = first(m).weight.grad
r = first(m).weight.is_leaf, first(m).weight.requires_grad ; r = m[1].num_batches_tracked + 0
"""
REPLACED = """
m.double(); x = x.double() ; m.float(); x = x.float() ; m.half(); x = x.half() ; m.to(torch.float64); x = x.to(torch.float64)
m.to(torch.bfloat16); x = x.bfloat16() ; first(m).weight.data = torch.full((3, 3), 0.1 * n)
first(m).weight.data.copy_(torch.full((3, 3), 0.2 * n)) ; first(m).bias = None
h = m.register_load_state_dict_pre_hook(lambda *a: LOG.append('load')); m.load_state_dict(m.state_dict()); h.remove()
h = m.register_load_state_dict_post_hook(lambda mm, ik: LOG.append(str(ik))); m.load_state_dict(m.state_dict(), strict=False); h.remove()
m.load_state_dict({k: v * 0.5 for k, v in m.state_dict().items()})
m.load_state_dict({k: v for k, v in m.state_dict().items()}, assign=True) ; m.p.data.add_(0.1)
"""
DONE = """
m.count = getattr(m, 'count', 0) + 1 ; m.scale = n * 0.5 ; m.flag = n > 2 ; m.mode = f'{n}' ; m.d = n ; setattr(m, 'extra', x.shape[0])
m.train() ; m.eval() ; m.train(n > 2) ; m.requires_grad_(n > 2) ; m.zero_grad() ; m.zero_grad(set_to_none=False)
m.apply(lambda l: LOG.append(type(l).__name__)) ; first(m).weight.grad = None
first(m).weight = nn.Parameter(torch.full((3, 3), 0.3 + n)) ; first(m).bias = nn.Parameter(torch.zeros(3)) ; del first(m).bias
first(m).register_parameter('bias', None) ; first(m).weight.requires_grad_(n > 2) ; h = m.register_forward_hook(hook)
h = m.register_forward_pre_hook(pre) ; h = first(m).register_forward_hook(hook2) ; h = m.register_forward_hook(hook, prepend=True)
h = m.register_full_backward_hook(bwd) ; h = m.register_full_backward_hook(bwd2) ; h = m.register_full_backward_pre_hook(bpre)
h = m.register_forward_pre_hook(prekw, with_kwargs=True) ; h = first(m).weight.register_hook(ghook)
h = m.register_forward_hook(hook); HELD['hs'].append(h) ; for q in HELD['hs']: q.remove() ; HELD['hs'].clear() ; m._forward_hooks.clear()
h = m.register_forward_hook(hook); m(x); h.remove()
h = m.register_state_dict_post_hook(lambda mm, sd, p, lm: LOG.append(len(sd))); r = list(m.state_dict()); h.remove()
m.add_module('new', nn.Tanh()) ; m.new = nn.Linear(3, 3) ; del m.new ; m.register_buffer('nb', torch.ones(n)) ; m.append(nn.Tanh())
m[0] = nn.Linear(3, 3) ; m.insert(0, nn.Sigmoid()) ; del m[-1] ; m.pop(-1) ; m.extend([nn.ReLU()]) ; m = m[:2]
m = m + nn.Sequential(nn.Tanh()) ; m.ls.append(nn.ReLU()) ; m.ls[0] = nn.Identity() ; m.ls.insert(1, nn.Tanh()) ; del m.ls[1]
m.md['q'] = nn.Sigmoid() ; m.which = 't' if n > 2 else 'r' ; m.md.pop('q') ; m.ps.append(nn.Parameter(torch.ones(3)))
m.ps[0] = torch.ones(3) * n ; m.pd['b'] = nn.Parameter(torch.ones(3) * n) ; del m.pd['b'] ; m.pd.update({'z': torch.ones(3)})
parametrize.register_parametrization(first(m), 'weight', Scale(n)) ; parametrize.remove_parametrizations(first(m), 'weight')
first(m).weight = torch.ones(3, 3) * n ; prune.l1_unstructured(first(m), 'weight', 0.4) ; prune.remove(first(m), 'weight')
prune.random_unstructured(first(m), 'weight', amount=2) ; prune.identity(first(m), 'bias') ; nn.utils.weight_norm(first(m))
nn.utils.remove_weight_norm(first(m)) ; nn.utils.spectral_norm(first(m)) ; nn.utils.remove_spectral_norm(first(m))
parametrizations.orthogonal(first(m)) ; parametrizations.weight_norm(first(m)) ; m.share_memory() ; m._buffers['buf'] = torch.ones(3) * n
m.buf = torch.full((3,), float(n)) ; m.buf = m.buf + 1 ; m.items.append(n) ; m.act = torch.tanh if n > 2 else F.relu
m.forward = lambda q: q * n ; m.forward = types.MethodType(lambda s, q: q * 2, m) ; m.__class__ = type(m)
nn.utils.clip_grad_norm_(m.parameters(), 1.0) ; m.a, m.b = m.b, m.a ; m.b = m.a ; m.shared = m.a ; type(m).shared = nn.Linear(3, 3)
m.none = nn.Parameter(torch.ones(3)) ; m.none = None ; first(m).in_features = n ; first(m).weight.tag = n ; m.last = None ; m.seen = []
m.seen += [n] ; m.n.zero_() ; m.register_buffer('tmp', torch.zeros(3), persistent=n > 2) ; del m.tmp ; y0 = m(x).sum(); y0.backward()
m(x).sum().backward(); m.zero_grad() ; p0 = first(m).weight; p0.grad = torch.ones(3, 3) * n ; m.momentum = 0.3
m[1].momentum = None if n > 3 else 0.1 ; m[1].p = 0.1 * (n % 4) ; m[1].eps = 0.1 * n ; m[1].track_running_stats = n > 2
m[1].reset_running_stats() ; m[1].running_mean = None; m[1].running_var = None ; m[1].inplace = n > 2 ; m[1] = nn.Dropout(0.3)
m[1].affine = False
"""
MODULE_CHANGES = """
m.train() ; m.eval() ; m.training = not m.training ; m.scale = float(i) ; m.scale = i ; m.scale = torch.tensor(2.0 + i)
m.flag = not getattr(m, 'flag', False) ; m.mode = f'{i}' ; m.act = torch.tanh ; m.act = F.relu ; m.act = nn.Tanh() ; m.count = i ; m.d = i
first(m).weight = nn.Parameter(torch.full((3, 3), 0.1 * i + 0.1)) ; first(m).weight.data = torch.full((3, 3), 0.1 * i)
first(m).weight.data.mul_(1.5) ; first(m).bias = None ; first(m).bias = nn.Parameter(torch.ones(3))
first(m).weight.requires_grad_(False) ; first(m).weight.requires_grad_(True) ; first(m).weight.grad = None
first(m).weight.grad = torch.ones_like(first(m).weight) ; m.requires_grad_(False) ; m.requires_grad_(True) ; m.zero_grad() ; m.double()
m.float() ; HELD['hs'].append(m.register_forward_hook(hook)) ; HELD['hs'].append(m.register_forward_pre_hook(pre))
HELD['hs'].append(first(m).register_forward_hook(hook2)) ; HELD['hs'].append(m.register_full_backward_hook(bwd))
HELD['hs'].append(m.register_full_backward_pre_hook(bpre)) ; HELD['hs'].pop().remove()
[h.remove() for h in HELD['hs']]; HELD['hs'].clear() ; HELD['hs'].append(first(m).weight.register_hook(ghook)) ; m.new = nn.Tanh()
m.new = nn.Linear(3, 3) ; del m.new ; m.append(nn.Tanh()) ; m[0] = nn.Linear(3, 3) ; del m[-1] ; m[1] = nn.Tanh() ; m.ls.append(nn.Tanh())
del m.ls[1] ; m.md['q'] = nn.Tanh() ; m.which = 't' ; m.which = 'r' ; m.ps.append(nn.Parameter(torch.ones(3)))
m.ps[1] = nn.Parameter(torch.ones(3) * i) ; m.pd['b'] = torch.ones(3) ; m.items.append(3.0) ; m.opts['k'] = i ; m.opts = {'k': i}
m.buf = torch.full((3,), float(i)) ; m.buf.add_(1) ; m._buffers['buf'] = torch.zeros(3) ; m.buf = None ; m.p = nn.Parameter(torch.ones(1))
m.p = None ; m.none = nn.Parameter(torch.ones(3)) ; parametrize.register_parametrization(first(m), 'weight', Scale(i + 1))
parametrize.remove_parametrizations(first(m), 'weight') ; prune.l1_unstructured(first(m), 'weight', 0.3)
prune.remove(first(m), 'weight') ; nn.utils.weight_norm(first(m)) ; nn.utils.remove_weight_norm(first(m))
parametrizations.weight_norm(first(m)) ; nn.utils.spectral_norm(first(m)) ; first(m).parametrizations.weight[0].k = float(i)
first(m).parametrizations.weight.append(Scale(2)) ; first(m).parametrizations.weight.original.data.mul_(2) ; m.forward = lambda q: q * 3
del m.forward ; m.forward = types.MethodType(lambda s, q: q + i, m) ; m.a, m.b = m.b, m.a ; m.b = m.a ; m.a = nn.Linear(3, 3, bias=False)
m.a = nn.Identity() ; m.a = None ; m.a = lambda q: q * 2 ; m.extra = i ; m.extra = f'{i}' ; del m.extra ; HELD['m'] = build('linear')
HELD['m'] = M ; M = HELD['m'] = build('net') ; HELD['o'].m = build('linear') ; HELD['l'][0] = build('linear')
HELD['d']['m'] = build('seq') ; HELD['dc'].m = build('seq') ; HELD['keyed'] = {build('linear'): 3.0, m: 2.0} ; Hold.cls_m = build('seq')
HELD['o'].__class__ = type('H2', (Hold,), {'meth': lambda s, x: s.m(x) * 2}) ; m[1].momentum = 0.5 ; m[1].momentum = None ; m[1].p = 0.9
m[1].eps = 0.5 ; m[1].track_running_stats = False ; m[1].running_mean = None; m[1].running_var = None ; m[1].weight = None
m.load_state_dict({k: v * 0.5 for k, v in m.state_dict().items()})
m.load_state_dict({k: v * 2 for k, v in m.state_dict().items()}, assign=True) ; first(m).weight.tag = i
nn.modules.module.register_module_forward_hook(hook2).remove() ; first(m).weight = nn.Parameter(torch.ones(3, 3).t() * i)
first(m).weight.data = torch.ones(3, 6)[:, ::2] ; first(m).weight = nn.Parameter(torch.ones(2, 3))
first(m).weight = nn.Parameter(torch.ones(3, 3), requires_grad=False)
first(m).weight = nn.Parameter(torch.ones(3, 3, dtype=torch.float64)) ; del first(m).weight; first(m).weight = torch.ones(3, 3) * i
first(m).out_features = i ; m.last = i ; m.seen = [] ; m.n = torch.zeros(()) ; m.n.fill_(7) ; torch.set_grad_enabled(False)
torch.set_grad_enabled(True)
"""

# -- steps of training ----------------------------------------------------------------------------------------------------
TRAINING = """
import collections, copy, contextlib, functools, itertools, math, random, warnings
import numpy as np
import torch, torch.nn as nn, torch.nn.functional as F
from torch.optim import lr_scheduler as ls, swa_utils
from torch.utils.checkpoint import checkpoint, checkpoint_sequential
from torch.autograd import Function
from torch.autograd.function import once_differentiable
HELD, LOG = {}, []
WATCH = ("LOG",)
class Net(nn.Module):
    def __init__(self):
        super().__init__(); self.a, self.b = nn.Linear(3, 4), nn.Linear(4, 1); self.act = torch.tanh; self.k = 1.0; self.drop = nn.Dropout(0.2); self.drop.p = 0.0
    def forward(self, x, k=1.0, *, scale=1.0): return self.b(self.act(self.drop(self.a(x) * k))) * self.k * scale
class Sq(Function):
    @staticmethod
    def forward(ctx, x, k=2.0): ctx.save_for_backward(x); ctx.k = k; return x * x * k
    @staticmethod
    def backward(ctx, g): x, = ctx.saved_tensors; LOG.append(ctx.needs_input_grad); return 2 * x * g * ctx.k, None
class Once(Function):
    @staticmethod
    def forward(ctx, x): ctx.save_for_backward(x); ctx.shape = x.shape; return x.exp()
    @staticmethod
    @once_differentiable
    def backward(ctx, g): return g * ctx.saved_tensors[0].exp()
class Dirty(Function):
    @staticmethod
    def forward(ctx, x, y): ctx.mark_dirty(x); ctx.save_for_backward(y); x.mul_(2); return x, x + y
    @staticmethod
    def backward(ctx, g, h): y, = ctx.saved_tensors; return 2 * (g + h), h if ctx.needs_input_grad[1] else None
class NonDiff(Function):
    @staticmethod
    def forward(ctx, x): i = x.argmax(-1); ctx.mark_non_differentiable(i); ctx.set_materialize_grads(False); return x * 3, i
    @staticmethod
    def backward(ctx, g, gi): LOG.append((g is None, gi is None)); return None if g is None else g * 3
class Setup(Function):
    generate_vmap_rule = True
    @staticmethod
    def forward(x, n): return x * n
    @staticmethod
    def setup_context(ctx, inputs, output): ctx.n = inputs[1]; ctx.save_for_backward(output); ctx.save_for_forward(output)
    @staticmethod
    def backward(ctx, g): return g * ctx.n, None
    @staticmethod
    def jvp(ctx, t, _): return t * ctx.n
class Rev(Function):
    @staticmethod
    def forward(ctx, x, lam): ctx.lam = lam; return x.view_as(x)
    @staticmethod
    def backward(ctx, g): return -g * ctx.lam, None
class Closure:
    calls = 0
def build():
    torch.manual_seed(5)
    m = Net(); HELD["m"] = m; return m
OPTS = {
 "sgd": lambda p: torch.optim.SGD(p, 0.1), "sgdm": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9), "sgdn": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
 "sgdd": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, dampening=0.2), "sgdx": lambda p: torch.optim.SGD(p, 0.1, maximize=True), "sgdf": lambda p: torch.optim.SGD(p, 0.1, foreach=True, momentum=0.5), "sgdfused": lambda p: torch.optim.SGD(p, 0.1, fused=True, momentum=0.5),
 "sgddiff": lambda p: torch.optim.SGD(p, 0.1, foreach=False, differentiable=False), "sgdt": lambda p: torch.optim.SGD(p, torch.tensor(0.1)),
 "adam": lambda p: torch.optim.Adam(p, 0.01), "ams": lambda p: torch.optim.Adam(p, 0.01, amsgrad=True, weight_decay=0.1), "adamt": lambda p: torch.optim.Adam(p, torch.tensor(0.01)), "adamcap": lambda p: torch.optim.Adam(p, 0.01, foreach=False), "adamf": lambda p: torch.optim.Adam(p, 0.01, foreach=True), "adamfused": lambda p: torch.optim.Adam(p, 0.01, fused=True),
 "adamw": lambda p: torch.optim.AdamW(p, 0.01), "adamwx": lambda p: torch.optim.AdamW(p, 0.01, maximize=True, amsgrad=True), "rms": lambda p: torch.optim.RMSprop(p, 0.01), "rmsc": lambda p: torch.optim.RMSprop(p, 0.01, centered=True, momentum=0.9), "ada": lambda p: torch.optim.Adagrad(p, 0.05, lr_decay=0.1, initial_accumulator_value=0.1),
 "nadam": lambda p: torch.optim.NAdam(p, 0.01, decoupled_weight_decay=True, weight_decay=0.1), "radam": lambda p: torch.optim.RAdam(p, 0.01), "delta": lambda p: torch.optim.Adadelta(p, 0.5), "rprop": lambda p: torch.optim.Rprop(p, 0.01), "adamax": lambda p: torch.optim.Adamax(p, 0.01), "asgd": lambda p: torch.optim.ASGD(p, 0.05, t0=2), "lbfgs": lambda p: torch.optim.LBFGS(p, 0.1, max_iter=3), "lbfgsw": lambda p: torch.optim.LBFGS(p, 0.5, max_iter=3, line_search_fn="strong_wolfe", history_size=2),
 "adafactor": lambda p: torch.optim.Adafactor(p, 0.01), "sparse": lambda p: torch.optim.SGD(p, 0.1), "muon": lambda p: torch.optim.Muon([q for q in p if q.dim() == 2], 0.01) if hasattr(torch.optim, "Muon") else torch.optim.SGD(p, 0.1),
}
SCHEDS = {
 "step": lambda o: ls.StepLR(o, 2, 0.5), "multi": lambda o: ls.MultiStepLR(o, [2, 4], 0.3), "exp": lambda o: ls.ExponentialLR(o, 0.9), "cos": lambda o: ls.CosineAnnealingLR(o, 4), "lin": lambda o: ls.LinearLR(o, 0.1, 1.0, 4), "const": lambda o: ls.ConstantLR(o, 0.5, 3), "poly": lambda o: ls.PolynomialLR(o, 5, 2.0),
 "lam": lambda o: ls.LambdaLR(o, lambda e: 0.9 ** e), "mult": lambda o: ls.MultiplicativeLR(o, lambda e: 0.8), "warm": lambda o: ls.CosineAnnealingWarmRestarts(o, 2, 2), "one": lambda o: ls.OneCycleLR(o, 0.2, total_steps=20, cycle_momentum=False), "cyc": lambda o: ls.CyclicLR(o, 0.01, 0.1, 2, cycle_momentum=False),
 "seq": lambda o: ls.SequentialLR(o, [ls.ConstantLR(o, 0.1, 2), ls.ExponentialLR(o, 0.9)], [2]), "chain": lambda o: ls.ChainedScheduler([ls.ConstantLR(o, 0.1, 2), ls.ExponentialLR(o, 0.9)], o), "plateau": lambda o: ls.ReduceLROnPlateau(o, patience=1, threshold=10.0), "swalr": lambda o: swa_utils.SWALR(o, 0.05, 3),
}
def setup(opt, sched, groups):
    m = build()
    ps = list(m.parameters()) if groups == 0 or "lbfgs" in opt else [{"params": m.a.parameters(), "lr": 0.05}, {"params": list(m.b.parameters()), "weight_decay": 0.1 if "rprop" != opt else 0}]
    if opt == "muon": ps = list(m.parameters())
    o = OPTS[opt](ps)
    HELD.update(o=o, s=SCHEDS[sched](o), gs=torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2), ema=swa_utils.AveragedModel(m, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.9)), hs=[])
def ghook(g): LOG.append(tuple(g.shape)); return g * 2
def acc(p): LOG.append(p.grad.shape); p.grad.mul_(0.5)
def target(x): return x.sum(1, keepdim=True)
"""
OPTIMIZERS = 'sgd sgdm sgdn sgdd sgdx sgdf sgdfused sgddiff sgdt adam ams adamt adamcap adamf adamfused adamw adamwx rms rmsc ada nadam radam delta rprop adamax asgd lbfgs lbfgsw adafactor sparse muon'.split()
SCHEDULERS = 'step multi exp cos lin const poly lam mult warm one cyc seq chain plateau swalr'.split()
FORWARDS = """
y = m(x) ; y = m(x, n * 0.1) ; y = m(x, scale=torch.tensor(n * 1.0)) ; y = checkpoint(m, x, use_reentrant=False)
y = checkpoint(m, x, n * 0.1, use_reentrant=False, scale=0.5) ; y = checkpoint(m, x, use_reentrant=False, preserve_rng_state=False)
y = checkpoint(lambda q: F.dropout(m(q), 0.3), x, use_reentrant=False)
y = checkpoint_sequential([m.a, torch.tanh, m.b], 2, x, use_reentrant=False) ; y = Sq.apply(m(x)) ; y = Sq.apply(m(x), n * 0.5)
y = Once.apply(m(x).clamp(max=2)) ; y = Dirty.apply(m(x), x[:, :1])[1] ; y, idx = NonDiff.apply(m(x)) ; idx, y = NonDiff.apply(m(x))[::-1]
y = Setup.apply(m(x), n) ; y = Rev.apply(m.a(x), n * 0.1).sum(1, keepdim=True) ; y = torch.vmap(Setup.apply, in_dims=(0, None))(m(x), 2)
with torch.autocast("cpu", torch.bfloat16): y = m(x) ; with torch.autocast("cpu", torch.bfloat16, enabled=n > 2): y = m(x)
y = F.dropout(m(x), 0.5, n > 2) ; y = m(x.detach()) ; y = m(x).detach() + m.b.bias ; y = m.b(m.a(x).detach_())
h = m.a(x); h.retain_grad(); y = m.b(h) ; h = m.a(x); h.register_hook(ghook); y = m.b(h)
h = m.a(x); h = h.requires_grad_(); y = m.b(h.tanh_()) ; y = m(x); y.mul_(2)
y = m.b(torch.utils.checkpoint.checkpoint(m.a, x, use_reentrant=False, context_fn=torch.utils.checkpoint.noop_context_fn))
with torch.autograd.graph.saved_tensors_hooks(lambda t: (LOG.append(tuple(t.shape)), t)[1], lambda t: t): y = m(x)
with torch.autograd.graph.save_on_cpu(): y = m(x) ; with torch.no_grad(): h = m.a(x) @@ y = m.b(h) ; with torch.enable_grad(): y = m(x)
with torch.set_grad_enabled(n > 2): y = m(x) ; with torch.inference_mode(): h = m.a(x) @@ y = m.b(h)
with torch.inference_mode(False): y = m(x) ; with torch.no_grad(), torch.enable_grad(): y = m(x)
y = torch.stack([m(x), m(x) * 2]).sum(0) ; y = sum(m(q) for q in x.split(2)).expand(x.shape[0], 1) if n > 2 and n % 2 == 0 else m(x)
q = x.clone().requires_grad_(); gx, = torch.autograd.grad(m(q).sum(), q, create_graph=True); y = m(x) + gx.sum(1, keepdim=True)
torch.set_grad_enabled(n != 2); y = m(x); torch.set_grad_enabled(True) ; y = torch.no_grad()(m)(x) if n == 2 else m(x)
h = x * m.a.weight[0]; y = h.sum(1, keepdim=True) ; y = x @ m.a.weight.t() @ m.b.weight.t() ; y = m.b(F.relu(m.a(x), inplace=True))
y = m.b(m.act(F.linear(x, m.a.weight.detach(), m.a.bias)))
"""
LOSSES = """
loss = F.mse_loss(y, target(x)) ; loss = F.smooth_l1_loss(y, target(x), beta=0.5) ; loss = (y.float() - target(x)).abs().mean()
loss = y.float().pow(2).sum() / n ; loss = F.huber_loss(y, target(x), reduction='none').mean(0).sum()
loss = F.mse_loss(y, target(x)) + 0.1 * sum(p.pow(2).sum() for p in m.parameters())
loss = F.binary_cross_entropy_with_logits(y, (target(x) > 0).float()) ; loss = F.gaussian_nll_loss(y.float(), target(x), y.float().exp())
loss = torch.logsumexp(y, 0).sum()
"""
BACKWARDS = """
loss.backward() ; loss.backward(retain_graph=True); loss.backward() ; (loss / 2).backward() ; loss.backward(torch.tensor(n * 1.0))
loss.backward(inputs=[m.a.weight]) ; loss.backward(inputs=list(m.b.parameters()))
gs['scale'](loss).backward() if False else gs.scale(loss).backward() ; torch.autograd.backward([loss, y.sum()])
torch.autograd.backward(loss, retain_graph=True); y.sum().backward()
g = torch.autograd.grad(loss, list(m.parameters()), allow_unused=True) @@ for p, q in zip(m.parameters(), g): p.grad = q
g = torch.autograd.grad(loss, [m.a.weight, m.b.bias], materialize_grads=True, allow_unused=True); R.append(g); loss = None
g = torch.autograd.grad(y, m.b.weight, torch.ones_like(y), retain_graph=True); R.append(g); loss.backward()
loss.backward(); loss = m(x).sum(); loss.backward() ; for k in range(2): F.mse_loss(m(x), target(x)).backward() @@ loss.backward()
with torch.autograd.detect_anomaly(): m(x).sum().backward() @@ loss.backward() ; with torch.no_grad(): loss.backward()
with torch.autograd.set_multithreading_enabled(False): loss.backward()
with torch.autograd.graph.allow_mutation_on_saved_tensors(): q = m(x); q.sum().backward() @@ loss.backward()
loss.backward(); R.append(loss.grad_fn is None) ; h = m.a.weight.register_hook(ghook); loss.backward(); h.remove()
h = m.a.weight.register_post_accumulate_grad_hook(acc); loss.backward(); h.remove()
h = y.register_hook(ghook) if y.requires_grad else None; loss.backward() ; y.retain_grad(); loss.backward(); R.append(y.grad)
loss.retain_grad(); loss.backward(); R.append(loss.grad)
h = torch.autograd.graph.register_multi_grad_hook((m.a.weight, m.b.weight), lambda gs: LOG.append(len(gs))); loss.backward(); h.remove()
"""
BETWEEN = """
pass ; R.append(nn.utils.clip_grad_norm_(m.parameters(), 1.0)) ; nn.utils.clip_grad_value_(m.parameters(), 0.1)
R.append(nn.utils.get_total_norm([p.grad for p in m.parameters() if p.grad is not None]))
for p in m.parameters(): p.grad = None if p.grad is None else p.grad * 0.5
for p in m.parameters(): p.grad is not None and p.grad.add_(0.01) ; gs.unscale_(o); nn.utils.clip_grad_norm_(m.parameters(), 1.0)
R.append([p.grad is None for p in m.parameters()])
R.append({k: v.grad.norm().item() for k, v in m.named_parameters() if v.grad is not None}) ; m.b.bias.grad = None
m.a.requires_grad_(n > 2) ; o.param_groups[0]['lr'] = 0.01 * n ; for g in o.param_groups: g['lr'] *= 0.9
o.param_groups[-1]['weight_decay'] = 0.01 * n ; R.append(nn.utils.clip_grad_norm_(m.parameters(), 1.0, foreach=True))
R.append(nn.utils.clip_grad_norm_(m.parameters(), n, norm_type='inf', error_if_nonfinite=True))
"""
STEPS = """
o.step() ; gs.step(o); gs.update() ; o.step(lambda: loss) ; if n > 2: o.step() @@ R.append(n) ; o.step(); o.step()
R.append(o.step(closure)) ; o.step(); o.zero_grad() ; o.step(); o.zero_grad(set_to_none=False)
o.step(); s.step() if not isinstance(s, ls.ReduceLROnPlateau) else s.step(1.0)
o.step(); s.step(loss.item()) if isinstance(s, ls.ReduceLROnPlateau) else s.step() ; o.step(); R.append(s.get_last_lr())
o.step(); ema.update_parameters(m) ; o.step(); R.append(ema(x)) ; o.step(); R.append(copy.deepcopy(o.state_dict()))
o.load_state_dict(o.state_dict()); o.step() ; o.step(); o.state.clear() ; for q in o.state.values(): R.append(sorted(q)) @@ o.step()
R.append(repr(o)); o.step() ; with torch.no_grad(): m.a.weight -= 0.1 * (m.a.weight.grad if m.a.weight.grad is not None else 0) ; pass
with torch.no_grad(): [p.add_(p.grad, alpha=-0.1) for p in m.parameters() if p.grad is not None]
h = o.register_step_post_hook(lambda *a: LOG.append('post')); o.step(); h.remove()
h = o.register_step_pre_hook(lambda *a: LOG.append('pre')); o.step(); h.remove()
"""
STEP_CHANGES = """
o.param_groups[0]['lr'] = 0.2 ; o.param_groups[0]['lr'] = 0.01 * (i + 1) ; o.param_groups[0]['lr'] = torch.tensor(0.02 * (i + 1))
o.param_groups[0]['weight_decay'] = 0.05 * i ; o.param_groups[-1]['betas'] = (0.5, 0.9) ; o.param_groups[0]['momentum'] = 0.1 * i
o.param_groups[0]['nesterov'] = True ; o.param_groups[0]['maximize'] = not o.param_groups[0].get('maximize')
o.param_groups[0]['foreach'] = True ; o.param_groups[0]['foreach'] = False ; o.param_groups[0]['amsgrad'] = True
o.param_groups[0]['eps'] = 0.1 ; o.param_groups[0]['capturable'] = False ; o.param_groups[0]['differentiable'] = False
m.c = nn.Parameter(torch.ones(3)); o.add_param_group({'params': [m.c]}) ; m.a.requires_grad_(False) ; m.a.requires_grad_(True)
m.a.bias.requires_grad_(False) ; m.b.bias.grad = None ; m.zero_grad() ; o.zero_grad() ; o.zero_grad(set_to_none=False) ; o.state.clear()
o.state[m.a.weight] = {} ; o.load_state_dict(copy.deepcopy(o.state_dict())) ; m.k = 0.5 * i ; m.act = torch.relu ; m.act = torch.sigmoid
m.drop.p = 0.3 ; m.eval() ; m.train() ; s.step() if not isinstance(s, ls.ReduceLROnPlateau) else None ; m.a.weight.data.mul_(0.5)
m.a.weight.data = torch.ones(4, 3) * 0.1 * i ; HELD['hs'].append(m.a.weight.register_hook(ghook))
HELD['hs'].append(m.a.weight.register_post_accumulate_grad_hook(acc))
HELD['hs'].append(o.register_step_pre_hook(lambda *a: LOG.append('pre'))) ; [h.remove() for h in HELD['hs']]; HELD['hs'].clear()
HELD['hs'].append(m.register_full_backward_hook(lambda *a: LOG.append('b')))
HELD['hs'].append(m.a.register_forward_hook(lambda m, a, o: o * 2)) ; gs._scale = torch.tensor(16.0) ; gs._growth_interval = 3
o.param_groups[0]['params'][0].grad = torch.ones_like(o.param_groups[0]['params'][0]) ; o.param_groups.reverse()
o.param_groups[0]['params'].pop() ; o.defaults['lr'] = 5
for st in o.state.values(): st.update({k: v + 1 for k, v in st.items() if k == 'step'})
for st in o.state.values(): st.pop('momentum_buffer', None) ; torch.set_anomaly_enabled(False) ; torch.set_grad_enabled(False)
torch.set_grad_enabled(True) ; m.b.weight.grad = torch.ones(4, 1).t() ; m.a.weight.grad = torch.full((4, 3), float('inf'))
m.a.weight.grad = torch.full((4, 3), float('nan'))
"""

# -- random numbers ----------------------------------------------------------------------------------------------------
NUMBERS_DRAWN = """
import collections, copy, contextlib, functools, itertools, math, random
import numpy as np
import torch, torch.nn as nn, torch.nn.functional as F
import torch.distributions as D
HELD, LOG = {}, []
WATCH = ("LOG", "S")
G = torch.Generator(); G.manual_seed(7); H2 = torch.Generator().manual_seed(9)
NG = np.random.default_rng(3); PR = random.Random(4); NR = np.random.RandomState(5)
HELD.update(G=G, H2=H2, drop=nn.Dropout(0.4), st=None, bn=nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.3)))
S = [0]
class Box: pass
BOX = Box(); BOX.g = G; BOX.p = 0.3; BOX.seed = 5
"""
DRAWS = """
torch.rand(n) ; torch.rand(n, 2, generator=G) ; torch.randn(n, m) ; torch.randn(n, generator=G) ; torch.randint(0, n + 1, (m,))
torch.randint(5, (n,), generator=G) ; torch.randint(-n, 9, (2,), dtype=torch.int32) ; torch.randperm(n) ; torch.randperm(n * 5)
torch.randperm(n, generator=G) ; torch.randperm(n, dtype=torch.int32) ; torch.bernoulli(p) ; torch.bernoulli(p, 0.3)
torch.bernoulli(p, generator=G) ; p.bernoulli() ; p.clone().bernoulli_(0.4) ; p.clone().bernoulli_(p) ; p.clone().bernoulli_(f)
torch.multinomial(p[0] + 0.1, 2) ; torch.multinomial(p + 0.1, 3, replacement=True) ; torch.multinomial(p + 0.1, 1, generator=G)
torch.multinomial(p + 0.1, m, True) ; torch.normal(0.0, 1.0, (n,)) ; torch.normal(x, 0.5) ; torch.normal(0.5, p + 0.1)
torch.normal(x, p + 0.1, generator=G) ; torch.normal(f, f + 1.0, (n, 2), generator=G) ; torch.poisson(p * 5)
torch.poisson(p * n, generator=G) ; torch.empty(n).exponential_() ; torch.empty(n).exponential_(2.0, generator=G)
torch.empty(n).uniform_(-1, n) ; torch.empty(n).uniform_(0, f + 2) ; torch.empty(n, m).normal_(f, 0.5) ; x.clone().normal_(generator=G)
torch.empty(n).cauchy_() ; torch.empty(n).log_normal_() ; torch.empty(n).geometric_(0.3) ; torch.empty(n).random_(5)
torch.empty(n).random_(-n - 1, n + 3) ; torch.empty(n, dtype=torch.int64).random_() ; torch.empty(n, dtype=torch.uint8).random_()
x.clone().t().uniform_() ; x.clone()[:, ::2].normal_() ; torch.empty(20 + n).normal_() ; torch.randn(20 + n)[::2] ; torch.rand_like(x)
torch.randn_like(x, dtype=torch.float64) ; torch.randint_like(x, 9) ; torch.randint_like(x, n, n + 4) ; torch.rand_like(x.t())
torch.rand(n, dtype=torch.float64) ; torch.randn(n, dtype=torch.bfloat16) ; torch.rand(n, dtype=torch.float16)
torch.randn(n, dtype=torch.complex64) ; torch.rand(n, out=torch.empty(0)) ; torch.randn(n, out=torch.empty(n)) ; torch.rand(0)
torch.randn(n, 0) ; torch.rand(()) ; torch.rand(size=(n, m)) ; torch.rand([n, m]) ; torch.rand(x.shape)
torch.rand(x.size(), generator=G, requires_grad=True) ; F.dropout(x, 0.5) ; F.dropout(x, f * 0.1, n > 2) ; F.dropout(x, BOX.p)
F.dropout1d(x[None], 0.5) ; F.dropout2d(x[None, None], 0.5) ; F.alpha_dropout(x, 0.4, True) ; F.feature_alpha_dropout(x[None], 0.4, True)
F.dropout(x.clone(), 0.3, inplace=True) ; torch.dropout(x, 0.2, True) ; torch.alpha_dropout(x, 0.2, True)
torch.feature_dropout(x[None], 0.3, True) ; nn.Dropout(0.3)(x) ; HELD['drop'](x) ; nn.AlphaDropout(0.3)(x)
nn.Dropout2d(0.3)(x[None, None]) ; HELD['bn'](x) ; F.rrelu(x - 1, training=True) ; F.gumbel_softmax(x, hard=n > 2)
F.gumbel_softmax(x, tau=f + 1)
F.fractional_max_pool2d(x[None, None].expand(1, 1, n, 4), (1, 2), output_ratio=(0.9, 0.5)) if n > 2 else x
F.scaled_dot_product_attention(x[None], x[None], x[None], dropout_p=0.3) ; F.multi_head_attention_forward if False else F.dropout(x, 1.0)
F.dropout(x, 0.0) ; nn.LSTM(4, 2, 2, dropout=0.5)(x[None])[0] ; nn.TransformerEncoderLayer(4, 2, 4, 0.3)(x)
nn.init.normal_(torch.empty(n, 3)) ; nn.init.kaiming_uniform_(torch.empty(n + 1, 3))
nn.init.xavier_normal_(torch.empty(n + 1, 3), generator=G) ; nn.init.orthogonal_(torch.empty(n + 1, 3))
nn.init.trunc_normal_(torch.empty(n, 3)) ; nn.init.sparse_(torch.empty(n + 1, 3), 0.5) ; nn.init.uniform_(torch.empty(n), -1, 2)
nn.Linear(n + 1, 2).weight ; nn.Embedding(n + 1, 2).weight ; nn.Parameter(torch.randn(n)) ; nn.Conv1d(n + 1, 2, 1).bias
nn.GRU(2, n + 1).weight_hh_l0 ; D.Normal(x, p + 0.1).sample() ; D.Normal(x, p + 0.1).rsample((2,)) ; D.Categorical(p + 0.1).sample()
D.Bernoulli(p).sample((n,)) ; D.Uniform(x - 1, x + 1).sample() ; D.Gamma(p + 1, p + 1).sample() ; D.Beta(p + 1, p + 1).sample()
D.Dirichlet(p + 1).rsample() ; D.Exponential(p + 1).sample() ; D.Poisson(p * 3).sample() ; D.Multinomial(3, p + 0.1).sample()
D.MultivariateNormal(torch.zeros(2), torch.eye(2)).sample((n,)) ; D.Laplace(x, p + 1).sample() ; D.StudentT(p + 3).sample()
D.Geometric(p * 0.5 + 0.1).sample() ; D.OneHotCategorical(p + 0.1).sample() ; D.Independent(D.Normal(x, 1.0), 1).sample()
D.Binomial(n, p).sample() ; D.VonMises(x, p + 1).sample() ; torch._standard_gamma(p + 1) ; torch._sample_dirichlet(p + 1)
torch.binomial(torch.full_like(p, float(n)), p) ; np.random.rand(n) ; np.random.randn(n).sum() ; np.random.randint(0, n + 1)
np.random.permutation(n) ; np.random.choice(n + 1) ; NG.normal(size=n) ; NG.integers(n + 1) ; NG.random() ; NR.rand()
torch.from_numpy(np.random.rand(n)) ; np.random.shuffle(l) or l ; torch.tensor(np.random.normal()) ; random.random()
random.randint(0, n) ; random.choice(l) ; random.shuffle(l) or l ; random.sample(l, 2) ; random.gauss(0, f + 1) ; PR.random()
PR.choice(l) ; x * random.random() ; x + np.random.rand() ; torch.full((2,), random.uniform(0, n)) ; random.choices(l, k=n)
random.getrandbits(8) ; x[random.randrange(len(x))] if len(x) else x ; torch.initial_seed() ; torch.random.initial_seed()
G.initial_seed() ; G.get_state().sum() ; torch.get_rng_state().sum() ; torch.default_generator.initial_seed()
torch.rand(n, generator=torch.default_generator) ; torch.rand(n, generator=None) ; torch.rand(n, generator=BOX.g)
torch.rand(n, generator=HELD['H2']) ; torch.rand(n, generator=torch.Generator().manual_seed(n))
torch.rand(2, generator=G if n > 2 else H2) ; torch.randn(n).to(torch.float64) ; [torch.rand(1).item() for _ in range(n)]
[torch.rand(k) for k in range(n)] ; torch.stack([F.dropout(x, 0.5) for _ in range(2)])
torch.vmap(lambda r: torch.rand(2) + r[:2], randomness='different')(x) if n else x
torch.vmap(lambda r: F.dropout(r, 0.5), randomness='same')(x) if n else x
torch.vmap(lambda r: torch.randn_like(r), randomness='different')(x) if n else x
torch.utils.checkpoint.checkpoint(lambda q: F.dropout(q, 0.5), x, use_reentrant=False)
torch.cond(x.sum() > 3, lambda q: q + torch.rand(1), lambda q: q, (x,)) if False else torch.rand(1) + x
torch.where(torch.rand_like(x) > 0.5, x, torch.randn_like(x)) ; (torch.rand(n) > 0.5).sum().item() ; torch.rand(n).max(0)[0] if n else 0
torch.utils.data.random_split(list(range(8)), [5, 3])[0].indices ; torch.svd_lowrank(torch.ones(4, 4), 2)[1]
torch.pca_lowrank(torch.ones(4, 4), 2)[1]
"""
STATES = """
torch.manual_seed(n) ; torch.manual_seed(3) ; torch.manual_seed(BOX.seed) ; G.manual_seed(n) ; G.manual_seed(4)
torch.random.manual_seed(n + 1) ; s = torch.get_rng_state() ; torch.set_rng_state(s)
s = torch.random.get_rng_state(); r0 = torch.rand(2); torch.random.set_rng_state(s) ; g = G.get_state() ; G.set_state(g)
G.seed() and G.manual_seed(2) ; torch.seed() and torch.manual_seed(8) ; G2 = torch.Generator(); G2.manual_seed(n) ; G2 = G.clone_state()
G.graphsafe_set_state(G.graphsafe_get_state()) ; np.random.seed(n) ; random.seed(n) ; PR.seed(n) ; st = np.random.get_state()
np.random.set_state(st) ; rs = random.getstate() ; random.setstate(rs) ; torch.default_generator.manual_seed(n)
torch.default_generator.set_state(torch.default_generator.get_state()) ; HELD['drop'].p = 0.1 * (n % 5) ; HELD['drop'].eval()
HELD['drop'].train() ; HELD['bn'].train(n > 2) ; BOX.g = torch.Generator().manual_seed(n) ; BOX.p = 0.5
torch.random.seed() and torch.manual_seed(1) ; HELD['st'] = torch.get_rng_state()
HELD['st'] is not None and torch.set_rng_state(HELD['st'])
"""
AROUND: list[str] = ['{}', '{}', '{}', '{}', '{}', '{}', 'with torch.random.fork_rng(): {}', 'with torch.random.fork_rng(devices=[]): torch.manual_seed(n); {}', 'with torch.random.fork_rng(enabled=n > 2): {}', 'if n > 2: {}', 'for _ in range(2): {}', 'for _ in range(m): {}', 'with torch.no_grad(): {}', 'with torch.inference_mode(): {}', 'if x.sum() > 3: {}', "with torch.autocast('cpu', torch.bfloat16): {}", 'try:\n        {}\n        raise ValueError(3)\n    except ValueError: pass', 'try: {}\n    finally: R.append(1)', "with torch.random.fork_rng():\n        torch.manual_seed(3)\n        {}\n        print('in')", 'if f > 1.5: {}', 'while len(R) < n: {}; R.append(0)', 'with contextlib.ExitStack() as es: es.enter_context(torch.random.fork_rng()); {}', "with torch.device('cpu'): {}", 'def q():\n        {}\n    q()', "with torch.utils._device.DeviceContext(torch.device('cpu')): {}", 'with torch.random.fork_rng() as fr: {}']
DRAW_CHANGES = """
torch.manual_seed(i) ; G.manual_seed(i) ; torch.rand(3) ; BOX.g = H2 ; BOX.g = G ; BOX.p = 0.1 * i ; BOX.seed = i ; HELD['drop'].p = 0.2
HELD['drop'].eval() ; HELD['drop'].train() ; HELD['bn'].eval() ; np.random.seed(i) ; random.seed(i) ; HELD['H2'] = G
HELD['H2'] = torch.Generator().manual_seed(3) ; PR.seed(i) ; torch.set_default_dtype(torch.float64)
torch.set_default_dtype(torch.float32) ; torch.rand(1) ; torch.randn(1) ; G.get_state() ; HELD['drop'] = nn.Identity()
HELD['drop'] = nn.Dropout(0.5, inplace=True)
"""

# -- memory ----------------------------------------------------------------------------------------------------
MEMORY = """
import collections, copy, contextlib, functools, itertools, math, random
import numpy as np
import torch, torch.nn as nn, torch.nn.functional as F
HELD, LOG = {}, []
WATCH = ("LOG", "W", "K", "BUF")
W = nn.Parameter(torch.arange(16.).reshape(4, 4) * 0.1)
BUF = torch.zeros(64)
K = []
def given(how, n, i):
    b = torch.arange(64.).reshape(8, 8) * 0.25 + i
    return GIVEN[how](b, n, i)
GIVEN = {
 "two": lambda b, n, i: (b[:n, :4].clone(), b[:n, 4:].clone() + 1), "same": lambda b, n, i: (lambda x: (x, x))(b[:n, :4].clone()), "alias": lambda b, n, i: (lambda x: (x, x[:]))(b[:n, :4].clone()), "overlap": lambda b, n, i: (b[:n, :4], b[1:n + 1, :4]), "rows": lambda b, n, i: (b[:n, :4], b[:n, 4:]), "t": lambda b, n, i: (lambda x: (x, x.t()))(b[:4, :4].clone()),
 "cols": lambda b, n, i: (b[:n, ::2], b[:n, 1::2]), "expand": lambda b, n, i: (b[:1, :4].expand(max(n, 1), 4), b[:n, 4:].clone()), "exp2": lambda b, n, i: (b[:n, :4].clone(), b[:n, :1].expand(n, 4)), "perm": lambda b, n, i: (b.t()[:n, :4], b[:n, :4].clone()), "off": lambda b, n, i: (b.view(-1)[i:i + n * 4].view(n, 4), b[:n, 4:].clone()),
 "neg": lambda b, n, i: (b[:n, :4].clone()._neg_view(), b[:n, 4:].clone()), "conj": lambda b, n, i: (torch.complex(b[:n, :4], b[:n, 4:]).conj(), b[:n, 4:].clone()), "imag": lambda b, n, i: (torch.complex(b[:n, :4], b[:n, 4:]).conj().imag, b[:n, 4:].clone()), "real": lambda b, n, i: (lambda c: (c.real, c.imag))(torch.complex(b[:n, :4], b[:n, 4:])), "vr": lambda b, n, i: (lambda c: (c, torch.view_as_real(c)[..., 0]))(torch.complex(b[:n, :4], b[:n, 4:])),
 "w": lambda b, n, i: (W, b[:4, :4].clone()), "wview": lambda b, n, i: (W.detach(), b[:4, :4].clone()), "wdata": lambda b, n, i: (W.data, W), "wrow": lambda b, n, i: (W[:2], b[:2, :4].clone()), "leaf": lambda b, n, i: (b[:n, :4].clone().requires_grad_(), b[:n, 4:].clone()), "leafsame": lambda b, n, i: (lambda x: (x, x))(b[:n, :4].clone().requires_grad_()), "hist": lambda b, n, i: ((b[:n, :4].clone().requires_grad_() * 1), b[:n, 4:].clone()), "histview": lambda b, n, i: (lambda h: (h, h[:]))(b[:n, :4].clone().requires_grad_() * 1),
 "zero": lambda b, n, i: (b[:n, :0].clone(), b[:n, :0].clone()), "zero0": lambda b, n, i: (b[:0, :4].clone(), b[:0, :4].clone()), "d0": lambda b, n, i: (b[0, n % 8].clone(), b[0, 1].clone()), "d0v": lambda b, n, i: (b[0, n % 8], b[0]), "d1": lambda b, n, i: (b[0, :n], b[0]), "ones": lambda b, n, i: (b[:1, :1], b[:1, :1].clone()), "int": lambda b, n, i: (b[:n, :4].long(), b[:n, 4:].long()), "mixed": lambda b, n, i: (b[:n, :4].clone(), b[:n, 4:].long()), "half": lambda b, n, i: (b[:n, :4].double(), b[:n, 4:].clone()), "buf": lambda b, n, i: (BUF[i:i + n * 4].view(n, 4), BUF[:4]), "buf2": lambda b, n, i: (BUF[:n * 4].view(n, 4), BUF[:n * 4].view(4, n)), "unfold": lambda b, n, i: (b.view(-1)[:n + 4].unfold(0, 4, 1), b[:n + 1, 4:].clone()), "as": lambda b, n, i: (b.as_strided((n, 4), (1, 1)), b[:n, 4:].clone()), "swap": lambda b, n, i: (b[:n, :4].clone(), b[:n, 4:].clone())[:: 1 if i % 2 else -1], "alt": lambda b, n, i: (lambda x: (x, x) if i % 2 else (x, x.clone()))(b[:n, :4].clone()), "alt2": lambda b, n, i: (b[:n, :4], b[:n, :4]) if i % 2 else (b[:n, :4], b[4:4 + n, :4]), "np": lambda b, n, i: (torch.from_numpy(b[:n, :4].clone().numpy()), b[:n, 4:].clone()), "cl": lambda b, n, i: (b[:n, :4].clone().t().contiguous().t(), b[:n, 4:].clone()), "inf": lambda b, n, i: torch.inference_mode()(lambda: (b[:n, :4].clone(), b[:n, 4:].clone()))(),
}
"""
LAYOUTS = 'two same alias overlap rows t cols expand exp2 perm off neg conj imag real vr w wview wdata wrow leaf leafsame hist histview zero zero0 d0 d0v d1 ones int mixed half buf buf2 unfold as swap alt alt2 np cl inf'.split()
VIEWS = """
x ; y ; x[:] ; x.t() ; x[1:] ; x[:-1] ; x[::2] ; x[0] ; x[..., 0] ; x[..., ::2] ; x.view(-1) ; x.reshape(-1) ; x.flatten()
x.view(x.shape) ; x.transpose(0, -1) ; x.T ; x.mT ; x.unsqueeze(0) ; x[None] ; x.squeeze() ; x.expand(2, *x.shape) ; x.diagonal()
x.narrow(0, 0, 1) ; x.select(0, -1) ; x.split(1)[0] ; x.chunk(2)[-1] ; x.unbind(0)[0] ; x.unfold(0, 1, 1)
x.as_strided((1,), (1,), x.storage_offset()) ; x.detach() ; x.data ; x.view_as(x) ; x.expand_as(x) ; x.permute(*range(x.dim())[::-1])
x.movedim(0, -1) ; x.ravel() ; x.contiguous() ; x.clone() ; x.real ; x.imag ; x.conj() ; x.resolve_conj() ; x.resolve_neg()
x.view(torch.int32) ; torch.view_as_real(x) ; torch.view_as_complex(x.reshape(-1, 2)) ; x.to(x.dtype) ; x.to(torch.float32) ; x.float()
x.double() ; x.T.T ; x[n - 1:] ; x[:n] ; x[n % 3] ; x.narrow(0, 0, n - 1) ; x.unflatten(-1, (2, -1)) ; x.hsplit(2)[0]
x.tensor_split(2)[1] ; x._neg_view() ; x.alias() if hasattr(x, 'alias') else torch.ops.aten.alias(x) ; x.swapaxes(0, -1)
x.new_empty(x.shape).copy_(x) ; torch.atleast_2d(x) ; torch.broadcast_tensors(x, y)[0] ; x.broadcast_to((2, *x.shape)) ; x.flip(0)
x.roll(1) ; x.contiguous().view(-1) ; y[:] ; y.t() ; y.view(-1) ; y[0] ; y.detach() ; y.data ; W ; W[0] ; W.data ; W.detach() ; BUF
BUF[:4] ; BUF[n:n + 4] ; v ; v[:] ; v.view(-1) ; v[0] ; v.t() ; v[1:] ; v.data ; v.requires_grad_(False) ; nn.Parameter(v.detach())
nn.Parameter(v.detach(), False) ; v.untyped_storage() and v
"""
WRITES = """
v.add_(1) ; v.mul_(2) ; v += 1 ; v *= u ; v.zero_() ; v.fill_(n) ; v.copy_(u) ; v[0] = n ; v[...] = u ; v[:1] = v[-1:] ; v[1:] = v[:-1]
v.t_() ; v.squeeze_() ; v.unsqueeze_(0) ; v.transpose_(0, -1) ; v.set_(u) ; v.set_(u.clone()) ; v.data.add_(1) ; v.data.zero_()
v.as_strided_((2,), (1,)) ; v.swapaxes_(0, -1) ; v.detach().add_(2) ; torch.add(u, 1, out=v) ; torch.mul(v, u, out=v)
torch.stack([u, v], out=w) ; torch.sub(v, u, out=u) ; torch.sum(u, 0, out=w) ; torch.cumsum(v, 0, out=v) ; torch.matmul(x, x.t(), out=w)
torch.max(u, 0, out=(w, z)) ; torch.where(u > 1, u, v, out=v) ; torch.sort(v, 0, out=(v, z)) ; torch.clamp(v, 0, 2, out=v)
torch.index_select(u, 0, torch.tensor([0]), out=w) ; torch.neg(u, out=v) ; torch.exp(u, out=w)
torch.addmm(x, x, x.t(), out=w) if False else torch.abs(v, out=v) ; v.index_add_(0, torch.tensor([0, 0]), v[:1].expand(2, *v.shape[1:]))
v.scatter_(0, torch.zeros_like(v, dtype=torch.long), v) ; v.masked_fill_(v > 1, n) ; v[v > 1] = 0 ; v[torch.tensor([0, 0])] += 1
v.clamp_(0, 1) ; v.neg_() ; v.sub_(v) ; v.div_(u) ; v.lerp_(u, 0.5) ; v.addcmul_(u, u)
v.swap_dims_(0, 1) if hasattr(v, 'swap_dims_') else v.swapdims_(0, -1) ; v.copy_(v.flip(0)) ; v.copy_(v.t())
v.put_(torch.tensor([0]), torch.tensor([9.0])) ; v.diagonal().fill_(3) ; v.view(-1)[::2].mul_(3) ; K.append(v) ; K.append(v * 2)
K.append(u) ; BUF[:4].copy_(v.reshape(-1)[:4]) ; BUF.add_(1) ; W.data.add_(1) ; u.add_(1) ; x.add_(1) ; y.mul_(2) ; x[0].add_(y[0])
x.copy_(y) ; y.copy_(x) ; x += y ; x, y = y, x ; u, v = v, u ; w.add_(1) ; F.relu_(v) ; F.relu(v, inplace=True)
F.dropout(v, 0.0, True, True) ; nn.init.ones_(v) ; v.float().add_(1) ; v.to(torch.float32).mul_(2) ; v.contiguous().add_(1)
v.reshape(-1).add_(1) ; v.flatten().mul_(3) ; v.imag.zero_() ; v.real.add_(1) ; v.conj().add_(1) ; v.retain_grad() ; u.sum().backward()
"""
READS = """
v.sum() ; u ; v ; x ; y ; w ; v * 2 ; x + y ; v.shape ; v.data_ptr() == x.data_ptr() ; v is x ; u is v ; v.is_contiguous() ; v.is_leaf
v.is_set_to(x) ; v.untyped_storage().data_ptr() == x.untyped_storage().data_ptr() ; v.numel() ; v.element_size() ; v.tolist()
v.item() if v.numel() == 1 else 0 ; float(v) if v.numel() == 1 else 0 ; int(x.flatten()[0]) if x.numel() else 0 ; bool((v == u).all())
torch.equal(v, v.clone()) ; v.requires_grad ; v.is_conj(), v.is_neg() ; v.dim() ; [v, v] ; (v, v[:], v) ; {'a': v, 'b': x}
v.contiguous() is v ; v.to(v.dtype) is v ; v.reshape(v.shape) is v ; v.expand_as(v) is v ; v.data is v ; v.detach() is v ; v.nonzero()
v.is_inference() ; v.mul(u).is_contiguous() ; v.is_contiguous(memory_format=torch.channels_last) if v.dim() == 4 else 0 ; list(v)[:1]
v.unbind()[:1] ; v.split(1) ; len(v) if v.dim() else 0 ; v.__array__().sum() ; K[-1] if K else 0 ; len(K)
"""
