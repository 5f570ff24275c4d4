// shmap-test: devices
// safetensors files: every dtype there and back, the format to the letter, sharded reading, hostile
// headers, files that shrink.
#include <gtest/gtest.h>
#include <shmap/shmap.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "core/base/fault.h"
#include "core/io/safetensors_format.h"
#include "tests/support/error_text.h"

namespace shmap {
namespace {

using Map = std::map<std::string, Array>;

class Safetensors : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = std::filesystem::temp_directory_path() / ("shmap_st_" + std::to_string(::getpid()));
    std::filesystem::create_directories(dir_);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  std::string path(const std::string& name = "w.safetensors") const {
    return (dir_ / name).string();
  }
  // A file of that header, and so many bytes of data: 0, 1, 2 …
  std::string file_of(const std::string& header, int data) const {
    std::ofstream out(path(), std::ios::binary);
    for (int k = 0; k < 8; ++k) out << static_cast<char>(header.size() >> (8 * k) & 255);
    out << header;
    for (int k = 0; k < data; ++k) out << static_cast<char>(k);
    return path();
  }
  void refuse(const std::string& header, int data, std::initializer_list<const char*> why) const {
    test::expect_error<ValueError>([&] { load_safetensors(file_of(header, data)); }, why);
  }

  std::filesystem::path dir_;
};

TEST_F(Safetensors, EveryDtypeThereAndBack) {
  Map all;
  for (DType t : {bool_, i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32, f64})
    all[short_name(t)] = reshape(astype(arange(12) % 7, t), {3, 4});
  all["scalar"] = full({}, 2.5f);
  all["literal"] = 3;
  all["empty"] = zeros({0, 3}, i32);
  all["an \"odd\"\\name\n\xc3\xa9"] = ones({1});
  save_safetensors(path(), all);
  const Map back = load_safetensors(path());
  ASSERT_EQ(back.size(), all.size());
  for (const auto& [name, x] : all) {
    EXPECT_EQ(back.at(name).dtype(), x.dtype()) << name;
    EXPECT_EQ(back.at(name).shape(), x.shape()) << name;
    EXPECT_EQ(astype(back.at(name), f64).to_vector<double>(), astype(x, f64).to_vector<double>());
  }
  save_safetensors(path("none"), {});
  EXPECT_TRUE(load_safetensors(path("none")).empty());
}

// The bytes that the format's authors write: {"a": f32[2], "b": u8[3]} by their Python package.
TEST_F(Safetensors, TheFormatToTheLetter) {
  save_safetensors(path(), {{"b", array<std::uint8_t>({1, 2, 3}, {3})}, {"a", arange(2)}});
  std::ifstream in(path(), std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(in)), {});
  const std::string header = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                             R"("b":{"dtype":"U8","shape":[3],"data_offsets":[8,11]}})";
  const std::size_t padded = (header.size() + 7) / 8 * 8;
  EXPECT_EQ(bytes.size(), 8 + padded + 11);
  EXPECT_EQ(static_cast<unsigned char>(bytes[0]), padded);
  EXPECT_EQ(bytes.substr(8, header.size()), header);
  EXPECT_EQ(bytes.substr(8 + padded), std::string("\0\0\0\0\0\0\x80\x3f\1\2\3", 11));
}

TEST_F(Safetensors, ShardedReadingAndWriting) {
  const Mesh mesh = make_mesh({4, 2}, {"i", "j"});
  const Array x = reshape(arange(16 * 6, i32), {16, 6}), y = arange(8, f64);
  save_safetensors(path(), {{"x", x}, {"y", y}});
  for (const P& spec : {P(), P("i"), P(none, "j"), P("i", "j"), P(axes("j", "i"))}) {
    const NamedSharding sharding(mesh, spec);
    const Map got = load_safetensors(path(), {{"x", sharding}});
    EXPECT_EQ(got.at("x").sharding(), sharding);
    EXPECT_EQ(got.at("x").to_vector<std::int32_t>(), x.to_vector<std::int32_t>());
    EXPECT_EQ(got.at("y").to_vector<double>(), y.to_vector<double>());
    save_safetensors(path("again"), got);
    EXPECT_EQ(load_safetensors(path("again")).at("x").to_vector<std::int32_t>(),
              x.to_vector<std::int32_t>());
  }
  test::expect_error<ValueError>(
      [&] {
        load_safetensors(path(), {{"z", NamedSharding(mesh, P())}});
      },
      {"it has no tensor 'z', for which a sharding is given", "safetensors_test.cpp:"});
  test::expect_error<ValueError>(
      [&] {
        load_safetensors(path(), {{"x", NamedSharding(mesh, P(none, "i"))}});
      },
      {"tensor 'x'", "6", "4"});
}

TEST_F(Safetensors, Progress) {
  const Array x = zeros({3 << 20}), y = ones({1 << 10});
  std::int64_t last = -1, total = 0;
  int calls = 0;
  const FileOptions options{.progress = [&](std::int64_t done, std::int64_t all) {
    EXPECT_GE(done, last);
    last = done;
    total = all;
    ++calls;
  }};
  save_safetensors(path(), {{"x", x}, {"y", y}}, options);
  EXPECT_EQ(last, x.nbytes() + y.nbytes());
  EXPECT_EQ(total, last);
  EXPECT_GE(calls, 3);
  last = -1;
  load_safetensors(path(), {}, options);
  EXPECT_EQ(last, total);
  struct Enough {};
  const FileOptions stop{.progress = [](std::int64_t done, std::int64_t) {
    if (done > 0) throw Enough();
  }};
  EXPECT_THROW(load_safetensors(path(), {}, stop), Enough);
  EXPECT_THROW(save_safetensors(path("new"), {{"x", x}}, stop), Enough);
  EXPECT_FALSE(std::filesystem::exists(path("new")));
}

TEST_F(Safetensors, RefusesWhatTheFormatForbids) {
  const std::string a = R"("a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]})";
  EXPECT_EQ(load_safetensors(file_of("{" + a + "}", 2)).at("a").to_vector<std::uint8_t>()[1], 1);
  EXPECT_EQ(load_safetensors(file_of(R"({"__metadata__":{"k":"v"},)" + a + "}  ", 2)).size(), 1u);
  refuse("{" + a + "}", 3, {"its tensors have 2 bytes, and 3 follow it"});
  refuse("{" + a + "}", 1, {"its tensors have 2 bytes, and 1 follow it"});
  refuse("{" + a + "," + a + "}", 2, {"a"});
  refuse(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)"
         R"("\u0061":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
         0, {"tensor 'a' is given twice"});
  refuse(R"({"a":{"dtype":"U8","dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 2,
         {"key 'dtype' is given twice"});
  refuse(R"({"a":{"dtype":"U8","shape":[2]}})", 2, {"key 'data_offsets' is missing"});
  refuse(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2],"x":1}})", 2, {"key 'x'"});
  refuse(R"({"a":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[0,2]}})", 2, {"F8_E4M3"});
  refuse(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})", 3, {"begins at byte 1"});
  refuse(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
         R"("b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
         3, {"tensor 'b' begins at byte 1 of the data, and 2 is wanted"});
  refuse(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,2]}})", 2, {"a tensor of 8 bytes"});
  refuse(R"({"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0,
         {"more than 2^63 bytes"});
  refuse(R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,0]}})", 0, {"an extent"});
  refuse(R"({"a":{"dtype":"U8","shape":[2.0],"data_offsets":[0,2]}})", 2, {"an extent"});
  refuse(R"({"a":{"dtype":"U8","shape":[02],"data_offsets":[0,2]}})", 2, {"an extent"});
  refuse(R"({"__metadata__":{"k":"v","k":"w"}})", 0, {"key 'k' of '__metadata__' is given twice"});
  refuse(R"({"__metadata__":{"k":1}})", 0, {"a text in quotes"});
  refuse("{} x", 0, {"more text after the object"});
  refuse(" {}", 0, {"it does not begin with '{'"});
  refuse("{\"\xff\":{}}", 0, {"it is no UTF-8"});
  refuse(R"({"\ud800":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})", 0, {"surrogate"});
  std::ofstream(path()) << "short";
  test::expect_error<ValueError>([&] { load_safetensors(path()); }, {"5 bytes"});
  std::ofstream(path(), std::ios::binary) << std::string(7, '\xff') << '\x7f' << "{}";
  test::expect_error<ValueError>([&] { load_safetensors(path()); }, {"a header of"});
}

TEST_F(Safetensors, AFileThatShrinks) {
  save_safetensors(path(), {{"x", zeros({1000})}});
  const fault::Scoped armed("read#3:short_read");
  test::expect_error<Error>([&] { load_safetensors(path()); },
                            {"it became shorter since it was opened", path().c_str()});
}

TEST_F(Safetensors, RefusesToWrite) {
  test::expect_error<ValueError>(
      [&] {
        save_safetensors(path(), {{"\xff", ones({1})}});
      },
      {"UTF-8"});
  test::expect_error<Error>(
      [&] {
        save_safetensors("/nowhere/at/all", {{"x", ones({1})}});
      },
      {"/nowhere/at/all", "No such file"});
  test::expect_error<TypeError>(
      [&] {
        jit([&](Array x) {
          save_safetensors(path(), {{"x", x}});
          return x;
        })(ones({2}));
      },
      {"f32[2]"});
}

}  // namespace
}  // namespace shmap
