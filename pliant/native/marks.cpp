// Marks for profilers: while torch.profiler records, each run of an entry and of a compiled kernel is an event with a name.
#include "dicts.h"

static pliant::KeptItem switched; // in torch.autograd.profiler's namespace
static PyObject *mark_type, *str_enter, *str_exit;

static bool on() { return switched.get() == Py_True; }

static PyObject *begin(PyObject *name) { // steals `name`
    PyObject *mark = name ? PyObject_CallOneArg(mark_type, name) : nullptr;
    PyObject *entered = mark ? PyObject_CallMethodNoArgs(mark, str_enter) : nullptr;
    Py_XDECREF(name);
    if (!entered) Py_CLEAR(mark);
    Py_XDECREF(entered);
    PyErr_Clear(); // a program is not to fail for being looked at
    return mark;
}

extern "C" PyObject *pl_mark_code(PyCodeObject *code) {
    if (!on()) return nullptr;
    PyObject *path = code->co_filename;
    Py_ssize_t n = PyUnicode_GET_LENGTH(path), slash = PyUnicode_FindChar(path, '/', 0, n, -1);
    PyObject *file = PyUnicode_Substring(path, slash + 1, n);
    PyObject *name = file ? PyUnicode_FromFormat("pliant: %U (%U:%d)", code->co_qualname, file, code->co_firstlineno) : nullptr;
    Py_XDECREF(file);
    return begin(name);
}

extern "C" PyObject *pl_mark_kernel(PyObject *owner) {
    return on() ? begin(PyUnicode_FromFormat("pliant kernel: %S", owner)) : nullptr;
}

extern "C" void pl_unmark(PyObject *mark) {
    if (!mark) return;
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *left = PyObject_CallMethodObjArgs(mark, str_exit, Py_None, Py_None, Py_None, nullptr);
    Py_XDECREF(left);
    Py_DECREF(mark);
    PyErr_Clear();
    PyErr_Restore(type, value, traceback);
}

static PyObject *watch_profiler(PyObject *, PyObject *args) {
    PyObject *where, *name, *type;
    if (!PyArg_ParseTuple(args, "O!UO", &PyDict_Type, &where, &name, &type)) return nullptr;
    Py_INCREF(name);
    PyUnicode_InternInPlace(&name);
    Py_XSETREF(mark_type, Py_NewRef(type));
    switched.watch(where, name);
    Py_DECREF(name);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"watch_profiler", watch_profiler, METH_VARARGS,
     "watch_profiler(namespace, name, mark): while namespace[name] is True, entries and kernels run inside of mark(their name)."},
    {nullptr, nullptr, 0, nullptr},
};

extern "C" int pl_marks_init(PyObject *module) {
    str_enter = PyUnicode_InternFromString("__enter__");
    str_exit = PyUnicode_InternFromString("__exit__");
    return str_enter && str_exit ? PyModule_AddFunctions(module, methods) : -1;
}
