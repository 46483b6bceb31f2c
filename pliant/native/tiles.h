// The processor's tiles (AMX): eight of 16 rows of 64 bytes.
#pragma once
#include <cstdint>
#include <sys/syscall.h>
#include <unistd.h>

#define TILES __attribute__((target("avx2,fma,avx512f,avx512vl,avx512dq,avx512bw,amx-tile,amx-int8,amx-bf16")))

namespace pliant {

struct alignas(64) TileConfig {
    uint8_t palette = 1, start = 0, reserved[14] = {};
    uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// Has the processor tiles, and the instruction that this bit (of leaf 7, in edx) tells of? 22: of bf16, 25: of int8.
inline bool tiles_are_here(int bit) {
    unsigned a = 7, b = 0, c = 0, d = 0; // GCC's __builtin_cpu_supports has no name for them everywhere
    __asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
    return (d >> 24 & 1) && (d >> bit & 1) && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("fma");
}

// Asks the system for the state of the tiles, which it gives to the whole process.
inline bool tiles_are_ours() {
    constexpr long kAsk = 0x1023, kState = 18; // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILE_DATA
    static const bool given = syscall(SYS_arch_prctl, kAsk, kState) == 0;
    return given;
}

} // namespace pliant
