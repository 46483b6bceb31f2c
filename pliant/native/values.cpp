// Comparing constants and reading attributes, items and lengths with C code only.
#include "values.h"
#include "state.h"
#include <cstring>
#include <optional>

namespace pliant {
namespace {

getattrofunc slot_getattr = nullptr, slot_getattr_hook = nullptr; // what a Python __getattribute__ / __getattr__ install
richcmpfunc slot_richcompare = nullptr;                          // what a Python __eq__ installs
PyObject *object_getattribute = nullptr, *str_getattribute = nullptr, *str_fget = nullptr, *str_torch_function = nullptr;
PyObject *str_repr = nullptr, *str_tzinfo = nullptr;
PyTypeObject *deque_type = nullptr;
PyObject *tensor_type = nullptr, *plain_torch_functions = nullptr;

bool plain_const(PyObject *o) {
    return o == Py_None || PyBool_Check(o) || PyLong_CheckExact(o) || PyFloat_CheckExact(o) || PyUnicode_CheckExact(o) ||
           PyBytes_CheckExact(o) || PyComplex_CheckExact(o) || o == Py_Ellipsis || o == Py_NotImplemented;
}

// Objects whose last reference may well be ours: bound methods are made anew by every attribute read.
bool ephemeral(PyObject *o) { return PyMethod_Check(o) || PyCFunction_Check(o) || PyFrozenSet_Check(o); }

bool bits_equal(double a, double b) { return std::memcmp(&a, &b, sizeof a) == 0; }

bool items_equal(PyObject *const *a, PyObject *const *b, Py_ssize_t n) {
    for (Py_ssize_t i = 0; i < n; i++)
        if (!eq_const(a[i], b[i])) return false;
    return true;
}

bool c_equal(PyObject *a, PyObject *b) {
    const int r = PyObject_RichCompareBool(a, b, Py_EQ);
    if (r < 0) PyErr_Clear();
    return r == 1;
}

// Are the descriptor's getters C code? Heap types that define `__get__` in Python are not; `property` is when its getter is.
bool safe_descriptor(PyObject *d) {
    if (PyObject_TypeCheck(d, &PyProperty_Type)) {
        if (!PyObject_HasAttr(d, str_fget)) return false;
        PyObject *getter = PyObject_GetAttr(d, str_fget);
        const bool safe = getter && (PyCFunction_Check(getter) ||
                                     (PyInstanceMethod_Check(getter) && PyCFunction_Check(PyInstanceMethod_GET_FUNCTION(getter))));
        Py_XDECREF(getter);
        PyErr_Clear();
        return safe;
    }
    return !(Py_TYPE(d)->tp_flags & Py_TPFLAGS_HEAPTYPE);
}

// Attribute getters of tensor subclasses call `__torch_function__`: only torch's own are C code.
bool plain_functions(PyTypeObject *t) {
    if (reinterpret_cast<PyObject *>(t) == tensor_type) return true;
    PyObject *f = _PyType_Lookup(t, str_torch_function);
    for (Py_ssize_t i = 0; f && plain_torch_functions && i < PyTuple_GET_SIZE(plain_torch_functions); i++)
        if (PyTuple_GET_ITEM(plain_torch_functions, i) == f) return true;
    return false;
}

PyObject *clear_error(PyObject *r) {
    if (!r) PyErr_Clear();
    return r;
}

Py_hash_t str_hash(PyObject *s) { return PyObject_Hash(s); }

PyObject *read_class_attr(PyTypeObject *cls, PyObject *name, PyTypeObject **searched) {
    PyTypeObject *meta = Py_TYPE(cls);
    PyObject *m = _PyType_Lookup(meta, name);
    if (m && Py_TYPE(m)->tp_descr_set && Py_TYPE(m)->tp_descr_get)
        return safe_descriptor(m) ? clear_error(Py_TYPE(m)->tp_descr_get(m, reinterpret_cast<PyObject *>(cls),
                                                                          reinterpret_cast<PyObject *>(meta)))
                                  : nullptr;
    if (PyObject *d = _PyType_Lookup(cls, name)) {
        descrgetfunc get = Py_TYPE(d)->tp_descr_get;
        if (!get || PyFunction_Check(d)) { // a function read from its class is itself
            if (!m) *searched = cls;
            return Py_NewRef(d);
        }
        return safe_descriptor(d) ? clear_error(get(d, nullptr, reinterpret_cast<PyObject *>(cls))) : nullptr;
    }
    if (!m) return nullptr;
    descrgetfunc get = Py_TYPE(m)->tp_descr_get;
    if (!get) return Py_NewRef(m);
    return safe_descriptor(m) ? clear_error(get(m, reinterpret_cast<PyObject *>(cls), reinterpret_cast<PyObject *>(meta))) : nullptr;
}

} // namespace

bool is_tensor_type(PyTypeObject *t) { return tensor_type && PyType_IsSubtype(t, reinterpret_cast<PyTypeObject *>(tensor_type)); }

Held::Held(PyObject *o, bool compared) {
    PyObject **own = compared && is_tensor_type(Py_TYPE(o)) ? dict_slot(o) : nullptr;
    if (own && PyDict_GET_SIZE(*own) == 0) { // what is in it would live as long as the guard
        ref_ = Py_NewRef(*own);
        weak_ = true;
        address_ = o;
        loc_ = &address_;
        return;
    }
    if (!plain_const(o) && !ephemeral(o) && PyType_SUPPORTS_WEAKREFS(Py_TYPE(o))) {
        if ((ref_ = PyWeakref_NewRef(o, nullptr))) {
            weak_ = true;
            loc_ = &reinterpret_cast<PyWeakReference *>(ref_)->wr_object;
            return;
        }
        PyErr_Clear();
    }
    ref_ = Py_NewRef(o);
}

// The object at that address may be another one by now.
bool Held::has_dict(PyObject *x) const {
    PyObject **own = is_tensor_type(Py_TYPE(x)) ? dict_slot(x) : nullptr;
    return own && *own == ref_;
}

// Are two values of one type that are equal worth the same? `Decimal("1")` and `Decimal("1.0")` are not, nor are `list[1]` and `list[True]`,
// times of one moment in two zones, and zeros of two signs: texts tell, where C code writes them.
bool alike(PyObject *a, PyObject *b) {
    PyTypeObject *t = Py_TYPE(a);
    if (PyUnicode_CheckExact(a) || PyLong_Check(a) || PyBytes_CheckExact(a)) return true;
    if (t == &Py_GenericAliasType || !strcmp(t->tp_name, "types.UnionType") || !strcmp(t->tp_name, "typing.Union")) {
        for (const char *name : {"__origin__", "__args__", "__unpacked__"}) {
            PyObject *x = PyObject_GetAttrString(a, name), *y = PyObject_GetAttrString(b, name);
            const bool same = (!x && !y) || (x && y && eq_const(x, y));
            Py_XDECREF(x);
            Py_XDECREF(y);
            PyErr_Clear();
            if (!same) return false;
        }
        return true;
    }
    PyObject *zone = _PyType_Lookup(t, str_tzinfo);
    if (zone && Py_TYPE(zone) == &PyGetSetDescr_Type) {
        PyObject *in_zone = PyObject_GetAttr(a, str_tzinfo);
        const bool none = in_zone == Py_None;
        Py_XDECREF(in_zone);
        if (!none) return false;
    }
    PyObject *f = _PyType_Lookup(t, str_repr);
    if (!f || PyFunction_Check(f)) return false;
    PyObject *x = PyObject_Repr(a), *y = PyObject_Repr(b);
    const bool same = x && y && PyUnicode_Compare(x, y) == 0;
    Py_XDECREF(x);
    Py_XDECREF(y);
    PyErr_Clear();
    return same;
}

bool eq_const(PyObject *a, PyObject *b) {
    if (a == b) return true;
    PyTypeObject *t = Py_TYPE(a);
    if (t != Py_TYPE(b)) return false;
    if (PyFloat_CheckExact(a)) return bits_equal(PyFloat_AS_DOUBLE(a), PyFloat_AS_DOUBLE(b));
    if (PyComplex_CheckExact(a)) {
        const Py_complex x = PyComplex_AsCComplex(a), y = PyComplex_AsCComplex(b);
        return bits_equal(x.real, y.real) && bits_equal(x.imag, y.imag);
    }
    if (PyTuple_Check(a))
        return PyTuple_GET_SIZE(a) == PyTuple_GET_SIZE(b) &&
               items_equal(reinterpret_cast<PyTupleObject *>(a)->ob_item, reinterpret_cast<PyTupleObject *>(b)->ob_item,
                           PyTuple_GET_SIZE(a));
    if (PyList_CheckExact(a))
        return PyList_GET_SIZE(a) == PyList_GET_SIZE(b) &&
               items_equal(reinterpret_cast<PyListObject *>(a)->ob_item, reinterpret_cast<PyListObject *>(b)->ob_item,
                           PyList_GET_SIZE(a));
    if (PyAnySet_CheckExact(a)) return set_equals(a, b);
    if (PySlice_Check(a)) {
        auto *x = reinterpret_cast<PySliceObject *>(a), *y = reinterpret_cast<PySliceObject *>(b);
        return eq_const(x->start, y->start) && eq_const(x->stop, y->stop) && eq_const(x->step, y->step);
    }
    if (PyDict_Check(a) || t->tp_richcompare == slot_richcompare || !t->tp_richcompare) return false;
    if (tensor_type && PyObject_TypeCheck(a, reinterpret_cast<PyTypeObject *>(tensor_type))) return false;
    return c_equal(a, b) && alike(a, b);
}

bool set_equals(PyObject *a, PyObject *b) {
    if (!PyAnySet_CheckExact(a) || !PyAnySet_CheckExact(b) || PySet_GET_SIZE(a) != PySet_GET_SIZE(b)) return false;
    Py_ssize_t i = 0, j;
    PyObject *x, *y;
    Py_hash_t hx, hy;
    while (_PySet_NextEntry(a, &i, &x, &hx)) {
        bool found = false;
        for (j = 0; !found && _PySet_NextEntry(b, &j, &y, &hy);) found = hx == hy && eq_const(x, y);
        if (!found) return false;
    }
    return true;
}

bool immutable_const(PyObject *o) {
    if (PyTuple_Check(o)) {
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(o); i++)
            if (!immutable_const(PyTuple_GET_ITEM(o, i))) return false;
        return true;
    }
    return plain_const(o);
}

PyObject **dict_slot(PyObject *o) {
    PyObject **slot = _PyObject_GetDictPtr(o);
    if (slot && !*slot) {
        PyObject *d = PyObject_GenericGetDict(o, nullptr);
        if (!d) PyErr_Clear();
        Py_XDECREF(d); // the object holds it
    }
    return slot && *slot ? slot : nullptr;
}

PyObject *dict_of(PyObject *o) {
    if (PyType_Check(o)) {
        return pl_class_dict(reinterpret_cast<PyTypeObject *>(o));
    }
    PyObject **slot = dict_slot(o);
    return slot ? *slot : nullptr;
}

PyObject *dict_get(PyObject *dict, PyObject *key, Py_hash_t hash) {
    PyObject *v = _PyDict_GetItem_KnownHash(dict, key, hash);
    if (!v && PyErr_Occurred()) PyErr_Clear();
    return v;
}

bool lacks(PyObject *dict, PyObject *pairs) {
    if (!PyDict_Check(dict)) return false;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(pairs); i += 2) {
        PyObject *name = PyTuple_GET_ITEM(pairs, i), *type = PyTuple_GET_ITEM(pairs, i + 1);
        PyObject *v = dict_get(dict, name, str_hash(name));
        const bool so = type == Py_None ? !v : v && reinterpret_cast<PyObject *>(Py_TYPE(v)) == type && PyDict_GET_SIZE(v) == 0;
        if (!so) return false;
    }
    return true;
}

PyObject *read_attr(PyObject *o, PyObject *name, PyTypeObject **searched) {
    *searched = nullptr;
    PyTypeObject *t = Py_TYPE(o);
    std::optional<TorchFunctionsOff> off; // getters of tensors tell their class and the modes that are on
    if (is_tensor_type(t)) {
        off.emplace();
        if (!off->able() && !plain_functions(t)) return nullptr;
    }
    if (PyType_Check(o)) return t->tp_getattro == PyType_Type.tp_getattro
                                    ? read_class_attr(reinterpret_cast<PyTypeObject *>(o), name, searched)
                                    : nullptr;
    bool generic = t->tp_getattro == PyObject_GenericGetAttr || PyModule_CheckExact(o);
    if (t->tp_getattro == slot_getattr || t->tp_getattro == slot_getattr_hook) {
        // `__getattr__` alone leaves ordinary look-ups alone; it must not be reached.
        // What an object holds in C, a slot among that, is read without asking its `__getattribute__`.
        PyObject *raw = _PyType_Lookup(t, name);
        const bool held = raw && (Py_TYPE(raw) == &PyMemberDescr_Type || Py_TYPE(raw) == &PyGetSetDescr_Type);
        if (!held && _PyType_Lookup(t, str_getattribute) != object_getattribute) return nullptr;
        generic = true;
    }
    PyObject *d = _PyType_Lookup(t, name);
    descrgetfunc get = d ? Py_TYPE(d)->tp_descr_get : nullptr;
    if (d && !generic) { // a C type with its own attribute function, e.g. a bound method
        if (get && !safe_descriptor(d)) return nullptr;
        return clear_error(PyObject_GetAttr(o, name));
    }
    Py_XINCREF(d);
    PyObject *result = nullptr;
    if (get && Py_TYPE(d)->tp_descr_set) {
        if (safe_descriptor(d)) result = clear_error(get(d, o, reinterpret_cast<PyObject *>(t)));
        Py_DECREF(d);
        return result;
    }
    PyObject **slot = _PyObject_GetDictPtr(o);
    if (slot && *slot && (result = dict_get(*slot, name, str_hash(name)))) {
        *searched = t;
        Py_INCREF(result);
    } else if (get) {
        if (safe_descriptor(d)) result = clear_error(get(d, o, reinterpret_cast<PyObject *>(t)));
    } else if (d) {
        *searched = t;
        result = Py_NewRef(d);
    } else if (!generic) {
        result = clear_error(PyObject_GetAttr(o, name));
    }
    Py_XDECREF(d);
    return result;
}

bool is_deque(PyObject *o) { return Py_TYPE(o) == deque_type; }
bool is_ordered_dict(PyObject *o) { return PyObject_TypeCheck(o, &PyODict_Type); }

Py_ssize_t raw_length(PyObject *o) {
    if (PyList_Check(o)) return PyList_GET_SIZE(o);
    if (PyTuple_Check(o)) return PyTuple_GET_SIZE(o);
    if (PyDict_Check(o)) return PyDict_GET_SIZE(o);
    if (PyAnySet_Check(o)) return PySet_GET_SIZE(o);
    if (deque_type && PyObject_TypeCheck(o, deque_type)) return Py_SIZE(o);
    if (PyUnicode_Check(o)) return PyUnicode_GET_LENGTH(o);
    if (PyBytes_Check(o)) return PyBytes_GET_SIZE(o);
    return -1;
}

bool keys_match(PyObject *dict, const std::vector<Held> &keys) {
    if (PyDict_GET_SIZE(dict) != static_cast<Py_ssize_t>(keys.size())) return false;
    auto same = [&](size_t i, PyObject *k) {
        if (keys[i].is(k)) return true;
        PyObject *want = keys[i].get();
        return want && eq_const(k, want);
    };
    size_t i = 0;
    if (is_ordered_dict(dict)) { // its order is not that of the underlying dict
        PyObject *it = PyODict_Type.tp_iter(dict);
        bool ok = it != nullptr;
        while (ok && i < keys.size()) {
            PyObject *k = Py_TYPE(it)->tp_iternext(it);
            ok = k && same(i++, k);
            Py_XDECREF(k);
        }
        Py_XDECREF(it);
        PyErr_Clear();
        return ok;
    }
    Py_ssize_t pos = 0;
    PyObject *k;
    while (PyDict_Next(dict, &pos, &k, nullptr))
        if (!same(i++, k)) return false;
    return true;
}

bool values_init() {
    // The slot functions that CPython installs for Python-level special methods are not exported: take them from sample classes.
    PyObject *scope = PyDict_New();
    if (!scope || PyDict_SetItemString(scope, "__builtins__", PyEval_GetBuiltins()) < 0) return false;
    PyObject *done = PyRun_String("class A:\n __getattribute__ = lambda s, n: None\n __eq__ = lambda s, o: False\n"
                                  "A().a\n" // CPython gives the class the slot function for `__getattribute__` alone when it is first asked
                                  "class B:\n __getattr__ = lambda s, n: None\n"
                                  "from collections import deque\n",
                                  Py_file_input, scope, scope);
    if (!done) return false;
    Py_DECREF(done);
    auto type_at = [&](const char *n) { return reinterpret_cast<PyTypeObject *>(PyDict_GetItemString(scope, n)); };
    slot_getattr = type_at("A")->tp_getattro;
    slot_richcompare = type_at("A")->tp_richcompare;
    slot_getattr_hook = type_at("B")->tp_getattro;
    deque_type = reinterpret_cast<PyTypeObject *>(Py_NewRef(reinterpret_cast<PyObject *>(type_at("deque"))));
    Py_DECREF(scope);
    str_getattribute = PyUnicode_InternFromString("__getattribute__");
    str_fget = PyUnicode_InternFromString("fget");
    str_torch_function = PyUnicode_InternFromString("__torch_function__");
    str_repr = PyUnicode_InternFromString("__repr__");
    str_tzinfo = PyUnicode_InternFromString("tzinfo");
    object_getattribute = Py_XNewRef(_PyType_Lookup(&PyBaseObject_Type, str_getattribute));
    return object_getattribute != nullptr;
}

} // namespace pliant

// set_tensor_type(torch.Tensor, tuple of raw __torch_function__ attributes that are not user code)
extern "C" PyObject *pl_set_tensor_type(PyObject *, PyObject *args) {
    PyObject *type, *plain;
    if (!PyArg_ParseTuple(args, "O!O!", &PyType_Type, &type, &PyTuple_Type, &plain)) return nullptr;
    Py_XSETREF(pliant::tensor_type, Py_NewRef(type));
    Py_XSETREF(pliant::plain_torch_functions, Py_NewRef(plain));
    Py_RETURN_NONE;
}
