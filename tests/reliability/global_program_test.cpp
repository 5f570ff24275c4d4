// shmap-test: devices
// Random programs of 1 to 20 ops on sharded arrays, outside of every body: exactly what the same
// program computes on one device, whatever mesh and specs; under jit too. SHMAP_TEST_PROGRAMS sets
// how many run, SHMAP_TEST_SEED which comes first.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>
#include <set>
#include <string>

#include "shmap/ops.h"
#include "shmap/partition_spec.h"
#include "tests/support/program_seeds.h"
#include "tests/support/under_jit.h"

namespace shmap {
namespace {

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  // From lo to hi, both included; the same on every platform.
  std::int64_t operator()(std::int64_t lo, std::int64_t hi) {
    return lo + static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(hi - lo + 1));
  }
  template <class T>
  const T& of(const std::vector<T>& all) {
    return all[static_cast<std::size_t>((*this)(0, static_cast<std::int64_t>(all.size()) - 1))];
  }

 private:
  std::mt19937_64 engine_;
};

constexpr std::int64_t kMaxElements = 4096;
const std::vector<std::int64_t> kExtents = {0, 1, 2, 3, 4, 4, 5, 6, 8, 8, 8, 12, 12, 13, 16};

std::int64_t product(const Shape& s) {
  std::int64_t n = 1;
  for (std::int64_t e : s) n *= e;
  return n;
}

Shape random_shape(Random& random, int rank) {
  Shape s;
  for (int d = 0; d < rank; ++d) s.push_back(random.of(kExtents));
  return s;
}

Mesh random_mesh(Random& random) {
  const std::vector<Shape> sizes = {{8},    {4},    {2}, {1},    {3},       {4, 2}, {2, 4},
                                    {2, 2}, {3, 2}, {7}, {1, 8}, {2, 2, 2}, {5},    {2, 1, 3}};
  Shape size;
  std::vector<Device> some;
  // Drawn again until each process has a device of the mesh: one that has none cannot run programs.
  std::set<int> processes;
  while (static_cast<int>(processes.size()) < process_count()) {
    size = random.of(sizes);
    some = devices();
    for (std::size_t i = some.size(); i-- > 1;)
      std::swap(some[i], some[static_cast<std::size_t>(random(0, static_cast<std::int64_t>(i)))]);
    some.erase(some.begin() + static_cast<std::ptrdiff_t>(product(size)), some.end());
    processes.clear();
    for (const Device& d : some) processes.insert(d.process_index());
  }
  std::vector<std::string> names;
  for (std::size_t a = 0; a < size.size(); ++a) names.push_back(std::string(1, "ijk"[a]));
  return make_mesh(size, names, some);
}

// A spec that divides the shape, its axes in any order.
PartitionSpec random_spec(Random& random, const Mesh& mesh, const Shape& shape) {
  std::vector<std::vector<std::string>> dims(shape.size());
  std::vector<std::int64_t> parts(shape.size(), 1);
  std::vector<std::string> names = mesh.axis_names();
  if (random(0, 1)) std::reverse(names.begin(), names.end());
  for (const std::string& name : names) {
    if (shape.empty() || random(0, 5) == 0) continue;
    const auto d = static_cast<std::size_t>(random(0, shape.rank() - 1));
    const std::int64_t grown = parts[d] * mesh.axis_size(name);
    if (shape[d] % grown != 0) continue;
    parts[d] = grown;
    dims[d].push_back(name);
  }
  std::vector<PartitionSpec::Entry> entries;
  for (const auto& d : dims)
    entries.push_back(d.empty() ? PartitionSpec::Entry(none) : PartitionSpec::Entry(Axes(d)));
  return PartitionSpec(entries);
}

// The pool of values of a program, of which each op takes some and adds one.
using Pool = std::vector<Array>;
using Op = std::function<Array(const Pool&)>;

struct Step {
  std::string text;
  Op run;
};

std::string text(const Dims& dims) {
  std::string s = "{";
  for (std::int64_t d : dims) s += (s.size() > 1 ? ", " : "") + std::to_string(d);
  return s + "}";
}

// Shape of a after broadcasting is compatible with b.
bool broadcasts(const Shape& a, const Shape& b) {
  std::int64_t elements = 1;
  for (std::size_t d = 0; d < std::max(a.size(), b.size()); ++d) {
    const std::int64_t x = d < a.size() ? a[a.size() - 1 - d] : 1;
    const std::int64_t y = d < b.size() ? b[b.size() - 1 - d] : 1;
    if (x != y && x != 1 && y != 1) return false;
    elements *= x == 1 ? y : x;
  }
  return elements <= kMaxElements;
}

// Draws an op that fits the pool's shapes; empty where the one drawn fits nothing.
class Draw {
 public:
  Draw(Random& random, const Pool& pool) : random_(random), pool_(pool) {
    at_ = pick();
    x_ = pool[at_].shape();
    rank_ = x_.rank();
  }

  Step step() {
    switch (random_(0, 21)) {
      case 0:
      case 1:
      case 2:
        return binary();
      case 3:
        return unary();
      case 4:
        return reshaped();
      case 5:
        return transposed();
      case 6:
      case 7:
        return sliced();
      case 8:
        return concatenated();
      case 9:
      case 10:
        return reduced();
      case 11:
      case 12:
        return multiplied();
      case 13:
        return scanned();
      case 14:
        return taken();
      case 15:
        return sorted();
      case 16:
        return selected();
      case 17:
        return flipped();
      case 18:
        return padded();
      case 19:
        return broadcasted();
      case 20:
        return updated();
      default:
        return indexed();
    }
  }

 private:
  std::size_t pick() {
    return static_cast<std::size_t>(random_(0, static_cast<std::int64_t>(pool_.size()) - 1));
  }
  int dim() { return static_cast<int>(random_(0, rank_ - 1)); }
  std::string name(std::size_t k) const { return "v" + std::to_string(k); }
  Step make(const std::string& what, std::function<Array(const Array&)> f) const {
    const std::size_t at = at_;
    return {what + " of " + name(at), [at, f](const Pool& pool) { return f(pool[at]); }};
  }
  // Returns another value that `fits`, or npos.
  template <class F>
  std::size_t partner(F fits) {
    for (int attempt = 0; attempt < 6; ++attempt)
      if (const std::size_t k = pick(); fits(pool_[k].shape())) return k;
    return std::string::npos;
  }

  Step binary() {
    const std::size_t b = partner([&](const Shape& s) { return broadcasts(x_, s); });
    if (b == std::string::npos) return {};
    using Fn = Array (*)(const Array&, const Array&);
    static const std::vector<std::pair<const char*, Fn>> all = {
        {"add", [](const Array& x, const Array& y) { return x + y; }},
        {"sub", [](const Array& x, const Array& y) { return x - y; }},
        {"mul", [](const Array& x, const Array& y) { return x * y; }},
        {"max", [](const Array& x, const Array& y) { return maximum(x, y); }},
        {"min", [](const Array& x, const Array& y) { return minimum(x, y); }},
        {"xor", [](const Array& x, const Array& y) { return x ^ y; }},
        {"less", [](const Array& x, const Array& y) { return astype(x < y, i32); }},
        {"div", [](const Array& x, const Array& y) { return floor_divide(x, (y & 15) + 1); }}};
    const auto& [what, f] = random_.of(all);
    const std::size_t a = at_;
    const Fn fn = f;
    return {std::string(what) + " of " + name(a) + ", " + name(b),
            [a, b, fn](const Pool& pool) { return fn(pool[a], pool[b]); }};
  }
  Step unary() {
    switch (random_(0, 4)) {
      case 0:
        return make("neg", [](const Array& x) { return -x; });
      case 1:
        return make("abs", [](const Array& x) { return abs(x); });
      case 2:
        return make("sign", [](const Array& x) { return sign(x); });
      case 3:
        return make("to i64", [](const Array& x) { return astype(x, i64); });
      default:
        return make("3x + 1", [](const Array& x) { return 3 * x + 1; });
    }
  }
  Step reshaped() {
    const std::int64_t n = product(x_);
    Shape to;
    if (n == 0) {
      to = random_shape(random_, static_cast<int>(random_(1, 3)));
      to[static_cast<std::size_t>(random_(0, to.rank() - 1))] = 0;
    } else {
      std::int64_t rest = n;
      while (rest > 1 && to.size() < 4) {
        std::vector<std::int64_t> divisors;
        for (std::int64_t k = 1; k <= rest; ++k)
          if (rest % k == 0) divisors.push_back(k);
        to.push_back(to.size() == 3 ? rest : random_.of(divisors));
        rest /= to.back();
      }
      if (rest > 1) to.push_back(rest);
    }
    return make("reshape " + to_string(to), [to](const Array& x) { return reshape(x, to); });
  }
  Step transposed() {
    std::vector<std::int64_t> order(x_.size());
    std::iota(order.begin(), order.end(), 0);
    for (std::size_t i = order.size(); i-- > 1;)
      std::swap(order[i],
                order[static_cast<std::size_t>(random_(0, static_cast<std::int64_t>(i)))]);
    const Dims perm(order);
    return make("transpose " + text(perm), [perm](const Array& x) { return transpose(x, perm); });
  }
  Step sliced() {
    Dims start{}, limit{}, strides{};
    std::vector<std::int64_t> s, l, t;
    for (std::int64_t e : x_) {
      s.push_back(random_(0, 2) == 0 ? random_(0, e) : 0);
      l.push_back(random_(0, 2) == 0 ? random_(s.back(), e) : e);
      t.push_back(random_(0, 3) == 0 ? random_(1, 3) : 1);
    }
    start = Dims(s), limit = Dims(l), strides = Dims(t);
    return make("slice " + text(start) + text(limit) + text(strides),
                [=](const Array& x) { return slice(x, start, limit, strides); });
  }
  Step concatenated() {
    if (rank_ == 0) return {};
    const int d = dim();
    const std::size_t b = partner([&](Shape s) {
      if (s.size() != x_.size() || product(s) + product(x_) > kMaxElements) return false;
      s[static_cast<std::size_t>(d)] = x_[static_cast<std::size_t>(d)];
      return s == x_;
    });
    if (b == std::string::npos) return {};
    const std::size_t a = at_;
    return {"concatenate of " + name(a) + ", " + name(b) + " along " + std::to_string(d),
            [=](const Pool& pool) {
              return concatenate({pool[a], pool[b]}, d);
            }};
  }
  Step reduced() {
    std::vector<std::int64_t> over;
    for (int d = 0; d < rank_; ++d)
      if (random_(0, 1)) over.push_back(d);
    const Dims axes(over);
    const bool keep = random_(0, 1) != 0;
    switch (random_(0, 4)) {
      case 0:
        return make("prod " + text(axes), [=](const Array& x) { return prod(x, axes, keep); });
      case 1:
      case 2:
        return make("sum " + text(axes), [=](const Array& x) { return sum(x, axes, keep); });
      case 3:
        for (std::int64_t d : over)
          if (x_[static_cast<std::size_t>(d)] == 0) return {};
        return make("max " + text(axes), [=](const Array& x) { return max(x, axes, keep); });
      default: {
        if (rank_ == 0) return {};
        const int d = dim();
        if (x_[static_cast<std::size_t>(d)] == 0) return {};
        return make("argmin " + std::to_string(d),
                    [=](const Array& x) { return argmin(x, d, keep); });
      }
    }
  }
  Step multiplied() {
    if (rank_ == 0) return {};
    const std::size_t b = partner([&](const Shape& s) {
      if (s.rank() == 0 || s.rank() > 2 || rank_ > 3) return false;
      const std::int64_t inner = s.rank() == 1 ? s[0] : s[s.size() - 2];
      return inner == x_.back() &&
             product(x_) / std::max<std::int64_t>(inner, 1) * s.back() <= kMaxElements;
    });
    if (b == std::string::npos) return {};
    const std::size_t a = at_;
    return {"matmul of " + name(a) + ", " + name(b),
            [=](const Pool& pool) { return matmul(pool[a], pool[b]); }};
  }
  Step scanned() {
    if (rank_ == 0) return {};
    const int d = dim();
    switch (random_(0, 2)) {
      case 0:
        return make("cumprod " + std::to_string(d), [d](const Array& x) { return cumprod(x, d); });
      case 1:
        return make("cummax " + std::to_string(d), [d](const Array& x) { return cummax(x, d); });
      default:
        return make("cumsum " + std::to_string(d), [d](const Array& x) { return cumsum(x, d); });
    }
  }
  Step taken() {
    if (rank_ == 0) return {};
    const int d = dim();
    const std::int64_t e = x_[static_cast<std::size_t>(d)];
    if (e == 0) return {};
    const std::size_t b = partner([&](const Shape& s) {
      return s.rank() + rank_ <= 5 && product(s) * product(x_) / e <= kMaxElements;
    });
    if (b == std::string::npos) return {};
    const std::size_t a = at_;
    return {"take of " + name(a) + " at " + name(b) + " along " + std::to_string(d),
            [=](const Pool& pool) { return take(pool[a], remainder(pool[b], e), d); }};
  }
  Step sorted() {
    if (rank_ == 0) return {};
    const int d = dim();
    if (random_(0, 1))
      return make("sort " + std::to_string(d), [d](const Array& x) { return sort(x, d); });
    return make("argsort " + std::to_string(d), [d](const Array& x) { return argsort(x, d); });
  }
  Step selected() {
    const std::size_t b = partner([&](const Shape& s) { return broadcasts(x_, s); });
    if (b == std::string::npos) return {};
    const std::size_t a = at_;
    return {"where of " + name(a) + ", " + name(b),
            [=](const Pool& pool) { return where(pool[a] % 3 == 0, pool[b], -7); }};
  }
  Step flipped() {
    if (rank_ == 0) return {};
    const int d = dim();
    const std::int64_t by = random_(-3, 9);
    if (random_(0, 1))
      return make("flip " + std::to_string(d), [d](const Array& x) { return flip(x, d); });
    return make("roll " + std::to_string(by) + " along " + std::to_string(d),
                [=](const Array& x) { return roll(x, Dims(static_cast<int>(by)), Dims(d)); });
  }
  Step padded() {
    std::vector<std::pair<std::int64_t, std::int64_t>> widths;
    std::int64_t n = 1;
    for (std::int64_t e : x_) {
      widths.emplace_back(random_(0, 2), random_(0, 2));
      n *= e + widths.back().first + widths.back().second;
    }
    if (n > kMaxElements) return {};
    return make("pad", [=](const Array& x) { return pad(x, widths, 5); });
  }
  Step broadcasted() {
    Shape to = x_;
    for (std::size_t d = 0; d < to.size(); ++d)
      if (to[d] == 1) to[d] = random_.of(kExtents);
    Shape wide{random_(0, 4)};
    for (std::int64_t e : to) wide.push_back(e);
    if (wide.size() > 5 || product(wide) > kMaxElements) return {};
    return make("broadcast_to " + to_string(wide),
                [=](const Array& x) { return broadcast_to(x, wide); });
  }
  Step updated() {
    const std::size_t b = partner([&](const Shape& s) {
      if (s.size() != x_.size()) return false;
      for (std::size_t d = 0; d < s.size(); ++d)
        if (s[d] > x_[d]) return false;
      return true;
    });
    if (b == std::string::npos) return {};
    std::vector<int> at;
    for (std::int64_t e : x_) at.push_back(static_cast<int>(random_(-2, e + 2)));
    const std::size_t a = at_;
    return {"dynamic_update_slice of " + name(a) + " by " + name(b), [=](const Pool& pool) {
              std::vector<Array> starts;
              for (int k : at) starts.emplace_back(k);
              return dynamic_update_slice(pool[a], astype(pool[b], pool[a].dtype()), starts);
            }};
  }
  Step indexed() {
    if (rank_ == 0 || x_[0] == 0) return {};
    const std::int64_t k = random_(-x_[0], x_[0] - 1);
    return make("[" + std::to_string(k) + "]", [k](const Array& x) { return x[k]; });
  }

  Random& random_;
  const Pool& pool_;
  std::size_t at_;
  Shape x_;
  int rank_;
};

std::vector<std::int64_t> host(const Array& x) { return astype(x, i64).to_vector<std::int64_t>(); }

void run_program(std::uint64_t seed, bool under_jit) {
  Random random(seed);
  const Mesh mesh = random_mesh(random);
  Pool split, whole;
  std::string listing = "mesh " + to_string(mesh);
  const std::int64_t n_inputs = random(1, 4);
  for (std::int64_t k = 0; k < n_inputs; ++k) {
    const Shape shape = random_shape(random, static_cast<int>(random(0, 3)));
    std::vector<std::int64_t> data;
    for (std::int64_t i = 0; i < product(shape); ++i) data.push_back(random(-50, 50));
    Array x = array(data, shape);
    if (random(0, 1)) x = astype(x, i32);
    const PartitionSpec spec = random_spec(random, mesh, shape);
    whole.push_back(x);
    split.push_back(random(0, 5) == 0 ? x : device_put(x, {mesh, spec}));
    listing += "\n  v" + std::to_string(k) + " = " + to_string(x.type()) + " " + to_string(spec);
  }
  const Pool inputs = split;
  std::vector<Op> program;
  const std::int64_t length = random(1, 20);
  for (std::int64_t done = 0; done < length; ++done) {
    const Step step = Draw(random, whole).step();
    if (!step.run) continue;
    listing += "\n  v" + std::to_string(whole.size()) + " = " + step.text;
    SCOPED_TRACE("seed " + std::to_string(seed) + " (SHMAP_TEST_SEED): " + listing);
    try {
      whole.push_back(step.run(whole));
      split.push_back(step.run(split));
      program.push_back(step.run);
    } catch (const std::exception& e) {
      FAIL() << e.what();
    }
    ASSERT_EQ(to_string(split.back().type()), to_string(whole.back().type()));
  }
  for (std::size_t k = 0; k < whole.size(); ++k) {
    ASSERT_EQ(host(split[k]), host(whole[k]))
        << "v" << k << ", seed " << seed << " (SHMAP_TEST_SEED): " << listing;
  }
  if (!under_jit) return;
  SCOPED_TRACE("seed " + std::to_string(seed) + " (SHMAP_TEST_SEED): " + listing);
  const auto all_values = [&](Pool pool) {
    for (const Op& op : program) pool.push_back(op(pool));
    return pool;
  };
  test::expect_same_under_jit(all_values, test::Communication::no_more, inputs);
}

TEST(GlobalPrograms, EqualOneDevice) {
  const unsigned first = test::setting("SHMAP_TEST_SEED", 1);
  const unsigned count = test::setting("SHMAP_TEST_PROGRAMS", 2000);
  for (unsigned k = 0; k < count && !HasFatalFailure(); ++k) run_program(first + k, false);
}

TEST(GlobalPrograms, AreTheSameUnderJit) {
  const unsigned first = test::setting("SHMAP_TEST_SEED", 1);
  const unsigned count = test::setting("SHMAP_TEST_PROGRAMS", 500);
  for (unsigned k = 0; k < count && !HasFailure(); ++k) run_program(first + k, true);
}

}  // namespace
}  // namespace shmap
