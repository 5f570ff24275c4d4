#include "tests/support/random_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <numeric>

#include "tests/support/device_grids.h"
#include "tests/support/program_seeds.h"

namespace shmap::test {

namespace {
constexpr const char* kNames[] = {"i", "j"};
}

RandomChoice::RandomChoice(unsigned seed, const std::vector<Extents>& meshes) : engine_(seed) {
  const std::vector<Extents> of_all = in_all_processes(meshes);
  sizes_ = of_all[pick(of_all.size())];
}

std::vector<Extents> RandomChoice::in_all_processes(const std::vector<Extents>& meshes) {
  std::vector<Extents> of_all;
  std::ranges::copy_if(meshes, std::back_inserter(of_all), [](const Extents& sizes) {
    return sizes.empty() || Shape(sizes).num_elements() >= process_count();
  });
  return of_all;
}

std::size_t RandomChoice::pick(std::size_t n) {
  return std::uniform_int_distribution<std::size_t>(0, n - 1)(engine_);
}

double RandomChoice::number() { return std::uniform_real_distribution<double>(-1, 1)(engine_); }

Mesh RandomChoice::mesh() const {
  return mesh_in_all_processes(Shape(sizes_),
                               std::vector<std::string>(kNames, kNames + sizes_.size()));
}

SpecDims RandomChoice::random_spec(std::size_t rank, unsigned required) {
  SpecDims spec(rank);
  for (int a : shuffled(static_cast<int>(sizes_.size())))
    if (rank > 0 && ((required >> a & 1u) || coin())) spec[pick(rank)].push_back(a);
  return spec;
}

std::vector<int> RandomChoice::random_axes() {
  std::vector<int> axes;
  if (sizes_.empty()) return axes;
  for (int a = 0; a < static_cast<int>(sizes_.size()); ++a)
    if (coin()) axes.push_back(a);
  if (axes.empty()) axes.push_back(static_cast<int>(pick(sizes_.size())));
  std::shuffle(axes.begin(), axes.end(), engine_);
  return axes;
}

std::vector<int> RandomChoice::shuffled(int n) {
  std::vector<int> numbers(static_cast<std::size_t>(n));
  std::iota(numbers.begin(), numbers.end(), 0);
  std::shuffle(numbers.begin(), numbers.end(), engine_);
  return numbers;
}

std::int64_t RandomChoice::ranks(const std::vector<int>& axes) const {
  std::int64_t n = 1;
  for (int a : axes) n *= sizes_[static_cast<std::size_t>(a)];
  return n;
}

unsigned RandomChoice::mask(const std::vector<int>& axes) {
  unsigned m = 0;
  for (int a : axes) m |= 1u << a;
  return m;
}

unsigned RandomChoice::mask(const SpecDims& spec) {
  unsigned m = 0;
  for (const auto& axes : spec) m |= mask(axes);
  return m;
}

Axes RandomChoice::names(const std::vector<int>& axes) {
  std::vector<std::string> n;
  for (int a : axes) n.emplace_back(kNames[a]);
  return Axes(n);
}

PartitionSpec RandomChoice::to_spec(const SpecDims& dims) {
  std::vector<PartitionSpec::Entry> entries;
  for (const auto& axes : dims) entries.emplace_back(names(axes));
  return PartitionSpec(entries);
}

void run_cases(unsigned count, void (*run)(unsigned)) {
  if (const char* one = std::getenv("SHMAP_TEST_CASE"))
    return run(static_cast<unsigned>(std::atoi(one)));
  count = setting("SHMAP_TEST_PROGRAMS", count);
  for (unsigned number = 0; number < count && !::testing::Test::HasFailure(); ++number) run(number);
}

}  // namespace shmap::test
