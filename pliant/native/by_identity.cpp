// `native.ByIdentity`: a function of one object whose answers are kept, by the identity of the object. It is for what is asked of operators
// again and again, which hash themselves in Python (`graph/schema.py: of_operator`).
#include "core.h"
#include <cstddef>
#include <structmember.h>
#include <unordered_map>
#include <utility>

namespace {

struct ByIdentityObject {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *fn;
    std::unordered_map<PyObject *, PyObject *> *known; // both held: nobody else gets the object's address
};

PyObject *by_identity_call(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames) {
    auto *self = reinterpret_cast<ByIdentityObject *>(callable);
    if (PyVectorcall_NARGS(nargsf) != 1 || kwnames || !self->fn)
        return PyErr_Format(PyExc_TypeError, "a function by identity takes one positional argument");
    const auto found = self->known->find(args[0]);
    if (found != self->known->end()) return Py_NewRef(found->second);
    PyObject *fn = Py_NewRef(self->fn), *object = Py_NewRef(args[0]), *answer = PyObject_CallOneArg(fn, object);
    Py_DECREF(fn);
    if (!answer || !self->known->emplace(object, answer).second) { // an error is not kept; it may have been asked meanwhile
        Py_DECREF(object);
        return answer;
    }
    return Py_NewRef(answer);
}

PyObject *by_identity_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *fn;
    if (kwargs || !PyArg_ParseTuple(args, "O", &fn)) return nullptr;
    if (!PyCallable_Check(fn)) return PyErr_Format(PyExc_TypeError, "ByIdentity(function)");
    auto *self = reinterpret_cast<ByIdentityObject *>(type->tp_alloc(type, 0));
    if (!self) return nullptr;
    self->vectorcall = by_identity_call;
    self->fn = Py_NewRef(fn);
    self->known = new std::unordered_map<PyObject *, PyObject *>();
    return reinterpret_cast<PyObject *>(self);
}

int by_identity_traverse(PyObject *o, visitproc visit, void *arg) {
    auto *self = reinterpret_cast<ByIdentityObject *>(o);
    Py_VISIT(Py_TYPE(o));
    Py_VISIT(self->fn);
    if (self->known)
        for (auto &[object, answer] : *self->known) {
            Py_VISIT(object);
            Py_VISIT(answer);
        }
    return 0;
}

int by_identity_clear(PyObject *o) {
    auto *self = reinterpret_cast<ByIdentityObject *>(o);
    Py_CLEAR(self->fn);
    if (!self->known) return 0;
    const auto known = std::exchange(*self->known, {}); // what goes may ask again
    for (auto &[object, answer] : known) {
        Py_DECREF(object);
        Py_DECREF(answer);
    }
    return 0;
}

void by_identity_dealloc(PyObject *o) {
    PyObject_GC_UnTrack(o);
    by_identity_clear(o);
    delete reinterpret_cast<ByIdentityObject *>(o)->known;
    PyTypeObject *t = Py_TYPE(o);
    t->tp_free(o);
    Py_DECREF(t);
}

PyMemberDef members[] = {
    {"__wrapped__", T_OBJECT, offsetof(ByIdentityObject, fn), READONLY, "the function"},
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(ByIdentityObject, vectorcall), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};
PyType_Slot slots[] = {
    {Py_tp_new, reinterpret_cast<void *>(by_identity_new)},
    {Py_tp_dealloc, reinterpret_cast<void *>(by_identity_dealloc)},
    {Py_tp_traverse, reinterpret_cast<void *>(by_identity_traverse)},
    {Py_tp_clear, reinterpret_cast<void *>(by_identity_clear)},
    {Py_tp_call, reinterpret_cast<void *>(PyVectorcall_Call)},
    {Py_tp_members, members},
    {Py_tp_doc, const_cast<char *>("ByIdentity(function): calls it once for each object, and answers for that object from then on.")},
    {0, nullptr},
};
PyType_Spec spec = {"pliant.native.ByIdentity", sizeof(ByIdentityObject), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL, slots};

} // namespace

extern "C" int pl_by_identity_init(PyObject *module) {
    PyObject *type = PyType_FromSpec(&spec);
    const int failed = type ? PyModule_AddObjectRef(module, "ByIdentity", type) : -1;
    Py_XDECREF(type);
    return failed;
}
