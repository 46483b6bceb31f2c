// The tables of sets: in which order one is walked is decided by where its members lie, which its history decides (`interpret/set_order.py`).
#include "core.h"

namespace pliant {

// What stands where a member was taken away, which CPython does not export everywhere. Borrowed: it never dies.
static PyObject *gone() {
    static PyObject *found = nullptr;
    if (found) return found;
    PyObject *s = PySet_New(nullptr), *n = PyLong_FromLong(0);
    if (s && n && PySet_Add(s, n) == 0 && PySet_Discard(s, n) == 1) {
        auto *so = reinterpret_cast<PySetObject *>(s);
        for (Py_ssize_t i = 0; i <= so->mask && !found; ++i) found = so->table[i].key;
    }
    Py_XDECREF(s);
    Py_XDECREF(n);
    if (!found && !PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, "a set that lost its member does not say so");
    return found;
}

// (size of the table, where `pop` begins, places of the members as they are walked, places of those that are gone)
static PyObject *places_in_set(PyObject *, PyObject *s) {
    if (!PyAnySet_Check(s)) return PyErr_Format(PyExc_TypeError, "not a set");
    PyObject *dummy = gone();
    if (!dummy) return nullptr;
    auto *so = reinterpret_cast<PySetObject *>(s);
    PyObject *here = PyTuple_New(so->used), *empty = PyTuple_New(so->fill - so->used), *out = nullptr;
    Py_ssize_t n = 0, m = 0;
    bool good = here && empty;
    for (Py_ssize_t i = 0; good && i <= so->mask; ++i) {
        PyObject *key = so->table[i].key;
        if (!key) continue;
        PyObject *at = PyLong_FromSsize_t(i);
        if (!at || (key == dummy ? m >= so->fill - so->used : n >= so->used)) {
            Py_XDECREF(at);
            good = false;
        } else if (key == dummy) PyTuple_SET_ITEM(empty, m++, at);
        else PyTuple_SET_ITEM(here, n++, at);
    }
    good = good && n == so->used && m == so->fill - so->used;
    if (good) out = Py_BuildValue("(nnOO)", so->mask + 1, so->finger, here, empty);
    else if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, "a set of another shape");
    Py_XDECREF(here);
    Py_XDECREF(empty);
    return out;
}

// Gives an empty set a table. 1; 0: these members do not lie so; -1: an error.
static int lay(PySetObject *so, PyObject *layout, PyObject *members, PyObject *hashes) {
    Py_ssize_t size, finger;
    PyObject *here, *empty, *dummy = gone();
    if (!dummy || !PyArg_ParseTuple(layout, "nnO!O!", &size, &finger, &PyTuple_Type, &here, &PyTuple_Type, &empty)) return -1;
    Py_ssize_t n = PyTuple_GET_SIZE(here), m = PyTuple_GET_SIZE(empty);
    if (so->used || so->table != so->smalltable || size < PySet_MINSIZE || size & (size - 1) || n + m >= size) return 0;
    if (PyList_GET_SIZE(members) != n || PyTuple_GET_SIZE(hashes) != n) return 0;
    auto *table = size == PySet_MINSIZE ? so->smalltable : static_cast<setentry *>(PyMem_Calloc(size, sizeof(setentry)));
    if (!table) return PyErr_NoMemory(), -1;
    if (size == PySet_MINSIZE) memset(table, 0, sizeof so->smalltable);
    int said = 1;
    Py_ssize_t done = 0;
    for (; said == 1 && done < n + m; ++done) {
        Py_ssize_t at = PyLong_AsSsize_t(done < n ? PyTuple_GET_ITEM(here, done) : PyTuple_GET_ITEM(empty, done - n));
        if (at < 0 || at >= size || table[at].key) said = PyErr_Occurred() ? -1 : 0;
        else if (done >= n) {
            table[at].key = dummy;
            table[at].hash = -1;
        } else {
            PyObject *key = PyList_GET_ITEM(members, done);
            Py_hash_t hash = PyObject_Hash(key), known = PyLong_AsSsize_t(PyTuple_GET_ITEM(hashes, done));
            if (PyErr_Occurred()) said = -1;
            else if (hash != known) said = 0;
            else {
                table[at].key = Py_NewRef(key);
                table[at].hash = hash;
            }
        }
    }
    if (said != 1) {
        for (Py_ssize_t i = 0; i < size; ++i)
            if (table[i].key && table[i].key != dummy) Py_DECREF(table[i].key);
        if (table == so->smalltable) memset(table, 0, sizeof so->smalltable);
        else PyMem_Free(table);
        return said;
    }
    so->table = table;
    so->mask = size - 1;
    so->used = n;
    so->fill = n + m;
    so->finger = finger;
    return 1;
}

// A new set, or frozenset; None: the members have other hashes.
static PyObject *set_of(PyObject *, PyObject *args) {
    PyObject *members, *layout, *hashes;
    int frozen;
    if (!PyArg_ParseTuple(args, "O!O!O!p", &PyList_Type, &members, &PyTuple_Type, &layout, &PyTuple_Type, &hashes, &frozen)) return nullptr;
    PyObject *s = frozen ? PyFrozenSet_New(nullptr) : PySet_New(nullptr);
    if (!s) return nullptr;
    int said = Py_REFCNT(s) == 1 ? lay(reinterpret_cast<PySetObject *>(s), layout, members, hashes) : 0;
    if (said == 1) return s;
    Py_DECREF(s);
    if (said < 0) return nullptr;
    Py_RETURN_NONE;
}

// Gives a set other members and another table. False: they have other hashes, and the set is empty.
static PyObject *set_become(PyObject *, PyObject *args) {
    PyObject *s, *members, *layout, *hashes;
    if (!PyArg_ParseTuple(args, "OO!O!O!", &s, &PyList_Type, &members, &PyTuple_Type, &layout, &PyTuple_Type, &hashes)) return nullptr;
    if (!PySet_Check(s)) return PyErr_Format(PyExc_TypeError, "not a set");
    if (PySet_Clear(s) < 0) return nullptr;
    int said = lay(reinterpret_cast<PySetObject *>(s), layout, members, hashes);
    return said < 0 ? nullptr : PyBool_FromLong(said);
}

// A copy with the table of the original, of which no member is asked for its hash.
static PyObject *set_clone(PyObject *, PyObject *s) {
    if (!PySet_CheckExact(s)) return PyErr_Format(PyExc_TypeError, "not a set");
    PyObject *out = PySet_New(nullptr), *dummy = gone();
    if (!out || !dummy) {
        Py_XDECREF(out);
        return nullptr;
    }
    auto *from = reinterpret_cast<PySetObject *>(s), *to = reinterpret_cast<PySetObject *>(out);
    if (from->mask + 1 > PySet_MINSIZE) {
        auto *table = static_cast<setentry *>(PyMem_Malloc((from->mask + 1) * sizeof(setentry)));
        if (!table) {
            Py_DECREF(out);
            return PyErr_NoMemory();
        }
        to->table = table;
    }
    memcpy(to->table, from->table, (from->mask + 1) * sizeof(setentry));
    for (Py_ssize_t i = 0; i <= from->mask; ++i)
        if (to->table[i].key && to->table[i].key != dummy) Py_INCREF(to->table[i].key);
    to->mask = from->mask;
    to->used = from->used;
    to->fill = from->fill;
    to->finger = from->finger;
    return out;
}

static PyMethodDef methods[] = {
    {"places_in_set", places_in_set, METH_O, "places_in_set(s) -> (size, finger, places, places of what is gone)"},
    {"set_of", set_of, METH_VARARGS, "set_of(members, layout, hashes, frozen) -> a set that is laid out so, or None"},
    {"set_become", set_become, METH_VARARGS, "set_become(s, members, layout, hashes) -> bool"},
    {"set_clone", set_clone, METH_O, "set_clone(s) -> a set with the same table"},
    {nullptr, nullptr, 0, nullptr},
};

} // namespace pliant

extern "C" int pl_sets_init(PyObject *m) { return PyModule_AddFunctions(m, pliant::methods); }
