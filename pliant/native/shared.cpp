// The tables of shared.h as objects of the module.
#include "core.h"
#include "shared.h"

namespace pliant {
namespace {

// Sets module.name[key] = value; steals `value`.
bool put(PyObject *table, const char *key, PyObject *value) {
    const bool good = value && PyDict_SetItemString(table, key, value) == 0;
    Py_XDECREF(value);
    return good;
}

bool fill(PyObject *postfix, PyObject *ways, PyObject *flags, PyObject *recurrent, PyObject *failures) {
    bool good = true;
#define X(name, takes) good = good && put(postfix, #name, PyLong_FromLong(static_cast<long>(Postfix::name)));
    PLIANT_POSTFIX(X)
#undef X
#define X(name, value) good = good && put(ways, #name, PyLong_FromLong(value));
    PLIANT_WAYS(X)
#undef X
#define X(name, value) good = good && put(flags, #name, PyLong_FromLong(value));
    PLIANT_PRODUCT_FLAGS(X)
#undef X
#define X(name, value) good = good && put(recurrent, #name, PyLong_FromLong(value));
    PLIANT_RECURRENT_FLAGS(X)
#undef X
#define X(name, value, error, words) good = good && put(failures, #name, Py_BuildValue("(iOs)", value, PyExc_##error, words));
    PLIANT_FAILURES(X)
#undef X
    return good;
}

} // namespace
} // namespace pliant

extern "C" int pl_shared_init(PyObject *module) {
    const char *names[] = {"POSTFIX", "WAYS", "PRODUCT_FLAGS", "RECURRENT_FLAGS", "FAILURES"};
    PyObject *tables[5];
    for (int i = 0; i < 5; i++) {
        tables[i] = PyDict_New();
        if (!tables[i] || PyModule_AddObjectRef(module, names[i], tables[i]) < 0) return -1;
        Py_DECREF(tables[i]);
    }
    if (!pliant::fill(tables[0], tables[1], tables[2], tables[3], tables[4])) return -1;
    if (PyModule_AddIntConstant(module, "OUT_OF_MEMORY", pliant::OUT_OF_MEMORY) < 0) return -1;
    if (PyModule_AddIntConstant(module, "ALIGNMENT", pliant::ALIGNMENT) < 0) return -1;
    return PyModule_AddIntConstant(module, "MOST_ARGUMENTS", pliant::MOST_ARGUMENTS);
}
