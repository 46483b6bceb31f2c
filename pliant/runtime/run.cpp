// One call of a program: inputs are looked at, then the steps of the plan are done one after the other.
#include "runtime.h"
#include "../native/shared.h"
#include <algorithm>
#include <cstring>

namespace pliant::runtime {
namespace {

#define X(name, code, type, words) words,
constexpr const char *kFailures[] = {PLIANT_FAILURES(X)};
#undef X
#define X(name, code, type, words) code,
constexpr int32_t kFirstIndex = std::min({PLIANT_FAILURES(X)});
#undef X

std::string shape_of(const pliant_tensor &t) {
    std::string s = "[";
    for (int d = 0; d < t.ndim; d++) s += (d ? ", " : "") + str(t.sizes[d]);
    return s + "]";
}

std::string at_line(const std::string &where) { return where.empty() ? "" : " (" + where + ")"; }

// This variant is not for this call, and nothing has been done that anybody could see: another one may be.
struct Misfit : Error {};
template <class... T> [[noreturn]] void misfit(const T &...parts) {
    std::string text;
    ((text += parts), ...);
    throw Misfit{{std::move(text)}};
}

struct Run {
    const pliant_program &program;
    const Variant &p;
    Frame &f;

    const Number &number(int32_t row) const {
        const Number &n = f.values[row];
        if (n.bad) fail(program.name, ": a size cannot be computed: a division by zero, or an overflow");
        return n;
    }
    int64_t integer(int32_t row) const { return number(row).i; }
    void compute(int32_t from, int32_t to) {
        for (int32_t i = from; i < to; i++)
            if (!is_symbol(p.plan.rows[i])) f.values[i] = evaluate(p.plan.rows[i], f.values.data());
    }
    std::string values_of(const std::vector<Shown> &shown) const {
        std::string out;
        for (const Shown &s : shown) {
            const Number &n = f.values[s.row];
            out += (out.empty() ? "" : ", ") + s.name + " = " + (p.plan.rows[s.row].is_float ? std::to_string(n.f) : str(n.i));
        }
        return out;
    }
    static std::string promise(const Input &in) {
        if (in.number) return std::string("a number (") + (in.number == 'i' ? "i64" : in.number == 'f' ? "f64" : "bool") + ", no dims)";
        std::string s = std::string(dtype_name(in.dtype)) + "[";
        for (size_t d = 0; d < in.promised.size(); d++) s += (d ? ", " : "") + in.promised[d];
        return "a tensor " + s + "]";
    }
    [[noreturn]] static void wrong(const Input &in, const pliant_tensor &t) {
        misfit(in.name, " must be ", promise(in), ", but a tensor ", dtype_name(t.dtype), shape_of(t), " came.");
    }

    void given(const Input &in, const pliant_tensor &t) {
        if (t.ndim < 0 || t.ndim > kDims || !item_size(t.dtype)) fail(in.name, ": the descriptor has ", str(t.ndim), " dims and dtype ", str(t.dtype), ", which is nothing.");
        if (in.number) {
            const int want = in.number == 'i' ? PLIANT_I64 : in.number == 'f' ? PLIANT_F64 : PLIANT_BOOL;
            if (t.ndim || t.dtype != want || !t.data) wrong(in, t);
            Number &n = f.values[in.row];
            n = Number();
            if (want == PLIANT_BOOL) n.i = *static_cast<const uint8_t *>(t.data) != 0;
            else std::memcpy(&n.i, t.data, 8);
            return;
        }
        if (t.dtype != in.dtype || t.ndim != static_cast<int>(in.sizes.size())) wrong(in, t);
        Tensor &to = f.slots[in.slot];
        to.data = static_cast<char *>(t.data);
        to.dtype = t.dtype;
        to.ndim = t.ndim;
        std::copy_n(t.sizes, t.ndim, to.sizes);
        std::copy_n(t.strides, t.ndim, to.strides);
        to.owner = Hold();
        if (bytes_of(t.ndim, t.sizes, t.strides, t.dtype) && !t.data) fail(in.name, " has no data.");
        for (const Input::Symbol &s : in.symbols) {
            Number &n = f.values[s.row];
            n = Number();
            n.i = s.what == 's' ? t.sizes[s.dim] : s.what == 't' ? t.strides[s.dim] : 0;
        }
    }

    // Sizes, and the strides that the machine code was made for.
    void fits(const Input &in) {
        Tensor &t = f.slots[in.slot];
        int64_t strides[kDims];
        for (int d = 0; d < t.ndim; d++) {
            if (f.values[in.sizes[d]].bad || t.sizes[d] != f.values[in.sizes[d]].i) {
                const std::string want = str(f.values[in.sizes[d]].i);
                misfit("size ", str(d), " of ", in.name, " must be ", want, want == in.promised[d] ? "" : " = " + in.promised[d], ", but it is ", str(t.sizes[d]), ".");
            }
            strides[d] = integer(in.strides[d]);
        }
        lay(t, strides);
    }

    // The tensor with these strides: itself, or a copy.
    static void lay(Tensor &t, const int64_t *strides) {
        if (same_layout(t.ndim, t.sizes, t.strides, strides)) return;
        Hold memory(new_storage(bytes_of(t.ndim, t.sizes, strides, t.dtype)));
        copy_strided(memory.get()->data, strides, t.data, t.strides, t.sizes, t.ndim, item_size(t.dtype));
        t.data = memory.get()->data;
        t.owner = std::move(memory);
        std::copy_n(strides, t.ndim, t.strides);
    }

    void step(const Step &s) {
        switch (s.kind) {
        case Step::Alloc: {
            Tensor &t = f.slots[s.slot];
            t.ndim = static_cast<int>(s.a.size());
            t.dtype = s.dtype;
            for (int d = 0; d < t.ndim; d++) t.sizes[d] = integer(s.a[d]);
            if (s.flag)
                for (int d = 0; d < t.ndim; d++) t.strides[d] = integer(s.b[d]);
            else contiguous(t.ndim, t.sizes, t.strides);
            t.owner = Hold(new_storage(bytes_of(t.ndim, t.sizes, t.strides, t.dtype)));
            t.data = t.owner.get()->data;
            return;
        }
        case Step::Run: {
            int64_t *at = f.box.data();
            for (const int32_t slot : s.a) {
                const Tensor &t = f.slots[slot];
                if (t.dtype < 0) fail("the plan reads a tensor that is not there");
                *at++ = reinterpret_cast<int64_t>(t.data);
            }
            for (const int32_t row : s.b) *at++ = integer(row);
            const int32_t status = s.function(f.box.data());
            if (!status) return;
            if (status == OUT_OF_MEMORY) fail("there is not enough memory for intermediate results", at_line(s.relation.where));
            const int32_t index = status - kFirstIndex;
            if (index >= 0 && index < 4) fail(kFailures[index], at_line(s.relation.where));
            fail("a kernel stopped at check ", str(status), at_line(s.relation.where));
        }
        case Step::Reuse: {
            Tensor old = std::move(f.slots[s.other]);
            f.slots[s.other] = Tensor();
            f.slots[s.slot] = std::move(old);
            return;
        }
        case Step::View: {
            const Tensor &base = f.slots[s.other];
            if (base.dtype < 0) fail("the plan sees a tensor that is not there");
            Tensor t;
            t.dtype = s.dtype;
            t.ndim = static_cast<int>(s.a.size());
            for (int d = 0; d < t.ndim; d++) t.sizes[d] = integer(s.a[d]), t.strides[d] = integer(s.b[d]);
            t.data = base.data + integer(s.relation.row) * item_size(s.dtype);
            t.owner = base.owner;
            f.slots[s.slot] = std::move(t);
            return;
        }
        case Step::Item: {
            const Tensor &t = f.slots[s.slot];
            Number &n = f.values[s.other];
            n = Number();
            if (t.dtype < 0 || t.elements() != 1) fail("a number is taken out of a tensor that does not have one element");
            switch (t.dtype) {
            case PLIANT_I64: std::memcpy(&n.i, t.data, 8); break;
            case PLIANT_I32: n.i = *reinterpret_cast<const int32_t *>(t.data); break;
            case PLIANT_I16: n.i = *reinterpret_cast<const int16_t *>(t.data); break;
            case PLIANT_I8: n.i = *reinterpret_cast<const int8_t *>(t.data); break;
            case PLIANT_U8: n.i = *reinterpret_cast<const uint8_t *>(t.data); break;
            case PLIANT_BOOL: n.i = *reinterpret_cast<const uint8_t *>(t.data) != 0; break;
            case PLIANT_F64: std::memcpy(&n.f, t.data, 8); break;
            case PLIANT_F32: n.f = *reinterpret_cast<const float *>(t.data); break;
            default: fail("a number is taken out of a tensor of ", dtype_name(t.dtype), ", which this runtime does not know");
            }
            return;
        }
        case Step::Size: {
            const Tensor &t = f.slots[s.slot];
            if (s.dtype >= t.ndim) fail("the plan asks for a dim that is not there");
            f.values[s.other] = Number();
            f.values[s.other].i = t.sizes[s.dtype];
            return;
        }
        case Step::Assert: {
            const Number &n = f.values[s.relation.row];
            if (n.bad || !n.i) {
                if (s.relation.text.empty()) misfit("no captured side of the branches of ", program.name, " takes this call", at_line(s.relation.where));
                const std::string values = values_of(s.relation.shown);
                fail(s.relation.text, values.empty() ? "" : " (" + values + ")", at_line(s.relation.where));
            }
            return;
        }
        case Step::Aten: call_torch(*program.torch, *s.call, f.slots.data(), f.values.data(), p.plan.rows.data()); return;
        case Step::Fit: {
            Tensor &t = f.slots[s.slot];
            int64_t strides[kDims];
            if (t.ndim != static_cast<int>(s.a.size())) fail("an operator returned another number of dims than the program was told");
            for (int d = 0; d < t.ndim; d++) {
                if (t.sizes[d] != integer(s.a[d])) fail("an operator returned other sizes than the program was told");
                strides[d] = integer(s.b[d]);
            }
            lay(t, strides);
            return;
        }
        case Step::Free:
            for (const int32_t slot : s.a) f.slots[slot].owner = Hold();
            return;
        }
    }

    void output(const Output &o, pliant_tensor &out) {
        std::memset(&out, 0, sizeof out);
        if (o.number) {
            const Number n = number(o.row);
            Hold memory(new_storage(8));
            out.dtype = o.number == 'i' ? PLIANT_I64 : o.number == 'f' ? PLIANT_F64 : PLIANT_BOOL;
            if (o.number == 'b') *memory.get()->data = static_cast<char>(n.i != 0);
            else std::memcpy(memory.get()->data, &n.i, 8);
            out.data = memory.get()->data;
            out.owner = memory.give();
            return;
        }
        const Tensor &t = f.slots[o.slot];
        if (t.dtype < 0) fail("the plan gives a tensor that is not there");
        out.data = t.data;
        out.dtype = t.dtype;
        out.ndim = t.ndim;
        std::copy_n(t.sizes, t.ndim, out.sizes);
        std::copy_n(t.strides, t.ndim, out.strides);
        if (t.owner.get()) {
            use(t.owner.get());
            out.owner = t.owner.get();
        }
    }

    void all(const pliant_tensor *inputs, pliant_tensor *outputs) {
        const Plan &plan = p.plan;
        for (size_t i = 0; i < plan.users.size(); i++) given(plan.inputs[plan.users[i]], inputs[i]);
        compute(0, plan.begin);
        for (const int32_t i : plan.users)
            if (plan.inputs[i].slot >= 0) fits(plan.inputs[i]);
        for (const Relation &r : plan.relations)
            if (f.values[r.row].bad || !f.values[r.row].i)
                misfit(program.name, " needs ", r.text, r.where.empty() ? "" : ", because of " + r.where, ", but ", values_of(r.shown), ".");
        int32_t done = plan.begin;
        for (const Step &s : plan.steps) {
            if (s.need > done) compute(done, s.need), done = s.need;
            step(s);
        }
        compute(done, static_cast<int32_t>(plan.rows.size()));
        for (size_t i = 0; i < plan.outputs.size(); i++) {
            try {
                output(plan.outputs[i], outputs[i]);
            } catch (...) {
                pliant_release(outputs, static_cast<int>(i));
                throw;
            }
        }
    }
};

// The frame of one call, put back when it is over: without what only this call knew.
struct Borrowed {
    const Variant &p;
    std::unique_ptr<Frame> frame;
    explicit Borrowed(const Variant &variant) : p(variant) {
        {
            const std::lock_guard<std::mutex> guard(p.lock);
            if (!p.idle.empty()) {
                frame = std::move(p.idle.back());
                p.idle.pop_back();
            }
        }
        if (frame) return;
        frame = std::make_unique<Frame>();
        frame->slots = p.state;
        frame->values.resize(p.plan.rows.size());
        size_t most = 1;
        for (const Step &s : p.plan.steps)
            if (s.kind == Step::Run) most = std::max(most, s.a.size() + s.b.size());
        frame->box.resize(most);
    }
    ~Borrowed() {
        for (size_t i = 0; i < frame->slots.size(); i++)
            if (p.state[i].dtype < 0) frame->slots[i].owner = Hold(), frame->slots[i].dtype = -1;
        const std::lock_guard<std::mutex> guard(p.lock);
        p.idle.push_back(std::move(frame));
    }
};

struct Saved {
    const char *name;
    int dtype;
};
constexpr Saved kSaved[] = {{"F64", PLIANT_F64}, {"F32", PLIANT_F32}, {"F16", PLIANT_F16}, {"BF16", PLIANT_BF16}, {"I64", PLIANT_I64},
                            {"I32", PLIANT_I32}, {"I16", PLIANT_I16}, {"I8", PLIANT_I8},   {"U8", PLIANT_U8},     {"BOOL", PLIANT_BOOL}};

} // namespace

// Parameters, buffers and constants: mapped, where they lie in the file as the machine code reads them.
static void load_state(Variant &p, const Json &header, std::string_view data) {
    p.state.resize(static_cast<size_t>(p.plan.slots));
    std::vector<Number> constants(p.plan.rows.size());
    for (size_t i = 0; i < constants.size(); i++) constants[i] = evaluate(p.plan.rows[i], constants.data()); // symbols are bad
    for (const Input &in : p.plan.inputs) {
        if (in.kind == "user") continue;
        const Json *row = header.find(in.name);
        if (!row) fail("the file has no weights for ", in.name);
        Tensor t;
        t.ndim = static_cast<int>(in.sizes.size());
        for (const Saved &s : kSaved)
            if ((*row)["dtype"].string() == s.name) t.dtype = s.dtype;
        const auto &shape = (*row)["shape"].list();
        bool fits = t.dtype == in.dtype && shape.size() == in.sizes.size();
        int64_t strides[kDims], count = 1;
        for (int d = 0; fits && d < t.ndim; d++) {
            const Number &n = constants[in.sizes[d]], &s = constants[in.strides[d]];
            fits = !n.bad && !s.bad && shape[static_cast<size_t>(d)].integer() == n.i && n.i >= 0;
            t.sizes[d] = n.i, strides[d] = s.i;
            if (__builtin_mul_overflow(count, n.i, &count)) fits = false;
        }
        if (!fits) fail("the weights for ", in.name, " are not those that the program wants");
        const int64_t begin = (*row)["data_offsets"][0].integer(), end = (*row)["data_offsets"][1].integer();
        int64_t bytes = 0;
        if (begin < 0 || end < begin || end > static_cast<int64_t>(data.size()) ||
            __builtin_mul_overflow(count, static_cast<int64_t>(item_size(t.dtype)), &bytes) || bytes != end - begin)
            fail("the weights are damaged: ", in.name, " does not fit");
        t.data = const_cast<char *>(data.data()) + begin;
        contiguous(t.ndim, t.sizes, t.strides);
        if (reinterpret_cast<uintptr_t>(t.data) % static_cast<uintptr_t>(item_size(t.dtype))) { // of a file that others wrote
            Hold memory(new_storage(bytes));
            std::memcpy(memory.get()->data, t.data, static_cast<size_t>(bytes));
            t.data = memory.get()->data;
            t.owner = std::move(memory);
        }
        Run::lay(t, strides);
        p.state[static_cast<size_t>(in.slot)] = std::move(t);
    }
}

void load_state(pliant_program &p) {
    const std::string_view file = p.archive->member("weights.safetensors", false);
    uint64_t length = 0;
    if (file.size() >= 8) std::memcpy(&length, file.data(), 8);
    if (file.size() < 8 || length > file.size() - 8) fail("the weights are damaged: their header does not fit");
    const Json header = parse_json(file.substr(8, length));
    for (const auto &v : p.variants) load_state(*v, header, file.substr(8 + length));
}

void run(const pliant_program &p, const pliant_tensor *inputs, int n_inputs, pliant_tensor *outputs, int n_outputs) {
    const auto want = [](const char *what, size_t n, int came) {
        if (came < 0 || static_cast<size_t>(came) != n) fail("the program has ", str(static_cast<int64_t>(n)), " ", what, ", but ", str(came), " came.");
    };
    want("inputs", p.plan().users.size(), n_inputs);
    want("outputs", p.plan().outputs.size(), n_outputs);
    std::string refused;
    for (const auto &v : p.variants) {
        try {
            Borrowed b(*v);
            Run{p, *v, *b.frame}.all(inputs, outputs);
            return;
        } catch (const Misfit &e) {
            if (refused.empty()) refused = e.text;
        }
    }
    throw Error{std::move(refused)};
}

} // namespace pliant::runtime
