// contains(list, value): true if a short list of numbers, for example dims or ranks, has a value.
#pragma once
#include <algorithm>
#include <utility>

namespace shmap {

// Compares with std::cmp_equal, so that elements and `value` may differ in signedness.
template <class List, class T>
bool contains(const List& list, T value) {
  return std::any_of(list.begin(), list.end(),
                     [value](const auto& element) { return std::cmp_equal(element, value); });
}

}  // namespace shmap
