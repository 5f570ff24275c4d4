// einsum as a chain of dot_generals. Letters that occur in one operand only are summed first; then
// the pair of operands with the smallest product is contracted, until one operand is left.
#include <algorithm>
#include <array>
#include <map>
#include <string>

#include "core/ops/dot.h"
#include "core/ops/einsum_spec.h"
#include "core/ops/promote.h"
#include "core/ops/shape_params.h"
#include "shmap/ops.h"

namespace shmap {

namespace {

using Label = EinsumLabel;
using Labels = EinsumLabels;
using Parser = EinsumSpec;

struct Term {
  Array value;
  Labels labels;
};

class Contraction {
 public:
  Contraction(const Parser& parser, std::vector<Array>& operands, SourceLine source)
      : parser_(parser), source_(source) {
    std::map<Label, std::size_t> named_by;  // the operand that has the label's size
    for (std::size_t i = 0; i < operands.size(); ++i) {
      const Shape shape = operands[i].shape();
      for (std::size_t d = 0; d < shape.size(); ++d) {
        const Label l = parser.inputs[i][d];
        auto [it, fresh] = sizes_.emplace(l, shape[d]);
        if (fresh) named_by[l] = i;
        if (fresh || it->second == shape[d] || shape[d] == 1) continue;
        if (it->second != 1) {
          parser.fail(label_name(l) + " has size " + std::to_string(it->second) + " in operand " +
                      std::to_string(named_by[l]) + " and size " + std::to_string(shape[d]) +
                      " in operand " + std::to_string(i) + ", of types " +
                      to_string(operands[named_by[l]].type()) + " and " +
                      to_string(operands[i].type()) + ": they must be equal, or one of them 1");
        }
        it->second = shape[d];
        named_by[l] = i;
      }
    }
    for (std::size_t i = 0; i < operands.size(); ++i)
      terms_.push_back({std::move(operands[i]), parser.inputs[i]});
  }

  Array run() {
    for (Term& t : terms_) {
      take_diagonals(t);
      drop_broadcast_dims(t);
    }
    for (std::size_t i = 0; i < terms_.size(); ++i) sum_alone(i);
    while (terms_.size() > 1) contract_smallest();
    return finish(std::move(terms_.front()));
  }

 private:
  // Takes the diagonal of x[…, i, …, i, …]: the two dims are moved to the end and flattened; every
  // (n + 1)th element is on the diagonal.
  void take_diagonals(Term& t) {
    for (std::size_t first = 0; first < t.labels.size(); ++first) {
      const auto again = std::find(t.labels.begin() + static_cast<std::ptrdiff_t>(first) + 1,
                                   t.labels.end(), t.labels[first]);
      if (again == t.labels.end()) continue;
      const auto second = static_cast<std::size_t>(again - t.labels.begin());
      const Shape shape = t.value.shape();
      const std::int64_t n = shape[first];
      if (n != shape[second]) {
        parser_.fail(label_name(t.labels[first]) + " names dims of sizes " + std::to_string(n) +
                     " and " + std::to_string(shape[second]) + " of one operand");
      }
      std::vector<std::int64_t> order;
      Labels labels;
      Shape flat;
      for (std::size_t d = 0; d < shape.size(); ++d) {
        if (d == first || d == second) continue;
        order.push_back(static_cast<std::int64_t>(d));
        labels.push_back(t.labels[d]);
        flat.push_back(shape[d]);
      }
      order.push_back(static_cast<std::int64_t>(first));
      order.push_back(static_cast<std::int64_t>(second));
      labels.push_back(t.labels[first]);
      flat.push_back(n * n);
      Array x =
          bind_reshape(bind_transpose(std::move(t.value), Dims(order), source_), flat, source_);
      std::vector<std::int64_t> start(flat.size(), 0), stride(flat.size(), 1);
      stride.back() = n + 1;
      t.value = slice(Operand(std::move(x), source_.file, source_.line), Dims(start),
                      Dims(std::vector<std::int64_t>(flat.begin(), flat.end())), Dims(stride));
      t.labels = labels;
      return take_diagonals(t);
    }
  }

  // Drops a dim of size 1 whose label has a greater size elsewhere, since it is broadcast; it is
  // kept where no other operand has the label.
  void drop_broadcast_dims(Term& t) {
    const Shape shape = t.value.shape();
    Shape kept;
    Labels labels;
    for (std::size_t d = 0; d < shape.size(); ++d) {
      if (shape[d] == 1 && sizes_.at(t.labels[d]) != 1) continue;
      kept.push_back(shape[d]);
      labels.push_back(t.labels[d]);
    }
    if (labels.size() == t.labels.size()) return;
    t.value = bind_reshape(std::move(t.value), kept, source_);
    t.labels = labels;
  }

  bool needed_elsewhere(Label l, std::size_t a, std::size_t b) const {
    if (has_label(parser_.output, l)) return true;
    for (std::size_t i = 0; i < terms_.size(); ++i)
      if (i != a && i != b && has_label(terms_[i].labels, l)) return true;
    return false;
  }

  void sum_alone(std::size_t i) {
    Term& t = terms_[i];
    std::vector<int> over;
    Labels kept;
    for (std::size_t d = 0; d < t.labels.size(); ++d) {
      if (needed_elsewhere(t.labels[d], i, i)) {
        kept.push_back(t.labels[d]);
      } else {
        over.push_back(static_cast<int>(d));
      }
    }
    if (over.empty()) return;
    t.value = sum(Operand(std::move(t.value), source_.file, source_.line), Dims(over));
    t.labels = kept;
  }

  double result_size(std::size_t a, std::size_t b) const {
    double n = 1;
    for (std::size_t i : {a, b})
      for (Label l : terms_[i].labels)
        if (needed_elsewhere(l, a, b) && !(i == b && has_label(terms_[a].labels, l)))
          n *= static_cast<double>(sizes_.at(l));
    return n;
  }

  void contract_smallest() {
    std::size_t best_a = 0, best_b = 1;
    double best = result_size(0, 1);
    for (std::size_t a = 0; a < terms_.size(); ++a) {
      for (std::size_t b = a + 1; b < terms_.size(); ++b) {
        if (terms_.size() == 2) break;
        const double n = result_size(a, b);
        if (n < best) {
          best = n;
          best_a = a;
          best_b = b;
        }
      }
    }
    Term joint = contract(best_a, best_b);
    terms_.erase(terms_.begin() + static_cast<std::ptrdiff_t>(best_b));
    terms_[best_a] = std::move(joint);
  }

  Term contract(std::size_t a, std::size_t b) {
    Term &left = terms_[a], &right = terms_[b];
    std::vector<int> lhs_contracting, rhs_contracting, lhs_batch, rhs_batch;
    Labels batch, free;
    const auto place = [](const Labels& labels, Label l) {
      return static_cast<int>(std::find(labels.begin(), labels.end(), l) - labels.begin());
    };
    for (std::size_t d = 0; d < left.labels.size(); ++d) {
      const Label l = left.labels[d];
      if (!has_label(right.labels, l)) {
        free.push_back(l);
      } else if (needed_elsewhere(l, a, b)) {
        lhs_batch.push_back(static_cast<int>(d));
        rhs_batch.push_back(place(right.labels, l));
        batch.push_back(l);
      } else {
        lhs_contracting.push_back(static_cast<int>(d));
        rhs_contracting.push_back(place(right.labels, l));
      }
    }
    for (Label l : right.labels)
      if (!has_label(left.labels, l)) free.push_back(l);
    DotParams p;
    p.lhs_contracting = Dims(lhs_contracting);
    p.rhs_contracting = Dims(rhs_contracting);
    p.lhs_batch = Dims(lhs_batch);
    p.rhs_batch = Dims(rhs_batch);
    Operand x(std::move(left.value), source_.file, source_.line),
        y(std::move(right.value), source_.file, source_.line);
    promote(x, y, "einsum");
    batch.insert(batch.end(), free.begin(), free.end());
    return {bind_dot(std::move(x.value), std::move(y.value), p, source_), std::move(batch)};
  }

  Array finish(Term t) {
    // Every label of the output is still a dim of the term (drop_broadcast_dims keeps it), so that
    // only a permutation is left.
    std::vector<std::int64_t> order;
    for (Label l : parser_.output)
      order.push_back(std::find(t.labels.begin(), t.labels.end(), l) - t.labels.begin());
    return bind_transpose(std::move(t.value), Dims(order), source_);
  }

  const Parser& parser_;
  SourceLine source_;
  std::map<Label, std::int64_t> sizes_;
  std::vector<Term> terms_;
};

}  // namespace

namespace detail {

Array einsum(Subscripts subscripts, std::vector<Array> operands) {
  if (operands.empty())
    throw ValueError("einsum: no operands were given" + at_line(subscripts.source));
  for (const Array& x : operands)
    type_of(Operand(x, subscripts.source.file, subscripts.source.line), "einsum");
  const FunctionScope scope("einsum", operands, subscripts.source);
  const Parser parser("einsum", subscripts, operands);
  return Contraction(parser, operands, subscripts.source).run();
}

}  // namespace detail
}  // namespace shmap
