"""Perturbation testing: change one thing that a compiled program could have relied on, call it, and compare with eager.

`places` finds everything reachable from a program (arguments, globals, closures, defaults, classes, modules, attributes); `values`, `made`
and `settings` are tables of what can become of a value, of an object and of the process; `state` remembers and restores a world,
`description` tells what a call did to it; `trial` makes one change, two calls and two comparisons; `subjects` says which programs there
are; `__main__` runs them in processes and adds up.
"""
