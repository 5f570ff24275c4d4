// The text that a debugger shows for an array while the program is stopped: type, placement and
// values; and for a mesh.
#pragma once
#include <string>

#include "core/ir/node.h"

namespace shmap {

// "f32[8,4], P('i', none) on Mesh('i': 4) of devices 0 to 3" and, on the following lines, the
// values as NumPy prints them; for a value in a shard_map body, the block of each local device.
// Where the values cannot be shown, a line gives the reason: they are not computed yet, the
// operation failed, they are in a GPU's memory, they exceed 64 MiB, other processes have the rest,
// or the value is traced. "<empty Array>" for null.
//
// Does not wait, takes no lock but the allocator's, and does not change the array, so that it may
// be called at any point where a thread was stopped. The program must not run meanwhile.
std::string describe_array(const Node* node);

}  // namespace shmap

// Does the same for the pretty-printer of gdb (cmake/shmap-gdb.py), which finds this function by
// its name in programs without debug information. `node` is the member of an Array. The text is
// valid until this thread's next call. If it cannot be made, the text says so.
extern "C" const char* shmap_describe_array(const shmap::detail::NodeBase* node) noexcept;

// The same for a Mesh, of which `mesh` is the member: "Mesh('i': 2, 'j': 2) of devices 0 to 3".
extern "C" const char* shmap_describe_mesh(const shmap::detail::MeshImpl* mesh) noexcept;
