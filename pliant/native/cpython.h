/* What lies below CPython's documented interfaces and differs between its versions. No other file here asks which version it is.
 *
 * Objects: the numbers that tell whether a dict or a class is still as it was, what is declared in internal headers only.
 * Frames: where `PL_FRAMES` is defined before the first header. CPython's internal headers are C, so that is for C files.
 *
 *                      3.11                          3.12                          3.13
 *   a dict changed     its version tag               a watcher is told             a watcher is told, if `pl_dict_tells`
 *   a class changed    its version tag, if flagged   its version tag, if flagged   its version tag, if not 0
 *   code of a frame    f_code                        f_code                        f_executable
 *   function           f_func                        f_funcobj                     f_funcobj
 *   goes on at         prev_instr + 1                prev_instr + 1                instr_ptr
 *   size of a frame    locals, stack, specials       co_framesize                  co_framesize
 *   unevaluated frame  cleared by who called         cleared by the evaluator      cleared by the evaluator
 *   is traced          cframe->use_tracing           c_tracefunc, c_profilefunc    c_tracefunc, c_profilefunc
 *
 * 3.14 keeps references of frames as tagged words (`_PyStackRef`) and the top of the stack as a pointer: a column of its own, and until
 * there is one, no build.
 */
#pragma once
#ifdef PL_FRAMES
#define Py_BUILD_CORE 1 /* before Python.h: the layout of code units depends on it */
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

#define PL_PYTHON (PY_VERSION_HEX >> 16)
#if PL_PYTHON < 0x030B || PL_PYTHON > 0x030D
#error "pliant reads frames of CPython 3.11, 3.12 and 3.13"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- objects ---- */

/* Whether dicts are watched (native/dicts.cpp); else they have a number that changes with every change and never comes again. */
#define PL_WATCHES_DICTS (PL_PYTHON >= 0x030C)

#if PL_WATCHES_DICTS
/* Are watchers told of every change? 3.13 stores attributes past the dict of their instance while its values lie in the instance. */
static inline int pl_dict_tells(PyObject *dict) { return PL_PYTHON < 0x030D || ((PyDictObject *)dict)->ma_values == NULL; }
#else
static inline const uint64_t *pl_dict_version(PyObject *dict) { return &((PyDictObject *)dict)->ma_version_tag; }
#endif

/* A number that changes with every change of a class or of its bases; 0 when it has none. */
static inline unsigned pl_class_version(const PyTypeObject *t) {
#if PL_PYTHON < 0x030D
    if (!(t->tp_flags & Py_TPFLAGS_VALID_VERSION_TAG)) return 0;
#endif
    return t->tp_version_tag;
}

/* The dict of a class, borrowed: the type holds it. */
static inline PyObject *pl_class_dict(PyTypeObject *t) {
#if PL_PYTHON >= 0x030C
    PyObject *d = PyType_GetDict(t);
    Py_XDECREF(d);
    return d;
#else
    return t->tp_dict;
#endif
}

#if PL_PYTHON >= 0x030D /* exported, but declared in an internal header */
int _PySet_NextEntry(PyObject *set, Py_ssize_t *pos, PyObject **key, Py_hash_t *hash);
#endif

/* What a code object carries for us. */
#if PL_PYTHON >= 0x030C
#define PL_CODE_EXTRA_INDEX PyUnstable_Eval_RequestCodeExtraIndex
#define PL_CODE_EXTRA PyUnstable_Code_GetExtra
#define PL_SET_CODE_EXTRA PyUnstable_Code_SetExtra
#else
#define PL_CODE_EXTRA_INDEX _PyEval_RequestCodeExtraIndex
#define PL_CODE_EXTRA _PyCode_GetExtra
#define PL_SET_CODE_EXTRA _PyCode_SetExtra
#endif

#ifdef __cplusplus
}
#endif

/* ---- frames ---- */
#ifdef PL_FRAMES
#include "internal/pycore_frame.h"
#undef Py_BUILD_CORE

typedef _PyInterpreterFrame PlFrame;
typedef _PyFrameEvalFunction PlEvaluator;

#if PL_PYTHON >= 0x030D
#define PL_F_CODE f_executable
#define PL_F_GO_ON instr_ptr
#define PL_BEHIND 0 /* how many code units before the next instruction it points */
#else
#define PL_F_CODE f_code
#define PL_F_GO_ON prev_instr
#define PL_BEHIND 1
#endif
#if PL_PYTHON >= 0x030C
#define PL_F_FUNCTION f_funcobj
#else
#define PL_F_FUNCTION f_func
#endif

static inline PyCodeObject *pl_frame_code(PlFrame *f) { return (PyCodeObject *)f->PL_F_CODE; }
static inline PyObject *pl_frame_function(PlFrame *f) { return (PyObject *)f->PL_F_FUNCTION; }
static inline PyObject **pl_frame_locals(PlFrame *f) { return f->localsplus; }
/* Is it a call's, not that of a generator that goes on or of a frame object? */
static inline int pl_frame_is_call(PlFrame *f) { return f->owner == FRAME_OWNED_BY_THREAD; }

static inline PlEvaluator pl_evaluator(void) { return _PyInterpreterState_GetEvalFrameFunc(PyInterpreterState_Get()); }
static inline void pl_set_evaluator(PlEvaluator fn) { _PyInterpreterState_SetEvalFrameFunc(PyInterpreterState_Get(), fn); }
#define pl_evaluate_plainly _PyEval_EvalFrameDefault

static inline int pl_traced(PyThreadState *ts) {
#if PL_PYTHON >= 0x030C
    return ts->c_tracefunc != NULL || ts->c_profilefunc != NULL;
#else
    return ts->cframe->use_tracing != 0;
#endif
}

static inline size_t pl_frame_words(const PyCodeObject *c) {
#if PL_PYTHON >= 0x030C
    return (size_t)c->co_framesize;
#else
    return (size_t)(c->co_nlocalsplus + c->co_stacksize + FRAME_SPECIALS_SIZE);
#endif
}

static inline void pl_frame_goto(PlFrame *f, PyCodeObject *code, int unit) { f->PL_F_GO_ON = _PyCode_CODE(code) + unit - PL_BEHIND; }

/* Can the frame take one of `code`'s size, where it lies? It must be the youngest of its chunk of the stack. */
static inline int pl_frame_has_room(PyThreadState *ts, PlFrame *f, const PyCodeObject *code) {
    const size_t old_size = pl_frame_words(pl_frame_code(f)), new_size = pl_frame_words(code);
    if ((PyObject **)f + old_size != ts->datastack_top) return 0;
    return new_size <= old_size || new_size - old_size < (size_t)(ts->datastack_limit - ts->datastack_top);
}

/* Make the frame, which has not begun, one of `fn`, whose reference it steals: its first `nargs` locals stay, `nslots` values follow
 * them (stolen, too). Needs `pl_frame_has_room`. */
static inline void pl_frame_become(PyThreadState *ts, PlFrame *f, PyFunctionObject *fn, Py_ssize_t nargs, PyObject *const *slots,
                                   Py_ssize_t nslots) {
    PyObject *old_code = (PyObject *)pl_frame_code(f), *old_function = pl_frame_function(f);
    PyCodeObject *code = (PyCodeObject *)fn->func_code;
    for (Py_ssize_t i = 0; i < nslots; i++) f->localsplus[nargs + i] = slots[i];
    for (Py_ssize_t i = nargs + nslots; i < code->co_nlocalsplus; i++) f->localsplus[i] = NULL;
    ts->datastack_top = (PyObject **)f + pl_frame_words(code);
    f->PL_F_FUNCTION = (void *)fn;
    f->PL_F_CODE = (void *)Py_NewRef(fn->func_code);
    f->f_globals = fn->func_globals;
    f->f_builtins = fn->func_builtins;
    f->stacktop = code->co_nlocalsplus;
    pl_frame_goto(f, code, 0);
    Py_DECREF(old_code);
    Py_DECREF(old_function);
}

#if PL_PYTHON >= 0x030C
static PyCodeObject *pl_return_code = NULL; /* of a function that returns its argument */
static int pl_return_unit = 0;              /* where its RETURN_VALUE is */

static inline int pl_frames_init(void) {
    PyObject *scope = PyDict_New();
    if (!scope || PyDict_SetItemString(scope, "__builtins__", PyEval_GetBuiltins()) < 0) return -1;
    PyObject *done = PyRun_String("import dis\ncode = (lambda x: x).__code__\n"
                                  "at = [i.offset // 2 for i in dis.get_instructions(code) if i.opname == 'RETURN_VALUE'][0]\n",
                                  Py_file_input, scope, scope);
    if (!done) return -1;
    Py_DECREF(done);
    pl_return_code = (PyCodeObject *)Py_NewRef(PyDict_GetItemString(scope, "code"));
    pl_return_unit = (int)PyLong_AsLong(PyDict_GetItemString(scope, "at"));
    Py_DECREF(scope);
    return 0;
}

/* End a frame that was handed to an evaluator and not evaluated, with this result (stolen; NULL: an exception is set). From 3.12 on
 * the evaluator clears frames. What does that is not exported, so the interpreter is made to: the frame goes on at a RETURN_VALUE. */
static inline PyObject *pl_frame_end(PyThreadState *ts, PlFrame *f, PyObject *result) {
    PyObject *type = NULL, *value = NULL, *tb = NULL, *old = (PyObject *)pl_frame_code(f);
    if (!result) PyErr_Fetch(&type, &value, &tb);
    f->PL_F_CODE = (void *)Py_NewRef((PyObject *)pl_return_code);
    f->localsplus[f->stacktop++] = result ? result : Py_NewRef(Py_None);
    pl_frame_goto(f, pl_return_code, pl_return_unit);
    f->return_offset = 0;
    Py_DECREF(old);
    PyObject *r = pl_evaluate_plainly(ts, f, 0);
    if (result) return r;
    Py_XDECREF(r);
    PyErr_Restore(type, value, tb);
    return NULL;
}
#else
static inline int pl_frames_init(void) { return 0; }

/* End a frame that was handed to an evaluator and not evaluated, with this result. Up to 3.11 whoever called clears it. */
static inline PyObject *pl_frame_end(PyThreadState *ts, PlFrame *f, PyObject *result) {
    (void)ts;
    (void)f;
    return result;
}
#endif
#endif /* PL_FRAMES */
