// Global state: read through libtorch's own exported functions, compared in a few tens of nanoseconds.
#include "state.h"
#include "dicts.h"
#include <cstring>
#include <deque>
#include <dlfcn.h>

namespace pliant {
namespace {

// How `at::impl::SavedTensorDefaultHooksTLS` begins: a std::stack of pairs of `c10::SafePyObject`.
struct Pair {
    void *pack[2], *unpack[2];
};
using Hooks = std::deque<Pair>;

// Found by name at import. Where one is missing (another torch build), `fallback` in Python reads everything instead.
struct Symbols {
    bool ok = false;
    bool (*grad)() = nullptr;
    bool (*inference)() = nullptr;
    int8_t (*default_dtype)() = nullptr;
    int8_t (*autocast_dtype)(int8_t) = nullptr;
    bool (*autocast_cache)() = nullptr;
    int64_t (*function_modes)() = nullptr;
    int (*function_disabled)() = nullptr;
    void (*disable_functions)(int) = nullptr;
    int64_t (*dispatch_modes)() = nullptr;
    const void *(*context)() = nullptr;
    bool (*deterministic)(const void *) = nullptr;
    bool (*warn_only)(const void *) = nullptr;
    bool (*fill)(const void *) = nullptr;
    const bool *anomaly = nullptr;
    const Hooks *(*saved)() = nullptr;
    void *libc10 = nullptr; // for the thread-local dispatch keys, whose address differs in each thread
} sym;
constexpr const char *kLocalKeys = "_ZN3c104impl26raw_local_dispatch_key_setE";
constexpr int8_t kCpu = 0, kCuda = 1;
// Where libtorch keeps its own thread-locals: at one address for as long as the thread lives.
struct Local {
    const uint64_t *keys = nullptr;
    const Hooks *saved = nullptr;
};
thread_local Local local;
PyObject *modes_key = nullptr; // Python: () -> tuple describing the active modes
PyObject *fallback = nullptr;  // Python: () -> tuple of everything
KeptItem dual_level;            // where Python keeps the level of forward-mode differentiation, -1 if there is none
PyObject *no_level = nullptr;   // -1: one object for the whole process

struct StateObject {
    PyObject_HEAD
    GlobalState state;
    PyObject *modes; // modes_key() when any mode is on, else NULL
    PyObject *slow;  // fallback() when the symbols are missing, else NULL
};
PyTypeObject *state_type = nullptr;

Local &found() {
    Local &here = local;
    if (!here.keys) {
        here.keys = static_cast<const uint64_t *>(dlsym(sym.libc10, kLocalKeys));
        here.saved = sym.saved();
    }
    return here;
}

GlobalState now() {
    GlobalState s;
    const Local &here = found();
    s.included = here.keys[0];
    s.excluded = here.keys[1];
    s.function_modes = sym.function_modes();
    s.dispatch_modes = sym.dispatch_modes();
    s.function_disabled = sym.function_disabled() & 0xFF;
    s.grad = sym.grad();
    s.inference = sym.inference();
    s.dtype = static_cast<uint8_t>(sym.default_dtype());
    s.cast_cpu = static_cast<uint8_t>(sym.autocast_dtype(kCpu));
    s.cast_cuda = static_cast<uint8_t>(sym.autocast_dtype(kCuda));
    s.cast_cache = sym.autocast_cache();
    const void *context = sym.context();
    s.deterministic = sym.deterministic(context);
    s.warn_only = sym.warn_only(context);
    s.fill = sym.fill(context);
    s.anomaly = *sym.anomaly;
    s.hooks = !here.saved->empty();
    PyObject *level = dual_level.get();
    s.dual = level && level != no_level && PyLong_AsLong(level) >= 0;
    return s;
}

// Equality of two tuples that Python made; the Python side puts only identities and constants in them.
bool same(PyObject *a, PyObject *b) {
    const int r = PyObject_RichCompareBool(a, b, Py_EQ);
    if (r < 0) PyErr_Clear();
    return r == 1;
}

PyObject *global_state(PyObject *, PyObject *) {
    auto *o = PyObject_New(StateObject, state_type);
    if (!o) return nullptr;
    o->modes = o->slow = nullptr;
    new (&o->state) GlobalState{};
    if (sym.ok) {
        o->state = now();
        if (o->state.function_modes || o->state.dispatch_modes) {
            o->modes = modes_key ? PyObject_CallNoArgs(modes_key) : nullptr;
            if (!o->modes) {
                if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, "the native core is not set up");
                Py_DECREF(o);
                return nullptr;
            }
        }
    } else {
        o->slow = fallback ? PyObject_CallNoArgs(fallback) : nullptr;
        if (!o->slow) {
            if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, "the native core is not set up");
            Py_DECREF(o);
            return nullptr;
        }
    }
    return reinterpret_cast<PyObject *>(o);
}

void state_dealloc(PyObject *self) {
    auto *o = reinterpret_cast<StateObject *>(self);
    Py_XDECREF(o->modes);
    Py_XDECREF(o->slow);
    PyTypeObject *t = Py_TYPE(self);
    PyObject_Free(self);
    Py_DECREF(t);
}

PyObject *state_matches_py(PyObject *self, PyObject *) { return PyBool_FromLong(state_matches(self)); }

PyObject *state_compare(PyObject *a, PyObject *b, int op) {
    if (!is_state(b) || (op != Py_EQ && op != Py_NE)) Py_RETURN_NOTIMPLEMENTED;
    auto *x = reinterpret_cast<StateObject *>(a), *y = reinterpret_cast<StateObject *>(b);
    bool eq = x->state == y->state && !x->modes == !y->modes && !x->slow == !y->slow;
    if (eq && x->modes) eq = same(x->modes, y->modes);
    if (eq && x->slow) eq = same(x->slow, y->slow);
    return PyBool_FromLong(eq == (op == Py_EQ));
}

Py_hash_t state_hash(PyObject *a) {
    auto &s = reinterpret_cast<StateObject *>(a)->state;
    return static_cast<Py_hash_t>((s.included * 31 + s.excluded) * 31 + s.grad + 2 * s.inference) & 0x7FFFFFFF;
}

PyObject *state_dict(PyObject *self, PyObject *) {
    auto *o = reinterpret_cast<StateObject *>(self);
    if (o->slow) return Py_BuildValue("{sO}", "slow", o->slow);
    auto &s = o->state;
    return Py_BuildValue("{sNsNsisisisNsNsNsNsKsKsLsLsisNsNsN}", "grad", PyBool_FromLong(s.grad), "inference", PyBool_FromLong(s.inference),
                         "default_dtype", s.dtype, "autocast_dtype_cpu", s.cast_cpu, "autocast_dtype_cuda", s.cast_cuda,
                         "autocast_cache", PyBool_FromLong(s.cast_cache), "deterministic", PyBool_FromLong(s.deterministic),
                         "deterministic_warn_only", PyBool_FromLong(s.warn_only), "fill_uninitialized", PyBool_FromLong(s.fill),
                         "included_keys", static_cast<unsigned long long>(s.included), "excluded_keys",
                         static_cast<unsigned long long>(s.excluded), "function_modes", static_cast<long long>(s.function_modes),
                         "dispatch_modes", static_cast<long long>(s.dispatch_modes), "torch_function_disabled", s.function_disabled,
                         "anomaly", PyBool_FromLong(s.anomaly), "forward_mode", PyBool_FromLong(s.dual), "saved_tensors_hooks",
                         PyBool_FromLong(s.hooks));
}

PyMethodDef state_methods[] = {
    {"matches", state_matches_py, METH_NOARGS, "Is torch's present state equal to this one?"},
    {"asdict", state_dict, METH_NOARGS, "The fields by name, for messages."},
    {nullptr, nullptr, 0, nullptr},
};
PyType_Slot state_slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void *>(state_dealloc)},
    {Py_tp_richcompare, reinterpret_cast<void *>(state_compare)},
    {Py_tp_hash, reinterpret_cast<void *>(state_hash)},
    {Py_tp_methods, state_methods},
    {Py_tp_doc, const_cast<char *>("A snapshot of torch's global state in one thread.")},
    {0, nullptr},
};
PyType_Spec state_spec = {"pliant.native.GlobalState", sizeof(StateObject), 0,
                          Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, state_slots};

// set_state_source(libc10, libtorch_cpu, modes_key, fallback, namespace of forward-mode differentiation) -> bool: True when the fast
// symbols were found
PyObject *set_state_source(PyObject *, PyObject *args) {
    const char *c10, *cpu;
    PyObject *modes, *slow, *levels;
    if (!PyArg_ParseTuple(args, "zzOOO!", &c10, &cpu, &modes, &slow, &PyDict_Type, &levels)) return nullptr;
    PyObject *name = PyUnicode_InternFromString("_current_level");
    if (!no_level) no_level = PyLong_FromLong(-1);
    if (!name || !no_level) return nullptr;
    dual_level.watch(levels, name);
    Py_DECREF(name);
    Py_XSETREF(modes_key, Py_NewRef(modes));
    Py_XSETREF(fallback, Py_NewRef(slow));
    sym = Symbols{};
    void *a = c10 ? dlopen(c10, RTLD_NOW | RTLD_NOLOAD) : nullptr, *b = cpu ? dlopen(cpu, RTLD_NOW | RTLD_NOLOAD) : nullptr;
    if (!a || !b) Py_RETURN_FALSE;
    struct {
        void *library;
        const char *name;
        void *where;
    } rows[] = {
        {a, "_ZN3c108GradMode10is_enabledEv", &sym.grad},
        {a, "_ZN3c1013InferenceMode10is_enabledEv", &sym.inference},
        {a, "_ZN3c1031get_default_dtype_as_scalartypeEv", &sym.default_dtype},
        {a, "_ZN3c104impl20TorchDispatchModeTLS9stack_lenEv", &sym.dispatch_modes},
        {b, "_ZN2at8autocast18get_autocast_dtypeEN3c1010DeviceTypeE", &sym.autocast_dtype},
        {b, "_ZN2at8autocast25is_autocast_cache_enabledEv", &sym.autocast_cache},
        {b, "_ZN2at4impl22PythonTorchFunctionTLS9stack_lenEv", &sym.function_modes},
        {b, "_ZN2at4impl22PythonTorchFunctionTLS18get_disabled_stateEv", &sym.function_disabled},
        {b, "_ZN2at4impl22PythonTorchFunctionTLS18set_disabled_stateENS0_26TorchFunctionDisabledStateE", &sym.disable_functions},
        {b, "_ZN2at13globalContextEv", &sym.context},
        {b, "_ZNK2at7Context23deterministicAlgorithmsEv", &sym.deterministic},
        {b, "_ZNK2at7Context31deterministicAlgorithmsWarnOnlyEv", &sym.warn_only},
        {b, "_ZNK2at7Context36deterministicFillUninitializedMemoryEv", &sym.fill},
        {b, "_ZN5torch8autograd11AnomalyMode8_enabledE", &sym.anomaly},
        {b, "_ZN2at23SavedTensorDefaultHooks13get_tls_stateEv", &sym.saved},
    };
    bool all = true;
    for (auto &r : rows) {
        void *p = dlsym(r.library, r.name);
        all &= p != nullptr;
        std::memcpy(r.where, &p, sizeof p);
    }
    sym.libc10 = a;
    sym.ok = all && dlsym(a, kLocalKeys);
    return PyBool_FromLong(sym.ok);
}

PyMethodDef methods[] = {
    {"global_state", global_state, METH_NOARGS, "global_state() -> GlobalState: torch's state now, in this thread."},
    {"set_state_source", set_state_source, METH_VARARGS, "set_state_source(libc10, libtorch_cpu, modes_key, fallback, dual_levels) -> bool"},
    {nullptr, nullptr, 0, nullptr},
};

} // namespace

constexpr int kAllDisabled = 2; // at::impl::TorchFunctionDisabledState::ALL_DISABLED

TorchFunctionsOff::TorchFunctionsOff() {
    if (!sym.ok) return;
    before_ = sym.function_disabled() & 0xFF;
    if (before_ != kAllDisabled) sym.disable_functions(kAllDisabled);
}

TorchFunctionsOff::~TorchFunctionsOff() {
    if (able() && before_ != kAllDisabled) sym.disable_functions(before_);
}

bool no_dispatch_modes() { return sym.ok && sym.dispatch_modes() == 0; }

bool saved_heard() { return !sym.ok || !found().saved->empty(); }

bool is_state(PyObject *o) { return Py_IS_TYPE(o, state_type); }

bool state_matches(PyObject *snapshot) {
    auto *o = reinterpret_cast<StateObject *>(snapshot);
    PyObject *now_modes = nullptr;
    bool eq;
    if (o->slow) {
        now_modes = PyObject_CallNoArgs(fallback);
        eq = now_modes && same(now_modes, o->slow);
    } else {
        if (!(now() == o->state)) return false;
        if (!o->modes) return true;
        now_modes = PyObject_CallNoArgs(modes_key);
        eq = now_modes && same(now_modes, o->modes);
    }
    if (!now_modes) PyErr_Clear();
    Py_XDECREF(now_modes);
    return eq;
}

} // namespace pliant

extern "C" int pl_state_init(PyObject *module) {
    pliant::state_type = reinterpret_cast<PyTypeObject *>(PyType_FromSpec(&pliant::state_spec));
    if (!pliant::state_type) return -1;
    if (PyModule_AddObjectRef(module, "GlobalState", reinterpret_cast<PyObject *>(pliant::state_type)) < 0) return -1;
    return PyModule_AddFunctions(module, pliant::methods);
}
