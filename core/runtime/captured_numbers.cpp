#include "core/runtime/captured_numbers.h"

#include <map>
#include <mutex>
#include <utility>

#include "core/array/same_meshes.h"
#include "core/base/hash_text.h"
#include "core/ir/divergence.h"
#include "core/ir/trace.h"

namespace shmap {
namespace {

// The next number of a mesh's processes that count together under a divergence.
struct Divergent {
  std::mutex mutex;
  std::map<std::pair<const detail::MeshImpl*, std::uint32_t>, std::uint64_t> next;
};
Divergent& divergent_numbers() {
  static auto* all = new Divergent();
  return *all;
}

}  // namespace

std::uint32_t divergent_axes(const detail::MeshImpl& mesh) {
  std::uint32_t axes = 0;
  for (const DivergentScope* scope = divergence(); scope != nullptr; scope = scope->outer())
    axes |= scope->axes().mask_in(*mesh.env());
  return axes;
}

std::uint64_t number_space(const detail::MeshImpl& mesh, std::uint32_t divergent) {
  return divergent == 0 ? mesh.name() : HashText().add(mesh.name()).add(divergent).value();
}

std::uint64_t take_numbers(const detail::MeshImpl& mesh, std::uint32_t divergent,
                           std::uint64_t count) {
  if (divergent == 0) {
    const std::uint64_t first = mesh.take_numbers(count);
    if (first == 0) [[unlikely]]
      report_begun(mesh);
    return first;
  }
  Divergent& numbers = divergent_numbers();
  std::lock_guard lock(numbers.mutex);
  std::uint64_t& at = numbers.next[{&mesh, divergent}];
  return std::exchange(at, at + count);
}

void give_numbers_back(const detail::MeshImpl& mesh, std::uint32_t divergent, std::uint64_t first) {
  if (divergent == 0) return mesh.give_numbers_back(first);
  Divergent& numbers = divergent_numbers();
  std::lock_guard lock(numbers.mutex);
  numbers.next[{&mesh, divergent}] = first;
}

}  // namespace shmap
