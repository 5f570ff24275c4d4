// The rows of collectives_bench in raw MPI, as a peer: the same collectives of int32, with sizes
// counted in the same way, one rank per process and reused buffers.
//
//   mpirun -n 2 mpi_rows [begin bytes] [end bytes] [factor] [calls]
#define OMPI_SKIP_MPICXX 1  // the C interface alone
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <utility>
#include <vector>

namespace {

long long argument(int argc, char** argv, int i, long long otherwise) {
  return argc > i ? std::atoll(argv[i]) : otherwise;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, n = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &n);
  const long long begin = argument(argc, argv, 1, 8), end = argument(argc, argv, 2, 8 << 20),
                  factor = std::max(2LL, argument(argc, argv, 3, 8)),
                  calls = argument(argc, argv, 4, 200);
  for (long long size = begin; size <= end; size *= factor) {
    const int total = static_cast<int>(std::max(1LL, size / 4)), each = std::max(1, total / n);
    const auto room = static_cast<std::size_t>(std::max(total, each * n));
    std::vector<int> in(room, 1), out(room);
    const int right = (rank + 1) % n, left = (rank + n - 1) % n;
    const std::pair<const char*, std::function<void()>> all[] = {
        {"all_reduce",
         [&] {
           MPI_Allreduce(in.data(), out.data(), total, MPI_INT32_T, MPI_SUM, MPI_COMM_WORLD);
         }},
        {"all_gather",
         [&] {
           MPI_Allgather(in.data(), each, MPI_INT32_T, out.data(), each, MPI_INT32_T,
                         MPI_COMM_WORLD);
         }},
        {"reduce_scatter",
         [&] {
           MPI_Reduce_scatter_block(in.data(), out.data(), each, MPI_INT32_T, MPI_SUM,
                                    MPI_COMM_WORLD);
         }},
        {"alltoall",
         [&] {
           MPI_Alltoall(in.data(), each, MPI_INT32_T, out.data(), each, MPI_INT32_T,
                        MPI_COMM_WORLD);
         }},
        {"sendrecv",
         [&] {
           MPI_Sendrecv(in.data(), total, MPI_INT32_T, right, 0, out.data(), total, MPI_INT32_T,
                        left, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
         }},
        {"broadcast", [&] { MPI_Bcast(in.data(), total, MPI_INT32_T, 0, MPI_COMM_WORLD); }},
    };
    for (const auto& [name, call] : all) {
      for (int i = 0; i < 5; ++i) call();
      MPI_Barrier(MPI_COMM_WORLD);
      const double start = MPI_Wtime();
      for (long long i = 0; i < calls; ++i) call();
      const double mine = (MPI_Wtime() - start) / static_cast<double>(calls) * 1e6;
      double us = 0;
      MPI_Reduce(&mine, &us, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
      if (rank == 0) std::printf("mpi %-14s %10lld %10.2f us\n", name, size, us);
    }
  }
  MPI_Finalize();
  return 0;
}
