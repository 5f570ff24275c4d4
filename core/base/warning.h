// Warnings: the one way in which the library speaks without being asked.
#pragma once
#include <string_view>

namespace shmap {

// One message; written to stderr unless somebody else takes it. Any thread, never throws.
void warn(std::string_view message) noexcept;

// Takes the warnings from now on; null gives them back to stderr. Any thread may call it.
using WarningHandler = void (*)(std::string_view message) noexcept;
WarningHandler set_warning_handler(WarningHandler handler) noexcept;  // returns the one before

}  // namespace shmap
