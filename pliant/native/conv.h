// Convolutions of f32, row-major, for sizes that only a run knows.
#pragma once
#include <cstdint>

namespace pliant {

constexpr int kDims = 3;

// What a segment hands over. `channels` and `features` are those of a group; strides in elements, of batch, channel and all spatial dims
// but the last, which lies dense. The weight and the output are dense.
struct Convolution {
    const float *x, *w, *bias;
    float *out;
    int64_t batch, groups, channels, features;
    int64_t in[kDims], to[kDims], kernel[kDims], stride[kDims], pad[kDims], dilation[kDims];
    int64_t x_batch, x_channel, x_step[kDims - 1];
    int64_t pixels() const { return to[0] * to[1] * to[2]; }
    int64_t taps() const { return kernel[0] * kernel[1] * kernel[2]; }
    int64_t depth() const { return channels * taps(); }
    bool empty() const { return batch <= 0 || groups <= 0 || features <= 0 || to[0] <= 0 || to[1] <= 0 || to[2] <= 0; }
};

// depthwise.cpp: one channel for one feature, a square kernel of 3, 5 or 7, strides of 1 or 2. False: this is none of these.
bool depthwise(const Convolution &c, int32_t &status);

} // namespace pliant
