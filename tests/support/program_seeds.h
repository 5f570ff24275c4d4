// Which random programs a test runs: SHMAP_TEST_SEED is the first one's seed, SHMAP_TEST_PROGRAMS
// how many run.
#pragma once
#include <cstdlib>
#include <string>

namespace shmap::test {

// The number in the environment variable, or `otherwise` where it is not set.
inline unsigned setting(const char* name, unsigned otherwise) {
  const char* const text = std::getenv(name);
  return text != nullptr ? static_cast<unsigned>(std::strtoul(text, nullptr, 10)) : otherwise;
}

// The command that runs the one program with that seed, of the test program of that name.
inline std::string command_for(unsigned seed, const char* test) {
  std::string text;
  for (const char* name : {"SHMAP_DEVICES", "SHMAP_EXECUTOR", "SHMAP_SIM_GPUS"})
    if (const char* value = std::getenv(name)) text += std::string(name) + "=" + value + " ";
  return text + "SHMAP_TEST_SEED=" + std::to_string(seed) + " SHMAP_TEST_PROGRAMS=1 " + test;
}

}  // namespace shmap::test
