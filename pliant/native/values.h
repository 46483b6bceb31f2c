// Reading and comparing Python objects without ever running user Python.
#pragma once
#include "core.h"
#include <vector>

namespace pliant {

// A reference that does not keep its object alive when the object can be weakly referenced (and is not a plain constant).
class Held {
  public:
    Held() = default;
    // Never fails: falls back to a strong reference. A tensor that is only ever compared (`compared`) is known by its dict, which nobody
    // else has while it is held here: the program would see a weak reference, and `torch.utils.swap_tensors` refuses a tensor that has one.
    explicit Held(PyObject *o, bool compared = false);
    Held(Held &&other) noexcept
        : ref_(other.ref_), address_(other.address_),
          loc_(other.loc_ == &other.ref_ ? &ref_ : other.loc_ == &other.address_ ? &address_ : other.loc_), weak_(other.weak_) {
        other.ref_ = nullptr;
    }
    Held(const Held &) = delete;
    Held &operator=(const Held &) = delete;
    ~Held() { Py_XDECREF(ref_); }
    // Is it `x`? A dead weak reference reads as None, which is never held weakly.
    bool is(PyObject *x) const { return *loc_ == x && (!weak_ || (address_ ? has_dict(x) : x != Py_None)); }
    PyObject *get() const { return address_ || dead() ? nullptr : *loc_; } // borrowed; none of a tensor that is only compared
    bool dead() const { return weak_ && (address_ ? Py_REFCNT(ref_) == 1 : *loc_ == Py_None); }
    bool weak() const { return weak_; }
    int traverse(visitproc visit, void *arg) const {
        Py_VISIT(ref_);
        return 0;
    }

  private:
    bool has_dict(PyObject *x) const;
    PyObject *ref_ = nullptr;              // the object, the weak reference to it, or its dict
    PyObject *address_ = nullptr;          // of a tensor that is compared: where it is, or was
    PyObject *const *loc_ = &ref_;         // where the object's address is read
    bool weak_ = false;
};

bool values_init();

// type(a) is type(b) and a == b, item by item; floats bit by bit. False for types whose == is Python code (unless identical).
bool eq_const(PyObject *a, PyObject *b);
bool set_equals(PyObject *a, PyObject *b); // of exact sets and frozensets, either beside the other
bool immutable_const(PyObject *o); // equality with it cannot change while the object stays the same

// getattr(o, name) through C code only. New reference, or NULL with no exception set. `pure` is set when the result is
// decided by the instance dict and the class attributes of `searched` alone (no getter ran).
PyObject *read_attr(PyObject *o, PyObject *name, PyTypeObject **searched);
// The instance dict slot, NULL if the object has none. Makes the dict if it was not yet there.
PyObject **dict_slot(PyObject *o);
// The dict of a class, module or instance (borrowed), NULL if there is none.
PyObject *dict_of(PyObject *o);
PyObject *dict_get(PyObject *dict, PyObject *key, Py_hash_t hash); // borrowed, NULL without exception
// `pairs`: names, each with None (not in the dict) or a type (under it is a dict of just that type, without items)
bool lacks(PyObject *dict, PyObject *pairs);
Py_ssize_t raw_length(PyObject *o);                                // -1 when it is no container of the standard ones
bool keys_match(PyObject *dict, const std::vector<Held> &keys);
bool is_tensor_type(PyTypeObject *t); // a subclass of `torch.Tensor`, too
bool is_deque(PyObject *o); // exactly: no subclass
bool is_ordered_dict(PyObject *o);

} // namespace pliant
