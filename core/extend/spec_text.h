// Specs and meshes in the syntax of printed programs: P('i', none, ('j', 'k')), Mesh('i': 4, 'j':
// 2).
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/extend/param_reader.h"
#include "shmap/partition_spec.h"

namespace shmap {

// The reader's ValueError where the text is not a spec.
PartitionSpec read_spec(ParamReader& reader, std::string_view name);
std::vector<PartitionSpec> read_specs(ParamReader& reader, std::string_view name);
struct MeshText {
  std::vector<std::string> names;
  std::vector<std::int64_t> sizes;
};
MeshText read_mesh(ParamReader& reader, std::string_view name);
// A mesh with these axes: the mesh of the reader's scope if it fits, otherwise a mesh of the first
// devices, otherwise an abstract mesh.
const detail::MeshImpl* mesh_of_text(ParamReader& reader, const MeshText& text);

}  // namespace shmap
