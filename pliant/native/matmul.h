// Products of f32 matrices, on one thread, for sizes that only a run knows.
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

constexpr int64_t kPanel = 48; // columns; results are the same however a product is cut at multiples of it, and at rows

bool matmul_runs();    // whether this machine's vectors are known here
bool matmul_is_best(); // and the BLAS that PyTorch links is known to do without them
Way matmul_way(const Matrix &a, const Matrix &b, int64_t m, int64_t n, int64_t k);

// Where the result goes: c[i * ldc + j] = alpha * (a @ b), added to plus[i * plus_row + j] if there is such (`c` itself, or one row for all).
struct Result {
    float *c;
    int64_t ldc;
    float alpha = 1.0f;
    const float *plus = nullptr;
    int64_t plus_row = 0;
    Result part(int64_t i, int64_t j) const { return {c + i * ldc + j, ldc, alpha, plus ? plus + i * plus_row + j : nullptr, plus_row}; }
};

// All sizes are at least 1.
void matmul(Way way, const Matrix &a, const Matrix &b, const Result &out, int64_t m, int64_t n, int64_t k);

} // namespace pliant
