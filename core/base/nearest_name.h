// The name that somebody meant: for errors about names that are not known.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace shmap {

// How many letters have to be put in, left out or exchanged to make one of the other.
int edit_distance(std::string_view a, std::string_view b);

// " (did you mean 'rows'?)", or "" where no known name resembles the one given. Names that differ
// in upper and lower case alone resemble each other, as do those of which one begins with the
// other; others where a third of the letters at most differ.
std::string did_you_mean(std::string_view given, const std::vector<std::string>& known);

}  // namespace shmap
