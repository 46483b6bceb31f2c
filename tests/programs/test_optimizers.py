"""Optimizers, schedulers and averages, compiled: numbers are eager's, captures do not grow with the steps. Counts that tensors keep."""

import inspect
import types

import pytest
import torch

import pliant
from tests.helpers import IDENTITY

O = torch.optim  # noqa: E741
NAMES = "Adadelta Adafactor Adagrad Adam AdamW Adamax NAdam RMSprop Rprop SGD".split()
CASES = [(name, {}) for name in NAMES] + [
    ("Adam", {"foreach": True, "amsgrad": True}), ("AdamW", {"foreach": True}), ("Adafactor", {"foreach": True}),
    ("Adamax", {"foreach": True}),
    ("NAdam", {"foreach": True}), ("Adam", {"fused": True}),
    ("AdamW", {"fused": True}), ("SGD", {"fused": True, "momentum": 0.9}), ("Adagrad", {"fused": True}),
    ("SGD", {"momentum": 0.9, "nesterov": True}), ("RMSprop", {"momentum": 0.9, "centered": True}), ("Muon", {}),
]  # fmt: skip
SCHEDULERS = {
    "cosine": lambda o: O.lr_scheduler.CosineAnnealingLR(o, 20),
    "one cycle": lambda o: O.lr_scheduler.OneCycleLR(o, 1e-2, total_steps=40),
    "lambda": lambda o: O.lr_scheduler.LambdaLR(o, lambda i: 0.9**i),
}


def stepped(name, options, scheduler, compiled, steps=7, dtype=torch.float32):
    """Parameters after some steps on given gradients, and the captures by step."""
    g = torch.Generator().manual_seed(0)
    shapes = [(3, 4), (5, 2)] if name == "Muon" else [(3, 4), (4,), (2, 3, 2), *([()] if dtype == torch.float64 else [])]
    params = [torch.nn.Parameter(torch.randn(s, generator=g, dtype=dtype)) for s in shapes]
    opt = getattr(O, name)(params, **{"lr": 1e-2} | options)
    schedule = SCHEDULERS[scheduler](opt) if scheduler else None
    step = pliant.compile(opt.step) if compiled else opt.step
    captures = []
    for _ in range(steps):
        for p in params:
            p.grad = torch.randn(p.shape, generator=g, dtype=dtype)
        step()
        if schedule is not None:
            schedule.step()
        captures.append(pliant.stats()["captures"])
    return [p.detach() for p in params], captures


@pytest.mark.parametrize("scheduler", [None, "cosine"])
@pytest.mark.parametrize(("name", "options"), CASES, ids=lambda v: v if isinstance(v, str) else "-".join(v) or "plain")
def test_steps_of_optimizers(name, options, scheduler):
    if not hasattr(O, name) or not options.keys() <= inspect.signature(getattr(O, name)).parameters.keys():
        pytest.skip("this PyTorch does not have it")
    want, _ = stepped(name, options, scheduler, False)
    got, captures = stepped(name, options, scheduler, True)
    torch.testing.assert_close(got, want, rtol=2e-5, atol=2e-6)
    if not IDENTITY:
        assert captures[-1] <= 2 and captures[1:] == [captures[1]] * (len(captures) - 1)
        assert not pliant.stats()["graph_breaks"]


@pytest.mark.parametrize(("name", "options"), CASES, ids=lambda v: v if isinstance(v, str) else "-".join(v) or "plain")
def test_steps_of_parameters_in_double(name, options):
    """1 - beta ** step is a number of Python's in eager: with the step's own float32 it was wrong from the sixth digit on."""
    if name in ("Muon", "Adafactor"):
        pytest.skip("it computes in less than that itself, or takes matrices alone")
    want, _ = stepped(name, options, None, False, dtype=torch.float64)
    got, _ = stepped(name, options, None, True, dtype=torch.float64)
    torch.testing.assert_close(got, want, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("options", [{}, {"foreach": True, "weight_decay": 0.1}, {"foreach": True, "lr": torch.tensor(1e-2)}], ids=repr)
@pytest.mark.parametrize("name", ["Adamax", "RAdam"])
def test_steps_that_ask_how_far_they_are(name, options):
    """What they compute from the count and decide by it is eager's to the last bit. RAdam goes another way from the sixth step on."""
    want, _ = stepped(name, options, None, False, 12)
    got, captures = stepped(name, options, None, True, 12)
    assert all(map(torch.equal, got, want))
    if not IDENTITY:
        assert captures[-1] <= 3 and not pliant.stats()["graph_breaks"]


@pytest.mark.parametrize("scheduler", ["one cycle", "lambda"])
@pytest.mark.parametrize("name", ["AdamW", "SGD"])
def test_schedulers_make_no_captures(name, scheduler):
    options = {"momentum": 0.9} if name == "SGD" else {}
    want, _ = stepped(name, options, scheduler, False)
    got, captures = stepped(name, options, scheduler, True)
    torch.testing.assert_close(got, want, rtol=2e-5, atol=2e-6)
    assert IDENTITY or captures[-1] <= 2


def averaged(compiled):
    g = torch.Generator().manual_seed(0)
    model = torch.nn.Linear(3, 2)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, generator=g))
    mean = O.swa_utils.AveragedModel(model, multi_avg_fn=O.swa_utils.get_ema_multi_avg_fn(0.9))
    update = pliant.compile(mean.update_parameters) if compiled else mean.update_parameters
    captures = []
    for _ in range(8):
        with torch.no_grad():
            for p in model.parameters():
                p.add_(torch.randn(p.shape, generator=g))
        update(model)
        captures.append(pliant.stats()["captures"])
    return [*mean.parameters(), mean.n_averaged], captures


def test_an_average_of_models():
    want, _ = averaged(False)
    got, captures = averaged(True)
    torch.testing.assert_close(got, want)
    assert IDENTITY or captures[-1] <= 4 and captures[4:] == [captures[4]] * 4  # a branch on data is looked at again once


def test_a_scheduled_step_whose_optimizer_is_gone():
    opt = O.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1)
    O.lr_scheduler.CosineAnnealingLR(opt, 20)
    opt.param_groups[0]["params"][0].grad = torch.ones(2)
    step = pliant.compile(opt.step)
    step()
    del opt
    with pytest.raises(AttributeError, match="NoneType"):
        step()


# -- counts --------------------------------------------------------------------------------------------------------------
def counts(o, x):
    o.n += 1
    return x * o.n.item() if o.n.item() > 2 else x - o.n.item()


def adds_elsewhere(o, x):
    o.other.add_(1)  # which may be the same memory
    return x * o.n.item()


def doubles(o, x):
    o.n.mul_(2)
    return x * o.n.item()


def adds_what_is_no_count(o, x):
    o.n.add_(0.5)
    return x * o.n.item()


def adds_a_list(o, x):
    torch._foreach_add_([o.n, o.other], 1)
    return x * o.n.item() + o.other.item()


def reads_before_and_behind(o, x):
    a = o.n.item()
    o.n.add_(1)
    b = o.n.item()
    o.n.add_(torch.tensor(2.0))
    return x * a + b, o.n.item()


def makes_it_anew(o, x):
    n = torch.tensor(0.0)
    torch._foreach_add_([n], 1.0)
    n += 1
    return x / n.item() ** 0.5


COUNTERS = [counts, adds_elsewhere, doubles, adds_what_is_no_count, adds_a_list, reads_before_and_behind, makes_it_anew]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
@pytest.mark.parametrize("fn", COUNTERS, ids=lambda f: f.__name__)
def test_counts_that_tensors_keep(fn, dtype):
    """Against eager: values that are no counts, too large ones, ones that others write, memory that two names share."""

    def world():
        n = torch.tensor(1, dtype=dtype)
        return types.SimpleNamespace(n=n, other=torch.tensor(5, dtype=dtype)), torch.ones(3)

    def changes(o, i):
        if i == 3:
            o.n = torch.tensor(7, dtype=dtype)
        if i == 4 and dtype.is_floating_point:
            o.n.fill_(2.5)
        if i == 5:
            o.n.fill_(2**24)
        if i == 6:
            o.n = torch.tensor(3, dtype=dtype)
            o.other = o.n.view(())
        if i == 8 and dtype.is_floating_point:
            o.n.fill_(float("nan"))
        if i == 9:
            o.n.fill_(-4)

    (a, x), (b, y) = world(), world()
    compiled = pliant.compile(fn)
    for i in range(11):
        changes(a, i)
        changes(b, i)
        want, got = outcome(fn, a, x), outcome(compiled, b, y)
        assert type(got) is type(want)
        if type(want) is str:
            assert got == want
        else:
            torch.testing.assert_close(got, want, rtol=1e-6, atol=0, equal_nan=True)
        torch.testing.assert_close([b.n, b.other], [a.n, a.other], rtol=0, atol=0, equal_nan=True)


def outcome(fn, *args):
    try:
        return fn(*args)
    except RuntimeError as e:  # half a one to an int
        return str(e).splitlines()[0]


def test_powers_and_extrema_of_floats():
    def program(o, x):
        v = o.rate
        u = x.sum().item()
        return x * (v**0.5) + 2.0**v, max(u, 0.25), min(0.25, u), max(0.5, u)

    o, compiled = types.SimpleNamespace(rate=0.5), pliant.compile(program)
    for rate, fill in ((0.5, 1.0), (0.25, -1.0), (0.125, float("nan")), (2.0, 0.0), (0.0, 3.0)):
        o.rate = rate
        x = torch.full((3,), fill)
        torch.testing.assert_close(compiled(o, x), program(o, x), equal_nan=True)
    o.rate = -2.0
    with pytest.raises(TypeError):  # a complex number times a tensor is one; what follows compares it
        max(program(o, x)[0].sum().item(), 0)
    assert torch.equal(compiled(o, torch.ones(3))[0], program(o, torch.ones(3))[0])


@pytest.mark.parametrize("options", [{"fused": True}, {}], ids=str)
def test_a_step_counts_versions_as_eager_does(options):
    versions = []
    for compile in (lambda fn: fn, lambda fn: pliant.compile(fn, strict=True)):
        p = torch.nn.Parameter(torch.ones(3))
        step = compile(O.AdamW([p], **options).step)
        versions.append([])
        for _ in range(3):
            p.grad = torch.ones(3)
            step()
            versions[-1].append(p._version)
    assert versions[0] == versions[1]


@pytest.mark.parametrize("count", [torch.tensor([3.0, 4.0]), torch.tensor([3.0]), torch.tensor(3), torch.tensor(3, dtype=torch.float64)])
@pytest.mark.parametrize("name", ["Adagrad", "Adam", "NAdam", "ASGD"])
def test_counts_of_other_kinds(name, count):
    """A step that is many numbers has no number, and an int counts exactly."""
    said = []
    for compiled in (False, True):
        p = torch.nn.Parameter(torch.linspace(-1, 1, 4))
        opt = getattr(O, name)([p], lr=0.1)
        step = pliant.compile(opt.step) if compiled else opt.step
        for i in range(4):
            p.grad = torch.linspace(0.5, 2, 4)
            if i == 2:
                opt.state[p]["step"] = count.clone()
            try:
                step()
            except Exception as e:
                said.append(type(e))
        said.append(p.detach())
    want, got = said[: len(said) // 2], said[len(said) // 2 :]
    assert want[:-1] == got[:-1]
    torch.testing.assert_close(want[-1], got[-1], rtol=1e-6, atol=0)


def test_a_step_that_torchdynamo_has_marked_under_a_scheduler():
    """`functools.wraps` takes its marks along to the scheduler's wrapper, which has no `self`."""
    step = torch.optim.LBFGS.step
    try:
        torch.optim.LBFGS.step = torch._dynamo.disable(step, reason="as TorchDynamo does once it compiles anything")
        told = []
        for run in (lambda f: f, pliant.compile):
            torch.manual_seed(0)
            model = torch.nn.Linear(3, 2)
            optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)
            torch.optim.lr_scheduler.StepLR(optimizer, 2)
            x = torch.ones(4, 3)

            def closure(model=model, optimizer=optimizer, x=x):
                optimizer.zero_grad()
                loss = model(x).square().sum()
                loss.backward()
                return loss

            fn = run(lambda optimizer=optimizer, closure=closure: optimizer.step(closure))
            told.append([fn().item(), fn().item(), model.weight.tolist()])
        for want, got in zip(*told, strict=True):
            torch.testing.assert_close(torch.tensor(got), torch.tensor(want))
    finally:
        torch.optim.LBFGS.step = step
