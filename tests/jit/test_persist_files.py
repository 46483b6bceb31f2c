"""The cache as files: moved from one machine to another, open to others, listed and pruned."""

from __future__ import annotations

import hashlib
import os
import pathlib
import struct
import time
from collections.abc import Iterator

import pytest

import pliant
from pliant.cli import main
from pliant.codegen import cache
from pliant.errors import PliantError
from pliant.jit.persist import archive, environment
from tests.jit.processes import Processes

PROGRAM = """
import pliant
import torch
def f(x):
    y = (x * 2).tanh() + x.exp()
    pliant.graph_break()
    return y.sum(0) + hash_free(x)
def hash_free(x):
    return x.cos().mean(0)
def g(x):
    return x + id(g) % 7
"""
CALL = """
import os, pliant, program
{before}
x = torch.linspace(-1, 1, 12).reshape(4, 3)
{call}
answer = torch.allclose(pliant.compile(program.f, strict=True)(x), program.f(x), atol=1e-6), said
"""


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    p = Processes()
    yield p
    p.close()


@pytest.fixture
def home(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "program.py").write_text(PROGRAM)
    return tmp_path


@pytest.fixture
def here(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """This process's own cache, empty."""
    monkeypatch.setenv("PLIANT_CACHE_DIR", str(tmp_path / "here"))
    monkeypatch.setattr(cache, "used", {})
    monkeypatch.setattr(cache, "_told", set())
    return tmp_path / "here" / "cpu"


def call(processes: Processes, home: pathlib.Path, before: str = "", call: str = "said = None") -> dict:
    found = processes.fresh(CALL.format(before=before, call=call), str(home))
    assert found["answer"][0]
    return found


SAVED = "pliant.compile(program.f)(x)\nsaid = pliant.save_cache({path!r})"
ELSEWHERE = "os.environ['PLIANT_CACHE_DIR'] = {folder!r}\nloaded = {load}"


def test_another_machine_captures_nothing(processes: Processes, home: pathlib.Path, tmp_path: pathlib.Path) -> None:
    path, folder = str(tmp_path / "saved"), str(tmp_path / "elsewhere")
    found = call(processes, home, call=SAVED.format(path=path))
    assert found["counters"]["captures"] == found["counters"]["entries_kept"] == 2 and found["answer"][1] > 2
    os.utime(home / "program.py")  # the same content, written at another time
    load = f"pliant.load_cache({path!r}), pliant.load_cache({path!r})"
    found = call(processes, home, ELSEWHERE.format(folder=folder, load=load), "said = loaded")
    new, again = found["answer"][1]
    assert new > 2 and again == 0
    assert found["counters"].get("captures") is None and found["counters"]["entries_from_disk"] == 2
    (home / "program.py").write_text(PROGRAM.replace("x.exp()", "x.sin()"))
    counted = call(processes, home, ELSEWHERE.format(folder=folder, load="None"))["counters"]
    assert counted["captures"] == 2 and "entries_from_disk" not in counted


def saved(path: pathlib.Path, objects: dict[str, bytes]) -> pathlib.Path:
    """A file as `save_cache` writes it."""
    body = archive.MAGIC + b"".join([archive.LENGTHS.pack(len(n), len(c)) + n.encode() + c for n, c in objects.items()])
    path.write_bytes(body + hashlib.sha256(body).digest())
    path.chmod(0o644)
    return path


CODE = "ab" * 32
ENTRY = "cd" * 20 + "-" + "0" * 16 + "-" + hashlib.sha256(b"entry").hexdigest()[:24]


WARM = """
import os, sys, pliant, program
os.environ["PLIANT_BACKGROUND"] = "{background}"
f = pliant.compile(program.f, strict=True)
f(torch.ones(4, 3))
answer = pliant.stats()["captures"], "llvmlite.binding" in sys.modules
"""


RESET = """
import os, pliant, program
x = torch.linspace(-1, 1, 12).reshape(4, 3)
answer = []
for _ in range(2):
    assert torch.allclose(pliant.compile(program.f, strict=True, backend="aten")(x), program.f(x), atol=1e-6)
    answer.append([pliant.stats()[n] for n in ("captures", "from_disk")])
    pliant.reset()
"""


def test_what_was_left_for_later_outlives_a_reset(processes: Processes, home: pathlib.Path) -> None:
    assert processes.fresh(RESET, str(home))["answer"] == [[2, 0], [0, 2]]


def test_a_warm_start_needs_no_llvm(processes: Processes, home: pathlib.Path) -> None:
    """Machine code from the disk is put into memory by pliant itself: LLVM takes more time to import than all the rest."""
    assert processes.fresh(WARM.format(background=0), str(home))["answer"] == [2, True]
    assert processes.fresh(WARM.format(background=1), str(home))["answer"] == [0, False]


COLD = """
import pliant, program
from pliant.codegen.background import stopped
from pliant.jit.persist import environment
def hashes():
    return environment.own_content.cache_info().currsize
with stopped():
    f = pliant.compile(program.f, strict=True, background=True)
    f(torch.ones(4, 3))
    answer = [hashes(), pliant.stats()["captures"]]
pliant.synchronize()
answer += [hashes(), pliant.stats()["kept"]]
pliant.reset()
f(torch.ones(4, 3))
answer += [pliant.stats()["captures"], pliant.stats()["from_disk"]]
"""


def test_on_an_empty_disk_the_first_answer_waits_for_no_hash(processes: Processes, home: pathlib.Path) -> None:
    """What pliant's own files contain is part of every name; where there is nothing to find it is worked out later."""
    assert processes.fresh(COLD, str(home))["answer"] == [0, 2, 1, 2, 0, 2]


def test_objects_come_back(here: pathlib.Path, tmp_path: pathlib.Path) -> None:
    path = saved(tmp_path / "saved", {CODE: b"code", ENTRY: b"entry"})
    assert pliant.load_cache(path) == 2 and pliant.load_cache(path) == 0
    assert cache.read(CODE) == b"code" and cache.read(ENTRY) == b"entry"
    again = tmp_path / "again"
    assert pliant.save_cache(again) == 2
    assert again.read_bytes() == path.read_bytes()


@pytest.mark.parametrize("name", ["../../" + "a" * 58, "/etc/" + "a" * 59, "a" * 63 + "\n", "a" * 39, CODE + "+x", ENTRY[:-1] + "0", "+"])
def test_names_that_are_none_are_refused(here: pathlib.Path, tmp_path: pathlib.Path, name: str) -> None:
    with pytest.raises(PliantError, match="no object of a cache"):
        pliant.load_cache(saved(tmp_path / "saved", {CODE: b"code", name: b"entry"}))
    assert not here.exists()


def test_files_that_are_not_whole_are_refused(here: pathlib.Path, tmp_path: pathlib.Path) -> None:
    path = saved(tmp_path / "saved", {CODE: b"code", ENTRY: b"entry"})
    good = path.read_bytes()
    body = archive.MAGIC + struct.pack("<HQ", 64, 1 << 60) + CODE.encode()
    spoiled = [good[:n] for n in range(0, len(good), 7)] + [good + b"x", body + hashlib.sha256(body).digest()]
    spoiled += [good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :] for at in range(0, len(good), 5)]
    for data in spoiled:
        path.write_bytes(data)
        with pytest.raises(PliantError):
            pliant.load_cache(path)
    with pytest.raises(PliantError, match="cannot be read"):
        pliant.load_cache(tmp_path / "nothing")
    assert not here.exists()


@pytest.mark.parametrize("mode", [0o666, 0o664, 0o602])
def test_a_file_that_others_may_write_to_is_refused(here: pathlib.Path, tmp_path: pathlib.Path, mode: int) -> None:
    path = saved(tmp_path / "saved", {CODE: b"code"})
    path.chmod(mode)
    with pytest.raises(PliantError, match="others may write"):
        pliant.load_cache(path)


def test_files_of_others_are_refused(here: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path / "saved", {CODE: b"code"})
    cache.write(CODE, b"code")
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    if path.stat().st_uid:  # root's are everybody's
        with pytest.raises(PliantError, match="belongs to user"):
            pliant.load_cache(path)
        with pytest.warns(RuntimeWarning, match="belongs to user"):
            assert cache.read(CODE) is None
    status = os.stat_result((0o100644, 0, 0, 1, 12345, 0, 0, 0, 0, 0))
    assert "belongs to user 12345" in cache.not_trusted(status)


def test_nothing_to_save(here: pathlib.Path, tmp_path: pathlib.Path) -> None:
    with pytest.raises(PliantError, match="nothing"):
        pliant.save_cache(tmp_path / "saved")
    cache.write(ENTRY, b"entry")
    with pytest.raises(PliantError, match="cannot be written"):
        pliant.save_cache(tmp_path / "no" / "folder" / "saved")


@pytest.mark.parametrize("which", ["cpu", "folder"])
def test_a_folder_that_others_may_write_to_is_refused_once(here: pathlib.Path, which: str, recwarn: pytest.WarningsRecorder) -> None:
    cache.write(CODE, b"code")
    place = here if which == "cpu" else here / CODE[:2]
    place.chmod(0o775)
    for _ in range(2):
        assert cache.read(CODE) is None
        cache.write(CODE, b"other")
    assert [w for w in recwarn if "others may write" in str(w.message)] == recwarn.list and len(recwarn) == 1
    place.chmod(0o755)
    assert cache.read(CODE) == b"code"


def test_a_file_that_others_may_write_to_is_not_read(here: pathlib.Path) -> None:
    cache.write(CODE, b"code")
    path = pathlib.Path(cache.place(CODE)[1])
    path.chmod(0o646)
    assert cache.read(CODE) is None and path.exists()
    path.chmod(0o644)
    assert cache.read(CODE) == b"code"


def test_machine_code_in_an_open_folder_is_not_run(processes: Processes, home: pathlib.Path) -> None:
    first = call(processes, home)["counters"]
    (home / "cache" / "cpu").chmod(0o777)
    counted = call(processes, home, "import warnings; warnings.simplefilter('ignore')")["counters"]
    assert counted["captures"] == first["captures"] and counted["cache_refused"] == 1 and "entries_kept" not in counted


def test_the_command(processes: Processes, home: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    call(processes, home, call="said = pliant.compile(program.g)(x).shape[0]")
    monkeypatch.setenv("PLIANT_CACHE_DIR", str(home / "cache"))
    monkeypatch.setenv("COLUMNS", "250")
    monkeypatch.setattr(environment, "BEGUN", time.time_ns() + 10**12)  # the command is a process of its own

    def said(*words: str) -> tuple[int, str]:
        status = main.main(["cache", *words])
        return status, capsys.readouterr().out

    status, text = said("list")
    assert status == 0 and f"{home}/program.py:4" in text and "f (resumed)" in text and "not kept: " in text and "2 entries" in text
    assert said("verify")[0] == 0
    entry = next((home / "cache").rglob("*-*-*"))
    good = entry.read_bytes()
    entry.write_bytes(good[:-1])
    status, text = said("verify")
    assert status == 1 and "1 damaged" in text and "torn" in text
    assert "1 files removed" in said("prune")[1] and not entry.exists()
    entry.write_bytes(good)
    (home / "program.py").write_text(PROGRAM + "# changed\n")
    assert "has changed" in said("list")[1] and "0 damaged, 2 entries stale" in said("verify")[1]
    assert "2 files removed" in said("prune")[1]
    assert "0 files removed" in said("prune", "--days", "1")[1]
    said("prune", "--mb", "0")
    assert not [p for p in (home / "cache").rglob("*") if p.is_file()]
