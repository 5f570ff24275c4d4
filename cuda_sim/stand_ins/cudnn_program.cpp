#include "cudnn_program.h"

#include <algorithm>
#include <cmath>

#include "shmap/half.h"

namespace shmap_sim {

namespace {

using shmap::cudnn::Data;
using shmap::cudnn::Kind;
using shmap::cudnn::Pointwise;
using shmap::cudnn::Reduction;

std::int64_t count_of(const Four& dims) { return dims[0] * dims[1] * dims[2] * dims[3]; }

template <class F>
void each(const Four& dims, F f) {
  Four i;
  for (i[0] = 0; i[0] < dims[0]; ++i[0])
    for (i[1] = 0; i[1] < dims[1]; ++i[1])
      for (i[2] = 0; i[2] < dims[2]; ++i[2])
        for (i[3] = 0; i[3] < dims[3]; ++i[3]) f(i);
}

float rounded(float value, Data type) {
  return type == Data::f16    ? static_cast<float>(shmap::float16(value))
         : type == Data::bf16 ? static_cast<float>(shmap::bfloat16(value))
                              : value;
}

// The elements of a tensor: in memory by its strides; intermediate tensors are packed.
class Values {
 public:
  Values(const DnnTensor& t, void* memory, std::vector<float>* kept)
      : t_(t), memory_(memory), kept_(kept) {}

  // i: an index of the operation's result; a dim of one element repeats.
  float get(Four i) const {
    const std::int64_t at = place(i);
    if (kept_ != nullptr) return (*kept_)[static_cast<std::size_t>(at)];
    switch (t_.type) {
      case Data::f16:
        return static_cast<float>(static_cast<const shmap::float16*>(memory_)[at]);
      case Data::bf16:
        return static_cast<float>(static_cast<const shmap::bfloat16*>(memory_)[at]);
      case Data::i32:
        return static_cast<float>(static_cast<const std::int32_t*>(memory_)[at]);
      default:
        return static_cast<const float*>(memory_)[at];
    }
  }
  void set(const Four& i, float value) const {
    const std::int64_t at = place(i);
    if (kept_ != nullptr)
      (*kept_)[static_cast<std::size_t>(at)] = rounded(value, t_.type);
    else if (t_.type == Data::f16)
      static_cast<shmap::float16*>(memory_)[at] = shmap::float16(value);
    else if (t_.type == Data::bf16)
      static_cast<shmap::bfloat16*>(memory_)[at] = shmap::bfloat16(value);
    else
      static_cast<float*>(memory_)[at] = value;
  }

 private:
  std::int64_t place(const Four& i) const {
    std::int64_t at = 0, packed = 1;
    for (std::size_t d = 4; d-- > 0;) {
      const std::int64_t index = t_.dims[d] == 1 ? 0 : i[d];
      at += index * (kept_ != nullptr ? packed : t_.strides[d]);
      packed *= t_.dims[d];
    }
    return at;
  }
  const DnnTensor& t_;
  void* memory_;
  std::vector<float>* kept_;
};

float pointwise(Pointwise mode, const float* x) {
  switch (mode) {
    case Pointwise::add:
      return x[0] + x[1];
    case Pointwise::mul:
      return x[0] * x[1];
    case Pointwise::div:
      return x[0] / x[1];
    case Pointwise::sub:
      return x[0] - x[1];
    case Pointwise::exp:
      return std::exp(x[0]);
    case Pointwise::log:
      return std::log(x[0]);
    case Pointwise::greater_equal:
      return x[0] >= x[1] ? 1.0f : 0.0f;
    case Pointwise::select:
      return x[2] != 0 ? x[0] : x[1];
    default:
      return x[0];
  }
}

std::size_t operands_of(Pointwise mode) {
  switch (mode) {
    case Pointwise::exp:
    case Pointwise::log:
    case Pointwise::identity:
    case Pointwise::index:
      return 1;
    case Pointwise::select:
      return 3;
    default:
      return 2;
  }
}

class Run {
 public:
  Run(const std::map<std::int64_t, void*>& addresses, bool backwards)
      : addresses_(addresses), backwards_(backwards) {}

  void operator()(const DnnOperation& op) {
    const Values y = values(op.y);
    std::vector<Values> x;
    for (const DnnTensor& t : op.x) x.push_back(values(t));
    switch (op.kind) {
      case Kind::pointwise_operation:
        each(op.y.dims, [&](const Four& i) {
          float given[3] = {};
          for (std::size_t n = 0; n < x.size(); ++n) given[n] = x[n].get(i);
          if (op.mode == Pointwise::index)
            given[0] = static_cast<float>(i[static_cast<std::size_t>(op.axis)]);
          y.set(i, pointwise(op.mode, given));
        });
        break;
      case Kind::matmul_operation: {
        const std::int64_t group = op.y.dims[1] / op.x[1].dims[1];
        each(op.y.dims, [&](const Four& i) {
          y.set(i, sum(op.x[0].dims[3], [&](std::int64_t l) {
                  return x[0].get({i[0], i[1], i[2], l}) * x[1].get({i[0], i[1] / group, l, i[3]});
                }));
        });
        break;
      }
      case Kind::reduction_operation: {
        Four runs;
        for (std::size_t d = 0; d < 4; ++d) runs[d] = op.x[0].dims[d] / op.y.dims[d];
        each(op.y.dims, [&](const Four& i) {
          float most = -INFINITY;
          const auto at = [&](std::int64_t l) {
            Four from;
            for (std::size_t d = 4; d-- > 0; l /= runs[d]) from[d] = i[d] * runs[d] + l % runs[d];
            return x[0].get(from);
          };
          if (op.reduction == Reduction::add) {
            y.set(i, sum(count_of(runs), at));
            return;
          }
          for (std::int64_t l = 0; l < count_of(runs); ++l) most = std::max(most, at(l));
          y.set(i, most);
        });
        break;
      }
      default:  // a transposition
        each(op.y.dims, [&](const Four& i) { y.set(i, x[0].get({i[0], i[1], i[3], i[2]})); });
    }
  }

 private:
  template <class F>
  float sum(std::int64_t n, F term) const {
    float total = 0;
    for (std::int64_t l = 0; l < n; ++l) total += term(backwards_ ? n - 1 - l : l);
    return total;
  }
  Values values(const DnnTensor& t) {
    if (!t.is_virtual) return Values(t, addresses_.at(t.id), nullptr);
    std::vector<float>& kept = kept_[t.id];
    kept.resize(static_cast<std::size_t>(count_of(t.dims)));
    return Values(t, nullptr, &kept);
  }

  const std::map<std::int64_t, void*>& addresses_;
  bool backwards_;
  std::map<std::int64_t, std::vector<float>> kept_;
};

bool repeats_to(const Four& from, const Four& to) {
  for (std::size_t d = 0; d < 4; ++d)
    if (from[d] != 1 && from[d] != to[d]) return false;
  return true;
}

}  // namespace

bool fits(const DnnOperation& op) {
  const Four& y = op.y.dims;
  switch (op.kind) {
    case Kind::pointwise_operation:
      return op.x.size() == operands_of(op.mode) &&
             (op.mode != Pointwise::index || (op.axis >= 0 && op.axis < 4)) &&
             std::ranges::all_of(op.x, [&](const DnnTensor& x) { return repeats_to(x.dims, y); });
    case Kind::matmul_operation: {
      if (op.x.size() != 2) return false;
      const Four &a = op.x[0].dims, &b = op.x[1].dims;
      return a == Four{y[0], y[1], y[2], a[3]} && b[0] == y[0] && y[1] % b[1] == 0 &&
             b[2] == a[3] && b[3] == y[3];
    }
    case Kind::reduction_operation:
      if (op.x.size() != 1) return false;
      for (std::size_t d = 0; d < 4; ++d)
        if (op.x[0].dims[d] % y[d] != 0) return false;
      return true;
    default: {
      if (op.x.size() != 1) return false;
      const Four &x = op.x[0].dims, &s = op.x[0].strides, &t = op.y.strides;
      return y == Four{x[0], x[1], x[3], x[2]} && t == Four{s[0], s[1], s[3], s[2]};
    }
  }
}

void run(const std::vector<DnnOperation>& operations,
         const std::map<std::int64_t, void*>& addresses, bool backwards) {
  Run one(addresses, backwards);
  for (const DnnOperation& operation : operations) one(operation);
}

}  // namespace shmap_sim
