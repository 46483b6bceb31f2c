// The Python type `native.Guard` and its C++ entry point.
#pragma once
#include "program.h"

namespace pliant {

bool is_guard(PyObject *o);
Py_ssize_t guard_room(PyObject *guard);  // how many references `out` must have room for
Py_ssize_t guard_slots(PyObject *guard); // how many it holds after a success
bool guard_dead(PyObject *guard); // an object that it needs is gone: it can never hold again
// Does the guard hold? On success `out` starts with guard_slots() new references. Never leaves an exception set.
bool guard_check(PyObject *guard, PyObject *const *args, Py_ssize_t nargs, PyObject *func, PyObject **out);

} // namespace pliant
