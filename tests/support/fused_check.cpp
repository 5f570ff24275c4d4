#include "tests/support/fused_check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/cpu/fused/fused_plan.h"
#include "core/runtime/fused_program.h"

namespace shmap::testing {
namespace {

// Runs the steps in `parts` parts, last part first, and compares. `taken`: for each result the
// operand whose memory it has, or -1; empty: none has any.
void run_and_compare(const FusedCase& c, const std::vector<Bytes>& operands,
                     const std::vector<Bytes>& wanted, const cpu::FusedStepList& list, int parts,
                     const std::vector<int>& taken = {}) {
  std::vector<Bytes> in = operands, out;
  for (const Bytes& w : wanted) out.emplace_back(w.size(), std::byte{0xcd});
  std::vector<const void*> sources;
  std::vector<void*> targets;
  for (const Bytes& b : in) sources.push_back(b.data());
  for (Bytes& b : out) targets.push_back(b.data());
  std::string pairs;
  for (std::size_t o = 0; o < taken.size(); ++o) {
    if (taken[o] < 0) continue;
    const auto i = static_cast<std::size_t>(taken[o]);
    out[o] = in[i];
    sources[i] = targets[o] = out[o].data();
    pairs += ", result " + std::to_string(o) + " in the memory of operand " + std::to_string(i);
  }
  for (int part = parts - 1; part >= 0; --part) {
    cpu::run_fused_steps(list, sources, targets, list.units * part / parts,
                         list.units * (part + 1) / parts);
  }
  for (std::size_t o = 0; o < out.size(); ++o) {
    EXPECT_EQ(difference(c.program->outputs()[o].type.dtype(), out[o], wanted[o]), "")
        << "output " << o << " of " << c.program->text() << "; parts " << parts << pairs;
  }
}

}  // namespace

void check_fused_case(const FusedCase& c) {
  std::vector<Bytes> operands, wanted;
  for (const Array& x : c.operands) operands.push_back(bytes_of(x));
  for (const Array& x : c.results) wanted.push_back(bytes_of(x));
  for (const std::int64_t around : {std::int64_t{INT64_MAX}, std::int64_t{1}}) {
    const cpu::FusedStepList list = cpu::make_fused_steps(*c.program, around);
    for (const int parts : {1, 2, 5}) run_and_compare(c, operands, wanted, list, parts);
    // Each result uses the memory of each operand that it may, then all results use such memory.
    std::vector<int> all(wanted.size(), -1);
    for (std::size_t o = 0; o < wanted.size(); ++o) {
      for (int i = 0; i < static_cast<int>(operands.size()); ++i) {
        if (!(list.overwrites[o] >> i & 1u)) continue;
        std::vector<int> one(wanted.size(), -1);
        one[o] = i;
        run_and_compare(c, operands, wanted, list, 2, one);
        if (all[o] < 0 && std::find(all.begin(), all.end(), i) == all.end()) all[o] = i;
      }
    }
    run_and_compare(c, operands, wanted, list, 2, all);
  }
  // Runs the program as the library does: in parts on its threads, and in the memory of an operand
  // that has no other owner.
  EXPECT_EQ(run_fused_case(c), "");
}

}  // namespace shmap::testing
