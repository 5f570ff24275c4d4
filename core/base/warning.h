// Warnings: the only text that the library prints unasked.
#pragma once
#include <string_view>

namespace shmap {

// Prints a message to stderr, or passes it to the warning handler. Any thread; never throws.
void warn(std::string_view message) noexcept;

// Installs a handler for later warnings and returns the previous one; null restores printing to
// stderr. Any thread.
using WarningHandler = void (*)(std::string_view message) noexcept;
WarningHandler set_warning_handler(WarningHandler handler) noexcept;

}  // namespace shmap
