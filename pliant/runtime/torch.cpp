// Operators of libtorch, by its stable C interface (torch/csrc/stable/c/shim.h), where a program calls some and the library is there.
//
// The functions are found at run time: a program that calls none needs no libtorch, and this file no header of it.
#include "runtime.h"
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>

namespace pliant::runtime {
namespace {

using Handle = void *;
using Value = uint64_t;                             // what the interface calls a StableIValue
constexpr uint64_t kVersion = 2ull << 56 | 10ull << 48; // of the interface that is spoken here

} // namespace

struct Torch {
    int32_t (*call)(const char *, const char *, Value *, uint64_t);
    int32_t (*from_memory)(void *, int64_t, const int64_t *, const int64_t *, int64_t, int32_t, int32_t, int32_t, Handle *);
    int32_t (*remove)(Handle);
    int32_t (*data)(Handle, void **);
    int32_t (*dim)(Handle, int64_t *);
    int32_t (*sizes)(Handle, int64_t **);
    int32_t (*strides)(Handle, int64_t **);
    int32_t (*dtype)(Handle, int32_t *);
    int32_t (*list_new)(size_t, Handle *);
    int32_t (*list_push)(Handle, Value);
    int32_t (*list_size)(Handle, size_t *);
    int32_t (*list_get)(Handle, size_t, Value *);
    int32_t (*list_delete)(Handle);
    int32_t (*text_new)(const char *, size_t, Handle *);
    int32_t (*value_new)(Value **);
    const char *(*what)();
    int32_t (*scalar_f32)(float, Handle *), (*scalar_f64)(double, Handle *), (*scalar_i64)(int64_t, Handle *), (*scalar_i32)(int32_t, Handle *);
    int32_t (*scalar_i16)(int16_t, Handle *), (*scalar_i8)(int8_t, Handle *), (*scalar_u8)(uint8_t, Handle *), (*scalar_bool)(bool, Handle *);
    int32_t (*cpu)(), (*strided)(), (*contiguous)(), (*channels_last)(), (*preserve)();
};

namespace {

std::string missing; // why there is no libtorch
std::mutex looking;

int32_t number_of(const Torch &t, const char *library) {
    Torch *found = const_cast<Torch *>(&t);
    void *lib = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!lib) {
        missing = dlerror();
        return -1;
    }
    const auto find = [&](auto &to, const char *name) {
        void *p = dlsym(lib, name);
        std::memcpy(&to, &p, sizeof p);
        if (!p && missing.empty()) missing = std::string(library) + " has no " + name;
    };
    missing.clear();
    find(found->call, "torch_call_dispatcher");
    find(found->from_memory, "aoti_torch_create_tensor_from_blob");
    find(found->remove, "aoti_torch_delete_tensor_object");
    find(found->data, "aoti_torch_get_data_ptr");
    find(found->dim, "aoti_torch_get_dim");
    find(found->sizes, "aoti_torch_get_sizes");
    find(found->strides, "aoti_torch_get_strides");
    find(found->dtype, "aoti_torch_get_dtype");
    find(found->list_new, "torch_new_list_reserve_size");
    find(found->list_push, "torch_list_push_back");
    find(found->list_size, "torch_list_size");
    find(found->list_get, "torch_list_get_item");
    find(found->list_delete, "torch_delete_list");
    find(found->text_new, "torch_new_string_handle");
    find(found->scalar_f32, "aoti_torch_scalar_to_tensor_float32");
    find(found->scalar_f64, "aoti_torch_scalar_to_tensor_float64");
    find(found->scalar_i64, "aoti_torch_scalar_to_tensor_int64");
    find(found->scalar_i32, "aoti_torch_scalar_to_tensor_int32");
    find(found->scalar_i16, "aoti_torch_scalar_to_tensor_int16");
    find(found->scalar_i8, "aoti_torch_scalar_to_tensor_int8");
    find(found->scalar_u8, "aoti_torch_scalar_to_tensor_uint8");
    find(found->scalar_bool, "aoti_torch_scalar_to_tensor_bool");
    find(found->cpu, "aoti_torch_device_type_cpu");
    find(found->strided, "aoti_torch_layout_strided");
    find(found->contiguous, "aoti_torch_memory_format_contiguous_format");
    find(found->channels_last, "aoti_torch_memory_format_channels_last");
    find(found->preserve, "aoti_torch_memory_format_preserve_format");
    if (!missing.empty()) return -1;
    void *p = dlsym(lib, "torch_new_stable_ivalue");
    std::memcpy(&found->value_new, &p, sizeof p);
    p = dlsym(lib, "torch_exception_get_what_without_backtrace");
    std::memcpy(&found->what, &p, sizeof p);
    int32_t (*f32)() = nullptr, (*i64)() = nullptr, (*boolean)() = nullptr;
    find(f32, "aoti_torch_dtype_float32");
    find(i64, "aoti_torch_dtype_int64");
    find(boolean, "aoti_torch_dtype_bool");
    if (!f32 || !i64 || !boolean || f32() != PLIANT_F32 || i64() != PLIANT_I64 || boolean() != PLIANT_BOOL) {
        missing = std::string(library) + " numbers its dtypes in another way";
        return -1;
    }
    return 0;
}

// A libtorch of this process, and those that were asked for by name.
struct Known {
    std::string library;
    Torch torch;
};
std::vector<std::unique_ptr<Known>> known;

// One call: what was made for it, and is to be taken away if it fails half way.
struct Caller {
    const Torch &t;
    const Call &call;
    Tensor *slots;
    Number *values;
    const Row *rows;

    void check(int32_t status) const {
        if (!status) return;
        std::string why = t.what ? t.what() : "libtorch raised an error (it wrote it to the standard error stream)";
        while (!why.empty() && why.back() == '\n') why.pop_back();
        fail(call.name, call.overload.empty() ? "" : "." + call.overload, ": ", why, call.where.empty() ? "" : " (" + call.where + ")");
    }
    const Number &number(int32_t row) const {
        if (values[row].bad) fail(call.name, ": an argument is a number that there is not: a division by zero, or an overflow");
        return values[row];
    }
    static Value bits(double f) {
        Value v;
        std::memcpy(&v, &f, sizeof v);
        return v;
    }
    static Value handle(void *p) { return reinterpret_cast<Value>(p); }

    Value value(const Argument &a) const {
        switch (a.kind) {
        case Argument::None: return 0;
        case Argument::Some: {
            const Value inner = value(a.items[0]);
            Value *p = nullptr;
            if (t.value_new) check(t.value_new(&p));
            else p = static_cast<Value *>(::operator new(sizeof(Value)));
            *p = inner;
            return handle(p);
        }
        case Argument::List: {
            Handle list = nullptr;
            check(t.list_new(a.items.size(), &list));
            for (const Argument &item : a.items) check(t.list_push(list, value(item)));
            return handle(list);
        }
        case Argument::Tensor: {
            const Tensor &x = slots[a.index];
            Handle h = nullptr;
            check(t.from_memory(x.data, x.ndim, x.sizes, x.strides, 0, x.dtype, t.cpu(), 0, &h));
            return handle(h);
        }
        case Argument::Number: return scalar(a);
        case Argument::Row: return rows[a.index].is_float ? bits(number(a.index).f) : static_cast<Value>(number(a.index).i);
        case Argument::Float: return bits(rows[a.index].is_float ? number(a.index).f : static_cast<double>(number(a.index).i));
        case Argument::Dtype: return static_cast<uint32_t>(a.index);
        case Argument::Device: return static_cast<Value>(static_cast<uint32_t>(t.cpu())) << 32 | 0xFFFFFFFFu; // of no number
        case Argument::Layout: return static_cast<uint32_t>(t.strided());
        case Argument::Format: return static_cast<uint32_t>(a.index == 0 ? t.contiguous() : a.index == 1 ? t.channels_last() : t.preserve());
        case Argument::Text: {
            Handle h = nullptr;
            check(t.text_new(a.text.data(), a.text.size(), &h));
            return handle(h);
        }
        }
        return 0;
    }

    // A number as a tensor of no dims, with memory of its own.
    Value scalar(const Argument &a) const {
        const bool real = rows[a.index].is_float;
        const Number n = number(a.index);
        Handle h = nullptr;
        switch (a.dtype) {
        case PLIANT_F32: check(t.scalar_f32(static_cast<float>(real ? n.f : static_cast<double>(n.i)), &h)); break;
        case PLIANT_F64: check(t.scalar_f64(real ? n.f : static_cast<double>(n.i), &h)); break;
        case PLIANT_I64: check(t.scalar_i64(n.i, &h)); break;
        case PLIANT_I32: check(t.scalar_i32(static_cast<int32_t>(n.i), &h)); break;
        case PLIANT_I16: check(t.scalar_i16(static_cast<int16_t>(n.i), &h)); break;
        case PLIANT_I8: check(t.scalar_i8(static_cast<int8_t>(n.i), &h)); break;
        case PLIANT_U8: check(t.scalar_u8(static_cast<uint8_t>(n.i), &h)); break;
        case PLIANT_BOOL: check(t.scalar_bool(n.i != 0, &h)); break;
        default: fail(call.name, ": a number of such a dtype cannot be handed over");
        }
        return handle(h);
    }

    // The storage of an operand that this memory is part of, or none.
    Storage *base_of(const char *data) const {
        for (const Argument &a : call.arguments)
            for (const Argument *p = &a; p; p = p->kind == Argument::Some ? &p->items[0] : nullptr) {
                if (p->kind != Argument::Tensor) continue;
                Storage *s = slots[p->index].owner.get();
                if (s && s->data && data >= s->data && data < s->data + s->bytes) return s;
                if (s && s->torch) return s;
            }
        return nullptr;
    }

    void take(const Result &r, Value v) const {
        if (r.kind == Result::Number) {
            if (r.index < 0) return;
            std::memcpy(&values[r.index].i, &v, sizeof v);
            values[r.index].bad = false;
            return;
        }
        auto *h = reinterpret_cast<Handle>(v);
        if (r.kind == Result::Operand || r.index < 0) {
            if (h) t.remove(h);
            return;
        }
        auto s = std::make_unique<Storage>();
        s->torch = h;
        s->release = t.remove;
        Tensor out;
        int64_t ndim = 0, *sizes = nullptr, *strides = nullptr;
        int32_t dtype = -1;
        void *data = nullptr;
        if (!h) fail(call.name, " returned no tensor");
        check(t.dim(h, &ndim));
        check(t.sizes(h, &sizes));
        check(t.strides(h, &strides));
        check(t.dtype(h, &dtype));
        check(t.data(h, &data));
        if (ndim != r.ndim || dtype != r.dtype || ndim > kDims)
            fail(call.name, " returned a tensor of ", str(ndim), " dims and dtype ", str(dtype), ", and the program expects ", str(r.ndim), " of ", str(r.dtype));
        out.data = static_cast<char *>(data);
        out.dtype = dtype;
        out.ndim = static_cast<int>(ndim);
        for (int d = 0; d < out.ndim; d++) out.sizes[d] = sizes[d], out.strides[d] = strides[d];
        s->base = base_of(out.data);
        if (s->base) use(s->base);
        out.owner = Hold(s.release());
        slots[r.index] = std::move(out);
    }

    void run() const {
        std::vector<Value> stack(std::max(call.arguments.size(), call.results.size()) + 1, 0);
        for (size_t i = 0; i < call.arguments.size(); i++) stack[i] = value(call.arguments[i]);
        check(t.call(call.name.c_str(), call.overload.c_str(), stack.data(), kVersion));
        if (!call.listed) {
            for (size_t i = 0; i < call.results.size(); i++) take(call.results[i], stack[i]);
            return;
        }
        auto *list = reinterpret_cast<Handle>(stack[0]);
        size_t n = 0;
        check(t.list_size(list, &n));
        if (n != call.results.size()) fail(call.name, " returned ", str(static_cast<int64_t>(n)), " tensors, and the program expects ", str(static_cast<int64_t>(call.results.size())));
        for (size_t i = 0; i < n; i++) {
            Value v = 0;
            check(t.list_get(list, i, &v));
            take(call.results[i], v);
        }
        t.list_delete(list);
    }
};

} // namespace

const Torch *find_torch(const char *library) {
    const std::lock_guard<std::mutex> guard(looking);
    const char *told = library ? library : std::getenv("PLIANT_TORCH");
    const std::string name = told && *told ? told : "libtorch_cpu.so";
    for (const auto &k : known)
        if (k->library == name) return &k->torch;
    auto made = std::make_unique<Known>(Known{name, {}});
    if (number_of(made->torch, name.c_str()) < 0) return nullptr;
    known.push_back(std::move(made));
    return &known.back()->torch;
}

std::string torch_missing() { return missing; }

void call_torch(const Torch &torch, const Call &call, Tensor *slots, Number *values, const Row *rows) {
    Caller{torch, call, slots, values, rows}.run();
}

} // namespace pliant::runtime
