// Snapshots: after a full check passed, what hangs below instance dicts need not be read again while those dicts are unchanged.
//
// A dict has a version (dicts.h) that no other state of any dict ever had. So "this object's dict slot still points to this dict, with
// this version" proves that every value below it is the very object seen before, alive (the dict holds it).
// What can change without a dict changing is read again on every call: tensor metadata, classes of objects (`__class__` can be
// assigned), lists, cells, slots, function attributes. Class attributes hang on the version tag of the class.
// A dict or root that keeps changing (a step counter) gets strikes and is then read anew, without spoiling the rest.
#include "program.h"
#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace pliant {
namespace {

// `__class__` can be assigned between classes that Python made, and between kinds of modules.
bool may_change_class(PyObject *o) { return (Py_TYPE(o)->tp_flags & Py_TPFLAGS_HEAPTYPE) || PyModule_Check(o); }

class Builder {
  public:
    Builder(Program &p, const Frame &f)
        : p_(p), R_(f.regs), stable_(p.nregs), set_(p.nregs), rooted_(p.nregs), versioned_(p.nregs), made_by_(p.nregs, -1),
          slot_(p.nregs) {}

    std::unique_ptr<Snapshot> build() {
        for (index_ = 0; index_ < static_cast<int>(p_.code.size()); index_++) step(p_.code[index_]);
        return useful_ && !useless_ ? std::move(s_) : nullptr; // (the program's last instruction is END)
    }

  private:
    bool struck(int origin) const { return origin >= 0 && p_.strikes[origin] >= kVolatile; }

    Instruction &emit(Op op, int origin = -1) {
        Instruction i{};
        i.op = op;
        i.origin = origin;
        s_->code.push_back(i);
        return s_->code.back();
    }
    void need(int r) { // a known register that an instruction of the snapshot reads
        if (r < 0 || !stable_[r] || set_[r]) return;
        set_[r] = true;
        auto &i = emit(Op::SET);
        i.dst = r;
        i.pointer = R_[r];
    }
    void again(const Instruction &i) { // as in the full program
        need(i.src);
        s_->code.push_back(i);
        s_->code.back().origin = index_;
    }
    // Tie to the version of the dict in register r. False when that dict changes too often.
    bool tie(int r) {
        if (!stable_[r] || !PyDict_Check(R_[r]) || struck(made_by_[r])) return false;
        if (!versioned_[r]) {
            versioned_[r] = true;
            same_dict(slot_[r], R_[r], made_by_[r]);
        }
        return true;
    }
    void same_dict(PyObject **slot, PyObject *dict, int origin) {
        const int row = static_cast<int>(s_->dicts.size());
        s_->dicts.push_back({slot, dict, DictVersion(dict), origin});
        useless_ = useless_ || !s_->dicts.back().version.known();
        if (s_->code.empty() || s_->code.back().op != Op::SAME_DICTS) emit(Op::SAME_DICTS).src = row;
        s_->code.back().dst = row + 1;
    }
    void same_object(int r) {
        if (stable_[r] || rooted_[r]) return;
        rooted_[r] = true;
        auto &i = emit(Op::ROOT, index_);
        i.src = r;
        i.pointer = R_[r];
    }
    void same_class(PyObject *of, PyTypeObject *t) {
        auto &i = emit(Op::SAME_CLASS, index_);
        i.pointer = of;
        i.second = t;
        i.number = pl_class_version(t);
    }
    void known(int r) {
        stable_[r] = true;
        made_by_[r] = index_;
        useful_ = true;
    }

    void instance_dict(const Instruction &i) {
        PyObject *owner = R_[i.src];
        PyObject **slot = PyType_Check(owner) || struck(index_) ? nullptr : dict_slot(owner);
        if (!slot) return again(i);
        same_object(i.src);
        known(i.dst);
        slot_[i.dst] = slot;
        tie(i.dst);
    }

    void attribute(const Instruction &i) {
        PyObject *o = R_[i.src];
        PyTypeObject *searched = nullptr;
        if (!stable_[i.src] || struck(index_)) return again(i);
        PyObject *v = read_attr(o, i.operand->object, &searched);
        Py_XDECREF(v); // what `searched` tells of is held by a dict
        const bool is_class = PyType_Check(o);
        PyObject **slot = is_class ? nullptr : _PyObject_GetDictPtr(o);
        if (!v || v != R_[i.dst] || !searched || !pl_class_version(searched) || (is_class && !pl_class_version(Py_TYPE(o))) ||
            (slot && !*slot))
            return again(i);
        same_class(is_class ? nullptr : o, searched);
        if (is_class) same_class(o, Py_TYPE(o));
        if (slot) same_dict(slot, *slot, index_);
        known(i.dst);
    }

    // What is under a known object stays the same with its dict; whether that object is at its place is looked at each time.
    void item(const Instruction &i) {
        const int key = static_cast<int>(i.number);
        if (struck(index_) || !holds_key(i.src, R_[key]) || !tie(i.src)) {
            need(key);
            return again(i);
        }
        same_object(key);
        known(i.dst);
    }
    // Is this very object a key of the dict in register r? Then nobody else gets its address while the dict is as it is.
    bool holds_key(int r, PyObject *key) {
        if (!stable_[r] || !PyDict_Check(R_[r])) return false;
        const auto [found, first] = keys_.try_emplace(R_[r]);
        PyObject *k;
        for (Py_ssize_t pos = 0; first && PyDict_Next(R_[r], &pos, &k, nullptr);) found->second.insert(k);
        return found->second.count(key) != 0;
    }

    void distinct(const Instruction &i) {
        auto known = std::make_unique<std::vector<PyObject *>>();
        auto fresh = std::make_unique<std::vector<int>>();
        for (int r : i.operand->regs)
            if (stable_[r]) known->push_back(R_[r]);
            else fresh->push_back(r);
        if (fresh->empty()) return;
        std::sort(known->begin(), known->end());
        auto &d = emit(Op::DISTINCT_FROM, index_);
        d.pointer = known.get();
        d.second = fresh.get();
        s_->known.push_back(std::move(known));
        s_->fresh.push_back(std::move(fresh));
    }

    void step(const Instruction &i) {
        switch (i.op) {
        case Op::DICT: return instance_dict(i);
        case Op::ATTR: return attribute(i);
        case Op::KEY:
            if (!tie(i.src)) return again(i);
            return known(i.dst);
        case Op::INDEX:
            if (!stable_[i.src] || !PyTuple_Check(R_[i.src])) return again(i);
            return known(i.dst);
        // Of known objects, which the dicts checked so far keep alive, these wait for the end.
        case Op::IS_TYPE:
            if (!stable_[i.src]) return again(i);
            if (may_change_class(R_[i.src])) s_->types.push_back({R_[i.src], &i.operand->held});
            return;
        case Op::TENSOR:
            if (!stable_[i.src]) return again(i);
            s_->tensors.push_back({R_[i.src], i.operand->tensor.get()});
            return;
        case Op::IS_OBJECT:
            if (!stable_[i.src]) again(i);
            return;
        case Op::EQ:
            if (!stable_[i.src] || !immutable_const(i.operand->object)) again(i);
            return;
        case Op::LENGTH:
            if (stable_[i.src] && PyTuple_Check(R_[i.src])) return;
            if (!tie(i.src)) again(i);
            return;
        case Op::KEYS: // the order of an OrderedDict can change under the same version, if it has one
            if ((is_ordered_dict(R_[i.src]) && i.operand->keys.size() > 1) || !tie(i.src)) again(i);
            return;
        case Op::CONTAINS:
            if (!tie(i.src)) again(i);
            return;
        case Op::LACKS: // the empty dicts hang on their own versions
            if (!tie(i.src)) return again(i);
            for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(i.operand->object); k += 2) {
                PyObject *name = PyTuple_GET_ITEM(i.operand->object, k);
                if (PyTuple_GET_ITEM(i.operand->object, k + 1) != Py_None)
                    same_dict(nullptr, dict_get(R_[i.src], name, PyObject_Hash(name)), index_);
            }
            return;
        case Op::ITEM: return item(i);
        case Op::LACKS_ITEM:
            need(static_cast<int>(i.number));
            return again(i);
        case Op::ALIAS:
            if (stable_[i.src] && stable_[i.number]) return;
            need(static_cast<int>(i.number));
            return again(i);
        case Op::DISTINCT: return distinct(i);
        case Op::OVERLAP:
            for (int r : i.operand->regs) need(r);
            return again(i);
        case Op::VAR_EQ:
        case Op::VAR_SAME:
        case Op::RELATION:
        case Op::STATE:
            s_->code.push_back(i);
            s_->code.back().origin = index_;
            return;
        case Op::END:
            if (!s_->types.empty()) emit(Op::SAME_TYPES);
            if (!s_->tensors.empty()) emit(Op::KNOWN_TENSORS);
            for (auto &slot : p_.slots)
                if (!slot.variable) need(slot.index);
            s_->code.push_back(i);
            return;
        default: return again(i);
        }
    }

    Program &p_;
    PyObject **R_;
    std::unique_ptr<Snapshot> s_ = std::make_unique<Snapshot>();
    std::vector<char> stable_, set_, rooted_, versioned_;
    std::vector<int> made_by_;
    std::vector<PyObject **> slot_;
    std::unordered_map<PyObject *, std::unordered_set<PyObject *>> keys_; // of dicts
    int index_ = 0;
    bool useful_ = false, useless_ = false; // something is known; nobody tells when a dict that it hangs on changes
};

} // namespace

Snapshot *take_snapshot(Program &p, const Frame &f) {
    return Builder(p, f).build().release();
}

void drop_snapshot(Snapshot *s) {
    if (s && --s->refs == 0) delete s;
}

} // namespace pliant
