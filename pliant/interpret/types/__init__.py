"""The table of types, a file a family. `row.py` says what a row is; importing this package's files fills the table (`engine.py` does)."""
