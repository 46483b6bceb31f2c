"""What the script of a difference does (`repro.py`): capture, call with what differed, raise VerificationError if it differs still."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import pickle
import random
import sys
from typing import Any

import numpy as np

from pliant.graph.originals import torch
from pliant.jit.region import Region


def replay(folder: pathlib.Path) -> Any:
    """Returns what the call gives if nothing differs any more."""
    sys.path.insert(0, os.getcwd())
    fn, args, kwargs, (drawn, python, numpy), config = pickle.loads((folder / "data.pkl").read_bytes())
    compiled = Region(dataclasses.replace(config, strict=True, verify=1.0)).entry_point(fn)
    first = folder / "first.pkl"
    if first.exists():
        given, named = pickle.loads(first.read_bytes())
        with contextlib.suppress(Exception):  # it is called for its capture alone
            compiled(*given, **named)
    torch.set_rng_state(drawn)
    random.setstate(python)
    np.random.set_state(numpy)
    value = compiled(*args, **kwargs)
    print("no difference: it hangs on something that was not written down")
    return value
