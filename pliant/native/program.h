// The guard program: a flat list of reads and checks over registers (objects) and variables (64-bit integers).
#pragma once
#include "core.h"
#include "dicts.h"
#include "state.h"
#include "tensor_layout.h"
#include "values.h"
#include <memory>
#include <vector>

namespace pliant {

// Name, used by program.py and in messages. Reads come first, then checks; the last group exists only in snapshots.
#define PLIANT_OPS(X)                                                                                                          \
    /* R[dst] = a read of R[src] or of the frame */                                                                           \
    X(LOCAL) X(GLOBAL) X(FUNC) X(CONST) X(ATTR) X(DICT) X(KEY) X(ITEM) X(INDEX) X(CELL) X(CONTENTS) X(TYPE) X(APPLY)                  \
    /* V[dst] = an integer of R[src] */                                                                                        \
    X(SIZE) X(STRIDE) X(OFFSET) X(LEN) X(BIND_INT)                                                                             \
    /* checks of R[src] */                                                                                                     \
    X(IS_TYPE) X(IS_OBJECT) X(EQ) X(LENGTH) X(KEYS) X(CONTAINS) X(LACKS) X(LACKS_ITEM) X(SET_EQ) X(TENSOR) X(TENSOR_SLOW) X(ALIAS)          \
    X(DISTINCT) X(OVERLAP) X(TYPE_ATTRS) X(FUNCTION)                                                                                       \
    /* checks of the state, of variables */                                                                                    \
    X(STATE) X(VAR_EQ) X(VAR_SAME) X(RELATION) X(END)                                                                          \
    /* only in a snapshot: constants, the same root, the same dicts, the same class of a known object, known tensors */        \
    X(SET) X(ROOT) X(SAME_DICTS) X(SAME_TYPES) X(SAME_CLASS) X(KNOWN_TENSORS) X(DISTINCT_FROM)

enum class Op : uint8_t {
#define X(name) name,
    PLIANT_OPS(X)
#undef X
};

// One TENSOR_MATCH. Sizes and strides of -1 are free (a dim of a tensor is never negative; strides of tensors neither).
struct TensorSpec {
    Held type;
    uint64_t keys = 0, dtype_device = 0;
    int64_t ndim = 0, offset = -1;
    bool requires_grad = false;
    std::vector<int64_t> sizes, strides;
    explicit TensorSpec(PyObject *t) : type(t) {}
};

struct TypeAttrs { // the class's version tag when all names were last looked up: unchanged, nothing below it changed
    std::vector<std::pair<PyObject *, Held>> names;
    std::vector<uint8_t> absent; // 0: that object; 1: nothing; 2: nothing or None
    std::vector<Held> mro;       // if not empty: the classes of the MRO, the class itself aside
    PyTypeObject *seen = nullptr;
    unsigned version = 0;
    ~TypeAttrs() {
        for (auto &n : names) Py_DECREF(n.first);
    }
};

struct Operand { // whatever the instruction needs beside its numbers; owned by the program
    Held held;                           // CONST, IS_TYPE, IS_OBJECT
    PyObject *object = nullptr;          // key, attribute name, EQ value, LACKS pairs, state, slow tensor spec
    Py_hash_t hash = 0;                  // of `object` as a dict key
    bool flag = false;                   // CONTAINS
    std::vector<Held> keys;              // KEYS; FUNCTION: code, defaults, kwdefaults
    std::vector<int> regs;               // DISTINCT, OVERLAP
    std::vector<int64_t> numbers;        // OVERLAP: item sizes and flags
    std::shared_ptr<TensorSpec> tensor;  // TENSOR; equal ones are one
    std::unique_ptr<TypeAttrs> attrs;    // TYPE_ATTRS
    Operand() = default;
    ~Operand() { Py_XDECREF(object); }
};

struct Instruction {
    Op op;
    int32_t dst = -1, src = -1;
    int64_t number = 0;
    Operand *operand = nullptr;
    void *pointer = nullptr; // snapshots: object, dict slot, type
    void *second = nullptr;  // snapshots: dict
    int32_t origin = -1;     // index in the full program
};

struct RelationStep {
    uint8_t op;
    int64_t value;
};
using Relation = std::vector<RelationStep>;

struct Slot {
    bool variable;
    int index;
};

// What a snapshot checks over and over, in rows: few bytes each, read in one sweep.
struct SameDict {
    PyObject **slot; // where an object keeps its dict; null for a dict that another one holds
    PyObject *dict;
    DictVersion version;
    int32_t origin;
};
struct SameType {
    PyObject *object;
    const Held *type;
};
struct KnownTensor {
    PyObject *object;
    const TensorSpec *spec;
};

struct Snapshot {
    int refs = 1; // the guard's and those of runs in progress; under the GIL
    std::vector<Instruction> code;
    std::vector<SameDict> dicts;       // SAME_DICTS: rows `src` to `dst`
    std::vector<SameType> types;       // SAME_TYPES: all
    std::vector<KnownTensor> tensors;  // KNOWN_TENSORS: all
    std::vector<std::unique_ptr<std::vector<PyObject *>>> known; // DISTINCT_FROM: sorted addresses
    std::vector<std::unique_ptr<std::vector<int>>> fresh;        // and the registers to compare with them
};

struct Program {
    std::vector<Instruction> code;
    std::vector<std::unique_ptr<Operand>> operands;
    std::vector<Relation> relations;
    std::vector<Slot> slots;              // the ones handed out, then hidden ones for the predicates
    size_t visible = 0;
    struct Predicate {
        PyObject *fn;
        std::vector<int> args; // indices in `slots`
        int origin;
    };
    std::vector<Predicate> predicates;
    int nregs = 0, nvars = 0, nargs = 0, nowned = 0;
    bool hold_all = false; // a read may run Python: own every object read
    bool snapshots = false;
    bool dead = false;     // a weakly held object died: it can never hold again
    Snapshot *snapshot = nullptr;
    std::vector<uint8_t> strikes;         // per instruction: how often it spoiled a snapshot lately
    uint32_t hits_since = 0;
    uint64_t hits = 0, misses = 0, full_runs = 0;
    // Full runs: when a snapshot is tried again, how many go by if that is in vain; and how often it was tried.
    uint64_t next_snapshot = 0, pause = 0, tried = 0;
    ~Program();
};

constexpr int kPassed = -1;
constexpr uint8_t kVolatile = 4; // strikes after which a dict or root is read anew on every call

struct Frame { // what a run reads from and writes to
    PyObject *const *args;
    Py_ssize_t nargs;
    PyObject *func;
    PyObject **regs;
    int64_t *vars;
    PyObject **owned;
    int nowned;
    int spoiled; // a snapshot's run: the instruction of the full program whose dict or class is no longer the one seen
};

// run.cpp: index of the failing instruction, or kPassed. A snapshot's run leaves `f.spoiled` where a full one may still pass.
int run(Program &p, const std::vector<Instruction> &code, Frame &f, const Snapshot *s = nullptr);
bool relation_holds(const Relation &r, const int64_t *vars);
// snapshot.cpp
Snapshot *take_snapshot(Program &p, const Frame &f); // after a full run passed
void drop_snapshot(Snapshot *s);
extern PyObject *slow_tensor; // Python: (tensor, spec) -> bool; and the reader of sizes
extern PyObject *slow_metadata;

} // namespace pliant
