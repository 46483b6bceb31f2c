"""Numbers of the generator that the functions of `numpy.random` share: one, or an array of them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from pliant.graph.originals import ORIGINAL, math, operator, torch
from pliant.graph.python_random import MANY, NUMPYS
from pliant.interpret.arrays.dtypes import Unsure
from pliant.interpret.arrays.making import shape_of
from pliant.interpret.arrays.proxies import whole_array
from pliant.interpret.arrays.ufuncs import t
from pliant.interpret.lookasides import lookaside
from pliant.interpret.random_state import allowed, draw
from pliant.interpret.slots import binary
from pliant.interpret.state import Break, vm

NAMES = {"numpy_random": ("low", "high"), "numpy_gauss": ("loc", "scale")}
"""What moves a draw, and stretches it; the names of the arguments that say so."""


def refused(why: str) -> Break:
    return Break("PL0024", f"numbers of a generator of NumPy: {why}", clean=True)


def drawn(name: str, moved: bool, dims: bool = False) -> Callable[[tuple, dict], Any]:
    """What a method of the generator draws. `moved`: it takes two numbers first. `dims`: its sizes are arguments of their own."""
    names = (*(NAMES[name] if moved else ()), *(() if dims else ("size",)))

    def replacement(args: tuple, kw: dict) -> Any:
        generator, *rest = args or (None,)  # (none: a function of the class, called by its name)
        if generator is not NUMPYS:
            raise refused("of the program's own")
        if len(rest) > len(names) and not dims or not kw.keys() <= set(names):
            raise refused("with arguments that it refuses")
        given = {"size": tuple(rest) or None} if dims else dict(zip(names, rest, strict=False)) | kw
        size = given.pop("size", None)
        begin, scale = of(name, **given) if moved else (0.0, 1.0)
        try:
            shape = None if size is None else shape_of(size)
        except Unsure as e:
            raise refused(f"so many: {e}") from None
        if shape == ():
            raise refused("an array without dims")
        allowed()
        vm.world.pin(generator)
        if shape is None:
            number = draw(name)
            return number if not moved else binary(operator.add, begin, binary(operator.mul, scale, number))
        found = t(MANY[name], functools.reduce(lambda a, b: binary(operator.mul, a, b), shape, 1))
        found = found if len(shape) == 1 else t(ORIGINAL.view, found, shape)
        return whole_array(found if not moved else t(torch.add, t(torch.mul, found, scale), begin))

    return replacement


def of(name: str, **given: Any) -> tuple[Any, Any]:
    """Where the numbers begin, or are about, and how far they go. Sizes may say so, too."""
    first, second = [given.get(n, default) for n, default in zip(NAMES[name], (0.0, 1.0), strict=True)]
    sizes = torch.SymInt if name == "numpy_random" else ()
    plain = [type(v) in (int, float) and math.isfinite(v) or bool(sizes) and type(v) is sizes for v in (first, second)]
    if not all(plain):
        raise refused("of other than constants and sizes")
    first, second = [float(v) if type(v) in (int, float) else binary(operator.mul, v, 1.0) for v in (first, second)]
    scale = second if name == "numpy_gauss" else binary(operator.sub, second, first)
    if type(scale) is float and (not math.isfinite(scale) or scale < 0 and name == "numpy_gauss"):
        raise refused("with arguments that it refuses")
    return first, scale


if NUMPYS is not None:
    OF_STATE = type(NUMPYS)
    lookaside(OF_STATE.random_sample, OF_STATE.random)(drawn("numpy_random", False))
    lookaside(OF_STATE.rand)(drawn("numpy_random", False, dims=True))
    lookaside(OF_STATE.uniform)(drawn("numpy_random", True))
    lookaside(OF_STATE.standard_normal)(drawn("numpy_gauss", False))
    lookaside(OF_STATE.randn)(drawn("numpy_gauss", False, dims=True))
    lookaside(OF_STATE.normal)(drawn("numpy_gauss", True))
