// Products of matrices of f16 and bf16, on one thread: summed in f32, rounded once.
#pragma once
#include "matmul.h"

namespace pliant {

struct HalfMatrix {
    const uint16_t *data;
    int64_t row, column; // one of the two is 1
    HalfMatrix part(int64_t i, int64_t j) const { return {data + i * row + j * column, row, column}; }
};

struct HalfResult {
    uint16_t *c;
    int64_t ldc;
    const uint16_t *bias; // a row that is added to every row, or null
    HalfResult part(int64_t i, int64_t j) const { return {c + i * ldc + j, ldc, bias ? bias + j : nullptr}; }
};

// The loops that are different for each width of vectors.
struct Halves {
    const Loops *loops;
    void (*dots)(const Matrix &a, const HalfMatrix &b, const Result &out, int64_t m, int64_t n, int64_t k); // b: columns of f16
    void (*widen)(const uint16_t *from, float *to, int64_t n);
    void (*narrow)(const float *from, const uint16_t *bias, uint16_t *to, int64_t n);
};
extern const Halves halves512, halves256;

// Loops of 512 bits over elements that are pairs of bf16, side by side along k.
struct Pairs {
    Loops loops;
    void (*pair)(const uint16_t *even, const uint16_t *odd, float *to, int64_t n); // odd: null for zeros
    void (*narrow)(const float *from, const uint16_t *bias, uint16_t *to, int64_t n);
};
extern const Pairs pairs512;
bool pairs_run(); // whether this machine has the instruction for them

// False: there is not enough memory.
bool multiply_f16(const Halves &h, Way way, const HalfMatrix &a, const HalfMatrix &b, const HalfResult &out, int64_t m, int64_t n, int64_t k);
bool multiply_bf16(Way way, const HalfMatrix &a, const HalfMatrix &b, const HalfResult &out, int64_t m, int64_t n, int64_t k);

} // namespace pliant
