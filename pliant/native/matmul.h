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

// c[i * ldc + j] = alpha * (a @ b), added to what is there if `accumulate`. All sizes are at least 1.
void matmul(Way way, const Matrix &a, const Matrix &b, float *c, int64_t ldc, int64_t m, int64_t n, int64_t k, float alpha, bool accumulate);

} // namespace pliant
