// Reading tensor metadata straight from memory, at offsets that Python probed and cross-checked at import.
#pragma once
#include "core.h"
#include <cstring>

namespace pliant {

struct TensorLayout {
    bool ok = false;       // false: every tensor goes through Python attribute access
    int impl = -1;         // in the Python object: TensorImpl*
    int sizes = -1;        // in TensorImpl: {ndim, 5 sizes, 5 strides} or {ndim, pointer to sizes and strides}
    int dtype = -1;        // {uint16 dtype, int8 device type, int8 device index, bool has device}
    int keys = -1;         // uint64 dispatch key set
    int offset = -1;       // int64 storage offset
    int storage = -1;      // StorageImpl*
    int data = -1;         // in StorageImpl: void*
    bool (*requires_grad)(const void *) = nullptr;
};
extern TensorLayout layout;

constexpr int64_t kInlineDims = 5;
constexpr uint64_t kDtypeDeviceMask = 0x000000FFFFFFFFFFull;

template <class T> inline T load(const char *p) {
    T v;
    std::memcpy(&v, p, sizeof v);
    return v;
}
inline const char *impl_of(PyObject *o) { return load<const char *>(reinterpret_cast<char *>(o) + layout.impl); }
inline int64_t ndim_of(const char *im) { return load<int64_t>(im + layout.sizes); }
inline const int64_t *sizes_of(const char *im, int64_t nd) {
    const char *p = im + layout.sizes + 8;
    return nd <= kInlineDims ? reinterpret_cast<const int64_t *>(p) : load<const int64_t *>(p);
}
inline const int64_t *strides_of(const char *im, int64_t nd) {
    const char *p = im + layout.sizes + 8;
    return nd <= kInlineDims ? reinterpret_cast<const int64_t *>(p) + kInlineDims : load<const int64_t *>(p) + nd;
}
inline uint64_t keys_of(const char *im) { return load<uint64_t>(im + layout.keys); }
inline uint64_t dtype_device_of(const char *im) { return load<uint64_t>(im + layout.dtype) & kDtypeDeviceMask; }
inline int64_t offset_of(const char *im) { return load<int64_t>(im + layout.offset); }
inline bool requires_grad_of(const char *im) { return layout.requires_grad(im); }

// Address range [lo, hi) that the elements span; false when it is empty. Storages without memory (meta) use their own address.
bool memory_range(PyObject *tensor, int64_t itemsize, uintptr_t &lo, uintptr_t &hi);

// New CPU memory of these sizes, straight from libtorch (`empty.cpp`). Null, without an error, where that does not do.
PyObject *empty_tensor(const int64_t *sizes, Py_ssize_t n, int dtype);

} // namespace pliant
