/* What the files of the native core share. The frame hook is C (CPython's internal headers are C), the rest C++. */
#pragma once
#include "cpython.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Flags of a code object (`native.set_flags`). */
enum {
    PL_SKIP = 1,           /* always evaluate this code in CPython */
    PL_SKIP_RECURSIVE = 2, /* and everything that it calls (frame hook in run mode) */
    PL_RUN_ONLY = 4,       /* use entries, but never call the miss callback */
    PL_PASS = 8,           /* the frame hook in run mode lets this code be; entry points and its callees are not concerned */
};

/* Frame hook modes, per thread. */
enum { PL_OFF = 0, PL_RUN = 1, PL_CAPTURE = 2 };

typedef struct PlCodeState PlCodeState;

/* Number of argument slots at frame entry: positional, keyword-only, *args, **kwargs. */
static inline Py_ssize_t pl_frame_args(const PyCodeObject *c) {
    return (Py_ssize_t)c->co_argcount + c->co_kwonlyargcount + ((c->co_flags & CO_VARARGS) != 0) +
           ((c->co_flags & CO_VARKEYWORDS) != 0);
}

/* entries.cpp */
PlCodeState *pl_state_of(PyCodeObject *code);   /* NULL when the code object has none */
PlCodeState *pl_state_make(PyCodeObject *code); /* creates it; NULL with an exception set on failure */
int pl_state_flags(const PlCodeState *s);
Py_ssize_t pl_state_slots(const PlCodeState *s); /* slots that the greediest entry needs */
Py_ssize_t pl_state_entries(const PlCodeState *s);
int pl_state_class(const PlCodeState *s);           /* capture mode: cached answer of `classify`, 0 when unknown */
void pl_state_set_class(PlCodeState *s, int value);
/* The first entry whose guard holds. Fills `out` with `*nout` new references and returns a new reference to the target;
 * NULL without an exception when there is none. Moves the entry to the front. */
PyObject *pl_entries_find(PlCodeState *s, PyObject *const *args, Py_ssize_t nargs, PyObject *func, PyObject **out,
                          Py_ssize_t cap, Py_ssize_t *nout);
int pl_enabled(void); /* global switch and this thread's disable depth */
void pl_count_call(void);
void pl_count_miss(void);
void pl_count_eager(void);
unsigned long long pl_busy_misses(void); /* those that were not answered by "rest" */
/* What a miss callback said. Consumes nothing; 0 retry, 1 eager (with a judge in *value, or NULL; "rest" is eager, too, and as cheap
 * as such a call will be), 2 value (new reference in *value), -1 error. */
int pl_miss_answer(PyObject *answer, PyObject **value);
/* Hand the outcome of an eager run to its judge: judge(None), or judge(exception). If that raises, its exception is the outcome.
 * Steals both references; without a judge the outcome stands. */
PyObject *pl_judged(PyObject *judge, PyObject *result);
/* Whether the exception set now is `Again`: compiled code gave up before it had done anything, and the frame is to run in CPython.
 * If so, it is cleared, and *judge is who is to hear how that went (a new reference, or NULL). */
int pl_again(PyObject **judge);
/* If the exception set now is `Leave`, it is cleared, and this is its arguments (a new reference): the frame goes on as `args[0](args[1])`,
 * called by `pl_leave`, which steals them, once the target's own frame and what it was given are gone. NULL: it is another exception. */
PyObject *pl_left(void);
PyObject *pl_leave(PyObject *args);
/* hook.c: set this thread's mode; returns the one before. */
int pl_enter(int mode);
int pl_mode(void);

/* marks.cpp: an event of torch.profiler that lasts until `pl_unmark`; NULL while it does not record. Exceptions stay as they are. */
PyObject *pl_mark_code(PyCodeObject *code);
PyObject *pl_mark_kernel(PyObject *name);
void pl_unmark(PyObject *mark);

int pl_guards_init(PyObject *module);
int pl_layout_init(PyObject *module);
int pl_state_init(PyObject *module);
int pl_entries_init(PyObject *module);
int pl_entry_point_init(PyObject *module);
int pl_hook_init(PyObject *module);
int pl_launch_init(PyObject *module);
int pl_library_init(PyObject *module);
int pl_decode_init(PyObject *module);
int pl_empty_init(PyObject *module);
int pl_positions_init(PyObject *module);
int pl_lifetimes_init(PyObject *module);
int pl_shadows_init(PyObject *module);
int pl_namespaces_init(PyObject *module);
int pl_shared_init(PyObject *module);
int pl_marks_init(PyObject *module);
int pl_sets_init(PyObject *module);
int pl_by_identity_init(PyObject *module);

#ifdef __cplusplus
}
#endif
