// A library that is loaded before OpenMPI (SHMAP_MPI_PATH) in one process of a test. By the data
// that it sends at start, that process has another version of shmap.
#include <mpi.h>

#include <cstring>

#include "core/processes/processes.h"

extern "C" int MPI_Allgather(const void* mine, int count, MPI_Datatype type, void* all, int counts,
                             MPI_Datatype types, MPI_Comm comm) {
  if (count != static_cast<int>(sizeof(shmap::StartCard)))
    return PMPI_Allgather(mine, count, type, all, counts, types, comm);
  shmap::StartCard card;
  std::memcpy(&card, mine, sizeof card);
  std::strcpy(card.version, "0.0.1");
  return PMPI_Allgather(&card, count, type, all, counts, types, comm);
}
