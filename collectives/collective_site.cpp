#include "collectives/collective_site.h"

#include <string>
#include <vector>

#include "core/base/fault.h"
#include "core/ir/trace.h"

namespace shmap {

namespace {

std::string context(const CollectiveSite& site, const char* what) {
  std::vector<std::string> names;
  for (int axis : site.cliques->axes)
    names.push_back(site.op.mesh->env()->names[static_cast<std::size_t>(axis)]);
  return what + ("\n  in the collective " + describe(site.op)) + ", over mesh axes " +
         to_string(Axes(names)) + at_line(site.op.source);
}

}  // namespace

void reach_collective(const CollectiveSite& site, int part) {
  if (part == 0) fault::point("collective", site.op.mesh->local(site.op.position).index);
}

void rethrow_from(const CollectiveSite& site) {
  try {
    throw;
  } catch (const OutOfMemory& e) {
    throw OutOfMemory(context(site, e.what()));
  } catch (const std::exception& e) {
    throw CollectiveError(context(site, e.what()));
  }
}

}  // namespace shmap
