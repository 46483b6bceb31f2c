"""Which programs there are to perturb: the benchmark programs, the patterns, the tests' programs, PyTorch's modules, the zoo's models.

Names are `group/…`; a group is imported when one of its programs is asked for.
"""

from __future__ import annotations

import copy
import importlib
import pathlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

FAMILIES = ("encoders", "decoders", "experts", "states", "translators", "vision", "audio")
RANDOM_THEMES = ("pure", "mixed", "foreign", "breaks", "python")
RANDOM = 100  # programs of each theme
ROOT = pathlib.Path(__file__).parents[2]
# Programs whose answer depends on what no copy of the arguments brings back, or that end the process on purpose.
LEFT_OUT: dict[str, str] = {
    "tests/models_idioms/message_of_a_tensor": "asks whether it is being compiled",
    "tests/tensor_state/resized_larger": "reads memory that nobody has written",
    "tests/models_idioms/warned_once": "answers otherwise the second time",
    "tests/models_idioms/weights_known_by_weak_references": "ends the process in eager: no kernel checks the sizes of changed weights",
    "tests/pythons_newer/what_type_tells": "tells a flag of classes that CPython's own caches set",
    "tests/torch_features_outside/count_error": "counts with an iterator, which nobody puts back",
}


@dataclass
class Call:
    args: list
    kwargs: dict


@dataclass
class Subject:
    """`make()` gives the function that is compiled and its calls; `grad`: results are differentiated, gradients compared."""

    name: str
    make: Callable[[], tuple[Callable, list[Call]]]
    grad: bool = False
    no_grad: bool = False


def function_of(fn: Any) -> Callable:
    """A function around a module, so that all of the module is read anew in each call."""
    if not isinstance(fn, torch.nn.Module):
        return fn

    def program(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return program


def as_call(a: Any) -> Call:
    if hasattr(a, "kwargs") and hasattr(a, "args"):
        return Call(list(a.args), dict(a.kwargs))
    return Call(list(a if type(a) is tuple else (a,)), {})


# --------------------------------------------------------------------------------------------------------------------- the groups
def benchmark_programs() -> Iterator[Subject]:
    from benchmarks.programs import PROGRAMS

    for p in PROGRAMS.values():

        def whole(p: Any = p) -> tuple[Callable, list[Call]]:
            inputs = sorted(p.inputs(), key=volume)[:3]
            return function_of(p.make()), [Call(list(a), {}) for a in inputs]

        yield Subject(f"programs/{p.name}", whole, no_grad=True)


def volume(args: Any) -> int:
    if isinstance(args, torch.Tensor):
        return args.numel()
    return sum(map(volume, args.values() if isinstance(args, dict) else args)) if isinstance(args, list | tuple | dict) else 0


def benchmark_patterns() -> Iterator[Subject]:
    from benchmarks.patterns import PATTERNS

    for p in PATTERNS:

        def make(p: Any = p) -> tuple[Callable, list[Call]]:
            torch.manual_seed(0)
            return function_of(p.make()), [Call(list(p.args(i)), {}) for i in (2, 3, 0)]

        yield Subject(f"patterns/{p.name}", make, no_grad=True)


def test_patterns() -> Iterator[Subject]:
    from tests.programs.test_patterns import PATTERNS

    for name, (factory, arguments, _, _) in PATTERNS.items():

        def make(factory: Any = factory, arguments: Any = arguments) -> tuple[Callable, list[Call]]:
            torch.manual_seed(0)
            made = factory()
            fn = made[0] if isinstance(made, tuple) else made
            return function_of(fn), [as_call(copy.deepcopy(a)) for a in arguments[1:4]]

        yield Subject(f"test-patterns/{name}", make)


def test_programs() -> Iterator[Subject]:
    from tests.programs import registry

    for path in sorted((ROOT / "tests" / "programs").glob("test_*.py")):
        module = importlib.import_module(f"tests.programs.{path.stem}")
        for case in registry.REGISTRY.get(module.__name__, ()):

            def make(case: Any = case) -> tuple[Callable, list[Call]]:
                torch.manual_seed(0)
                made = case.fn() if case.world else case.fn
                fn = made[0] if isinstance(made, tuple) else made
                return function_of(fn), [as_call(copy.deepcopy(a)) for a in case.arg_sets[:3]]

            yield Subject(f"tests/{path.stem[5:]}/{case.name}", make, grad=bool(case.options.get("grad")))


def worlds() -> Iterator[Subject]:
    """The programs that the tests call in worlds of their own, each in the first of its worlds."""
    from tests.programs.worlds import CASES

    for path in sorted((ROOT / "tests" / "programs").glob("test_*.py")):
        module = importlib.import_module(f"tests.programs.{path.stem}").__name__
        for name, (factory, _, _) in CASES.items():
            if not name.startswith(module + "."):
                continue

            def make(factory: Any = factory) -> tuple[Callable, list[Call]]:
                torch.manual_seed(0)
                fn, first, *_ = factory()
                first()
                return function_of(fn), [Call([torch.linspace(-1, 1, n)], {}) for n in (3, 4, 5)]

            yield Subject(f"worlds/{path.stem[5:]}/{name[len(module) + 1:]}", make)


def numpy_programs() -> Iterator[Subject]:
    from tests.programs.test_numpy import CASES

    for name, (fn, arguments, _) in CASES.items():
        yield Subject(f"numpy/{name}", lambda fn=fn, arguments=arguments: (fn, [as_call(copy.deepcopy(a)) for a in arguments[:3]]))


def random_programs() -> Iterator[Subject]:
    """Programs of `benchmarks.fuzz`, the first of each theme."""
    from tests.differential.generate import seeded

    for theme in RANDOM_THEMES:
        for number in range(RANDOM):

            def make(theme: str = theme, number: int = number) -> tuple[Callable, list[Call]]:
                program = seeded(theme, number)
                fn, state = program.world()
                program.before(0, state)
                return fn, [as_call(copy.deepcopy(a)) for a in program.arguments()[:1]]

            yield Subject(f"random/{theme}:{number}", make)


def torch_modules() -> Iterator[Subject]:
    from torch.testing._internal.common_modules import module_db

    for info in module_db:

        def make(info: Any = info) -> tuple[Callable, list[Call]]:
            torch.manual_seed(0)
            given = [g for g in info.module_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=False, training=False)
                if g.forward_input is not None][:1]
            module = info.module_cls(*given[0].constructor_input.args, **given[0].constructor_input.kwargs).eval()
            return function_of(module), [Call(list(g.forward_input.args), dict(g.forward_input.kwargs)) for g in given]

        yield Subject(f"modules/{info.name}", make)


def never() -> bool:
    return False


def zoo_models() -> Iterator[Subject]:
    from benchmarks import zoo

    try:
        from transformers.utils import import_utils
    except ImportError:
        return
    import_utils.is_torchdynamo_compiling = never  # what it answers differs on purpose: masks would be made in another way than in eager
    for family in FAMILIES:
        try:
            models = zoo.load(family)
        except ImportError:
            continue
        for m in models:
            if m.generate is not None:
                continue

            def make(m: Any = m) -> tuple[Callable, list[Call]]:
                model = m.make()
                return function_of(model), [Call(list(a), dict(k)) for a, k in m.calls(model)[:2]]

            yield Subject(f"zoo/{m.name}", make, no_grad=True)


GROUPS: dict[str, Callable[[], Iterator[Subject]]] = {
    "programs": benchmark_programs,
    "patterns": benchmark_patterns,
    "test-patterns": test_patterns,
    "tests": test_programs,
    "worlds": worlds,
    "numpy": numpy_programs,
    "random": random_programs,
    "modules": torch_modules,
    "zoo": zoo_models,
}


def subjects(wanted: list[str]) -> dict[str, Subject]:
    """The programs whose names begin with one of `wanted` (none given: all of them)."""
    out = {}
    for group, load in GROUPS.items():
        if wanted and not any(w.startswith(group + "/") or group.startswith(w) or w == group for w in wanted):
            continue
        for s in load():
            if s.name not in LEFT_OUT and (not wanted or any(s.name.startswith(w) for w in wanted)):
                out[s.name] = s
    return out
