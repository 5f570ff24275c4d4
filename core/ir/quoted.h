// Texts in quotes, as printed programs have them.
#pragma once
#include <string>
#include <string_view>

namespace shmap {

// With a backslash before quotes and backslashes, and \n for a line's end.
std::string quoted(std::string_view text, char quote);

}  // namespace shmap
