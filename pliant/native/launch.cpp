// Launcher: calls one compiled kernel, `int32 kernel(int64 *ctx)`, with the addresses of tensors and integers.
#include "core.h"
#include "shared.h"
#include "tensor_layout.h"
#include <structmember.h>

namespace pliant {

static_assert(sizeof(void *) == sizeof(unsigned long long));
constexpr int64_t kSmall = 8192;      // elements that take less time than letting other threads run

struct Launcher {
    PyObject_HEAD
    vectorcallfunc call;
    int32_t (*kernel)(int64_t *);
    Py_ssize_t buffers, sizes;
    PyObject *itemsizes; // bytes: one for each buffer
    PyObject *owner;     // keeps the code alive
};

static PyObject *raise(int32_t status) {
    if (status == OUT_OF_MEMORY) return PyErr_Format(PyExc_RuntimeError, "there is not enough memory for intermediate results");
    switch (status) {
#define X(name, value, error, words)                                                                                                  \
    case value: return PyErr_Format(PyExc_##error, words);
        PLIANT_FAILURES(X)
#undef X
    default: return PyErr_Format(PyExc_RuntimeError, "a kernel stopped at check %d", static_cast<int>(status));
    }
}

static bool address_of(PyObject *t, int64_t itemsize, int64_t &out) {
    if (layout.ok) {
        const char *im = impl_of(t);
        const char *storage = load<const char *>(im + layout.storage);
        out = storage ? load<int64_t>(storage + layout.data) + offset_of(im) * itemsize : 0;
        return true;
    }
    PyObject *p = PyObject_CallMethod(t, "data_ptr", nullptr);
    if (!p) return false;
    out = static_cast<int64_t>(PyLong_AsUnsignedLongLong(p));
    Py_DECREF(p);
    return !PyErr_Occurred();
}

// Elements of a tensor; many, if that is not known.
static int64_t elements_of(PyObject *t) {
    if (!layout.ok) return kSmall;
    const char *im = impl_of(t);
    const int64_t nd = ndim_of(im), *sizes = sizes_of(im, nd);
    int64_t n = 1;
    for (int64_t d = 0; d < nd; d++) {
        if (sizes[d] >= kSmall) return kSmall;
        n *= sizes[d];
        if (n >= kSmall) return kSmall;
    }
    return n;
}

// launcher(*tensors, *sizes): fills the context and runs the kernel, without the GIL unless all tensors are small.
static PyObject *launch(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames) {
    auto *k = reinterpret_cast<Launcher *>(self);
    const Py_ssize_t n = PyVectorcall_NARGS(nargsf);
    if (n != k->buffers + k->sizes || kwnames)
        return PyErr_Format(PyExc_TypeError, "a kernel of %zd tensors and %zd sizes was called with %zd arguments", k->buffers, k->sizes, n);
    int64_t ctx[MOST_ARGUMENTS];
    const char *itemsizes = PyBytes_AS_STRING(k->itemsizes);
    int64_t work = 0;
    for (Py_ssize_t i = 0; i < k->buffers; i++) {
        if (!address_of(args[i], itemsizes[i], ctx[i])) return nullptr;
        if (work < kSmall) work += elements_of(args[i]);
    }
    for (Py_ssize_t i = k->buffers; i < n; i++) {
        ctx[i] = PyLong_AsLongLong(args[i]);
        if (ctx[i] == -1 && PyErr_Occurred()) return nullptr;
    }
    int32_t status;
    PyObject *mark = pl_mark_kernel(k->owner);
    if (work < kSmall) {
        status = k->kernel(ctx);
    } else {
        Py_BEGIN_ALLOW_THREADS;
        status = k->kernel(ctx);
        Py_END_ALLOW_THREADS;
    }
    pl_unmark(mark);
    if (status) return raise(status);
    Py_RETURN_NONE;
}

static PyObject *launcher_new(PyTypeObject *type, PyObject *args, PyObject *) {
    unsigned long long address;
    Py_ssize_t sizes;
    PyObject *itemsizes, *owner;
    if (!PyArg_ParseTuple(args, "KO!nO", &address, &PyBytes_Type, &itemsizes, &sizes, &owner)) return nullptr;
    if (PyBytes_GET_SIZE(itemsizes) + sizes > MOST_ARGUMENTS)
        return PyErr_Format(PyExc_ValueError, "a kernel takes at most %zd arguments", MOST_ARGUMENTS);
    auto *k = reinterpret_cast<Launcher *>(type->tp_alloc(type, 0));
    if (!k) return nullptr;
    k->call = launch;
    k->kernel = reinterpret_cast<int32_t (*)(int64_t *)>(address);
    k->buffers = PyBytes_GET_SIZE(itemsizes);
    k->sizes = sizes;
    k->itemsizes = Py_NewRef(itemsizes);
    k->owner = Py_NewRef(owner);
    return reinterpret_cast<PyObject *>(k);
}

static void launcher_dealloc(PyObject *self) {
    auto *k = reinterpret_cast<Launcher *>(self);
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF(k->itemsizes);
    Py_XDECREF(k->owner);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Launcher, call), READONLY, nullptr},
    {"address", T_ULONGLONG, offsetof(Launcher, kernel), READONLY, "Where the machine code is."},
    {"itemsizes", T_OBJECT, offsetof(Launcher, itemsizes), READONLY, "Bytes of an element of each tensor."},
    {"sizes", T_PYSSIZET, offsetof(Launcher, sizes), READONLY, "How many integers follow the tensors."},
    {"owner", T_OBJECT, offsetof(Launcher, owner), READONLY, "What it was made with."},
    {nullptr, 0, 0, 0, nullptr},
};

static PyType_Slot slots[] = {
    {Py_tp_new, reinterpret_cast<void *>(launcher_new)},
    {Py_tp_dealloc, reinterpret_cast<void *>(launcher_dealloc)},
    {Py_tp_call, reinterpret_cast<void *>(PyVectorcall_Call)},
    {Py_tp_members, members},
    {Py_tp_doc, const_cast<char *>("Launcher(address, itemsizes: bytes, number of sizes, owner): call it with tensors, then sizes.")},
    {0, nullptr},
};

static PyType_Spec spec = {"pliant.native._core.Launcher", sizeof(Launcher), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_IMMUTABLETYPE, slots};

} // namespace pliant

extern "C" int pl_launch_init(PyObject *module) {
    PyObject *type = PyType_FromSpec(&pliant::spec);
    if (!type) return -1;
    const int result = PyModule_AddObjectRef(module, "Launcher", type);
    Py_DECREF(type);
    return result;
}
