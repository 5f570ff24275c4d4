#include "tests/support/golden_array.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "shmap/mesh.h"
#include "shmap/ops.h"
#include "shmap/partition_spec.h"
#include "tests/support/device_grids.h"

namespace shmap::testing {

Array to_array(const GoldenArray& x) {
  return detail::from_host(x.dtype, x.bytes.data(), x.shape.num_elements(), x.shape,
                           SourceLine::current());
}

namespace {

std::vector<std::byte> bytes_of(const Array& x) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(x.nbytes()));
  detail::host_copy(x, x.dtype(), bytes.data(), x.size(), {});
  return bytes;
}

// Prints distances if SHMAP_TEST_ULPS is set, for tables of distances.
void tell_distance(const GoldenCase& c, const GoldenArray& want, const Array& got) {
  static const bool wanted = std::getenv("SHMAP_TEST_ULPS") != nullptr;
  if (!wanted || !is_floating(want.dtype) || got.dtype() != want.dtype) return;
  const GoldenDistance most = golden_distance(want, bytes_of(got).data());
  std::printf("%s: %s, at most %llu ulp, %.3g absolute\n", c.name.c_str(),
              to_string(want.dtype).c_str(), static_cast<unsigned long long>(most.ulp),
              most.absolute);
}

}  // namespace

std::string golden_diff(const GoldenArray& want, const Array& got, int max_ulp, double atol) {
  const std::vector<std::byte> bytes = bytes_of(got);
  return golden_diff(want, bytes.data(), got.dtype(), got.shape(), max_ulp, atol);
}

void expect_golden(const std::string& topic, const CaseRunner& run, const Placer& place,
                   test::Communication communication) {
  const std::vector<GoldenCase> cases = load_golden(topic);
  ASSERT_FALSE(cases.empty());
  for (const GoldenCase& c : cases) {
    SCOPED_TRACE(topic + ": " + c.name);
    try {
      std::vector<Array> inputs;
      for (const GoldenArray& x : c.inputs)
        inputs.push_back(place ? place(to_array(x)) : to_array(x));
      const auto of_this_case = [&](const std::vector<Array>& in) { return run(c, in); };
      const std::vector<Array> got =
          test::expect_same_under_jit(of_this_case, communication, inputs);
      ASSERT_EQ(got.size(), c.outputs.size());
      const int ulp = static_cast<int>(c.params.integer_or("ulp", 0));
      const double atol = c.params.has("atol") ? c.params.number("atol") : 0;
      for (std::size_t k = 0; k < got.size(); ++k) {
        tell_distance(c, c.outputs[k], got[k]);
        EXPECT_EQ(golden_diff(c.outputs[k], got[k], ulp, atol), "") << "result " << k;
      }
    } catch (const std::exception& e) {
      ADD_FAILURE() << "threw: " << e.what();
    }
  }
}

Array split_over_mesh(const Array& x) {
  static const Mesh mesh = mesh_in_all_processes({2, 2}, axes("x", "y"));
  std::vector<PartitionSpec::Entry> spec;
  const char* names[] = {"x", "y"};
  int used = 0;
  for (std::int64_t extent : x.shape()) {
    const bool divides = used < 2 && extent > 0 && extent % 2 == 0;
    spec.push_back(divides ? PartitionSpec::Entry(names[used]) : PartitionSpec::Entry(none));
    if (divides) ++used;
  }
  return device_put(x, NamedSharding(mesh, PartitionSpec(spec)));
}

}  // namespace shmap::testing
