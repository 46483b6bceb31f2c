// The tensor layout: set from Python after probing (probe.py), with the readers that probing and cross-checking need.
#include "tensor_layout.h"
#include <dlfcn.h>
#include <initializer_list>

namespace pliant {

TensorLayout layout;

bool memory_range(PyObject *tensor, int64_t itemsize, uintptr_t &lo, uintptr_t &hi) {
    const char *im = impl_of(tensor);
    const int64_t nd = ndim_of(im), *s = sizes_of(im, nd), *t = strides_of(im, nd);
    const char *storage = load<const char *>(im + layout.storage);
    if (!storage) return false;
    uintptr_t base = load<uintptr_t>(storage + layout.data);
    if (!base) base = reinterpret_cast<uintptr_t>(storage);
    int64_t span = 1;
    for (int64_t i = 0; i < nd; i++) {
        if (s[i] == 0) return false;
        span += (s[i] - 1) * t[i];
    }
    lo = base + static_cast<uintptr_t>(offset_of(im) * itemsize);
    hi = lo + static_cast<uintptr_t>(span * itemsize);
    return true;
}

} // namespace pliant

using namespace pliant;

// peek(address, nbytes) -> bytes: raw memory, for the probe only.
static PyObject *peek(PyObject *, PyObject *args) {
    unsigned long long address;
    Py_ssize_t n;
    if (!PyArg_ParseTuple(args, "Kn", &address, &n)) return nullptr;
    return PyBytes_FromStringAndSize(reinterpret_cast<const char *>(static_cast<uintptr_t>(address)), n);
}

// set_layout(offsets: dict | None, libc10: str) -> bool
static PyObject *set_layout(PyObject *, PyObject *args) {
    PyObject *offsets;
    const char *library;
    if (!PyArg_ParseTuple(args, "Os", &offsets, &library)) return nullptr;
    layout = TensorLayout{};
    if (offsets == Py_None) Py_RETURN_FALSE;
    struct {
        const char *name;
        int *field;
    } fields[] = {{"impl", &layout.impl},     {"sizes", &layout.sizes},     {"dtype", &layout.dtype}, {"keys", &layout.keys},
                  {"offset", &layout.offset}, {"storage", &layout.storage}, {"data", &layout.data}};
    for (auto &f : fields) {
        PyObject *v = PyDict_GetItemString(offsets, f.name);
        if (!v) return PyErr_Format(PyExc_KeyError, "%s", f.name);
        *f.field = static_cast<int>(PyLong_AsLong(v));
        if (PyErr_Occurred()) return nullptr;
    }
    if (void *h = dlopen(library, RTLD_NOW | RTLD_NOLOAD)) {
        layout.requires_grad = reinterpret_cast<bool (*)(const void *)>(dlsym(h, "_ZNK3c1010TensorImpl13requires_gradEv"));
        dlclose(h);
    }
    layout.ok = layout.requires_grad != nullptr;
    return PyBool_FromLong(layout.ok);
}

// number(t) -> what `t.item()` gives: read from memory where t is a plain tensor of one element on the CPU, as most numbers are that
// graphs ask for. Not for tensors with a lazy bit (conjugate, negative).
static PyObject *number(PyObject *, PyObject *o) {
    if (layout.ok) {
        const char *im = impl_of(o);
        const int64_t nd = ndim_of(im), *s = sizes_of(im, nd);
        bool one = true;
        for (int64_t i = 0; i < nd; i++) one = one && s[i] == 1;
        const uint64_t word = dtype_device_of(im);
        const char *storage = load<const char *>(im + layout.storage);
        const char *data = storage ? load<const char *>(storage + layout.data) : nullptr;
        if (one && data && !(word >> 16 & 0xFF)) {
            const int64_t at = offset_of(im);
            switch (word & 0xFFFF) { // libtorch's numbers of dtypes
            case 0: return PyLong_FromLong(load<uint8_t>(data + at));
            case 1: return PyLong_FromLong(load<int8_t>(data + at));
            case 2: return PyLong_FromLong(load<int16_t>(data + at * 2));
            case 3: return PyLong_FromLong(load<int32_t>(data + at * 4));
            case 4: return PyLong_FromLongLong(load<int64_t>(data + at * 8));
            case 6: return PyFloat_FromDouble(static_cast<double>(load<float>(data + at * 4)));
            case 7: return PyFloat_FromDouble(load<double>(data + at * 8));
            case 11: return PyBool_FromLong(load<uint8_t>(data + at) != 0);
            default: break;
            }
        }
    }
    return PyObject_CallMethod(o, "item", nullptr);
}

// read_tensor(t) -> (sizes, strides, offset, dtype code, device type, device index, keys, requires_grad, data address): cross-check
static PyObject *read_tensor(PyObject *, PyObject *o) {
    if (!layout.ok) return PyErr_Format(PyExc_RuntimeError, "the tensor layout is not known");
    const char *im = impl_of(o);
    const int64_t nd = ndim_of(im), *s = sizes_of(im, nd), *t = strides_of(im, nd);
    PyObject *sizes = PyTuple_New(nd), *strides = PyTuple_New(nd);
    if (!sizes || !strides) return nullptr;
    for (int64_t i = 0; i < nd; i++) {
        PyTuple_SET_ITEM(sizes, i, PyLong_FromLongLong(s[i]));
        PyTuple_SET_ITEM(strides, i, PyLong_FromLongLong(t[i]));
    }
    const char *storage = load<const char *>(im + layout.storage);
    const uint64_t base = storage ? load<uint64_t>(storage + layout.data) : 0;
    const uint64_t word = dtype_device_of(im);
    return Py_BuildValue("NNLiiiKNK", sizes, strides, static_cast<long long>(offset_of(im)), static_cast<int>(word & 0xFFFF),
                         static_cast<int>(static_cast<int8_t>(word >> 16)), static_cast<int>(static_cast<int8_t>(word >> 24)),
                         static_cast<unsigned long long>(keys_of(im)), PyBool_FromLong(requires_grad_of(im)),
                         static_cast<unsigned long long>(base));
}

// The same through Python: a tuple.
static PyObject *described_slowly(PyObject *const *tensors, Py_ssize_t n, bool exact) {
    PyObject *made = PyTuple_New(n);
    for (Py_ssize_t k = 0; made && k < n; k++) {
        PyObject *o = tensors[k], *sizes = PyObject_CallMethod(o, "size", nullptr), *strides = PyObject_CallMethod(o, "stride", nullptr),
                 *dtype = PyObject_GetAttrString(o, "dtype"), *offset = PyObject_CallMethod(o, "storage_offset", nullptr),
                 *address = PyObject_CallMethod(o, "data_ptr", nullptr);
        const unsigned long long at = address ? PyLong_AsUnsignedLongLong(address) : 0;
        PyObject *one = PyErr_Occurred() ? nullptr : Py_BuildValue("OOOOK", dtype, sizes, strides, offset, exact ? at : 0ull);
        for (PyObject *p : {sizes, strides, dtype, offset, address}) Py_XDECREF(p);
        if (one) PyTuple_SET_ITEM(made, k, one);
        else Py_CLEAR(made);
    }
    return made;
}

// What compiled code knows of each tensor, one after the other: dtype and device, sizes, strides, offset (`exact`: and the address of
// its memory).
static PyObject *described(PyObject *const *tensors, Py_ssize_t n, bool exact) {
    if (!layout.ok) return described_slowly(tensors, n, exact);
    Py_ssize_t words = 0;
    for (Py_ssize_t k = 0; k < n; k++) words += 4 + 2 * ndim_of(impl_of(tensors[k]));
    PyObject *made = PyBytes_FromStringAndSize(nullptr, words * 8);
    if (!made) return nullptr;
    char *out = PyBytes_AS_STRING(made);
    auto put = [&](const void *from, size_t count) {
        std::memcpy(out, from, count * 8);
        out += count * 8;
    };
    for (Py_ssize_t k = 0; k < n; k++) {
        const char *im = impl_of(tensors[k]);
        const int64_t nd = ndim_of(im);
        const char *storage = load<const char *>(im + layout.storage);
        const uint64_t address = storage ? load<uint64_t>(storage + layout.data) : 0;
        const uint64_t head[4] = {dtype_device_of(im), static_cast<uint64_t>(nd), static_cast<uint64_t>(offset_of(im)),
                                  exact ? address : 0};
        put(head, 4);
        put(sizes_of(im, nd), nd);
        put(strides_of(im, nd), nd);
    }
    return made;
}

// layouts(*tensors), places(*tensors) -> bytes
static PyObject *layouts(PyObject *, PyObject *const *tensors, Py_ssize_t n) { return described(tensors, n, false); }
static PyObject *places(PyObject *, PyObject *const *tensors, Py_ssize_t n) { return described(tensors, n, true); }

static PyMethodDef methods[] = {
    {"layouts", (PyCFunction)(void (*)(void))layouts, METH_FASTCALL, "layouts(*tensors): what compiled code knows of them, as bytes."},
    {"places", (PyCFunction)(void (*)(void))places, METH_FASTCALL, "places(*tensors): the same, and where their memory is."},
    {"peek", peek, METH_VARARGS, "peek(address, nbytes): raw memory, for the layout probe only."},
    {"set_layout", set_layout, METH_VARARGS, "set_layout(offsets or None, path of libc10): what the probe found."},
    {"read_tensor", read_tensor, METH_O, "read_tensor(t): metadata as read from memory, for the cross-check."},
    {"number", number, METH_O, "number(t): what t.item() gives, for a tensor without lazy bits."},
    {nullptr, nullptr, 0, nullptr},
};

extern "C" int pl_layout_init(PyObject *module) { return PyModule_AddFunctions(module, methods); }
