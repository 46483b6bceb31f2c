"""What perturbations found in calls of the library: replaced insides, later special methods, warnings, copies, numbers next to 0."""

from __future__ import annotations

import copy
import math
import operator
import sys
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import vmap

from tests.helpers import pliant

F = nn.functional
X, Y = torch.linspace(-1, 2, 12).reshape(3, 4), torch.linspace(1, -2, 12).reshape(3, 4)


def said(fn, *args):
    try:
        return repr(fn(*args))
    except Exception as e:
        return type(e), str(e)


def compiled(fn):
    return pliant.compile(fn, strict=True, backend="aten")


# -- functions that are spelled otherwise ----------------------------------------------------------------------------------
OF_NUMBERS = {
    (torch._C._nn, "leaky_relu"): lambda n: F.leaky_relu(X, n),
    (torch._C._nn, "elu"): lambda n: F.elu(X, n),
    (torch, "celu"): lambda n: F.celu(X, n),
    (torch._C._nn, "huber_loss"): lambda n: F.huber_loss(X, Y, delta=n),
    (torch, "margin_ranking_loss"): lambda n: F.margin_ranking_loss(X, Y, Y, n),
    (torch._C._nn, "cross_entropy_loss"): lambda n: F.cross_entropy(X, torch.tensor([0, 1, 2]), label_smoothing=n),
}


@pytest.mark.parametrize("space, name", list(OF_NUMBERS))
def test_a_function_that_another_one_calls_is_replaced_under_a_changing_number(space, name, monkeypatch):
    program, before = OF_NUMBERS[space, name], getattr(space, name)
    run = compiled(program)
    for n in (0.25, 0.5, 0.75):
        torch.testing.assert_close(run(n), program(n))
    monkeypatch.setattr(space, name, lambda *args, **options: before(*args, **options) + 1)
    for n in (0.25, 0.5):
        torch.testing.assert_close(run(n), program(n))
    monkeypatch.undo()
    torch.testing.assert_close(run(0.3), program(0.3))


@pytest.mark.parametrize("name, program", [
    ("layer_norm", lambda x: vmap(lambda r: F.layer_norm(r, (4,)))(x)),
    ("group_norm", lambda x: vmap(lambda r: F.group_norm(r[None], 2))(x)),
    ("embedding", lambda x: vmap(lambda r: F.embedding(torch.tensor([0, 1]), r[:, None]))(x)),
])  # fmt: skip
def test_a_function_that_another_one_calls_is_replaced_under_vmap(name, program, monkeypatch):
    run, before = compiled(program), getattr(torch, name)
    torch.testing.assert_close(run(X), program(X))
    monkeypatch.setattr(torch, name, lambda *args: before(*args) + 1)
    torch.testing.assert_close(run(X), program(X))
    monkeypatch.undo()
    torch.testing.assert_close(run(Y), program(Y))


NEXT_TO_NOTHING = {
    "softplus": lambda x, n: F.softplus(x, n),
    "celu": lambda x, n: F.celu(x, n),
    "smooth_l1_loss": lambda x, n: F.smooth_l1_loss(x, x.detach() * 0.5, beta=n),
    "logit": lambda x, n: torch.logit(x, n),
    "power of a number": lambda x, n: n**x,
}


@pytest.mark.parametrize("name", list(NEXT_TO_NOTHING))
def test_derivatives_that_divide_by_next_to_nothing(name):
    def program(x, n):
        y = NEXT_TO_NOTHING[name](x, n)
        return y.detach(), torch.autograd.grad(y.sum(), x)[0]

    run = compiled(program)
    x = torch.tensor([0.25, 0.0, -0.5, 0.75], requires_grad=True)
    for n in (0.25, 0.125, 0.375, 5e-324, 0.0, -0.0, 0.25):
        got, want = said(run, x, n), said(program, x, n)
        assert isinstance(got, str) is isinstance(want, str)
        if isinstance(want, str):
            torch.testing.assert_close(run(x, n), program(x, n), equal_nan=True)


def test_a_number_that_is_infinite_beside_one_that_changes():
    def program(x, beta, threshold):
        y = F.softplus(x, beta, threshold)
        return y.detach(), torch.autograd.grad(y.sum(), x)[0]

    run, x = compiled(program), torch.tensor([0.25, 0.0, -0.5, 0.75], requires_grad=True)
    for beta, threshold in ((1.0, 20.0), (1.0, 0.5), (1.0, 2.5), (math.inf, 2.5), (math.inf, 3.5), (math.nan, 0.25), (2.0, 0.25)):
        torch.testing.assert_close(run(x, beta, threshold), program(x, beta, threshold), equal_nan=True)


# -- special methods that a class gets later -------------------------------------------------------------------------------
class Number:
    def __float__(self):
        return 2.5

    def __index__(self):
        return 2

    def __len__(self):
        return 2

    def __repr__(self):
        return "a number"


NUMBER = Number()
LATER = {
    "__ceil__": (lambda: math.ceil(NUMBER), lambda self: 9),
    "__floor__": (lambda: math.floor(NUMBER), lambda self: 9),
    "__complex__": (lambda: complex(NUMBER), lambda self: 3j),
    "__bytes__": (lambda: bytes(NUMBER), lambda self: b"b"),
    "__length_hint__": (lambda: operator.length_hint([NUMBER]) + operator.length_hint(NUMBER), lambda self: 5),
    "__str__": (lambda: ("%s" % NUMBER, f"{NUMBER}", f"{NUMBER}", str([NUMBER])), lambda self: "text"),
    "__format__": (lambda: ("{}".format(NUMBER), f"{NUMBER}"), lambda self, how: "formatted"),  # noqa: UP032
    "__hash__": (lambda: {2: 3}.get(NUMBER), lambda self: "no number"),
}


@pytest.mark.parametrize("name", list(LATER))
def test_special_methods_that_a_class_gets_later(name):
    use, method = LATER[name]

    def program(x):
        return x + 1, use()

    run, x = compiled(program), torch.ones(2)
    assert said(run, x) == said(program, x)
    for _ in range(2):
        setattr(Number, name, method)
        assert said(run, x) == said(program, x)
        delattr(Number, name)
        assert said(run, x) == said(program, x)


def refuses(*_):
    raise TypeError


class Called:
    def __call__(self, *_):
        return 2


HINTS = {
    "refuses": refuses, "None": None, "an object": Called(), "a static method": staticmethod(lambda: 5), "a bool": lambda self: True,
    "too large": lambda self: 1 << 70, "negative": lambda self: -1, "a text": lambda self: "x", "not here": lambda self: NotImplemented,
}  # fmt: skip


@pytest.mark.parametrize("of_len", [None, *HINTS])
@pytest.mark.parametrize("of_hint", [None, *HINTS])
def test_hints_of_lengths(of_len, of_hint):
    methods = {"__iter__": lambda self: iter([1, 2])}
    methods |= {name: HINTS[way] for name, way in (("__len__", of_len), ("__length_hint__", of_hint)) if way is not None}
    it = type("It", (), methods)()

    def hint(x):
        return x + 1, operator.length_hint(it, 7)

    def listed(x):
        return x + 1, list(it), [*it]

    for program in (hint, listed):
        assert said(compiled(program), torch.ones(2)) == said(program, torch.ones(2))


# -- warnings of modules ---------------------------------------------------------------------------------------------------
class Warns(nn.Module):
    def __init__(self, level):
        super().__init__()
        self.level = level

    def forward(self, x):
        warnings.warn("said", stacklevel=self.level)
        return x + 1


def passed_on(m, x):
    return m(x)


class Holds(nn.Module):
    def __init__(self, level):
        super().__init__()
        self.inner = Warns(level)

    def forward(self, x):
        return passed_on(self.inner, x)


@pytest.mark.parametrize("level", range(1, 9))
def test_which_line_a_warning_from_forward_is_about(level):
    m = Holds(level)

    def program(x):
        return m(x)

    def outer(x):
        return program(x)

    told = []
    for fn in (outer, compiled(outer)):
        for n in (2, 3):
            with warnings.catch_warnings(record=True) as heard:
                warnings.simplefilter("always")
                fn(torch.ones(n))
            told.append([(w.filename, w.lineno) for w in heard])
    assert told[0] == told[2] and told[1] == told[3]


def test_a_warning_that_nobody_hears_marks_the_module_that_it_is_about():
    m = nn.InstanceNorm2d(3)

    def program(x):
        return m(x)

    run = compiled(program)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        globals().pop("__warningregistry__", None)
        run(torch.ones(2, 4, 3, 3))
        assert "__warningregistry__" not in globals()


# -- copies, and frames that begin again -----------------------------------------------------------------------------------
def test_copies_of_tensors_that_share_memory():
    m = nn.BatchNorm1d(3).eval()
    mean, var = m.running_mean, m.running_var

    def program(x):
        n = copy.deepcopy(m)
        n.running_mean.add_(1)
        return n(x).detach(), n.running_mean, n.running_var

    run = compiled(program)
    for shared in (False, True, False, True):
        m._buffers["running_var"] = mean.view(3) if shared else var
        got, want = run(torch.ones(2, 3)), program(torch.ones(2, 3))
        assert repr(got) == repr(want)
        assert (got[1].data_ptr() == got[2].data_ptr()) is shared


def test_what_was_written_before_a_recurrent_layer_raises():
    m, heard = nn.LSTM(4, 3), []

    def program(x):
        heard.append(len(heard))
        return copy.deepcopy(m)(x)[0]

    run = compiled(program)
    run(torch.ones(3, 4))
    bias = m.bias_ih_l0
    m._parameters["bias_ih_l0"] = nn.Parameter(torch.cat([bias.data, bias.data[:1]]))
    with pytest.raises(RuntimeError, match="must match"):
        run(torch.ones(3, 4))
    assert heard == [0, 1] and m._flat_weights[2] is m._parameters["bias_ih_l0"]


def test_what_was_written_before_an_operator_of_numpy_raises():
    heard = []

    def program(a):
        heard.append(len(heard))
        return np.linalg.inv(a) + 1

    run = compiled(program)
    run(np.eye(3))
    with pytest.raises(np.linalg.LinAlgError):
        run(np.zeros((3, 3)))
    assert heard == [0, 1]


# -- methods of tensors that nobody but the compiler calls ------------------------------------------------------------------
def stepped(kind):
    def program(x):
        p = nn.Parameter(torch.ones(3))
        p.grad = x[:3] * 1
        o = kind([p], 0.1)
        o.step()
        o.step()
        return p.detach()

    return program


def drawn(x):
    g = torch.Generator().manual_seed(3)
    state = g.get_state()
    a = torch.rand(3, generator=g)
    g.set_state(state)
    return a, torch.rand(3, generator=g) + x[0]


UNDER_OTHERS = {
    "item": [
        lambda x: x[torch.tensor(1)], lambda x: bool(x.sum() > 3), lambda x: 2.0 in x, lambda x: (x * 2, 1) if x.sum() > 3 else (x, 2),
        stepped(torch.optim.Adam), stepped(torch.optim.RAdam),
    ],
    "double": [stepped(torch.optim.Adam), stepped(torch.optim.ASGD), stepped(torch.optim.Adagrad)],
    "copy_": [drawn],
    "__repr__": [lambda x: (str(x), x.__str__(), f"{x}")],
    "__hash__": [lambda x: ({x: 1}[x], hash(x) == x.__hash__(), x + 1), stepped(torch.optim.Adam)],
}  # fmt: skip


def other(old):
    def f(*args, **kwargs):
        r = old(*args, **kwargs)
        if isinstance(r, torch.Tensor):
            return torch.add(r, 1)
        return r + "!" if isinstance(r, str) else not r if isinstance(r, bool) else r + 1

    return f


@pytest.mark.parametrize("replaced_first", [True, False])
@pytest.mark.parametrize("name, program", [(name, p) for name, programs in UNDER_OTHERS.items() for p in programs])
def test_a_method_of_tensors_is_replaced_that_others_call(name, program, replaced_first, monkeypatch):
    run, old = compiled(program), getattr(torch.Tensor, name)
    for k in range(4):
        x = torch.linspace(0, 3 + k, 4 + k)
        if (k % 2 == 0) is replaced_first:
            monkeypatch.setattr(torch.Tensor, name, other(old))
        want, got = program(x.clone()), run(x.clone())
        monkeypatch.undo()
        assert repr(want) == repr(got), k


# -- options of recurrent layers --------------------------------------------------------------------------------------------
DROPPED = (np.float64(0.5), np.float32(0.5), True, np.bool_(True), np.int64(1), torch.tensor(0.5), "0.5", 2.0)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("dropout", DROPPED, ids=repr)
def test_dropout_between_recurrent_layers_is_a_number_of_another_type(kind, dropout):
    m = kind(4, 3, num_layers=2, batch_first=True)
    m.dropout = dropout

    def program(x):
        torch.manual_seed(5)
        return m(x)[0].detach(), torch.rand(1)

    run = compiled(program)
    for n in (3, 4, 3):
        assert said(run, torch.ones(2, n, 4)) == said(program, torch.ones(2, n, 4))


# -- under a handler of the caller ------------------------------------------------------------------------------------------
def raises_again(x):
    y = x * 2

    def inner(z):
        z.add_(1)
        raise  # what is handled further out, if anything is

    try:
        inner(y)
    except (KeyError, RuntimeError) as e:
        return y + 1, repr(e), repr(e.__context__)


GROUPS = [ExceptionGroup("both", [TypeError(2), ValueError(3)]), ExceptionGroup("one", [ValueError(4)])]


def splits_a_group(x):
    y, seen = x * 2, []
    try:
        try:
            raise GROUPS[x.shape[0] % 2]
        except* ValueError as e:
            seen.append(repr(e))
    except BaseException as e:
        seen.append((repr(e), repr(e.__context__)))
    return y + 1, seen


def makes_what_it_raises(x):
    class Odd(Exception):
        def __init__(self):
            super().__init__(repr(sys.exception()))

    try:
        raise Odd
    except Odd as e:
        return x + 1, repr(e)


@pytest.mark.parametrize("program", [raises_again, splits_a_group, makes_what_it_raises])
@pytest.mark.parametrize("handled_first", [True, False])
def test_the_caller_handles_an_exception(program, handled_first):
    """CPython runs the rest of a frame from where no break is possible on; what was before it is a graph."""

    def called(fn, x, within):
        if not within:
            return repr(fn(x))
        try:
            raise KeyError("note")
        except KeyError:
            return repr(fn(x))

    run = compiled(program)
    for k in range(5):
        x, within = torch.ones(2 + k), (k % 2 == 0) is handled_first
        assert called(run, x, within) == called(program, x, within), k


# -- near the end of the stack --------------------------------------------------------------------------------------------------
def test_a_function_that_comes_to_itself_by_an_attribute():
    def step(x):
        return step.other(x)

    step.other = torch.sin
    run, x = compiled(lambda x: step(x) * 2), torch.ones(2)
    assert torch.equal(run(x), x.sin() * 2)
    step.other = step
    for _ in range(2):
        with pytest.raises(RecursionError):
            run(x)
    step.other = torch.cos
    assert torch.equal(run(x), x.cos() * 2)


@pytest.mark.parametrize("room", [15, 30, 60, 120, 240])
def test_a_capture_that_is_deeper_than_the_stack_where_eager_is_not(room):
    def program(x):
        return (lambda y: y * 2)(x) + 1

    run, x = compiled(program), torch.ones(2)
    frame, depth = sys._getframe(), 0
    while frame is not None:
        frame, depth = frame.f_back, depth + 1

    def down(n):
        return down(n - 1) if n else run(x)

    assert torch.equal(down(sys.getrecursionlimit() - depth - room), program(x))
    assert torch.equal(run(x), program(x))


# -- what functions of transforms refuse ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dims", [{"out_dims": 3}, {"out_dims": -4}, {"in_dims": (0, 2)}, {"in_dims": (0,)}, {"in_dims": (None, None)}])
def test_dims_that_vmap_refuses(dims):
    def program(x, y):
        try:
            return vmap(lambda a, b: a * b, **dims)(x, y)
        except (IndexError, ValueError) as e:
            return type(e).__name__, str(e)

    run = compiled(program)
    for _ in range(2):
        assert said(run, X, X.clone()) == said(program, X, X.clone())


class Named:
    name, more = "step", None


@pytest.mark.parametrize("name, more, raises", [("other", None, 0), ("other", "more", 0), (None, None, 1), (5, None, 1), ("step", 3, 1)])
def test_a_profilers_mark_has_a_name(name, more, raises, monkeypatch):
    o = Named()

    def program(x):
        with torch.autograd.profiler.record_function(o.name, o.more):
            return x + 1

    made = compiled(program)
    made(torch.ones(2))
    monkeypatch.setattr(Named, "name", name)
    monkeypatch.setattr(Named, "more", more)
    for fn in (program, made):
        if raises:
            with pytest.raises(RuntimeError, match="_record_function_enter_new"):
                fn(torch.ones(2))
        else:
            assert fn(torch.ones(2)).tolist() == [2, 2]
