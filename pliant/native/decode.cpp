// Bytecode to (handler, operand) pairs: the loop over code units of `bytecode/decode.py`, which says what each opcode's row means.
#include "core.h"
#include "shared.h"
#include <vector>

namespace pliant {

static PyObject *item(PyObject *pool, long at) {
    if (!PyTuple_Check(pool) || at < 0 || at >= PyTuple_GET_SIZE(pool)) {
        PyErr_SetString(PyExc_ValueError, "an operand indexes beyond its pool");
        return nullptr;
    }
    return Py_NewRef(PyTuple_GET_ITEM(pool, at));
}

static PyObject *operand(long way, long arg, long shift, PyObject *pools, PyObject *fixed) {
    if (way >= 0) {
        PyObject *pool = way < PyTuple_GET_SIZE(pools) ? PyTuple_GET_ITEM(pools, way) : nullptr;
        return pool ? item(pool, arg >> shift) : (PyErr_SetString(PyExc_ValueError, "no such pool"), nullptr);
    }
    switch (way) {
    case FLAGGED: { // (name, the bits below its index)
        PyObject *n = item(PyTuple_GET_ITEM(pools, 0), arg >> shift);
        return n ? Py_BuildValue("(Nl)", n, arg & ((1L << shift) - 1)) : nullptr;
    }
    case FIXED: return Py_NewRef(fixed);
    case NONE: Py_RETURN_NONE;
    case HIGH: return PyLong_FromLong(arg >> 4);
    case LOW: return PyLong_FromLong(arg & 15);
    default: return PyLong_FromLong(arg >> shift);
    }
}

static PyObject *parts_of(PyObject *row, long arg) {
    PyObject *usual = PyTuple_GET_ITEM(row, 1), *other = PyTuple_GET_SIZE(row) > 2 ? PyTuple_GET_ITEM(row, 2) : nullptr;
    if (!other) return usual;
    if (!PyDict_Check(other)) return arg & 1 ? other : usual;
    PyObject *key = PyLong_FromLong(arg), *found = key ? PyDict_GetItem(other, key) : nullptr;
    Py_XDECREF(key);
    return found ? found : usual;
}

// decode_units(bytecode, rows, pools, extended_arg) -> (instructions, kinds, offsets, targets of backward jumps).
// rows[opcode] = (code units with caches, (part, ...)[, parts if the lowest bit of the operand is set, or a dict from operands to parts]);
// a part is (handler, kind, way, shift, fixed operand). pools[0] holds names. Jumps' operands become instruction indexes; their `shift` is how many units behind its
// target such a jump goes on. An instruction's offset is that of its first prefix; a second part's is one more.
static PyObject *decode_units(PyObject *, PyObject *args) {
    Py_buffer raw;
    PyObject *rows, *pools;
    long extended;
    if (!PyArg_ParseTuple(args, "y*O!O!l", &raw, &PyTuple_Type, &rows, &PyTuple_Type, &pools, &extended)) return nullptr;
    const auto *code = static_cast<const unsigned char *>(raw.buf);
    const Py_ssize_t size = raw.len & ~Py_ssize_t{1};
    std::vector<long> index(size / 2 + 1, -1); // of the instruction that begins at a code unit, or has its prefix there
    struct Target { Py_ssize_t instruction, unit; bool back; };
    std::vector<Target> targets;
    PyObject *ins = PyList_New(0), *kinds = PyList_New(0), *offsets = PyList_New(0), *headers = PySet_New(nullptr), *out = nullptr;
    bool good = ins && kinds && offsets && headers && PyTuple_GET_SIZE(rows) == 256 && PyTuple_GET_SIZE(pools) > 0;
    long high = 0;
    Py_ssize_t begin = -1; // of an instruction with prefixes
    for (Py_ssize_t at = 0; good && at < size;) {
        index[at / 2] = PyList_GET_SIZE(ins);
        const long arg = code[at + 1] | high;
        if (code[at] == extended) {
            high = arg << 8;
            if (begin < 0) begin = at;
            at += 2;
            continue;
        }
        high = 0;
        PyObject *row = PyTuple_GET_ITEM(rows, code[at]);
        const long units = PyLong_AsLong(PyTuple_GET_ITEM(row, 0));
        PyObject *parts = parts_of(row, arg);
        for (Py_ssize_t i = 0; good && i < PyTuple_GET_SIZE(parts); i++) {
            PyObject *part = PyTuple_GET_ITEM(parts, i);
            const long way = PyLong_AsLong(PyTuple_GET_ITEM(part, 2)), shift = PyLong_AsLong(PyTuple_GET_ITEM(part, 3));
            if (way == FORWARD || way == BACKWARD)
                targets.push_back({PyList_GET_SIZE(ins), at / 2 + units + (way == FORWARD ? arg + shift : -arg), way == BACKWARD});
            PyObject *value = way == FORWARD || way == BACKWARD ? Py_NewRef(Py_None)
                                                                : operand(way, arg, shift, pools, PyTuple_GET_ITEM(part, 4));
            PyObject *pair = value ? PyTuple_Pack(2, PyTuple_GET_ITEM(part, 0), value) : nullptr;
            PyObject *offset = PyLong_FromSsize_t((begin < 0 ? at : begin) + i);
            good = pair && offset && units > 0 && PyList_Append(ins, pair) == 0 && PyList_Append(kinds, PyTuple_GET_ITEM(part, 1)) == 0 &&
                   PyList_Append(offsets, offset) == 0;
            Py_XDECREF(value);
            Py_XDECREF(pair);
            Py_XDECREF(offset);
        }
        begin = -1;
        at += 2 * units;
    }
    for (const Target &t : targets) {
        if (!good) break;
        if (t.unit < 0 || t.unit > size / 2 || index[t.unit] < 0) {
            PyErr_SetString(PyExc_ValueError, "a jump into the middle of an instruction");
            good = false;
            break;
        }
        PyObject *to = PyLong_FromLong(index[t.unit]);
        PyObject *pair = to ? PyTuple_Pack(2, PyTuple_GET_ITEM(PyList_GET_ITEM(ins, t.instruction), 0), to) : nullptr;
        good = pair && PyList_SetItem(ins, t.instruction, pair) == 0 && (!t.back || PySet_Add(headers, to) == 0);
        Py_XDECREF(to);
    }
    if (good) out = PyTuple_Pack(4, ins, kinds, offsets, headers);
    else if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "a table of another shape");
    Py_XDECREF(ins);
    Py_XDECREF(kinds);
    Py_XDECREF(offsets);
    Py_XDECREF(headers);
    PyBuffer_Release(&raw);
    return out;
}

static PyMethodDef methods[] = {{"decode_units", decode_units, METH_VARARGS, "See bytecode/decode.py."}, {nullptr, nullptr, 0, nullptr}};

} // namespace pliant

extern "C" int pl_decode_init(PyObject *m) { return PyModule_AddFunctions(m, pliant::methods); }
