// Machine code of a file in memory, and what it imports: the library routines, the arena, the C library.
#include "runtime.h"
#include "../native/pool.h"
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>

namespace pliant::runtime {
namespace {

// What kernels ask of the thread pool. There may be none.
extern "C" {
static int32_t threads() { return pool.threads ? pool.threads() : 1; }
static bool inside() { return !pool.parallel || pool.inside(); }
static void parallel(void (*f)(void *), void *data, unsigned n, unsigned flags) { pool.parallel(f, data, n, flags); }
static int number() { return pool.number(); }
static int team() { return pool.team(); }
}

struct Import {
    const char *name;
    const void *at;
};
#define MATH(d, s) {#d, reinterpret_cast<const void *>(static_cast<double (*)(double)>(::d))}, {#s, reinterpret_cast<const void *>(static_cast<float (*)(float)>(::s))}
#define MATH2(d, s) \
    {#d, reinterpret_cast<const void *>(static_cast<double (*)(double, double)>(::d))}, \
    {#s, reinterpret_cast<const void *>(static_cast<float (*)(float, float)>(::s))}
const Import kImports[] = {
    {"pliant_take", reinterpret_cast<const void *>(&arena_take)},
    {"pliant_give", reinterpret_cast<const void *>(&arena_give)},
    {"pliant_poison", reinterpret_cast<const void *>(&arena_poison)},
    {"pliant_threads", reinterpret_cast<const void *>(&threads)},
    {"pliant_inside", reinterpret_cast<const void *>(&inside)},
    {"pliant_parallel", reinterpret_cast<const void *>(&parallel)},
    {"pliant_number", reinterpret_cast<const void *>(&number)},
    {"pliant_team", reinterpret_cast<const void *>(&team)},
    {"malloc", reinterpret_cast<const void *>(&std::malloc)},
    {"free", reinterpret_cast<const void *>(&std::free)},
    {"memcpy", reinterpret_cast<const void *>(static_cast<void *(*)(void *, const void *, size_t)>(&::memcpy))},
    {"memmove", reinterpret_cast<const void *>(static_cast<void *(*)(void *, const void *, size_t)>(&::memmove))},
    {"memset", reinterpret_cast<const void *>(static_cast<void *(*)(void *, int, size_t)>(&::memset))},
    MATH(exp, expf), MATH(exp2, exp2f), MATH(expm1, expm1f), MATH(log, logf), MATH(log2, log2f), MATH(log10, log10f), MATH(log1p, log1pf), MATH(sin, sinf), MATH(cos, cosf), MATH(tan, tanf), MATH(asin, asinf),
    MATH(acos, acosf), MATH(atan, atanf), MATH(sinh, sinhf), MATH(cosh, coshf), MATH(tanh, tanhf), MATH(asinh, asinhf), MATH(acosh, acoshf), MATH(atanh, atanhf), MATH(erf, erff), MATH(erfc, erfcf), MATH(sqrt, sqrtf),
    MATH(floor, floorf), MATH(ceil, ceilf), MATH(trunc, truncf), MATH(rint, rintf), MATH(nearbyint, nearbyintf), MATH(round, roundf), MATH(fabs, fabsf), MATH(cbrt, cbrtf), MATH(tgamma, tgammaf), MATH(lgamma, lgammaf),
    MATH2(pow, powf), MATH2(atan2, atan2f), MATH2(fmod, fmodf), MATH2(hypot, hypotf), MATH2(fmin, fminf), MATH2(fmax, fmaxf), MATH2(copysign, copysignf), MATH2(remainder, remainderf), MATH2(nextafter, nextafterf),
    {"fma", reinterpret_cast<const void *>(static_cast<double (*)(double, double, double)>(::fma))},
    {"fmaf", reinterpret_cast<const void *>(static_cast<float (*)(float, float, float)>(::fmaf))},
    {"ldexp", reinterpret_cast<const void *>(static_cast<double (*)(double, int)>(::ldexp))},
    {"ldexpf", reinterpret_cast<const void *>(static_cast<float (*)(float, int)>(::ldexpf))},
    {"roundeven", reinterpret_cast<const void *>(static_cast<double (*)(double)>(::nearbyint))},
    {"roundevenf", reinterpret_cast<const void *>(static_cast<float (*)(float)>(::nearbyintf))},
};

bool blas = false; // was asked for

const void *address_of(const std::string &name, int64_t bits) {
    if (name == "pliant_gemm") return reinterpret_cast<const void *>(gemm_routine(0, 0, blas ? 0 : bits));
    if (name == "pliant_attention") {
        Routine *r = attention_routine(bits);
        return reinterpret_cast<const void *>(r ? r : plain_attention());
    }
    if (name == "pliant_int8_product") return reinterpret_cast<const void *>(int8_routine(bits, true));
    if (name == "pliant_dynamic_linear") return reinterpret_cast<const void *>(dynamic_linear_routine(bits, true));
    if (name == "pliant_float_product") return reinterpret_cast<const void *>(float_routine(bits, true));
    if (name == "pliant_convolution") {
        Routine *r = bits >= 512 ? convolution_routine() : nullptr;
        return reinterpret_cast<const void *>(r ? r : &plain_convolution);
    }
    for (const Import &i : kImports)
        if (name == i.name) return i.at;
    fail("the machine code needs ", name, ", which this runtime does not have");
}

} // namespace

int level_here() {
#if defined(__x86_64__)
    __builtin_cpu_init();
#define HAS(f) (__builtin_cpu_supports(f) != 0)
    const bool v3 = HAS("avx2") && HAS("fma") && HAS("bmi") && HAS("bmi2") && HAS("f16c") && HAS("popcnt") && HAS("sse4.2") && HAS("lzcnt") && HAS("movbe");
    const bool v4 = v3 && HAS("avx512f") && HAS("avx512bw") && HAS("avx512cd") && HAS("avx512dq") && HAS("avx512vl");
    return v4 ? 4 : v3 ? 3 : 1;
#else
    return 0;
#endif
}

int level_of(std::string_view name) { return name == "x86-64-v4" ? 4 : name == "x86-64-v3" ? 3 : name == "x86-64" ? 1 : -1; }

Code::Code(const Json &info, std::string_view bytes, int64_t bits) {
    const auto &imports = info["imports"].list();
    const size_t code = bytes.size();
    if (code == 0 || code % Pages::page_size() || imports.size() > 4096) fail("the machine code is damaged");
    std::vector<const void *> found;
    for (const Json &name : imports) found.push_back(address_of(name.string(), bits));
    const Json &exports = info["exports"];
    for (size_t i = 0; i < exports.items.size(); i++)
        exports_.emplace_back(exports.names.at(i), static_cast<uint64_t>(exports.items[i].below(static_cast<int64_t>(code))));
    if (!pages_.fill(bytes.data(), code, found.data(), found.size())) {
        if (!pages_.at()) fail("there is no memory for the machine code");
        fail("this system does not let memory be made executable: load the program without machine code");
    }
}

Code::Function Code::function(const std::string &name) const {
    for (const auto &[n, offset] : exports_)
        if (n == name) return reinterpret_cast<Function>(pages_.at() + offset);
    fail("the plan calls ", name, ", which the machine code does not have");
}

void use_blas(const char *library) {
    void *lib = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!lib) fail("the BLAS cannot be loaded: ", dlerror());
    void *one = dlsym(lib, "sgemm_");
    if (!one) fail(library, " has no sgemm_");
    gemm_routine(reinterpret_cast<uint64_t>(one), reinterpret_cast<uint64_t>(dlsym(lib, "cblas_sgemm_batch")), 0);
    blas = true;
}

static int wanted = 1;
static int (*omp_inside)() = nullptr;

void use_threads(int n) {
    if (n < 1) fail("a call needs at least one thread");
    wanted = n;
    if (n == 1 || pool.parallel) return;
    void *lib = dlopen("libgomp.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!lib) fail("threads inside of a call need libgomp: ", dlerror());
    const auto find = [&](const char *name) {
        void *p = dlsym(lib, name);
        if (!p) fail("libgomp has no ", name);
        return p;
    };
    pool.number = reinterpret_cast<int (*)()>(find("omp_get_thread_num"));
    pool.team = reinterpret_cast<int (*)()>(find("omp_get_num_threads"));
    omp_inside = reinterpret_cast<int (*)()>(find("omp_in_parallel"));
    pool.inside = [] { return wanted < 2 || omp_inside() != 0; };
    pool.threads = [] { return wanted; };
    pool.parallel = reinterpret_cast<void (*)(void (*)(void *), void *, unsigned, unsigned)>(find("GOMP_parallel"));
}

} // namespace pliant::runtime
