// Products of f32 matrices and attention, on one thread, for sizes that only a run knows.
#pragma once
#include <cstdint>

namespace pliant {

// Element (i, j) is at data[i * row + j * column]; one of the two is 1.
struct Matrix {
    const float *data;
    int64_t row, column;
    Matrix part(int64_t i, int64_t j) const { return {data + i * row + j * column, row, column}; }
};

enum class Way { Columns, Packed, Dots }; // how the second operand is read: as it lies, copied into panels, along its columns

constexpr int64_t kPanel = 48; // columns; results are the same however a product is cut, but cuts elsewhere cost time

// Where the result goes: c[i * ldc + j] = alpha * (a @ b), added to plus[i * plus_row + j] if there is such (`c` itself, or one row for all).
struct Result {
    float *c;
    int64_t ldc;
    float alpha = 1.0f;
    const float *plus = nullptr;
    int64_t plus_row = 0;
    Result part(int64_t i, int64_t j) const { return {c + i * ldc + j, ldc, alpha, plus ? plus + i * plus_row + j : nullptr, plus_row}; }
};

struct Rows; // attention.h
struct Lines; // these three: recurrent.h
struct Cell;
struct CellBack;

// The same loops for one width of vectors. All sizes are at least 1.
struct Loops {
    Way (*way)(const Matrix &a, const Matrix &b, int64_t m, int64_t n, int64_t k);
    void (*multiply)(Way way, const Matrix &a, const Matrix &b, const Result &out, int64_t m, int64_t n, int64_t k);
    void (*attend)(const Rows &);
    // Null without vectors.
    void (*lstm_cell)(const Cell &);
    void (*lstm_cell_back)(const CellBack &);
    void (*sum_rows)(const Lines &, int64_t n, float *out, int64_t from, int64_t to);
};
extern const Loops loops512, loops256;
extern const Loops loops_plain; // without vectors, for every machine

// The loops for vectors of so many bits; null where this machine does not run them.
const Loops *loops_of(int64_t bits);
bool matmul_is_best(); // the BLAS that PyTorch links is known to be slower than these here

// Those for 512 bits.
bool matmul_runs();
inline Way matmul_way(const Matrix &a, const Matrix &b, int64_t m, int64_t n, int64_t k) { return loops512.way(a, b, m, n, k); }
inline void matmul(Way way, const Matrix &a, const Matrix &b, const Result &out, int64_t m, int64_t n, int64_t k) {
    loops512.multiply(way, a, b, out, m, n, k);
}

} // namespace pliant
