// The most similar known name, for errors about unknown names.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace shmap {

// The number of letters to insert, remove or exchange to turn one name into the other.
int edit_distance(std::string_view a, std::string_view b);

// " (did you mean 'rows'?)", or "" where no known name is similar. Similar are names that differ
// only in upper and lower case, names of which one begins with the other, and names of which at
// most a third of the letters differ.
std::string did_you_mean(std::string_view given, const std::vector<std::string>& known);

}  // namespace shmap
