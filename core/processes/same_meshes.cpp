// Meshes that have to be the same in all their processes: each process reports to the mesh's first
// process which meshes it makes and on which it communicates. Nobody waits for a report.
#include <string>
#include <utility>

#include "core/processes/exchanges.h"

namespace shmap {

void Exchanges::report_mesh(const ReportedMesh& mesh, MeshUse use, int first) noexcept {
  try {
    EndedExchanges ended;
    bool posted = false;
    {
      std::lock_guard lock(mutex_);
      if (stopped_ || leaving_ || !fault_.empty()) return;
      if (first == peers_.self()) {
        note_mesh(first, mesh, use);
        if (!fault_.empty()) end_all(ended);
      } else {
        Header header;
        header.space = mesh.space;
        header.number = mesh.devices;
        header.tag = static_cast<std::int32_t>(use);
        send_text(first, Kind::mesh, header, mesh.what);
        posted = !letters_.empty() || !outgoing_.empty();
      }
    }
    ended.tell();
    if (!posted) return;
    needs_looks_.store(true, std::memory_order_seq_cst);
    wake_thread(Rest::sleep);
  } catch (...) {
    return;  // no memory for the report: nothing depends on it
  }
}

void Exchanges::take_mesh(int from, const Header& header, std::string what) {
  note_mesh(from, {header.number, header.space, std::move(what)}, static_cast<MeshUse>(header.tag));
}

void Exchanges::note_mesh(int process, const ReportedMesh& mesh, MeshUse use) {
  if (use == MeshUse::made) return meshes_.made(process, mesh);
  const std::string fault = meshes_.begun(process, mesh);
  if (!fault.empty()) fail(fault, true);
}

}  // namespace shmap
