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
import uuid

import torch

IMMUTABLE: set[type] = {
    re.Pattern, re.Match, decimal.Decimal, fractions.Fraction, datetime.date, datetime.datetime, datetime.time,
    datetime.timedelta, datetime.timezone, uuid.UUID, pathlib.PurePath, pathlib.Path, pathlib.PosixPath,
    operator.attrgetter, operator.itemgetter, operator.methodcaller, types.GenericAlias, types.UnionType,
    torch.finfo, torch.iinfo, contextvars.ContextVar,
}  # fmt: skip
