"""Machine code for the CPU: loop IR (`lower/loops.py`) to explicit-vector LLVM IR to a callable address."""
