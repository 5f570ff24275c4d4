#include "core/ir/collective_axes.h"

#include <utility>

namespace shmap {
namespace {

class AxesFinder final : public ParamFinder {
 public:
  using ParamFinder::value;
  std::vector<std::string> axes;
  void value(std::string_view, const std::vector<std::string>& names) override { axes = names; }
};

}  // namespace

std::vector<std::string> collective_axes(const Params& params) {
  AxesFinder finder;
  params.visit(finder);
  return std::move(finder.axes);
}

}  // namespace shmap
