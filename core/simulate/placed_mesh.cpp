#include "core/simulate/placed_mesh.h"

#include <algorithm>
#include <cmath>

#include "collectives/primitives.h"
#include "core/array/sharding.h"
#include "core/base/format_float.h"

namespace shmap {

namespace {

std::string number(double v) {
  const std::string text = detail::format_scalar(&v, DType::f64);
  return text.ends_with(".0") ? text.substr(0, text.size() - 2) : text;
}

[[noreturn]] void fail(const std::string& text) { throw ValueError("simulate: " + text); }

void check_positive(double v, const std::string& name, const char* remedy) {
  if (std::isfinite(v) && v > 0) return;
  fail(name + " is " + number(v) + ", and has to be a positive number: " + remedy);
}

std::string text_of(const std::vector<Topology::Level>& levels) {
  std::string text;
  for (const Topology::Level& l : levels)
    text += (text.empty() ? "" : " x ") + std::to_string(l.size);
  return text.empty() ? "no levels, which is one device" : text;
}

double rounds(std::int64_t n) { return std::ceil(std::log2(static_cast<double>(n))); }

// Reads the parameters of a collective.
class CollectiveFinder final : public ParamFinder {
 public:
  using ParamFinder::value;
  std::vector<std::string> axes;
  std::vector<std::vector<int>> groups;
  std::vector<std::pair<int, int>> perm;
  void value(std::string_view, const std::vector<std::string>& v) override { axes = v; }
  void value(std::string_view, const std::vector<std::vector<int>>& v) override { groups = v; }
  void value(std::string_view, const std::vector<std::pair<int, int>>& v) override { perm = v; }
};

// Computes the time of a collective from the number of devices that it joins at each level, and the
// links.
struct Joined {
  const std::vector<Topology::Level>& levels;
  std::vector<std::int64_t> n;

  const Link& link(std::size_t level) const { return levels[level].link; }
  double all() const {
    double product = 1;
    for (std::int64_t k : n) product *= static_cast<double>(k);
    return product;
  }

  // The time up and down a tree at each level, in pieces that are pipelined.
  double tree(double whole) const {
    double us = 0;
    for (std::size_t l = 0; l < n.size(); ++l)
      if (n[l] > 1) us += 2 * rounds(n[l]) * link(l).latency_us + 2 * whole / link(l).bytes_per_us;
    return us;
  }
  // The time of a ring at each level: of the part of the data that the inner levels have left, a
  // device sends one piece for each other device of the ring.
  double ring_scatter(double whole) const {
    double us = 0;
    for (std::size_t l = 0; l < n.size(); ++l) {
      if (n[l] == 1) continue;
      const auto k = static_cast<double>(n[l]);
      us += (k - 1) * (link(l).latency_us + whole / k / link(l).bytes_per_us);
      whole /= k;
    }
    return us;
  }
  double scatter(double whole) const { return std::min(ring_scatter(whole), tree(whole)); }
  // A gather takes as long as a scatter.
  double gather(double whole) const { return scatter(whole); }
  double reduce(double whole) const { return std::min(2 * ring_scatter(whole), tree(whole)); }
  // Each device sends one piece to each other device.
  double exchange(double bytes) const {
    const double piece = bytes / all();
    double us = 0, inside = 1;
    for (std::size_t l = 0; l < n.size(); ++l) {
      const auto k = static_cast<double>(n[l]);
      if (n[l] > 1) us += (k - 1) * inside * (link(l).latency_us + piece / link(l).bytes_per_us);
      inside *= k;
    }
    return us;
  }
  double broadcast(double bytes) const { return tree(bytes) / 2; }
};

}  // namespace

void check_topology(const Topology& topology) {
  check_positive(topology.flops_per_us, "Topology::flops_per_us",
                 "the arithmetic operations of one device in a microsecond");
  check_positive(topology.memory_bytes_per_us, "Topology::memory_bytes_per_us",
                 "the bytes that one device reads and writes in a microsecond");
  for (std::size_t l = 0; l < topology.levels.size(); ++l) {
    const std::string name = "Topology::levels[" + std::to_string(l) + "]";
    const Topology::Level& level = topology.levels[l];
    if (level.size < 1)
      fail(name + ".size is " + std::to_string(level.size) + ", and a level joins at least one");
    check_positive(level.link.bytes_per_us, name + ".link.bytes_per_us",
                   "the bytes that one device sends in a microsecond");
    if (!std::isfinite(level.link.latency_us) || level.link.latency_us < 0) {
      fail(name + ".link.latency_us is " + number(level.link.latency_us) +
           ", and has to be 0 or more");
    }
  }
}

PlacedMesh::PlacedMesh(const Topology& topology, const detail::AxisEnv* env)
    : topology_(topology), env_(env) {
  const std::vector<Topology::Level>& levels = topology.levels;
  double devices = 1, wanted = 1;
  for (const Topology::Level& l : levels) devices *= l.size;
  const std::size_t axes = env ? env->sizes.size() : 0;
  for (std::size_t a = 0; a < axes; ++a) wanted *= static_cast<double>(env->sizes[a]);
  if (devices < wanted) {
    fail("the machine has " + number(devices) + " devices (" + text_of(levels) +
         "), and the mesh " + describe_axes(*env) + " has " + number(wanted) +
         ": add a level, or make one larger");
  }
  factors_.assign(axes, std::vector<std::int64_t>(levels.size(), 1));
  std::size_t level = 0;
  std::int64_t room = levels.empty() ? 1 : levels[0].size;
  for (std::size_t a = axes; a-- > 0;) {
    std::int64_t rest = env->sizes[a];
    while (rest > 1) {
      while (room == 1) room = levels[++level].size;
      const std::int64_t here = std::min(rest, room);
      const bool last = level + 1 == levels.size();
      if (rest % here != 0 || (room % here != 0 && !last)) {
        fail("the mesh axis '" + env->names[a] + "' of size " + std::to_string(env->sizes[a]) +
             " (mesh " + describe_axes(*env) + ") does not divide into the levels " +
             text_of(levels) + ": " + std::to_string(rest) + " are left of it, and " +
             std::to_string(room) + " places on level " + std::to_string(level) +
             "; give the mesh or the levels sizes that divide each other");
      }
      factors_[a][level] = here;
      rest /= here;
      room /= here;
    }
  }
}

int PlacedMesh::axis(const std::string& name) const {
  const auto it = std::find(env_->names.begin(), env_->names.end(), name);
  return static_cast<int>(it - env_->names.begin());
}

std::vector<std::int64_t> PlacedMesh::joined(const std::vector<std::string>& axes) const {
  std::vector<std::int64_t> n(topology_.levels.size(), 1);
  for (const std::string& name : axes)
    for (std::size_t l = 0; l < n.size(); ++l)
      n[l] *= factors_[static_cast<std::size_t>(axis(name))][l];
  return n;
}

int PlacedMesh::level_between(const std::vector<std::string>& axes, std::int64_t a,
                              std::int64_t b) const {
  int outermost = -1;
  for (std::size_t k = axes.size(); k-- > 0;) {
    for (std::size_t l = 0; l < topology_.levels.size(); ++l) {
      const std::int64_t n = factors_[static_cast<std::size_t>(axis(axes[k]))][l];
      if (a % n != b % n) outermost = std::max(outermost, static_cast<int>(l));
      a /= n;
      b /= n;
    }
  }
  return outermost;
}

PlacedMesh::Price PlacedMesh::price(const Eqn& e) const {
  CollectiveFinder found;
  e.params->visit(found);
  double bytes = 0, out_bytes = 0;
  for (const Atom& a : e.in) bytes += static_cast<double>(a.type().nbytes());
  for (const VarRef& v : e.out) out_bytes += static_cast<double>(v->type.nbytes());
  const Traffic traffic = e.primitive->traffic;
  Joined on{topology_.levels, joined(found.axes)};
  if (traffic == Traffic::permute || !found.groups.empty()) {
    // A permutation is a single message, and a collective in groups is a ring with as many messages
    // as a group has members. Both use the outermost links that they need.
    int level = -1;
    std::int64_t members = 1;
    for (const auto& [from, to] : found.perm)
      level = std::max(level, level_between(found.axes, from, to));
    for (const std::vector<int>& group : found.groups) {
      members = std::max(members, static_cast<std::int64_t>(group.size()));
      for (int rank : group) level = std::max(level, level_between(found.axes, group[0], rank));
    }
    if (level < 0) return {};
    const auto at = static_cast<std::size_t>(level);
    if (traffic == Traffic::permute) {
      const Link& link = on.link(at);
      return {link.latency_us + bytes / link.bytes_per_us, at};
    }
    std::fill(on.n.begin(), on.n.end(), 1);
    on.n[at] = members;
  }
  Price price;
  for (std::size_t l = 0; l < on.n.size(); ++l)
    if (on.n[l] > 1) price.level = l;
  if (on.all() <= 1) return price;
  switch (traffic) {
    case Traffic::none:
    case Traffic::permute:  // priced above
      break;
    case Traffic::gather:
      price.us = on.gather(out_bytes);
      break;
    case Traffic::scatter:
      price.us = on.scatter(bytes);
      break;
    case Traffic::exchange:
      price.us = on.exchange(bytes);
      break;
    case Traffic::broadcast:
      price.us = on.broadcast(bytes);
      break;
    case Traffic::reduce:
      price.us = on.reduce(bytes);
      break;
  }
  return price;
}

}  // namespace shmap
