"""What tests of kernels share: each target that this machine runs, with a cache of its own."""

from __future__ import annotations

import pytest

from tests.codegen.loop_reference import TARGETS


@pytest.fixture(params=TARGETS)
def to(request, monkeypatch, tmp_path):
    monkeypatch.setenv("PLIANT_CPU", request.param)
    monkeypatch.setenv("PLIANT_CACHE_DIR", str(tmp_path))
    return request.param
