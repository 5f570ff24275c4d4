// The rows of collectives_bench in raw MPI, as a peer: the same collectives of int32, with sizes
// counted in the same way, one rank per process and reused buffers. A reduce_scatter is the faster
// one of MPI's two functions for it. All results are checked after the timed calls; the exit code
// is 1 if one is wrong.
//
//   mpirun -n 2 mpi_rows [begin bytes] [end bytes] [factor] [calls]
#define OMPI_SKIP_MPICXX 1  // the C interface alone
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

namespace {

// The argument, or -1 where it is no whole number from `least` on.
long long argument(int argc, char** argv, int i, long long otherwise, long long least) {
  if (argc <= i) return otherwise;
  char* end = nullptr;
  const long long value = std::strtoll(argv[i], &end, 10);
  return end == argv[i] || *end != 0 || value < least ? -1 : value;
}

// Element i of a rank's operand.
int value(int rank, int i) { return (rank * 7919 + i) % 1000003; }

int sum_of_values(int n, int i) {
  int sum = 0;
  for (int r = 0; r < n; ++r) sum += value(r, i);
  return sum;
}

struct Row {
  const char* name;
  std::function<void()> call;
  int results;                     // elements of a rank's result
  std::function<int(int)> wanted;  // an element of it
};

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, n = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &n);
  constexpr long long kMostBytes = 4LL << 30;  // MPI's counts are ints
  const long long begin = argument(argc, argv, 1, 8, 1), end = argument(argc, argv, 2, 8 << 20, 1),
                  factor = argument(argc, argv, 3, 8, 2), calls = argument(argc, argv, 4, 200, 1);
  if (std::min({begin, end, factor, calls}) < 0 || end < begin || end > kMostBytes) {
    if (rank == 0)
      std::fprintf(stderr,
                   "mpi_rows [begin bytes, from 1] [end bytes, to 4 GiB] [factor, from 2] "
                   "[calls, from 1]\n");
    MPI_Finalize();
    return 2;
  }
  long long wrong_in_all = 0;
  for (long long size = begin; size <= end; size *= factor) {
    const int total = static_cast<int>(std::max(1LL, size / 4)), each = std::max(1, total / n);
    const auto room = static_cast<std::size_t>(std::max(total, each * n));
    std::vector<int> in(room), out(room);
    const std::vector<int> parts(static_cast<std::size_t>(n), each);
    const int right = (rank + 1) % n, left = (rank + n - 1) % n;
    const auto sum = [n](int i) { return sum_of_values(n, i); };
    const auto sum_of_part = [=](int i) { return sum_of_values(n, rank * each + i); };
    const Row all[] = {
        {"all_reduce",
         [&] { MPI_Allreduce(in.data(), out.data(), total, MPI_INT32_T, MPI_SUM, MPI_COMM_WORLD); },
         total, sum},
        {"all_gather",
         [&] {
           MPI_Allgather(in.data(), each, MPI_INT32_T, out.data(), each, MPI_INT32_T,
                         MPI_COMM_WORLD);
         },
         each * n, [=](int i) { return value(i / each, i % each); }},
        {"reduce_scatter",
         [&] {
           MPI_Reduce_scatter_block(in.data(), out.data(), each, MPI_INT32_T, MPI_SUM,
                                    MPI_COMM_WORLD);
         },
         each, sum_of_part},
        {"reduce_scatter",
         [&] {
           MPI_Reduce_scatter(in.data(), out.data(), parts.data(), MPI_INT32_T, MPI_SUM,
                              MPI_COMM_WORLD);
         },
         each, sum_of_part},
        {"alltoall",
         [&] {
           MPI_Alltoall(in.data(), each, MPI_INT32_T, out.data(), each, MPI_INT32_T,
                        MPI_COMM_WORLD);
         },
         each * n, [=](int i) { return value(i / each, rank * each + i % each); }},
        {"sendrecv",
         [&] {
           MPI_Sendrecv(in.data(), total, MPI_INT32_T, right, 0, out.data(), total, MPI_INT32_T,
                        left, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
         },
         total, [=](int i) { return value(left, i); }},
        // The root sends `in`, and the others receive it there.
        {"broadcast", [&] { MPI_Bcast(in.data(), total, MPI_INT32_T, 0, MPI_COMM_WORLD); }, total,
         [](int i) { return value(0, i); }},
    };
    double us_of_first = 0;  // of two functions of one name
    for (const Row& row : all) {
      for (std::size_t i = 0; i < room; ++i) in[i] = value(rank, static_cast<int>(i));
      std::fill(out.begin(), out.end(), -1);
      for (int i = 0; i < 5; ++i) row.call();
      MPI_Barrier(MPI_COMM_WORLD);
      const double start = MPI_Wtime();
      for (long long i = 0; i < calls; ++i) row.call();
      const double mine = (MPI_Wtime() - start) / static_cast<double>(calls) * 1e6;
      double us = 0;
      MPI_Allreduce(&mine, &us, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
      const std::vector<int>& got = std::strcmp(row.name, "broadcast") == 0 ? in : out;
      long long wrong = 0, wrong_of_all = 0;
      for (int i = 0; i < row.results; ++i)
        wrong += got[static_cast<std::size_t>(i)] != row.wanted(i);
      MPI_Allreduce(&wrong, &wrong_of_all, 1, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
      wrong_in_all += wrong_of_all;
      if (rank == 0 && wrong_of_all > 0)
        std::printf("#wrong %s %lld: %lld values\n", row.name, size, wrong_of_all);
      const bool has_other = std::strcmp(row.name, "reduce_scatter") == 0;
      if (has_other && us_of_first == 0) {
        us_of_first = us;
        continue;
      }
      if (has_other) us = std::min(us, us_of_first);
      if (rank == 0) std::printf("mpi %-14s %10lld %10.2f us\n", row.name, size, us);
    }
  }
  MPI_Finalize();
  return wrong_in_all == 0 ? 0 : 1;
}
