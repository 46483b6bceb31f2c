/* What captures ask of each container that they have read: whether the program has written to its copy. */
#include "core.h"

/* unwritten(original, copy, located, mark): exact dicts. The same keys in the same order, and under each key the very value of the original,
 * or what `located` says was put there; never the mark. */
static PyObject *unwritten(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    if (n != 4 || !PyDict_CheckExact(args[0]) || !PyDict_CheckExact(args[1]) || !PyDict_CheckExact(args[2]))
        return PyErr_Format(PyExc_TypeError, "unwritten(dict, dict, dict, mark)");
    PyObject *original = args[0], *copy = args[1], *located = args[2], *mark = args[3];
    if (PyDict_GET_SIZE(original) != PyDict_GET_SIZE(copy)) Py_RETURN_FALSE;
    PyObject *key, *value, *other, *now;
    Py_ssize_t i = 0, j = 0, differ = 0;
    while (PyDict_Next(original, &i, &key, &value)) {
        if (!PyDict_Next(copy, &j, &other, &now) || key != other) Py_RETURN_FALSE;
        differ += value != now;
    }
    i = 0;
    while (PyDict_Next(located, &i, &key, &now)) { /* looking a key up may run code of the program, which may empty a dict */
        if (now == mark) Py_RETURN_FALSE;
        Py_INCREF(key);
        Py_INCREF(now);
        value = PyDict_GetItemWithError(original, key);
        const int put = value != NULL && value != now;
        const int there = value != NULL && PyDict_GetItemWithError(copy, key) == now;
        Py_DECREF(key);
        Py_DECREF(now);
        if (!there) {
            if (PyErr_Occurred()) return NULL;
            Py_RETURN_FALSE;
        }
        differ -= put;
    }
    return PyBool_FromLong(!differ);
}

static PyMethodDef methods[] = {
    {"unwritten", (PyCFunction)(void (*)(void))unwritten, METH_FASTCALL, "See interpret/effects.py."},
    {NULL, NULL, 0, NULL},
};

int pl_shadows_init(PyObject *module) { return PyModule_AddFunctions(module, methods); }
