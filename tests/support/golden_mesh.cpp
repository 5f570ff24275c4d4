#include "tests/support/golden_mesh.h"

#include <algorithm>

#include "shmap/device.h"
#include "shmap/shape.h"
#include "tests/support/device_grids.h"

namespace shmap::testing {
namespace {

std::vector<std::string> split_names(const std::string& text) {
  std::vector<std::string> names(1);
  for (char ch : text) {
    if (ch == ',') {
      names.emplace_back();
    } else {
      names.back() += ch;
    }
  }
  return names;
}

std::vector<Specs> parse_specs(const std::vector<std::string>& texts) {
  std::vector<Specs> specs;
  for (const std::string& text : texts) specs.push_back(parse_spec(text));
  return specs;
}

}  // namespace

PartitionSpec parse_spec(const std::string& text) {
  std::vector<PartitionSpec::Entry> entries;
  for (std::size_t at = 0; at < text.size();) {
    const bool tuple = text[at] == '(';
    const std::size_t begin = at + (tuple ? 1 : 0);
    const std::size_t end = std::min(text.find(tuple ? ')' : ',', begin), text.size());
    const std::string entry = text.substr(begin, end - begin);
    if (tuple) {
      entries.emplace_back(Axes(split_names(entry)));
    } else if (entry == "none") {
      entries.emplace_back(none);
    } else {
      entries.emplace_back(entry);
    }
    at = end + (tuple ? 2 : 1);
  }
  return PartitionSpec(entries);
}

Mesh case_mesh(const GoldenCase& c) {
  const Shape sizes(c.params.ints("mesh"));
  const Axes names(c.params.texts("names"));
  if (!c.params.has("devices")) return mesh_in_all_processes(sizes, names);
  const std::vector<Device> all = devices();
  std::vector<Device> order;
  for (std::int64_t k : c.params.ints("devices"))
    order.push_back(all.at(static_cast<std::size_t>(k)));
  return Mesh(NdArray<Device>(order, sizes), names);
}

Specs case_in_specs(const GoldenCase& c) { return Specs(parse_specs(c.params.texts("in_specs"))); }

Specs case_out_specs(const GoldenCase& c) {
  const std::vector<Specs> specs = parse_specs(c.params.texts("out_specs"));
  return specs.size() == 1 ? specs.front() : Specs(specs);
}

}  // namespace shmap::testing
