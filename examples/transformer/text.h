// A text as tokens: its characters (bytes), numbered in their order.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace transformer {

class Text {
 public:
  // The file's text. The last tenth is held out. ValueError: there is no such file, or fewer than
  // 20 characters in it.
  explicit Text(const std::string& path);

  int vocab() const { return static_cast<int>(characters_.size()); }
  std::size_t size() const { return tokens_.size(); }
  // ValueError for a character that the text has not.
  std::vector<std::int32_t> encode(const std::string& text) const;
  std::string decode(const std::vector<std::int32_t>& tokens) const;

  // `rows` pieces of so many tokens, row-major, from places that `number` alone decides, of what is
  // trained with or of what is held out: the same for all processes, and for a run that goes on.
  std::vector<std::int32_t> windows(std::int64_t rows, std::int64_t length, std::uint64_t number,
                                    bool held_out = false) const;

 private:
  std::string characters_;  // sorted; a token is an index of it
  std::vector<std::int32_t> tokens_;
};

}  // namespace transformer
