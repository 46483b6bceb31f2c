/* Namespaces as they were seen: the same names, in the same order, for the same objects. A namespace of PyTorch has thousands. */
#include "core.h"
#include "cpython.h"

/* same_names(where, names, values): `where` is a dict or a class. A name that is equal and another object counts as another. */
static PyObject *same_names(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *where, *names, *values, *key, *value;
    if (!PyArg_ParseTuple(args, "OO!O!", &where, &PyTuple_Type, &names, &PyTuple_Type, &values)) return NULL;
    PyObject *dict = PyType_Check(where) ? pl_class_dict((PyTypeObject *)where) : where;
    if (!dict || !PyDict_Check(dict)) {
        PyErr_SetString(PyExc_TypeError, "same_names() takes a dict or a class");
        return NULL;
    }
    Py_ssize_t at = 0, i = 0, n = PyDict_GET_SIZE(dict);
    if (n != PyTuple_GET_SIZE(names) || n != PyTuple_GET_SIZE(values)) Py_RETURN_FALSE;
    for (; PyDict_Next(dict, &at, &key, &value); ++i)
        if (key != PyTuple_GET_ITEM(names, i) || value != PyTuple_GET_ITEM(values, i)) Py_RETURN_FALSE;
    Py_RETURN_TRUE;
}

/* same_code(functions, codes): tuples of functions and of what their `__code__` was. */
static PyObject *same_code(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *functions, *codes;
    if (!PyArg_ParseTuple(args, "O!O!", &PyTuple_Type, &functions, &PyTuple_Type, &codes)) return NULL;
    Py_ssize_t n = PyTuple_GET_SIZE(functions);
    if (n != PyTuple_GET_SIZE(codes)) Py_RETURN_FALSE;
    for (Py_ssize_t i = 0; i < n; ++i) {
        PyObject *fn = PyTuple_GET_ITEM(functions, i);
        if (!PyFunction_Check(fn) || PyFunction_GET_CODE(fn) != PyTuple_GET_ITEM(codes, i)) Py_RETURN_FALSE;
    }
    Py_RETURN_TRUE;
}

static PyMethodDef methods[] = {
    {"same_names", same_names, METH_VARARGS,
     "same_names(dict or class, names, values) -> bool: these names, in this order, for these very objects."},
    {"same_code", same_code, METH_VARARGS, "same_code(functions, codes) -> bool: each still has this very code."},
    {NULL, NULL, 0, NULL},
};

int pl_namespaces_init(PyObject *module) { return PyModule_AddFunctions(module, methods); }
