// shmap-test: devices
// Checkpoints: trees there and back, on other meshes, keep, damage of every kind, saving while the
// program goes on.
#include <gtest/gtest.h>
#include <shmap/shmap.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "core/base/fault.h"
#include "core/base/warning.h"
#include "tests/support/error_text.h"

namespace shmap {
namespace {

namespace fs = std::filesystem;

struct Layer {
  Array w, b;
  int count = 1;
};
struct Net {
  std::vector<Layer> layers;
  std::map<std::string, Array> heads;
  std::optional<Array> scale;
};

class Checkpoint : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::temp_directory_path() / ("shmap_ckpt_" + std::to_string(::getpid()));
    fs::create_directories(dir_);
  }
  void TearDown() override { fs::remove_all(dir_); }
  std::string dir() const { return (dir_ / "run").string(); }
  std::string file(int n) const {
    return dir() + "/checkpoint-0000000" + std::to_string(n) + ".shmap";
  }
  std::size_t files() const {
    std::size_t n = 0;
    for ([[maybe_unused]] const auto& entry : fs::directory_iterator(dir())) ++n;
    return n;
  }

  fs::path dir_;
};

Net net_of(const Mesh& mesh, P spec) {
  const auto put = [&](Array x, P p) { return device_put(x, NamedSharding(mesh, p)); };
  Net net;
  net.layers.push_back({put(reshape(arange(8 * 12), {8, 12}), spec), put(arange(12), P()), 2});
  net.layers.push_back(
      {put(reshape(astype(arange(64), bf16), {8, 8}), spec), zeros({0, 3}, i8), 3});
  net.heads["a"] = put(reshape(arange(48, i64), {8, 6}), P(none, "j"));
  net.heads["it's"] = arange(8) > 3;
  net.scale = full({}, 2.5, f64);
  return net;
}
std::vector<Array> leaves_of(const Net& n) {
  return {n.layers[0].w,   n.layers[0].b,      n.layers[1].w, n.layers[1].b,
          n.heads.at("a"), n.heads.at("it's"), *n.scale};
}
void expect_same(const Net& a, const Net& b) {
  const std::vector<Array> x = leaves_of(a), y = leaves_of(b);
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(x[i].type(), y[i].type());
    EXPECT_EQ(astype(x[i], f64).to_vector<double>(), astype(y[i], f64).to_vector<double>()) << i;
  }
}

TEST_F(Checkpoint, TreesThereAndBackOnAnyMesh) {
  const Mesh four_two = make_mesh({4, 2}, {"i", "j"}), two_four = make_mesh({2, 4}, {"i", "j"}),
             two = make_mesh({1, 2}, {"i", "j"}, {devices()[0], devices()[1]});
  const P specs[] = {P(), P("i"), P("i", "j"), P(none, axes("j", "i")), P("j")};
  for (const P& from : {P("i", "j"), P(), P("j")}) {
    const Net net = net_of(four_two, from);
    save_checkpoint(dir(), net);
    for (const Mesh& mesh : {four_two, two_four, two}) {
      for (const P& spec : specs) {
        if (spec == P(none, axes("j", "i")) && mesh.size() > 4) continue;  // 12 columns
        Net like = net_of(two, P());
        const NamedSharding sharding(mesh, spec);
        like.layers[0].w = device_put(zeros({8, 12}), sharding);
        like.layers[1].count = 9;
        const Net back = load_checkpoint(dir(), like);
        expect_same(net, back);
        EXPECT_EQ(back.layers[0].w.sharding(), sharding);
        EXPECT_EQ(back.layers[1].count, 9);  // static members are those of `like`
      }
    }
  }
}

TEST_F(Checkpoint, BlocksOfManyChunks) {
  const Mesh mesh = make_mesh({4, 2}, {"i", "j"});
  const auto put = [&](Array x, P p) { return device_put(x, NamedSharding(mesh, p)); };
  const Array x = reshape(arange(48 * 30000), {48, 30000});
  for (const P& from : {P(), P("i"), P(none, "j")}) {
    save_checkpoint(dir(), put(x, from));
    for (const P& to : {P(), P("i"), P(none, "j"), P("j", "i")}) {
      const Array back = load_checkpoint(dir(), put(zeros_like(x), to));
      EXPECT_TRUE(all(back == put(x, to)).item<bool>()) << from << to;
    }
  }
}

TEST_F(Checkpoint, AbstractArraysAndScalars) {
  save_checkpoint(dir(), std::tuple{arange(3), 2.5f});
  const auto [x, y] = load_checkpoint(dir(), std::tuple{abstract_array({{3}, f32}), 0.f});
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{0, 1, 2}));
  EXPECT_EQ(y.item<float>(), 2.5f);
}

TEST_F(Checkpoint, KeepsTheLastOnes) {
  for (int step = 1; step <= 5; ++step) {
    save_checkpoint(dir(), full({4}, step), {.keep = 3});
    EXPECT_EQ(files(), static_cast<std::size_t>(std::min(step, 3)));
  }
  EXPECT_TRUE(fs::exists(file(3)));
  EXPECT_EQ(load_checkpoint(dir(), zeros({4}, i32)).to_vector<std::int32_t>()[0], 5);
  EXPECT_EQ(load_checkpoint(file(4), zeros({4}, i32)).to_vector<std::int32_t>()[0], 4);
  save_checkpoint(dir(), full({4}, 6));
  EXPECT_EQ(files(), 1u);
  EXPECT_TRUE(fs::exists(file(6)));
  test::expect_error<ValueError>([&] { save_checkpoint(dir(), zeros({4}), {.keep = 0}); },
                                 {"keep is 0: 1 or more is wanted"});
}

// An index with such a name could not be read, and with keep = 1 the good checkpoint before it
// would be gone.
TEST_F(Checkpoint, NamesThatAreNoTextAreRefused) {
  save_checkpoint(dir(), std::map<std::string, Array>{{"w", full({4}, 1)}});
  test::expect_error<ValueError>(
      [&] {
        save_checkpoint(dir(), std::map<std::string, Array>{{"w\xff", full({4}, 2)}});
      },
      {"save_checkpoint", "\\xff", "no UTF-8"});
  const auto kept = load_checkpoint(dir(), std::map<std::string, Array>{{"w", zeros({4}, i32)}});
  EXPECT_EQ(kept.at("w").to_vector<std::int32_t>()[0], 1);
}

TEST_F(Checkpoint, RefusesAnotherTree) {
  save_checkpoint(dir(), std::map<std::string, Array>{{"a", zeros({2, 3})}, {"b", ones({4})}});
  using Map = std::map<std::string, Array>;
  const auto load = [&](const Map& like) { load_checkpoint(dir(), like); };
  test::expect_error<ValueError>(
      [&] {
        load({{"a", zeros({3, 2})}, {"b", ones({4})}});
      },
      {"leaf '['a']' has type f32[2,3], and `like` has f32[3,2] there",
       "saved_checkpoint_test.cpp:"});
  test::expect_error<ValueError>(
      [&] {
        load({{"a", zeros({2, 3}, bf16)}, {"b", ones({4})}});
      },
      {"f32[2,3]", "bf16[2,3]"});
  test::expect_error<ValueError>(
      [&] {
        load({{"a", zeros({2, 3})}, {"c", ones({4})}});
      },
      {"it has leaf '['b']' where `like` has '['c']'"});
  test::expect_error<ValueError>(
      [&] {
        load({{"a", zeros({2, 3})}});
      },
      {"it has 2 leaves, and `like` has 1", "'['b']'"});
  test::expect_error<ValueError>([&] { load_checkpoint(dir_.string(), zeros({1})); },
                                 {"it has no checkpoint"});
  test::expect_error<Error>([&] { load_checkpoint(dir() + "/nowhere", zeros({1})); },
                            {"nowhere", "No such file"});
  test::expect_error<TypeError>([&] { save_checkpoint(dir(), random::key(0)); },
                                {"of type key<fry>[]", "extend::random_unwrap(key)"});
  test::expect_error<TypeError>(
      [&] {
        jit([&](Array x) {
          save_checkpoint(dir(), x);
          return x;
        })(ones({2}));
      },
      {"leaf '' of type f32[2] has no value of its own"});
}

// Every byte of the index and of the leaves counts.
TEST_F(Checkpoint, DamageIsRefusedByName) {
  const Array x = arange(5000);
  save_checkpoint(dir(), x, {.keep = 2});
  save_checkpoint(dir(), x + 1, {.keep = 2});
  std::ifstream in(file(2), std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(in)), {});
  const auto put = [&](const std::string& bytes) {
    std::ofstream(file(2), std::ios::binary | std::ios::trunc) << bytes;
  };
  const std::size_t data = whole.size() - 20032;  // 20000 bytes, padded
  const std::size_t head = 16 + static_cast<unsigned char>(whole[8]) + 4;
  for (std::size_t at = 0; at < whole.size(); at += at < data ? 1 : 997) {
    const bool padding = at >= data + 20000 || (at >= head && at < data);
    if (padding) continue;
    std::string bytes = whole;
    bytes[at] = static_cast<char>(bytes[at] ^ 4);
    put(bytes);
    test::expect_error<ValueError>([&] { load_checkpoint(dir(), zeros({5000})); },
                                   {file(2).c_str(), "the checkpoint before it is"});
  }
  for (std::size_t size = 0; size < whole.size(); size += 1 + size / 3) {
    put(whole.substr(0, size));
    test::expect_error<ValueError>([&] { load_checkpoint(dir(), zeros({5000})); },
                                   {file(2).c_str(), file(1).c_str()});
  }
  put(whole + std::string(64, '\0'));
  test::expect_error<ValueError>([&] { load_checkpoint(dir(), zeros({5000})); }, {"end at byte"});
  EXPECT_EQ(load_checkpoint(file(1), zeros({5000})).to_vector<float>()[7], 7);
  put(whole);
  EXPECT_EQ(load_checkpoint(dir(), zeros({5000})).to_vector<float>()[7], 8);
}

// The damage is in chunks that are read in pieces, by several threads if there are several.
TEST_F(Checkpoint, DamageInLargeBlocks) {
  const Mesh mesh = make_mesh({8}, "i");
  const Array x = arange((5 << 20) + 24),
              split = device_put(x, NamedSharding(mesh, P("i")));  // with odd chunk lengths
  save_checkpoint(dir(), split);
  std::fstream damaged(file(1), std::ios::binary | std::ios::in | std::ios::out);
  const auto size = static_cast<std::int64_t>(fs::file_size(file(1)));
  for (std::int64_t at : {size / 9, size / 2, size / 2 + 131072, size - 200}) {
    const auto flip = [&] {
      damaged.seekg(at);
      const int byte = damaged.get();
      damaged.seekp(at);
      damaged.put(static_cast<char>(byte ^ 64)).flush();
    };
    flip();
    for (const Array& like : {x, split})
      test::expect_error<ValueError>(
          [&] { load_checkpoint(dir(), like); },
          {file(1).c_str(), "it is damaged: bytes ", "their CRC-32C does not match"});
    flip();
  }
  for (const Array& like : {x, split}) {
    EXPECT_TRUE(all(load_checkpoint(dir(), like) == like).item<bool>());
    const fault::Scoped armed("read#9:short_read");
    test::expect_error<Error>([&] { load_checkpoint(dir(), like); },
                              {"it became shorter since it was opened", file(1).c_str()});
  }
}

TEST_F(Checkpoint, AFileThatShrinks) {
  save_checkpoint(dir(), arange(5000));
  for (const char* when : {"read#1:short_read", "read#2:short_read", "read#3:short_read"}) {
    const fault::Scoped armed(when);
    test::expect_error<Error>([&] { load_checkpoint(dir(), zeros({5000})); },
                              {"it became shorter since it was opened", file(1).c_str()});
  }
}

TEST_F(Checkpoint, TrainingGoesOnWhileItIsWritten) {
  Array x = zeros({1 << 18});
  const auto step = jit([](Array a) { return a + 1; });
  for (int k = 0; k < 10; ++k) {
    PendingCheckpoint pending = save_checkpoint_async(dir(), std::pair{x, k});
    for (int more = 0; more < 20; ++more) x = step(std::move(x));
    x = std::move(x) * 1.f;
    pending.wait();
    EXPECT_TRUE(pending.done());
    const auto [back, n] = load_checkpoint(dir(), std::pair{zeros({1 << 18}), 0});
    EXPECT_EQ(n.item<std::int32_t>(), k);
    EXPECT_TRUE(all(back == 20.f * k).item<bool>()) << k;
  }
  EXPECT_EQ(files(), 1u);
}

int warnings = 0;
TEST_F(Checkpoint, ErrorsOfAsynchronousSavesComeOut) {
  std::ofstream(dir_ / "run") << "no folder";
  PendingCheckpoint pending = save_checkpoint_async(dir(), zeros({2}));
  test::expect_error<Error>([&] { pending.wait(); }, {"run", "saved_checkpoint_test.cpp:"});
  EXPECT_NO_THROW(pending.wait());
  warnings = 0;
  set_warning_handler([](std::string_view) noexcept { ++warnings; });
  { PendingCheckpoint forgotten = save_checkpoint_async(dir(), zeros({2})); }
  set_warning_handler(nullptr);
  EXPECT_EQ(warnings, 1);
  test::expect_error<ValueError>(
      [&] { (void)save_checkpoint_async(dir(), zeros({2}), {.keep = 0}); }, {"keep is 0"});
}

TEST_F(Checkpoint, SavesInFlightAreAQueue) {
  // The first one is held up until all are asked for; those behind it wait for it.
  std::atomic<bool> go{false};
  std::vector<PendingCheckpoint> pending;
  const auto step = [](int n) {
    return std::map<std::string, Array>{{"step", full({64}, n, i32)}};
  };
  for (int n = 1; n <= 5; ++n) {
    pending.push_back(save_checkpoint_async(
        n % 2 ? dir() : dir() + "/../run/", step(n),  // one folder, by two names
        {.keep = 2, .progress = [&go, n](std::int64_t, std::int64_t) {
           while (!go) std::this_thread::sleep_for(std::chrono::milliseconds(1));
           if (n == 3) throw ValueError("the third one");
         }}));
  }
  for (const PendingCheckpoint& p : pending) EXPECT_FALSE(p.done());
  // A save to another folder does not wait for them.
  const std::string other = (dir_ / "other").string();
  save_checkpoint_async(other, step(9)).wait();
  go = true;
  // The last save is done after those before it; only the third one has the error.
  pending[4].wait();
  for (int n : {0, 1, 2, 3}) EXPECT_TRUE(pending[static_cast<std::size_t>(n)].done()) << n;
  test::expect_error<ValueError>([&] { pending[2].wait(); }, {"the third one"});
  for (int n : {0, 1, 3}) pending[static_cast<std::size_t>(n)].wait();
  // 1, 2, 4 and 5 were written, in that order; the last two are kept.
  EXPECT_EQ(files(), 2u);
  const auto value = [&](const std::string& path) {
    return load_checkpoint(path, step(0)).at("step")[0].item<std::int32_t>();
  };
  EXPECT_EQ(value(file(3)), 4);
  EXPECT_EQ(value(file(4)), 5);

  // A blocking save comes after those in flight.
  go = false;
  PendingCheckpoint slow = save_checkpoint_async(
      dir(), step(6), {.keep = 9, .progress = [&](std::int64_t, std::int64_t) {
                         while (!go) std::this_thread::sleep_for(std::chrono::milliseconds(1));
                       }});
  std::thread opener([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    go = true;
  });
  save_checkpoint(dir(), step(7), {.keep = 9});
  opener.join();
  EXPECT_TRUE(slow.done());
  EXPECT_EQ(value(file(5)), 6);
  EXPECT_EQ(value(file(6)), 7);
  // A callback that saves to the same folder itself would wait for ever.
  test::expect_error<Error>(
      [&] {
        save_checkpoint(dir(), step(8), {.progress = [&](std::int64_t, std::int64_t) {
                          save_checkpoint(dir(), step(8));
                        }});
      },
      {"by the progress callback of a save into the same folder"});
}

TEST_F(Checkpoint, Progress) {
  const Array x = zeros({6 << 20});
  std::int64_t last = -1;
  const auto see = [&](std::int64_t done, std::int64_t total) {
    EXPECT_GE(done, last);
    EXPECT_EQ(total, x.nbytes());
    last = done;
  };
  save_checkpoint(dir(), x, {.progress = see});
  EXPECT_EQ(last, x.nbytes());
  last = -1;
  EXPECT_TRUE(all(load_checkpoint(dir(), x + 1, {.progress = see}) == x).item<bool>());
  EXPECT_EQ(last, x.nbytes());
  struct Enough {};
  const auto stop = [](std::int64_t done, std::int64_t) {
    if (done > 0) throw Enough();
  };
  EXPECT_THROW(save_checkpoint(dir(), x + 1, {.progress = stop}), Enough);
  EXPECT_EQ(files(), 1u);
  EXPECT_TRUE(all(load_checkpoint(dir(), x) == x).item<bool>());
}

}  // namespace
}  // namespace shmap
