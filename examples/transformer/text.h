// A text as tokens: its characters (bytes), numbered in ascending order.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace transformer {

class Text {
 public:
  // Reads the file. The last tenth of the text is held out. ValueError if there is no such file or
  // it has fewer than 20 characters.
  explicit Text(const std::string& path);

  int vocab() const { return static_cast<int>(characters_.size()); }
  std::size_t size() const { return tokens_.size(); }
  // ValueError for a character that the text does not contain.
  std::vector<std::int32_t> encode(const std::string& text) const;
  std::string decode(const std::vector<std::int32_t>& tokens) const;

  // Returns `rows` pieces of `length` tokens, row-major, of the training text or of the held-out
  // text. Only `number` decides their positions, so that they are the same in all processes and in
  // a resumed run.
  std::vector<std::int32_t> windows(std::int64_t rows, std::int64_t length, std::uint64_t number,
                                    bool held_out = false) const;

 private:
  std::string characters_;  // sorted; a token is an index into it
  std::vector<std::int32_t> tokens_;
};

}  // namespace transformer
