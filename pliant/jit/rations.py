"""How much time a region spends on capturing the same code again and again: a capture takes as long as ten calls, or a hundred.

A function in which the graph breaks settles once its pieces are known, each by a few entries. Where the decisions of a program do not come
to an end, piece after piece would be captured again in call after call. So captures of code that has been captured before are rationed:

| such captures of a region so far | a miss of code that has been captured before                                   |
|----------------------------------|--------------------------------------------------------------------------------|
| FREE at most                     | is captured                                                                    |
| more                             | is captured once the thread has worked for SHARE times as long as its latest   |
|                                  | such capture took; until then CPython runs the rest of such a call             |

Code that was never captured always is. There are no rations where there are no trials (`trials.py`), nor where the graph does not break.
How many there were goes to the disk with each entry: what CPython ran in one process for want of rations is not free in the next one.
"""

from __future__ import annotations

import time
from threading import get_ident

FREE = 16
SHARE = 4


class Ration:
    """Of one region."""

    __slots__ = ("again", "until")

    def __init__(self) -> None:
        self.again = 0  # captures of code that had been captured before
        self.until: dict[int, float] = {}  # by thread, its processor time

    def waits(self) -> bool:
        """Whether CPython runs the rest of this call, which no entry fits."""
        return self.again >= FREE and time.thread_time() < self.until.get(get_ident(), 0.0)

    def captured(self, began: float) -> None:
        """Code was captured that had been before, from this processor time of the thread on."""
        now = time.thread_time()
        self.again += 1
        self.until[get_ident()] = now + SHARE * (now - began)

    def inherit(self, again: int) -> None:
        """So many such captures had been made when an entry was that this process has found on the disk."""
        self.again = max(self.again, again)
