"""`math` as it was when pliant was imported: what printed expressions call, whatever a program puts in the place of `math.floor`."""

from math import *  # noqa: F403
