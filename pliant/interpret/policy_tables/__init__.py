"""The call policy's tables, one file a subject. `row.py` says what a row is; `policy.py` reads them all."""
