"""`python -m benchmarks.program_files`: damaged, foreign and malicious program files; each must load, or fail with a clear error.

A saved program is changed at random: bytes, bits and blocks of the zip, and, inside of it, lines and words of the text, keys and values
of the signature, the header of the weights. Whatever is loaded after all is also called. Anything but a `PliantError` (from a call also
what PyTorch raises) is a fault, and so is a process that ends.
"""

from __future__ import annotations

import argparse
import collections
import io
import json
import random
import re
import signal
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

import torch

import pliant
from pliant.errors import PliantError
from pliant.export.file import SIGNATURE, TEXT, WEIGHTS


class Small(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(4, 3)
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))

    def forward(self, x: Any, n: int, d: dict) -> Any:
        self.calls += 1
        y = torch.nn.functional.gelu(self.fc(x))[:n]
        return {"y": y.view(-1), "z": d["k"].nonzero(), "n": n * 2}


def example() -> tuple[tuple, dict]:
    return (torch.randn(5, 4), 2, {"k": torch.tensor([1.0, 0.0])}), {}


def parts(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as z:
        return {n: z.read(n) for n in (TEXT, SIGNATURE, WEIGHTS)}


def zipped(found: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        for name, data in found.items():
            z.writestr(name, data)
    return out.getvalue()


WORDS = [
    "-1", "0", "9223372036854775807", "s0", "s99", "%0", "%999", "None", "True", "[", "]", "inf", "nan", "aten.add.Tensor", "x" *
    300, "(s0 + ", "aten.empty.memory_format", "1e308", "float('nan')", "f64", "bool", "device('cuda')", "aten.from_file.default",
    "os.system", "__import__", "min", "max(s0, 1)", "s0 // 0", "s0 % 0", "2 ** 999999", "of", "strides", "of %0", "many", "finds",
    "finds s0 at 0",
]  # fmt: skip


def bytes_(r: random.Random, data: bytes) -> bytes:
    b = bytearray(data)
    for _ in range(r.choice((1, 1, 2, 8, 64))):
        at = r.randrange(len(b))
        b[at] = r.randrange(256) if r.random() < 0.5 else b[at] ^ 1 << r.randrange(8)
    return bytes(b)


def blocks(r: random.Random, data: bytes) -> bytes:
    a, b = sorted(r.randrange(len(data)) for _ in range(2))
    return r.choice((data[:a], data[a:], data[:a] + data[b:], data[:b] + data[a:], data[:a] + bytes(b - a) + data[b:], b"", data * 2))


def text(r: random.Random, data: bytes) -> bytes:
    found = parts(data)
    lines = found[TEXT].decode().splitlines()
    for _ in range(r.choice((1, 1, 2, 4))):
        if not lines:
            break
        at = r.randrange(len(lines))
        what = r.randrange(5)
        if what == 0:
            del lines[at]
        elif what == 1:
            lines.insert(r.randrange(len(lines)), lines[at])
        elif what == 2:
            words = re.split(r"(\W+)", lines[at])
            words[r.randrange(len(words))] = r.choice(WORDS)
            lines[at] = "".join(words)
        elif what == 3:
            other = r.randrange(len(lines))
            lines[at], lines[other] = lines[other], lines[at]
        else:
            lines[at] = bytes_(r, lines[at].encode() or b" ").decode(errors="replace")
    return zipped(found | {TEXT: "\n".join(lines).encode()})


def json_(r: random.Random, value: Any) -> Any:
    """A JSON value with one thing in it changed."""
    if isinstance(value, dict) and value and r.random() < 0.9:
        k = r.choice(list(value))
        what = r.random()
        if what < 0.15:
            return {a: b for a, b in value.items() if a != k}
        if what < 0.25:
            return {(a + "x" if a == k else a): b for a, b in value.items()}
        return {a: json_(r, b) if a == k else b for a, b in value.items()}
    if isinstance(value, list) and value and r.random() < 0.9:
        at = r.randrange(len(value))
        return [*value[:at], *([] if r.random() < 0.2 else [json_(r, value[at])]), *value[at + 1 :]]
    return r.choice(
        [
            None,
            -1,
            0,
            1 << 70,
            1.5,
            "",
            "x",
            [],
            {},
            [[]],
            {"float": "nan"},
            {"int": "x"},
            {"class": "os:system"},
            "output",
            ["object", "subprocess:Popen", [], []],
        ]
    )


def signature(r: random.Random, data: bytes) -> bytes:
    found = parts(data)
    return zipped(found | {SIGNATURE: json.dumps(json_(r, json.loads(found[SIGNATURE]))).encode()})


def weights(r: random.Random, data: bytes) -> bytes:
    found = parts(data)
    w = found[WEIGHTS]
    n = int.from_bytes(w[:8], "little")
    if r.random() < 0.3:
        return zipped(found | {WEIGHTS: bytes_(r, w[:64]) + w[64:]})
    header = json.dumps(json_(r, json.loads(w[8 : 8 + n]))).encode()
    return zipped(found | {WEIGHTS: len(header).to_bytes(8, "little") + header + w[8 + n :]})


CHANGES = {"bytes": bytes_, "blocks": blocks, "text": text, "signature": signature, "weights": weights}


def attempt(path: Path) -> str:
    """What became of one file: "refused", "answered", "raised" (the call), or the fault."""
    try:
        p = pliant.load(path)
    except PliantError as e:
        return "refused" if len(str(e)) < 4000 and str(e) else f"FAULT: words {str(e)[:80]!r}"
    except OSError as e:
        return f"FAULT: {type(e).__name__}: {e}"
    except BaseException as e:
        return f"FAULT: load raised {type(e).__name__}: {e}"
    try:
        args, kwargs = example()
        p(*args, **kwargs)
        str(p)
    except Exception as e:
        return (
            "raised"
            if isinstance(
                e,
                (
                    PliantError,
                    RuntimeError,
                    TypeError,
                    ValueError,
                    IndexError,
                    NotImplementedError,
                    OverflowError,
                    MemoryError,
                    ZeroDivisionError,
                ),
            )
            else f"FAULT: the call raised {type(e).__name__}: {e}"
        )
    return "answered"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    args = parser.parse_args()
    torch.manual_seed(0)
    counts: collections.Counter[str] = collections.Counter()
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.pliant"
        given, named = example()
        pliant.export(Small().eval(), given, named).save(path)
        good = path.read_bytes()
        assert attempt(path) == "answered"
        for seed in range(args.first, args.first + args.count):
            r = random.Random(seed)
            kind = r.choice(list(CHANGES))
            path.write_bytes(CHANGES[kind](r, good))
            signal.alarm(60)
            found = attempt(path)
            signal.alarm(0)
            counts[found.partition(":")[0]] += 1
            if found.startswith("FAULT"):
                print(f"{seed} ({kind}): {found[:300]}", flush=True)
    print(dict(counts), f"{time.perf_counter() - began:.0f} s")
    sys.exit(bool(counts["FAULT"]))


if __name__ == "__main__":
    main()
