"""Unsupported versions are refused with a sentence that says what to do."""

from __future__ import annotations

import pytest

from pliant import versions
from pliant.errors import UnsupportedVersion


def test_this_one_is_supported():
    versions.check()


@pytest.mark.parametrize("python", [(3, 10), (3, 14), (4, 0)])
def test_python(python):
    with pytest.raises(UnsupportedVersion, match=r"CPython 3\.11, 3\.12, 3\.13"):
        versions.check(python)


@pytest.mark.parametrize("torch_version", ["2.12.1", "2.14.0", "3.0"])
def test_torch(torch_version):
    with pytest.raises(UnsupportedVersion, match="pip install"):
        versions.check(torch_version=torch_version)
