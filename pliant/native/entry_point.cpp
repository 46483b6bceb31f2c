// `native.EntryPoint`: a callable that stands for a Python function, binds arguments as CPython does and tries the entries.
#include "state.h"
#include <climits>
#include <cstddef>
#include <ctime>
#include <structmember.h>

namespace {

struct EntryPointObject {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *fn, *miss, *verify, *trial, *dict, *weakrefs;
    PyObject *origin, *follow, *followed; // the function whose twin `fn` is, or null; what makes them alike again; the code of it when they were
    long long left; // calls to let pass before one goes to `verify`, or before `trial` is asked
    PyObject *times[2]; // of the calls that are timed: lists of seconds, compiled and as they are
    int timed, turn;    // calls of a trial, and how many of them are done
    int plain;          // the calls that pass run as they are
    int under_way;      // a timed call is: 1 compiled, 2 as it is
    int rounds;         // timed is what passes from one call to the next, which is where their backward passes run
    int open;           // such a time has begun: 1 compiled, 2 as it is
    double began;       // and when, in which thread, and behind how many misses in which something was done
    unsigned long long misses;
    unsigned long thread;
};
PyTypeObject *entry_point_type = nullptr;
constexpr int kRetries = 4; // a miss callback that keeps saying "retry" without an entry that holds ends in an eager call

// ---- binding: arguments of a call to the slots of a frame ---------------------------------------------------------

int find_name(PyCodeObject *code, PyObject *name) {
    const int lo = code->co_posonlyargcount, hi = code->co_argcount + code->co_kwonlyargcount;
    PyObject **names = reinterpret_cast<PyTupleObject *>(code->co_localsplusnames)->ob_item;
    for (int i = lo; i < hi; i++)
        if (names[i] == name) return i;
    for (int i = lo; i < hi; i++)
        if (PyUnicode_Compare(names[i], name) == 0) return i;
    return -1;
}

// Fill slots[0..pl_frame_args) with new references. False (no exception) when CPython would raise: the caller then calls the
// original function, so that the user sees its own TypeError.
bool bind(PyFunctionObject *fn, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames, PyObject **slots) {
    auto *code = reinterpret_cast<PyCodeObject *>(fn->func_code);
    const Py_ssize_t npos = code->co_argcount, nkw = code->co_kwonlyargcount, named = npos + nkw;
    const Py_ssize_t given = nargs < npos ? nargs : npos;
    const bool varargs = code->co_flags & CO_VARARGS, varkw = code->co_flags & CO_VARKEYWORDS;
    Py_ssize_t i = 0;
    for (; i < given; i++) slots[i] = Py_NewRef(args[i]);
    PyObject *kwdict = nullptr;
    if (nargs > npos && !varargs) return false;
    if (varargs) {
        PyObject *rest = PyTuple_New(nargs - given);
        if (!rest) return false;
        for (i = given; i < nargs; i++) PyTuple_SET_ITEM(rest, i - given, Py_NewRef(args[i]));
        slots[named] = rest;
    }
    if (varkw && !(slots[named + varargs] = kwdict = PyDict_New())) return false;
    for (i = 0; kwnames && i < PyTuple_GET_SIZE(kwnames); i++) {
        PyObject *name = PyTuple_GET_ITEM(kwnames, i);
        if (!PyUnicode_Check(name)) return false;
        const int at = find_name(code, name);
        if (at >= 0) {
            if (slots[at]) return false;
            slots[at] = Py_NewRef(args[nargs + i]);
        } else if (!kwdict || PyDict_SetItem(kwdict, name, args[nargs + i]) < 0) {
            return false;
        }
    }
    if (nargs < npos) {
        const Py_ssize_t ndef = fn->func_defaults ? PyTuple_GET_SIZE(fn->func_defaults) : 0, first = npos - ndef;
        for (i = given; i < npos; i++) {
            if (slots[i]) continue;
            if (i < first) return false;
            slots[i] = Py_NewRef(PyTuple_GET_ITEM(fn->func_defaults, i - first));
        }
    }
    for (i = npos; i < named; i++) {
        if (slots[i]) continue;
        PyObject *name = PyTuple_GET_ITEM(code->co_localsplusnames, i);
        PyObject *v = fn->func_kwdefaults ? PyDict_GetItemWithError(fn->func_kwdefaults, name) : nullptr;
        if (!v) return false;
        slots[i] = Py_NewRef(v);
    }
    return true;
}

// ---- calling ------------------------------------------------------------------------------------------------------

// The slots that the entry called last was given. They are the callee's alone once it says so (`native.take_slots`): what the program then
// lets go of is gone, as it would be in CPython's frame.
struct Handed {
    PyObject **slots;
    Py_ssize_t n;
    Handed *outer;
    void release() {
        for (; n > 0; n--) Py_DECREF(slots[n - 1]);
    }
};
thread_local Handed *handed = nullptr;

PyObject *take_slots(PyObject *, PyObject *) {
    if (Handed *h = handed) {
        handed = nullptr; // others come before the next entry, and these slots are not theirs
        h->release();
    }
    Py_RETURN_NONE;
}

// A twin does what its original does, whatever the program has made of that since: follow(fn, origin). False with an exception.
bool keep_alike(EntryPointObject *self) {
    const auto *twin = reinterpret_cast<PyFunctionObject *>(self->fn), *origin = reinterpret_cast<PyFunctionObject *>(self->origin);
    if (origin->func_code == self->followed && origin->func_defaults == twin->func_defaults &&
        origin->func_kwdefaults == twin->func_kwdefaults)
        return true;
    PyObject *code = Py_NewRef(origin->func_code), *done = PyObject_CallFunctionObjArgs(self->follow, self->fn, self->origin, nullptr);
    if (done) Py_XSETREF(self->followed, code);
    else Py_DECREF(code);
    Py_XDECREF(done);
    return done != nullptr;
}

PyObject *run_eagerly(EntryPointObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames) {
    if (self->origin && !keep_alike(self)) return nullptr;
    pl_count_eager();
    return PyObject_Vectorcall(self->fn, args, nargsf, kwnames);
}

// Calls the entry that holds for these frame slots. 1: *result is set (or an exception); 0: no entry holds.
int try_entries(PlCodeState *state, PyCodeObject *code, PyObject *fn, PyObject *const *slots, Py_ssize_t n, PyObject **result) {
    if (!state || pl_state_entries(state) == 0) return 0;
    const Py_ssize_t cap = pl_state_slots(state);
    PyObject *small[32], **call = n + cap + 1 <= 32 ? small : PyMem_New(PyObject *, n + cap + 1);
    if (!call) {
        PyErr_NoMemory();
        *result = nullptr;
        return 1;
    }
    Py_ssize_t extra = 0;
    PyObject *target = pl_entries_find(state, slots, n, fn, call + 1 + n, cap, &extra);
    if (target) {
        for (Py_ssize_t i = 0; i < n; i++) call[1 + i] = slots[i];
        const int mode = pl_mode(); // compiled code runs with the frame hook off
        if (mode != PL_OFF) pl_enter(PL_OFF);
        Handed h{call + 1 + n, extra, handed};
        handed = &h;
        PyObject *mark = pl_mark_code(code);
        *result = PyObject_Vectorcall(target, call + 1, static_cast<size_t>(n + extra) | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
        pl_unmark(mark);
        handed = h.outer;
        PyObject *left = *result ? nullptr : pl_left();
        h.release();
        Py_DECREF(target);
        if (left) *result = pl_leave(left);
        if (mode != PL_OFF) pl_enter(mode);
    }
    if (call != small) PyMem_Free(call);
    return target != nullptr;
}

// Entries, then the miss callback, until something ran.
PyObject *serve(EntryPointObject *self, PyFunctionObject *fn, PyCodeObject *code, PlCodeState *state, PyObject *const *slots, Py_ssize_t n,
                PyObject *const *args, size_t nargsf, PyObject *kwnames) {
    PyObject *result = nullptr, *judge = nullptr;
    for (int round = 0; round <= kRetries; round++) {
        if (round || !state) state = pl_state_of(code); // a miss makes it
        if (try_entries(state, code, reinterpret_cast<PyObject *>(fn), slots, n, &result)) {
            if (result || !pl_again(&judge)) return result;
            const int mode = pl_enter(PL_OFF); // or the hook would find the same entry
            result = run_eagerly(self, args, nargsf, kwnames);
            pl_enter(mode);
            return pl_judged(judge, result);
        }
        state = pl_state_of(code);
        if (round == kRetries || self->miss == Py_None || (state && pl_state_flags(state) & (PL_RUN_ONLY | PL_SKIP))) break;
        PyObject *frame_args = PyTuple_New(n);
        if (!frame_args) return nullptr;
        for (Py_ssize_t i = 0; i < n; i++) PyTuple_SET_ITEM(frame_args, i, Py_NewRef(slots[i]));
        pl_count_miss();
        PyObject *miss = Py_NewRef(self->miss);
        const int mode = pl_mode();
        if (mode != PL_OFF) pl_enter(PL_OFF);
        PyObject *answer = PyObject_CallFunctionObjArgs(miss, reinterpret_cast<PyObject *>(self), reinterpret_cast<PyObject *>(fn),
                                                        frame_args, nullptr);
        if (mode != PL_OFF) pl_enter(mode);
        Py_DECREF(miss);
        Py_DECREF(frame_args);
        if (!answer) return nullptr;
        const int what = pl_miss_answer(answer, &result);
        Py_DECREF(answer);
        if (what == 2) return result;
        if (what < 0) return nullptr;
        if (what == 1) {
            judge = result;
            break;
        }
    }
    return pl_judged(judge, run_eagerly(self, args, nargsf, kwnames));
}

PyObject *entry_point_call(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames) {
    auto *self = reinterpret_cast<EntryPointObject *>(callable);
    if (self->origin && !keep_alike(self)) return nullptr;
    auto *fn = reinterpret_cast<PyFunctionObject *>(self->fn);
    auto *code = reinterpret_cast<PyCodeObject *>(fn->func_code);
    const Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
    PlCodeState *state = pl_state_of(code);
    if (!pl_enabled() || (state && pl_state_flags(state) & PL_SKIP)) return run_eagerly(self, args, nargsf, kwnames);
    // The callee may replace fn.__code__, or drop the last reference to us.
    Py_INCREF(callable);
    Py_INCREF(fn);
    Py_INCREF(code);
    const Py_ssize_t n = pl_frame_args(code);
    PyObject *result;
    if (!kwnames && nargs == n && code->co_argcount == n) {
        result = serve(self, fn, code, state, args, n, args, nargsf, kwnames);
    } else {
        PyObject *small[24], **slots = n <= 24 ? small : PyMem_New(PyObject *, n);
        if (!slots) {
            result = PyErr_NoMemory();
        } else {
            for (Py_ssize_t i = 0; i < n; i++) slots[i] = nullptr;
            if (bind(fn, args, nargs, kwnames, slots)) {
                result = serve(self, fn, code, state, slots, n, args, nargsf, kwnames);
            } else {
                PyErr_Clear();
                result = run_eagerly(self, args, nargsf, kwnames);
            }
            for (Py_ssize_t i = 0; i < n; i++) Py_XDECREF(slots[i]);
            if (slots != small) PyMem_Free(slots);
        }
    }
    Py_DECREF(code);
    Py_DECREF(fn);
    Py_DECREF(callable);
    return result;
}

// What an entry point with `verify` has in the place of `entry_point_call`, so that the others pay nothing: every so many calls go to
// verify(entry_point, args, kwargs), with the frame hook off; it says in `_left` how many are to pass before the next.
PyObject *watched_call(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames) {
    auto *self = reinterpret_cast<EntryPointObject *>(callable);
    if (self->left > 0 || !pl_enabled() || pl_mode() == PL_CAPTURE || self->verify == Py_None) {
        if (self->left > 0) self->left--;
        return entry_point_call(callable, args, nargsf, kwnames);
    }
    if (self->origin && !keep_alike(self)) return nullptr;
    PlCodeState *state = pl_state_of(reinterpret_cast<PyCodeObject *>(reinterpret_cast<PyFunctionObject *>(self->fn)->func_code));
    if (state && pl_state_flags(state) & PL_SKIP) return entry_point_call(callable, args, nargsf, kwnames);
    const Py_ssize_t nargs = PyVectorcall_NARGS(nargsf), nkw = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
    PyObject *given = PyTuple_New(nargs), *named = PyDict_New(), *result = nullptr;
    bool ok = given && named;
    for (Py_ssize_t i = 0; ok && i < nargs; i++) PyTuple_SET_ITEM(given, i, Py_NewRef(args[i]));
    for (Py_ssize_t i = 0; ok && i < nkw; i++) ok = PyDict_SetItem(named, PyTuple_GET_ITEM(kwnames, i), args[nargs + i]) == 0;
    if (ok) {
        PyObject *verify = Py_NewRef(self->verify);
        const int mode = pl_mode();
        if (mode != PL_OFF) pl_enter(PL_OFF);
        result = PyObject_CallFunctionObjArgs(verify, callable, given, named, nullptr);
        if (mode != PL_OFF) pl_enter(mode);
        Py_DECREF(verify);
    }
    Py_XDECREF(given);
    Py_XDECREF(named);
    return result;
}

// ---- trials ---------------------------------------------------------------------------------------------------------

// As it is, without compiled code below either.
PyObject *run_plainly(EntryPointObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames) {
    const int mode = pl_mode();
    if (mode != PL_OFF) pl_enter(PL_OFF);
    PyObject *result = run_eagerly(self, args, nargsf, kwnames);
    if (mode != PL_OFF) pl_enter(mode);
    return result;
}

// trial(entry point, seconds of compiled calls, seconds of others) -> (whether the next calls run as they are, how many of them, how many
// are timed behind these, whether each of those up to the next call). An error in there is told, and ends the trials.
void ask_trial(EntryPointObject *self) {
    self->left = LLONG_MAX;
    PyObject *none = PyTuple_New(0), *trial = Py_NewRef(self->trial);
    PyObject *compiled = self->times[0] ? self->times[0] : Py_XNewRef(none), *plain = self->times[1] ? self->times[1] : Py_XNewRef(none);
    self->times[0] = self->times[1] = nullptr;
    self->timed = self->turn = self->rounds = 0;
    const int mode = pl_mode();
    if (mode != PL_OFF) pl_enter(PL_OFF);
    PyObject *answer = none ? PyObject_CallFunctionObjArgs(trial, reinterpret_cast<PyObject *>(self), compiled, plain, nullptr) : nullptr;
    if (mode != PL_OFF) pl_enter(mode);
    int as_is = 0, timed = 0, rounds = 0;
    long long pass = 0;
    if (answer && PyArg_ParseTuple(answer, "pLi|p", &as_is, &pass, &timed, &rounds)) {
        self->plain = as_is;
        self->left = pass;
        self->timed = timed;
        self->rounds = rounds;
    } else {
        self->plain = 0;
        PyErr_WriteUnraisable(trial);
    }
    Py_XDECREF(answer);
    Py_XDECREF(compiled);
    Py_XDECREF(plain);
    Py_XDECREF(none);
    Py_DECREF(trial);
}

double processor_seconds() {
    timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

void note_time(EntryPointObject *self, int way, double seconds) {
    PyObject *type, *error, *tb, *v = nullptr;
    PyErr_Fetch(&type, &error, &tb);
    if (!self->times[way]) self->times[way] = PyList_New(0);
    if (!self->times[way] || !(v = PyFloat_FromDouble(seconds)) || PyList_Append(self->times[way], v) < 0) PyErr_Clear();
    Py_XDECREF(v);
    PyErr_Restore(type, error, tb);
}

// The next call comes: what has passed since the last one began is its time, if it is one thread's and nothing was captured.
void end_round(EntryPointObject *self) {
    const int way = self->open - 1;
    self->open = 0;
    if (self->thread == PyThread_get_thread_ident() && self->misses == pl_busy_misses()) note_time(self, way, processor_seconds() - self->began);
}

// What an entry point with `trial` has in the place of `entry_point_call`. While calls are timed, they run compiled or as they are in the
// order of the Thue-Morse sequence, which keeps in step with no period of the program's. Calls that raise or capture are not counted (those
// whose misses are answered by "rest" are: the next ones will cost as much), and a call inside of one that is timed runs as that one does.
// Where it is heard what is saved for gradients (checkpoints), all run compiled: who runs again there saves what the first run has saved.
PyObject *tried_call(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames) {
    auto *self = reinterpret_cast<EntryPointObject *>(callable);
    if (self->open && !self->under_way) end_round(self);
    if ((self->plain || self->timed) && pliant::saved_heard()) return entry_point_call(callable, args, nargsf, kwnames);
    if (self->left > 0 && !self->under_way) {
        self->left--;
        return self->plain ? run_plainly(self, args, nargsf, kwnames) : entry_point_call(callable, args, nargsf, kwnames);
    }
    if (self->trial == Py_None || !pl_enabled() || pl_mode() == PL_CAPTURE) return entry_point_call(callable, args, nargsf, kwnames);
    if (self->under_way)
        return self->under_way == 2 ? run_plainly(self, args, nargsf, kwnames) : entry_point_call(callable, args, nargsf, kwnames);
    if (self->turn >= self->timed) {
        ask_trial(self);
        if (self->left > 0 || self->timed == 0) {
            if (self->left > 0) self->left--;
            return self->plain ? run_plainly(self, args, nargsf, kwnames) : entry_point_call(callable, args, nargsf, kwnames);
        }
    }
    const int way = __builtin_popcount(static_cast<unsigned>(self->turn++)) & 1;
    const unsigned long long misses = pl_busy_misses();
    Py_INCREF(callable);
    self->under_way = way + 1;
    const double began = processor_seconds();
    PyObject *result = way ? run_plainly(self, args, nargsf, kwnames) : entry_point_call(callable, args, nargsf, kwnames);
    const double seconds = processor_seconds() - began;
    self->under_way = 0;
    if (result && misses == pl_busy_misses()) {
        if (self->rounds) {
            self->open = way + 1;
            self->began = began;
            self->misses = misses;
            self->thread = PyThread_get_thread_ident();
        } else {
            note_time(self, way, seconds);
        }
    }
    Py_DECREF(callable);
    return result;
}

// Trials begin anew.
PyObject *untried(PyObject *o, PyObject *) {
    auto *self = reinterpret_cast<EntryPointObject *>(o);
    Py_CLEAR(self->times[0]);
    Py_CLEAR(self->times[1]);
    self->left = self->timed = self->turn = self->plain = self->rounds = self->open = 0;
    Py_RETURN_NONE;
}

PyObject *unwatched(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
    return entry_point_call(self, args, static_cast<size_t>(nargs), kwnames);
}

// ---- the type -----------------------------------------------------------------------------------------------------

PyObject *original_of(EntryPointObject *self) { return self->origin ? self->origin : self->fn; }

bool copy_identity(EntryPointObject *self) {
    static const char *const names[] = {"__module__", "__name__", "__qualname__", "__doc__"};
    self->dict = PyDict_New();
    if (!self->dict) return false;
    PyObject *own = PyObject_GetAttrString(original_of(self), "__dict__");
    if (!own || PyDict_Update(self->dict, own) < 0) {
        Py_XDECREF(own);
        return false;
    }
    Py_DECREF(own);
    for (const char *name : names) {
        PyObject *v = PyObject_GetAttrString(original_of(self), name);
        if (!v) PyErr_Clear();
        else if (PyDict_SetItemString(self->dict, name, v) < 0) {
            Py_DECREF(v);
            return false;
        }
        Py_XDECREF(v);
    }
    return PyDict_SetItemString(self->dict, "__wrapped__", original_of(self)) == 0;
}

PyObject *entry_point_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static const char *names[] = {"fn", "miss", "verify", "trial", "origin", "follow", nullptr};
    PyObject *fn, *miss = Py_None, *verify = Py_None, *trial = Py_None, *origin = nullptr, *follow = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!|OOOO!O", const_cast<char **>(names), &PyFunction_Type, &fn, &miss, &verify, &trial,
                                     &PyFunction_Type, &origin, &follow))
        return nullptr;
    auto *self = reinterpret_cast<EntryPointObject *>(type->tp_alloc(type, 0));
    if (!self) return nullptr;
    self->vectorcall = verify != Py_None ? watched_call : trial != Py_None ? tried_call : entry_point_call;
    self->fn = Py_NewRef(fn);
    self->miss = Py_NewRef(miss);
    self->verify = Py_NewRef(verify);
    self->trial = Py_NewRef(trial);
    if (origin) {
        self->origin = Py_NewRef(origin);
        self->follow = Py_NewRef(follow);
        self->followed = Py_NewRef(reinterpret_cast<PyFunctionObject *>(origin)->func_code);
    }
    if (!copy_identity(self)) {
        Py_DECREF(self);
        return nullptr;
    }
    return reinterpret_cast<PyObject *>(self);
}

int entry_point_traverse(PyObject *o, visitproc visit, void *arg) {
    auto *self = reinterpret_cast<EntryPointObject *>(o);
    Py_VISIT(Py_TYPE(o));
    Py_VISIT(self->fn);
    Py_VISIT(self->miss);
    Py_VISIT(self->verify);
    Py_VISIT(self->trial);
    Py_VISIT(self->origin);
    Py_VISIT(self->follow);
    Py_VISIT(self->dict);
    return 0;
}

int entry_point_clear(PyObject *o) { // `fn` and `miss` stay: calls in progress rely on them, and breaking `dict` breaks cycles
    auto *self = reinterpret_cast<EntryPointObject *>(o);
    Py_CLEAR(self->dict);
    Py_XSETREF(self->miss, Py_NewRef(Py_None));
    Py_XSETREF(self->verify, Py_NewRef(Py_None));
    Py_XSETREF(self->trial, Py_NewRef(Py_None));
    return 0;
}

void entry_point_dealloc(PyObject *o) {
    PyObject_GC_UnTrack(o);
    auto *self = reinterpret_cast<EntryPointObject *>(o);
    if (self->weakrefs) PyObject_ClearWeakRefs(o);
    Py_XDECREF(self->fn);
    Py_XDECREF(self->miss);
    Py_XDECREF(self->verify);
    Py_XDECREF(self->trial);
    Py_XDECREF(self->origin);
    Py_XDECREF(self->follow);
    Py_XDECREF(self->followed);
    Py_XDECREF(self->times[0]);
    Py_XDECREF(self->times[1]);
    Py_XDECREF(self->dict);
    PyTypeObject *t = Py_TYPE(o);
    t->tp_free(o);
    Py_DECREF(t);
}

PyObject *entry_point_get(PyObject *self, PyObject *obj, PyObject *) {
    return obj && obj != Py_None ? PyMethod_New(self, obj) : Py_NewRef(self);
}

PyObject *entry_point_repr(PyObject *self) {
    return PyUnicode_FromFormat("<compiled %R>", original_of(reinterpret_cast<EntryPointObject *>(self)));
}

// Like a function, it is pickled and copied by name.
PyObject *entry_point_reduce(PyObject *self, PyObject *) { return PyObject_GetAttrString(self, "__qualname__"); }

PyObject *forward(PyObject *self, void *name) {
    return PyObject_GetAttrString(original_of(reinterpret_cast<EntryPointObject *>(self)), static_cast<const char *>(name));
}

#define FORWARD(name) {name, forward, nullptr, "of the wrapped function", const_cast<char *>(name)}
PyGetSetDef getset[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    FORWARD("__code__"), FORWARD("__defaults__"), FORWARD("__kwdefaults__"), FORWARD("__globals__"), FORWARD("__closure__"),
    FORWARD("__annotations__"),
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};
PyMemberDef members[] = {
    {"_fn", T_OBJECT, offsetof(EntryPointObject, fn), READONLY, "the function that it stands for"},
    {"_origin", T_OBJECT, offsetof(EntryPointObject, origin), READONLY, "the function whose twin `_fn` is, or None"},
    {"_miss", T_OBJECT, offsetof(EntryPointObject, miss), 0, "called as miss(entry_point, fn, frame_args) when no entry holds"},
    {"_left", T_LONGLONG, offsetof(EntryPointObject, left), 0, "calls to let pass before one goes to `verify`, or before `trial` is asked"},
    {"__dictoffset__", T_PYSSIZET, offsetof(EntryPointObject, dict), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(EntryPointObject, weakrefs), READONLY, nullptr},
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(EntryPointObject, vectorcall), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};
PyMethodDef methods[] = {
    {"__reduce__", entry_point_reduce, METH_NOARGS, nullptr},
    {"_unwatched", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(unwatched)), METH_FASTCALL | METH_KEYWORDS,
     "_unwatched(*args, **kwargs): a call that does not go to `verify`."},
    {"_untried", untried, METH_NOARGS, "_untried(): what `trial` has said is forgotten."},
    {nullptr, nullptr, 0, nullptr},
};
PyType_Slot slots[] = {
    {Py_tp_new, reinterpret_cast<void *>(entry_point_new)},
    {Py_tp_dealloc, reinterpret_cast<void *>(entry_point_dealloc)},
    {Py_tp_traverse, reinterpret_cast<void *>(entry_point_traverse)},
    {Py_tp_clear, reinterpret_cast<void *>(entry_point_clear)},
    {Py_tp_call, reinterpret_cast<void *>(PyVectorcall_Call)},
    {Py_tp_descr_get, reinterpret_cast<void *>(entry_point_get)},
    {Py_tp_repr, reinterpret_cast<void *>(entry_point_repr)},
    {Py_tp_members, members},
    {Py_tp_getset, getset},
    {Py_tp_methods, methods},
    {0, nullptr},
};
PyType_Spec spec = {"pliant.native.EntryPoint", sizeof(EntryPointObject), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR, slots};

} // namespace

static PyMethodDef module_methods[] = {
    {"take_slots", take_slots, METH_NOARGS,
     "take_slots(): said first by a function that an entry point calls: its caller lets go of the slots that it has handed over."},
    {nullptr, nullptr, 0, nullptr},
};

extern "C" int pl_entry_point_init(PyObject *module) {
    if (PyModule_AddFunctions(module, module_methods) < 0) return -1;
    entry_point_type = reinterpret_cast<PyTypeObject *>(PyType_FromSpec(&spec));
    if (!entry_point_type) return -1;
    return PyModule_AddObjectRef(module, "EntryPoint", reinterpret_cast<PyObject *>(entry_point_type));
}
