#include "tests/support/numeric_rules.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <sstream>

#include "core/transforms/autodiff/linearize.h"
#include "shmap/shmap.h"

namespace shmap::testing {

namespace {

constexpr double kStep = 1e-5;

bool is_active(const Array& x) { return is_floating(x.dtype()); }

std::vector<bool> active_of(const Arrays& at) {
  std::vector<bool> out;
  for (const Array& x : at) out.push_back(is_active(x));
  return out;
}

// One array for each operand: an element of `v` for an active operand, else an empty array.
Arrays per_operand(const Arrays& at, const Arrays& v) {
  Arrays out;
  std::size_t next = 0;
  for (const Array& x : at) out.push_back(is_active(x) ? v[next++] : Array());
  return out;
}

// The tangents of the floating results, with zeros as arrays.
Arrays explicit_tangents(const Arrays& outs, const Arrays& tangents) {
  Arrays out;
  for (std::size_t o = 0; o < outs.size(); ++o) {
    if (!is_floating(outs[o].dtype())) {
      if (tangents[o].node()) throw Error("a result that is no float has a tangent");
      continue;
    }
    out.push_back(or_zeros(tangents[o], outs[o].type(), {}));
  }
  return out;
}

// f as the transforms call it.
struct Body {
  const ArrayFn& f;
  void operator()(std::vector<Array>& leaves, detail::FlatTree& result) const {
    result.leaves = f(leaves);
  }
};

Linearized linearized(const ArrayFn& f, const Arrays& at, const std::vector<bool>& active) {
  Body body{f};
  detail::FlatTree result;
  return linearize_of(detail::BodyRef(body), at, active, result, {});
}

std::vector<double> numbers(const Array& x) { return astype(x, f64).to_vector<double>(); }

double greatest(const Arrays& xs) {
  double most = 0;
  for (const Array& x : xs)
    for (double v : numbers(x)) most = std::max(most, std::abs(v));
  return most;
}

double inner(const Arrays& a, const Arrays& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const std::vector<double> x = numbers(a[i]), y = numbers(b[i]);
    for (std::size_t k = 0; k < x.size(); ++k) sum += x[k] * y[k];
  }
  return sum;
}

// The sum of |x y|, to which the rounding of an inner product is relative.
double inner_scale(const Arrays& a, const Arrays& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const std::vector<double> x = numbers(a[i]), y = numbers(b[i]);
    for (std::size_t k = 0; k < x.size(); ++k) sum += std::abs(x[k] * y[k]);
  }
  return sum;
}

// Returns the first position where two lists of arrays differ by more than `atol`, or "".
std::string difference(const char* what, const Arrays& got, const Arrays& want, double atol) {
  std::ostringstream out;
  if (got.size() != want.size()) {
    out << what << ": " << got.size() << " values instead of " << want.size() << "\n";
    return out.str();
  }
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (!(got[i].shape() == want[i].shape())) {
      out << what << "[" << i << "] has shape " << to_string(got[i].shape()) << " instead of "
          << to_string(want[i].shape()) << "\n";
      return out.str();
    }
    const std::vector<double> x = numbers(got[i]), y = numbers(want[i]);
    for (std::size_t k = 0; k < x.size(); ++k) {
      if (std::abs(x[k] - y[k]) <= atol || (std::isnan(x[k]) && std::isnan(y[k]))) continue;
      out << what << "[" << i << "] element " << k << ": " << x[k] << " instead of " << y[k]
          << " (tolerance " << atol << ")\n";
      return out.str();
    }
  }
  return "";
}

Arrays moved(const Arrays& at, const Arrays& v, double step) {
  Arrays out;
  std::size_t next = 0;
  for (const Array& x : at) {
    out.push_back(x);
    if (!is_active(x)) continue;
    const Array& t = v[next++];
    if (t.node()) out.back() = x + t * step;
  }
  return out;
}

Arrays floats_of(const Arrays& xs) {
  Arrays out;
  for (const Array& x : xs)
    if (is_floating(x.dtype())) out.push_back(x);
  return out;
}

Arrays differences(const ArrayFn& f, const Arrays& at, const Arrays& v) {
  const Arrays above = floats_of(f(moved(at, v, kStep)));
  const Arrays below = floats_of(f(moved(at, v, -kStep)));
  Arrays out;
  for (std::size_t o = 0; o < above.size(); ++o) out.push_back((above[o] - below[o]) / (2 * kStep));
  return out;
}

Arrays random_like(const Arrays& xs, std::uint32_t seed) {
  Arrays out;
  for (const Array& x : xs) out.push_back(spread_values(seed++, x.shape(), -1, 1));
  return out;
}

// Checks at one point along one tangent.
std::string check_at(const ArrayFn& f, const Arrays& at, const Arrays& v, const Arrays& w,
                     double tolerance) {
  std::string wrong;
  const Arrays jv = jvp_values(f, at, v);
  const double scale = 1 + greatest(jv) + greatest(floats_of(f(at)));
  wrong +=
      difference("jvp against finite differences", jv, differences(f, at, v), tolerance * scale);
  wrong += difference("linearize against jvp", linear_values(f, at, v), jv, 1e-12 * scale);
  const Arrays jtw = vjp_values(f, at, w);
  Arrays full;
  std::size_t next = 0;
  for (const Array& x : at) {
    if (!is_active(x)) continue;
    const Array& t = v[next++];
    full.push_back(t.node() ? t : zeros(x.shape(), x.dtype()));
  }
  const double left = inner(jv, w), right = inner(full, jtw);
  const double most = 1e-12 * (1 + inner_scale(jv, w) + inner_scale(full, jtw));
  if (!(std::abs(left - right) <= most)) {
    std::ostringstream out;
    out.precision(17);
    out << "<Jv, w> = " << left << ", <v, JTw> = " << right << "\n";
    wrong += out.str();
  }
  return wrong;
}

// Along all operands together, and along each alone.
std::string check_order(const RuleCase& c, const ArrayFn& f, const Arrays& at, std::uint32_t seed,
                        double tolerance) {
  const Arrays active = floats_of(at);
  const Arrays v = random_like(active, seed), w = random_like(floats_of(f(at)), seed + 77);
  std::string wrong = check_at(f, at, v, w, tolerance);
  for (std::size_t i = 0; active.size() > 1 && i < active.size(); ++i) {
    Arrays alone(active.size());
    alone[i] = v[i];
    const std::string part = check_at(f, at, alone, w, tolerance);
    if (!part.empty()) wrong += "operand " + std::to_string(i) + " alone: " + part;
  }
  return wrong.empty() ? "" : c.name + ": " + wrong;
}

Arrays as_dtype(const Arrays& xs, DType dtype) {
  Arrays out;
  for (const Array& x : xs)
    out.push_back(x.node() && is_floating(x.dtype()) ? astype(x, dtype) : x);
  return out;
}

double epsilon_of(DType t) { return t == f32 ? 0x1p-23 : t == f16 ? 0x1p-10 : 0x1p-7; }

std::string check_dtype(const RuleCase& c, DType dtype) {
  // Rounds the point to the dtype, so that only the rules round.
  const Arrays at = as_dtype(c.at, dtype), exact = as_dtype(at, f64);
  const Arrays v = as_dtype(random_like(floats_of(at), 5), dtype);
  const Arrays w = as_dtype(random_like(floats_of(c.f(at)), 6), dtype);
  const Arrays jv = jvp_values(c.f, at, v), jtw = vjp_values(c.f, at, w);
  const Arrays want = jvp_values(c.f, exact, as_dtype(v, f64));
  const Arrays want_t = vjp_values(c.f, exact, as_dtype(w, f64));
  std::string wrong;
  for (const Arrays* list : {&jv, &jtw})
    for (const Array& x : *list)
      if (x.dtype() != dtype)
        wrong += std::string("a derivative has dtype ") + short_name(x.dtype()) + "\n";
  const double eps = c.low_precision * epsilon_of(dtype);
  wrong += difference("jvp against f64", jv, want, eps * (1 + greatest(want)));
  wrong += difference("vjp against f64", jtw, want_t, eps * (1 + greatest(want_t)));
  return wrong.empty() ? "" : c.name + " in " + short_name(dtype) + ": " + wrong;
}

// Derivatives taken inside of a body: `varying` says which operands vary over the axis. All devices
// have the same values. Where results vary, the cotangent of an invariant operand is the sum over
// the devices: one device's cotangent times the number of devices.
std::string check_in_body(const RuleCase& c, const std::vector<bool>& varying, std::string which) {
  const Mesh mesh = make_mesh({2}, {"i"});
  const Arrays v = random_like(floats_of(c.at), 3);
  const Arrays w = random_like(floats_of(c.f(c.at)), 4);
  const Arrays jv = jvp_values(c.f, c.at, v), jtw = vjp_values(c.f, c.at, w);
  // Out of the body, as results are: each device's, one after the other.
  const auto stack = [](const Arrays& xs) {
    Arrays out;
    for (const Array& x : xs)
      out.push_back(expand_dims(x.vma().empty() ? pbroadcast(x, "i") : x, 0));
    return out;
  };
  const auto body = [&](const Array&) {
    Arrays at, tangents;
    std::size_t next = 0;
    for (std::size_t i = 0; i < c.at.size(); ++i) {
      at.push_back(varying[i] ? pbroadcast(c.at[i], "i") : c.at[i]);
      if (!is_active(c.at[i])) continue;
      tangents.push_back(varying[i] ? pbroadcast(v[next], "i") : v[next]);
      ++next;
    }
    return std::array<Arrays, 3>{stack(jvp_values(c.f, at, tangents)),
                                 stack(linear_values(c.f, at, tangents)),
                                 stack(vjp_values(c.f, at, w))};
  };
  const std::array<Arrays, 3> got = shard_map(body, mesh, P(), P("i"))(zeros({}));
  const bool results_vary = std::find(varying.begin(), varying.end(), true) != varying.end();
  const auto on_each = [&](const Arrays& xs, bool are_cotangents) {
    Arrays out;
    std::size_t operand = 0;
    for (const Array& x : xs) {
      double times = 1;
      if (are_cotangents) {
        while (!is_active(c.at[operand])) ++operand;
        times = results_vary && !varying[operand] ? 2 : 1;
        ++operand;
      }
      const Array one = expand_dims(x * times, 0);
      out.push_back(concatenate({one, one}, 0));
    }
    return out;
  };
  const double scale = 1e-12 * (1 + greatest(jv) + greatest(jtw));
  const std::string wrong = difference("jvp", got[0], on_each(jv, false), scale) +
                            difference("linearize", got[1], on_each(jv, false), scale) +
                            difference("vjp", got[2], on_each(jtw, true), scale);
  return wrong.empty() ? "" : c.name + " in a body, " + which + " varying: " + wrong;
}

std::string check_in_bodies(const RuleCase& c) {
  std::string wrong = check_in_body(c, std::vector<bool>(c.at.size(), true), "all operands");
  for (std::size_t i = 0; c.at.size() > 1 && i < c.at.size(); ++i) {
    std::vector<bool> varying(c.at.size());
    varying[i] = true;
    wrong += check_in_body(c, varying, "operand " + std::to_string(i));
  }
  return wrong;
}

// (at, v) -> Jv, and (at, w) -> J^T w, as functions whose derivatives can be checked likewise.
std::string check_second_order(const RuleCase& c) {
  const std::size_t n = c.at.size();
  const auto derivative = [&](Arrays (*of)(const ArrayFn&, const Arrays&, const Arrays&)) {
    return [&c, of, n](const Arrays& all) {
      const auto middle = all.begin() + static_cast<std::ptrdiff_t>(n);
      return of(c.f, Arrays(all.begin(), middle), Arrays(middle, all.end()));
    };
  };
  const auto check = [&](const char* what, const ArrayFn& f, const Arrays& more) {
    Arrays at = c.at;
    at.insert(at.end(), more.begin(), more.end());
    const std::string wrong = check_order(c, f, at, 21, 10 * c.tolerance);
    return wrong.empty() ? "" : std::string(what) + " " + wrong;
  };
  return check("derivative of the jvp of", derivative(jvp_values),
               random_like(floats_of(c.at), 11)) +
         check("derivative of the vjp of", derivative(vjp_values),
               random_like(floats_of(c.f(c.at)), 12));
}

}  // namespace

Arrays jvp_values(const ArrayFn& f, const Arrays& at, const Arrays& v) {
  Body body{f};
  detail::FlatTree result;
  const Duals duals = jvp_of(detail::BodyRef(body), at, per_operand(at, v), result, {});
  return explicit_tangents(duals.primals, duals.tangents);
}

Arrays linear_values(const ArrayFn& f, const Arrays& at, const Arrays& v) {
  const Arrays tangents = per_operand(at, v);
  std::vector<bool> active;
  for (const Array& t : tangents) active.push_back(t.node() != nullptr);
  const Linearized lin = linearized(f, at, active);
  return explicit_tangents(lin.outs, lin.linear.apply(tangents, {}));
}

Arrays vjp_values(const ArrayFn& f, const Arrays& at, const Arrays& w) {
  const Linearized lin = linearized(f, at, active_of(at));
  Arrays cotangents;
  std::size_t next = 0;
  for (const Array& y : lin.outs) {
    cotangents.push_back(is_floating(y.dtype()) ? w[next++] : Array());
    Array& ct = cotangents.back();
    if (ct.node() && ct.vma() != y.vma()) ct = pbroadcast(ct, y.vma());
  }
  const Arrays all = lin.linear.transpose(cotangents, {});
  Arrays out;
  for (std::size_t i = 0; i < at.size(); ++i)
    if (is_active(at[i])) out.push_back(or_zeros(all[i], at[i].type(), {}));
  return out;
}

std::string check_rules(const RuleCase& c) {
  std::string wrong = check_order(c, c.f, c.at, 1, c.tolerance);
  if (!wrong.empty()) return wrong;  // what follows would only repeat it
  if (c.order > 1) wrong += check_second_order(c);
  for (const DType dtype : {f32, f16, bf16}) wrong += check_dtype(c, dtype);
  return c.in_bodies ? wrong + check_in_bodies(c) : wrong;
}

Array spread_values(std::uint32_t seed, const Shape& shape, double lo, double hi) {
  std::int64_t size = 1;
  for (std::int64_t e : shape) size *= e;
  std::vector<double> values;
  // Each value is in an interval of its own; the intervals are shuffled.
  std::uint32_t state = seed * 2654435761u + 12345;
  const auto random = [&] {
    state = state * 1664525u + 1013904223u;
    return state >> 8;
  };
  for (std::int64_t k = 0; k < size; ++k) {
    const double jitter = 0.25 + 0.5 * static_cast<double>(random()) / 0x1p24;
    values.push_back(lo +
                     (hi - lo) * (static_cast<double>(k) + jitter) / static_cast<double>(size));
  }
  for (std::size_t k = values.size(); k > 1; --k) std::swap(values[k - 1], values[random() % k]);
  return array(std::span<const double>(values), shape);
}

}  // namespace shmap::testing
