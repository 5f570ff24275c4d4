#include "shmap/partition_spec.h"

#include <ostream>

#include "core/array/sharding.h"
#include "core/base/nearest_name.h"
#include "core/ir/trace.h"

namespace shmap {

std::string to_string(const PartitionSpec& spec) {
  std::string s = "P(";
  for (std::size_t i = 0; i < spec.size(); ++i) {
    if (i) s += ", ";
    s += spec[i].axes.empty() ? "none" : to_string(spec[i].axes);
  }
  return s + ")";
}
std::ostream& operator<<(std::ostream& out, const PartitionSpec& spec) {
  return out << to_string(spec);
}

std::string to_string(const Specs& specs) {
  if (specs.kind() == Specs::leaf) return to_string(specs.spec());
  std::string s = "{";
  for (std::size_t i = 0; i < specs.size(); ++i) {
    if (i) s += ", ";
    if (specs.kind() == Specs::map) {
      s += "{\"" + specs.key(i) + "\", " + to_string(specs[i]) + "}";
    } else {
      s += to_string(specs[i]);
    }
  }
  return s + "}";
}

NamedSharding::NamedSharding(Mesh mesh, PartitionSpec spec, SourceLine source)
    : mesh_(mesh), spec_(std::move(spec)) {
  try {
    validate_spec(spec_, *mesh_.impl()->env(), "NamedSharding: spec");
  } catch (const ValueError& e) {
    throw ValueError(e.what() + at_line(source));
  }
}

bool operator==(const NamedSharding& a, const NamedSharding& b) {
  return a.mesh() == b.mesh() &&
         a.mesh().impl()->sharding(a.spec()) == b.mesh().impl()->sharding(b.spec());
}

std::string to_string(const NamedSharding& s) {
  return "NamedSharding(" + to_string(s.mesh()) + ", " + to_string(s.spec()) + ")";
}
std::ostream& operator<<(std::ostream& out, const NamedSharding& s) { return out << to_string(s); }

AxisRules::AxisRules(std::initializer_list<Rule> rules) : rules_(rules) {}

PartitionSpec AxisRules::resolve(const std::vector<PartitionSpec::Entry>& logical,
                                 SourceLine source) const {
  std::vector<PartitionSpec::Entry> out;
  for (const PartitionSpec::Entry& e : logical) {
    std::vector<std::string> physical;
    for (const std::string& name : e.axes) {
      const Rule* found = nullptr;
      for (const Rule& r : rules_) {
        if (r.name == name) {
          found = &r;  // the first rule of a name counts
          break;
        }
      }
      if (!found) {
        std::string known;
        std::vector<std::string> names;
        for (const Rule& r : rules_) {
          known += (known.empty() ? "'" : ", '") + r.name + "'";
          names.push_back(r.name);
        }
        throw ValueError("AxisRules: there is no rule for the logical name '" + name + "'" +
                         did_you_mean(name, names) + "; " +
                         (known.empty() ? "there are no rules" : "there are rules for " + known) +
                         ": add {\"" + name + "\", \"a mesh axis\"}, or {\"" + name +
                         "\", none} for a dim that is not split" + at_line(source));
      }
      for (const std::string& axis : found->value.axes) physical.push_back(axis);
    }
    out.emplace_back(Axes(physical));
  }
  return PartitionSpec(std::move(out));
}

}  // namespace shmap
