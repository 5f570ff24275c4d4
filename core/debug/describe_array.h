// What a debugger shows of an array while the program stands still: its type, where it is and its
// values.
#pragma once
#include <string>

#include "core/ir/node.h"

namespace shmap {

// "f32[8,4], P('i', none) on Mesh('i': 4) of devices 0 to 3" and, on the lines below, the values as
// NumPy prints them; of a value inside of a shard_map body the block of each local device. In the
// place of the values a line says why there are none: they are not computed yet, the operation
// failed, the memory is a GPU's, they pass 64 MiB, other processes have the rest, or the value is
// one that is traced. "<empty Array>" for null.
//
// Waits for nothing, takes no lock but the allocator's and leaves the array as it is, so that it
// may be called wherever a thread was stopped. The program must not run meanwhile.
std::string describe_array(const Node* node);

}  // namespace shmap

// The same for the pretty-printer of gdb (cmake/shmap-gdb.py), which finds it by this name in a
// program without debug information about the library. `node` is the member of an Array. The text
// is valid until this thread's next call; it says so where it could not be made.
extern "C" const char* shmap_describe_array(const shmap::detail::NodeBase* node) noexcept;
