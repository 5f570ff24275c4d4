#include "core/tracing/jaxpr_body.h"

#include <utility>

#include "core/tracing/make_jaxpr.h"

namespace shmap {

void JaxprBody::operator()(std::vector<Array>& leaves, detail::FlatTree& result) const {
  std::vector<Array> args(consts_.begin(), consts_.end());
  for (Array& x : leaves) args.push_back(std::move(x));
  leaves.clear();
  result.leaves = eval_jaxpr(jaxpr_, std::move(args));
}

}  // namespace shmap
