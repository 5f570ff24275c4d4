#include "tests/support/under_jit.h"

#include <limits>

#include "core/array/mesh_impl.h"
#include "core/ir/node.h"
#include "shmap/device.h"
#include "shmap/ops.h"
#include "shmap/partition_spec.h"

namespace shmap::test {

std::vector<Seen> see(const std::vector<Array>& leaves) {
  std::vector<Seen> all;
  for (const Array& x : leaves) {
    Seen seen;
    seen.type = to_string(x.type()) + (node_of(x)->type.weak() ? " (weak)" : "");
    // Arrays that are not placed go to the devices where jit runs.
    if (node_of(x)->kind == NodeKind::stored && stored_of(x)->committed) {
      const NamedSharding sharding = x.sharding();  // on one device specs make no difference
      seen.sharding =
          sharding.mesh().size() == 1 ? to_string(sharding.mesh()) : to_string(sharding);
    }
    // The bits of a NaN depend on the order of an instruction's operands, which compilers choose.
    Array shown =
        is_floating(x.dtype()) ? where(isnan(x), std::numeric_limits<double>::quiet_NaN(), x) : x;
    // cuBLASLt's algorithms differ in the sign of a product's zero, and the choice of the algorithm
    // depends on the alignment of the operands too.
    if (is_floating(x.dtype()) && devices().front().kind() == DeviceKind::cuda)
      shown = where(shown == 0.0, 0.0, shown);
    seen.bytes.resize(static_cast<std::size_t>(shown.nbytes()));
    detail::host_copy(shown, shown.dtype(), seen.bytes.data(), shown.size(), {});
    all.push_back(std::move(seen));
  }
  return all;
}

void expect_same(const std::vector<Seen>& want, const std::vector<Seen>& got,
                 const std::string& when) {
  ASSERT_EQ(got.size(), want.size()) << when;
  for (std::size_t k = 0; k < want.size(); ++k) {
    EXPECT_EQ(got[k].type, want[k].type) << when << ", leaf " << k;
    if (!want[k].sharding.empty()) {
      EXPECT_EQ(got[k].sharding, want[k].sharding) << when << ", leaf " << k;
    }
    EXPECT_TRUE(got[k].bytes == want[k].bytes)
        << when << ", leaf " << k << " of type " << want[k].type << ": the elements differ";
  }
}

Array another_copy(const Array& x) {
  Array copy = maximum(x, x);
  if (node_of(x)->kind == NodeKind::stored && stored_of(x)->committed)
    copy = device_put(copy, x.sharding());
  return copy;
}

}  // namespace shmap::test
