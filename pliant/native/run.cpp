// Running a guard program. No user Python runs here; whatever cannot be read fails the guard.
#include "program.h"
#include "shared.h"
#include "state.h"
#include <algorithm>

namespace pliant {

PyObject *slow_tensor = nullptr, *slow_metadata = nullptr;

namespace {

bool tensor_matches(PyObject *o, const TensorSpec &s) {
    if (!s.type.is(reinterpret_cast<PyObject *>(Py_TYPE(o)))) return false;
    const char *im = impl_of(o);
    if (keys_of(im) != s.keys || dtype_device_of(im) != s.dtype_device || ndim_of(im) != s.ndim) return false;
    if (requires_grad_of(im) != s.requires_grad) return false;
    const int64_t *sizes = sizes_of(im, s.ndim), *strides = strides_of(im, s.ndim);
    for (int64_t i = 0; i < s.ndim; i++) {
        if (s.sizes[i] >= 0 && s.sizes[i] != sizes[i]) return false;
        if (s.strides[i] >= 0 && s.strides[i] != strides[i]) return false;
    }
    return s.offset < 0 || s.offset == offset_of(im);
}

// Sizes (0), strides (1) or the offset (2) of a tensor of unknown layout, through Python.
bool slow_number(PyObject *o, Op op, int64_t dim, int64_t &out) {
    PyObject *r = slow_metadata ? PyObject_CallFunction(slow_metadata, "OiL", o, static_cast<int>(op) - static_cast<int>(Op::SIZE),
                                                        static_cast<long long>(dim))
                                : nullptr;
    int overflow = 1;
    if (r && PyLong_CheckExact(r)) out = PyLong_AsLongLongAndOverflow(r, &overflow);
    Py_XDECREF(r);
    PyErr_Clear();
    return overflow == 0;
}

bool truth(PyObject *r) {
    const bool ok = r && PyObject_IsTrue(r) == 1;
    Py_XDECREF(r);
    PyErr_Clear();
    return ok;
}

bool type_attrs_match(PyObject *o, TypeAttrs &a) {
    if (!PyType_Check(o)) return false;
    auto *t = reinterpret_cast<PyTypeObject *>(o);
    if (a.seen == t && a.version && pl_class_version(t) == a.version) return true;
    if (!a.mro.empty()) {
        PyObject *mro = t->tp_mro;
        if (!mro || PyTuple_GET_SIZE(mro) != static_cast<Py_ssize_t>(a.mro.size() + 1)) return false;
        for (size_t i = 0; i < a.mro.size(); i++)
            if (!a.mro[i].is(PyTuple_GET_ITEM(mro, i + 1))) return false;
    }
    for (size_t i = 0; i < a.names.size(); i++) {
        PyObject *v = _PyType_Lookup(t, a.names[i].first);
        const bool ok = a.absent[i] ? !v || (a.absent[i] == 2 && v == Py_None) : v && a.names[i].second.is(v);
        if (!ok) return false;
    }
    a.seen = t;
    a.version = pl_class_version(t);
    return true;
}

bool function_matches(PyObject *o, const std::vector<Held> &want) {
    if (!PyFunction_Check(o)) return false;
    auto *f = reinterpret_cast<PyFunctionObject *>(o);
    auto same = [](const Held &h, PyObject *x) { return h.is(x ? x : Py_None); };
    return same(want[0], f->func_code) && same(want[1], f->func_defaults) && same(want[2], f->func_kwdefaults);
}

bool all_distinct(PyObject **objects, size_t n) {
    if (n <= 8) {
        for (size_t i = 0; i < n; i++)
            for (size_t j = 0; j < i; j++)
                if (objects[i] == objects[j]) return false;
        return true;
    }
    std::sort(objects, objects + n);
    return std::adjacent_find(objects, objects + n) == objects + n;
}

bool overlaps_as_told(const Operand &x, PyObject **regs) {
    const size_t n = x.regs.size();
    std::vector<uintptr_t> lo(n), hi(n);
    for (size_t i = 0; i < n; i++)
        if (!memory_range(regs[x.regs[i]], x.numbers[i], lo[i], hi[i])) lo[i] = hi[i] = 0;
    size_t flag = n;
    for (size_t i = 0; i < n; i++)
        for (size_t j = i + 1; j < n; j++) {
            const bool share = lo[i] < hi[j] && lo[j] < hi[i];
            if (share != (x.numbers[flag++] != 0)) return false;
        }
    return true;
}

bool bind_int(PyObject *o, int64_t &out) {
    if (!PyLong_CheckExact(o)) return false;
    int overflow;
    out = PyLong_AsLongLongAndOverflow(o, &overflow);
    return overflow == 0;
}

PyObject *item_at(PyObject *o, int64_t i, bool &owned) {
    owned = false;
    if (PyList_Check(o) || PyTuple_Check(o)) {
        const Py_ssize_t n = Py_SIZE(o);
        if (i < 0) i += n;
        if (i < 0 || i >= n) return nullptr;
        return PyList_Check(o) ? PyList_GET_ITEM(o, i) : PyTuple_GET_ITEM(o, i);
    }
    if (raw_length(o) < 0 || !PySequence_Check(o) || PyDict_Check(o) || PyAnySet_Check(o)) return nullptr;
    if ((Py_TYPE(o)->tp_flags & Py_TPFLAGS_HEAPTYPE) && !is_deque(o)) return nullptr; // a class of Python may have its own way
    owned = true; // a deque, str or bytes
    PyObject *r = PySequence_GetItem(o, i);
    if (!r) PyErr_Clear();
    return r;
}

// What a dict holds under an object that equals itself alone, or a text, if anything. False: it is no dict, or no such object.
bool find_item(PyObject *dict, PyObject *key, PyObject *&found) {
    if (!PyDict_Check(dict)) return false;
    Py_hash_t hash;
    if (Py_TYPE(key)->tp_hash == PyBaseObject_Type.tp_hash) hash = PyBaseObject_Type.tp_hash(key);
    else if (is_tensor_type(Py_TYPE(key))) hash = reinterpret_cast<Py_hash_t>(key); // `Tensor.__hash__`, which is written in Python
    else if (PyUnicode_CheckExact(key)) hash = PyObject_Hash(key);
    else return false;
    found = dict_get(dict, key, hash);
    return true;
}

enum class Answer { NO, YES, OVERFLOWS };

template <typename Int> Answer answer(const Relation &r, const int64_t *vars) {
    using enum Postfix;
    Int s[64];
    int n = 0;
    for (const auto &step : r) {
        Int &a = s[n >= 2 ? n - 2 : 0], &b = s[n >= 1 ? n - 1 : 0]; // the depth was checked when the program was built
        switch (const auto op = static_cast<Postfix>(step.op)) {
        case VAR: s[n++] = vars[step.value]; break;
        case CONST: s[n++] = step.value; break;
        case ADD: if (__builtin_add_overflow(a, b, &a)) return Answer::OVERFLOWS; n--; break;
        case SUB: if (__builtin_sub_overflow(a, b, &a)) return Answer::OVERFLOWS; n--; break;
        case MUL: if (__builtin_mul_overflow(a, b, &a)) return Answer::OVERFLOWS; n--; break;
        case FLOORDIV:
        case MOD: {
            if (b == 0) return Answer::NO;
            Int negated;
            if (b == -1 && __builtin_sub_overflow(Int{0}, a, &negated)) return Answer::OVERFLOWS;
            Int q = a / b, m = a % b;
            if (m != 0 && ((m < 0) != (b < 0))) q--, m += b;
            a = op == MOD ? m : q;
            n--;
            break;
        }
        case NEG: if (__builtin_sub_overflow(Int{0}, b, &b)) return Answer::OVERFLOWS; break;
        case ABS: if (b < 0 && __builtin_sub_overflow(Int{0}, b, &b)) return Answer::OVERFLOWS; break;
        case MIN: a = std::min(a, b); n--; break;
        case MAX: a = std::max(a, b); n--; break;
        case EQ: a = a == b; n--; break;
        case NE: a = a != b; n--; break;
        case LT: a = a < b; n--; break;
        case LE: a = a <= b; n--; break;
        case GT: a = a > b; n--; break;
        case GE: a = a >= b; n--; break;
        case AND: a = a && b; n--; break;
        case OR: a = a || b; n--; break;
        case NOT: b = !b; break;
        case WHERE: s[n - 3] = s[n - 3] ? a : b; n -= 2; break;
        }
    }
    return s[0] != 0 ? Answer::YES : Answer::NO;
}

} // namespace

bool relation_holds(const Relation &r, const int64_t *vars) {
    if (r.size() == 3 && r[0].op == static_cast<uint8_t>(Postfix::VAR) && r[1].op == static_cast<uint8_t>(Postfix::CONST) &&
        r[2].op == static_cast<uint8_t>(Postfix::GE))
        return vars[r[0].value] >= r[1].value; // the lower bound of a size: most are this, once parsed
    Answer found = answer<int64_t>(r, vars);
    if (found == Answer::OVERFLOWS) found = answer<__int128>(r, vars); // sums of 64 bits have room there
    return found == Answer::YES;
}

int run(Program &p, const std::vector<Instruction> &code, Frame &f, const Snapshot *s) {
    PyObject **R = f.regs;
    int64_t *V = f.vars;
    auto *fn = reinterpret_cast<PyFunctionObject *>(f.func);
    const Instruction *I = code.data();
    for (;; I++) {
        bool ok = true;
        PyObject *o = nullptr; // what a read found
        bool owned = false;
        switch (I->op) {
        case Op::LOCAL: ok = (o = f.args[I->number]); break;
        case Op::GLOBAL:
            o = dict_get(fn->func_globals, I->operand->object, I->operand->hash);
            if (!o) o = dict_get(fn->func_builtins, I->operand->object, I->operand->hash);
            ok = o;
            break;
        case Op::FUNC: o = f.func; break;
        case Op::CONST:
            ok = (o = I->operand->held.get());
            if (!ok) p.dead = true;
            break;
        case Op::ATTR: {
            PyTypeObject *searched;
            ok = owned = (o = read_attr(R[I->src], I->operand->object, &searched));
            break;
        }
        case Op::DICT: ok = (o = dict_of(R[I->src])); break;
        case Op::KEY: ok = PyDict_Check(R[I->src]) && (o = dict_get(R[I->src], I->operand->object, I->operand->hash)); break;
        case Op::ITEM: ok = find_item(R[I->src], R[I->number], o) && o; break;
        case Op::INDEX: ok = (o = item_at(R[I->src], I->number, owned)); break;
        case Op::CELL: {
            PyObject *c = PyFunction_Check(R[I->src]) ? reinterpret_cast<PyFunctionObject *>(R[I->src])->func_closure : nullptr;
            ok = c && I->number < PyTuple_GET_SIZE(c) && (o = PyCell_GET(PyTuple_GET_ITEM(c, I->number)));
            break;
        }
        case Op::CONTENTS: ok = PyCell_Check(R[I->src]) && (o = PyCell_GET(R[I->src])); break;
        case Op::APPLY: {
            const TorchFunctionsOff off;
            ok = owned = (o = PyObject_CallOneArg(I->operand->object, R[I->src]));
            if (!ok) PyErr_Clear();
            break;
        }
        case Op::TYPE: o = reinterpret_cast<PyObject *>(Py_TYPE(R[I->src])); break;

        case Op::SIZE:
        case Op::STRIDE:
        case Op::OFFSET: {
            if (I->number < 0) { // the layout of this tensor is not known: `-1 - dim`
                ok = slow_number(R[I->src], I->op, -1 - I->number, V[I->dst]);
                break;
            }
            const char *im = impl_of(R[I->src]);
            const int64_t nd = ndim_of(im);
            if (I->op == Op::OFFSET) V[I->dst] = offset_of(im);
            else if (!(ok = I->number < nd)) break;
            else V[I->dst] = I->op == Op::SIZE ? sizes_of(im, nd)[I->number] : strides_of(im, nd)[I->number];
            break;
        }
        case Op::LEN: ok = (V[I->dst] = raw_length(R[I->src])) >= 0; break;
        case Op::BIND_INT: ok = bind_int(R[I->src], V[I->dst]); break;

        case Op::IS_TYPE: ok = I->operand->held.is(reinterpret_cast<PyObject *>(Py_TYPE(R[I->src]))); break;
        case Op::IS_OBJECT: ok = I->operand->held.is(R[I->src]); break;
        case Op::EQ: ok = eq_const(R[I->src], I->operand->object); break;
        case Op::LENGTH: ok = raw_length(R[I->src]) == I->number; break;
        case Op::KEYS: ok = PyDict_Check(R[I->src]) && keys_match(R[I->src], I->operand->keys); break;
        case Op::CONTAINS: {
            PyObject *c = R[I->src];
            if (PyDict_Check(c)) ok = (dict_get(c, I->operand->object, I->operand->hash) != nullptr) == I->operand->flag;
            else if (PyAnySet_CheckExact(c)) {
                const int has = PySet_Contains(c, I->operand->object);
                if (has < 0) PyErr_Clear();
                ok = has == static_cast<int>(I->operand->flag);
            } else ok = false;
            break;
        }
        case Op::LACKS: ok = lacks(R[I->src], I->operand->object); break;
        case Op::LACKS_ITEM: {
            PyObject *found = nullptr;
            ok = find_item(R[I->src], R[I->number], found) && !found;
            break;
        }
        case Op::SET_EQ: ok = set_equals(R[I->src], I->operand->object); break;
        case Op::TENSOR: ok = tensor_matches(R[I->src], *I->operand->tensor); break;
        case Op::TENSOR_SLOW:
            ok = slow_tensor && truth(PyObject_CallFunctionObjArgs(slow_tensor, R[I->src], I->operand->object, nullptr));
            break;
        case Op::ALIAS: ok = R[I->src] == R[I->number]; break;
        case Op::DISTINCT: {
            std::vector<PyObject *> objects;
            objects.reserve(I->operand->regs.size());
            for (int r : I->operand->regs) objects.push_back(R[r]);
            ok = all_distinct(objects.data(), objects.size());
            break;
        }
        case Op::OVERLAP: ok = overlaps_as_told(*I->operand, R); break;
        case Op::TYPE_ATTRS: ok = type_attrs_match(R[I->src], *I->operand->attrs); break;
        case Op::FUNCTION: ok = function_matches(R[I->src], I->operand->keys); break;

        case Op::STATE: ok = state_matches(I->operand->object); break;
        case Op::VAR_EQ: ok = V[I->src] == I->number; break;
        case Op::VAR_SAME: ok = V[I->src] == V[I->dst]; break;
        case Op::RELATION: ok = relation_holds(p.relations[I->number], V); break;
        case Op::END: return kPassed;

        case Op::SET: R[I->dst] = static_cast<PyObject *>(I->pointer); continue;
        case Op::ROOT:
            if (!(ok = R[I->src] == I->pointer)) f.spoiled = I->origin;
            break;
        case Op::SAME_DICTS:
            for (const SameDict *d = s->dicts.data() + I->src, *end = s->dicts.data() + I->dst; ok && d != end; d++)
                if (!(ok = (!d->slot || *d->slot == d->dict) && d->version.same())) f.spoiled = d->origin;
            break;
        case Op::SAME_CLASS: {
            auto *t = static_cast<PyTypeObject *>(I->second);
            ok = (!I->pointer || Py_TYPE(static_cast<PyObject *>(I->pointer)) == t) &&
                 pl_class_version(t) == static_cast<unsigned>(I->number);
            if (!ok) f.spoiled = I->origin;
            break;
        }
        case Op::SAME_TYPES:
            for (const SameType &t : s->types) ok = ok && t.type->is(reinterpret_cast<PyObject *>(Py_TYPE(t.object)));
            break;
        case Op::KNOWN_TENSORS:
            for (const KnownTensor &t : s->tensors)
                if (!(ok = tensor_matches(t.object, *t.spec))) break;
            break;
        case Op::DISTINCT_FROM: { // the fresh ones among themselves and against the sorted known ones
            auto &known = *static_cast<std::vector<PyObject *> *>(I->pointer);
            std::vector<PyObject *> fresh;
            for (int r : *static_cast<std::vector<int> *>(I->second)) fresh.push_back(R[r]);
            for (PyObject *x : fresh) ok = ok && !std::binary_search(known.begin(), known.end(), x);
            ok = ok && all_distinct(fresh.data(), fresh.size());
            break;
        }
        }
        if (__builtin_expect(!ok, 0)) return static_cast<int>(I - code.data());
        if (o) {
            R[I->dst] = o;
            if (owned) f.owned[f.nowned++] = o;
            else if (p.hold_all) f.owned[f.nowned++] = Py_NewRef(o);
        }
    }
}

} // namespace pliant

// set_tensor_readers(match: (tensor, spec) -> bool, number: (tensor, what, dim) -> int)
extern "C" PyObject *pl_set_tensor_readers(PyObject *, PyObject *args) {
    PyObject *match, *number;
    if (!PyArg_ParseTuple(args, "OO", &match, &number)) return nullptr;
    Py_XSETREF(pliant::slow_tensor, Py_NewRef(match));
    Py_XSETREF(pliant::slow_metadata, Py_NewRef(number));
    Py_RETURN_NONE;
}
