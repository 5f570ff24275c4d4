// process_files_program <mode> <folder>: saves and loads arrays of eight devices, in as many
// processes as there are (process_files_test).
#include <signal.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "shmap/shmap.h"

using namespace shmap;

namespace {

struct State {
  Array w, b, r, step;
};

constexpr std::int64_t kRows = 64, kColumns = 512, kLong = 8 * 300000;

std::vector<float> numbers(std::int64_t n, float first) {
  std::vector<float> v(static_cast<std::size_t>(n));
  std::iota(v.begin(), v.end(), first);
  return v;
}

// w is split over both axes, b over all devices, r over one axis with copies on the other; each
// process has its own step.
State state(const Mesh& mesh, const char* x, const char* y, float first) {
  const auto put = [&](const std::vector<float>& v, Shape shape, PartitionSpec spec) {
    return device_put(array<float>(v, std::move(shape)), NamedSharding(mesh, std::move(spec)));
  };
  return {put(numbers(kRows * kColumns, first), {kRows, kColumns}, P(x, y)),
          put(numbers(kLong, first), {kLong}, P(Axes({"x", "y"}))),
          put(numbers(24, first), {8, 3}, P(y)), array<float>({first}, {1})};
}

Mesh saved_mesh() { return make_mesh({4, 2}, {"x", "y"}); }

bool same(const Array& got, const Array& want) {
  return process_allgather(got).to_vector<float>() == process_allgather(want).to_vector<float>();
}

void expect(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "WRONG: %s\n", what);
  std::exit(5);
}

void expect_state(const State& got, const State& want) {
  expect(same(got.w, want.w), "w");
  expect(same(got.b, want.b), "b");
  expect(same(got.r, want.r), "r");
  expect(got.step.to_vector<float>() == want.step.to_vector<float>(), "step");
}

bool faulty() {
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  return rank != nullptr && std::string(rank) == "1";
}

void save(const std::string& dir) {
  const State s = state(saved_mesh(), "x", "y", 1);
  save_checkpoint(dir + "/run", s);
  save_npy(dir + "/w.npy", s.w);
  save_safetensors(dir + "/all.safetensors",
                   {{"w", s.w}, {"b", s.b}, {"r", s.r}, {"step", s.step}});
}

void load(const std::string& dir) {
  const int n = static_cast<int>(devices().size());
  const Mesh mesh = make_mesh({2, n / 2}, {"x", "y"});
  const State want = state(mesh, "y", "x", 1);
  expect_state(load_checkpoint(dir + "/run", want), want);
  expect(same(load_npy(dir + "/w.npy", NamedSharding(mesh, P("y", "x"))), want.w), "npy");
  auto got = load_safetensors(dir + "/all.safetensors", {{"w", NamedSharding(mesh, P("y"))},
                                                         {"b", NamedSharding(mesh, P("x"))},
                                                         {"r", NamedSharding(mesh, P())}});
  expect_state({got.at("w"), got.at("b"), got.at("r"), got.at("step")}, want);
}

std::size_t files_in(const std::string& dir) {
  std::size_t n = 0;
  for (const auto& entry : std::filesystem::directory_iterator(dir))
    n += entry.path().extension() == ".shmap";
  return n;
}

// Five checkpoints, two of which are kept, while a step goes on.
void keep(const std::string& dir) {
  const Mesh mesh = saved_mesh();
  State s = state(mesh, "x", "y", 0);
  const auto step = [&](const Array& w) {
    return shard_map([](Array b) { return b + pmean(b * 0.f + 1.f, "x"); }, mesh, {P("x", "y")},
                     P("x", "y"))(w);
  };
  PendingCheckpoint pending;
  for (int i = 0; i < 5; ++i) {
    pending.wait();  // one at a time
    pending = save_checkpoint_async(dir + "/run", s, {.keep = 2});
    s.w = step(s.w);
  }
  pending.wait();
  expect(files_in(dir + "/run") == 2, "two checkpoints are kept");
  const State want = state(mesh, "x", "y", 0);
  const State got = load_checkpoint(dir + "/run", want);
  expect(same(got.w, want.w + 4.f), "w after four steps");
}

// The second save fails in process 1; the first one stays, and a third is written.
void fail(const std::string& dir, bool dies) {
  const Mesh mesh = saved_mesh();
  const State first = state(mesh, "x", "y", 1);
  save_checkpoint(dir + "/run", first);
  CheckpointOptions options;
  options.progress = [&](std::int64_t bytes, std::int64_t) {
    if (bytes == 0 || !faulty()) return;
    if (dies) raise(SIGKILL);
    throw std::runtime_error("the disk of this one is gone");
  };
  try {
    save_checkpoint(dir + "/run", state(mesh, "x", "y", 2), options);
    expect(false, "an error");
  } catch (const std::exception& e) {
    std::fprintf(stderr, "process %d caught: %s\n", process_index(), e.what());
    if (dies) std::_Exit(1);
  }
  expect_state(load_checkpoint(dir + "/run", first), first);
  const State third = state(mesh, "x", "y", 3);
  save_checkpoint(dir + "/run", third);
  expect_state(load_checkpoint(dir + "/run", third), third);
  try {
    save_npy("/nonexistent/folder/w.npy", first.w);
    expect(false, "an error");
  } catch (const Error& e) {
    std::fprintf(stderr, "process %d npy: %s\n", process_index(), e.what());
  }
}

// The first two processes save an array of theirs, while the others, which have nothing of it, are
// told so; then all read the files.
void apart(const std::string& dir) {
  std::vector<Device> theirs;
  for (const Device& d : devices())
    if (d.process_index() < 2) theirs.push_back(d);
  const auto n = static_cast<std::int64_t>(theirs.size());
  const bool drives = process_index() < 2;
  const Mesh mesh(NdArray<Device>(theirs, Shape{n}), "x");
  const Array whole = array<float>(numbers(kLong, 1), {kLong});
  const Array w = device_put(whole, NamedSharding(mesh, P("x")));
  const auto save = [&](const char* what, auto call) {
    try {
      call();
      expect(drives, "an error");
    } catch (const ValueError& e) {
      expect(!drives, e.what());
      expect(std::string(e.what()).starts_with(std::string(what) + ": none of the devices of "),
             e.what());
    }
  };
  save("save_npy", [&] { save_npy(dir + "/w.npy", w); });
  save("save_safetensors", [&] { save_safetensors(dir + "/w.safetensors", {{"w", w}}); });
  save("save_checkpoint", [&] { save_checkpoint(dir + "/run", w); });
  save("save_checkpoint_async", [&] { save_checkpoint_async(dir + "/async", w).wait(); });
  const Mesh all = make_mesh({static_cast<int>(devices().size())}, {"x"});
  shard_map([](Array b) { return psum(b, "x"); }, all, {P()}, P())(ones({1})).block_until_ready();
  const NamedSharding split(all, P("x"));
  const Array want = device_put(whole, split);
  expect(same(load_npy(dir + "/w.npy", split), want), "npy");
  expect(same(load_safetensors(dir + "/w.safetensors", {{"w", split}}).at("w"), want),
         "safetensors");
  for (const char* run : {"/run", "/async"})
    expect(same(load_checkpoint(dir + run, want), want), run);
  expect(
      load_npy(dir + "/w.npy", NamedSharding(mesh, P("x"))).addressable_shards().empty() != drives,
      "the blocks of those that have devices");
}

// Each process has an array of its own devices alone, as the stages of a pipeline have, and one is
// spread over all. All save them in one file; each process writes its own, and a step's number,
// which each has for itself, is written once. A file of one process's array needs no other process.
void stages(const std::string& dir) {
  const Mesh all = make_mesh({static_cast<int>(devices().size())}, {"x"});
  std::vector<Array> arrays, want;
  std::vector<std::pair<std::string, Array>> named;
  for (int p = 0; p < process_count(); ++p) {
    std::vector<Device> theirs;
    for (const Device& d : devices())
      if (d.process_index() == p) theirs.push_back(d);
    const auto n = static_cast<std::int64_t>(theirs.size());
    const Mesh mesh(NdArray<Device>(theirs, Shape{n}), "x");
    const Array whole = array<float>(numbers(kLong, static_cast<float>(p)), {kLong});
    arrays.push_back(device_put(whole, NamedSharding(mesh, P("x"))));
    want.push_back(device_put(whole, NamedSharding(all, P("x"))));
    const std::string name = "stage" + std::to_string(p);
    named.emplace_back(name, arrays.back());
    if (p != process_index()) continue;
    save_npy(dir + "/" + name + ".npy", arrays.back());
    const Mesh alone(NdArray<Device>({local_devices().front()}, Shape{1}), "x");
    expect(load_npy(dir + "/" + name + ".npy", NamedSharding(alone, P())).to_vector<float>() ==
               whole.to_vector<float>(),
           "a file of its own");
  }
  const Array step = device_put(array<float>({7}, {1}), local_devices().front());
  arrays.push_back(step);
  want.push_back(step);
  named.emplace_back("step", step);
  std::int64_t written = 0, total = 0;
  CheckpointOptions options;
  options.progress = [&](std::int64_t bytes, std::int64_t of) {
    written = bytes;
    total = of;
  };
  save_checkpoint(dir + "/run", arrays, options);
  expect(written == total && total >= 4 * kLong && total <= 4 * kLong + 4, "what it has written");
  save_safetensors(dir + "/all.safetensors", {named.begin(), named.end()});
  const std::vector<Array> got = load_checkpoint(dir + "/run", want);
  for (std::size_t i = 0; i < want.size(); ++i) {
    expect(same(got[i], want[i]), "checkpoint");
    const NamedSharding there(all, P());
    expect(load_safetensors(dir + "/all.safetensors", {{named[i].first, there}})
                   .at(named[i].first)
                   .to_vector<float>() == process_allgather(want[i]).to_vector<float>(),
           "safetensors");
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 2 ? argv[1] : "";
  const std::string dir = argc > 2 ? argv[2] : "";
  try {
    if (mode == "save") save(dir);
    if (mode == "load") load(dir);
    if (mode == "keep") keep(dir);
    if (mode == "apart") apart(dir);
    if (mode == "stages") stages(dir);
    if (mode == "throw" || mode == "kill") fail(dir, mode == "kill");
  } catch (const std::exception& e) {
    std::fprintf(stderr, "uncaught: %s\n", e.what());
    return 1;
  }
  return 0;
}
