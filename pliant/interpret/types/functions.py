"""Functions, methods, descriptors, modules and classes: known by identity, or by what they are made of."""

from __future__ import annotations

import functools
import types
from typing import Any

import torch

from pliant.interpret.types.row import read, row
from pliant.interpret.world import World

DESCRIPTORS = (
    types.MethodDescriptorType, types.WrapperDescriptorType, types.GetSetDescriptorType, property,
    torch._ops.OpOverload, torch._ops.OpOverloadPacket, torch._ops._OpNamespace,
)  # fmt: skip
KNOWN = (classmethod, staticmethod, types.MemberDescriptorType, types.ClassMethodDescriptorType)
BUILTIN = (types.BuiltinFunctionType, types.MethodWrapperType)



def by_identity(world: World, v: Any, source: Any) -> Any:
    """An operator of the user's: the object is guarded, and what it holds where it is read."""
    world.guard(source, "ID_MATCH", v)
    return world.adopt(v, source)


def as_it_is(fn: Any, o: Any) -> Any:
    return o


OPERATOR = (torch._library.custom_ops.CustomOpDef,)
row(name="custom operator", located=OPERATOR, stands=OPERATOR, locate=by_identity, to_graph=as_it_is)
row(name="C descriptor", located=DESCRIPTORS, stands=DESCRIPTORS, locate=World.identity, getattr=read)
row(name="descriptor", located=KNOWN, locate=World.identity)
row(name="module, class", located=(types.ModuleType, type), locate=World.identity)
row(name="function", located=(types.FunctionType,), locate=World.locate_function)
row(name="C function", located=BUILTIN, stands=BUILTIN, locate=World.locate_builtin, getattr=read)
row(name="method", located=(types.MethodType,), locate=World.locate_method)
row(name="partial", located=(functools.partial,), locate=World.locate_partial)
row(name="annotation, namespace of operators", stands=(types.GenericAlias, type(torch.ops)), getattr=read)
