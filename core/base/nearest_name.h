// The most similar known name, for errors about unknown names.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace shmap {

// The least number of letters to insert, remove or replace to turn one name into the other
// (Levenshtein distance).
int edit_distance(std::string_view a, std::string_view b);

// Returns " (did you mean 'rows'?)", or "" if no known name is similar. Two names are similar if
// they differ only in upper and lower case, if one begins with the other, or if at most a third of
// the letters differ.
std::string did_you_mean(std::string_view given, const std::vector<std::string>& known);

}  // namespace shmap
