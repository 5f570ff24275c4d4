// SHMAP_CHECK_KEYS: reports keys that are used twice.
#include <map>
#include <mutex>
#include <string>

#include "core/base/env.h"
#include "core/ir/node.h"
#include "core/ir/trace.h"
#include "core/random/bit_source.h"

namespace shmap::draw {

namespace {

struct Use {
  Array key;  // kept alive, so that no other key gets its address
  const char* what;
  SourceLine source;
};

struct Uses {
  std::mutex mutex;
  std::map<const detail::NodeBase*, Use> by_node;
};
Uses& uses() {
  // never destroyed: other threads may still draw while the process ends
  static Uses* const all = new Uses;
  return *all;
}

bool is_on() {
  static const bool on = env::flag(env::Var::check_keys);
  return on;
}

}  // namespace

void check_unused(const Array& key, const char* what, SourceLine source) {
  if (!is_on()) return;
  Use before;
  {
    const std::lock_guard lock(uses().mutex);
    const auto [it, is_new] = uses().by_node.try_emplace(key.node(), Use{key, what, source});
    if (is_new) return;
    before = it->second;
  }
  throw ValueError(std::string(what) + ": the key was used before, by " + before.what +
                   at_line(before.source) +
                   "\n  what is drawn would not be independent: take new keys with random::split "
                   "or random::fold_in, and use each once (SHMAP_CHECK_KEYS is on)" +
                   at_line(source));
}

}  // namespace shmap::draw
