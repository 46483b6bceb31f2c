"""Random programs whose graphs raise half way (`late_errors.py`): a part of what `python -m tests.differential.late_errors` runs."""

from __future__ import annotations

import pytest

from tests.differential import late_errors


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend", ["aten", "native"])
@pytest.mark.parametrize("first", range(0, 24, 8))
def test_random_programs_that_raise(first, backend):
    found = {seed: wrong for seed in range(first, first + 8) if (wrong := late_errors.run(seed, backend, words=False))}
    assert not found, "\n".join(f"== {seed}\n" + "\n".join(wrong[:2]) for seed, wrong in found.items())


def test_a_compiler_that_forgets_is_found(monkeypatch):
    """The harness sees effects that are missing when a program raises."""

    def forgets(fn, **options):
        def run(h, x, a, log, d, st):
            before = list(log)
            try:
                return fn(h, x, a, log, d, st)
            except Exception:
                log[:] = before
                raise

        return run

    monkeypatch.setattr(late_errors.pliant, "compile", forgets)
    assert any(map(late_errors.run, range(10)))
