// The subscripts of einsum: any text gives an error that says what is wrong, or the result that a
// plain loop over all indices gives.
#include <cstdio>
#include <map>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "shmap/shmap.h"
#include "tests/fuzz/fuzz.h"

namespace shmap::fuzz {

namespace {

struct Tally {
  long long accepted = 0, refused = 0, compared = 0;
  ~Tally() {
    std::printf("%lld subscripts accepted (%lld compared with a loop), %lld refused\n", accepted,
                compared, refused);
  }
};
Tally tally;

struct Operand {
  Shape shape;
  std::vector<std::int32_t> values;
};

// Small numbers, so that products of a few and sums of many fit.
Operand operand_of(const Shape& shape) {
  Operand out{shape, std::vector<std::int32_t>(static_cast<std::size_t>(shape.num_elements()))};
  for (std::size_t i = 0; i < out.values.size(); ++i)
    out.values[i] = static_cast<std::int32_t>(i % 5) - 2;
  return out;
}

// Computes the result by a loop over all indices, for subscripts that einsum accepted, without an
// ellipsis.
Operand by_loop(std::string_view text, const std::vector<Operand>& operands) {
  std::string clean;
  for (char c : text)
    if (c != ' ') clean += c;
  const std::size_t arrow = clean.find("->");
  std::vector<std::string> terms(1);
  for (char c : clean.substr(0, arrow)) {
    if (c == ',') {
      terms.emplace_back();
    } else {
      terms.back() += c;
    }
  }
  std::map<char, std::int64_t> sizes;
  std::map<char, int> times;
  for (std::size_t i = 0; i < terms.size(); ++i) {
    for (std::size_t d = 0; d < terms[i].size(); ++d) {
      std::int64_t& size = sizes.emplace(terms[i][d], 1).first->second;
      // A dim of size 1 is repeated along the others', as in NumPy's broadcasting.
      if (size == 1) size = operands[i].shape[d];
      ++times[terms[i][d]];
    }
  }
  std::string output;
  if (arrow != clean.npos) {
    output = clean.substr(arrow + 2);
  } else {
    for (const auto& [letter, n] : times)
      if (n == 1) output += letter;
  }
  Shape out_shape;
  for (char c : output) out_shape.push_back(sizes.at(c));
  Operand out{out_shape,
              std::vector<std::int32_t>(static_cast<std::size_t>(out_shape.num_elements()))};
  std::map<char, std::int64_t> index;
  for (const auto& [letter, size] : sizes) {
    if (size == 0) return out;
    index[letter] = 0;
  }
  for (;;) {
    std::uint32_t product = 1;
    for (std::size_t i = 0; i < terms.size(); ++i) {
      std::int64_t at = 0;
      for (std::size_t d = 0; d < terms[i].size(); ++d) {
        const std::int64_t extent = operands[i].shape[d];
        at = at * extent + (extent == 1 ? 0 : index[terms[i][d]]);
      }
      product *= static_cast<std::uint32_t>(operands[i].values[static_cast<std::size_t>(at)]);
    }
    std::int64_t place = 0;
    for (char c : output) place = place * sizes[c] + index[c];
    std::int32_t& sum = out.values[static_cast<std::size_t>(place)];
    sum = static_cast<std::int32_t>(static_cast<std::uint32_t>(sum) + product);
    auto letter = sizes.begin();
    for (; letter != sizes.end(); ++letter) {
      if (++index[letter->first] < letter->second) break;
      index[letter->first] = 0;
    }
    if (letter == sizes.end()) return out;
  }
}

// True for subscripts whose loop over all indices takes less than a second.
bool is_small(std::string_view text) {
  std::map<char, int> letters;
  for (char c : text) ++letters[c];
  return letters.size() <= 10;
}

}  // namespace

// The first bytes are the operands: how many, then for each its rank and its extents.
std::vector<std::string> seeds() {
  const auto of = [](std::vector<std::vector<int>> shapes, const char* text) {
    std::string out(1, static_cast<char>(shapes.size()));
    for (const auto& shape : shapes) {
      out += static_cast<char>(shape.size());
      for (int e : shape) out += static_cast<char>(e);
    }
    return out + text;
  };
  return {of({{2, 3}, {3, 2}}, "ij,jk->ik"),
          of({{2, 3}, {3, 2}}, "ij,jk"),
          of({{3, 3}}, "ii->i"),
          of({{3, 3}}, "ii"),
          of({{2, 3, 2}}, "abc->cab"),
          of({{2, 3}, {2, 3}}, "...,..."),
          of({{2, 3, 2}, {2, 3}}, "...ij,...j->...i"),
          of({{2}, {3}, {2}}, "a,b,a->ab"),
          of({{1, 3}, {2, 1}}, "ij,ij->ij"),
          of({{0, 3}, {3, 2}}, "ij,jk->ik"),
          of({{2, 2}, {2, 2}, {2, 2}}, "ab,bc,cd->da"),
          of({{}, {2}}, ",i->i"),
          of({{2, 3}}, "Ij -> jI"),
          of({{2, 2, 2, 2}}, "iijj->ij")};
}

std::vector<std::string> dictionary() {
  return {"->",
          ",",
          "...",
          "i",
          "j",
          "k",
          "ij",
          "jk",
          "->ij",
          ".",
          "..",
          "-",
          ">",
          " ",
          "A",
          "z",
          "\xff",
          "\n",
          "1",
          "@",
          "[",
          "iii",
          "abcdefghijklmnopq",
          ",,",
          "\x01",
          "\x02",
          "\x03",
          std::string("\0", 1)};
}

}  // namespace shmap::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace shmap;
  std::size_t at = 0;
  const auto next = [&](int below) { return at < size ? data[at++] % below : 0; };
  std::vector<fuzz::Operand> operands;
  std::vector<Array> arrays;
  for (int n = next(5); n > 0; --n) {
    Shape shape;
    for (int rank = next(6); rank > 0; --rank) shape.push_back(next(4));
    operands.push_back(fuzz::operand_of(shape));
    arrays.push_back(array(operands.back().values, shape));
  }
  const std::string text(reinterpret_cast<const char*>(data) + at, size - at);
  try {
    const Array out = detail::einsum(Subscripts(text), arrays);
    ++fuzz::tally.accepted;
    if (text.find('.') != text.npos || !fuzz::is_small(text)) {
      out.block_until_ready();
      return 0;
    }
    const fuzz::Operand wanted = fuzz::by_loop(text, operands);
    fuzz::require(out.shape() == wanted.shape, "the shape is the loop's");
    fuzz::require(out.to_vector<std::int32_t>() == wanted.values, "the values are the loop's");
    ++fuzz::tally.compared;
  } catch (const ValueError& e) {
    const std::string_view what = e.what();
    fuzz::require_printable(what, true);
    fuzz::require(what.size() < 2000, "a message is not endless");
    fuzz::require(what.starts_with("einsum"), "a message names the function");
    ++fuzz::tally.refused;
  }
  return 0;
}
