"""NumPy in the graph: arrays as tensors over the same memory, scalars as numbers with a dtype, and NumPy's functions over both.

| file            | holds                                                                                             |
|-----------------|---------------------------------------------------------------------------------------------------|
| `dtypes.py`     | which dtypes of NumPy are which of torch, and what a number must be to fit                        |
| `proxies.py`  | `TracedArray`, `TracedScalar`, `ArrayMethod`: what stands for them on the interpreter's stack      |
| `outside.py`    | how arrays and scalars from before the capture are found and guarded                              |
| `operands.py`   | what NumPy makes of what it is given: `asarray`, operands of a loop                               |
| `ufuncs.py`     | universal functions: the loop that NumPy picks, and the torch operators that compute it           |
| `operators.py`  | Python's operators on arrays and scalars                                                          |
| `indexing.py`   | subscripts: basic and advanced, read and written                                                  |
| `reductions.py` | sums, extremes, moments, scans                                                                     |
| `making.py`     | arrays from nothing                                                                               |
| `shaping.py`    | shapes, joins, repetitions                                                                         |
| `ordering.py`   | sorting, searching, sets                                                                           |
| `linear.py`     | products                                                                                           |
| `drawing.py`    | random numbers                                                                                     |
| `methods.py`    | attributes and methods                                                                             |
| `torch_side.py` | what torch's functions make of arrays and scalars                                                 |

The rule: a function is here if it gives what NumPy gives, to the last bit for integers and bools, within rounding for floats, in dtype,
shape and sharing of memory. Whatever a row is not sure of (a keyword, a dtype, a value that may not fit) raises, and the graph breaks
around that one call of NumPy (`table.py`).
"""
