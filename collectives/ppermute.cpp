// ppermute (varying -> varying), whose transpose is the inverse permutation; pshuffle.
#include <algorithm>

#include "collectives/batch_rules.h"
#include "collectives/group.h"
#include "collectives/primitives.h"
#include "collectives/scope.h"
#include "collectives/sharding_rules.h"
#include "core/base/inline_vector.h"
#include "core/ops/rules.h"

namespace shmap {

namespace {

void eval_ppermute(Types in, const Params&, std::span<ShapedArray> out) { out[0] = in[0]; }

void vary_ppermute(Types in, const Params& params, const detail::AxisEnv& env,
                   std::span<ShapedArray> out) {
  const auto& p = params_as<PermuteParams>(params);
  int last = -1;
  for (const auto& [from, to] : p.perm) last = std::max({last, from, to});
  require_rank(p.axes, last, env, "ppermute");
  varying_to_varying(in, p.axes, env, out, "ppermute");
}

void run_ppermute(GroupCall& call) {
  const auto& p = params_as<PermuteParams>(call.params);
  const GroupBlocks blocks = group_blocks(call, p.axes, {});
  if (blocks.cliques.ranks != 1) count(Counter::collectives);
  InlineVector<int, 32> source(blocks.cliques.ranks);
  std::fill(source.begin(), source.end(), -1);
  for (const auto& [from, to] : p.perm) source[static_cast<std::size_t>(to)] = from;
  communicator(blocks, CollectiveKind::permute).permute(blocks, source.span());
}

// The cotangent goes back to the sender. A rank that sent nothing gets zeros.
void transpose_ppermute(TransposeCall& call) {
  PermuteParams back = params_as<PermuteParams>(call.params);
  for (auto& [from, to] : back.perm) std::swap(from, to);
  call.out[0] = bind(ppermute_p, call.cotangents[0], back, call.source);
}

void check_perm(const std::vector<std::pair<int, int>>& perm, int ranks, const Axes& axes,
                SourceLine source) {
  std::vector<int> to_of(static_cast<std::size_t>(ranks), -1),
      from_of(static_cast<std::size_t>(ranks), -1);
  const auto text = [](int from, int to) {
    return "(" + std::to_string(from) + ", " + std::to_string(to) + ")";
  };
  const auto fail = [&](const std::string& problem) {
    throw ValueError("ppermute: perm: " + problem +
                     ". Pairs are (from, to), and no rank may be twice in either place" +
                     at_line(source));
  };
  for (const auto& [from, to] : perm) {
    if (from < 0 || from >= ranks || to < 0 || to >= ranks) {
      fail("the pair " + text(from, to) + " is out of range: there are " +
           describe_ranks(axes, ranks));
    }
    int& sent_to = to_of[static_cast<std::size_t>(from)];
    int& taken_from = from_of[static_cast<std::size_t>(to)];
    if (sent_to >= 0) {
      fail("the pairs " + text(from, sent_to) + " and " + text(from, to) +
           " have the same source, rank " + std::to_string(from));
    }
    if (taken_from >= 0) {
      fail("the pairs " + text(taken_from, to) + " and " + text(from, to) +
           " have the same destination, rank " + std::to_string(to));
    }
    sent_to = to;
    taken_from = from;
  }
}

Array permute(const Array& x, const Axes& axes, std::vector<std::pair<int, int>> perm,
              const AxesInScope& scope, const char* what, SourceLine source) {
  return bind(ppermute_p, cast_to_varying(x, axes, scope, what, source),
              PermuteParams(axes, std::move(perm)), source);
}

}  // namespace

constinit Primitive ppermute_p = [] {
  Primitive p;
  p.name = "ppermute";
  p.abstract_eval = eval_ppermute;
  p.variance = vary_ppermute;
  p.group = run_ppermute;
  p.sharding = Rule<ShardingRuleFn>(split_as_operand);
  p.batching = Rule<BatchFn>(batch_in_place);
  p.traffic = Traffic::permute;
  p.jvp = Rule<JvpFn>(jvp_linear);
  p.transpose = Rule<TransposeFn>(transpose_ppermute);
  return p;
}();

void register_collectives_ppermute() { register_primitive(ppermute_p); }

namespace detail {

Array ppermute_leaf(const Array& x, const Axes& axes, const std::vector<std::pair<int, int>>& perm,
                    SourceLine source) {
  const AxesInScope scope(axes, "ppermute", source);
  check_perm(perm, scope.ranks, axes, source);
  return permute(x, axes, perm, scope, "ppermute", source);
}

Array pshuffle_leaf(const Array& x, const Axes& axes, const std::vector<int>& perm,
                    SourceLine source) {
  const AxesInScope scope(axes, "pshuffle", source);
  std::vector<int> sorted = perm;
  std::sort(sorted.begin(), sorted.end());
  bool whole = static_cast<int>(sorted.size()) == scope.ranks;
  for (std::size_t r = 0; whole && r < sorted.size(); ++r) whole = sorted[r] == static_cast<int>(r);
  if (!whole) {
    std::string given;
    for (int r : perm) given += (given.empty() ? "" : ", ") + std::to_string(r);
    throw ValueError("pshuffle: perm {" + given + "} is not a permutation of the " +
                     describe_ranks(axes, scope.ranks) +
                     ": it must hold each rank once; ppermute takes pairs and may leave ranks out" +
                     at_line(source));
  }
  std::vector<std::pair<int, int>> pairs;
  for (std::size_t r = 0; r < perm.size(); ++r) pairs.emplace_back(perm[r], static_cast<int>(r));
  return permute(x, axes, std::move(pairs), scope, "pshuffle", source);
}

}  // namespace detail
std::vector<std::pair<int, int>> ring_permutation(const Axes& axes, int shift, SourceLine source) {
  const int n = axis_size(axes, source);
  const int by = (shift % n + n) % n;
  std::vector<std::pair<int, int>> perm;
  for (int r = 0; r < n; ++r) perm.emplace_back(r, (r + by) % n);
  return perm;
}

}  // namespace shmap
