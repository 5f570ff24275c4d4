// A value that has to be the same in all processes of a mesh.
#pragma once
#include <cstdint>
#include <string>

namespace shmap {

struct SameValue {
  enum class Role : std::int32_t { program, captured, argument, put };
  Role role;
  std::uint64_t space = 0;  // of the mesh
  std::uint64_t key = 0;    // of the place in the user's program; what is reported for one key is
                            // compared in the order of the reports
  std::uint64_t hash = 0;   // of the value
  std::uint32_t equations = 0;  // of a program
  std::string what;  // for the error: "captured array 0 of type f32[4] of the function at a.cpp:12"
};

}  // namespace shmap
