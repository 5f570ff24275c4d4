// The reports of values that have to be the same in all processes of a mesh, and their comparison
// in the mesh's first process. Private to Exchanges, whose mutex protects the object.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "core/processes/peers.h"
#include "core/processes/same_value.h"

namespace shmap {

class ValueReports {
 public:
  explicit ValueReports(const Peers& peers) : peers_(peers) {}

  // Counts a report of this process; returns how many with the same space and key it made before.
  std::uint32_t count(const SameValue& value);
  // Keeps the report that was counted so, in the first process of a mesh, until those of `others`
  // processes were compared with it. Compares those that came before. Returns the text of the first
  // difference, or "".
  std::string keep(const SameValue& value, std::uint32_t time, int others);
  // Compares the report of another process with this process's, now or when this process makes its
  // own. Returns the text of a difference, or "".
  std::string take(int from, const SameValue& theirs, std::uint32_t time);

 private:
  struct Own {
    SameValue value;
    int awaited = 0;  // reports of others
  };
  // Those with one space and key, by their count.
  struct Reports {
    std::uint32_t counted = 0;
    std::map<std::uint32_t, Own> own;  // others are still to be compared with them
    std::map<std::pair<std::uint32_t, int>, SameValue> early;  // of others; by count and process
  };
  std::string compare(Reports& reports, std::uint32_t time, int from, const SameValue& theirs);

  const Peers& peers_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, Reports> reports_;  // by space and key
};

}  // namespace shmap
