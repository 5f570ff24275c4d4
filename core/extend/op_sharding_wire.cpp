// OpSharding as the bytes of xla.OpSharding in xla_data.proto.
#include "core/extend/proto_wire.h"
#include "core/ir/trace.h"
#include "shmap/extend/sharding.h"

namespace shmap {
namespace extend {

namespace {

// The numbers of the fields in xla_data.proto.
enum Number : std::uint32_t {
  kType = 1,
  kTileDimensions = 3,
  kTileDevices = 4,
  kTuple = 5,
  kReplicateLast = 6,
  kLastTileDims = 8,
  kIotaReshape = 9,
  kIotaTranspose = 10,
  kIsShardGroup = 11,
  kShardGroupId = 12,
  kShardGroupType = 13,
};

constexpr int kMostNested = 100;
constexpr std::size_t kMostNumbers = std::size_t{1} << 21;
constexpr const char* kWhat = "OpSharding::parse";

template <class T>
void append_packed(std::string& out, Number field, const std::vector<T>& list) {
  if (list.empty()) return;
  std::string packed;
  for (T v : list) append_varint(packed, static_cast<std::uint64_t>(static_cast<std::int64_t>(v)));
  append_bytes(out, field, packed);
}

void append_number(std::string& out, Number field, std::int64_t value) {
  if (value == 0) return;
  append_tag(out, field, ProtoReader::varint);
  append_varint(out, static_cast<std::uint64_t>(value));
}

class MessageReader {
 public:
  OpSharding message(std::string_view bytes, std::size_t offset, int depth) {
    if (depth > kMostNested) {
      throw ValueError(std::string(kWhat) + ": byte " + std::to_string(offset) +
                       ": messages are nested deeper than " + std::to_string(kMostNested));
    }
    OpSharding s;
    ProtoReader reader(bytes, kWhat, offset);
    for (ProtoReader::Field f; reader.next(&f);) {
      if (!take(s, f, depth)) {
        s.unknown_fields += f.whole;
        if (s.unknown_fields.size() > kMostNumbers) too_many(f.offset);
      }
    }
    return s;
  }

 private:
  // Takes a known field. False for other fields, and for a field with an unexpected wire type.
  bool take(OpSharding& s, const ProtoReader::Field& f, int depth) {
    const bool one = f.wire == ProtoReader::varint;
    switch (f.number) {
      case kType:
        return one && (s.type = type_of(f.value), true);
      case kTileDimensions:
        return list(f, s.tile_assignment_dimensions);
      case kTileDevices:
        return list(f, s.tile_assignment_devices);
      case kTuple:
        if (f.wire != ProtoReader::bytes) return false;
        count(f.offset);
        s.tuple_shardings.push_back(message(f.part, f.offset, depth + 1));
        return true;
      case kReplicateLast:
        return one && (s.replicate_on_last_tile_dim = f.value != 0, true);
      case kLastTileDims:
        return list(f, s.last_tile_dims);
      case kIotaReshape:
        return list(f, s.iota_reshape_dims);
      case kIotaTranspose:
        return list(f, s.iota_transpose_perm);
      case kIsShardGroup:
        return one && (s.is_shard_group = f.value != 0, true);
      case kShardGroupId:
        return one && (s.shard_group_id = static_cast<std::int64_t>(f.value), true);
      case kShardGroupType:
        return one && (s.shard_group_type = static_cast<std::int32_t>(f.value), true);
      default:
        return false;
    }
  }

  static OpSharding::Type type_of(std::uint64_t v) {
    return static_cast<OpSharding::Type>(static_cast<std::int32_t>(v));
  }
  // The numbers of a list are packed in one field, or each has a field of its own.
  template <class T>
  bool list(const ProtoReader::Field& f, std::vector<T>& out) {
    const auto push = [&](std::uint64_t v) {
      count(f.offset);
      if constexpr (std::is_enum_v<T>) {
        out.push_back(type_of(v));
      } else {
        out.push_back(static_cast<T>(v));
      }
    };
    if (f.wire == ProtoReader::varint) {
      push(f.value);
      return true;
    }
    if (f.wire != ProtoReader::bytes) return false;
    ProtoReader packed(f.part, kWhat, f.offset);
    for (std::uint64_t v = 0; packed.next_varint(&v);) push(v);
    return true;
  }
  [[noreturn]] static void too_many(std::size_t offset) {
    throw ValueError(std::string(kWhat) + ": byte " + std::to_string(offset) +
                     ": more than 2^21 numbers");
  }
  void count(std::size_t offset) {
    // A nested message counts as a number too, because it takes as much memory as many numbers.
    if (++numbers_ > kMostNumbers) too_many(offset);
  }
  std::size_t numbers_ = 0;
};

}  // namespace

std::string OpSharding::serialize() const {
  std::string out;
  append_number(out, kType, type);
  append_packed(out, kTileDimensions, tile_assignment_dimensions);
  append_packed(out, kTileDevices, tile_assignment_devices);
  for (const OpSharding& s : tuple_shardings) append_bytes(out, kTuple, s.serialize());
  append_number(out, kReplicateLast, replicate_on_last_tile_dim);
  append_packed(out, kLastTileDims, last_tile_dims);
  append_packed(out, kIotaReshape, iota_reshape_dims);
  append_packed(out, kIotaTranspose, iota_transpose_perm);
  append_number(out, kIsShardGroup, is_shard_group);
  append_number(out, kShardGroupId, shard_group_id);
  append_number(out, kShardGroupType, shard_group_type);
  return out + unknown_fields;
}

OpSharding OpSharding::parse(std::string_view bytes, SourceLine source) {
  try {
    return MessageReader().message(bytes, 0, 0);
  } catch (const ValueError& e) {
    throw ValueError(e.what() + at_line(source));
  }
}

}  // namespace extend
}  // namespace shmap
