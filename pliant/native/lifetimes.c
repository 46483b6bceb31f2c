/* Values at whose end code of the program runs. */
#include "core.h"

static PyObject *has_end(PyObject *self, PyObject *v) {
    (void)self;
    return PyBool_FromLong(Py_TYPE(v)->tp_finalize != NULL);
}

static PyMethodDef methods[] = {
    {"has_end", has_end, METH_O, "has_end(value) -> bool: its type has a finalizer (a generator, a class with `__del__`)."},
    {NULL, NULL, 0, NULL},
};

int pl_lifetimes_init(PyObject *module) { return PyModule_AddFunctions(module, methods); }
