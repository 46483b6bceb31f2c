// What Python and C++ both know, written once: here. The module has each table under its name (shared.cpp), and Python reads it there.
#pragma once
#include <cstddef>
#include <cstdint>

namespace pliant {

// POSTFIX: operators of the relation programs of guards, and how many operands each takes.
#define PLIANT_POSTFIX(X)                                                                                                             \
    X(VAR, 0) X(CONST, 0) X(ADD, 2) X(SUB, 2) X(MUL, 2) X(FLOORDIV, 2) X(MOD, 2) X(NEG, 1) X(ABS, 1) X(MIN, 2) X(MAX, 2)              \
    X(EQ, 2) X(NE, 2) X(LT, 2) X(LE, 2) X(GT, 2) X(GE, 2) X(AND, 2) X(OR, 2) X(NOT, 1) X(WHERE, 3)

enum class Postfix : uint8_t {
#define X(name, takes) name,
    PLIANT_POSTFIX(X)
#undef X
};

// WAYS: how an operand of an instruction is read; what is not negative is the number of the pool that it indexes.
#define PLIANT_WAYS(X) X(FLAGGED, -1) X(FORWARD, -2) X(BACKWARD, -3) X(FIXED, -4) X(NONE, -5) X(PLAIN, -6) X(HIGH, -7) X(LOW, -8)

enum OperandWay : long {
#define X(name, value) name = value,
    PLIANT_WAYS(X)
#undef X
};

// PRODUCT_FLAGS: of a matrix product in a segment.
#define PLIANT_PRODUCT_FLAGS(X) X(TRANSPOSED_A, 1) X(TRANSPOSED_B, 2) X(HAS_BIAS, 4) X(F16, 8) X(BF16, 16)

enum ProductFlag : int64_t {
#define X(name, value) name = value,
    PLIANT_PRODUCT_FLAGS(X)
#undef X
};

// RECURRENT_FLAGS: of a layer of an LSTM, forward and back.
#define PLIANT_RECURRENT_FLAGS(X)                                                                                                     \
    X(REVERSE, 1) X(BIASES, 2) X(PACKED, 4) X(HAS_GRAD_OUT, 8) X(WANT_X, 16) X(ADD_X, 32) X(WANT_WEIGHTS, 64)

enum RecurrentFlag : int64_t {
#define X(name, value) name = value,
    PLIANT_RECURRENT_FLAGS(X)
#undef X
};

// FAILURES: what a kernel returns for an index that is none, or for other bad data, and what eager raises.
#define PLIANT_FAILURES(X)                                                                                                            \
    X(OUT_OF_SELF, 0x40000001, IndexError, "index out of range in self")                                                              \
    X(OUT_OF_BOUNDS, 0x40000002, IndexError, "an index is out of bounds for the dimension that it selects from")                      \
    X(OUT_OF_GATHER, 0x40000003, RuntimeError, "an index is out of bounds for the dimension that it selects from")                    \
    X(OUT_OF_CLASSES, 0x40000004, IndexError, "Target is out of bounds.")                                                             \
    X(NO_RANGE, 0x40000005, RuntimeError, "In ChooseQuantizationParams, min should be less than or equal to max")

enum Failure : int32_t {
#define X(name, value, error, words) name = value,
    PLIANT_FAILURES(X)
#undef X
};

// The same names in Python.
constexpr int32_t OUT_OF_MEMORY = 0x7FFFFFFF; // what a kernel or library call returns
constexpr int64_t ALIGNMENT = 64;             // of what lies in an arena, in bytes
constexpr ptrdiff_t MOST_ARGUMENTS = 1024;   // of one native call: on the stack, of which only what is used is touched

} // namespace pliant
