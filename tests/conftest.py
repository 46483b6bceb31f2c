"""Shared test settings: one thread, a clean compiler for every test, hypothesis profiles.

Internal errors are raised (`PLIANT_STRICT=1`): a test of what happens without it compiles with `strict=False`.

PLIANT_TEST_TIERS=1 sends every call through one tier, and the next through the other.
PLIANT_TEST_SEED=1 gives every test other random numbers.
PLIANT_FUZZ=5000 runs that many random programs per theme, with fresh seeds; without it a small fixed set runs, whose failures are
printed as found; PLIANT_SHRINK=1 makes them small (minutes).
"""

from __future__ import annotations

import atexit
import gc
import importlib
import itertools
import logging
import os
import random
import shutil
import sys
import tempfile
import threading

import hypothesis
import numpy as np
import pytest
import torch
from hypothesis.internal.conjecture import providers

torch.set_num_threads(1)

for accelerator in (torch.cuda, torch.xpu, torch.mtia):
    if not accelerator.is_available():  # else each `torch.manual_seed` queues a call for it, with the text of the stack: a millisecond
        accelerator._lazy_call = lambda *_, **__: None

if "PLIANT_CACHE_DIR" not in os.environ:  # no test reads what another run compiled, or leaves something behind
    os.environ["PLIANT_CACHE_DIR"] = tempfile.mkdtemp(prefix="pliant-tests-")
    atexit.register(shutil.rmtree, os.environ["PLIANT_CACHE_DIR"], ignore_errors=True)

os.environ["PLIANT_STRICT"] = "1"  # no test passes because an internal error fell back to eager
TIERS = os.environ.get("PLIANT_TEST_TIERS", "") == "1"  # every entry has both tiers, and its calls run in the one and the other in turn
os.environ.setdefault("PLIANT_BACKGROUND", "1" if TIERS else "0")  # what is tested is the machine code, from the first call on
os.environ.setdefault("PLIANT_ENTRIES", "0")  # tests count captures; `PLIANT_TEST_ENTRIES=1` sends every entry through its form on disk

if hasattr(providers, "_get_local_constants"):
    # Hypothesis draws some numbers from the source of every module that is loaded. The fixed programs would be others in every run.
    providers._get_local_constants = lambda: providers._local_constants

SEED = int(os.environ.get("PLIANT_TEST_SEED", "0"))  # of the random numbers that a test draws
FUZZ = int(os.environ.get("PLIANT_FUZZ", "0"))
COMMON = {"deadline": None, "print_blob": True, "suppress_health_check": list(hypothesis.HealthCheck)}
UNSHRUNK = [p for p in hypothesis.Phase if p not in (hypothesis.Phase.shrink, hypothesis.Phase.explain)]
hypothesis.settings.register_profile("ci", derandomize=True, database=None, phases=UNSHRUNK, **COMMON)
hypothesis.settings.register_profile("shrink", derandomize=True, database=None, **COMMON)
hypothesis.settings.register_profile("fuzz", max_examples=max(FUZZ, 1), **COMMON)
hypothesis.settings.load_profile("fuzz" if FUZZ else "shrink" if os.environ.get("PLIANT_SHRINK") else "ci")


def both_tiers(job) -> None:
    """In place of `background.submit`: the machine code is made at once, in another thread, and every other call runs it."""
    emitted, places, errors = job.emitted(), job.places, []
    first = emitted.executable.fn

    def run() -> None:
        try:
            job.run()
        except BaseException as e:
            errors.append(e)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    turn = itertools.cycle((first, emitted.executable.fn))
    for name in places:
        emitted.fn.__globals__[name] = lambda *slots: next(turn)(*slots)


@pytest.fixture(autouse=TIERS)
def tiers(monkeypatch):
    background = importlib.import_module("pliant.codegen.background").background
    monkeypatch.setattr(background, "submit", both_tiers)
    monkeypatch.setattr("pliant.jit.tiers.Exchange.wait_for_call", both_tiers)


@pytest.fixture
def no_joins(monkeypatch):
    """Branches on data are exits and breaks."""
    monkeypatch.setattr("pliant.jit.branches.joins", False)


def forget() -> None:
    """`pliant.reset()`, if the test at hand uses the whole compiler."""
    reset = getattr(sys.modules.get("pliant"), "reset", None)
    if reset is not None:
        reset()


@pytest.fixture(scope="module")
def young_heap():
    """What is there already is out of the collector's sight while a file's tests run: late in a run each whole collection takes seconds."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def clean_compiler():
    """Entries, statistics and policy memory of one test never reach the next; nor does torch's global state. Nor do random numbers: a
    test draws the same alone, behind others, and beside others in another process."""
    forget()
    random.seed(SEED)
    np.random.seed(SEED)
    torch.manual_seed(SEED)
    grad, dtype = torch.is_grad_enabled(), torch.get_default_dtype()
    yield
    seen = sys.modules.get("pliant.events")
    if seen is not None:  # no rule foretold other strides than PyTorch's
        assert not seen.counters().get("relaid"), [e.fields["text"] for e in seen.events("warning")]
    torch.set_grad_enabled(grad)
    torch.set_default_dtype(dtype)
    # a checkpoint with `debug=True` leaves it without: pytest hangs its own handlers there, which fail on what they cannot format
    logging.getLogger("LoggingTensor").propagate = True
    for _ in range(torch._C._len_torch_function_stack()):
        torch._C._pop_torch_function_stack()
    forget()
