"""The Python-in-Python interpreter: a frame's bytecode, run on proxies for the outside world."""

from pliant.interpret.capture import (
    NULL,
    UNSET,
    Capture,
    CaptureFailed,
    Effect,
    FirstCall,
    FrameState,
    LeftToPython,
    LoopBack,
    Return,
    Start,
    UserError,
)
from pliant.interpret.engine import capture, collection_paused
from pliant.interpret.generators import Generator
from pliant.interpret.opaque import Opaque
from pliant.interpret.world import World

__all__ = [
    "NULL", "UNSET", "Capture", "CaptureFailed", "Effect", "FirstCall", "FrameState", "Generator", "LeftToPython", "LoopBack", "Opaque",
    "Return", "Start", "UserError", "World", "capture", "collection_paused",
]  # fmt: skip
