// The library routines, the arena and machine code as Python sees them: addresses, for whoever links segments.
#include "core.h"
#include "halves.h"
#include "matmul.h"
#include "pages.h"
#include "pool.h"
#include "routines.h"
#include <new>
#include <structmember.h>
#include <vector>

namespace pliant {

template <class F> static unsigned long long address_of(F *f) { return reinterpret_cast<unsigned long long>(f); }

// gemm_function(address of sgemm_, address of cblas_sgemm_batch, bits of the vectors of our own loops, or 0 for BLAS) -> address of
// `int32 gemm(Product *)`
static PyObject *gemm_function(PyObject *, PyObject *args) {
    unsigned long long single, batch;
    long long bits;
    if (!PyArg_ParseTuple(args, "KKL", &single, &batch, &bits)) return nullptr;
    return PyLong_FromUnsignedLongLong(address_of(gemm_routine(single, batch, bits)));
}

// set_pool(GOMP_parallel, omp_get_thread_num, omp_get_num_threads, at::get_num_threads, at::in_parallel_region)
static PyObject *set_pool(PyObject *, PyObject *args) {
    unsigned long long given[5];
    if (!PyArg_ParseTuple(args, "KKKKK", given, given + 1, given + 2, given + 3, given + 4)) return nullptr;
    pool.parallel = reinterpret_cast<void (*)(void (*)(void *), void *, unsigned, unsigned)>(given[0]);
    pool.number = reinterpret_cast<int (*)()>(given[1]);
    pool.team = reinterpret_cast<int (*)()>(given[2]);
    pool.threads = reinterpret_cast<int (*)()>(given[3]);
    pool.inside = reinterpret_cast<bool (*)()>(given[4]);
    Py_RETURN_NONE;
}

// (bits of the widest vectors that our own products run with here, whether they are known to be the faster ones, whether those of bf16 run)
static PyObject *own_products(PyObject *, PyObject *) {
    return Py_BuildValue("(iNN)", loops_of(512) == &loops512 ? 512 : loops_of(256) ? 256 : 0, PyBool_FromLong(matmul_is_best()),
                         PyBool_FromLong(pairs_run()));
}

// attention_function(bits of a vector) -> address of `int32 attention(Attention *)`; 0 where this machine has no such vectors
static PyObject *attention_function(PyObject *, PyObject *args) {
    long long bits;
    if (!PyArg_ParseTuple(args, "L", &bits)) return nullptr;
    return PyLong_FromUnsignedLongLong(address_of(attention_routine(bits)));
}

// convolution_function() -> address of `int32 convolution(Convolution *)`, 0 where there is none
static PyObject *convolution_function(PyObject *, PyObject *) { return PyLong_FromUnsignedLongLong(address_of(convolution_routine())); }

// lstm_functions(bits of a vector) -> addresses of `int32 f(box *)` (recurrent.cpp), forward and back; 0 where this machine has no such vectors
static PyObject *lstm_functions(PyObject *, PyObject *bits) {
    const long long n = PyLong_AsLongLong(bits);
    if (n == -1 && PyErr_Occurred()) return nullptr;
    const auto found = lstm_routines(n);
    return Py_BuildValue("KK", address_of(found.first), address_of(found.second));
}

// int8_functions(bits of a vector, whether the processor's tiles may be used) -> addresses of `int32 f(box *)`: product of int8, dynamic linear,
// product of f32 and int8
static PyObject *int8_functions(PyObject *, PyObject *args) {
    long long bits;
    int tiles;
    if (!PyArg_ParseTuple(args, "Lp", &bits, &tiles)) return nullptr;
    return Py_BuildValue("KKK", address_of(int8_routine(bits, tiles != 0)), address_of(dynamic_linear_routine(bits, tiles != 0)),
                         address_of(float_routine(bits, tiles != 0)));
}

// arena_functions() -> addresses of take, give, poison
static PyObject *arena_functions(PyObject *, PyObject *) {
    return Py_BuildValue("KKK", address_of(&arena_take), address_of(&arena_give), address_of(&arena_poison));
}

// arena_bytes() -> (bytes kept or in use now, the most there ever were, those of this thread)
static PyObject *bytes(PyObject *, PyObject *) {
    const ArenaBytes b = arena_bytes();
    return Py_BuildValue("LLL", static_cast<long long>(b.held), static_cast<long long>(b.most), static_cast<long long>(b.mine));
}

// set_arena_limit(bytes) -> the limit before: a thread's block beyond it is freed when a segment has ended
static PyObject *set_limit(PyObject *, PyObject *value) {
    const long long n = PyLong_AsLongLong(value);
    if (n == -1 && PyErr_Occurred()) return nullptr;
    return PyLong_FromLongLong(set_arena_limit(n));
}

struct MachineCode {
    PyObject_HEAD
    Pages pages;
    unsigned long long address;
};

static PyObject *machine_code_new(PyTypeObject *type, PyObject *args, PyObject *) {
    PyObject *code, *imports;
    if (!PyArg_ParseTuple(args, "O!O!", &PyBytes_Type, &code, &PyTuple_Type, &imports)) return nullptr;
    std::vector<const void *> found(PyTuple_GET_SIZE(imports));
    for (size_t i = 0; i < found.size(); i++)
        if (!(found[i] = PyLong_AsVoidPtr(PyTuple_GET_ITEM(imports, i)))) {
            return PyErr_Occurred() ? nullptr : PyErr_Format(PyExc_ValueError, "an import at address 0");
        }
    const auto size = static_cast<size_t>(PyBytes_GET_SIZE(code));
    if (!size || size % Pages::page_size()) return PyErr_Format(PyExc_ValueError, "machine code has to be whole pages");
    auto *m = reinterpret_cast<MachineCode *>(type->tp_alloc(type, 0));
    if (!m) return nullptr;
    new (&m->pages) Pages;
    if (!m->pages.fill(PyBytes_AS_STRING(code), size, found.data(), found.size())) {
        PyErr_SetFromErrno(PyExc_OSError);
        Py_DECREF(m);
        return nullptr;
    }
    m->address = address_of(m->pages.at());
    return reinterpret_cast<PyObject *>(m);
}

static void machine_code_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    reinterpret_cast<MachineCode *>(self)->pages.~Pages();
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMemberDef machine_code_members[] = {
    {"address", T_ULONGLONG, offsetof(MachineCode, address), READONLY, "Where it begins."},
    {nullptr, 0, 0, 0, nullptr},
};

static PyType_Slot machine_code_slots[] = {
    {Py_tp_new, reinterpret_cast<void *>(machine_code_new)},
    {Py_tp_dealloc, reinterpret_cast<void *>(machine_code_dealloc)},
    {Py_tp_members, machine_code_members},
    {Py_tp_doc, const_cast<char *>("MachineCode(image: bytes, addresses of its imports: tuple): in memory for as long as this object lives.")},
    {0, nullptr},
};

static PyType_Spec machine_code_spec = {"pliant.native._core.MachineCode", sizeof(MachineCode), 0,
                                        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE, machine_code_slots};

static PyMethodDef methods[] = {
    {"gemm_function", gemm_function, METH_VARARGS, "Address of the matrix product of segments."},
    {"set_pool", set_pool, METH_VARARGS, "The functions of PyTorch's thread pool."},
    {"own_products", own_products, METH_NOARGS, "(bits of the vectors that they run with here, they are the faster ones)"},
    {"attention_function", attention_function, METH_VARARGS, "Address of the attention of segments."},
    {"convolution_function", convolution_function, METH_NOARGS, "Address of the convolution of segments."},
    {"lstm_functions", lstm_functions, METH_O, "Addresses of a layer of an LSTM, forward and back."},
    {"int8_functions", int8_functions, METH_VARARGS, "Addresses of what segments call for weights of int8."},
    {"arena_functions", arena_functions, METH_NOARGS, "Addresses of take(bytes), give(block, bytes), poison(at, bytes)."},
    {"arena_bytes", bytes, METH_NOARGS, "(bytes of all threads' arenas now, the most there ever were, bytes of this thread's)."},
    {"set_arena_limit", set_limit, METH_O, "Largest block that a thread keeps between segments, in bytes; returns the one before."},
    {nullptr, nullptr, 0, nullptr},
};

} // namespace pliant

extern "C" int pl_library_init(PyObject *module) {
    PyObject *type = PyType_FromSpec(&pliant::machine_code_spec);
    if (!type) return -1;
    const int result = PyModule_AddObjectRef(module, "MachineCode", type);
    Py_DECREF(type);
    return result < 0 ? result : PyModule_AddFunctions(module, pliant::methods);
}
