"""The `pliant` command, and what it shares with the benchmarks: the systems to compare and how to time them."""
