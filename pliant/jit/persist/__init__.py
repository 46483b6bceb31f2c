"""Compiled entries on disk: a process that finds one installs it without capturing. `entries.py` is the door."""
