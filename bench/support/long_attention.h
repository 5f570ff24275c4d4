// Attention over a long sequence, written in operations, and its values in double.
#pragma once
#include <shmap/shmap.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "bench/support/data.h"

namespace shmap::bench {

// softmax(q kᵀ / 8) v of 8 heads of 64 features, in arrays [1, 2048, 8, 64]; its loss is half the
// sum of the squares of the result. One head of the results is checked.
class LongAttention {
 public:
  static constexpr std::size_t kRows = 2048, kHeads = 8, kFeatures = 64, kChecked = 3;
  static constexpr double kFlops = 4. * kHeads * kRows * kRows * kFeatures;

  static Array result(const Array& q, const Array& k, const Array& v) {
    const Array scores = einsum("bqhd,bkhd->bhqk", q, k) * 0.125f;
    return einsum("bhqk,bkhd->bqhd", softmax(scores), v);
  }
  static Array loss(const Array& q, const Array& k, const Array& v) {
    return sum(square(result(q, k, v))) * 0.5f;
  }

  Array operand(std::size_t which) const {
    return array<float>(values_[which], {1, kRows, kHeads, kFeatures});
  }
  std::string check_result(const Array& got) const { return check("the result", got, want_[0]); }
  std::string check_gradient(const Array& of_q, const Array& of_k, const Array& of_v) const {
    std::string fault = check("q's gradient", of_q, want_[1]);
    if (fault.empty()) fault = check("k's gradient", of_k, want_[2]);
    return fault.empty() ? check("v's gradient", of_v, want_[3]) : fault;
  }

  LongAttention() {
    std::vector<double> x[3];  // q, k, v of the checked head
    for (std::size_t n = 0; n < 3; ++n) {
      values_[n] = random_floats(kRows * kHeads * kFeatures, 60 + n);
      const std::vector<float> head = checked(values_[n]);
      x[n].assign(head.begin(), head.end());
    }
    for (std::vector<double>& w : want_) w.assign(kRows * kFeatures, 0.0);
    std::vector<double> weights(kRows), bars(kRows);
    for (std::size_t r = 0; r < kRows; ++r) {
      const double* q = &x[0][r * kFeatures];
      double* y = &want_[0][r * kFeatures];
      double total = 0;
      for (std::size_t c = 0; c < kRows; ++c) {
        weights[c] = std::exp(dot(q, &x[1][c * kFeatures]) * 0.125);
        total += weights[c];
      }
      for (std::size_t c = 0; c < kRows; ++c) {
        weights[c] /= total;
        add(weights[c], &x[2][c * kFeatures], y);
      }
      // The cotangent of the result is the result.
      const double mean = dot(y, y);
      for (std::size_t c = 0; c < kRows; ++c) {
        bars[c] = weights[c] * (dot(y, &x[2][c * kFeatures]) - mean) * 0.125;
        add(bars[c], &x[1][c * kFeatures], &want_[1][r * kFeatures]);
        add(bars[c], q, &want_[2][c * kFeatures]);
        add(weights[c], y, &want_[3][c * kFeatures]);
      }
    }
  }

 private:
  static double dot(const double* a, const double* b) {
    double s = 0;
    for (std::size_t d = 0; d < kFeatures; ++d) s += a[d] * b[d];
    return s;
  }
  static void add(double factor, const double* a, double* to) {
    for (std::size_t d = 0; d < kFeatures; ++d) to[d] += factor * a[d];
  }
  // The checked head, [2048, 64].
  static std::vector<float> checked(const std::vector<float>& all) {
    std::vector<float> head;
    for (std::size_t r = 0; r < kRows; ++r) {
      const float* row = &all[(r * kHeads + kChecked) * kFeatures];
      head.insert(head.end(), row, row + kFeatures);
    }
    return head;
  }
  static std::string check(const char* name, const Array& got, const std::vector<double>& want) {
    double largest = 0;
    for (const double w : want) largest = std::max(largest, std::fabs(w));
    const std::string fault = difference(checked(got.to_vector<float>()), want, 1e-4 * largest);
    return fault.empty() ? fault : std::string(name) + ": " + fault;
  }

  std::vector<float> values_[3];  // q, k, v
  std::vector<double> want_[4];   // the result, and the gradients of q, k and v
};

}  // namespace shmap::bench
