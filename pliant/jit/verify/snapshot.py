"""The state of everything that a call can reach, and the way back to it.

A `State` is a difference from the snapshot: contents of objects and bytes of storages that are others now. So the state after the compiled
run can be kept, the state before it put back, eager run from there, and later any of the three taken up again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

from pliant.graph.originals import of_own_tensors, torch
from pliant.jit.verify import contents
from pliant.jit.verify.contents import Face
from pliant.jit.verify.reach import Reach, Unverifiable

Storage = torch.UntypedStorage
MOST_BYTES = 2 << 30
"""Of copies. Parameters beyond that are not copied, only watched: a run that writes to them cannot be undone, and is not verified."""


@dataclass(slots=True)
class State:
    """`contents`: number of a record -> what the object holds; `storages`: address of a storage -> its bytes.

    `lost`: memory was written of which there is no copy.
    """

    contents: dict[int, tuple] = field(default_factory=dict)
    storages: dict[int, Storage] = field(default_factory=dict)
    lost: bool = False


class Snapshot:
    """Raises Unverifiable."""

    @of_own_tensors
    def __init__(self, fn: FunctionType, args: tuple, kwargs: dict) -> None:
        self.reach = reach = Reach(fn, args, kwargs)
        self.records = reach.records
        self.storages: dict[int, tuple[Storage, Storage]] = {}  # address -> (storage, its bytes)
        self.faces: dict[int, Any] = {}
        self.watched: dict[int, tuple[Storage, int]] = {}  # address -> (storage, the sum of its bits)
        with torch._C.DisableTorchFunction(), torch.no_grad():
            left = MOST_BYTES
            for t in sorted(reach.tensors, key=lambda t: isinstance(t, torch.nn.Parameter)):
                s = t.untyped_storage()
                if s._cdata in self.storages or s._cdata in self.watched:
                    continue
                left -= s.nbytes()
                if left >= 0:
                    self.storages[s._cdata] = (s, copied(s))
                elif isinstance(t, torch.nn.Parameter):
                    self.watched[s._cdata] = (s, sum_of(s))
                else:
                    raise Unverifiable(f"it reaches more than {MOST_BYTES >> 30} GiB of tensors that are no parameters")

    def is_old(self, obj: Any) -> bool:
        """Was this object there before the call?"""
        return id(obj) in self.reach.before

    @of_own_tensors
    def now(self) -> State:
        """How the world differs from the snapshot."""
        found = State()
        with torch._C.DisableTorchFunction(), torch.no_grad():
            for number, (row, obj, was) in enumerate(self.records):
                if row.still is not None and row.still(obj, was):
                    continue
                content = row.save(obj)
                if not row.same(was, content):
                    found.contents[number] = content
            for address, (storage, bytes_) in self.storages.items():
                if not equal_bytes(storage, bytes_):
                    found.storages[address] = copied(storage)
            found.lost = any(sum_of(storage) != was for storage, was in self.watched.values())
        return found

    @of_own_tensors
    def unfit(self, state: State) -> str | None:
        """Why there is no way back from this state."""
        if state.lost:
            return "it writes to more memory than is copied"
        for number, content in state.contents.items():
            row, obj, was = self.records[number]
            if row is contents.TENSOR:
                why = contents.unfit_to_put(obj, was, content)
                if why is not None:
                    return why
        return None

    def returnable(self, state: State) -> bool:
        """Can this state be put back once it was left? Not if a tensor has got another place in an autograd graph."""
        now = [c for n, c in state.contents.items() if self.records[n][0] is contents.TENSOR]
        return self.unfit(state) is None and all(c[4] is None for c in now)

    def filled(self, state: State) -> bool:
        """Has a cache (`functools.lru_cache`) learned something that it cannot be made to forget?"""
        return any(self.records[n][0] is contents.CACHE and self.records[n][2][0][0] for n in state.contents)

    @of_own_tensors
    def change(self, here: State, to: State) -> None:
        """Go from one state to another; `State()` is the snapshot's. Version counters of tensors come along."""
        with torch._C.DisableTorchFunction(), torch.no_grad():
            for number in here.contents.keys() | to.contents.keys():
                row, obj, was = self.records[number]
                row.put(obj, to.contents.get(number, was))
            for address in here.storages.keys() | to.storages.keys():
                storage, was_bytes = self.storages[address]
                bytes_ = to.storages.get(address, was_bytes)
                if storage.nbytes() != bytes_.nbytes():
                    storage.resize_(bytes_.nbytes())
                storage.copy_(bytes_)

    def content(self, number: int, state: State) -> tuple:
        return state.contents.get(number, self.records[number][2])

    def bytes_of(self, address: int, state: State) -> Storage | None:
        """What a storage of before held in this state; None for one that was not there before."""
        found = self.storages.get(address)
        return state.storages.get(address, found[1]) if found is not None else None

    def face_of(self, t: torch.Tensor) -> Face:
        """What a tensor of before was."""
        if not self.faces:
            self.faces = {id(obj): was for row, obj, was in self.records if row is contents.TENSOR}
        return self.faces[id(t)]


def copied(s: Storage) -> Storage:
    return s.clone() if s.nbytes() and s.device.type != "meta" else s


def as_bytes(s: Storage) -> torch.Tensor:
    whole = s.nbytes() % 8 == 0
    return torch.empty(0, dtype=torch.int64 if whole else torch.uint8, device=s.device).set_(s)  # type: ignore[call-overload]


def sum_of(s: Storage) -> int:
    return 0 if s.device.type == "meta" else int(as_bytes(s).sum())


def equal_bytes(a: Storage, b: Storage) -> bool:
    if a is b or a.device.type == "meta":
        return True
    return a.nbytes() == b.nbytes() and torch.equal(as_bytes(a), as_bytes(b))


__all__ = ["Snapshot", "State", "Unverifiable"]
