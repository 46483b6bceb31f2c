// `native.mask_positions`: where a mask is true, as `mask.nonzero()` says it.
//
// ATen goes through a mask element by element, with a jump at each: of random masks many are foreseen wrongly. Here eight elements are
// looked at together, and each position is stored whether it counts or not.
#include "tensor_layout.h"
#include <algorithm>

namespace pliant {
namespace {

constexpr int kBool = 11, kLong = 4; // libtorch's numbers of dtypes
constexpr int64_t kFew = 256;        // of so few, ATen's call costs no more than these
constexpr int64_t kMost = 1 << 20;   // above, ATen has many threads
constexpr int64_t kHold = 1 << 14;   // elements that are gone through without letting other threads of Python run
constexpr Py_ssize_t kMaxDims = 16;
constexpr uint64_t kOnes = 0x0101010101010101ull, kRest = 0x7F7F7F7F7F7F7F7Full;

// One in each byte that is not zero.
inline uint64_t truths(uint64_t w) { return (((w & kRest) + kRest) | w) >> 7 & kOnes; }

int64_t count(const uint8_t *m, int64_t n) {
    int64_t found = 0, i = 0;
    for (; i + 8 <= n; i += 8) found += truths(load<uint64_t>(reinterpret_cast<const char *>(m + i))) * kOnes >> 56;
    for (; i < n; i++) found += m[i] != 0;
    return found;
}

// The positions in one row, to `out`; up to `end` what is behind them may be overwritten.
int64_t *positions_of(const uint8_t *m, int64_t n, int64_t *out, const int64_t *end) {
    int64_t i = 0;
    for (; i + 8 <= n && out + 8 <= end; i += 8) {
        const uint64_t bits = truths(load<uint64_t>(reinterpret_cast<const char *>(m + i)));
        if (!bits) continue;
        for (int j = 0; j < 8; j++) {
            *out = i + j;
            out += bits >> 8 * j & 1;
        }
    }
    for (; i < n && out < end; i++) // another thread may write to the mask, as it must not
        if (m[i]) *out++ = i;
    return out;
}

// A row of the result for each dim of the mask.
void fill(const uint8_t *m, const int64_t *sizes, int64_t nd, int64_t all, int64_t found, int64_t *out) {
    const int64_t width = sizes[nd - 1];
    int64_t at[kMaxDims] = {}, *last = out + (nd - 1) * found, *const begin = last, *const end = last + found;
    for (int64_t row = 0; row < all; row += width) {
        int64_t *next = positions_of(m + row, width, last, end);
        for (int64_t d = 0; d + 1 < nd; d++) std::fill(out + d * found + (last - begin), out + d * found + (next - begin), at[d]);
        last = next;
        for (int64_t d = nd - 2; d >= 0 && ++at[d] == sizes[d]; d--) at[d] = 0;
    }
}

// positions(mask) -> int64 [dims, true elements]; None for what is no plain mask of a size that is worth it, and where nothing is true
PyObject *positions(PyObject *, PyObject *o) {
    if (!layout.ok) Py_RETURN_NONE;
    const char *im = impl_of(o);
    const int64_t nd = ndim_of(im);
    const uint64_t word = dtype_device_of(im);
    const char *storage = load<const char *>(im + layout.storage);
    const char *data = storage ? load<const char *>(storage + layout.data) : nullptr;
    if (nd < 1 || nd > kMaxDims || !data || (word & 0xFFFF) != kBool || (word >> 16 & 0xFF)) Py_RETURN_NONE;
    int64_t sizes[kMaxDims], all = 1;
    const int64_t *s = sizes_of(im, nd), *t = strides_of(im, nd);
    for (int64_t d = nd - 1; d >= 0; d--) {
        sizes[d] = s[d];
        if (s[d] != 1 && t[d] != all) Py_RETURN_NONE;
        all *= s[d];
    }
    if (all < kFew || all > kMost) Py_RETURN_NONE;
    const auto *m = reinterpret_cast<const uint8_t *>(data) + offset_of(im);
    const int64_t found = count(m, all), shape[2] = {nd, found};
    PyObject *made = found ? empty_tensor(shape, 2, kLong) : nullptr;
    if (!made) Py_RETURN_NONE;
    const char *to = impl_of(made);
    auto *out = reinterpret_cast<int64_t *>(load<char *>(load<const char *>(to + layout.storage) + layout.data));
    if (all <= kHold) {
        fill(m, sizes, nd, all, found, out);
    } else {
        Py_BEGIN_ALLOW_THREADS
        fill(m, sizes, nd, all, found, out);
        Py_END_ALLOW_THREADS
    }
    return made;
}

PyMethodDef methods[] = {
    {"positions", positions, METH_O, "positions(mask): mask.nonzero(), transposed; or None for what is no plain mask."},
    {nullptr, nullptr, 0, nullptr},
};

} // namespace
} // namespace pliant

extern "C" int pl_positions_init(PyObject *module) { return PyModule_AddFunctions(module, pliant::methods); }
