// OpSharding: XLA's description of how a value is split over devices (xla.OpSharding of
// xla_data.proto; jax.extend.sharding), for exchange with tools that read or write XLA programs.
//
//   extend::OpSharding s(NamedSharding(mesh, P("i")), 2);   // of a matrix
//   std::string bytes = s.serialize();                      // as XLA's SerializeToString
//   NamedSharding back = extend::OpSharding::parse(bytes).named_sharding(mesh);
//
// As in JAX, the devices in an OpSharding are positions in the mesh in row-major order, not device
// ids.
#pragma once
#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

#include "shmap/partition_spec.h"

namespace shmap {
namespace extend {

class OpSharding {
 public:
  enum Type : std::int32_t {
    REPLICATED = 0,  // every device holds the whole value
    MAXIMAL = 1,     // one device holds the value: tile_assignment_devices[0]
    TUPLE = 2,       // the value is a tuple: tuple_shardings has a sharding for each element
    OTHER = 3,       // the value is split into tiles
    MANUAL = 4,      // the program splits the value by hand (a shard_map body)
    UNKNOWN = 5,
    UNREDUCED = 6,
  };

  OpSharding() = default;  // REPLICATED
  // The OpSharding of an array of `ndim` dims with this sharding. ValueError where the spec has
  // more entries.
  OpSharding(const NamedSharding& sharding, int ndim, SourceLine source = SourceLine::current());

  Type type = REPLICATED;
  // The number of tiles along each dim. Where last_tile_dims is not empty or
  // replicate_on_last_tile_dim is true, further entries give the number of devices that share a
  // tile.
  std::vector<std::int64_t> tile_assignment_dimensions;
  // The device of each tile, row-major. Where this list is empty, iota_reshape_dims and
  // iota_transpose_perm give it: the numbers 0, 1, 2 … reshaped to iota_reshape_dims and then
  // transposed.
  std::vector<std::int64_t> tile_assignment_devices;
  std::vector<std::int64_t> iota_reshape_dims;
  std::vector<std::int32_t> iota_transpose_perm;
  bool replicate_on_last_tile_dim = false;
  std::vector<Type> last_tile_dims;  // kinds of the further tile dims: REPLICATED, MANUAL …
  std::vector<OpSharding> tuple_shardings;
  bool is_shard_group = false;
  std::int64_t shard_group_id = 0;
  std::int32_t shard_group_type = 0;
  // The bytes of all other fields (metadata, tile_shape), in the same format; serialize() writes
  // them again.
  std::string unknown_fields;

  // The device of each tile as an explicit list. ValueError where the numbers contradict one
  // another, or there are more than 2^24 tiles.
  std::vector<std::int64_t> devices() const;

  // The bytes that XLA writes for this sharding: to parse XLA's bytes and serialise the result
  // gives the same bytes.
  std::string serialize() const;
  // Parses bytes that may come from an untrusted source. ValueError, with the offset, where they
  // are not such a message, are nested more than 100 deep, or hold more than 2^21 numbers.
  static OpSharding parse(std::string_view bytes, SourceLine source = SourceLine::current());

  // The equivalent NamedSharding over this mesh. ValueError where there is none: another number of
  // devices, tiles that do not follow the mesh's axes, MAXIMAL, TUPLE, MANUAL.
  NamedSharding named_sharding(const Mesh& mesh, SourceLine source = SourceLine::current()) const;

  friend bool operator==(const OpSharding&, const OpSharding&) = default;
  friend std::ostream& operator<<(std::ostream& out, const OpSharding& sharding);
};
// As XLA prints it: "{devices=[4,1,2]<=[8] last_tile_dim_replicate}", "{replicated}".
std::string to_string(const OpSharding& sharding);

}  // namespace extend
}  // namespace shmap
