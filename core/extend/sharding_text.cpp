#include "core/extend/sharding_text.h"

#include <map>

#include "core/base/counted.h"

namespace shmap {

namespace {

// Parses "ab,bc->ac" against the types. ValueError where the text does not fit them.
class RuleText {
 public:
  RuleText(const std::string& name, const std::string& text) : name_(name), text_(text) {}

  FactorRule parse(Types in, Types out) {
    const std::size_t arrow = text_.find("->");
    if (arrow == std::string::npos) fail("has no '->'");
    FactorRule rule;
    rule.operands = side(text_.substr(0, arrow), in, rule, "operands");
    rule.results = side(text_.substr(arrow + 2), out, rule, "results");
    for (auto& [letter, at] : factors_) {
      bool in_result = false;
      for (const auto& result : rule.results)
        for (const auto& dim : result) in_result = in_result || dim[0] == at;
      if (!in_result) rule.factors[static_cast<std::size_t>(at)].kind = FactorKind::blocked;
    }
    return rule;
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw ValueError(name_ + ": the sharding rule \"" + text_ + "\" of its def_sharding_rule " +
                     why +
                     ": it is written as \"ab,bc->ac\", with a letter a dim; for operands of any "
                     "rank give a function of their types that returns such a text");
  }
  std::vector<std::vector<std::vector<int>>> side(const std::string& text, Types types,
                                                  FactorRule& rule, const char* what) {
    std::vector<std::vector<std::vector<int>>> out(1);
    for (char c : text) {
      if (c == ',') {
        out.emplace_back();
      } else if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
        const auto [it, fresh] = factors_.emplace(c, static_cast<int>(rule.factors.size()));
        if (fresh) rule.factors.emplace_back();
        out.back().push_back({it->second});
      } else if (c != ' ') {
        fail(std::string("holds '") + c + "'");
      }
    }
    if (out.size() != types.size())
      fail("has " + std::to_string(out.size()) + " " + what + ", and there are " +
           std::to_string(types.size()));
    for (std::size_t i = 0; i < out.size(); ++i) {
      // A host scalar operand has no dims of its own.
      if (types[i].rank() == 0 && types[i].weak()) out[i].clear();
      if (out[i].size() != static_cast<std::size_t>(types[i].rank()))
        fail("gives " + counted(out[i].size(), "dim") + " to a value of type " +
             to_string(types[i]));
      for (std::size_t d = 0; d < out[i].size(); ++d) {
        Factor& factor = rule.factors[static_cast<std::size_t>(out[i][d][0])];
        const std::int64_t extent = types[i].dims()[d];
        if (extent == 1 && factor.size != 1) {
          out[i][d].clear();  // broadcast
        } else if (factor.size == 1) {
          factor.size = extent;
        } else if (factor.size != extent) {
          fail("gives one letter to dims of " + std::to_string(factor.size) + " and " +
               std::to_string(extent));
        }
      }
    }
    return out;
  }
  const std::string &name_, &text_;
  std::map<char, int> factors_;
};

}  // namespace

FactorRule parse_sharding_text(const std::string& primitive, const std::string& text, Types in,
                               Types out) {
  return RuleText(primitive, text).parse(in, out);
}

}  // namespace shmap
