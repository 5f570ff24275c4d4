// shmap-test: devices
// .npz archives: NumPy's (tests/golden/npz/savez.npz), there and back, sharded, damaged; and a
// user's memory as an array.
#include <gtest/gtest.h>
#include <shmap/shmap.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/error_text.h"

namespace shmap {
namespace {

using Map = std::map<std::string, Array>;

class Npz : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = std::filesystem::temp_directory_path() / ("shmap_npz_" + std::to_string(::getpid()));
    std::filesystem::create_directories(dir_);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  std::string path() const { return (dir_ / "x.npz").string(); }
  std::string bytes() const {
    std::ifstream in(path(), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void put(const std::string& bytes) const {
    std::ofstream(path(), std::ios::binary | std::ios::trunc) << bytes;
  }

  std::filesystem::path dir_;
};

TEST_F(Npz, OfNumPy) {
  const Map got = load_npz(SHMAP_GOLDEN_DIR "/npz/savez.npz");
  ASSERT_EQ(got.size(), 5u);
  EXPECT_EQ(got.at("a").to_vector<float>(), (std::vector<float>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(got.at("a").shape(), (Shape{2, 3}));
  EXPECT_EQ(got.at("f").to_vector<double>(), eye(3, f64).to_vector<double>());
  EXPECT_EQ(got.at("b").to_vector<std::int32_t>(), (std::vector<std::int32_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(got.at("s").item<std::int8_t>(), 7);
  EXPECT_EQ(got.at("\xc3\xa9").type(), ShapedArray({0, 2}, f64));
}

TEST_F(Npz, ThereAndBackAndSharded) {
  const Mesh mesh = make_mesh({4, 2}, {"i", "j"});
  const NamedSharding sharding(mesh, P("i", "j"));
  const Array x = reshape(arange(96), {16, 6});
  const Map all{{"x", x},
                {"split", device_put(x, sharding)},
                {"b", arange(8) > 3},
                {"h", astype(arange(3), bf16)},
                {"scalar", 2.5f},
                {"\xc3\xa9", zeros({0, 2})}};
  std::int64_t last = 0;
  save_npz(path(), all, {.progress = [&](std::int64_t done, std::int64_t) { last = done; }});
  EXPECT_EQ(last, 96 * 4 * 2 + 8 + 6 + 4);
  const Map got = load_npz(path(), {{"x", sharding}});
  ASSERT_EQ(got.size(), all.size());
  EXPECT_EQ(got.at("x").sharding(), sharding);
  for (const auto& [name, y] : all) {
    EXPECT_EQ(got.at(name).dtype(), y.dtype()) << name;
    EXPECT_EQ(astype(got.at(name), f64).to_vector<double>(), astype(y, f64).to_vector<double>());
  }
  test::expect_error<ValueError>(
      [&] {
        load_npz(path(), {{"z", sharding}});
      },
      {"it has no array 'z', for which a sharding is given"});
  save_npz(path(), {});
  EXPECT_TRUE(load_npz(path()).empty());
}

TEST_F(Npz, DamageIsRefused) {
  save_npz(path(), {{"a", arange(100)}, {"b", arange(7, i16)}});
  const std::string whole = bytes();
  // Everything but dates, versions, attributes and the like counts.
  int accepted = 0;
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    put(damaged);
    try {
      const Map got = load_npz(path());
      ++accepted;
      for (const auto& [name, x] : got) {
        const std::vector<double> y = astype(x, f64).to_vector<double>();
        for (std::size_t k = 0; k < y.size(); ++k) ASSERT_EQ(y[k], k) << at;
      }
    } catch (const ValueError&) {
    }
  }
  EXPECT_LT(accepted, 160);
  for (std::size_t size = 0; size < whole.size(); size += 13) {
    put(whole.substr(0, size));
    test::expect_error<ValueError>([&] { load_npz(path()); }, {"no .npz file"});
  }
  put("PK");
  test::expect_error<ValueError>([&] { load_npz(path()); }, {"it has 2 bytes"});
}

TEST_F(Npz, TwoMembersOfOneNameAreRefused) {
  save_npz(path(), {{"aa", arange(100)}, {"ab", arange(7, i16)}});
  std::string twice = bytes();
  for (std::size_t at = 0; (at = twice.find("ab.npy", at)) != twice.npos;) twice[at + 1] = 'a';
  put(twice);
  test::expect_error<ValueError>([&] { load_npz(path()); }, {"member 'aa.npy' is there twice"});
}

// What could not be loaded is not saved.
TEST_F(Npz, DirectoriesThatAreTooLargeAreRefused) {
  std::map<std::string, Array> arrays;
  const Array x = zeros({1});
  for (int k = 0; k < 80; ++k) arrays[std::string(59'000, 'x') + std::to_string(k)] = x;
  test::expect_error<ValueError>([&] { save_npz(path(), arrays); },
                                 {"80 arrays", "4194304", "shorter names"});
  EXPECT_FALSE(std::filesystem::exists(path()));
  arrays.erase(std::next(arrays.begin(), 70), arrays.end());
  save_npz(path(), arrays);
  EXPECT_EQ(load_npz(path()).size(), 70u);
}

// The buffers of dropped arrays are given back while operations are enqueued, under a lock that
// operations take.
TEST(FromMemory, ReleaseMayUseArrays) {
  static std::vector<float> values(1 << 20, 1.f);
  const Array one = ones({8});
  static std::atomic<int> released;
  released = 0;
  constexpr int kArrays = 100;
  for (int i = 0; i < kArrays; ++i) {
    Array x = from_memory(std::span<const float>(values), {1 << 20}, [one] {
      released += sum(one + 1.f).item<float>() == 16.f ? 1 : kArrays;
    });
    const Array y = x + 1.f;
    x = Array();
    (void)(ones({1 << 18}) * 3.f);
  }
  // Memory is taken back, once its tasks have ended, where other memory is allocated.
  for (int i = 0; i < 20'000 && released < kArrays; ++i) {
    (one + 1.f).block_until_ready();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(released, kArrays);
}

TEST(FromMemory, IsNotCopied) {
  alignas(64) static float values[1024];
  for (float& v : values) v = 2;
  bool released = false;
  {
    const Array x = from_memory(std::span<const float>(values), {32, 32}, [&] { released = true; });
    EXPECT_EQ(sum(x).item<float>(), 2048);
    if (devices()[0].kind() == DeviceKind::cpu) {
      values[5] = 7;  // this forbidden write shows that there is one copy
      EXPECT_EQ((x[{0, 5}].item<float>()), 7);
      values[5] = 2;
      EXPECT_FALSE(released);
    }
    Array y = from_memory(std::span<const float>(values), {1024}, [] {});
    y = std::move(y) + 1;  // donated, and not written to
    EXPECT_EQ(y.to_vector<float>()[0], 3);
    EXPECT_EQ(values[0], 2);
  }
  EXPECT_TRUE(released);
  const Array given = from_memory(std::vector<float>(6, 2), {2, 3});
  EXPECT_EQ((given + 1).to_vector<float>()[5], 3);
  const auto* odd = reinterpret_cast<const float*>(reinterpret_cast<const char*>(values) + 1);
  bool done = false;
  EXPECT_EQ(from_memory(std::span<const float>(odd, 8), {8}, [&] { done = true; }).size(), 8);
  EXPECT_TRUE(done);  // not aligned: copied
}

TEST(FromMemory, Refuses) {
  const float values[3] = {};
  test::expect_error<ValueError>(
      [&] {
        (void)from_memory(std::span<const float>(values), {2, 2}, [] {});
      },
      {"3 elements for shape (2, 2)", "npz_test.cpp:"});
  test::expect_error<ValueError>(
      [&] { (void)from_memory(std::span<const float>(values), {3}, nullptr); },
      {"`release` is an empty function"});
  test::expect_error<ValueError>([&] { (void)from_memory(std::vector<float>(3), {4}); },
                                 {"3 elements"});
}

}  // namespace
}  // namespace shmap
