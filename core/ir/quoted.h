// Quoted strings, as printed programs contain them.
#pragma once
#include <string>
#include <string_view>

namespace shmap {

// Returns the text with a backslash before each quote and backslash, and \n for a line end. Call it
// by its qualified name: for a std::string, std::quoted would be found too.
std::string quoted(std::string_view text, char quote);

}  // namespace shmap
