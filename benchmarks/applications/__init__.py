"""Whole applications, as people write them. `program(compile_)` of each module makes everything, and a function of the call's number."""
