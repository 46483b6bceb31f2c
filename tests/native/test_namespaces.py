"""`same_names` and `same_code`: whether a namespace is what it was, and that the keys of entries on the disk ask them."""

from __future__ import annotations

import types

import pytest
import torch

from pliant.config import Config
from pliant.jit.persist import environment
from pliant.native import same_code, same_names


class Everything:
    """Equal to all: identity is asked, never `==`."""

    def __eq__(self, other: object) -> bool:
        raise AssertionError("nobody's == runs")

    __hash__ = object.__hash__


@pytest.mark.parametrize("change", ["nothing", "value", "added", "removed", "order", "renamed"])
@pytest.mark.parametrize("kind", ["dict", "class", "module"])
def test_names_in_their_order_for_the_same_objects(kind: str, change: str) -> None:
    held = {f"n{i}": Everything() for i in range(5)}
    space = dict(held) if kind == "dict" else type("C", (), held) if kind == "class" else types.ModuleType("m")
    if kind == "module":
        vars(space).update(held)  # type: ignore[arg-type]
    read = (lambda: space) if kind == "dict" else (lambda: vars(space))
    where = space if kind == "class" else read()
    seen = tuple(read()), tuple(read().values())

    def put(name: str, value: object) -> None:
        space.__setitem__(name, value) if kind == "dict" else setattr(space, name, value)  # type: ignore[union-attr]

    def drop(name: str) -> None:
        space.__delitem__(name) if kind == "dict" else delattr(space, name)  # type: ignore[union-attr]

    if change == "value":
        put("n3", Everything())
    elif change == "added":
        put("n9", 1)
    elif change == "removed":
        drop("n4")
    elif change == "order":
        drop("n1")
        put("n1", held["n1"])
    elif change == "renamed":
        drop("n4")
        put("n5", held["n4"])
    assert same_names(where, *seen) is (change == "nothing")


def test_code_of_functions() -> None:
    def f():
        return 1

    def g():
        return 2

    seen = (f, g), (f.__code__, g.__code__)
    assert same_code(*seen) is True and same_code((), ()) is True
    g.__code__ = f.__code__
    assert same_code(*seen) is False
    assert same_code((f,), seen[1]) is False and same_code((len,), (f.__code__,)) is False


def test_wrong_arguments() -> None:
    with pytest.raises(TypeError):
        same_names(object(), (), ())  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        same_code([], [])  # type: ignore[arg-type]


def test_the_key_tells_what_was_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config()
    keys = [environment.key(config)]
    assert environment.key(config) == keys[0]
    with monkeypatch.context() as m:
        m.setattr(torch.nn.functional, "gelu", lambda x: x)
        keys.append(environment.key(config))
    assert environment.key(config) == keys[0]
    with monkeypatch.context() as m:
        m.setattr(torch.nn.functional.softmax, "__code__", (lambda *a, **k: None).__code__)
        keys.append(environment.key(config))
    with monkeypatch.context() as m:
        m.setattr(torch.Tensor, "of_this_test", test_code_of_functions, raising=False)
        keys.append(environment.key(config))
    with torch.no_grad():
        keys.append(environment.key(config))
    with torch.autocast("cpu"):
        keys.append(environment.key(config))
    with torch.device("meta"):
        assert environment.key(config) == "modes are on"
    assert len(set(keys)) == 6 and environment.key(config) == keys[0]
