// The reader of OpSharding messages: any bytes give a ValueError with the offset, or a message that
// is written and read back the same; and a sharding of a mesh, if it is one.
#include <cstdio>
#include <string>
#include <string_view>

#include "shmap/shmap.h"
#include "tests/fuzz/fuzz.h"

namespace shmap::fuzz {

namespace {

struct Tally {
  long long accepted = 0, refused = 0, named = 0;
  ~Tally() {
    std::printf("%lld inputs accepted, %lld refused; %lld are shardings\n", accepted, refused,
                named);
  }
};
Tally tally;

const Mesh& mesh() {
  static const Mesh m = make_mesh({4, 2}, {"i", "j"});
  return m;
}

}  // namespace

std::vector<std::string> seeds() {
  std::vector<std::string> all;
  for (const PartitionSpec& spec :
       {P(), P("i"), P("j"), P("i", "j"), P("j", "i"), P(axes("j", "i")), P(none, "j")})
    for (const int more : {0, 1})
      all.push_back(extend::OpSharding(NamedSharding(mesh(), spec), 2 + more).serialize());
  extend::OpSharding listed;
  listed.type = extend::OpSharding::OTHER;
  listed.tile_assignment_dimensions = {2, 1, 4};
  listed.tile_assignment_devices = {0, 2, 4, 6, 1, 3, 5, 7};
  listed.last_tile_dims = {extend::OpSharding::REPLICATED};
  all.push_back(listed.serialize());
  extend::OpSharding tuple;
  tuple.type = extend::OpSharding::TUPLE;
  tuple.tuple_shardings = {listed, extend::OpSharding()};
  all.push_back(tuple.serialize());
  return all;
}

std::vector<std::string> dictionary() {
  return {std::string("\x08\x03", 2),
          std::string("\x1a\x02\x04\x02", 4),
          std::string("\x30\x01", 2),
          std::string("\x4a\x01\x08", 3),
          std::string("\x52\x01\x00", 3),
          std::string("\x52\x02\x01\x00", 4),
          std::string("\x2a\x00", 2),
          std::string("\x22\x08\x00\x01\x02\x03\x04\x05\x06\x07", 10),
          std::string("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 10),
          std::string("\x3a\x02\x0a", 3)};
}

}  // namespace shmap::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace shmap;
  extend::OpSharding s;
  try {
    s = extend::OpSharding::parse(std::string_view(reinterpret_cast<const char*>(data), size));
  } catch (const ValueError& e) {
    fuzz::require(std::string_view(e.what()).starts_with("OpSharding::parse: byte "),
                  "an error says where");
    ++fuzz::tally.refused;
    return 0;
  }
  ++fuzz::tally.accepted;
  const std::string bytes = s.serialize();
  fuzz::require(extend::OpSharding::parse(bytes) == s, "a message is read back the same");
  fuzz::require(extend::OpSharding::parse(bytes).serialize() == bytes, "and written the same");
  fuzz::require(to_string(s).size() < 400 + 30 * size, "a text is not endless");
  try {
    const NamedSharding named = s.named_sharding(fuzz::mesh());
    ++fuzz::tally.named;
    static_cast<void>(named);
  } catch (const ValueError&) {
  }
  return 0;
}
