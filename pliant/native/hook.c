/* The PEP 523 frame hook.
 *
 * Each thread has a mode. In RUN mode a starting frame whose code has entries is checked, and replaced when a guard holds. In
 * CAPTURE mode every Python frame that C code starts is handed to the interpreter of pliant. The hook is installed only while some
 * thread has a mode on, and passes everything else to whatever was installed before it.
 */
#define PL_FRAMES /* see cpython.h */
#include "core.h"
#include <pthread.h>

#define PLAIN_FUNCTION (CO_OPTIMIZED | CO_NEWLOCALS)
#define SUSPENDABLE (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR | CO_ITERABLE_COROUTINE)
#define RETRIES 4
#define STACK_MARGIN (192 * 1024) /* C stack that must be left to start another frame through the hook */

static __thread int mode = PL_OFF;
static __thread PlFrame *chained = NULL; /* the frame that this thread has passed down the chain */
static __thread char *stack_low = NULL;
static __thread PyObject *own_callback = NULL; /* that of the innermost call_below of this thread; borrowed */
static int users = 0; /* threads whose mode is on; under the GIL */
static PlEvaluator below = NULL;
static PyObject *run_callback = NULL, *capture_callback = NULL, *classify = NULL, *spread = NULL;

static PyObject *hook(PyThreadState *ts, PlFrame *f, int throwflag);

/* ---- installing ---- */

static void install(void) {
    PlEvaluator now = pl_evaluator();
    if (now == hook) return;
    below = now;
    pl_set_evaluator(hook);
}

/* Somebody may have installed theirs on top of ours meanwhile: then ours stays below it, passing everything on. */
static void uninstall(void) {
    if (pl_evaluator() == hook) pl_set_evaluator(below);
}

int pl_mode(void) { return mode; }

int pl_enter(int new_mode) {
    const int old = mode;
    mode = new_mode;
    if (old == PL_OFF && new_mode != PL_OFF) users++;
    if (old != PL_OFF && new_mode == PL_OFF && --users == 0) uninstall();
    if (new_mode != PL_OFF) install(); /* also when another hook's removal took ours away */
    return old;
}

/* ---- evaluating ---- */

/* Two hooks that each remember the other as "the one before" would pass a frame around for ever. */
static PyObject *evaluate(PyThreadState *ts, PlFrame *f, int throwflag) {
    if (below == NULL || below == pl_evaluate_plainly || chained == f) return pl_evaluate_plainly(ts, f, throwflag);
    PlFrame *outer = chained;
    chained = f;
    PyObject *r = below(ts, f, throwflag);
    chained = outer;
    return r;
}

static PyObject *evaluate_in(int new_mode, PyThreadState *ts, PlFrame *f) {
    const int old = pl_enter(new_mode);
    PyObject *r = evaluate(ts, f, 0);
    pl_enter(old);
    return r;
}

static int stack_is_low(void) {
    if (!stack_low) {
        pthread_attr_t attr;
        void *address;
        size_t size;
        if (pthread_getattr_np(pthread_self(), &attr) != 0) return 0;
        if (pthread_attr_getstack(&attr, &address, &size) == 0) stack_low = (char *)address;
        pthread_attr_destroy(&attr);
        if (!stack_low) return 0;
    }
    return (char *)__builtin_frame_address(0) < stack_low + STACK_MARGIN;
}

/* ---- replacing a frame ---- */

static int fits_in_place(PyThreadState *ts, PlFrame *f, PyCodeObject *code, PyObject *target, Py_ssize_t nargs) {
    if (!PyFunction_Check(target)) return 0;
    PyCodeObject *new_code = (PyCodeObject *)((PyFunctionObject *)target)->func_code;
    if (new_code->co_argcount != nargs || pl_frame_args(new_code) != nargs || (new_code->co_flags & SUSPENDABLE) ||
        (code->co_flags & SUSPENDABLE) || (new_code->co_flags & PLAIN_FUNCTION) != PLAIN_FUNCTION)
        return 0;
    return pl_frame_has_room(ts, f, new_code);
}

/* What the frame of `func` with these frame arguments gives, after its compiled version has given up (see `pl_again`). */
static PyObject *call_again(PyObject *func, PyObject *const *args, Py_ssize_t n, PyObject *judge) {
    PyObject *given = PyTuple_New(n), *call = NULL, *r = NULL;
    for (Py_ssize_t i = 0; given && i < n; i++) PyTuple_SET_ITEM(given, i, Py_NewRef(args[i]));
    const int old = pl_enter(PL_OFF); /* in run mode the hook would find the same entry */
    if (given && spread) call = PyObject_CallFunctionObjArgs(spread, func, given, NULL);
    Py_XDECREF(given);
    if (call && PyTuple_Check(call) && PyTuple_GET_SIZE(call) == 2 && PyTuple_Check(PyTuple_GET_ITEM(call, 0)))
        r = PyObject_Call(func, PyTuple_GET_ITEM(call, 0), PyTuple_GET_ITEM(call, 1));
    else if (!PyErr_Occurred())
        PyErr_SetString(PyExc_SystemError, "nobody tells how a frame is called (set_spread)");
    Py_XDECREF(call);
    pl_enter(old);
    return pl_judged(judge, r);
}

/* 1: *result is the frame's; 0: no entry holds. */
static int try_entries(PyThreadState *ts, PlFrame *f, PyCodeObject *code, Py_ssize_t n, PyObject **result) {
    PlCodeState *state = pl_state_of(code);
    if (!state || pl_state_entries(state) == 0) return 0;
    const Py_ssize_t cap = pl_state_slots(state);
    PyObject *small[32], **call = n + cap + 1 <= 32 ? small : PyMem_New(PyObject *, n + cap + 1);
    if (!call) {
        PyErr_NoMemory();
        *result = pl_frame_end(ts, f, NULL);
        return 1;
    }
    Py_ssize_t nslots = 0;
    PyObject **slots = call + 1 + n;
    PyObject *target = pl_entries_find(state, pl_frame_locals(f), n, pl_frame_function(f), slots, cap, &nslots);
    PyObject *judge = NULL, *left = NULL;
    if (target && fits_in_place(ts, f, code, target, n + nslots)) {
        for (Py_ssize_t i = 0; i < n; i++) call[1 + i] = Py_NewRef(pl_frame_locals(f)[i]);
        PyObject *func = Py_NewRef(pl_frame_function(f));
        pl_frame_become(ts, f, (PyFunctionObject *)target, n, slots, nslots);
        PyObject *mark = pl_mark_code(code);
        *result = evaluate_in(PL_OFF, ts, f);
        pl_unmark(mark);
        if (!*result && (left = pl_left())) {
            const int old = pl_enter(PL_OFF);
            *result = pl_leave(left);
            pl_enter(old);
        }
        if (!*result && pl_again(&judge)) *result = call_again(func, call + 1, n, judge);
        for (Py_ssize_t i = 0; i < n; i++) Py_DECREF(call[1 + i]);
        Py_DECREF(func);
    } else if (target) {
        for (Py_ssize_t i = 0; i < n; i++) call[1 + i] = pl_frame_locals(f)[i];
        const int old = pl_enter(PL_OFF); /* compiled code runs with the hook off; where it breaks, it turns it on again */
        PyObject *mark = pl_mark_code(code);
        PyObject *r = PyObject_Vectorcall(target, call + 1, (size_t)(n + nslots) | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
        pl_unmark(mark);
        if (!r) left = pl_left();
        for (Py_ssize_t i = 0; i < nslots; i++) Py_DECREF(slots[i]);
        Py_DECREF(target);
        if (left) r = pl_leave(left);
        pl_enter(old);
        *result = !r && pl_again(&judge) ? pl_judged(judge, evaluate_in(PL_OFF, ts, f)) : pl_frame_end(ts, f, r);
    }
    if (call != small) PyMem_Free(call);
    return target != NULL;
}

static PyObject *frame_args(PlFrame *f, Py_ssize_t n, int as_list) {
    PyObject *args = as_list ? PyList_New(n) : PyTuple_New(n);
    for (Py_ssize_t i = 0; args && i < n; i++) {
        PyObject *v = Py_NewRef(pl_frame_locals(f)[i]);
        if (as_list) PyList_SET_ITEM(args, i, v);
        else PyTuple_SET_ITEM(args, i, v);
    }
    return args;
}

static PyObject *run_frame(PyThreadState *ts, PlFrame *f) {
    PyCodeObject *code = pl_frame_code(f);
    const Py_ssize_t n = pl_frame_args(code);
    PyObject *result = NULL, *judge = NULL;
    PyObject *const ask = own_callback ? own_callback : run_callback;
    for (int round = 0; round <= RETRIES; round++) {
        if (try_entries(ts, f, code, n, &result)) return result;
        PlCodeState *state = pl_state_of(code);
        if (round == RETRIES || !ask || (state && (pl_state_flags(state) & (PL_RUN_ONLY | PL_SKIP | PL_PASS)))) break;
        PyObject *args = frame_args(f, n, 0);
        if (!args) return pl_frame_end(ts, f, NULL);
        pl_count_miss();
        PyObject *callback = Py_NewRef(ask);
        const int old = pl_enter(PL_OFF);
        PyObject *answer = PyObject_CallFunctionObjArgs(callback, pl_frame_function(f), args, NULL);
        pl_enter(old);
        Py_DECREF(callback);
        Py_DECREF(args);
        const int what = answer ? pl_miss_answer(answer, &result) : -1;
        Py_XDECREF(answer);
        if (what == 2 || what < 0) return pl_frame_end(ts, f, what == 2 ? result : NULL);
        if (what == 1) {
            judge = result;
            break;
        }
    }
    PlCodeState *state = pl_state_of(code);
    return pl_judged(judge, evaluate_in(state && (pl_state_flags(state) & PL_SKIP_RECURSIVE) ? PL_OFF : PL_RUN, ts, f));
}

/* 1 native, 2 interpret, -1 error */
static int class_of(PyCodeObject *code) {
    PlCodeState *state = pl_state_make(code);
    if (!state) return -1;
    int k = pl_state_class(state);
    if (k || !classify) return k ? k : 1;
    PyObject *callback = Py_NewRef(classify);
    const int old = pl_enter(PL_OFF);
    PyObject *answer = PyObject_CallOneArg(callback, (PyObject *)code);
    pl_enter(old);
    Py_DECREF(callback);
    if (!answer) return -1;
    k = (int)PyLong_AsLong(answer);
    Py_DECREF(answer);
    if (k == -1 && PyErr_Occurred()) return -1;
    if (k != 1 && k != 2) {
        PyErr_SetString(PyExc_ValueError, "classify must return 1 (run natively) or 2 (interpret)");
        return -1;
    }
    pl_state_set_class(state, k);
    return k;
}

static PyObject *capture_frame(PyThreadState *ts, PlFrame *f, int throwflag) {
    PyCodeObject *code = pl_frame_code(f);
    const int plain = (code->co_flags & PLAIN_FUNCTION) == PLAIN_FUNCTION;
    /* Class bodies and exec'd code run in a namespace that a function call cannot reproduce: they run as they are, their callees don't.
     * So do generators that were started before the capture. */
    if (throwflag || !capture_callback || !plain) return evaluate(ts, f, throwflag);
    const int k = class_of(code);
    if (k < 0) return pl_frame_is_call(f) ? pl_frame_end(ts, f, NULL) : evaluate(ts, f, 1);
    if (k == 1) return evaluate_in(PL_OFF, ts, f);
    if (!pl_frame_is_call(f)) return evaluate(ts, f, 0);
    PyObject *args = frame_args(f, pl_frame_args(code), 1);
    if (!args) return pl_frame_end(ts, f, NULL);
    PyObject *callback = Py_NewRef(capture_callback);
    const int old = pl_enter(PL_OFF);
    PyObject *r = PyObject_CallFunctionObjArgs(callback, pl_frame_function(f), args, NULL);
    pl_enter(old);
    Py_DECREF(callback);
    Py_DECREF(args);
    return pl_frame_end(ts, f, r);
}

static PyObject *hook(PyThreadState *ts, PlFrame *f, int throwflag) {
    if (mode == PL_OFF) {
        if (users == 0) uninstall();
        return evaluate(ts, f, throwflag);
    }
    if (pl_frame_is_call(f) && stack_is_low()) {
        PyErr_SetString(PyExc_RecursionError, "maximum recursion depth exceeded: the C stack is full");
        return pl_frame_end(ts, f, NULL);
    }
    if (mode == PL_CAPTURE) return capture_frame(ts, f, throwflag);
    PyCodeObject *code = pl_frame_code(f);
    PlCodeState *state = pl_state_of(code);
    if (throwflag || !pl_frame_is_call(f) || pl_traced(ts) || !pl_enabled() ||
        (code->co_flags & PLAIN_FUNCTION) != PLAIN_FUNCTION || (state && (pl_state_flags(state) & (PL_SKIP | PL_PASS))))
        return evaluate(ts, f, throwflag);
    if (state && (pl_state_flags(state) & PL_SKIP_RECURSIVE)) return evaluate_in(PL_OFF, ts, f);
    return run_frame(ts, f);
}

/* ---- module functions ---- */

static PyObject *call_in(int new_mode, PyObject *fn, PyObject *args, PyObject *kwargs) {
    const int old = pl_enter(new_mode);
    PyObject *r = PyObject_Call(fn, args, kwargs);
    pl_enter(old);
    return r;
}

static PyObject *call_captured(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    if (n < 1 || n > 3 || (n > 1 && !PyTuple_Check(args[1])) || (n > 2 && args[2] != Py_None && !PyDict_Check(args[2])))
        return PyErr_Format(PyExc_TypeError, "call_captured(fn, args: tuple = (), kwargs: dict | None = None)");
    PyObject *pos = n > 1 ? Py_NewRef(args[1]) : PyTuple_New(0);
    if (!pos) return NULL;
    /* without keywords there is no dict of them: PyTorch tells classes and modes of an empty one */
    PyObject *r = call_in(PL_CAPTURE, args[0], pos, n > 2 && args[2] != Py_None && PyDict_GET_SIZE(args[2]) ? args[2] : NULL);
    Py_DECREF(pos);
    return r;
}

static PyObject *call_in_mode(PyObject *self, PyObject *args) {
    int m;
    PyObject *fn, *pos, *kw = NULL;
    (void)self;
    if (!PyArg_ParseTuple(args, "iOO!|O!", &m, &fn, &PyTuple_Type, &pos, &PyDict_Type, &kw)) return NULL;
    if (m < PL_OFF || m > PL_CAPTURE) return PyErr_Format(PyExc_ValueError, "mode must be OFF, RUN or CAPTURE");
    return call_in(m, fn, pos, kw);
}

/* No Python frame of ours comes between the caller and `fn`: what looks at its caller must not see one. */
static PyObject *call_below(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames) {
    (void)self;
    if (n < 2) return PyErr_Format(PyExc_TypeError, "call_below(callback, fn, *args, **kwargs)");
    PyObject *const outer = own_callback;
    const int old = pl_enter(PL_RUN);
    own_callback = args[0];
    PyObject *r = PyObject_Vectorcall(args[1], args + 2, (size_t)(n - 2), kwnames);
    own_callback = outer;
    pl_enter(old);
    return r;
}

static PyObject *set_mode(PyObject *self, PyObject *value) {
    const long m = PyLong_AsLong(value);
    (void)self;
    if (m == -1 && PyErr_Occurred()) return NULL;
    if (m < PL_OFF || m > PL_CAPTURE) return PyErr_Format(PyExc_ValueError, "mode must be OFF, RUN or CAPTURE");
    return PyLong_FromLong(pl_enter((int)m));
}

static PyObject *get_mode(PyObject *self, PyObject *unused) {
    (void)self;
    (void)unused;
    return PyLong_FromLong(mode);
}

static PyObject *hook_installed(PyObject *self, PyObject *unused) {
    (void)self;
    (void)unused;
    return PyBool_FromLong(pl_evaluator() == hook);
}

static PyObject *set_run_callback(PyObject *self, PyObject *callback) {
    (void)self;
    Py_XSETREF(run_callback, callback == Py_None ? NULL : Py_NewRef(callback));
    Py_RETURN_NONE;
}

static PyObject *set_spread(PyObject *self, PyObject *callback) {
    (void)self;
    Py_XSETREF(spread, callback == Py_None ? NULL : Py_NewRef(callback));
    Py_RETURN_NONE;
}

static PyObject *set_capture_callback(PyObject *self, PyObject *args) {
    PyObject *callback, *classifier;
    (void)self;
    if (!PyArg_ParseTuple(args, "OO", &callback, &classifier)) return NULL;
    Py_XSETREF(capture_callback, callback == Py_None ? NULL : Py_NewRef(callback));
    Py_XSETREF(classify, classifier == Py_None ? NULL : Py_NewRef(classifier));
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"call_captured", (PyCFunction)(void (*)(void))call_captured, METH_FASTCALL,
     "call_captured(fn, args=(), kwargs=None): call fn; Python frames that C code starts meanwhile go to the capture callback."},
    {"call_in_mode", call_in_mode, METH_VARARGS, "call_in_mode(mode, fn, args, kwargs={}): call fn with this thread's mode set."},
    {"call_below", (PyCFunction)(void (*)(void))call_below, METH_FASTCALL | METH_KEYWORDS,
     "call_below(callback, fn, *args, **kwargs): call fn in run mode; callback(func, frame_args) answers like an entry point's miss."},
    {"set_mode", set_mode, METH_O, "set_mode(OFF | RUN | CAPTURE) -> the mode before, of this thread."},
    {"get_mode", get_mode, METH_NOARGS, "get_mode() -> this thread's mode."},
    {"hook_installed", hook_installed, METH_NOARGS, "Is the frame hook the interpreter's at present?"},
    {"set_run_callback", set_run_callback, METH_O, "set_run_callback(cb or None): cb(func, frame_args) answers like an entry point's miss."},
    {"set_spread", set_spread, METH_O, "set_spread(cb or None): cb(func, frame_args) -> (args, kwargs) of the call that gives that frame."},
    {"set_capture_callback", set_capture_callback, METH_VARARGS,
     "set_capture_callback(cb, classify): cb(func, args_list) -> result; classify(code) -> 1 run natively, 2 hand to cb."},
    {NULL, NULL, 0, NULL},
};

int pl_hook_init(PyObject *module) {
    if (pl_frames_init() < 0) return -1;
    if (PyModule_AddIntConstant(module, "OFF", PL_OFF) < 0 || PyModule_AddIntConstant(module, "RUN", PL_RUN) < 0 ||
        PyModule_AddIntConstant(module, "CAPTURE", PL_CAPTURE) < 0)
        return -1;
    return PyModule_AddFunctions(module, methods);
}
