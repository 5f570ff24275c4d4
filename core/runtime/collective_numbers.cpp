#include "core/runtime/collective_numbers.h"

#include <map>
#include <mutex>
#include <utility>

#include "core/array/same_meshes.h"
#include "core/base/hash_text.h"
#include "core/ir/divergence.h"
#include "core/ir/trace.h"
#include "core/runtime/repeatable_call.h"

namespace shmap {
namespace {

// The next numbers of ways.
struct WayNumbers {
  std::mutex mutex;
  std::map<std::pair<const detail::MeshImpl*, std::uint64_t>, std::uint64_t> next;
};
WayNumbers& way_numbers() {
  static auto* all = new WayNumbers();
  return *all;
}

}  // namespace

std::uint32_t divergent_axes(const detail::MeshImpl& mesh) {
  std::uint32_t axes = 0;
  for (const DivergentScope* scope = divergence(); scope != nullptr; scope = scope->outer())
    axes |= scope->axes().mask_in(*mesh.env());
  return axes;
}

std::uint64_t way_of(const detail::MeshImpl& mesh, std::uint32_t divergent,
                     std::uint32_t position) {
  if (divergent == 0) return 0;
  HashText hash;
  hash.add(divergent);
  for (int axis = 0; axis < static_cast<int>(mesh.env()->sizes.size()); ++axis)
    if (divergent >> axis & 1u)
      hash.add(static_cast<std::uint64_t>(mesh.coordinate(position, axis)));
  return hash.value();
}

std::optional<std::uint64_t> only_way(const detail::MeshImpl& mesh) {
  const std::uint32_t divergent = mesh.fully_addressable() ? 0 : divergent_axes(mesh);
  std::optional<std::uint64_t> only;
  for (std::uint32_t p = 0; p < mesh.local_count() && divergent != 0; ++p) {
    if (!is_active_device(p)) continue;
    const std::uint64_t way = way_of(mesh, divergent, p);
    if (only.value_or(way) != way) return std::nullopt;
    only = way;
  }
  return only.value_or(0);
}

std::uint64_t number_space(const detail::MeshImpl& mesh, std::uint64_t way) {
  return way == 0 ? mesh.name() : HashText().add(mesh.name()).add(way).value();
}

std::uint64_t take_numbers(const detail::MeshImpl& mesh, std::uint64_t way, std::uint64_t count) {
  std::uint64_t* const noted = note_taking(mesh, way);
  std::uint64_t first = 0;
  if (way == 0) {
    first = mesh.take_numbers(count);
    if (first == 0) [[unlikely]]
      report_begun(mesh);
  } else {
    WayNumbers& numbers = way_numbers();
    std::lock_guard lock(numbers.mutex);
    std::uint64_t& at = numbers.next[{&mesh, way}];
    first = std::exchange(at, at + count);
  }
  if (noted != nullptr) *noted = first;
  return first;
}

void give_numbers_back(const detail::MeshImpl& mesh, std::uint64_t way, std::uint64_t first) {
  note_given_back(mesh, way, first);
  if (way == 0) return mesh.give_numbers_back(first);
  WayNumbers& numbers = way_numbers();
  std::lock_guard lock(numbers.mutex);
  numbers.next[{&mesh, way}] = first;
}

}  // namespace shmap
