"""Every test of this floor runs with recording scopes, as PLIANT_VALIDATE=1 would make them; a sample of them is put to z3 afterwards."""

from __future__ import annotations

import pytest

from pliant.symbolic import scope as scopes

try:
    from pliant.symbolic import validate as validation
except ImportError:  # z3 is not installed
    validation = None

SAMPLE = 3  # scopes of a test
CLAIMS = 96  # of a scope
APART = ("test_validate", "test_docs", "test_stream")  # plants errors; adds an operator that z3 does not know; looks at recorders itself


@pytest.fixture(autouse=True)
def validated(request, monkeypatch):
    """The first few scopes of the test record, and what they were told must follow from what they keep."""
    if validation is None or request.module.__name__.rpartition(".")[2] in APART:
        yield
        return
    seen = []
    monkeypatch.setattr(scopes, "RECORD", True)

    def born(scope):
        seen.append(scope)
        if len(seen) >= SAMPLE:
            monkeypatch.setattr(scopes, "RECORD", False)
            monkeypatch.setattr(scopes.Scope, "born", None)

    monkeypatch.setattr(scopes.Scope, "born", born)
    yield
    for scope in seen:
        if scope.events is None:
            continue
        validator = validation.Validator(scope, 100)
        claims = [i for i, e in enumerate(scope.events) if not validation.trivial(e)]
        wrong = validator.first_wrong(claims[:CLAIMS])
        assert wrong is None, str(wrong)
