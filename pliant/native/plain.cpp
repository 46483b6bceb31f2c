// The library routines without any vectors that have a name: for processors that have no AVX2. Right everywhere, fast nowhere.
#include "attention.h"
#include "conv.h"
#include "matmul.h"
#include <algorithm>
#include <cmath>
#include <limits>

namespace pliant {
namespace {

constexpr int64_t kColumns = 64;

Way way_of(const Matrix &, const Matrix &b, int64_t, int64_t, int64_t) { return b.column == 1 ? Way::Columns : Way::Dots; }

// Every element is the sum of its products in order, whatever the way.
void multiply(Way, const Matrix &a, const Matrix &b, const Result &out, int64_t m, int64_t n, int64_t k) {
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j += kColumns) {
            const int64_t width = std::min(kColumns, n - j);
            float sums[kColumns] = {};
            for (int64_t d = 0; d < k; d++) {
                const float x = a.data[i * a.row + d * a.column], *p = b.data + d * b.row + j * b.column;
                if (b.column == 1)
                    for (int64_t q = 0; q < width; q++) sums[q] += x * p[q];
                else
                    for (int64_t q = 0; q < width; q++) sums[q] += x * p[q * b.column];
            }
            float *c = out.c + i * out.ldc + j;
            const float *more = out.plus ? out.plus + i * out.plus_row + j : nullptr;
            for (int64_t q = 0; q < width; q++) c[q] = out.alpha * sums[q] + (more ? more[q] : 0.0f);
        }
}

void attend(const Rows &r) {
    constexpr float none = -std::numeric_limits<float>::infinity();
    for (int64_t i = 0; i < r.rows; i++) {
        const int64_t to = r.first < 0 ? r.to : std::clamp<int64_t>(r.first + i + 1, r.from, r.to);
        float *out = r.out + i * r.out_row, most = none, total = 0;
        std::fill_n(out, r.width, 0.0f);
        for (int64_t at = r.from; at < to; at += kKeys) { // as many scores as there is room for
            const int64_t n = std::min(kKeys, to - at);
            float *s = r.scores, top = most;
            for (int64_t j = 0; j < n; j++) {
                float x = 0;
                for (int64_t d = 0; d < r.depth; d++) x += r.q[i * r.q_row + d] * r.k[(at + j) * r.k_row + d];
                s[j] = x * r.scale + (r.mask ? r.mask[i * r.mask_row + (at + j) * r.mask_column] : 0.0f);
                if (s[j] > top || std::isnan(s[j])) top = s[j];
            }
            const float factor = top == most || most == none ? 1.0f : std::exp(most - top), low = top == none ? 0.0f : top;
            total *= factor;
            for (int64_t w = 0; w < r.width; w++) out[w] *= factor;
            for (int64_t j = 0; j < n; j++) {
                const float e = std::exp(s[j] - low);
                total += e;
                for (int64_t w = 0; w < r.width; w++) out[w] += e * r.v[(at + j) * r.v_row + w];
            }
            most = top;
        }
        r.most[i] = most, r.total[i] = total;
        for (int64_t w = 0; w < r.width && r.finish; w++) out[w] *= total == 0 ? 0.0f : 1.0f / total;
    }
}

} // namespace

const Loops loops_plain = {way_of, multiply, attend};

int32_t plain_convolution(const void *given) {
    const Convolution &c = *static_cast<const Convolution *>(given);
    if (c.empty()) return 0;
    for (int d = 0; d < kDims; d++)
        if (c.stride[d] < 1 || c.dilation[d] < 1 || c.pad[d] < 0) return 1;
    const int64_t all = c.groups * c.features;
    for (int64_t n = 0; n < c.batch; n++)
        for (int64_t f = 0; f < all; f++) {
            float *out = c.out + (n * all + f) * c.pixels();
            const float *w = c.w + f * c.depth(), *x = c.x + n * c.x_batch + f / c.features * c.channels * c.x_channel;
            for (int64_t z = 0; z < c.to[0]; z++)
                for (int64_t y = 0; y < c.to[1]; y++)
                    for (int64_t p = 0; p < c.to[2]; p++) {
                        float sum = c.bias ? c.bias[f] : 0.0f;
                        for (int64_t i = 0; i < c.channels; i++)
                            for (int64_t a = 0; a < c.kernel[0]; a++) {
                                const int64_t u = z * c.stride[0] + a * c.dilation[0] - c.pad[0];
                                if (u < 0 || u >= c.in[0]) continue;
                                for (int64_t b = 0; b < c.kernel[1]; b++) {
                                    const int64_t v = y * c.stride[1] + b * c.dilation[1] - c.pad[1];
                                    if (v < 0 || v >= c.in[1]) continue;
                                    const float *row = x + i * c.x_channel + u * c.x_step[0] + v * c.x_step[1];
                                    const float *taps = w + ((i * c.kernel[0] + a) * c.kernel[1] + b) * c.kernel[2];
                                    for (int64_t k = 0; k < c.kernel[2]; k++) {
                                        const int64_t q = p * c.stride[2] + k * c.dilation[2] - c.pad[2];
                                        if (q >= 0 && q < c.in[2]) sum += row[q] * taps[k];
                                    }
                                }
                            }
                        *out++ = sum;
                    }
        }
    return 0;
}

} // namespace pliant
