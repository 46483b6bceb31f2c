// What the files of the runtime share: errors, JSON, the parts of a file, memory, plans. No Python anywhere.
#pragma once
#include "../native/pages.h"
#include "../native/routines.h"
#include "pliant.h"
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pliant::runtime {

constexpr int kDims = PLIANT_MAX_DIMS;

// What went wrong, thrown inside of the runtime and caught at its door (api.cpp).
struct Error {
    std::string text;
};
template <class... T> [[noreturn]] void fail(const T &...parts) {
    std::string text;
    ((text += parts), ...);
    throw Error{std::move(text)};
}
inline std::string str(int64_t n) { return std::to_string(n); }

// -- json.cpp
struct Json {
    enum Kind { Null, Bool, Int, Float, Text, List, Table } kind = Null;
    int64_t number = 0;
    double real = 0;
    std::string text;
    std::vector<Json> items;        // of a list, or the values of a table
    std::vector<std::string> names; // of a table

    const Json *find(std::string_view name) const; // null if there is none
    const Json &operator[](std::string_view name) const;
    const Json &operator[](size_t i) const;
    const Json &operator[](int i) const { return (*this)[static_cast<size_t>(i)]; }
    const std::vector<Json> &list() const;
    const std::string &string() const;
    int64_t integer() const;
    int64_t below(int64_t limit) const; // an integer in [0, limit)
    bool is(Kind k) const { return kind == k; }
};
Json parse_json(std::string_view text);

// -- archive.cpp: a zip file, mapped. Members are stored, not compressed.
class Archive {
  public:
    explicit Archive(const char *path);
    ~Archive();
    Archive(const Archive &) = delete;
    bool has(std::string_view name) const;
    std::string_view member(std::string_view name, bool checked) const; // checked: its checksum is compared
    std::string_view path() const { return path_; }

  private:
    struct Member {
        std::string name;
        uint64_t offset, size;
        uint32_t crc;
        uint16_t method;
    };
    void read_directory();
    std::string path_;
    const char *data_ = nullptr;
    uint64_t size_ = 0;
    std::vector<Member> members_;
};

// -- memory.cpp
// Memory with a count of who uses it.
struct Storage {
    std::atomic<int> uses{1};
    char *data = nullptr;
    int64_t bytes = 0;
    void *torch = nullptr;               // a tensor of libtorch whose memory it is
    int32_t (*release)(void *) = nullptr; // for that
    Storage *base = nullptr;             // whose memory that tensor sees
};
Storage *new_storage(int64_t bytes); // throws where there is no memory
void use(Storage *s);
void drop(Storage *s);
std::pair<int64_t, int64_t> bytes_held();

// A reference to a storage, or to none.
class Hold {
  public:
    Hold() = default;
    explicit Hold(Storage *s) : s_(s) {} // takes the reference
    Hold(const Hold &o) : s_(o.s_) { if (s_) use(s_); }
    Hold(Hold &&o) noexcept : s_(std::exchange(o.s_, nullptr)) {}
    Hold &operator=(Hold o) noexcept { std::swap(s_, o.s_); return *this; }
    ~Hold() { if (s_) drop(s_); }
    Storage *get() const { return s_; }
    Storage *give() { return std::exchange(s_, nullptr); }

  private:
    Storage *s_ = nullptr;
};

struct Tensor {
    char *data = nullptr;
    int dtype = -1, ndim = 0;
    int64_t sizes[kDims], strides[kDims];
    Hold owner;
    int64_t elements() const {
        int64_t n = 1;
        for (int d = 0; d < ndim; d++) n *= sizes[d];
        return n;
    }
};
int item_size(int dtype); // 0: there is no such dtype
const char *dtype_name(int dtype);
int dtype_of(const std::string &name);
int64_t bytes_of(int ndim, const int64_t *sizes, const int64_t *strides, int dtype); // from the first to behind the last element; throws for absurd sizes
void contiguous(int ndim, const int64_t *sizes, int64_t *strides);
bool same_layout(int ndim, const int64_t *sizes, const int64_t *a, const int64_t *b); // strides, where sizes make them matter
void copy_strided(char *to, const int64_t *to_strides, const char *from, const int64_t *from_strides, const int64_t *sizes, int ndim, int item);

// -- numbers.cpp: the straight line of scalar operations of a plan
struct Number {
    union {
        int64_t i = 0;
        double f;
    };
    bool bad = false; // there is no such number: a division by zero, an overflow
};
struct Row {
    int op = 0;
    int32_t args[3] = {0, 0, 0};
    Number value; // of a constant
    bool is_float = false;
};
Row read_row(const Json &data, int64_t before, std::string *symbol);
Number evaluate(const Row &row, const Number *values);
bool is_constant(const Row &row);
bool is_symbol(const Row &row);

// -- code.cpp: machine code in memory
class Code {
  public:
    Code(const Json &info, std::string_view bytes, int64_t bits);
    using Function = int32_t (*)(int64_t *);
    Function function(const std::string &name) const;

  private:
    Pages pages_;
    std::vector<std::pair<std::string, uint64_t>> exports_;
};
int level_here();                         // 4, 3 or 1 as in x86-64-v4; 0 for another kind of processor
int level_of(std::string_view name);      // of its name; -1 if there is none of that name
void use_blas(const char *library);       // throws if it has no products
void use_threads(int n);

// -- torch.cpp: operators of libtorch
struct Argument {
    enum Kind { None, Some, List, Tensor, Number, Row, Float, Dtype, Device, Layout, Format, Text } kind = None;
    int32_t index = 0; // of a slot, a row, a dtype, a format
    int32_t dtype = -1; // of a number that goes as a tensor
    std::string text;
    std::vector<Argument> items;
};
struct Result {
    enum Kind { Tensor, Number, Operand } kind;
    int32_t index = -1; // slot or row
    int dtype = -1, ndim = 0;
};
struct Call {
    std::string name, overload, where;
    std::vector<Argument> arguments;
    std::vector<Result> results;
    bool listed = false;
};
struct Torch;
const Torch *find_torch(const char *library);  // null: there is none
std::string torch_missing();                   // why
void call_torch(const Torch &torch, const Call &call, runtime::Tensor *slots, runtime::Number *values, const Row *rows);

// -- plan.cpp
struct Shown {
    std::string name;
    int32_t row;
};
struct Relation {
    int32_t row;
    std::string text, where;
    std::vector<Shown> shown;
};
struct Input {
    std::string name, kind;
    int32_t slot = -1, row = -1;
    int dtype = -1;
    char number = 0; // 'i', 'f', 'b'
    std::vector<int32_t> sizes, strides;
    struct Symbol {
        char what; // 's', 't' (stride), 'o'
        int32_t dim, row;
    };
    std::vector<Symbol> symbols;
    std::vector<std::string> promised;
};
struct Output {
    std::string name, kind, of;
    int32_t slot = -1, row = -1;
    char number = 0;
};
struct Step {
    enum Kind { Alloc, Run, Reuse, View, Item, Size, Assert, Aten, Fit, Free } kind;
    int32_t need = 0, slot = 0, other = 0, dtype = -1;
    bool flag = false; // there are strides
    std::vector<int32_t> a, b;
    Code::Function function = nullptr;
    Relation relation; // its text; `where` of a call
    std::unique_ptr<Call> call;
};
struct Plan {
    int32_t slots = 0, begin = 0;
    std::vector<Row> rows;
    std::vector<std::string> symbols; // names, for messages
    std::vector<Input> inputs;
    std::vector<Output> outputs;
    std::vector<Relation> relations;
    std::vector<Step> steps;
    std::vector<int32_t> users; // which inputs a caller gives
    std::vector<std::string> operators; // of libtorch that it calls
};
Plan read_plan(const Json &data, const Code &code);

// -- run.cpp
struct Frame { // what one call works in
    std::vector<Tensor> slots;
    std::vector<Number> values;
    std::vector<int64_t> box;
};
// One of the plans of a program: what it takes on one side of its branches.
struct Variant {
    Plan plan;
    std::vector<Tensor> state; // by slot, those that are state
    mutable std::mutex lock;
    mutable std::vector<std::unique_ptr<Frame>> idle;
};

} // namespace pliant::runtime

struct pliant_program {
    std::unique_ptr<pliant::runtime::Archive> archive;
    std::unique_ptr<pliant::runtime::Code> code;
    std::vector<std::unique_ptr<pliant::runtime::Variant>> variants;
    std::string name, level;
    const pliant::runtime::Torch *torch = nullptr;
    const pliant::runtime::Plan &plan() const { return variants[0]->plan; }
};

namespace pliant::runtime {
void load_state(pliant_program &p);
void run(const pliant_program &p, const pliant_tensor *inputs, int n_inputs, pliant_tensor *outputs, int n_outputs);
} // namespace pliant::runtime
