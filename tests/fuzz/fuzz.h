// Fuzzing a parser: a target is a file <name>_fuzz.cpp that defines these two functions. Linked
// with driver.cpp it is a program that mutates its seeds, the same way on every run; with clang's
// -fsanitize=fuzzer instead, libFuzzer drives it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

// Returns 0, or aborts where the parser's answer is wrong. Crashes and sanitizer reports are the
// other failures.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace shmap::fuzz {

std::vector<std::string> seeds();       // well-formed inputs
std::vector<std::string> dictionary();  // pieces that the format is made of

// Aborts with a message where a property that must hold does not.
void require(bool holds, const char* property);
// Requires an error's message to be one line of text, neither empty nor endless.
void require_one_line(std::string_view message);
// Requires an error's message that may quote the input to be printable ASCII, with new lines if
// `lines`, and the "…" with which a long quotation ends.
void require_printable(std::string_view message, bool lines);

}  // namespace shmap::fuzz
