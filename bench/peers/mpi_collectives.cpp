// The collectives in raw MPI, as a peer: `mpirun -np 8 mpi_collectives …`, with the arguments of
// bench_main. Rank 0 answers the requests; the other ranks sleep on a semaphore between rounds,
// since an MPI rank that waits in a call spins and would take time from the program measured in
// turn. Each rank reuses its buffers, as an MPI program would.
#define OMPI_SKIP_MPICXX 1  // the C interface alone
#define MPICH_SKIP_MPICXX 1
#include <fcntl.h>
#include <mpi.h>
#include <semaphore.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/support/data.h"
#include "bench/support/rows.h"

namespace {

using shmap::bench::Row;
using shmap::bench::Work;

enum class Kind { psum, all_gather, psum_scatter, all_to_all, ppermute };
constexpr const char* kNames[] = {"psum", "all_gather", "psum_scatter", "all_to_all", "ppermute"};

int rank = 0, ranks = 1;

// The orders of rank 0 to the other ranks: make a row's buffers, run n calls, check the result,
// drop the buffers, or leave.
enum class Verb { make, run, check, drop, leave };
struct Order {
  Verb verb = Verb::leave;
  Kind kind = Kind::psum;
  long long bytes = 0;  // bytes of every rank's input
  long long calls = 0;
};

// One semaphore for each rank, in memory that all ranks of the node share. Rank 0 posts; the others
// wait.
class Alarm {
 public:
  Alarm() {
    long long pid = getpid();
    MPI_Bcast(&pid, 1, MPI_LONG_LONG, 0, MPI_COMM_WORLD);
    std::string name = "/shmap_bench_" + std::to_string(pid);
    std::size_t size = sizeof(sem_t) * std::size_t(ranks);
    if (rank == 0) {
      int fd = shm_open(name.c_str(), O_CREAT | O_EXCL | O_RDWR, 0600);
      if (fd < 0 || ftruncate(fd, off_t(size)) != 0) MPI_Abort(MPI_COMM_WORLD, 1);
      map(fd, size);
      for (int r = 0; r < ranks; ++r) sem_init(&semaphores_[r], 1, 0);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank != 0) map(shm_open(name.c_str(), O_RDWR, 0600), size);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) shm_unlink(name.c_str());
  }
  void wake_others() {
    for (int r = 1; r < ranks; ++r) sem_post(&semaphores_[r]);
  }
  void sleep() {
    while (sem_wait(&semaphores_[rank]) != 0) {
    }
  }

 private:
  void map(int fd, std::size_t size) {
    void* address = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd < 0 || address == MAP_FAILED) MPI_Abort(MPI_COMM_WORLD, 1);
    close(fd);
    semaphores_ = static_cast<sem_t*>(address);
  }
  sem_t* semaphores_ = nullptr;
};

Alarm* alarm_clock = nullptr;

std::vector<float> input_of(int r, long long bytes) {
  return shmap::bench::random_floats(std::size_t(bytes) / sizeof(float), 100 + std::uint64_t(r));
}

// The buffers of one row on this rank.
class Buffers {
 public:
  Buffers(Kind kind, long long bytes)
      : kind_(kind),
        bytes_(bytes),
        count_(int(bytes / 4)),
        in_(input_of(rank, bytes)),
        out_(kind == Kind::all_gather     ? in_.size() * std::size_t(ranks)
             : kind == Kind::psum_scatter ? in_.size() / std::size_t(ranks)
                                          : in_.size()),
        parts_(std::size_t(ranks), count_ / ranks) {
    if (kind == Kind::psum_scatter) choose();
  }

  void call() {
    switch (kind_) {
      case Kind::psum:
        MPI_Allreduce(in_.data(), out_.data(), count_, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        break;
      case Kind::all_gather:
        MPI_Allgather(in_.data(), count_, MPI_FLOAT, out_.data(), count_, MPI_FLOAT,
                      MPI_COMM_WORLD);
        break;
      case Kind::psum_scatter:
        if (by_parts_) {
          MPI_Reduce_scatter(in_.data(), out_.data(), parts_.data(), MPI_FLOAT, MPI_SUM,
                             MPI_COMM_WORLD);
        } else {
          MPI_Reduce_scatter_block(in_.data(), out_.data(), count_ / ranks, MPI_FLOAT, MPI_SUM,
                                   MPI_COMM_WORLD);
        }
        break;
      case Kind::all_to_all:
        MPI_Alltoall(in_.data(), count_ / ranks, MPI_FLOAT, out_.data(), count_ / ranks, MPI_FLOAT,
                     MPI_COMM_WORLD);
        break;
      case Kind::ppermute:
        MPI_Sendrecv(in_.data(), count_, MPI_FLOAT, (rank + 1) % ranks, 0, out_.data(), count_,
                     MPI_FLOAT, (rank + ranks - 1) % ranks, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        break;
    }
  }

  // Returns what is wrong with this rank's latest result, or "".
  std::string check() const {
    std::size_t n = in_.size(), block = n / std::size_t(ranks);
    std::vector<double> want(out_.size(), 0.0);
    for (int r = 0; r < ranks; ++r) {
      if (kind_ == Kind::ppermute && r != (rank + ranks - 1) % ranks) continue;
      std::vector<float> other = input_of(r, bytes_);
      std::size_t mine = block * std::size_t(rank), at = std::size_t(r);
      switch (kind_) {
        case Kind::psum:
          for (std::size_t k = 0; k < n; ++k) want[k] += other[k];
          break;
        case Kind::all_gather:
          for (std::size_t k = 0; k < n; ++k) want[at * n + k] = other[k];
          break;
        case Kind::psum_scatter:
          for (std::size_t k = 0; k < block; ++k) want[k] += other[mine + k];
          break;
        case Kind::all_to_all:
          for (std::size_t k = 0; k < block; ++k) want[at * block + k] = other[mine + k];
          break;
        case Kind::ppermute:
          for (std::size_t k = 0; k < n; ++k) want[k] = other[k];
          break;
      }
    }
    bool sums = kind_ == Kind::psum || kind_ == Kind::psum_scatter;
    return shmap::bench::difference(out_, want, sums ? 1e-5 : 0.0);
  }

 private:
  // MPI has two functions for a psum_scatter, and which is faster depends on the size. All ranks
  // choose the same.
  void choose() {
    double best[2] = {1e30, 1e30};
    for (int k = 0; k < 8; ++k) {
      by_parts_ = k % 2 == 1;
      MPI_Barrier(MPI_COMM_WORLD);
      const double start = MPI_Wtime();
      call();
      const double mine = MPI_Wtime() - start;
      double slowest = 0;
      MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
      if (k >= 2) best[k % 2] = std::min(best[k % 2], slowest);  // the first of each warms up
    }
    by_parts_ = best[1] < best[0];
  }

  Kind kind_;
  long long bytes_;
  int count_;
  std::vector<float> in_, out_;
  std::vector<int> parts_;  // every rank's part of a psum_scatter
  bool by_parts_ = false;
};

std::unique_ptr<Buffers> buffers;

// Carries out an order on this rank. On rank 0, `run` returns the slowest rank's seconds, and
// `check` the number of ranks whose result is wrong.
double obey(const Order& order) {
  double mine = 0, all = 0;
  switch (order.verb) {
    case Verb::make:
      buffers = std::make_unique<Buffers>(order.kind, order.bytes);
      break;
    case Verb::run: {
      MPI_Barrier(MPI_COMM_WORLD);
      double start = MPI_Wtime();
      for (long long k = 0; k < order.calls; ++k) buffers->call();
      mine = MPI_Wtime() - start;
      MPI_Reduce(&mine, &all, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
      break;
    }
    case Verb::check: {
      std::string fault = buffers->check();
      if (!fault.empty()) std::fprintf(stderr, "#wrong rank %d: %s\n", rank, fault.c_str());
      mine = fault.empty() ? 0 : 1;
      MPI_Reduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
      break;
    }
    case Verb::drop:
      buffers.reset();
      break;
    case Verb::leave:
      break;
  }
  return all;
}

double command(Order order) {
  alarm_clock->wake_others();
  MPI_Bcast(&order, sizeof order, MPI_BYTE, 0, MPI_COMM_WORLD);
  return obey(order);
}

void follow() {
  Order order;
  do {
    alarm_clock->sleep();
    MPI_Bcast(&order, sizeof order, MPI_BYTE, 0, MPI_COMM_WORLD);
    obey(order);
  } while (order.verb != Verb::leave);
}

// Drops every rank's buffers when the last copy of the row's work is destroyed.
struct Dropper {
  ~Dropper() { command({Verb::drop, Kind::psum, 0, 0}); }
};

Work make_work(Kind kind, long long bytes) {
  if (buffers) throw std::runtime_error("one row at a time: release the other one first");
  command({Verb::make, kind, bytes, 0});
  auto dropper = std::make_shared<Dropper>();
  auto check = [kind, bytes, dropper]() -> std::string {
    double wrong = command({Verb::check, kind, bytes, 0});
    return wrong == 0 ? "" : std::to_string(int(wrong)) + " ranks have wrong results";
  };
  auto time_batch = [kind, bytes, dropper](std::int64_t n) {
    return command({Verb::run, kind, bytes, n});
  };
  return {{}, check, time_batch};
}

std::vector<Row> all_rows() {
  std::vector<Row> rows;
  for (Kind kind :
       {Kind::psum, Kind::all_gather, Kind::psum_scatter, Kind::all_to_all, Kind::ppermute}) {
    const std::pair<const char*, long long> sizes[] = {
        {"1kb", 1 << 10},
        {"1mb", 1 << 20},
        kind == Kind::all_gather ? std::pair{"4mb", 4LL << 20} : std::pair{"16mb", 16LL << 20}};
    for (auto [size, bytes] : sizes) {
      double n = ranks;
      double moved = kind == Kind::all_gather ? n * double(bytes) : double(bytes);
      double factor = kind == Kind::psum       ? 2 * (n - 1) / n
                      : kind == Kind::ppermute ? 1
                                               : (n - 1) / n;
      rows.push_back({std::string(kNames[int(kind)]) + "_" + size,
                      {.bytes = moved, .bus_factor = factor},
                      [kind, bytes = bytes] { return make_work(kind, bytes); }});
    }
  }
  return rows;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  Alarm alarm;
  alarm_clock = &alarm;
  int status = 0;
  if (rank == 0) {
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    MPI_Get_library_version(version, &length);
    std::string text(version, std::size_t(length));
    status = shmap::bench::bench_main(argc, argv, "mpi", all_rows(),
                                      {{"MPI", text.substr(0, text.find(','))}});
    command({Verb::leave, Kind::psum, 0, 0});
  } else {
    follow();
  }
  MPI_Finalize();
  return status;
}
