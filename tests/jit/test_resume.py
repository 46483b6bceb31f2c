"""Resume functions: interrupt real functions at every opcode and go on in a resume function."""

from __future__ import annotations

import contextlib
import dis
import sys
import traceback

import pytest

from pliant.bytecode import instructions
from pliant.bytecode import kinds as K
from pliant.bytecode.assemble import encode_exception_table, exception_table, line_at
from pliant.bytecode.stack import stack_marks
from pliant.interpret.capture import UNSET, FrameState
from pliant.jit import resume
from tests.jit.frames import follows_kw_names, in_thread, snapshot, suspend


class Base:
    def hello(self, x):
        return ("base", x)


@contextlib.contextmanager
def noted(log, swallow=()):
    log.append("enter")
    try:
        yield len(log)
    except swallow as e:
        log.append(("swallowed", type(e).__name__))
    finally:
        log.append("leave")


def outcome(call, log):
    """What a caller sees of `call()`: the value or the chain of exceptions and the last line, and the log as it is then."""
    try:
        value = call()
    except BaseException as e:
        chain, seen = [], e
        while seen is not None:
            chain.append(repr(seen))
            seen = seen.__context__
        lines = [f.lineno for f in traceback.extract_tb(e.__traceback__) if f.name not in ("outcome", "<lambda>")]
        return ("raised", chain, list(log), lines)
    return ("returned", value, list(log))


def loops(log, n):
    total = 0
    for i in range(n):
        if i == 2:
            continue
        for j in (1, 2, 3):
            if j == 3 and i == 1:
                break
            total += i * j
        else:
            log.append(("else", i))
    while total > 3:
        total -= 5
        log.append(total)
    return total, i, j


def tries(log, n):
    for i in range(n):
        try:
            try:
                log.append(10 // (i - 1))
            except ZeroDivisionError as e:
                log.append(("zero", e.args))
                try:
                    raise KeyError(i)
                except KeyError as inner:
                    log.append(type(inner.__context__).__name__)
            else:
                log.append("else")
            finally:
                log.append("finally")
                if i == 3:
                    raise ValueError("three")
        except ValueError:
            log.append("value")
            continue
        finally:
            log.append("outer")
    return log[-1]


def reraises(log, n):
    try:
        try:
            raise ValueError(n)
        except ValueError as e:
            log.append(str(e))
            raise
        finally:
            log.append("f")
    except ValueError as e:
        log.append("again")
        raise RuntimeError("r") from e


def returns_in_finally(log, n):
    try:
        for i in range(n):
            try:
                return 1 // (i - n)
            finally:
                log.append(i)
    finally:
        log.append("end")


def withs(log, n):
    with noted(log) as a, noted(log, (KeyError,)) as b:
        log.append((a, b))
        if n > 2:
            raise KeyError("x")
        log.append("not raised")
    with noted(log, (ZeroDivisionError,)):
        return [k for k in range(n)], 1 // (n - 1)
    return "after"


def calls(log, n):
    def f(*args, key=None, **kw):
        log.append((args, key, sorted(kw)))
        return len(args)

    xs = [1, 2, 3]
    r = f(f(n), f(*xs, key=f(1, key=2)), log.append("arg") or f(f(f(1), 2), *xs, **{"z": 1}), key=max(n, f(3)))
    s = sorted(xs, key=lambda v: -v + n)
    return r, s, "{}-{!r:>5}".format(n, r), f"{n}{r!r:>4}{f(n)}"


def cells(log, n):
    count = 0

    def bump(by=1):
        nonlocal count, n
        count += by
        n -= 1
        return count

    while n > 0:
        log.append(bump(n))
    fs = [lambda i=i: i + count for i in range(3)]
    return [g() for g in fs], count, n, sum(x * count for x in range(3))


class Derived(Base):
    def hello(self, log, n):
        log.append(super().hello(n))
        x = [super(Derived, self).hello(k) for k in range(n)]
        return super().hello(len(x))


def super_zero(log, n):
    return Derived().hello(log, n)


def matches(log, n):
    out = []
    for v in (1, "a", [1, 2, 3], {"k": 1, "z": 2}, (n, n), complex(1, 2), None, Base()):
        match v:
            case int(k) if k > 0:
                out.append(("int", k))
            case [a, *rest]:
                out.append((a, rest))
            case {"k": k, **others}:
                out.append((k, others))
            case str() | None:
                out.append("s")
            case complex(real=r, imag=i):
                out.append((r, i))
            case _:
                out.append("other")
    return out


def walrus(log, n):
    if (m := n * 2) > 3 and (log.append(m) or (k := m - 1)):
        a, (b, *c), d = m, (k, 1, 2), [*range(n)]
        return a, b, c, d, {**{"a": a}, "b": b}, {1, *c}, 1 < n < 10 > m
    del m
    try:
        return m
    except NameError as e:
        return type(e).__name__


def groups(log, n):
    try:
        raise ExceptionGroup("g", [ValueError(1), KeyError(n), OSError(3)])
    except* ValueError as e:
        log.append(len(e.exceptions))
    except* KeyError as e:
        log.append(e.exceptions[0].args)
        raise TypeError("t") from None
    finally:
        log.append("fin")


def unbound_first(log, n):
    del log
    x = n
    for log in [[1], [2]]:
        x += log[0]
    del log
    log = ["new", x]
    return log


def chained(log, n):
    try:
        assert n < 0, "message"
    except AssertionError:
        log.append(1)
        raise LookupError(n) from None


def no_locals():
    return [1, 2, 3][len("ab")] + max(1, 2) * int("3")


FUNCTIONS = [loops, tries, reraises, returns_in_finally, withs, calls, cells, matches, walrus, groups, unbound_first, chained]


def check_everywhere(fn, make_args, target=None):
    """Resume `target` (called by `fn`) at each of its opcodes; return how many were tried."""
    target = target or fn
    log: list = []
    expected = in_thread(lambda: outcome(lambda: fn(*make_args(log)), log))
    k = tried = 0
    while True:
        log = []

        def go(state, log=log):
            if follows_kw_names(state.code, state.offset):
                return None
            p = resume.plan(state)
            f = resume.make_function(p.resume, state.globals)
            return outcome(lambda: f(list(p.items)), log)

        reached, got = suspend(fn, make_args(log), k, go, target)
        if not reached:
            break
        if got is not None:
            tried += 1
            assert got == expected, f"opcode {k}"
        k += 1
    return tried


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("n", [1, 4])
def test_resume_at_every_opcode(fn, n):
    assert check_everywhere(fn, lambda log: (log, n)) > 5


def test_resume_at_an_instruction_with_a_prefix():
    """CPython runs the resume function: where it goes on, the prefix of a large operand counts."""
    lines = ["def fn(x, g):", *[f"    a = {1000 + i}" for i in range(300)], "    z = [g(x), 99999, x]", "    return z, a"]
    space: dict = {}
    exec("\n".join(lines), space)
    code = space["fn"].__code__
    behind = next(i for i in instructions(code) if i.kind is K.CALL).following
    assert code.co_code[behind] == dis.EXTENDED_ARG
    p = resume.plan(FrameState(code, space, space["fn"], [10, abs, 1299], [-10], behind, None, None, 0, None))
    assert resume.make_function(p.resume, space)(list(p.items)) == ([-10, 99999, 10], 1299)


def test_zero_argument_super():
    assert check_everywhere(super_zero, lambda log: (log, 2), Derived.hello) > 5


def test_no_locals():
    assert check_everywhere(no_locals, lambda log: ()) > 5


def test_cells_only_and_frees_only():
    def outer(log):
        def inner():
            log.append(len(log))
            return [log for _ in range(2)]

        return inner()

    def make():
        x = 3

        def free_only():
            return x + max(x, 1)

        def cell_only():
            f = lambda: y  # noqa: E731
            y = x
            return f() + y

        return free_only, cell_only

    for f in make():
        assert check_everywhere(f, lambda log: ()) > 3
    assert check_everywhere(outer, lambda log: (log,)) > 3


def test_resume_of_resume_counts_from_the_user_code():
    state = None

    def keep(s):
        nonlocal state
        state = s
        return True

    log: list = []
    suspend(tries, (log, 4), 120, keep)
    cache: resume.Cache = resume.Cache()
    p = resume.plan(state, cache=cache)
    again = FrameState(
        p.resume.code, state.globals, None, state.fast, state.stack, state.offset + p.resume.shift, state.exc_info
    )  # fmt: skip
    assert resume.plan(again, cache=cache).resume is p.resume
    assert resume.origin_of(p.resume.code) == (tries.__code__, p.resume.shift)
    assert p.resume.code.co_name.startswith(f"__resume_at_{state.offset}_")


def test_same_shape_same_code():
    a = FrameState(loops.__code__, globals(), loops, [[], 1, UNSET, UNSET, UNSET], [], 2)
    b = FrameState(loops.__code__, globals(), loops, [[1], 5, UNSET, UNSET, UNSET], [], 2)
    c = FrameState(loops.__code__, globals(), loops, [[1], 5, 7, UNSET, UNSET], [], 2)
    cache: resume.Cache = resume.Cache()
    first = resume.plan(a, cache=cache).resume
    assert resume.plan(b, cache=cache).resume is first
    assert resume.plan(c, cache=cache).resume is not first
    assert resume.plan(a, cache=resume.Cache()).resume.code is not first.code


def test_inconsistent_stack_is_refused():
    with pytest.raises(resume.CannotResume):
        resume.plan(FrameState(loops.__code__, globals(), loops, [[], 1, UNSET, UNSET, UNSET], [1, 2, 3], 2))


def test_callers_handler_stays_active():
    def f(log):
        try:
            raise ValueError("mine")
        except ValueError:
            log.append(1)
        return 2

    states: list = []

    def collect(s):
        states.append(s)
        return True

    for k in range(200):
        if not suspend(f, ([],), k, collect)[0]:
            break
    inside = [s for s in states if s.exc_info is not None]
    assert inside
    for s in inside:
        p = resume.plan(s)
        g = resume.make_function(p.resume, s.globals)
        try:
            raise KeyError("caller")
        except KeyError as e:
            assert g(list(p.items)) == 2
            assert sys.exc_info()[1] is e


# -- generators ------------------------------------------------------------------------------------------------------


def gen_plain(log, n):
    for i in range(n):
        got = yield i
        log.append(got)
    return "done"


def gen_try(log, n):
    try:
        x = yield 1
        log.append(x)
        try:
            yield 2
        except KeyError as e:
            log.append(e.args)
            y = yield 3
            log.append(y)
        yield 4
    finally:
        log.append("closed")


def gen_from(log, n):
    try:
        r = yield from gen_plain(log, n)
    except KeyError:
        r = "key"
    log.append(r)
    r = yield from gen_try(log, n)
    log.append(r)
    for _ in range(1):
        yield from [1, 2]


def drive(gen, script, log):
    out = []
    for what, value in script:
        try:
            if what == "send":
                out.append(gen.send(value))
            elif what == "throw":
                out.append(gen.throw(value))
            else:
                out.append(gen.close())
        except StopIteration as e:
            out.append(("stop", e.value))
        except Exception as e:
            out.append((type(e).__name__, e.args))
    return out, log


SCRIPTS = [
    [("send", None), ("send", 5), ("send", 6), ("send", 7), ("send", 8), ("send", 9), ("send", 9), ("send", 9), ("send", 9)],
    [("send", None), ("throw", KeyError("k")), ("send", 1), ("send", 2), ("send", 3), ("send", 4)],
    [("send", None), ("send", 1), ("throw", KeyError("k")), ("send", 2), ("close", None), ("send", 3)],
    [("send", None), ("send", 1), ("send", 2), ("throw", KeyError("k")), ("send", 2), ("send", 3), ("throw", KeyError("z"))],
    [("send", None), ("close", None), ("send", None)],
    [("close", None), ("send", None)],
]


@pytest.mark.parametrize("fn", [gen_plain, gen_try, gen_from], ids=lambda f: f.__name__)
@pytest.mark.parametrize("script", range(len(SCRIPTS)))
def test_generators_rebuilt_between_steps(fn, script):
    """Stop a generator after each step of a script, rebuild it, and play the rest."""
    script = SCRIPTS[script]
    log: list = []
    expected = drive(fn(log, 2), script, log)
    for cut in range(len(script)):
        log = []
        gen = fn(log, 2)
        first, _ = drive(gen, script[:cut], log)
        if gen.gi_frame is None:
            break
        state = snapshot(gen.gi_frame, fn, None)
        if cut == 0:
            mode = resume.START
        else:
            mode = resume.YIELD
            handled = [x for x in state.stack if isinstance(x, BaseException)]
            state.exc_info = handled[-1] if handled else None
            if state.exc_info is None and "p" in stack_marks(state.code)[state.offset]:
                state.exc_info = KeyError("k")  # CPython keeps it in the generator, out of our sight
        p = resume.plan(state, mode=mode)
        made = resume.make_function(p.resume, state.globals, fn.__name__)(list(p.items))
        if mode == resume.YIELD:
            assert made.send(None) is None
        assert (made.__name__, made.gi_code.co_name) == (fn.__name__, fn.__name__)
        if mode == resume.YIELD:
            assert (made.gi_yieldfrom is None) == (gen.gi_yieldfrom is None)
            assert made.gi_frame.f_lineno == gen.gi_frame.f_lineno
        rest, _ = drive(made, script[cut:], log)
        assert (first + rest, log) == expected, cut


def test_unstarted_generator_from_its_very_start():
    def gen(a, b):
        f = lambda: a + b  # noqa: E731
        yield f()
        yield b

    s = FrameState(gen.__code__, globals(), gen, [UNSET, 2, 3][1:] + [UNSET], [], 0)
    s.fast = [UNSET] * 3
    s.fast[gen.__code__.co_varnames.index("a")] = 2
    s.fast[gen.__code__.co_varnames.index("b")] = 3
    p = resume.plan(s, mode=resume.START)
    assert list(resume.make_function(p.resume, globals())(list(p.items))) == [5, 3]


# -- encodings -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda f: f.__name__)
def test_tables_round_trip(fn):
    code = fn.__code__
    assert encode_exception_table(exception_table(code)) == code.co_exceptiontable
    log = []
    state = None

    def keep(s):
        nonlocal state
        state = s
        return True

    suspend(fn, (log, 2), 12, keep)
    r = resume.plan(state).resume
    assert [line_at(r.code, at + r.shift) for at in range(len(code.co_code))] == [line_at(code, at) for at in range(len(code.co_code))]
    theirs = [(i.opname, i.argval if i.opcode not in dis.hasjrel else i.argval + r.shift) for i in dis.get_instructions(code)]
    ours = [(i.opname, i.argval) for i in dis.get_instructions(r.code) if i.offset >= r.shift]
    assert ours == theirs


def test_code_is_entered_in_front_of_an_instruction_that_does_two_things():
    """Since 3.12 some do; a frame may stand between the two, where CPython cannot enter."""

    def f(x):
        y = x + 1
        z = y * 2
        return z

    code = f.__code__
    for i in instructions(code):
        if i.offset % 2:
            first = next(j for j in instructions(code) if j.offset == i.offset - 1)
            fast = [10, 20, 30]
            at, stack = resume._whole(code, i.offset, fast, [1, 2])
            assert at == i.offset - 1
            assert stack == ([1, 2, fast[first.operand]] if first.kind is K.STORE_LOCAL else [1])
    assert resume._whole(code, 4, [], [1]) == (4, [1])
