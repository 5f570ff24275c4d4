// A library that is loaded before OpenMPI (SHMAP_MPI_PATH) in the processes of a test. It changes
// the last byte of messages of 4 KB and more.
#include <mpi.h>

#include <vector>

extern "C" int MPI_Isend(const void* data, int count, MPI_Datatype type, int to, int tag,
                         MPI_Comm comm, MPI_Request* request) {
  if (count < 4096) return PMPI_Isend(data, count, type, to, tag, comm, request);
  const char* const bytes = static_cast<const char*>(data);
  auto* const changed = new std::vector<char>(bytes, bytes + count);  // MPI reads it later
  changed->back() ^= 1;
  return PMPI_Isend(changed->data(), count, type, to, tag, comm, request);
}
