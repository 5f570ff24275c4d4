#include <algorithm>
#include <numeric>
#include <ostream>
#include <utility>

#include "core/array/sharding.h"
#include "core/base/counted.h"
#include "core/ir/trace.h"
#include "shmap/extend/sharding.h"

namespace shmap {
namespace extend {

namespace {

constexpr std::int64_t kMostDevices = std::int64_t{1} << 24;

// Removes dims of size 1, and merges dims that stay adjacent in the transposition: XLA's canonical
// form.
void canonicalize(std::vector<std::int64_t>& dims, std::vector<std::int32_t>& perm) {
  std::vector<std::int32_t> order;
  for (std::int32_t d : perm)
    if (dims[static_cast<std::size_t>(d)] != 1) order.push_back(d);
  if (order.empty()) {
    dims = {1};
    perm = {0};
    return;
  }
  std::vector<std::int32_t> kept = order;  // the dims that remain, in order
  std::sort(kept.begin(), kept.end());
  for (std::int32_t& d : order)
    d = static_cast<std::int32_t>(std::lower_bound(kept.begin(), kept.end(), d) - kept.begin());
  std::vector<std::int64_t> sizes;
  for (std::int32_t d : kept) sizes.push_back(dims[static_cast<std::size_t>(d)]);
  // Runs of dims that are adjacent, in the same order, before and after the transposition.
  std::vector<std::vector<std::int32_t>> runs;
  for (std::int32_t d : order) {
    if (!runs.empty() && runs.back().back() + 1 == d) {
      runs.back().push_back(d);
    } else {
      runs.push_back({d});
    }
  }
  std::vector<std::int32_t> firsts;
  for (const auto& run : runs) firsts.push_back(run.front());
  std::sort(firsts.begin(), firsts.end());
  dims.assign(runs.size(), 1);
  perm.clear();
  for (const auto& run : runs) {
    const auto at = std::lower_bound(firsts.begin(), firsts.end(), run.front()) - firsts.begin();
    for (std::int32_t d : run)
      dims[static_cast<std::size_t>(at)] *= sizes[static_cast<std::size_t>(d)];
    perm.push_back(static_cast<std::int32_t>(at));
  }
}

// The product of positive extents; ValueError where the product is more than kMostDevices or an
// extent is not positive.
std::int64_t product(const std::vector<std::int64_t>& list, const char* what) {
  std::int64_t n = 1;
  for (std::int64_t v : list) {
    if (v < 1 || v > kMostDevices || n * v > kMostDevices) {
      throw ValueError("OpSharding: " + std::string(what) + " has an extent of " +
                       std::to_string(v) + ": wanted 1 or more, and 2^24 devices at most");
    }
    n *= v;
  }
  return n;
}

template <class T>
std::string joined(const std::vector<T>& list) {
  std::string text;
  for (T v : list) text += (text.empty() ? "" : ",") + std::to_string(v);
  return text;
}

const char* name_of(OpSharding::Type type) {
  switch (type) {
    case OpSharding::REPLICATED:
      return "replicated";
    case OpSharding::MAXIMAL:
      return "maximal";
    case OpSharding::TUPLE:
      return "tuple";
    case OpSharding::OTHER:
      return "tiled";
    case OpSharding::MANUAL:
      return "manual";
    case OpSharding::UNREDUCED:
      return "unreduced";
    default:
      return "unknown";
  }
}

}  // namespace

OpSharding::OpSharding(const NamedSharding& sharding, int ndim, SourceLine source) {
  const shmap::detail::AxisEnv& env = *sharding.mesh().impl()->env();
  const std::vector<std::vector<int>>& dims =
      sharding.mesh().impl()->sharding(sharding.spec())->dims();
  if (ndim < static_cast<int>(dims.size()) || ndim > kMaxRank) {
    throw ValueError("OpSharding: the spec " + to_string(sharding.spec()) +
                     " does not fit an array of " + counted(ndim, "dim") + at_line(source));
  }
  tile_assignment_dimensions.assign(static_cast<std::size_t>(ndim), 1);
  std::vector<bool> used(env.names.size());
  for (std::size_t d = 0; d < dims.size(); ++d) {
    for (int axis : dims[d]) {
      const auto a = static_cast<std::size_t>(axis);
      used[a] = true;
      iota_transpose_perm.push_back(axis);
      tile_assignment_dimensions[d] *= env.sizes[a];
    }
  }
  const std::int64_t tiles = product(tile_assignment_dimensions, "the mesh");
  if (tiles == 1) {
    tile_assignment_dimensions.clear();
    iota_transpose_perm.clear();
    return;
  }
  type = OTHER;
  std::int64_t copies = 1;
  for (std::size_t a = 0; a < used.size(); ++a) {
    if (used[a]) continue;
    copies *= env.sizes[a];
    iota_transpose_perm.push_back(static_cast<std::int32_t>(a));
  }
  if (copies > 1) {
    tile_assignment_dimensions.push_back(copies);
    replicate_on_last_tile_dim = true;
  }
  iota_reshape_dims = env.sizes;
  canonicalize(iota_reshape_dims, iota_transpose_perm);
}

std::vector<std::int64_t> OpSharding::devices() const {
  if (!tile_assignment_devices.empty() || iota_reshape_dims.empty()) {
    if (type == OTHER && product(tile_assignment_dimensions, "tile_assignment_dimensions") !=
                             static_cast<std::int64_t>(tile_assignment_devices.size())) {
      throw ValueError("OpSharding: " + std::to_string(tile_assignment_devices.size()) +
                       " devices for tiles of [" + joined(tile_assignment_dimensions) + "]");
    }
    return tile_assignment_devices;
  }
  const std::int64_t n = product(iota_reshape_dims, "iota_reshape_dims");
  const std::size_t rank = iota_reshape_dims.size();
  std::vector<char> seen(rank);
  bool fits = iota_transpose_perm.size() == rank &&
              product(tile_assignment_dimensions, "tile_assignment_dimensions") == n;
  for (std::int32_t d : iota_transpose_perm) {
    const bool is_new = d >= 0 && static_cast<std::size_t>(d) < rank &&
                        !std::exchange(seen[static_cast<std::size_t>(d)], 1);
    fits = fits && is_new;
    if (!fits) break;
  }
  if (!fits) {
    throw ValueError("OpSharding: tiles of [" + joined(tile_assignment_dimensions) +
                     "] and devices <=[" + joined(iota_reshape_dims) + "]T(" +
                     joined(iota_transpose_perm) + ") do not fit one another");
  }
  std::vector<std::int64_t> strides(rank, 1), at(rank), list(static_cast<std::size_t>(n));
  for (std::size_t d = rank - 1; d > 0; --d) strides[d - 1] = strides[d] * iota_reshape_dims[d];
  for (std::int64_t& device : list) {
    device = 0;
    for (std::size_t d = 0; d < rank; ++d)
      device += at[d] * strides[static_cast<std::size_t>(iota_transpose_perm[d])];
    for (std::size_t d = rank; d-- > 0;) {
      if (++at[d] < iota_reshape_dims[static_cast<std::size_t>(iota_transpose_perm[d])]) break;
      at[d] = 0;
    }
  }
  return list;
}

NamedSharding OpSharding::named_sharding(const Mesh& mesh, SourceLine source) const {
  const auto fail = [&](const std::string& why) {
    throw ValueError("OpSharding::named_sharding: " + to_string(*this) + " over " +
                     shmap::to_string(mesh) + ": " + why + at_line(source));
  };
  if (type == REPLICATED) return NamedSharding(mesh, PartitionSpec(), source);
  if (type != OTHER) fail("only what is replicated or tiled is a NamedSharding");
  std::size_t ndim = tile_assignment_dimensions.size();
  for (Type last : last_tile_dims)
    if (last != REPLICATED) fail(std::string("it is ") + name_of(last) + " over some devices");
  const std::size_t extra = last_tile_dims.size() + (replicate_on_last_tile_dim ? 1 : 0);
  if (extra > ndim || ndim - extra > static_cast<std::size_t>(kMaxRank))
    fail("an array cannot have that number of dims");
  ndim -= extra;
  const std::vector<std::int64_t> places = devices();
  if (static_cast<std::int64_t>(places.size()) != mesh.size())
    fail("it is for " + counted(places.size(), "device"));
  const shmap::detail::AxisEnv& env = *mesh.impl()->env();
  std::vector<std::int64_t> strides(env.sizes.size(), 1);
  for (std::size_t a = env.sizes.size(); a-- > 1;) strides[a - 1] = strides[a] * env.sizes[a];
  // The device positions of tiles 1, n, n m, … of a dim are the strides of the axes that split it,
  // the minor axis first.
  std::vector<PartitionSpec::Entry> entries;
  std::int64_t step = mesh.size();
  for (std::size_t d = 0; d < ndim; ++d) {
    const std::int64_t tiles = tile_assignment_dimensions[d];
    step /= tiles;
    std::vector<std::string> names;
    for (std::int64_t done = 1; done < tiles;) {
      const std::int64_t stride = places[static_cast<std::size_t>(done * step)] - places[0];
      std::size_t a = 0;
      while (a < env.sizes.size() && (env.sizes[a] == 1 || strides[a] != stride)) ++a;
      if (a == env.sizes.size() || tiles % (done * env.sizes[a]) != 0)
        fail("the tiles of dim " + std::to_string(d) + " do not follow the mesh's axes");
      names.insert(names.begin(), env.names[a]);
      done *= env.sizes[a];
    }
    if (names.empty()) {
      entries.emplace_back(none);
    } else {
      entries.emplace_back(Axes(names));
    }
  }
  while (!entries.empty() && entries.back().axes.empty()) entries.pop_back();
  const std::vector<PartitionSpec::Entry>& dims = entries;
  std::vector<std::string> all;
  for (const PartitionSpec::Entry& e : dims) all.insert(all.end(), e.axes.begin(), e.axes.end());
  std::sort(all.begin(), all.end());
  if (std::adjacent_find(all.begin(), all.end()) != all.end())
    fail("two dims are split over one mesh axis");
  NamedSharding sharding(mesh, PartitionSpec(entries), source);
  // Compares the devices of each tile as sets: their order within a tile does not matter.
  std::vector<std::int64_t> wanted = OpSharding(sharding, static_cast<int>(ndim), source).devices();
  std::vector<std::int64_t> given = places;
  if (wanted.empty()) return sharding;  // there is a single tile
  const std::int64_t copies = step;
  for (std::vector<std::int64_t>* list : {&wanted, &given})
    for (auto tile = list->begin(); tile != list->end(); tile += copies)
      std::sort(tile, tile + copies);
  if (wanted != given) fail("the tiles do not follow the mesh's axes");
  return sharding;
}

std::string to_string(const OpSharding& s) {
  if (s.type == OpSharding::TUPLE) {
    std::string text = "{";
    for (const OpSharding& t : s.tuple_shardings)
      text += (text.size() > 1 ? ", " : "") + to_string(t);
    return text + "}";
  }
  if (s.type == OpSharding::MAXIMAL && s.tile_assignment_devices.size() == 1)
    return "{maximal device=" + std::to_string(s.tile_assignment_devices[0]) + "}";
  if (s.type != OpSharding::OTHER) return std::string("{") + name_of(s.type) + "}";
  std::string text = "{devices=[" + joined(s.tile_assignment_dimensions) + "]";
  if (s.iota_reshape_dims.empty()) {
    text += joined(s.tile_assignment_devices);
  } else {
    text += "<=[" + joined(s.iota_reshape_dims) + "]";
    if (s.iota_transpose_perm.size() > 1) text += "T(" + joined(s.iota_transpose_perm) + ")";
  }
  if (s.replicate_on_last_tile_dim) text += " last_tile_dim_replicate";
  if (!s.last_tile_dims.empty()) {
    text += " last_tile_dims={";
    for (std::size_t i = 0; i < s.last_tile_dims.size(); ++i)
      text += (i ? ", " : "") + std::string(name_of(s.last_tile_dims[i]));
    text += "}";
  }
  return text + "}";
}

std::ostream& operator<<(std::ostream& out, const OpSharding& sharding) {
  return out << to_string(sharding);
}

}  // namespace extend
}  // namespace shmap
