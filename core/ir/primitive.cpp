#include "core/ir/primitive.h"

#include <map>

namespace shmap {

namespace {
std::map<std::string, Primitive*, std::less<>>& table() {
  static auto* t = new std::map<std::string, Primitive*, std::less<>>();
  return *t;
}
}  // namespace

void register_primitive(Primitive& primitive) {
  const auto [there, is_new] = table().emplace(primitive.name, &primitive);
  // The same primitive may come again: registration is repeated from the start where memory ran
  // out.
  if (!is_new && there->second != &primitive) {
    throw ValueError(std::string("primitive '") + primitive.name +
                     "' is registered already: give it another name");
  }
}

Primitive* find_primitive(std::string_view name) {
  const auto it = table().find(name);
  return it == table().end() ? nullptr : it->second;
}

std::vector<const Primitive*> all_primitives() {
  std::vector<const Primitive*> all;
  for (const auto& [name, p] : table()) all.push_back(p);
  return all;
}

void check_kernels(std::span<const DeviceKind> kinds) {
  std::string missing;
  for (const DeviceKind kind : kinds) {
    std::string names;
    for (const auto& [name, p] : table())
      if (!p->kernel(kind).run && !p->group && !p->interpret && !p->no_kernel)
        names += (names.empty() ? "" : ", ") + name;
    if (!names.empty())
      missing += std::string("\n  the backend '") + row_of(kind).spelled + "': " + names;
  }
  if (missing.empty()) return;
  throw Error("these primitives have no kernel on a backend of this build:" + missing +
              "\nRegister the kernels with the backend's others, or say in the primitive's record "
              "why it needs none (no_kernel)");
}

namespace {
// True if the size in bytes fits std::int64_t. Also false if an extent is 0, where it does fit.
bool bytes_fit(const ShapedArray& t) {
  std::int64_t bytes = itemsize(t.dtype());
  bool fits = true;
  for (std::int64_t e : t.dims()) fits = !__builtin_mul_overflow(bytes, e, &bytes) && e > 0 && fits;
  return fits;
}
}  // namespace

int result_count(const Primitive& primitive, Types in, const Params& params) {
  return primitive.result_count ? primitive.result_count(in, params) : 1;
}

void infer_types(const Primitive& primitive, Types in, const Params& params,
                 const detail::AxisEnv* env, std::span<ShapedArray> out) {
  primitive.abstract_eval(in, params, out);
  for (const ShapedArray& t : out) {
    if (bytes_fit(t)) [[likely]]
      continue;
    try {
      checked_bytes(t.dims(), itemsize(t.dtype()));
    } catch (const ValueError& e) {
      throw ValueError("the result of " + std::string(primitive.name) + ": " + e.what());
    }
  }
  if (!env) return;
  if (primitive.variance) return primitive.variance(in, params, *env, out);
  AxisSet all;
  for (const ShapedArray& t : in) all = all | t.axes();
  for (ShapedArray& t : out) t = t.with_axes(all);
}

}  // namespace shmap
