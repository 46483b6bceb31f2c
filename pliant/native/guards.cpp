// `native.Guard`: built from the flat program that guards/program.py writes.
#include "guards.h"
#include "shared.h"
#include <algorithm>
#include <map>
#include <new>
#include <tuple>

namespace pliant {

Program::~Program() {
    drop_snapshot(snapshot);
    for (auto &x : predicates) Py_XDECREF(x.fn);
}

namespace {

struct GuardObject {
    PyObject_HEAD
    Program *program;
    PyObject *describe; // (failing instruction, value seen, variables) -> what explain() returns
};
PyTypeObject *guard_type = nullptr;

const char *const kOpNames[] = {
#define X(name) #name,
    PLIANT_OPS(X)
#undef X
};

// ---- building -----------------------------------------------------------------------------------------------------

bool to_ints(PyObject *tuple, std::vector<int64_t> &out) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) out.push_back(PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, i)));
    return !PyErr_Occurred();
}

bool to_held(PyObject *tuple, std::vector<Held> &out) {
    out.reserve(PyTuple_GET_SIZE(tuple));
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) out.emplace_back(PyTuple_GET_ITEM(tuple, i), true);
    return true;
}

// (example, type, requires_grad, ndim, sizes, strides, offset); sizes, strides and offset use -1 for "any"
bool parse_tensor(PyObject *arg, Operand &x) {
    PyObject *example, *type, *sizes, *strides;
    int grad;
    long long nd, offset;
    if (!PyArg_ParseTuple(arg, "OO!pLO!O!L", &example, &PyType_Type, &type, &grad, &nd, &PyTuple_Type, &sizes, &PyTuple_Type,
                          &strides, &offset))
        return false;
    if (!layout.ok || PyTuple_GET_SIZE(sizes) != nd || PyTuple_GET_SIZE(strides) != nd) {
        PyErr_SetString(PyExc_ValueError, "a tensor check needs the layout, and as many sizes and strides as dims");
        return false;
    }
    x.tensor = std::make_shared<TensorSpec>(type);
    const char *im = impl_of(example);
    x.tensor->keys = keys_of(im);
    x.tensor->dtype_device = dtype_device_of(im);
    x.tensor->ndim = nd;
    x.tensor->requires_grad = grad;
    x.tensor->offset = offset;
    return to_ints(sizes, x.tensor->sizes) && to_ints(strides, x.tensor->strides);
}

// {name: (how, object)}; `how` as in TypeAttrs::absent
bool parse_attrs(PyObject *arg, Operand &x) {
    x.attrs = std::make_unique<TypeAttrs>();
    PyObject *k, *v;
    Py_ssize_t pos = 0;
    while (PyDict_Next(arg, &pos, &k, &v)) {
        if (PyUnicode_CompareWithASCIIString(k, "<mro>") == 0) { // no name to look up: the order in which names are
            if (!PyTuple_Check(PyTuple_GET_ITEM(v, 1))) return PyErr_SetString(PyExc_TypeError, "<mro> takes a tuple"), false;
            if (!to_held(PyTuple_GET_ITEM(v, 1), x.attrs->mro)) return false;
            continue;
        }
        PyObject *name = Py_NewRef(k);
        PyUnicode_InternInPlace(&name);
        x.attrs->absent.push_back(static_cast<uint8_t>(PyLong_AsLong(PyTuple_GET_ITEM(v, 0))));
        x.attrs->names.emplace_back(name, Held(PyTuple_GET_ITEM(v, 1)));
    }
    return !PyErr_Occurred();
}

bool parse_operand(Op op, PyObject *arg, Operand &x) {
    switch (op) {
    case Op::GLOBAL:
    case Op::ATTR:
    case Op::KEY:
        x.object = Py_NewRef(arg);
        if (PyUnicode_CheckExact(arg)) PyUnicode_InternInPlace(&x.object);
        x.hash = PyObject_Hash(x.object);
        return x.hash != -1;
    case Op::CONTAINS: {
        int flag;
        PyObject *key;
        if (!PyArg_ParseTuple(arg, "Op", &key, &flag)) return false;
        x.object = Py_NewRef(key);
        x.flag = flag;
        x.hash = PyObject_Hash(key);
        return x.hash != -1;
    }
    case Op::LACKS: { // {name: None or the type of the empty dict under it}, as (name, type, name, type, ...)
        if (!(x.object = PyTuple_New(2 * PyDict_GET_SIZE(arg)))) return false;
        PyObject *k, *v;
        Py_ssize_t pos = 0;
        for (Py_ssize_t i = 0; PyDict_Next(arg, &pos, &k, &v); i += 2) {
            if (!PyUnicode_CheckExact(k)) {
                PyErr_SetString(PyExc_TypeError, "DICT_LACKS takes names");
                return false;
            }
            PyObject *name = Py_NewRef(k);
            PyUnicode_InternInPlace(&name);
            PyTuple_SET_ITEM(x.object, i, name);
            PyTuple_SET_ITEM(x.object, i + 1, Py_NewRef(v));
            if (PyObject_Hash(name) == -1) return false; // from here on the string knows it
        }
        return true;
    }
    case Op::APPLY: x.object = Py_NewRef(arg); return true;
    case Op::CONST:
    case Op::IS_TYPE:
    case Op::IS_OBJECT: x.held.~Held(); new (&x.held) Held(arg, op != Op::CONST); return true;
    case Op::STATE:
        if (!is_state(arg)) {
            PyErr_SetString(PyExc_TypeError, "GLOBAL_STATE takes what native.global_state() returned");
            return false;
        }
        [[fallthrough]];
    case Op::EQ:
    case Op::SET_EQ:
    case Op::TENSOR_SLOW: x.object = Py_NewRef(arg); return true;
    case Op::KEYS:
    case Op::FUNCTION: return to_held(arg, x.keys);
    case Op::TENSOR: return parse_tensor(arg, x);
    case Op::TYPE_ATTRS: return parse_attrs(arg, x);
    case Op::DISTINCT:
    case Op::OVERLAP: {
        PyObject *regs = PyTuple_GET_ITEM(arg, 0);
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(regs); i++) x.regs.push_back(static_cast<int>(PyLong_AsLong(PyTuple_GET_ITEM(regs, i))));
        return to_ints(PyTuple_GET_ITEM(arg, 1), x.numbers);
    }
    default: return true;
    }
}

// Many parameters are alike: one spec for all of them stays in the processor's cache.
using SpecKey = std::tuple<PyObject *, uint64_t, uint64_t, int64_t, bool, std::vector<int64_t>, std::vector<int64_t>>;

void share_spec(std::map<SpecKey, std::shared_ptr<TensorSpec>> &specs, Operand &x) {
    const TensorSpec &s = *x.tensor;
    x.tensor = specs.emplace(SpecKey{s.type.get(), s.keys, s.dtype_device, s.offset, s.requires_grad, s.sizes, s.strides}, x.tensor).first->second;
}

bool parse_code(Program &p, PyObject *code) {
    std::map<SpecKey, std::shared_ptr<TensorSpec>> specs;
    const Py_ssize_t n = PyList_GET_SIZE(code);
    p.code.reserve(n + 1);
    for (Py_ssize_t k = 0; k < n; k++) {
        Instruction i{};
        int op;
        long long number;
        PyObject *arg;
        if (!PyArg_ParseTuple(PyList_GET_ITEM(code, k), "iiiLO", &op, &i.dst, &i.src, &number, &arg)) return false;
        i.op = static_cast<Op>(op);
        i.number = number;
        i.origin = static_cast<int>(k);
        if (arg != Py_None || i.op == Op::EQ || i.op == Op::IS_OBJECT || i.op == Op::CONST || i.op == Op::KEY) {
            p.operands.push_back(std::make_unique<Operand>());
            i.operand = p.operands.back().get();
            if (!parse_operand(i.op, arg, *i.operand)) return false;
            if (i.op == Op::TENSOR) share_spec(specs, *i.operand);
        }
        if (i.op == Op::DICT) p.snapshots = true;
        if (i.op == Op::ATTR || i.op == Op::INDEX || i.op == Op::APPLY) p.nowned++;
        if (i.op == Op::APPLY) p.hold_all = true; // it runs Python
        const bool metadata = i.op == Op::SIZE || i.op == Op::STRIDE || i.op == Op::OFFSET;
        if (i.op == Op::TENSOR_SLOW || (metadata && i.number < 0)) p.hold_all = true;
        p.code.push_back(i);
    }
    Instruction end{};
    end.op = Op::END;
    p.code.push_back(end);
    if (p.hold_all) {
        p.nowned = p.nregs;
        p.snapshots = false; // its registers are not owned
    }
    p.strikes.assign(p.code.size(), 0);
    return true;
}

constexpr int kTakes[] = { // operands of each postfix operator
#define X(name, takes) takes,
    PLIANT_POSTFIX(X)
#undef X
};

// ... + a >= b is ... >= b - a. The engine's canonical form compares with 0, so that nearly every bound of a size looks like this.
void move_constant(Relation &r) {
    using enum Postfix;
    const size_t n = r.size();
    if (n < 5) return;
    const auto op = [&r, n](size_t back) { return static_cast<Postfix>(r[n - back].op); };
    const auto compare = op(1), by = op(3);
    if (compare < EQ || compare > GE || op(2) != CONST || (by != ADD && by != SUB) || op(4) != CONST) return;
    const int64_t a = r[n - 4].value, b = r[n - 2].value;
    int64_t bound;
    if (by == ADD ? __builtin_sub_overflow(b, a, &bound) : __builtin_add_overflow(b, a, &bound)) return;
    r.resize(n - 4);
    r.push_back({static_cast<uint8_t>(CONST), bound});
    r.push_back({static_cast<uint8_t>(compare), 0});
}

bool parse_relations(Program &p, PyObject *relations) {
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(relations); k++) {
        PyObject *steps = PyList_GET_ITEM(relations, k);
        Relation r;
        int depth = 0;
        for (Py_ssize_t j = 0; j < PyList_GET_SIZE(steps); j++) {
            int op;
            long long value;
            if (!PyArg_ParseTuple(PyList_GET_ITEM(steps, j), "iL", &op, &value)) return false;
            if (op < 0 || op >= static_cast<int>(std::size(kTakes)) || depth < kTakes[op] || depth >= 60 ||
                (op == static_cast<int>(Postfix::VAR) && (value < 0 || value >= p.nvars))) {
                PyErr_SetString(PyExc_ValueError, "malformed relation");
                return false;
            }
            depth += 1 - kTakes[op];
            r.push_back({static_cast<uint8_t>(op), value});
        }
        if (depth != 1) {
            PyErr_SetString(PyExc_ValueError, "a relation must leave one value");
            return false;
        }
        move_constant(r);
        p.relations.push_back(std::move(r));
    }
    return true;
}

// Guard(code, relations, (nregs, nvars, nargs), slots, visible, predicates, describe)
PyObject *guard_new(PyTypeObject *type, PyObject *args, PyObject *) {
    PyObject *code, *relations, *slots, *predicates, *describe;
    int nregs, nvars, nargs, visible;
    if (!PyArg_ParseTuple(args, "O!O!(iii)O!iO!O", &PyList_Type, &code, &PyList_Type, &relations, &nregs, &nvars, &nargs,
                          &PyList_Type, &slots, &visible, &PyList_Type, &predicates, &describe))
        return nullptr;
    auto program = std::make_unique<Program>();
    Program &p = *program;
    p.nregs = nregs;
    p.nvars = nvars;
    p.nargs = nargs;
    p.visible = visible;
    if (!parse_relations(p, relations) || !parse_code(p, code)) return nullptr;
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(slots); k++) {
        int variable, index;
        if (!PyArg_ParseTuple(PyList_GET_ITEM(slots, k), "pi", &variable, &index)) return nullptr;
        p.slots.push_back({variable != 0, index});
    }
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(predicates); k++) {
        PyObject *fn, *indices;
        if (!PyArg_ParseTuple(PyList_GET_ITEM(predicates, k), "OO!", &fn, &PyTuple_Type, &indices)) return nullptr;
        std::vector<int64_t> numbers;
        if (!to_ints(indices, numbers)) return nullptr;
        p.predicates.push_back({Py_NewRef(fn), std::vector<int>(numbers.begin(), numbers.end()), static_cast<int>(p.code.size() + k)});
    }
    if (PyErr_Occurred()) return nullptr;
    auto *g = reinterpret_cast<GuardObject *>(type->tp_alloc(type, 0));
    if (!g) return nullptr;
    g->program = program.release();
    g->describe = Py_NewRef(describe);
    return reinterpret_cast<PyObject *>(g);
}

int guard_traverse(PyObject *self, visitproc visit, void *arg) {
    auto *g = reinterpret_cast<GuardObject *>(self);
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(g->describe);
    if (!g->program) return 0;
    for (auto &x : g->program->operands) {
        Py_VISIT(x->object);
        if (int r = x->held.traverse(visit, arg)) return r;
        for (auto &k : x->keys)
            if (int r = k.traverse(visit, arg)) return r;
    }
    for (auto &x : g->program->predicates) Py_VISIT(x.fn);
    return 0;
}

int guard_clear(PyObject *self) {
    auto *g = reinterpret_cast<GuardObject *>(self);
    Program *p = g->program;
    g->program = nullptr;
    delete p;
    Py_CLEAR(g->describe);
    return 0;
}

void guard_dealloc(PyObject *self) {
    PyObject_GC_UnTrack(self);
    guard_clear(self);
    PyTypeObject *t = Py_TYPE(self);
    t->tp_free(self);
    Py_DECREF(t);
}

// ---- checking -----------------------------------------------------------------------------------------------------

// Scratch space of one run: on the C stack when small.
class Scratch {
  public:
    Scratch(const Program &p, PyObject *const *args, Py_ssize_t nargs, PyObject *func) {
        const size_t words = static_cast<size_t>(p.nregs) + p.nvars + p.nowned;
        void **space = words <= std::size(small_) ? small_ : (large_ = static_cast<void **>(PyMem_Malloc(words * sizeof(void *))));
        frame = {args, nargs, func, reinterpret_cast<PyObject **>(space), reinterpret_cast<int64_t *>(space + p.nregs),
                 reinterpret_cast<PyObject **>(space + p.nregs + p.nvars), 0, -1};
    }
    ~Scratch() {
        release();
        if (large_) PyMem_Free(large_);
    }
    void release() {
        while (frame.nowned) Py_DECREF(frame.owned[--frame.nowned]);
    }
    bool ok() const { return frame.regs != nullptr; }
    Frame frame;

  private:
    void *small_[160];
    void **large_ = nullptr;
};

void strike(Program &p, int origin) {
    uint8_t &s = p.strikes[origin];
    s = p.hits_since >= 16 ? 1 : static_cast<uint8_t>(s < 255 ? s + 1 : s);
    p.hits_since = 0;
}

bool fill(const Program &p, const Frame &f, PyObject **out) {
    for (size_t i = 0; i < p.slots.size(); i++) {
        const Slot &s = p.slots[i];
        out[i] = s.variable ? PyLong_FromLongLong(f.vars[s.index]) : Py_NewRef(f.regs[s.index]);
        if (!out[i]) {
            while (i--) Py_DECREF(out[i]);
            return false;
        }
    }
    return true;
}

// The first predicate that says no, or kPassed.
int ask_predicates(const Program &p, PyObject *const *slots) {
    for (auto &x : p.predicates) {
        std::vector<PyObject *> args;
        for (int i : x.args) args.push_back(slots[i]);
        PyObject *r = PyObject_Vectorcall(x.fn, args.data(), args.size(), nullptr);
        const bool yes = r && PyObject_IsTrue(r) == 1;
        Py_XDECREF(r);
        PyErr_Clear();
        if (!yes) return x.origin;
    }
    return kPassed;
}

// Runs the snapshot if there is one, else (or when it is out of date) the full program.
bool run_any(Program &p, Scratch &scratch) {
    if (Snapshot *s = p.snapshot) {
        s->refs++;
        const int r = run(p, s->code, scratch.frame, s);
        drop_snapshot(s);
        if (r == kPassed) {
            p.hits_since++;
            return true;
        }
        if (scratch.frame.spoiled < 0) return false;
        strike(p, scratch.frame.spoiled);
        scratch.release();
    }
    p.full_runs++;
    if (run(p, p.code, scratch.frame) != kPassed) return false;
    if (p.snapshots) {
        drop_snapshot(p.snapshot);
        p.snapshot = nullptr;
        if (p.full_runs >= p.next_snapshot) {
            p.tried++;
            p.snapshot = take_snapshot(p, scratch.frame);
            p.pause = p.snapshot ? 0 : std::min<uint64_t>(2 * p.pause + 1, 1023);
            p.next_snapshot = p.full_runs + p.pause;
        }
    }
    return true;
}

PyObject *guard_check_py(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    if (n != 2 || !PyTuple_Check(args[0]) || !PyFunction_Check(args[1]))
        return PyErr_Format(PyExc_TypeError, "check(args: tuple, func: function)");
    std::vector<PyObject *> out(guard_room(self) + 1);
    if (!guard_check(self, reinterpret_cast<PyTupleObject *>(args[0])->ob_item, PyTuple_GET_SIZE(args[0]), args[1], out.data()))
        Py_RETURN_NONE;
    const Py_ssize_t n_slots = guard_slots(self);
    PyObject *t = PyTuple_New(n_slots);
    for (Py_ssize_t i = 0; i < n_slots; i++) {
        if (t) PyTuple_SET_ITEM(t, i, out[i]);
        else Py_DECREF(out[i]);
    }
    return t;
}

PyObject *guard_explain(PyObject *self, PyObject *args) {
    PyObject *frame_args, *func;
    if (!PyArg_ParseTuple(args, "O!O!", &PyTuple_Type, &frame_args, &PyFunction_Type, &func)) return nullptr;
    auto *g = reinterpret_cast<GuardObject *>(self);
    if (!g->program) Py_RETURN_NONE;
    Program &p = *g->program;
    if (PyTuple_GET_SIZE(frame_args) < p.nargs)
        return PyErr_Format(PyExc_ValueError, "the guard reads %d frame arguments, %zd were given", p.nargs, PyTuple_GET_SIZE(frame_args));
    Scratch scratch(p, reinterpret_cast<PyTupleObject *>(frame_args)->ob_item, PyTuple_GET_SIZE(frame_args), func);
    if (!scratch.ok()) return PyErr_NoMemory();
    int failed = run(p, p.code, scratch.frame);
    PyObject *seen = nullptr;
    if (failed == kPassed) {
        std::vector<PyObject *> out(p.slots.size() + 1);
        if (!fill(p, scratch.frame, out.data())) return nullptr;
        failed = ask_predicates(p, out.data());
        if (failed != kPassed) {
            auto &x = p.predicates[failed - static_cast<int>(p.code.size())];
            seen = PyTuple_New(static_cast<Py_ssize_t>(x.args.size()));
            for (size_t i = 0; seen && i < x.args.size(); i++) PyTuple_SET_ITEM(seen, i, Py_NewRef(out[x.args[i]]));
        }
        for (size_t i = 0; i < p.slots.size(); i++) Py_DECREF(out[i]);
        if (failed == kPassed) Py_RETURN_NONE;
    } else {
        const Instruction &i = p.code[failed];
        const bool of_object = i.src >= 0 && i.op < Op::STATE;
        seen = Py_NewRef(of_object ? scratch.frame.regs[i.src] : Py_None);
    }
    // Variables not yet bound hold whatever the stack held: the Python side reads only those that the failing check uses.
    PyObject *vars = PyTuple_New(p.nvars);
    for (int i = 0; vars && i < p.nvars; i++) PyTuple_SET_ITEM(vars, i, PyLong_FromLongLong(scratch.frame.vars[i]));
    PyObject *r = seen && vars ? PyObject_CallFunction(g->describe, "iOO", failed, seen, vars) : nullptr;
    Py_XDECREF(seen);
    Py_XDECREF(vars);
    return r;
}

PyObject *guard_stats(PyObject *self, PyObject *) {
    auto *p = reinterpret_cast<GuardObject *>(self)->program;
    if (!p) return PyDict_New();
    return Py_BuildValue("{sKsKsKsKsnsn}", "hits", p->hits, "misses", p->misses, "full_runs", p->full_runs, "snapshots_tried", p->tried,
                         "instructions", static_cast<Py_ssize_t>(p->code.size()), "snapshot_instructions",
                         static_cast<Py_ssize_t>(p->snapshot ? p->snapshot->code.size() : 0));
}

PyObject *guard_listing(PyObject *self, PyObject *) {
    auto *p = reinterpret_cast<GuardObject *>(self)->program;
    PyObject *list = PyList_New(0);
    for (const auto *code : {p ? &p->code : nullptr, p && p->snapshot ? &p->snapshot->code : nullptr}) {
        if (!code || !list) continue;
        for (auto &i : *code) {
            PyObject *row = Py_BuildValue("siiL", kOpNames[static_cast<int>(i.op)], i.dst, i.src, static_cast<long long>(i.number));
            if (!row || PyList_Append(list, row) < 0) Py_CLEAR(list);
            Py_XDECREF(row);
            if (!list) return nullptr;
        }
    }
    return list;
}

PyObject *get_hits(PyObject *self, void *) {
    auto *p = reinterpret_cast<GuardObject *>(self)->program;
    return PyLong_FromUnsignedLongLong(p ? p->hits : 0);
}
PyObject *get_dead(PyObject *self, void *) { return PyBool_FromLong(guard_dead(self)); }

PyMethodDef methods[] = {
    {"check", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(guard_check_py)), METH_FASTCALL,
     "check(args, func) -> tuple of slots, or None when the guard does not hold."},
    {"explain", guard_explain, METH_VARARGS,
     "explain(args, func) -> (guard index | None, relation index | None, text), or None when the guard holds."},
    {"stats", guard_stats, METH_NOARGS, "Counters of this guard."},
    {"listing", guard_listing, METH_NOARGS, "The program, then the snapshot: rows (op, dst, src, number)."},
    {nullptr, nullptr, 0, nullptr},
};
PyGetSetDef getset[] = {
    {"hits", get_hits, nullptr, "How often the guard held.", nullptr},
    {"dead", get_dead, nullptr, "An object that the guard refers to weakly is gone: it can never hold again.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};
PyType_Slot slots[] = {
    {Py_tp_new, reinterpret_cast<void *>(guard_new)},
    {Py_tp_dealloc, reinterpret_cast<void *>(guard_dealloc)},
    {Py_tp_traverse, reinterpret_cast<void *>(guard_traverse)},
    {Py_tp_clear, reinterpret_cast<void *>(guard_clear)},
    {Py_tp_methods, methods},
    {Py_tp_getset, getset},
    {Py_tp_doc, const_cast<char *>("A compiled guard; made by pliant.guards.program.compile_guards.")},
    {0, nullptr},
};
PyType_Spec spec = {"pliant.native.Guard", sizeof(GuardObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, slots};

} // namespace

bool is_guard(PyObject *o) { return Py_IS_TYPE(o, guard_type); }

Py_ssize_t guard_room(PyObject *guard) {
    auto *p = reinterpret_cast<GuardObject *>(guard)->program;
    return p ? static_cast<Py_ssize_t>(p->slots.size()) : 0;
}

Py_ssize_t guard_slots(PyObject *guard) {
    auto *p = reinterpret_cast<GuardObject *>(guard)->program;
    return p ? static_cast<Py_ssize_t>(p->visible) : 0;
}

bool guard_dead(PyObject *guard) {
    auto *p = reinterpret_cast<GuardObject *>(guard)->program;
    if (!p || p->dead) return true;
    for (auto &i : p->code)
        if ((i.op == Op::CONST || i.op == Op::IS_OBJECT) && i.operand->held.dead()) p->dead = true;
    return p->dead;
}

bool guard_check(PyObject *guard, PyObject *const *args, Py_ssize_t nargs, PyObject *func, PyObject **out) {
    auto *p = reinterpret_cast<GuardObject *>(guard)->program;
    if (!p || p->dead || nargs < p->nargs) return false;
    bool ok;
    {
        Scratch scratch(*p, args, nargs, func);
        ok = scratch.ok() && run_any(*p, scratch) && fill(*p, scratch.frame, out);
    }
    if (ok && !p->predicates.empty()) {
        ok = ask_predicates(*p, out) == kPassed;
        for (size_t i = ok ? p->visible : 0; i < p->slots.size(); i++) Py_DECREF(out[i]);
    }
    ok ? p->hits++ : p->misses++;
    if (!ok) PyErr_Clear();
    return ok;
}

} // namespace pliant

extern "C" PyObject *pl_set_tensor_readers(PyObject *, PyObject *); // run.cpp
extern "C" PyObject *pl_set_tensor_type(PyObject *, PyObject *);    // values.cpp

static PyObject *generic_attributes(PyObject *, PyObject *o) {
    return PyBool_FromLong(PyType_Check(o) && reinterpret_cast<PyTypeObject *>(o)->tp_getattro == PyObject_GenericGetAttr);
}

// Whether instances of a class hold, beside what its base holds, only a `__dict__`, weak references and `__slots__`: what a class
// statement makes. Heap types of C look like classes, but have memory or a destructor of their own.
static PyObject *pl_made_in_python(PyObject *, PyObject *cls) {
    static destructor of_classes = nullptr;
    if (!PyType_Check(cls)) return PyErr_Format(PyExc_TypeError, "made_in_python(class)");
    if (!of_classes) {
        PyObject *sample = PyObject_CallFunction(reinterpret_cast<PyObject *>(&PyType_Type), "s(){}", "sample");
        if (!sample) return nullptr;
        of_classes = reinterpret_cast<PyTypeObject *>(sample)->tp_dealloc;
        Py_DECREF(sample);
    }
    auto *t = reinterpret_cast<PyTypeObject *>(cls);
    const PyTypeObject *base = t->tp_base;
    if (!(t->tp_flags & Py_TPFLAGS_HEAPTYPE) || !base || t->tp_dealloc != of_classes) Py_RETURN_FALSE;
    PyObject *slots = reinterpret_cast<PyHeapTypeObject *>(cls)->ht_slots;
    Py_ssize_t words = slots ? PyTuple_GET_SIZE(slots) : 0;
    words += t->tp_weaklistoffset > 0 && base->tp_weaklistoffset == 0;
    words += t->tp_dictoffset != 0 && base->tp_dictoffset == 0;
    return PyBool_FromLong(t->tp_basicsize <= base->tp_basicsize + words * static_cast<Py_ssize_t>(sizeof(PyObject *)));
}

static PyMethodDef module_methods[] = {
    {"made_in_python", pl_made_in_python, METH_O, "Whether a class statement made this class, as the layout of its instances tells."},
    {"generic_attributes", generic_attributes, METH_O, "generic_attributes(type): are attributes found as object.__getattribute__ does?"},
    {"set_tensor_readers", pl_set_tensor_readers, METH_VARARGS, "set_tensor_readers(match, number): Python readers for the slow path."},
    {"set_tensor_type", pl_set_tensor_type, METH_VARARGS, "set_tensor_type(Tensor, raw __torch_function__ that are not user code)"},
    {nullptr, nullptr, 0, nullptr},
};

extern "C" int pl_guards_init(PyObject *module) {
    using namespace pliant;
    if (!values_init()) return -1;
    guard_type = reinterpret_cast<PyTypeObject *>(PyType_FromSpec(&spec));
    if (!guard_type || PyModule_AddObjectRef(module, "Guard", reinterpret_cast<PyObject *>(guard_type)) < 0) return -1;
    PyObject *ops = PyTuple_New(std::size(kOpNames));
    for (size_t i = 0; ops && i < std::size(kOpNames); i++) PyTuple_SET_ITEM(ops, i, PyUnicode_FromString(kOpNames[i]));
    if (!ops || PyModule_AddObjectRef(module, "OPS", ops) < 0) return -1;
    Py_DECREF(ops);
    return PyModule_AddFunctions(module, module_methods);
}
