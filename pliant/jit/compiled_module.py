"""Compiled modules: the module itself, with a compiled call.

`pliant.compile(module)` returns an instance of a subclass of the module's class that *shares the `__dict__`* of the module: attributes,
parameters, hooks and state are one and the same, names in `state_dict()` are unchanged, `isinstance` holds, and methods that call
`self(...)` (a `generate` loop) run the compiled call. One that stands for what `torch.compile` gives is an `OptimizedModule`, too, for
libraries that ask (`optimized_module.py`).
"""

from __future__ import annotations

import copy
import functools
import types
import weakref
from typing import Any

import torch

from pliant import native
from pliant.config import Config
from pliant.interpret import shells
from pliant.jit import optimized_module
from pliant.jit.nested_frames import Below
from pliant.jit.region import Region


def forward(pliant_module: Any, *args: Any, **kwargs: Any) -> Any:
    """The frame that is captured for a module: its code is cloned for each compiled module, so that entries are its own."""
    return pliant_module(*args, **kwargs)


def call(pliant_module: Any, *args: Any, **kwargs: Any) -> Any:
    """The frame that is captured for what `nn.Module.compile` puts into a module: hooks and `forward`, without asking for it again."""
    return pliant_module._call_impl(*args, **kwargs)


def unchanged(model: Any) -> Any:
    """What compiling is, as a decorator, inside of what is being compiled: nothing."""
    return model


def trampoline(config: Config, name: str, body: types.FunctionType = forward) -> tuple[Any, Region]:
    """A new entry point around a clone of `body`."""
    code = body.__code__.replace(co_qualname=f"{name}.__call__")
    region = Region(config)
    return region.entry_point(types.FunctionType(code, body.__globals__, body.__name__)), region


def around(config: Config, module: torch.nn.Module, body: Any) -> tuple[Any, Region]:
    """A call of a shell (`interpret/shells.py`), which runs as it is: the forward inside is a region."""
    region = Region(config)
    below = region.context.below or Below(region.miss)
    code = getattr(type(shells.inside(module)).forward, "__code__", None)
    if code is not None:
        native.set_flags(code, native.get_flags(code) & ~native.PASS)

    def run(pliant_module: Any, *args: Any, **kwargs: Any) -> Any:
        return native.call_below(below, body, pliant_module, *args, **kwargs)

    return run, region


@functools.cache
def metaclass(of: type) -> type:
    """The metaclass of compiled modules whose class has that one: calling their class makes what the module's own class makes."""

    def __call__(cls: Any, *args: Any, **kwargs: Any) -> Any:
        return type(cls._pliant_original)(*args, **kwargs)

    return type(of.__name__, (of,), {"__call__": __call__, "__module__": of.__module__, "__qualname__": of.__qualname__})


CLASS: Any = object.__dict__["__class__"]


class Compiled:
    """Mixed into the class of a compiled module, before the module's own class.

    Without `__slots__`, so that who gives modules other classes (`fully_shard`) may do so to a compiled one.
    """

    _pliant_original: Any
    _pliant_config: Any

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """A module of the original's class: who makes another one of this class (`type(model)(...)`) does not mean this one's call."""
        own = type(cls._pliant_original)
        return own.__new__(own, *args, **kwargs)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        if "_pliant_original" not in cls.__dict__:  # the program's own code hears of the program's own classes
            super().__init_subclass__(**kwargs)

    @property
    def __class__(self) -> Any:
        return optimized_module.class_of(self)

    @__class__.setter
    def __class__(self, cls: type) -> None:
        if issubclass(cls, Compiled):
            CLASS.__set__(self, cls)
        else:  # of the module itself (`register_parametrization`)
            self._pliant_original.__class__ = cls
            next(c for c in type(self).__mro__ if "_pliant_original" in c.__dict__).__bases__ = (Compiled, cls)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return compile_module, (self._pliant_original, self._pliant_config, type(self).__dict__.get("_compile_kwargs"))

    def __deepcopy__(self, memo: dict) -> Any:
        return compile_module(copy.deepcopy(self._pliant_original, memo), *self.__reduce_ex__(2)[1][1:])

    def __copy__(self) -> Any:
        return compile_module(copy.copy(self._pliant_original), *self.__reduce_ex__(2)[1][1:])

    @property
    def _orig_mod(self) -> Any:
        return self._pliant_original

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "_orig_mod":  # which is no part of the module
            self._pliant_call_another(value)
        else:
            super().__setattr__(name, value)

    def _pliant_call_another(self, module: Any) -> None:
        """From now on calls are those of `module`, which has the same class."""
        cls: Any = type(self)
        if module is self._pliant_original:
            return
        if type(module) is not type(self._pliant_original):
            raise TypeError(f"a compiled {cls.__name__} can't become one of a {type(module).__name__}: compile that one")
        cls._pliant_original, cls.__call__ = module, types.MethodType(cls.__call__.__func__, module)
        object.__setattr__(self, "__dict__", module.__dict__)

    @property
    def dynamo_ctx(self) -> Any:
        """As of an `OptimizedModule`: what compiles another function as this module is compiled."""
        return functools.partial(optimized_module.compile_as, self._pliant_config)

    def load_state_dict(self, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
        """As the module's own; keys that `torch.compile` saved (`_orig_mod.…`) are understood."""
        prefix = "_orig_mod."
        if state_dict and all(k.startswith(prefix) for k in state_dict):
            state_dict = {k[len(prefix) :]: v for k, v in state_dict.items()}
        return self._pliant_original.load_state_dict(state_dict, *args, **kwargs)


def compile_call_of(module: torch.nn.Module, config: Config) -> Any:
    """A compiled `module._call_impl`."""
    if shells.is_shell(module):
        entry, _ = around(config, module, torch.nn.Module._call_impl)
    else:
        entry, _ = trampoline(config, type(module).__qualname__, call)  # type: ignore[arg-type]
    return types.MethodType(entry, module)


def compile_module(module: torch.nn.Module, config: Config, asked: dict[str, Any] | None = None) -> Any:
    """The compiled twin of `module`. `asked`: what `torch.compile` was asked for, where pliant stands in its place."""
    if isinstance(module, Compiled):
        module = module._pliant_original
    cls = type(module)
    if shells.is_shell(module):
        entry, region = around(config, module, torch.nn.Module.__call__)
    else:
        entry, region = trampoline(config, cls.__qualname__)
    body = {
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "__doc__": cls.__doc__,
        "__call__": types.MethodType(entry, module),
        "_pliant_original": module,
        "_pliant_config": config,
    }
    made = type.__new__(metaclass(type(cls)), cls.__name__, (Compiled, cls), body)
    twin = object.__new__(made)
    object.__setattr__(twin, "__dict__", module.__dict__)
    weakref.finalize(twin, region.close)
    return twin if asked is None else stands_for_torchs(twin, asked)


def stands_for_torchs(compiled: Any, asked: dict[str, Any]) -> Any:
    """What compiling gave, where it stands for what `torch.compile` gives for the keywords `asked`."""
    if isinstance(compiled, Compiled):
        type.__setattr__(type(compiled), "_compile_kwargs", asked)
    return compiled
