// OpSharding: how XLA's programs say that a value is split over devices (xla.OpSharding of
// xla_data.proto; jax.extend.sharding), to be exchanged with what writes or reads such programs.
//
//   extend::OpSharding s(NamedSharding(mesh, P("i")), 2);   // of a matrix
//   std::string bytes = s.serialize();                      // as XLA's SerializeToString
//   NamedSharding back = extend::OpSharding::parse(bytes).named_sharding(mesh);
//
// Devices are places of the mesh in row-major order, as in JAX, and no device ids.
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
    REPLICATED = 0,  // the whole value on each device
    MAXIMAL = 1,     // on one device, tile_assignment_devices[0]
    TUPLE = 2,       // of several values: tuple_shardings
    OTHER = 3,       // tiled
    MANUAL = 4,      // each device's own affair
    UNKNOWN = 5,
    UNREDUCED = 6,
  };

  OpSharding() = default;  // REPLICATED
  // Of an array of `ndim` dims. ValueError where the spec is longer.
  OpSharding(const NamedSharding& sharding, int ndim, SourceLine source = SourceLine::current());

  Type type = REPLICATED;
  // How many tiles along each dim; then, where there are last_tile_dims, or
  // replicate_on_last_tile_dim says so, how many devices share a tile.
  std::vector<std::int64_t> tile_assignment_dimensions;
  // The device of each tile, row-major; or, where that is empty, iota_reshape_dims and
  // iota_transpose_perm: 0, 1, 2 … in the former shape, transposed so.
  std::vector<std::int64_t> tile_assignment_devices;
  std::vector<std::int64_t> iota_reshape_dims;
  std::vector<std::int32_t> iota_transpose_perm;
  bool replicate_on_last_tile_dim = false;
  std::vector<Type> last_tile_dims;  // of the dims after the array's: REPLICATED, MANUAL, …
  std::vector<OpSharding> tuple_shardings;
  bool is_shard_group = false;
  std::int64_t shard_group_id = 0;
  std::int32_t shard_group_type = 0;
  // Fields that are none of these (metadata, tile_shape), as bytes of the same format: they are
  // kept.
  std::string unknown_fields;

  // The device of each tile, written out. ValueError where the numbers do not fit one another, or
  // there are more than 2^24.
  std::vector<std::int64_t> devices() const;

  // Bytes as XLA writes them: what it wrote is written the same.
  std::string serialize() const;
  // From bytes that may come from anywhere: ValueError, with the offset, where they are no such
  // message, are nested deeper than 100, or hold more than 2^21 numbers.
  static OpSharding parse(std::string_view bytes, SourceLine source = SourceLine::current());

  // The sharding over this mesh that is the same. ValueError where there is none: another number of
  // devices, tiles that do not follow the mesh's axes, MAXIMAL, TUPLE, MANUAL.
  NamedSharding named_sharding(const Mesh& mesh, SourceLine source = SourceLine::current()) const;

  friend bool operator==(const OpSharding&, const OpSharding&) = default;
  friend std::ostream& operator<<(std::ostream& out, const OpSharding& sharding);
};
// As XLA prints it: "{devices=[4,1,2]<=[8] last_tile_dim_replicate}", "{replicated}".
std::string to_string(const OpSharding& sharding);

}  // namespace extend
}  // namespace shmap
