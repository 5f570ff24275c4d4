// The derivatives of attention on the CPU. If there are enough heads of k for all workers, the
// backward pass computes each head in one pass. Otherwise some parts are blocks of columns, for the
// cotangents of k and v, and others blocks of rows, for the cotangent of q; both compute the
// scores.
#include <algorithm>
#include <cstring>
#include <vector>

#include "core/cpu/ops/attention_heads.h"
#include "core/ops/attention_grad.h"

namespace shmap {

namespace {

// ---- backward

class GradHeads : public AttentionHeads {
 public:
  explicit GradHeads(const KernelCall& call)
      : AttentionHeads(call),
        p_(params_as<AttentionParams>(call.params)),
        call_(call),
        first_(attention_operands(p_)),
        out_(items(call.in_types[first_], p_.out_dims)),
        q_bar_(items(call.out_types[0], p_.q_dims)),
        k_bar_(items(call.out_types[1], p_.k_dims)),
        v_bar_(items(call.out_types[2], p_.v_dims)) {
    const Shape& scores = extents().scores;
    std::int64_t step = 1;
    firsts_ = members_ = {0};
    for (std::size_t i = scores.size() - 2; i-- > 0;) {
      std::vector<std::int64_t>& list = p_.k_dims[i] < 0 ? members_ : firsts_;
      const std::size_t count = list.size();
      for (std::int64_t e = 1; e < scores[i]; ++e)
        for (std::size_t j = 0; j < count; ++j) list.push_back(list[j] + e * step);
      step *= scores[i];
    }
  }

  // The number of heads of k, and the number of heads of q for each of them.
  std::int64_t k_heads() const { return static_cast<std::int64_t>(firsts_.size()); }
  std::int64_t shared() const { return static_cast<std::int64_t>(members_.size()); }

  cpu::AttentionGradHead head(std::int64_t k_head, std::int64_t member) const {
    const std::int64_t item =
        firsts_[static_cast<std::size_t>(k_head)] + members_[static_cast<std::size_t>(member)];
    cpu::AttentionGradHead h{AttentionHeads::head(item), {}, {}, nullptr, {}};
    h.out = {bytes(call_.in[first_]) + out_.offset(item), out_.row()};
    h.sums = static_cast<const float*>(call_.in[first_ + 1]) + item * 2 * q_rows();
    h.cotangent = {bytes(call_.in[first_ + 2]) + out_.offset(item), out_.row()};
    h.q_bar = {bytes(call_.out[0]) + q_bar_.offset(item), q_bar_.row()};
    return h;
  }
  std::vector<cpu::AttentionGradHead> heads(std::int64_t k_head) const {
    std::vector<cpu::AttentionGradHead> all;
    for (std::int64_t m = 0; m < shared(); ++m) all.push_back(head(k_head, m));
    return all;
  }
  cpu::AttentionResult k_bar(std::int64_t k_head) const { return result(1, k_bar_, k_head); }
  cpu::AttentionResult v_bar(std::int64_t k_head) const { return result(2, v_bar_, k_head); }

 private:
  cpu::AttentionResult result(std::size_t i, const HeadItems& x, std::int64_t k_head) const {
    return {bytes(call_.out[i]) + x.offset(firsts_[static_cast<std::size_t>(k_head)]), x.row()};
  }
  const AttentionParams& p_;
  const KernelCall& call_;
  std::size_t first_;
  HeadItems out_, q_bar_, k_bar_, v_bar_;
  // The first item of each head of k, and the offsets from it of the items that share this head.
  std::vector<std::int64_t> firsts_, members_;
};

// The number of matrix products per tile in one pass, and in two passes.
constexpr std::int64_t kOnePass = 5, kTwoPasses = 7;

int grad_parts(const KernelCall& call, int workers) {
  cpu::prepare_attention();
  const GradHeads heads(call);
  if (heads.is_empty()) return 1;
  const std::int64_t k_heads = heads.k_heads();
  const std::int64_t rounds = (k_heads + workers - 1) / workers;
  if (rounds * kOnePass * workers <= k_heads * kTwoPasses)
    return static_cast<int>(
        std::min<std::int64_t>(k_heads, std::int64_t{workers} * kAttentionPartsPerWorker));
  const cpu::AttentionHead like;
  const std::int64_t blocks =
      k_heads * (blocks_of(heads.k_rows(), like.column_block) +
                 heads.shared() * blocks_of(heads.q_rows(), like.row_block));
  // More parts than heads of k mean that there are two passes.
  return static_cast<int>(std::clamp<std::int64_t>(std::int64_t{workers} * kAttentionPartsPerWorker,
                                                   k_heads + 1, blocks));
}

void run_grad(const KernelCall& call) {
  const GradHeads heads(call);
  if (heads.is_empty()) {  // the sums are empty
    for (std::size_t i = 0; i < call.out.size(); ++i)
      std::memset(call.out[i], 0, static_cast<std::size_t>(call.out_types[i].nbytes()));
    return;
  }
  const std::int64_t k_heads = heads.k_heads();
  if (call.parts <= k_heads) {
    const auto [begin, end] = call.share(k_heads);
    for (std::int64_t h = begin; h < end; ++h)
      cpu::attention_grad(heads.heads(h), heads.k_bar(h), heads.v_bar(h));
    return;
  }
  const cpu::AttentionHead like;
  const std::int64_t column_blocks = blocks_of(heads.k_rows(), like.column_block),
                     row_blocks = blocks_of(heads.q_rows(), like.row_block),
                     all_columns = k_heads * column_blocks,
                     rows_per_head = heads.shared() * row_blocks;
  const auto [begin, end] = call.share(all_columns + k_heads * rows_per_head);
  for (std::int64_t i = begin; i < end; ++i) {
    if (i < all_columns) {
      const std::int64_t h = i / column_blocks, column = i % column_blocks * like.column_block;
      cpu::attention_grad_columns(heads.heads(h), column,
                                  std::min(heads.k_rows(), column + like.column_block),
                                  heads.k_bar(h), heads.v_bar(h));
    } else {
      const std::int64_t j = i - all_columns, row = j % row_blocks * like.row_block;
      cpu::attention_grad_rows(heads.head(j / rows_per_head, j % rows_per_head / row_blocks), row,
                               std::min(heads.q_rows(), row + like.row_block));
    }
  }
}

// ---- forward mode

void run_tangent(const KernelCall& call) {
  const AttentionHeads heads(call);
  if (heads.is_empty()) return;
  const auto& p = params_as<AttentionParams>(call.params);
  const std::size_t first = attention_operands(p);
  const HeadItems out = heads.items(call.out_types[0], p.out_dims);
  const Dims* const dims[] = {&p.q_dims, &p.k_dims, &p.v_dims};
  const std::int64_t block = cpu::AttentionHead().row_block,
                     per_head = blocks_of(heads.q_rows(), block);
  const auto [begin, end] = call.share(heads.count() * per_head);
  for (std::int64_t i = begin; i < end; ++i) {
    const std::int64_t item = i / per_head, row = i % per_head * block;
    cpu::AttentionTangentHead head{heads.head(item), {}, {}, {}, {}, nullptr};
    head.out = {bytes(call.in[first]) + out.offset(item), out.row()};
    head.sums = static_cast<const float*>(call.in[first + 1]) + item * 2 * heads.q_rows();
    cpu::AttentionMatrix* const moved[] = {&head.q_dot, &head.k_dot, &head.v_dot};
    for (std::size_t t = 0; t < p.tangents.size(); ++t) {
      const auto which = static_cast<std::size_t>(p.tangents[t]);
      const HeadItems x = heads.items(call.in_types[which], *dims[which]);
      *moved[which] = {bytes(call.in[first + 2 + t]) + x.offset(item), x.row()};
    }
    cpu::attention_tangent(head, row, std::min(heads.q_rows(), row + block),
                           {bytes(call.out[0]) + out.offset(item), out.row()});
  }
}

}  // namespace

void register_cpu_attention_grad_kernels() {
  attention_grad_p.kernel(DeviceKind::cpu) = {run_grad, grad_parts};
  attention_tangent_p.kernel(DeviceKind::cpu) = {run_tangent, attention_parts};
}

}  // namespace shmap
