// A plan as pliant/export/plan.py writes it. Whatever it refers to is looked at here, once, so that running it need not.
#include "runtime.h"
#include <algorithm>

namespace pliant::runtime {
namespace {

constexpr int64_t kMostSlots = 1 << 20;

struct Reader {
    const Json &data;
    const Code &code;
    Plan p;
    int64_t rows = 0;

    int32_t row(const Json &v, int64_t need) const { return static_cast<int32_t>(v.below(need)); }
    int32_t slot(const Json &v) const { return static_cast<int32_t>(v.below(p.slots)); }
    std::vector<int32_t> row_list(const Json &v, int64_t need) const {
        std::vector<int32_t> out;
        for (const Json &x : v.list()) out.push_back(row(x, need));
        return out;
    }
    std::vector<int32_t> dims(const Json &v, int64_t need) const {
        auto out = row_list(v, need);
        if (out.size() > static_cast<size_t>(kDims)) fail("a tensor of the plan has more than ", str(kDims), " dims");
        return out;
    }
    std::vector<int32_t> slot_list(const Json &v) const {
        std::vector<int32_t> out;
        for (const Json &x : v.list()) out.push_back(slot(x));
        return out;
    }
    std::vector<Shown> shown(const Json &v, int64_t need) const {
        std::vector<Shown> out;
        for (const Json &x : v.list()) out.push_back({x[0].string(), row(x[1], need)});
        return out;
    }
    static char number(const Json &v) {
        const std::string &s = v.string();
        if (s != "int" && s != "float" && s != "bool") fail("the plan has a number of a kind that is none");
        return s[0];
    }

    void input(const Json &v) {
        Input in;
        in.name = v["name"].string();
        in.kind = v["kind"].string();
        const auto index = static_cast<int32_t>(p.inputs.size());
        if (const Json *n = v.find("number")) {
            in.number = number(*n);
            in.row = row(v["row"], rows);
            if (!is_symbol(p.rows[in.row])) fail("the plan is damaged: a number that is no symbol");
            p.users.push_back(index);
            p.inputs.push_back(std::move(in));
            return;
        }
        in.slot = slot(v["slot"]);
        in.dtype = dtype_of(v["dtype"].string());
        in.sizes = dims(v["sizes"], rows);
        in.strides = dims(v["strides"], rows);
        if (in.sizes.size() != in.strides.size()) fail("the plan is damaged: sizes and strides");
        for (const Json &s : v["symbols"].list()) {
            const std::string &what = s[0].string();
            const char c = what == "size" ? 's' : what == "stride" ? 't' : what == "offset" ? 'o' : 0;
            if (!c) fail("the plan is damaged: a symbol");
            const int64_t dim = s[1].below(c == 'o' ? 1 : static_cast<int64_t>(in.sizes.size()));
            const int32_t r = row(s[2], rows);
            if (!is_symbol(p.rows[r])) fail("the plan is damaged: a symbol that is none");
            in.symbols.push_back({c, static_cast<int32_t>(dim), r});
        }
        if (const Json *t = v.find("promised"))
            for (const Json &x : t->list()) in.promised.push_back(x.string());
        if (in.kind == "user") {
            if (in.promised.size() != in.sizes.size()) fail("the plan is damaged: what an input was promised to be");
            p.users.push_back(index);
        }
        p.inputs.push_back(std::move(in));
    }

    Argument argument(const Json &v, int64_t need, int depth) const {
        Argument a;
        if (v.is(Json::Null)) return a;
        if (depth > 4) fail("the plan is damaged: an argument");
        const std::string &kind = v[0].string();
        if (kind == "some") a.kind = Argument::Some, a.items.push_back(argument(v[1], need, depth + 1));
        else if (kind == "list") {
            a.kind = Argument::List;
            for (const Json &x : v[1].list()) a.items.push_back(argument(x, need, depth + 1));
        } else if (kind == "tensor") a.kind = Argument::Tensor, a.index = slot(v[1]);
        else if (kind == "number") a.kind = Argument::Number, a.index = row(v[1], need), a.dtype = dtype_of(v[2].string());
        else if (kind == "row") a.kind = Argument::Row, a.index = row(v[1], need);
        else if (kind == "float") a.kind = Argument::Float, a.index = row(v[1], need);
        else if (kind == "dtype") a.kind = Argument::Dtype, a.index = dtype_of(v[1].string());
        else if (kind == "device") {
            a.kind = Argument::Device;
            if (v[1].string() != "cpu") fail("the plan asks for the device ", v[1].string(), ": this runtime has the processor only");
        } else if (kind == "layout") a.kind = Argument::Layout;
        else if (kind == "format") {
            const std::string &f = v[1].string();
            a.kind = Argument::Format;
            a.index = f == "contiguous_format" ? 0 : f == "channels_last" ? 1 : f == "preserve_format" ? 2 : -1;
            if (a.index < 0) fail("the plan asks for a memory format that this runtime does not know: ", f);
        } else if (kind == "text") a.kind = Argument::Text, a.text = v[1].string();
        else fail("the plan has an argument of a kind that this runtime does not know: ", kind);
        return a;
    }

    // An operand without its optional wrapper, where a schema says "Tensor?".
    void aten(const Json &v, int64_t need, Step &s) {
        auto c = std::make_unique<Call>();
        c->name = v[2].string();
        c->overload = v[3].string();
        for (const Json &a : v[4].list()) c->arguments.push_back(argument(a, need, 0));
        for (const Json &r : v[5].list()) {
            const std::string &kind = r[0].string();
            Result out{Result::Number};
            if (kind == "tensor") {
                out = {Result::Tensor, slot(r[1]), dtype_of(r[2].string()), static_cast<int>(r[3].below(kDims + 1))};
            } else if (kind == "operand") out.kind = Result::Operand;
            else if (kind != "number") fail("the plan has a result of a kind that this runtime does not know: ", kind);
            else if (r.list().size() > 1) {
                out.index = row(r[1], rows);
                if (!is_symbol(p.rows[out.index])) fail("the plan is damaged: a number that is no symbol");
            }
            c->results.push_back(out);
        }
        c->listed = v[6].number != 0;
        c->where = v[7].string();
        const std::string name = c->name + (c->overload.empty() ? "" : "." + c->overload);
        if (std::find(p.operators.begin(), p.operators.end(), name) == p.operators.end()) p.operators.push_back(name);
        s.call = std::move(c);
    }

    int32_t symbol(const Json &v) const {
        const int32_t r = row(v, rows);
        if (!is_symbol(p.rows[r])) fail("the plan is damaged: a number that is no symbol");
        return r;
    }

    void step(const Json &v) {
        const std::string &kind = v[0].string();
        Step s;
        const int64_t need = v[1].below(rows + 1);
        s.need = static_cast<int32_t>(need);
        const auto size = v.list().size();
        if (kind == "alloc") {
            s.kind = Step::Alloc;
            s.slot = slot(v[2]);
            s.dtype = dtype_of(v[3].string());
            s.a = dims(v[4], need);
            s.flag = !v[5].is(Json::Null);
            if (s.flag) s.b = dims(v[5], need);
            if (s.flag && s.a.size() != s.b.size()) fail("the plan is damaged: an allocation");
        } else if (kind == "call") {
            s.kind = Step::Run;
            s.function = code.function(v[2].string());
            s.a = slot_list(v[3]);
            s.b = row_list(v[4], need);
            s.relation.where = v[5].string();
        } else if (kind == "reuse") {
            s.kind = Step::Reuse;
            s.slot = slot(v[2]);
            s.other = slot(v[3]);
        } else if (kind == "view") {
            s.kind = Step::View;
            s.slot = slot(v[2]);
            s.other = slot(v[3]);
            s.dtype = dtype_of(v[4].string());
            s.a = dims(v[5], need);
            s.b = dims(v[6], need);
            if (s.a.size() != s.b.size()) fail("the plan is damaged: a view");
            s.relation.row = row(v[7], need);
        } else if (kind == "item") {
            s.kind = Step::Item;
            s.other = symbol(v[2]);
            s.slot = slot(v[3]);
        } else if (kind == "size") {
            s.kind = Step::Size;
            s.other = symbol(v[2]);
            s.slot = slot(v[3]);
            s.dtype = static_cast<int32_t>(v[4].below(kDims));
        } else if (kind == "assert") {
            s.kind = Step::Assert;
            s.relation = {row(v[2], need), v[3].string(), v[4].string(), shown(v[5], need)};
        } else if (kind == "aten") {
            s.kind = Step::Aten;
            aten(v, need, s);
        } else if (kind == "fit") {
            s.kind = Step::Fit;
            s.slot = slot(v[2]);
            s.a = dims(v[3], need);
            s.b = dims(v[4], need);
            if (s.a.size() != s.b.size()) fail("the plan is damaged: a layout");
        } else if (kind == "free") {
            s.kind = Step::Free;
            s.a = slot_list(v[2]);
        } else fail("the plan has a step that this runtime does not know: ", kind);
        if (size < 3) fail("the plan has a step that is too short");
        p.steps.push_back(std::move(s));
    }

    Plan read() {
        p.slots = static_cast<int32_t>(data["slots"].below(kMostSlots));
        for (const Json &r : data["rows"].list()) {
            std::string name;
            p.rows.push_back(read_row(r, rows, &name));
            p.symbols.push_back(std::move(name));
            rows++;
        }
        p.begin = static_cast<int32_t>(data["begin"].below(rows + 1));
        for (const Json &v : data["inputs"].list()) input(v);
        for (const Json &v : data["relations"].list())
            p.relations.push_back({row(v[0], p.begin), v[1].string(), v[2].string(), shown(v[3], p.begin)});
        for (const Json &v : data["steps"].list()) step(v);
        for (const Json &v : data["outputs"].list()) {
            Output out;
            out.name = v["name"].string();
            out.kind = v["kind"].string();
            if (const Json *of = v.find("of")) out.of = of->string();
            if (const Json *n = v.find("number")) out.number = number(*n), out.row = row(v["row"], rows);
            else out.slot = slot(v["slot"]);
            p.outputs.push_back(std::move(out));
        }
        return std::move(p);
    }
};

} // namespace

Plan read_plan(const Json &data, const Code &code) { return Reader{data, code, {}, 0}.read(); }

} // namespace pliant::runtime
