#include "core/compiler/lowering/partition.h"

#include <algorithm>

#include "collectives/block_collectives.h"

namespace shmap {

namespace {

using AxisList = std::vector<int>;

// Which mesh axes split each factor.
class Assignment {
 public:
  Assignment(const FactorRule& rule, const detail::MeshImpl* mesh) : rule_(rule), mesh_(mesh) {
    axes_.resize(rule.factors.size());
  }

  // Adopts an operand's sharding, dim by dim, where the factors allow it and no mesh axis is used
  // twice. Of a dim with several factors only the major one can be split, because a block must be
  // contiguous in the dim.
  void adopt(const Sharding& sharding, const std::vector<std::vector<int>>& dims,
             std::size_t operand = 0, PartitionReasons* reasons = nullptr) {
    for (std::size_t d = 0; d < dims.size() && d < sharding.dims().size(); ++d) {
      const AxisList& axes = sharding.dims()[d];
      if (axes.empty()) continue;
      const int f = major(dims[d]);
      const auto refuse = [&](PartitionReasons::Why why) {
        if (reasons) reasons->refused.push_back({operand, d, axes, why});
      };
      using Why = PartitionReasons::Why;
      if (f < 0 || rule_.factors[static_cast<std::size_t>(f)].kind == FactorKind::blocked) {
        refuse(Why::blocked);
        continue;
      }
      AxisList& mine = axes_[static_cast<std::size_t>(f)];
      if (!mine.empty() || clashes(axes)) {
        if (mine != axes) refuse(mine.empty() ? Why::taken : Why::decided);
        continue;
      }
      std::int64_t parts = 1;
      for (int a : axes) parts *= mesh_->env()->sizes[static_cast<std::size_t>(a)];
      if (rule_.factors[static_cast<std::size_t>(f)].size % parts != 0) {
        refuse(Why::indivisible);
        continue;
      }
      if (!major_everywhere(f)) {
        refuse(Why::minor);
        continue;
      }
      mine = axes;
      for (int a : axes) used_ |= 1u << a;
      if (reasons) reasons->split.push_back({f, axes, operand, d});
    }
  }

  // The sharding of a value with these factors in its dims. It is usually one of `known` (entries
  // may be null), which saves making a spec.
  const Sharding* sharding(const std::vector<std::vector<int>>& dims,
                           const std::vector<const Sharding*>& known) const {
    for (const Sharding* s : known)
      if (s && is(*s, dims)) return s;
    std::vector<PartitionSpec::Entry> entries;
    for (const std::vector<int>& factors : dims) {
      const int f = major(factors);
      std::vector<std::string> names;
      if (f >= 0) {
        for (int a : axes_[static_cast<std::size_t>(f)])
          names.push_back(mesh_->env()->names[static_cast<std::size_t>(a)]);
      }
      entries.emplace_back(Axes(names));
    }
    return mesh_->sharding(PartitionSpec(std::move(entries)));
  }

  AxisList of_kind(FactorKind kind) const {
    AxisList out;
    for (std::size_t f = 0; f < axes_.size(); ++f)
      if (rule_.factors[f].kind == kind) out.insert(out.end(), axes_[f].begin(), axes_[f].end());
    std::sort(out.begin(), out.end());
    return out;
  }

 private:
  bool is(const Sharding& s, const std::vector<std::vector<int>>& dims) const {
    static const AxisList none;
    if (s.dims().size() > dims.size()) return false;
    for (std::size_t d = 0; d < dims.size(); ++d) {
      const int f = major(dims[d]);
      const AxisList& axes = f < 0 ? none : axes_[static_cast<std::size_t>(f)];
      if (axes != (d < s.dims().size() ? s.dims()[d] : none)) return false;
    }
    return true;
  }
  int major(const std::vector<int>& factors) const {
    for (int f : factors)
      if (rule_.factors[static_cast<std::size_t>(f)].size != 1) return f;
    return -1;
  }
  bool clashes(const AxisList& axes) const {
    return std::any_of(axes.begin(), axes.end(), [&](int a) { return used_ >> a & 1u; });
  }
  bool major_everywhere(int f) const {
    const auto fits = [&](const std::vector<std::vector<std::vector<int>>>& values) {
      for (const auto& dims : values)
        for (const auto& factors : dims)
          if (std::find(factors.begin(), factors.end(), f) != factors.end() && major(factors) != f)
            return false;
      return true;
    };
    return fits(rule_.operands) && fits(rule_.results);
  }

  const FactorRule& rule_;
  const detail::MeshImpl* mesh_;
  std::vector<AxisList> axes_;
  std::uint32_t used_ = 0;
};

std::int64_t ways(const Sharding* s) {
  std::int64_t n = 1;
  for (std::size_t d = 0; d < s->dims().size(); ++d) n *= s->parts(d);
  return n;
}

std::vector<ShapedArray> blocks(Types types, const std::vector<const Sharding*>& shardings) {
  std::vector<ShapedArray> out;
  for (std::size_t i = 0; i < types.size(); ++i) {
    out.push_back(shardings[i]
                      ? ShapedArray(shardings[i]->block_shape(types[i].dims(), "partition"),
                                    types[i].dtype(), types[i].weak(), AxisSet())
                      : types[i]);
  }
  return out;
}

}  // namespace

Partition partition(const Primitive& primitive, Types in, Types out, const Params& params,
                    const std::vector<const Sharding*>& given, const detail::MeshImpl* mesh,
                    PartitionReasons* reasons) {
  Partition result;
  if (!primitive.sharding) {
    for (const Sharding* s : given) result.operands.push_back(s ? mesh->replicated() : nullptr);
    result.results.assign(out.size(), mesh->replicated());
    return result;
  }
  const FactorRule rule = primitive.sharding.get()(in, params, out);
  Assignment assignment(rule, mesh);
  // The operand with the most parts decides first; among equals the larger, then the earlier one.
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < in.size(); ++i)
    if (given[i]) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const std::int64_t wa = ways(given[a]), wb = ways(given[b]);
    return wa != wb ? wa > wb : in[a].size() > in[b].size();
  });
  for (std::size_t i : order) assignment.adopt(*given[i], rule.operands[i], i, reasons);
  if (reasons) reasons->rule = rule;
  for (std::size_t i = 0; i < in.size(); ++i)
    result.operands.push_back(given[i] ? assignment.sharding(rule.operands[i], given) : nullptr);
  for (const auto& dims : rule.results) result.results.push_back(assignment.sharding(dims, given));
  result.sum_axes = assignment.of_kind(FactorKind::sum);
  result.max_axes = assignment.of_kind(FactorKind::max);
  result.min_axes = assignment.of_kind(FactorKind::min);
  // A sum of bools is their "or".
  if (!out.empty() && out[0].dtype() == DType::bool_) {
    result.max_axes.insert(result.max_axes.end(), result.sum_axes.begin(), result.sum_axes.end());
    result.sum_axes.clear();
  }
  if (rule.localize) {
    result.local_params =
        rule.localize(params, blocks(in, result.operands), blocks(out, result.results));
  }
  return result;
}

std::vector<const Sharding*> operands_for_results(const Primitive& primitive, Types in, Types out,
                                                  const Params& params,
                                                  const std::vector<const Sharding*>& wanted,
                                                  const detail::MeshImpl* mesh) {
  std::vector<const Sharding*> operands(in.size(), mesh->replicated());
  if (!primitive.sharding) return operands;
  const FactorRule rule = primitive.sharding.get()(in, params, out);
  Assignment assignment(rule, mesh);
  for (std::size_t o = 0; o < out.size(); ++o)
    if (wanted[o]) assignment.adopt(*wanted[o], rule.results[o]);
  for (std::size_t i = 0; i < in.size(); ++i)
    operands[i] = assignment.sharding(rule.operands[i], wanted);
  return operands;
}

void run_partitioned(Trace& trace, const Primitive& primitive, const Partition& plan,
                     std::span<Array> blocks, const Params& params, std::span<Array> out,
                     SourceLine source) {
  trace.process(primitive, blocks, plan.local_params ? *plan.local_params : params, out, source);
  const auto combine = [&](const std::vector<int>& axes, FactorKind kind) {
    if (axes.empty()) return;
    TraceScope scope(trace);
    for (Array& x : out) x = combine_block(x, axes, kind, source);
  };
  combine(plan.sum_axes, FactorKind::sum);
  combine(plan.max_axes, FactorKind::max);
  combine(plan.min_axes, FactorKind::min);
}

}  // namespace shmap
