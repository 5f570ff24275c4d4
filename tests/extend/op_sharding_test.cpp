// shmap-test: devices
// OpSharding: bytes and texts in JAX's form, conversions to and from NamedSharding, and invalid
// bytes.
#include "shmap/extend/sharding.h"

#include <gtest/gtest.h>

#include "shmap/shmap.h"
#include "tests/support/error_text.h"

namespace shmap {
namespace {

using extend::OpSharding;
using test::expect_error;

struct NamedGolden {
  std::vector<int> mesh;
  std::vector<std::string> names;
  PartitionSpec spec;
  int ndim;
  std::string text, hex;
};
struct OtherGolden {
  std::string text, hex;
};

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}
std::string to_hex(const std::string& bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (const char c : bytes) {
    hex += kDigits[static_cast<unsigned char>(c) >> 4];
    hex += kDigits[static_cast<unsigned char>(c) & 15];
  }
  return hex;
}

TEST(OpShardingTest, IsWhatJaxMakesOfANamedSharding) {
  const NamedGolden goldens[] = {
#include "tests/golden/op_sharding.inc"
  };
  for (const NamedGolden& g : goldens) {
    SCOPED_TRACE(g.text + " of " + to_string(g.spec));
    const Mesh mesh = make_mesh(Shape(g.mesh), Axes(g.names));
    const NamedSharding named(mesh, g.spec);
    const OpSharding s(named, g.ndim);
    EXPECT_EQ(to_hex(s.serialize()), g.hex);
    EXPECT_EQ(to_string(s), g.text);
    const OpSharding read = OpSharding::parse(from_hex(g.hex));
    EXPECT_EQ(read, s);
    // Axes of size 1 split nothing and are lost in a round trip.
    const NamedSharding back = read.named_sharding(mesh);
    EXPECT_EQ(OpSharding(back, g.ndim), s);
    bool all_split = true;
    for (const PartitionSpec::Entry& e : g.spec.entries())
      for (const std::string& name : e.axes) all_split = all_split && mesh.axis_size(name) > 1;
    if (all_split) {
      EXPECT_EQ(back, named) << to_string(back);
    }
  }
  EXPECT_GT(std::size(goldens), 90u);
}

TEST(OpShardingTest, OtherKindsKeepTheirBytes) {
  const OtherGolden goldens[] = {
#include "tests/golden/op_sharding_others.inc"
  };
  const Mesh mesh = make_mesh({8}, {"i"});
  for (const OtherGolden& g : goldens) {
    SCOPED_TRACE(g.text);
    const OpSharding s = OpSharding::parse(from_hex(g.hex));
    EXPECT_EQ(to_hex(s.serialize()), g.hex);
    if (s.type != OpSharding::OTHER) {
      EXPECT_EQ(to_string(s), g.text);
    }
    EXPECT_THROW(s.named_sharding(mesh), ValueError);
  }
}

TEST(OpShardingTest, FieldsAreReadOneByOneAndWritten) {
  OpSharding s;
  s.type = OpSharding::OTHER;
  s.tile_assignment_dimensions = {2, 2};
  s.tile_assignment_devices = {0, 2, 1, 3};
  const Mesh mesh = make_mesh({2, 2}, {"i", "j"});
  EXPECT_EQ(s.named_sharding(mesh), NamedSharding(mesh, P("j", "i")));
  EXPECT_EQ(to_string(s), "{devices=[2,2]0,2,1,3}");
  // The same devices share a tile in any order.
  s.tile_assignment_dimensions = {2, 1, 2};
  s.tile_assignment_devices = {1, 0, 3, 2};
  s.replicate_on_last_tile_dim = true;
  EXPECT_EQ(s.named_sharding(mesh), NamedSharding(mesh, P("i")));
  s.tile_assignment_devices = {0, 3, 1, 2};
  expect_error<ValueError>([&] { s.named_sharding(mesh); },
                           {"do not follow the mesh's axes", "op_sharding_test.cpp:"});
  s.tile_assignment_devices = {0, 1, 2};
  expect_error<ValueError>([&] { s.named_sharding(mesh); }, {"3 devices for tiles of [2,1,2]"});
  // Lists that are not packed, and fields that are not known.
  const std::string loose("\x08\x03\x18\x02\x18\x02\x48\x04\x50\x00\x3a\x02\x0a\x00", 14);
  const OpSharding read = OpSharding::parse(loose);
  EXPECT_EQ(read.tile_assignment_dimensions, (std::vector<std::int64_t>{2, 2}));
  EXPECT_EQ(read.devices(), (std::vector<std::int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(read.unknown_fields, std::string("\x3a\x02\x0a\x00", 4));
  EXPECT_EQ(OpSharding::parse(read.serialize()), read);
}

TEST(OpShardingTest, BytesThatAreNoMessageAreRefused) {
  const auto refused = [](std::string bytes, std::initializer_list<const char*> fragments) {
    expect_error<ValueError>([&] { OpSharding::parse(bytes); }, fragments);
  };
  refused("\x08", {"OpSharding::parse: byte 1: the message ends within a number"});
  refused("\x1a\x05\x01", {"byte 2: a field is longer than what is left"});
  refused(std::string("\x00", 1), {"byte 1: a field has an invalid number"});
  refused("\x0b", {"wire type"});
  refused("\x08" + std::string(10, '\xff'), {"more than 64 bits"});
  std::string nested;
  for (int k = 0; k < 200; ++k) {
    std::string outer = "\x2a";
    for (std::size_t n = nested.size();; n >>= 7) {
      outer += static_cast<char>(n < 128 ? n : (n & 127) | 128);
      if (n < 128) break;
    }
    nested = outer + nested;
  }
  refused(nested, {"nested deeper than 100"});
  OpSharding huge;
  huge.type = OpSharding::OTHER;
  huge.tile_assignment_dimensions = {1 << 24, 1 << 24};
  huge.iota_reshape_dims = {1 << 24, 1 << 24};
  huge.iota_transpose_perm = {0, 1};
  expect_error<ValueError>([&] { huge.devices(); }, {"2^24 devices at most"});
  expect_error<ValueError>(
      [&] { OpSharding(NamedSharding(make_mesh({2}, {"i"}), P(none, "i")), 1); },
      {"does not fit an array of 1 dim\n"});
}

}  // namespace
}  // namespace shmap
