// The meshes that the processes of a job have made, and on which of them they communicate: the
// comparison, in the first process of a mesh. Private to Exchanges, whose mutex protects the
// object.
//
// It is a fault that two processes begin collectives on two meshes of the same devices while
// neither has made the other's mesh: each then waits for the other. Nothing else is a fault, since
// it may be meant:
//   - a mesh that one process makes alone, as to print it or to put arrays on it;
//   - meshes of different devices, as of groups that make theirs in one function, in any order;
//   - meshes of the same devices that all processes make, in whatever order.
// Two processes that begin on two such meshes in different orders, and one that communicates on a
// mesh that it alone has made while the others do so on one that it has made too, are found as
// late.
#pragma once
#include <cstdint>
#include <map>
#include <string>

#include "core/processes/peers.h"

namespace shmap {

struct ReportedMesh {
  std::uint64_t devices = 0;  // a hash of the devices, whatever their order
  std::uint64_t space = 0;    // of the mesh
  std::string what;           // for the error: "Mesh('i': 4) of devices 0 to 3, made at a.cpp:12"
};

class MeshReports {
 public:
  explicit MeshReports(const Peers& peers) : peers_(peers) {}

  void made(int process, const ReportedMesh& mesh);
  // The process begins its first collective on a mesh that it has made. Returns the text of a
  // fault, or "".
  std::string begun(int process, const ReportedMesh& mesh);

 private:
  struct Made {
    std::string what;
    bool begun = false;
  };
  using OfProcess = std::map<std::uint64_t, Made>;  // by space

  const Peers& peers_;
  std::map<std::uint64_t, std::map<int, OfProcess>> reports_;  // by devices, and by process
};

}  // namespace shmap
