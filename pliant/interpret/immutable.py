"""Types of C whose instances never change: an outside one is guarded by identity and may be given to native code."""

from __future__ import annotations

import contextvars
import datetime
import decimal
import fractions
import operator
import pathlib
import re
import types
import typing
import uuid

import torch

IMMUTABLE: set[type] = {
    re.Pattern, re.Match, decimal.Decimal, fractions.Fraction, datetime.date, datetime.datetime, datetime.time,
    datetime.timedelta, datetime.timezone, uuid.UUID, pathlib.PurePath, pathlib.Path, pathlib.PosixPath,
    operator.attrgetter, operator.itemgetter, operator.methodcaller, types.GenericAlias, types.UnionType,
    torch.finfo, torch.iinfo, contextvars.ContextVar, torch._C._SDPBackend,
}  # fmt: skip
IMMUTABLE.update(
    t for t in (getattr(typing, name, None) for name in (
        "_GenericAlias", "_UnionGenericAlias", "_CallableGenericAlias", "_LiteralGenericAlias", "_AnnotatedAlias", "_SpecialForm",
        "_SpecialGenericAlias", "_CallableType", "_TupleType", "TypeVar", "ForwardRef", "_AnyMeta",
    )) if isinstance(t, type)
)  # fmt: skip
