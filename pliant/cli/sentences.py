"""Real sentences that every Python carries: its language reference and the docstrings of its standard library."""

from __future__ import annotations

import importlib
import inspect
import random
import re
from collections.abc import Iterator
from pydoc_data.topics import topics

# Modules whose documentation is prose; importing them starts nothing.
MODULES = (
    "abc argparse array ast asyncio base64 bisect calendar cmath codecs collections concurrent.futures configparser contextlib copy "
    "csv ctypes dataclasses datetime decimal difflib dis email enum fileinput fnmatch fractions functools gettext glob graphlib gzip "
    "hashlib heapq hmac html http imaplib inspect io ipaddress itertools json linecache locale logging lzma mailbox math mimetypes "
    "multiprocessing netrc numbers operator os pathlib pickle pickletools platform plistlib pprint profile queue random re sched "
    "secrets selectors shelve shlex shutil signal smtplib socket socketserver sqlite3 ssl statistics string struct subprocess "
    "tarfile tempfile textwrap threading timeit token tokenize trace traceback types unittest urllib.request uuid warnings "
    "wave weakref xml.dom zipfile zoneinfo"
).split()

ENDS = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
MARKUP = re.compile(r"[`*]{1,2}(\w[^`*]*?)[`*]{1,2}")
CODE = re.compile(r">>>|\.\. |::|->|[{}=|<>\\\[\]]|\(\)")


def texts() -> Iterator[str]:
    """Everything that may hold sentences, in a fixed order."""
    for name in sorted(topics):
        yield topics[name]
    for name in MODULES:
        module = importlib.import_module(name)
        yield inspect.getdoc(module) or ""
        for attribute in sorted(vars(module)):
            value = getattr(module, attribute)
            if not attribute.startswith("_") and getattr(value, "__module__", None) == name:
                yield inspect.getdoc(value) or ""


def prose(text: str) -> Iterator[str]:
    """The plain English sentences of one text, on one line each, markup removed."""
    for paragraph in re.split(r"\n\s*\n", text):
        flat = MARKUP.sub(r"\1", " ".join(paragraph.split()))
        for sentence in ENDS.split(flat):
            words = sentence.split()
            letters = sum(c.isalpha() or c == " " for c in sentence)
            if 4 <= len(words) <= 60 and sentence[0].isupper() and sentence[-1] in ".!?" and not CODE.search(sentence):
                if letters >= 0.9 * len(sentence):
                    yield sentence


def sentences(limit: int, seed: int = 0) -> list[str]:
    """`limit` different sentences in a fixed random order, so that a batch mixes short and long ones."""
    found = list(dict.fromkeys(s for text in texts() for s in prose(text)))
    random.Random(seed).shuffle(found)
    return found[:limit]
