"""The background: one thread that makes machine code while the program already runs.

A `Job` waits in a bounded queue; the thread is started by the first one and ends when there is nothing more to do. Its Python work is
done in turns with captures (`turns.py`), and LLVM works without the interpreter's lock. An error is told as an event, never raised.

At the end of the process what has been begun is finished, and what waits is worked on for at most `EXIT_S` seconds, so that the next
process finds it on the disk, small jobs first. A fork leaves the child without the thread: what was waited for there is begun anew when
it is called there.
"""

from __future__ import annotations

import atexit
import collections
import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Protocol

from pliant import events, turns

MOST_JOBS = 256
MOST_OPERATIONS = 100_000
"""What may wait. A program that makes more compiles in the foreground until there is room."""
EXIT_S = 1.0


class Job(Protocol):
    """Something to be made. `size`: operations of its graph, for the bound on memory. `frame_id`, `name`: whose it is, for events.

    `done`: what it makes is in use. `stores`: all that it does is to write to the disk.
    """

    stores: bool
    size: int
    frame_id: str
    name: str
    done: bool

    def wanted(self) -> bool:
        """Is there still somebody to use it?"""

    def run(self) -> None:
        """Called in the background's turn."""

    def wait_for_call(self) -> None:
        """Called in the child of a fork: the job is to be submitted anew when something of it is called there."""


class Dropped(BaseException):
    """The work of a job is not wanted any more. BaseException: not an error of what it leaves."""


@contextlib.contextmanager
def telling(job: Job) -> Iterator[None]:
    """What a job raises is an event: nobody is there to whom it could be raised."""
    try:
        yield
    except Dropped:
        pass
    except BaseException as e:
        events.count("background_errors")
        events.emit("background_error", frame_id=job.frame_id, name=job.name, error=f"{type(e).__name__}: {e}")


class Background:
    """The queue and its thread."""

    def __init__(self) -> None:
        self.jobs: collections.deque[Job] = collections.deque()
        self.size = 0
        self.running: Job | None = None
        self.thread: threading.Thread | None = None
        self.pace: turns.Pace | None = None
        self.changed = threading.Condition()
        self.waiting = 0  # threads in `synchronize`
        self.ending = False

    def has_room(self, size: int) -> bool:
        """May a job of this size be submitted?"""
        return not self.ending and len(self.jobs) < MOST_JOBS and self.size + size <= MOST_OPERATIONS

    def submit(self, job: Job) -> None:
        self.leave(job)
        self.start()

    def leave(self, job: Job) -> None:
        """Submit a job that nobody waits for: it is begun when there is something else to do, too, or at the end of the process."""
        with self.changed:
            self.jobs.append(job)
            self.size += job.size

    def start(self) -> None:
        """See to it that somebody works on the queue."""
        with self.changed:
            if self.thread is not None or not self.jobs:
                return
            self.thread = threading.Thread(target=self.work, name="pliant-background", daemon=True)
            try:
                self.thread.start()
            except RuntimeError:  # no thread is to be had: the queue waits for the next try
                self.thread = None

    def work(self) -> None:
        """What the thread does: one job after the other, until there are none."""
        me = threading.current_thread()
        while True:
            with self.changed:
                if self.thread is not me:
                    return
                self.running = self.jobs.popleft() if self.jobs else None
                if self.running is None:
                    self.thread = None
                    self.changed.notify_all()
                    return
                job = self.running
                self.size -= job.size
                pace = self.pace = turns.Pace(self.stop)
                pace.hurry = bool(self.waiting) or self.ending
            with turns.taking(pace), telling(job):
                self.stop()
                job.run()
            del job
            with self.changed:
                if self.thread is me:
                    self.running = self.pace = None

    def stop(self) -> None:
        """Raises Dropped if the job under way is not wanted any more."""
        job = self.running
        if job is None or not job.wanted():
            raise Dropped

    def synchronize(self, timeout: float | None = None) -> bool:
        """Wait until nothing is under way. False if that took longer than `timeout` seconds."""
        if turns.compiling._is_owned():  # type: ignore[attr-defined]  # called by what captures, or by what the background tells
            return False
        deadline = None if timeout is None else time.monotonic() + timeout
        self.start()
        with self.changed:
            self.waiting += 1
            try:
                if self.pace is not None:
                    self.pace.hurry = True
                while self.thread is not None:
                    left = None if deadline is None else deadline - time.monotonic()
                    if left is not None and left <= 0:
                        return False
                    self.changed.wait(left)
                return not self.jobs
            finally:
                self.waiting -= 1

    def store(self) -> None:
        """Write to the disk now what was left for later, for at most `EXIT_S` seconds."""
        with self.changed:
            left = [job for job in self.jobs if job.stores]
        ends = time.monotonic() + EXIT_S
        for job in left:
            if time.monotonic() < ends:
                with telling(job):
                    job.run()

    def clear(self) -> None:
        """Drop what waits, and what is under way as soon as it rests."""
        with self.changed:
            self.jobs.clear()
            self.size = 0
            self.running = None

    # -- the ends of processes ----------------------------------------------------------------------------------------------
    def finish(self) -> None:
        """At exit. The thread must have ended when the interpreter does: LLVM would work on in a process that is taken apart. What takes
        least comes first, so that most of it gets done."""
        self.ending = True
        with self.changed:
            self.jobs = collections.deque(sorted(self.jobs, key=lambda job: job.size))
        self.synchronize(EXIT_S)
        self.clear()
        self.synchronize()

    def forked(self) -> None:
        """In the child: there is no thread, and locks that it held are nobody's."""
        self.changed = threading.Condition()
        self.waiting = 0
        waiting = [*self.jobs, *([self.running] if self.running is not None else [])]
        self.clear()
        self.thread = self.pace = None
        for job in waiting:
            if not job.done and job.wanted():
                job.wait_for_call()


background = Background()
atexit.register(background.finish)
turns.at_fork.append((lambda: None, lambda: None, background.forked))


@contextlib.contextmanager
def stopped() -> Iterator[None]:
    """For tests: what is submitted inside waits."""
    with turns.compiling:
        yield
