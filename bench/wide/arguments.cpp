#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>

#include "bench/wide/wide.h"

namespace shmap::bench {
namespace {

// The parsed text of one argument.
struct Spec {
  DType dtype = f32;
  std::vector<std::int64_t> extents;
  std::vector<std::string> axes;  // one per dim; "" if the dim is not split
  std::int64_t below = 100;
  double scale = 1;
  bool positive = false;
  std::size_t count() const {
    std::size_t n = 1;
    for (const std::int64_t extent : extents) n *= static_cast<std::size_t>(extent);
    return n;
  }
};

DType dtype_named(const std::string& name) {
  static const std::map<std::string, DType> dtypes = {
      {"bool", bool_}, {"i8", i8},   {"i16", i16}, {"i32", i32}, {"i64", i64},
      {"u8", u8},      {"u16", u16}, {"u32", u32}, {"u64", u64}, {"f16", f16},
      {"bf16", bf16},  {"f32", f32}, {"f64", f64}};
  const auto found = dtypes.find(name);
  if (found == dtypes.end()) throw std::runtime_error("no dtype '" + name + "'");
  return found->second;
}

Spec parse(const std::string& word) {
  Spec spec;
  const std::size_t open = word.find('['), close = word.find(']');
  if (open == word.npos || close == word.npos || close < open)
    throw std::runtime_error("an argument is DTYPE[EXTENT,…], not '" + word + "'");
  spec.dtype = dtype_named(word.substr(0, open));
  std::stringstream dims(word.substr(open + 1, close - open - 1));
  for (std::string dim; std::getline(dims, dim, ',');) {
    const std::size_t at = dim.find('@');
    spec.extents.push_back(std::stoll(dim));
    spec.axes.push_back(at == dim.npos ? "" : dim.substr(at + 1));
  }
  if (close + 1 < word.size()) {
    const std::string value = word.substr(close + 2);
    switch (word[close + 1]) {
      case '<':
        spec.below = std::stoll(value);
        break;
      case '*':
        spec.scale = std::stod(value);
        break;
      case '+':
        spec.positive = true;
        break;
      default:
        throw std::runtime_error("after the extents stands <N, *SCALE or +, not '" +
                                 word.substr(close + 1) + "'");
    }
  }
  return spec;
}

// Returns 32 well-mixed bits for element n of argument `number`. peers/wide_data.py has the same
// function.
std::uint32_t mixed(std::uint32_t n, std::uint32_t number) {
  std::uint32_t h = n * 0x9E3779B1u + (number + 1) * 0x7FEB352Du;
  h ^= h >> 16;
  h *= 0x85EBCA6Bu;
  h ^= h >> 13;
  h *= 0xC2B2AE35u;
  return h ^ h >> 16;
}

Array values(const Spec& spec, std::uint32_t number) {
  const std::size_t n = spec.count();
  const Shape shape(spec.extents);
  if (spec.dtype == f32 || spec.dtype == f64 || spec.dtype == bf16 || spec.dtype == f16) {
    std::vector<float> all(n);
    for (std::size_t k = 0; k < n; ++k) {
      // Computed in doubles and rounded once, as the peers do.
      const double unit = double(mixed(static_cast<std::uint32_t>(k), number) >> 8) * 0x1p-24;
      all[k] = static_cast<float>((spec.positive ? unit + 0.5 : 2 * unit - 1) * spec.scale);
    }
    const Array x = array<float>(all, shape);
    return spec.dtype == f32 ? x : astype(x, spec.dtype);
  }
  std::vector<std::int64_t> all(n);
  const auto below = static_cast<std::uint32_t>(spec.dtype == bool_ ? 2 : spec.below);
  for (std::size_t k = 0; k < n; ++k) all[k] = mixed(static_cast<std::uint32_t>(k), number) % below;
  return astype(array<std::int64_t>(all, shape), spec.dtype);
}

PartitionSpec partition(const Spec& spec) {
  std::vector<PartitionSpec::Entry> entries;
  for (const std::string& axis : spec.axes)
    entries.emplace_back(axis.empty() ? PartitionSpec::Entry(none) : PartitionSpec::Entry(axis));
  return PartitionSpec(entries);
}

template <class T>
std::vector<double> picked(const Array& x) {
  const std::vector<T> all = x.to_vector<T>();
  const std::size_t count = std::min<std::size_t>(all.size(), 64);
  std::vector<double> some;
  for (std::size_t k = 0; k < count; ++k) {
    const std::size_t at = count < 2 ? 0 : k * (all.size() - 1) / (count - 1);
    some.push_back(static_cast<double>(static_cast<T>(all[at])));
  }
  return some;
}

std::vector<double> picked(const Array& x, DType dtype) {
  switch (dtype) {
    case bool_:
      return picked<bool>(x);
    case f32:
      return picked<float>(x);
    case f64:
      return picked<double>(x);
    case i32:
      return picked<std::int32_t>(x);
    case i64:
      return picked<std::int64_t>(x);
    case bf16:
    case f16:
      return picked<float>(astype(x, f32));
    default:
      return picked<std::int64_t>(astype(x, i64));
  }
}

}  // namespace

const Mesh& mesh_of(const std::string& text) {
  static std::map<std::string, std::unique_ptr<Mesh>> meshes;
  std::unique_ptr<Mesh>& mesh = meshes[text];
  if (!mesh) {
    std::vector<std::int64_t> sizes;
    std::vector<std::string> names;
    std::stringstream parts(text);
    for (std::string part; std::getline(parts, part, ',');) {
      const std::size_t equals = part.find('=');
      names.push_back(part.substr(0, equals));
      sizes.push_back(std::stoll(part.substr(equals + 1)));
    }
    mesh = std::make_unique<Mesh>(make_mesh(Shape(sizes), Axes(names)));
  }
  return *mesh;
}

Leaves make_arguments(const std::string& words, const std::string& mesh) {
  Leaves arguments;
  std::stringstream stream(words);
  for (std::string word; stream >> word;) {
    const Spec spec = parse(word);
    Array x = values(spec, static_cast<std::uint32_t>(arguments.size()));
    if (!mesh.empty()) x = device_put(x, NamedSharding(mesh_of(mesh), partition(spec)));
    x.block_until_ready();
    arguments.push_back(std::move(x));
  }
  return arguments;
}

std::vector<std::vector<double>> sample_of(const Leaves& all) {
  std::vector<std::vector<double>> samples;
  for (const Array& x : all) samples.push_back(picked(x, x.dtype()));
  return samples;
}

}  // namespace shmap::bench
