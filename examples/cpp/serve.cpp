// Serves a sentence encoder that pliant compiled into a file: token ids in, embeddings out. No Python, no libtorch.
//
//     serve model.pliant requests.txt [--out embeddings.bin] [--threads N] [--repeat N] [--level x86-64-v3] [--blas libopenblas.so]
//
// Each line of requests.txt is one text as token ids with spaces between them, as a tokenizer gives them (examples/cpp/minilm.py); lines
// that end in a comma and the line behind them are one batch, filled up with zeros to the longest. Inputs are called as the
// model calls them: input_ids, attention_mask, token_type_ids. The embeddings go to a file of 32-bit floats, one row for each text.
#include "pliant.h"
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using Ids = std::vector<std::vector<int64_t>>; // of one batch

[[noreturn]] void fail(const std::string &why) {
    std::fprintf(stderr, "serve: %s\n", why.c_str());
    std::exit(1);
}

std::vector<Ids> read_requests(const char *path) {
    std::ifstream in(path);
    if (!in) fail(std::string("cannot read ") + path);
    std::vector<Ids> out(1);
    for (std::string line; std::getline(in, line);) {
        const bool more = !line.empty() && line.back() == ',';
        std::istringstream words(line);
        std::vector<int64_t> ids;
        for (int64_t id; words >> id;) ids.push_back(id);
        if (ids.empty()) continue;
        out.back().push_back(std::move(ids));
        if (!more) out.emplace_back();
    }
    if (out.back().empty()) out.pop_back();
    return out;
}

// Bytes of this process that are in memory, and of these those that are no file's.
std::pair<double, double> resident() {
    std::ifstream in("/proc/self/status");
    double all = 0, own = 0;
    for (std::string word; in >> word;) {
        if (word == "VmRSS:") in >> all;
        if (word == "RssAnon:") in >> own;
    }
    return {all / 1024, own / 1024};
}

struct Request {
    std::vector<int64_t> ids, mask, types;
    int64_t sizes[2];
};

Request prepare(const Ids &batch) {
    size_t longest = 0;
    for (const auto &ids : batch) longest = std::max(longest, ids.size());
    Request r;
    r.sizes[0] = static_cast<int64_t>(batch.size()), r.sizes[1] = static_cast<int64_t>(longest);
    r.ids.resize(batch.size() * longest), r.mask.resize(r.ids.size()), r.types.resize(r.ids.size());
    for (size_t i = 0; i < batch.size(); i++)
        for (size_t j = 0; j < batch[i].size(); j++) r.ids[i * longest + j] = batch[i][j], r.mask[i * longest + j] = 1;
    return r;
}

void run(const pliant_program *p, Request &r, pliant_tensor *outputs, int n_outputs) {
    const int n = pliant_inputs(p);
    std::vector<pliant_tensor> inputs(static_cast<size_t>(n));
    for (int i = 0; i < n; i++) {
        pliant_tensor &t = inputs[static_cast<size_t>(i)];
        const std::string name = pliant_input_name(p, i);
        t = {};
        t.data = name == "input_ids" ? r.ids.data() : name == "attention_mask" ? r.mask.data() : name == "token_type_ids" ? r.types.data() : nullptr;
        if (!t.data) fail("the model wants an input that this example does not know: " + name);
        t.dtype = PLIANT_I64;
        t.ndim = 2;
        std::copy_n(r.sizes, 2, t.sizes);
        pliant_set_contiguous(&t);
    }
    if (pliant_run(p, inputs.data(), n, outputs, n_outputs)) fail(pliant_error());
}

} // namespace

int main(int argc, char **argv) {
    const char *out_path = nullptr;
    int threads = 1, repeat = 1, random_shapes = 0;
    pliant_options options = {};
    options.size = sizeof options;
    std::vector<const char *> files;
    for (int i = 1; i < argc; i++) {
        const auto next = [&] { return i + 1 < argc ? argv[++i] : (fail(std::string(argv[i]) + " needs a value"), nullptr); };
        if (!std::strcmp(argv[i], "--out")) out_path = next();
        else if (!std::strcmp(argv[i], "--threads")) threads = std::atoi(next());
        else if (!std::strcmp(argv[i], "--repeat")) repeat = std::atoi(next());
        else if (!std::strcmp(argv[i], "--shapes")) random_shapes = std::atoi(next());
        else if (!std::strcmp(argv[i], "--level")) options.level = next();
        else if (!std::strcmp(argv[i], "--blas")) options.blas_library = next();
        else files.push_back(argv[i]);
    }
    if (files.size() != 2 || threads < 1) fail("usage: serve MODEL REQUESTS [--out FILE] [--threads N] [--repeat N] [--shapes N] [--level L] [--blas LIBRARY]");

    const auto begun = Clock::now();
    pliant_program *p = nullptr;
    if (pliant_load(files[0], &options, &p)) fail(pliant_error());
    if (pliant_outputs(p) != 1) fail("this example knows models with one output");
    const double loading = std::chrono::duration<double>(Clock::now() - begun).count();

    const std::vector<Ids> batches = read_requests(files[1]);
    std::vector<Request> requests;
    for (const Ids &b : batches) requests.push_back(prepare(b));
    std::vector<std::vector<float>> answers(requests.size());
    const auto first = Clock::now();
    const std::clock_t worked = std::clock();
    double first_answer = 0;
    const auto serve = [&](int who) {
        for (int round = 0; round < repeat; round++)
            for (size_t i = static_cast<size_t>(who); i < requests.size(); i += static_cast<size_t>(threads)) {
                pliant_tensor out;
                run(p, requests[i], &out, 1);
                if (round == 0 && i == 0) first_answer = std::chrono::duration<double>(Clock::now() - first).count();
                if (round == 0 && out_path) {
                    const auto *data = static_cast<const float *>(out.data);
                    answers[i].assign(data, data + out.sizes[0] * out.sizes[1]);
                }
                pliant_release(&out, 1);
            }
    };
    std::vector<std::thread> others;
    for (int t = 1; t < threads; t++) others.emplace_back(serve, t);
    serve(0);
    for (auto &t : others) t.join();
    const double seconds = std::chrono::duration<double>(Clock::now() - first).count();

    const double busy = static_cast<double>(std::clock() - worked) / CLOCKS_PER_SEC; // of all threads: what others do on this machine is not in it
    int64_t texts = 0, tokens = 0;
    for (const Request &r : requests) texts += r.sizes[0], tokens += r.sizes[0] * r.sizes[1];
    std::printf("machine code for %s, loaded in %.1f ms, first answer after %.1f ms more\n", pliant_level(p), 1e3 * loading, 1e3 * first_answer);
    std::printf("%zu requests, %lld texts, %lld tokens, %d times in %.3f s: %.0f tokens/s, %.3f ms a request (%.3f ms of processor time)\n", requests.size(),
                static_cast<long long>(texts), static_cast<long long>(tokens), repeat, seconds, static_cast<double>(tokens) * repeat / seconds,
                1e3 * seconds / (repeat * static_cast<double>(requests.size())), 1e3 * busy / (repeat * static_cast<double>(requests.size())));

    if (random_shapes) { // no growth, whatever the sizes
        uint64_t state = 1;
        const auto draw = [&](int64_t below) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            return static_cast<int64_t>(state >> 33) % below;
        };
        double early = 0;
        for (int i = 0; i < random_shapes; i++) {
            Ids batch(static_cast<size_t>(1 + draw(4)));
            for (auto &ids : batch) ids.assign(static_cast<size_t>(2 + draw(60)), 101);
            Request r = prepare(batch);
            pliant_tensor out;
            run(p, r, &out, 1);
            pliant_release(&out, 1);
            if (i == random_shapes / 10) early = resident().second;
        }
        std::printf("%d shapes: %.1f MiB of memory of its own after a tenth of them, %.1f after all\n", random_shapes, early, resident().second);
    }
    int64_t now, most;
    pliant_memory(&now, &most);
    const auto [all, own] = resident();
    std::printf("memory: %.1f MiB resident, of which %.1f are no file's; the runtime holds %.1f MiB, at most %.1f\n", all, own,
                static_cast<double>(now) / 1048576, static_cast<double>(most) / 1048576);
    if (out_path) {
        std::ofstream out(out_path, std::ios::binary);
        for (const auto &a : answers) out.write(reinterpret_cast<const char *>(a.data()), static_cast<std::streamsize>(a.size() * sizeof(float)));
    }
    pliant_free(p);
}
