#include "text.h"

#include <shmap/error.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>

namespace transformer {

namespace {

// Numbers that look random: the state's bits mixed, one state after another (splitmix64).
std::uint64_t mixed(std::uint64_t state) {
  state += 0x9e3779b97f4a7c15u;
  state = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9u;
  state = (state ^ (state >> 27)) * 0x94d049bb133111ebu;
  return state ^ (state >> 31);
}

}  // namespace

Text::Text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw shmap::ValueError("cannot read the text \"" + path + "\"");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (text.size() < 20)
    throw shmap::ValueError("the text \"" + path + "\" has " + std::to_string(text.size()) +
                            " characters: at least 20 are wanted");
  const std::set<char> distinct(text.begin(), text.end());
  characters_.assign(distinct.begin(), distinct.end());
  tokens_ = encode(text);
}

std::vector<std::int32_t> Text::encode(const std::string& text) const {
  std::vector<std::int32_t> out;
  out.reserve(text.size());
  for (const char c : text) {
    const auto at = std::lower_bound(characters_.begin(), characters_.end(), c);
    if (at == characters_.end() || *at != c)
      throw shmap::ValueError(std::string("the character '") + c +
                              "' is not in the text that the model has learnt");
    out.push_back(static_cast<std::int32_t>(at - characters_.begin()));
  }
  return out;
}

std::string Text::decode(const std::vector<std::int32_t>& tokens) const {
  std::string out;
  for (const std::int32_t token : tokens) out += characters_.at(static_cast<std::size_t>(token));
  return out;
}

std::vector<std::int32_t> Text::windows(std::int64_t rows, std::int64_t length,
                                        std::uint64_t number, bool held_out) const {
  const auto all = static_cast<std::int64_t>(tokens_.size()), split = all - all / 10;
  const std::int64_t first = held_out ? split : 0, last = (held_out ? all : split) - length;
  if (last < first)
    throw shmap::ValueError("pieces of " + std::to_string(length) + " characters are wanted, and " +
                            (held_out ? "what is held out" : "the text") + " has " +
                            std::to_string(last + length - first));
  std::vector<std::int32_t> out;
  out.reserve(static_cast<std::size_t>(rows * length));
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto choices = static_cast<std::uint64_t>(last - first + 1);
    const std::uint64_t drawn = mixed(mixed(number) + static_cast<std::uint64_t>(row)) % choices;
    const auto from = tokens_.begin() + first + static_cast<std::int64_t>(drawn);
    out.insert(out.end(), from, from + length);
  }
  return out;
}

}  // namespace transformer
