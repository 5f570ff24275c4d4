// Linked into tests of one process that also run as several. There an array is read by gathering
// it, in which all processes take part, since all run the same test.
#include <cstdlib>

#include "core/runtime/host_transfer.h"
#include "shmap/ops.h"

namespace shmap {
namespace {

[[maybe_unused]] const bool gathers = [] {
  if (std::getenv("SHMAP_TEST_GATHERS_TO_READ") != nullptr)
    detail::read_by_gathering.store(process_allgather);
  return true;
}();

}  // namespace
}  // namespace shmap
