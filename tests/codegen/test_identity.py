"""Programs whose code is on the disk are found there without being printed, and only where it is theirs; modules compiled side by side."""

from __future__ import annotations

import dataclasses
import itertools
import os
import random
import time

import pytest
import torch
import torch.nn.functional as F

import pliant
from pliant.codegen import cache, native
from pliant.codegen import target as targets
from pliant.codegen.cpu import backend, identity, machine, scalars, segment
from pliant.codegen.cpu import compile as cpu
from pliant.errors import InternalError
from pliant.lower import loops
from pliant.lower.attention import Attention
from pliant.lower.gemm import Gemm
from pliant.lower.kernels import Launch
from pliant.lower.program import NativeStep
from pliant.lower.segments import Segment
from tests.codegen.test_segments import normal, random_program


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("PLIANT_CACHE_DIR", str(tmp_path / "cache"))


class Stop(Exception):
    pass


def forget(monkeypatch) -> None:
    """Compiled code is on the disk only, as in a new process."""
    pliant.reset()
    monkeypatch.setattr(targets.named("cpu"), "launchers", {})
    monkeypatch.setattr(targets.named("cpu"), "addresses", {})


@pytest.fixture
def compiled(monkeypatch) -> list:
    """The arguments of each `compile_module`, from nothing."""
    forget(monkeypatch)
    seen: list = []
    compile_module = segment.compile_module

    def record(new, segments, symbols, known):
        seen.append((new, segments, symbols))
        return compile_module(new, segments, symbols, known)

    monkeypatch.setattr(backend, "compile_module", record)
    return seen


@pytest.fixture
def printed(monkeypatch) -> list[str]:
    """Names of the kernels that are printed."""
    seen: list[str] = []
    kernel_part = cpu.kernel_part
    monkeypatch.setattr(cpu, "kernel_part", lambda k, name, *more: (seen.append(name), kernel_part(k, name, *more))[1])
    return seen


def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = F.layer_norm(x, (16,)) @ w
    return torch.softmax(y, -1) + F.gelu(y).sum(0) * x.amax(-1, keepdim=True)


def run(n: int = 9) -> None:
    x, w = normal(n, 16), normal(16, 16)
    with torch.no_grad():
        torch.testing.assert_close(pliant.compile(program, backend="native", strict=True)(x, w), program(x, w))


def name(made: tuple) -> str | None:
    new, segments, symbols = made
    shapes = [(shape, *(symbols[key] for key in called)) for shape, called in segments]
    return identity.module(new.values(), new, shapes, machine.current(), cpu.versions())


# -- what a name depends on -----------------------------------------------------------------------------------------------------
def source(root, **files: str):
    for file, text in files.items():
        path = root / file.replace("__", "/")
        path = path.with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_the_generator_is_its_source(tmp_path):
    later = time.time() + 3600
    roots = [
        source(tmp_path / "a", lower__x="1", codegen__cpu__y="2", symbolic__z="3", jit__w="4"),
        source(tmp_path / "changed", lower__x="1", codegen__cpu__y="2 ", symbolic__z="3"),
        source(tmp_path / "moved", lower__x="1", codegen__y="2", symbolic__z="3"),
        source(tmp_path / "more", lower__x="1", codegen__cpu__y="2", symbolic__z="3", symbolic__a=""),
        source(tmp_path / "swapped", lower__x="3", codegen__cpu__y="2", symbolic__z="1"),
    ]
    assert len({identity.generator(root, later) for root in roots} - {None}) == len(roots)
    same = source(tmp_path / "same", symbolic__z="3", codegen__cpu__y="2", lower__x="1", jit__w="another room")
    assert identity.generator(same, later) == identity.generator(roots[0], later)


def test_source_that_may_not_be_what_runs_has_no_name(tmp_path):
    root = source(tmp_path, lower__x="1", codegen__y="2")
    begun = time.time() - 3600
    assert identity.generator(root, begun) is None, "written after this process began"
    old = (1_000_000, 1_000_000)
    os.utime(root / "lower" / "x.py", old)
    os.utime(root / "codegen" / "y.py", old)
    assert identity.generator(root, begun) is None, "and made to look old"
    assert identity.generator(tmp_path / "nowhere", time.time() + 3600) is None


def test_all_that_is_printed_from_is_in_the_generator():
    """The rooms that printing code calls: what else it imports has no say in the text."""
    assert set(identity.ROOMS) == {"symbolic", "lower", "codegen"}
    assert identity.generator() is not None and identity.HOME.name == "pliant"
    assert all((identity.HOME / room).is_dir() for room in identity.ROOMS)


def test_every_part_of_a_module_is_in_its_name(compiled, monkeypatch):
    run()
    (made,) = compiled
    new, segments, symbols = made
    assert segments and len(new) >= 3
    names = [name(made), name((dict(itertools.islice(new.items(), 1)), {}, symbols)), name((new, {}, symbols))]
    names.append(name((dict(reversed(new.items())), segments, symbols)))
    names.append(name((new, segments, symbols | dict.fromkeys(new, "k0"))))
    key, kernel = next(iter(new.items()))
    hinted = dataclasses.replace(kernel, hints={n: h + 1 for n, h in kernel.hints.items()})
    names.append(name(({**new, key: hinted}, segments, symbols)))
    to = machine.current()
    for other in (dataclasses.replace(to, cpu="other"), machine.named("portable")):
        names.append(identity.module(new.values(), new, [], other, cpu.versions()))
    names.append(identity.module(new.values(), new, [], to, ("0.0", (1, 2, 3))))
    monkeypatch.setattr(identity, "generator", lambda: b"another generator")
    names.append(name(made))
    assert None not in names and len(set(names)) == len(names)


@pytest.mark.parametrize("table", range(len(identity.TABLES)))
def test_operators_of_others_have_no_name(table, compiled, monkeypatch):
    """Their source is not the generator's."""
    run()
    rows = identity.TABLES[table]
    row = next(iter(rows))
    assert name(compiled[0]) is not None
    with monkeypatch.context() as patch:
        patch.setitem(rows, "mine", rows[row])
        assert name(compiled[0]) is None
    with monkeypatch.context() as patch:
        patch.setitem(rows, row, None)
        assert name(compiled[0]) is None
    assert name(compiled[0]) is not None


def test_the_same_operators_as_when_the_process_began():
    """Nobody in pliant adds rows later: then nothing would ever be found."""
    assert not identity.extended()
    assert scalars.ROWS in identity.TABLES and loops.SCALARS in identity.TABLES


@pytest.fixture
def segments(monkeypatch) -> list:
    """Those of many random programs, not compiled."""
    weight = normal(16, 16) * 0.3
    programs = [random_program(seed) for seed in range(30)]
    programs += [
        lambda a, b: (torch.tanh(a @ weight + 1) @ weight, b * 2 + 1),
        lambda a, b: (torch.tanh(b @ weight + 1) @ weight, a * 2 + 1),
    ]
    programs += [lambda a, b: F.scaled_dot_product_attention(*(x.view(1, 2, -1, 8) for x in (torch.tanh(a), b, a * b))) * 2]
    seen: list = []

    def record(launches, segments=()):
        seen.extend(call.segment for call in segments)
        raise Stop

    monkeypatch.setattr(native, "compile_all", record)
    for fn in programs:
        with torch.no_grad(), pytest.raises(InternalError, match="Stop"):
            pliant.compile(fn, backend="native", strict=True)(normal(6, 16), normal(6, 16))
    return seen


def text_of(s: Segment) -> tuple:
    keys = segment.identity_of(s)[1]
    return segment.part_of(s, "s", {key: f"c{i}" for i, key in enumerate(keys)}).text, keys


@pytest.mark.parametrize("poison", [False, True])
def test_segments_are_equal_where_their_text_is(poison, segments, monkeypatch):
    """Over random programs: one text for each identity, one identity for each text."""
    monkeypatch.setattr(segment, "poison", poison)
    texts: dict[tuple, set] = {}
    identities: dict[tuple, set] = {}
    for s in segments:
        texts.setdefault(text_of(s), set()).add(segment.identity_of(s))
        identities.setdefault(segment.identity_of(s), set()).add(text_of(s))
    assert all(len(found) == 1 for found in (*identities.values(), *texts.values()))
    assert 10 < len(identities)


def changed_step(s: Segment, step: NativeStep, i: int, r: random.Random) -> NativeStep | None:
    """A step with other sizes, memory or flags."""
    kind = r.choice(("size", "memory", "flag"))
    if isinstance(step, Gemm):
        flag = dataclasses.replace(step, b=dataclasses.replace(step.b, transposed=not step.b.transposed))
        size = dataclasses.replace(step, a=dataclasses.replace(step.a, distance=r.choice([12345, *s.leaves])))
        return {"flag": flag, "size": size, "memory": dataclasses.replace(step, out=r.choice(s.outer))}[kind]
    if not step.sizes or kind == "flag":
        return None
    if kind == "size":
        at = r.randrange(len(step.sizes))
        return dataclasses.replace(step, sizes=[*step.sizes[:at], r.choice([12345, *s.leaves]), *step.sizes[at + 1 :]])
    if isinstance(step, Launch):
        return dataclasses.replace(step, buffers=r.sample(step.buffers, len(step.buffers)))
    q, k, v, mask = step.operands
    return dataclasses.replace(step, operands=r.choice([[q, q, k, v], [k, q, v, mask]]))


def changed(s: Segment, r: random.Random) -> Segment | None:
    """The segment with one of its fields changed, whether that makes sense or not."""
    what = r.choice(("step", "step", "slots", "place", "given", "shared", "lives", "leaves", "order"))
    if what == "step":
        i = r.randrange(len(s.steps))
        step = changed_step(s, s.steps[i], i, r)
        return step and dataclasses.replace(s, steps=[*s.steps[:i], step, *s.steps[i + 1 :]])
    if what == "slots" and s.plan.slots:
        slots = [dataclasses.replace(slot, sizes=[*slot.sizes, 4096]) for slot in s.plan.slots]
        return dataclasses.replace(s, plan=dataclasses.replace(s.plan, slots=slots))
    if what == "place" and s.plan.place:
        return dataclasses.replace(
            s, plan=dataclasses.replace(s.plan, place=r.choices(range(-len(s.given), len(s.plan.slots)), k=len(s.inner)))
        )
    if what == "given":
        return dataclasses.replace(s, given=s.given[::-1])
    if what == "shared" and s.shared:
        return dataclasses.replace(s, shared={a: r.choice(s.outer).vid for a in s.shared})
    if what == "lives":
        return dataclasses.replace(s, intervals=[dataclasses.replace(i, last=max(i.last - 1, 0)) for i in s.intervals])
    if what == "leaves":
        return dataclasses.replace(s, leaves=s.leaves[::-1])
    if what == "order":
        return dataclasses.replace(s, outer=r.sample(s.outer, len(s.outer)))
    return None


@pytest.mark.parametrize("poison", [False, True])
def test_what_changes_the_text_changes_the_identity(poison, segments, monkeypatch):
    monkeypatch.setattr(segment, "poison", poison)
    r = random.Random(5)
    differ = 0
    for s in segments:
        before = text_of(s), segment.identity_of(s)
        for _ in range(100 if any(isinstance(x, Attention) for x in s.steps) else 30):
            other = changed(s, r)
            if other is None:
                continue
            try:
                after = text_of(other), segment.identity_of(other)
            except KeyError:
                continue  # a tensor without memory
            assert (before[0] == after[0]) or (before[1] != after[1]), (s, other)
            differ += before[0] != after[0]
    assert differ > 200


# -- the way through the disk ---------------------------------------------------------------------------------------------------
def test_what_is_on_the_disk_is_not_printed(printed, monkeypatch):
    forget(monkeypatch)
    run()
    assert printed
    printed.clear()
    for _ in range(2):
        forget(monkeypatch)
        emitted, found = cpu.times.emit, cpu.times.from_disk
        run()
        assert not printed and cpu.times.emit == emitted and cpu.times.from_disk > found
    monkeypatch.setattr(identity, "generator", lambda: b"another generator")
    forget(monkeypatch)
    run()
    assert printed, "another generator prints: it may print something else"
    assert cpu.times.emit == emitted, "here it did not"
    printed.clear()
    forget(monkeypatch)
    run()
    assert not printed


def test_another_target_prints(printed, monkeypatch):
    forget(monkeypatch)
    run()
    printed.clear()
    monkeypatch.setenv("PLIANT_CPU", "portable")
    forget(monkeypatch)
    run()
    assert printed


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "foreign", "no object", "torn object"])
def test_damaged_names_are_made_again(damage, compiled, printed, monkeypatch):
    run()
    listed = name(compiled[0])
    path = cache.directory() / listed[:2] / listed
    data = path.read_bytes()
    _, *objects = cache.read(listed).decode().split()
    places = [cache.directory() / key[:2] / key for key in objects]
    if damage == "no object":
        places[-1].unlink()
    elif damage == "torn object":
        places[-1].write_bytes(places[-1].read_bytes()[:-7])
    else:
        path.write_bytes({"cut": data[:-5], "flip": data[:-9] + b"\0garbage\0", "empty": b"", "foreign": places[0].read_bytes()}[damage])
    printed.clear()
    forget(monkeypatch)
    run()
    assert printed and path.read_bytes() == data and all(cache.read(key) is not None for key in objects)
    printed.clear()
    forget(monkeypatch)
    run()
    assert not printed


def test_without_a_name_the_text_decides(printed, monkeypatch):
    monkeypatch.setattr(identity, "generator", lambda: None)
    for _ in range(2):
        emitted = cpu.times.emit
        printed.clear()
        forget(monkeypatch)
        run()
        assert printed
    assert cpu.times.emit == emitted


# -- several modules --------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("cores", [1, 2, 3, 50])
def test_modules_are_compiled_side_by_side(cores, compiled, monkeypatch):
    """Functions of one call those of another."""
    monkeypatch.setattr(cpu, "ALONE", 1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cores)))
    emit_objects, counts = cpu.emit_objects, []
    monkeypatch.setattr(cpu, "emit_objects", lambda texts, to: (counts.append(len(texts)), emit_objects(texts, to))[1])
    run()
    assert max(counts) == min(cores, cpu.MOST_MODULES) + 1, "and what starts threads"
    assert len(cache.read(name(compiled[0])).split()) == max(counts) + 1
    forget(monkeypatch)
    run(5)


def test_what_llvm_says_comes_through(monkeypatch):
    to = machine.current()
    good = "define i32 @f() {\n  ret i32 0\n}\n"
    assert len(cpu.emit_objects([good, good.replace("@f", "@g")], to)) == 2
    with pytest.raises(RuntimeError, match="expected"):
        cpu.emit_objects([good, "define nonsense"], to)
    generated = cpu.generated
    calls = itertools.count()
    monkeypatch.setattr(cpu, "generated", lambda module, machine: generated(module, machine) if next(calls) != 1 else 1 / 0)
    with pytest.raises(ZeroDivisionError):
        cpu.emit_objects([good, good, good], to)
    assert len(cpu.emit_objects([good], to)) == 1


def test_without_threads_modules_are_compiled_in_turn(monkeypatch):
    to = machine.current()
    texts = [f"define i32 @f{k}() {{\n  ret i32 {k}\n}}\n" for k in range(4)]
    want = cpu.emit_objects(texts, to)
    left = iter([True])

    def start(job):
        if not next(left, False):
            raise RuntimeError("can't start new thread")
        begin(job)

    begin = cpu.Job.start
    monkeypatch.setattr(cpu.Job, "start", start)
    assert cpu.emit_objects(texts, to) == want and len(set(want)) == 4
