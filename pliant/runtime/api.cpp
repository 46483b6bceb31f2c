// The C interface: nothing is thrown through it.
#include "runtime.h"
#include <algorithm>
#include <cstring>
#include <exception>
#include <new>

using namespace pliant::runtime;

namespace {

struct OtherProcessor : Error {};

thread_local std::string last;

template <class F> int guarded(const F &f) {
    try {
        f();
        return 0;
    } catch (const OtherProcessor &e) {
        last = e.text;
        return PLIANT_OTHER_PROCESSOR;
    } catch (const Error &e) {
        last = e.text;
    } catch (const std::bad_alloc &) {
        last = "there is not enough memory";
    } catch (const std::exception &e) {
        last = e.what();
    } catch (...) {
        last = "something that this runtime does not know went wrong";
    }
    return 1;
}

constexpr int64_t kFormat = 1;
constexpr const char *kLevels[] = {"x86-64-v4", "x86-64-v3", "x86-64"};

// The machine code of the file that this processor runs best.
std::string choose(const Json &codes, const char *asked, const std::string &path) {
    const int here = level_here();
    std::string there;
    for (const std::string &name : codes.names) there += (there.empty() ? "" : ", ") + name;
    const auto other = [](const std::string &text) { throw OtherProcessor{{text}}; };
    if (asked) {
        const int level = level_of(asked);
        if (level < 0) fail("there is no kind of processor called ", asked, ": ", path, " has machine code for ", there);
        if (level > here) other(std::string("this processor does not run machine code for ") + asked);
        if (!codes.find(asked)) fail(path, " has no machine code for ", asked, ", but for ", there);
        return asked;
    }
    for (const char *name : kLevels)
        if (here && level_of(name) <= here && codes.find(name)) return name;
    other(path + " has machine code for " + there + ", and this processor runs none of it: pliant.load without machine_code=True compiles it here");
    return {};
}

const Input *user(const pliant_program *p, int i) {
    return i >= 0 && static_cast<size_t>(i) < p->plan().users.size() ? &p->plan().inputs[static_cast<size_t>(p->plan().users[static_cast<size_t>(i)])] : nullptr;
}
const Output *output(const pliant_program *p, int i) {
    return i >= 0 && static_cast<size_t>(i) < p->plan().outputs.size() ? &p->plan().outputs[static_cast<size_t>(i)] : nullptr;
}

// As dlpack.h has them.
struct DLTensor {
    void *data;
    struct {
        int32_t type, id;
    } device;
    int32_t ndim;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
};
struct Managed {
    DLTensor tensor;
    void *context;
    void (*deleter)(Managed *);
    pliant_tensor mine;
};

} // namespace

extern "C" {

int pliant_load(const char *path, const pliant_options *options, pliant_program **program) {
    return guarded([&] {
        if (!path || !program) fail("a path, and somewhere to put the program, are needed");
        *program = nullptr;
        pliant_options o = {};
        if (options) std::memcpy(&o, options, std::min(options->size, sizeof o));
        if (o.blas_library) use_blas(o.blas_library);
        auto p = std::make_unique<pliant_program>();
        p->archive = std::make_unique<Archive>(path);
        const Json plan = parse_json(p->archive->member("plan.json", true));
        const Json &codes = plan["code"];
        p->level = choose(codes, o.level, path);
        const int level = level_of(p->level);
        const Json &code = codes[p->level];
        p->code = std::make_unique<Code>(code, p->archive->member("code/" + p->level, true), level == 4 ? 512 : level == 3 ? 256 : 0);
        if (plan["format"].integer() != kFormat)
            fail(path, " has plans of format ", str(plan["format"].integer()), "; this runtime reads format ", str(kFormat));
        p->name = plan["name"].string();
        std::string operators;
        for (const Json &v : plan["variants"].list()) {
            p->variants.push_back(std::make_unique<Variant>());
            p->variants.back()->plan = read_plan(v, *p->code);
            const Plan &made = p->variants.back()->plan;
            if (made.users.size() != p->plan().users.size() || made.outputs.size() != p->plan().outputs.size()) fail("the plan is damaged: variants that are of different programs");
            for (const std::string &n : made.operators) operators += (operators.empty() ? "" : ", ") + n;
        }
        if (p->variants.empty()) fail("the plan is damaged: it is empty");
        if (!operators.empty() && !(p->torch = find_torch(o.torch_library)))
            fail(path, " calls operators of libtorch (", operators, "), which is not to be had: ", torch_missing(),
                 ". Set PLIANT_TORCH to the path of libtorch_cpu.so");
        load_state(*p);
        *program = p.release();
    });
}

void pliant_free(pliant_program *program) { delete program; }

int pliant_run(const pliant_program *program, const pliant_tensor *inputs, int n_inputs, pliant_tensor *outputs, int n_outputs) {
    return guarded([&] {
        if (!program) fail("there is no program");
        run(*program, inputs, n_inputs, outputs, n_outputs);
    });
}

void pliant_release(pliant_tensor *outputs, int n) {
    for (int i = 0; i < n; i++) {
        auto *s = static_cast<Storage *>(outputs[i].owner);
        outputs[i].owner = nullptr;
        outputs[i].data = nullptr;
        if (s) drop(s);
    }
}

const char *pliant_error(void) { return last.c_str(); }

int pliant_inputs(const pliant_program *p) { return static_cast<int>(p->plan().users.size()); }
const char *pliant_input_name(const pliant_program *p, int i) {
    const Input *in = user(p, i);
    return in ? in->name.c_str() : nullptr;
}
int pliant_input_dtype(const pliant_program *p, int i) {
    const Input *in = user(p, i);
    return !in ? -1 : in->number == 'i' ? PLIANT_I64 : in->number == 'f' ? PLIANT_F64 : in->number == 'b' ? PLIANT_BOOL : in->dtype;
}
int pliant_input_ndim(const pliant_program *p, int i) {
    const Input *in = user(p, i);
    return in ? static_cast<int>(in->sizes.size()) : -1;
}
int64_t pliant_input_size(const pliant_program *p, int i, int dim) {
    const Input *in = user(p, i);
    if (!in || dim < 0 || static_cast<size_t>(dim) >= in->sizes.size()) return -1;
    const Row &row = p->plan().rows[static_cast<size_t>(in->sizes[static_cast<size_t>(dim)])];
    return is_constant(row) ? row.value.i : -1;
}
int pliant_outputs(const pliant_program *p) { return static_cast<int>(p->plan().outputs.size()); }
const char *pliant_output_name(const pliant_program *p, int i) {
    const Output *o = output(p, i);
    return o ? o->name.c_str() : nullptr;
}
const char *pliant_output_kind(const pliant_program *p, int i) {
    const Output *o = output(p, i);
    return o ? o->kind.c_str() : nullptr;
}
const char *pliant_output_of(const pliant_program *p, int i) {
    const Output *o = output(p, i);
    return o ? o->of.c_str() : nullptr;
}
const char *pliant_level(const pliant_program *p) { return p->level.c_str(); }

int pliant_set_state(pliant_program *p, const char *name, const pliant_tensor *value) {
    return guarded([&] {
        bool found = false;
        for (const auto &v : p->variants)
            for (const Input &in : v->plan.inputs) {
                if (in.kind == "user" || in.name != name) continue;
                Tensor &t = v->state[static_cast<size_t>(in.slot)];
                bool same = value->dtype == t.dtype && value->ndim == t.ndim && value->data;
                for (int d = 0; same && d < t.ndim; d++) same = value->sizes[d] == t.sizes[d];
                if (!same) fail(name, " has other sizes, or another dtype");
                if (!t.owner.get()) { // it lies in the file
                    Hold memory(new_storage(bytes_of(t.ndim, t.sizes, t.strides, t.dtype)));
                    t.data = memory.get()->data;
                    t.owner = std::move(memory);
                }
                copy_strided(t.data, t.strides, static_cast<const char *>(value->data), value->strides, t.sizes, t.ndim, item_size(t.dtype));
                const std::lock_guard<std::mutex> guard(v->lock);
                v->idle.clear(); // these frames know the old one
                found = true;
            }
        if (!found) fail("the program has no parameter or buffer called ", name);
    });
}

void pliant_set_contiguous(pliant_tensor *t) {
    guarded([&] { contiguous(t->ndim, t->sizes, t->strides); });
}

int pliant_set_threads(int threads) {
    return guarded([&] { use_threads(threads); });
}

void pliant_memory(int64_t *now, int64_t *most) {
    const auto [a, b] = bytes_held();
    const pliant::ArenaBytes arena = pliant::arena_bytes();
    if (now) *now = a + arena.held;
    if (most) *most = b + arena.most;
}

void *pliant_to_dlpack(pliant_tensor *t) {
    if (!t->owner) return nullptr;
    auto *m = new (std::nothrow) Managed;
    if (!m) return nullptr;
    m->mine = *t;
    t->owner = nullptr;
    const int size = item_size(t->dtype);
    const bool real = t->dtype == PLIANT_F16 || t->dtype == PLIANT_F32 || t->dtype == PLIANT_F64;
    const uint8_t code = t->dtype == PLIANT_BOOL ? 6 : t->dtype == PLIANT_BF16 ? 4 : real ? 2 : t->dtype == PLIANT_U8 ? 1 : 0;
    m->tensor = {m->mine.data, {1, 0}, m->mine.ndim, {code, static_cast<uint8_t>(8 * size), 1}, m->mine.sizes, m->mine.strides, 0};
    m->context = nullptr;
    m->deleter = [](Managed *self) {
        pliant_release(&self->mine, 1);
        delete self;
    };
    return m;
}
}
