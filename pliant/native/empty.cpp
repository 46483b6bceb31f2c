// `native.Empty`: new contiguous CPU memory for a kernel to fill, straight from libtorch.
//
// `torch.empty` parses keywords, walks the dispatcher and takes 1.1 us, more than the work of many a small kernel. What it comes to is
// `at::detail::empty_cpu`, which is exported; a tensor made by it is wrapped by libtorch_python as its own are. Whatever is not plain
// (a dispatch mode, sizes that libtorch refuses, another build without these symbols) is left to `torch.empty`, which says what is wrong.
#include "core.h"
#include "state.h"
#include "tensor_layout.h"
#include <cstddef>
#include <dlfcn.h>
#include <optional>
#include <structmember.h>

namespace pliant {
namespace {

// As libtorch has them: an array and its length, and a tensor, which is one pointer that counts references and so is returned in memory.
struct Sizes {
    const int64_t *data;
    size_t n;
};
struct Tensor {
    void *impl;
    ~Tensor() {} // whoever wraps it takes the reference
};
Tensor (*empty_cpu)(Sizes, int8_t, bool, std::optional<int8_t>) = nullptr;
PyObject *(*wrap)(Tensor &&) = nullptr;

constexpr Py_ssize_t kMaxDims = 16;

struct Empty {
    PyObject_HEAD
    vectorcallfunc call;
    int dtype; // libtorch's number
    PyObject *fallback;
};

PyObject *made(const int64_t *sizes, Py_ssize_t n, int dtype) {
    try {
        return wrap(empty_cpu(Sizes{sizes, static_cast<size_t>(n)}, static_cast<int8_t>(dtype), false, std::nullopt));
    } catch (...) { // a size below 0, or no memory
        return nullptr;
    }
}

PyObject *empty_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames) {
    auto *e = reinterpret_cast<Empty *>(self);
    const Py_ssize_t n = PyVectorcall_NARGS(nargsf);
    if (kwnames) return PyErr_Format(PyExc_TypeError, "only sizes are expected");
    int64_t sizes[kMaxDims];
    bool plain = empty_cpu && n <= kMaxDims && no_dispatch_modes();
    for (Py_ssize_t i = 0; plain && i < n; i++) {
        sizes[i] = PyLong_AsLongLong(args[i]);
        if (sizes[i] == -1 && PyErr_Occurred()) return nullptr;
    }
    if (plain) {
        PyObject *t = made(sizes, n, e->dtype);
        if (t) return t;
        PyErr_Clear();
    }
    PyObject *shape = PyTuple_New(n);
    if (!shape) return nullptr;
    for (Py_ssize_t i = 0; i < n; i++) PyTuple_SET_ITEM(shape, i, Py_NewRef(args[i]));
    PyObject *t = PyObject_CallOneArg(e->fallback, shape);
    Py_DECREF(shape);
    return t;
}

PyObject *empty_new(PyTypeObject *type, PyObject *args, PyObject *) {
    int dtype;
    PyObject *fallback;
    if (!PyArg_ParseTuple(args, "iO", &dtype, &fallback)) return nullptr;
    auto *e = reinterpret_cast<Empty *>(type->tp_alloc(type, 0));
    if (!e) return nullptr;
    e->call = empty_call;
    e->dtype = dtype;
    e->fallback = Py_NewRef(fallback);
    return reinterpret_cast<PyObject *>(e);
}

void empty_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF(reinterpret_cast<Empty *>(self)->fallback);
    type->tp_free(self);
    Py_DECREF(type);
}

// set_allocator(libtorch_cpu, libtorch_python) -> bool: True when the symbols were found
PyObject *set_allocator(PyObject *, PyObject *args) {
    const char *cpu, *python;
    if (!PyArg_ParseTuple(args, "zz", &cpu, &python)) return nullptr;
    empty_cpu = nullptr;
    void *a = cpu ? dlopen(cpu, RTLD_NOW | RTLD_NOLOAD) : nullptr, *b = python ? dlopen(python, RTLD_NOW | RTLD_NOLOAD) : nullptr;
    void *make = a ? dlsym(a, "_ZN2at6detail9empty_cpuEN3c108ArrayRefIlEENS1_10ScalarTypeEbSt8optionalINS1_12MemoryFormatEE") : nullptr;
    void *give = b ? dlsym(b, "_Z16THPVariable_WrapON2at10TensorBaseE") : nullptr;
    if (make && give) {
        wrap = reinterpret_cast<PyObject *(*)(Tensor &&)>(give);
        empty_cpu = reinterpret_cast<Tensor (*)(Sizes, int8_t, bool, std::optional<int8_t>)>(make);
    }
    return PyBool_FromLong(empty_cpu != nullptr);
}

PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Empty, call), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};
PyType_Slot slots[] = {
    {Py_tp_new, reinterpret_cast<void *>(empty_new)},
    {Py_tp_dealloc, reinterpret_cast<void *>(empty_dealloc)},
    {Py_tp_call, reinterpret_cast<void *>(PyVectorcall_Call)},
    {Py_tp_members, members},
    {Py_tp_doc, const_cast<char *>("Empty(number of a dtype, fallback): call it with sizes; fallback(sizes) where that does not do.")},
    {0, nullptr},
};
PyType_Spec spec = {"pliant.native._core.Empty", sizeof(Empty), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_IMMUTABLETYPE, slots};
PyMethodDef methods[] = {
    {"set_allocator", set_allocator, METH_VARARGS, "set_allocator(libtorch_cpu, libtorch_python) -> bool"},
    {nullptr, nullptr, 0, nullptr},
};

} // namespace

PyObject *empty_tensor(const int64_t *sizes, Py_ssize_t n, int dtype) {
    return empty_cpu && no_dispatch_modes() ? made(sizes, n, dtype) : nullptr;
}

} // namespace pliant

extern "C" int pl_empty_init(PyObject *module) {
    PyObject *type = PyType_FromSpec(&pliant::spec);
    if (!type) return -1;
    const int result = PyModule_AddObjectRef(module, "Empty", type);
    Py_DECREF(type);
    return result < 0 ? -1 : PyModule_AddFunctions(module, pliant::methods);
}
