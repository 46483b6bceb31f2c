// Entries of a code object: (guard, target) pairs, most recently used first, kept in the code object's extra slot.
#include "guards.h"
#include <algorithm>
#include <structmember.h>

using namespace pliant;

namespace {

struct EntryObject {
    PyObject_HEAD
    PyObject *guard, *target, *info;
    Py_ssize_t room, slots; // what the guard says of itself, `guard_room` and `guard_slots`: they stay as they are
    unsigned long long hits;
    const EntryObject *after; // which ran after it the last time: compared, never read
};
PyTypeObject *entry_type = nullptr;
Py_ssize_t extra_index = -1;
unsigned class_epoch = 1;       // raised to forget every cached answer of `classify`
bool enabled = true;
thread_local int disable_depth = 0;
unsigned long long n_calls = 0, n_misses = 0, n_rested = 0, n_eager = 0;
PyObject *str_retry, *str_eager, *str_rest, *str_value, *again, *leave;

} // namespace

struct PlCodeState {
    int flags = 0;
    int klass = 0;
    unsigned epoch = 0;
    Py_ssize_t max_slots = 0;
    std::vector<EntryObject *> entries;
    ~PlCodeState() {
        auto old = std::move(entries);
        for (auto *e : old) Py_DECREF(e);
    }
    void measure() {
        max_slots = 0;
        for (auto *e : entries) max_slots = std::max(max_slots, e->room);
    }
    size_t position(const EntryObject *e) const { // 0 if it is not there, too
        const auto at = std::find(entries.begin(), entries.end(), e);
        return at == entries.end() ? 0 : static_cast<size_t>(at - entries.begin());
    }
    void remove(EntryObject *e) {
        auto at = std::find(entries.begin(), entries.end(), e);
        if (at == entries.end()) return;
        entries.erase(at);
        measure();
        Py_DECREF(e);
    }
};

static void free_state(void *p) { delete static_cast<PlCodeState *>(p); }

extern "C" {

PlCodeState *pl_state_of(PyCodeObject *code) {
    void *p = nullptr;
    PL_CODE_EXTRA(reinterpret_cast<PyObject *>(code), extra_index, &p);
    return static_cast<PlCodeState *>(p);
}

PlCodeState *pl_state_make(PyCodeObject *code) {
    PlCodeState *s = pl_state_of(code);
    if (s) return s;
    s = new PlCodeState();
    if (PL_SET_CODE_EXTRA(reinterpret_cast<PyObject *>(code), extra_index, s) < 0) {
        delete s;
        return nullptr;
    }
    return s;
}

int pl_state_flags(const PlCodeState *s) { return s->flags; }
Py_ssize_t pl_state_slots(const PlCodeState *s) { return s->max_slots; }
Py_ssize_t pl_state_entries(const PlCodeState *s) { return static_cast<Py_ssize_t>(s->entries.size()); }
int pl_state_class(const PlCodeState *s) { return s->epoch == class_epoch ? s->klass : 0; }
void pl_state_set_class(PlCodeState *s, int value) {
    s->klass = value;
    s->epoch = class_epoch;
}
int pl_enabled(void) { return enabled && disable_depth == 0; }
void pl_count_call(void) { n_calls++; }
void pl_count_miss(void) { n_misses++; }
void pl_count_eager(void) { n_eager++; }
unsigned long long pl_busy_misses(void) { return n_misses - n_rested; }

PyObject *pl_entries_find(PlCodeState *s, PyObject *const *args, Py_ssize_t nargs, PyObject *func, PyObject **out, Py_ssize_t cap,
                          Py_ssize_t *nout) {
    bool moved = false; // whatever is at that place now has not been looked at
    const auto at = [&](size_t i) -> PyObject * {
        EntryObject *e = s->entries[i];
        if (e->room > cap) return nullptr; // added meanwhile
        Py_INCREF(e);
        PyObject *target = nullptr;
        if (guard_check(e->guard, args, nargs, func, out)) {
            e->hits++;
            n_calls++;
            if (!s->entries.empty()) s->entries[0]->after = e;
            if (i && i < s->entries.size() && s->entries[i] == e)
                std::rotate(s->entries.begin(), s->entries.begin() + static_cast<Py_ssize_t>(i),
                            s->entries.begin() + static_cast<Py_ssize_t>(i) + 1);
            target = Py_NewRef(e->target);
            *nout = e->slots;
        } else {
            const bool dead = guard_dead(e->guard), still = i < s->entries.size() && s->entries[i] == e;
            if (dead) s->remove(e);
            moved = dead || !still;
        }
        Py_DECREF(e);
        return target;
    };
    // The one at the front ran last. What ran after it then is looked at first: the layers of a loop take turns, and the one that ran
    // longest ago is due.
    const EntryObject *guessed = s->entries.size() > 1 ? s->entries[0]->after : nullptr;
    if (const size_t i = guessed ? s->position(guessed) : 0; i)
        if (PyObject *target = at(i)) return target;
    // A guard's predicate is Python code, which may add or remove entries: look at the list anew after each check.
    // A bound, since a predicate that adds entries whenever it is asked would never come to an end.
    size_t budget = 2 * s->entries.size() + 8;
    for (size_t i = 0; i < s->entries.size() && budget > 0; i++, budget--) {
        if (i && s->entries[i] == guessed) continue; // it does not hold
        moved = false;
        if (PyObject *target = at(i)) return target;
        if (moved) i--;
    }
    return nullptr;
}

int pl_miss_answer(PyObject *answer, PyObject **value) {
    *value = nullptr;
    PyObject *what = PyTuple_Check(answer) && PyTuple_GET_SIZE(answer) > 0 ? PyTuple_GET_ITEM(answer, 0) : nullptr;
    auto is = [what](PyObject *s) { return what == s || (what && PyUnicode_CheckExact(what) && PyUnicode_Compare(what, s) == 0); };
    if (is(str_retry)) return 0;
    if (is(str_rest)) {
        n_rested++;
        return 1;
    }
    if (is(str_eager)) {
        if (PyTuple_GET_SIZE(answer) == 2) *value = Py_NewRef(PyTuple_GET_ITEM(answer, 1));
        return 1;
    }
    if (is(str_value) && PyTuple_GET_SIZE(answer) == 2) {
        *value = Py_NewRef(PyTuple_GET_ITEM(answer, 1));
        return 2;
    }
    if (!PyErr_Occurred())
        PyErr_Format(PyExc_TypeError, "a miss callback must return ('retry',), ('eager',), ('eager', judge), ('rest',) or ('value', x), not %.100R", answer);
    return -1;
}

PyObject *pl_judged(PyObject *judge, PyObject *result) {
    if (!judge) return result;
    PyObject *type = nullptr, *error = nullptr, *tb = nullptr;
    if (!result) {
        PyErr_Fetch(&type, &error, &tb);
        PyErr_NormalizeException(&type, &error, &tb);
    }
    const int old = pl_mode() == PL_OFF ? PL_OFF : pl_enter(PL_OFF);
    PyObject *said = PyObject_CallOneArg(judge, error ? error : Py_None);
    if (old != PL_OFF) pl_enter(old);
    Py_DECREF(judge);
    if (said) {
        Py_DECREF(said);
        if (!result) PyErr_Restore(type, error, tb);
        return result;
    }
    Py_XDECREF(result);
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(tb);
    return nullptr;
}

int pl_again(PyObject **judge) {
    *judge = nullptr;
    if (!PyErr_ExceptionMatches(again)) return 0;
    PyObject *type, *error, *tb;
    PyErr_Fetch(&type, &error, &tb);
    PyErr_NormalizeException(&type, &error, &tb);
    PyObject *args = error ? PyObject_GetAttrString(error, "args") : nullptr;
    if (args && PyTuple_Check(args) && PyTuple_GET_SIZE(args) == 1) *judge = Py_NewRef(PyTuple_GET_ITEM(args, 0));
    if (!args) PyErr_Clear();
    Py_XDECREF(args);
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(tb);
    return 1;
}

PyObject *pl_left(void) {
    if (!PyErr_ExceptionMatches(leave)) return nullptr;
    PyObject *type, *error, *tb;
    PyErr_Fetch(&type, &error, &tb);
    PyErr_NormalizeException(&type, &error, &tb);
    PyObject *args = error ? PyObject_GetAttrString(error, "args") : nullptr;
    if (args && !(PyTuple_Check(args) && PyTuple_GET_SIZE(args) == 2)) Py_CLEAR(args);
    if (!args) {
        PyErr_Clear();
        PyErr_Restore(type, error, tb);
        return nullptr;
    }
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(tb);
    return args;
}

PyObject *pl_leave(PyObject *args) {
    PyObject *fn = Py_NewRef(PyTuple_GET_ITEM(args, 0)), *state = Py_NewRef(PyTuple_GET_ITEM(args, 1));
    Py_DECREF(args);
    PyObject *result = PyObject_CallOneArg(fn, state);
    Py_DECREF(state);
    Py_DECREF(fn);
    return result;
}

} // extern "C"

// ---- the Entry type -----------------------------------------------------------------------------------------------

static int entry_traverse(PyObject *self, visitproc visit, void *arg) {
    auto *e = reinterpret_cast<EntryObject *>(self);
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(e->guard);
    Py_VISIT(e->target);
    Py_VISIT(e->info);
    return 0;
}

static void entry_dealloc(PyObject *self) {
    PyObject_GC_UnTrack(self);
    auto *e = reinterpret_cast<EntryObject *>(self);
    Py_XDECREF(e->guard); // set once, read by C code without checks: never cleared while alive
    Py_XDECREF(e->target);
    Py_XDECREF(e->info);
    PyTypeObject *t = Py_TYPE(self);
    t->tp_free(self);
    Py_DECREF(t);
}

static PyMemberDef entry_members[] = {
    {"guard", T_OBJECT, offsetof(EntryObject, guard), READONLY, "native.Guard"},
    {"target", T_OBJECT, offsetof(EntryObject, target), 0, "called as target(*frame_args, *slots)"},
    {"info", T_OBJECT, offsetof(EntryObject, info), 0, "whatever add_entry was given"},
    {"hits", T_ULONGLONG, offsetof(EntryObject, hits), READONLY, "how often this entry ran"},
    {nullptr, 0, 0, 0, nullptr},
};
static PyType_Slot entry_slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void *>(entry_dealloc)},
    {Py_tp_traverse, reinterpret_cast<void *>(entry_traverse)},
    {Py_tp_members, entry_members},
    {Py_tp_doc, const_cast<char *>("One compiled version of a code object: a guard and what to call when it holds.")},
    {0, nullptr},
};
static PyType_Spec entry_spec = {"pliant.native.Entry", sizeof(EntryObject), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, entry_slots};

// ---- module functions ---------------------------------------------------------------------------------------------

static PyObject *add_entry(PyObject *, PyObject *args, PyObject *kwargs) {
    static const char *names[] = {"code", "guard", "target", "front", "info", nullptr};
    PyObject *code, *guard, *target, *info = Py_None;
    int front = 1;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!OO|pO", const_cast<char **>(names), &PyCode_Type, &code, &guard, &target,
                                     &front, &info))
        return nullptr;
    if (!is_guard(guard) || !PyCallable_Check(target)) return PyErr_Format(PyExc_TypeError, "add_entry(code, Guard, callable)");
    PlCodeState *s = pl_state_make(reinterpret_cast<PyCodeObject *>(code));
    if (!s) return nullptr;
    auto *e = reinterpret_cast<EntryObject *>(entry_type->tp_alloc(entry_type, 0));
    if (!e) return nullptr;
    e->guard = Py_NewRef(guard);
    e->room = guard_room(guard);
    e->slots = guard_slots(guard);
    e->target = Py_NewRef(target);
    e->info = Py_NewRef(info);
    s->entries.insert(front ? s->entries.begin() : s->entries.end(), e);
    s->measure();
    return Py_NewRef(reinterpret_cast<PyObject *>(e));
}

static PyObject *remove_entry(PyObject *, PyObject *args) {
    PyObject *code, *entry;
    if (!PyArg_ParseTuple(args, "O!O!", &PyCode_Type, &code, entry_type, &entry)) return nullptr;
    if (PlCodeState *s = pl_state_of(reinterpret_cast<PyCodeObject *>(code))) s->remove(reinterpret_cast<EntryObject *>(entry));
    Py_RETURN_NONE;
}

static PlCodeState *state_arg(PyObject *code, bool &ok) {
    ok = PyCode_Check(code);
    if (!ok) PyErr_SetString(PyExc_TypeError, "expected a code object");
    return ok ? pl_state_of(reinterpret_cast<PyCodeObject *>(code)) : nullptr;
}

static PyObject *entries(PyObject *, PyObject *code) {
    bool ok;
    PlCodeState *s = state_arg(code, ok);
    PyObject *list = ok ? PyList_New(0) : nullptr;
    if (!list || !s) return list;
    for (size_t i = s->entries.size(); i-- > 0;) // those that can never hold again are gone
        if (i < s->entries.size() && guard_dead(s->entries[i]->guard)) s->remove(s->entries[i]);
    for (auto *e : s->entries)
        if (PyList_Append(list, reinterpret_cast<PyObject *>(e)) < 0) {
            Py_DECREF(list);
            return nullptr;
        }
    return list;
}

static PyObject *clear(PyObject *, PyObject *code) {
    bool ok;
    PlCodeState *s = state_arg(code, ok);
    if (!ok) return nullptr;
    if (s) {
        auto old = std::move(s->entries);
        s->entries.clear();
        s->max_slots = 0;
        s->flags = 0;
        for (auto *e : old) Py_DECREF(e);
    }
    Py_RETURN_NONE;
}

static PyObject *set_flags(PyObject *, PyObject *args) {
    PyObject *code;
    int flags;
    if (!PyArg_ParseTuple(args, "O!i", &PyCode_Type, &code, &flags)) return nullptr;
    PlCodeState *s = pl_state_make(reinterpret_cast<PyCodeObject *>(code));
    if (!s) return nullptr;
    s->flags = flags;
    Py_RETURN_NONE;
}

static PyObject *get_flags(PyObject *, PyObject *code) {
    bool ok;
    PlCodeState *s = state_arg(code, ok);
    return ok ? PyLong_FromLong(s ? s->flags : 0) : nullptr;
}

static PyObject *reset_classes(PyObject *, PyObject *) {
    class_epoch++;
    Py_RETURN_NONE;
}

static PyObject *set_enabled(PyObject *, PyObject *value) {
    const int v = PyObject_IsTrue(value);
    if (v < 0) return nullptr;
    const bool old = enabled;
    enabled = v;
    return PyBool_FromLong(old);
}

static PyObject *push_disabled(PyObject *, PyObject *) { return PyLong_FromLong(++disable_depth); }

static PyObject *pop_disabled(PyObject *, PyObject *) {
    if (disable_depth == 0) return PyErr_Format(PyExc_RuntimeError, "pop_disabled() without push_disabled()");
    return PyLong_FromLong(--disable_depth);
}

static PyObject *is_enabled(PyObject *, PyObject *) { return PyBool_FromLong(pl_enabled()); }

static PyObject *counters(PyObject *, PyObject *) {
    return Py_BuildValue("{sKsKsK}", "calls", n_calls, "misses", n_misses, "eager", n_eager);
}

static PyObject *reset_counters(PyObject *, PyObject *) {
    n_calls = n_misses = n_rested = n_eager = 0;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"add_entry", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(add_entry)), METH_VARARGS | METH_KEYWORDS,
     "add_entry(code, guard, target, front=True, info=None) -> Entry"},
    {"remove_entry", remove_entry, METH_VARARGS, "remove_entry(code, entry): nothing happens if it is no longer there."},
    {"entries", entries, METH_O, "entries(code) -> list of Entry, most recently used first."},
    {"clear", clear, METH_O, "clear(code): drop entries and flags."},
    {"set_flags", set_flags, METH_VARARGS, "set_flags(code, SKIP | SKIP_RECURSIVE | RUN_ONLY | PASS)"},
    {"get_flags", get_flags, METH_O, "get_flags(code) -> int"},
    {"reset_classes", reset_classes, METH_NOARGS, "Forget what `classify` answered for every code object."},
    {"set_enabled", set_enabled, METH_O, "set_enabled(bool) -> bool before: the process-wide switch."},
    {"push_disabled", push_disabled, METH_NOARGS, "Entry points of this thread run their functions as they are, until pop_disabled()."},
    {"pop_disabled", pop_disabled, METH_NOARGS, "Undo one push_disabled() of this thread."},
    {"is_enabled", is_enabled, METH_NOARGS, "May compiled entries run in this thread?"},
    {"counters", counters, METH_NOARGS, "{'calls': entries run, 'misses': callbacks, 'eager': calls run as they are}"},
    {"reset_counters", reset_counters, METH_NOARGS, "Set the counters to zero."},
    {nullptr, nullptr, 0, nullptr},
};

extern "C" int pl_entries_init(PyObject *module) {
    extra_index = PL_CODE_EXTRA_INDEX(free_state);
    str_retry = PyUnicode_InternFromString("retry");
    str_eager = PyUnicode_InternFromString("eager");
    str_rest = PyUnicode_InternFromString("rest");
    str_value = PyUnicode_InternFromString("value");
    entry_type = reinterpret_cast<PyTypeObject *>(PyType_FromSpec(&entry_spec));
    again = PyErr_NewExceptionWithDoc("pliant.native.Again", "Raised by an entry's target that has done nothing yet: the frame runs in "
                                      "CPython. Its argument is told how that went, like a judge's.", PyExc_BaseException, nullptr);
    if (!again || PyModule_AddObjectRef(module, "Again", again) < 0) return -1;
    leave = PyErr_NewExceptionWithDoc("pliant.native.Leave", "Leave(fn, state), raised by an entry's target at a side exit: the frame goes on as "
                                      "fn(state), without the target's own frame.", PyExc_BaseException, nullptr);
    if (!leave || PyModule_AddObjectRef(module, "Leave", leave) < 0) return -1;
    if (extra_index < 0 || !entry_type || !str_value) return -1;
    if (PyModule_AddObjectRef(module, "Entry", reinterpret_cast<PyObject *>(entry_type)) < 0) return -1;
    if (PyModule_AddIntConstant(module, "SKIP", PL_SKIP) < 0 || PyModule_AddIntConstant(module, "SKIP_RECURSIVE", PL_SKIP_RECURSIVE) < 0 ||
        PyModule_AddIntConstant(module, "RUN_ONLY", PL_RUN_ONLY) < 0 || PyModule_AddIntConstant(module, "PASS", PL_PASS) < 0)
        return -1;
    return PyModule_AddFunctions(module, methods);
}
