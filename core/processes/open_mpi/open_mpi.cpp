// OpenMPI as MessagePassing. Its functions are looked up in the opened library, and so are the
// predefined handles (MPI_COMM_WORLD and so on), which its header declares as variables: nothing
// here is linked against OpenMPI.
#define OMPI_SKIP_MPICXX 1  // the C++ bindings would have to be linked
#include <dlfcn.h>
#include <mpi.h>

#include <atomic>
#include <climits>
#include <cstring>

#include "core/base/env.h"
#include "core/processes/message_passing.h"
#include "shmap/error.h"

namespace shmap {
namespace {

// clang-format off
#define SHMAP_MPI_FUNCTIONS(X) \
  X(Initialized) X(Finalized) X(Init_thread) X(Query_thread) X(Finalize) \
  X(Comm_rank) X(Comm_size) X(Comm_dup) X(Comm_set_errhandler) X(Allgather) \
  X(Isend) X(Irecv) X(Test) X(Get_count) X(Cancel) \
  X(Error_string) X(Get_library_version) X(Comm_create_keyval) X(Comm_set_attr)
// clang-format on

struct Functions {
#define SHMAP_DECLARE(name) decltype(&MPI_##name) name;
  SHMAP_MPI_FUNCTIONS(SHMAP_DECLARE)
#undef SHMAP_DECLARE
  MPI_Comm world, self;
  MPI_Datatype byte;
  MPI_Errhandler errors_return;
};

constexpr const char* kRemedy =
    "Install OpenMPI (Debian: openmpi-bin), or name its library in SHMAP_MPI_PATH; or set "
    "SHMAP_ALONE=1 where each process is to work for itself.";

void* find(void* library, const char* name, const std::string& path) {
  void* found = dlsym(library, name);
  if (found == nullptr) {
    throw DeviceError("the MPI library " + path + " has no " + name +
                      ": it is not OpenMPI, which this library joins processes by. " + kRemedy);
  }
  return found;
}

// A predefined handle (MPI_COMM_WORLD) is the address of a variable of OpenMPI. A program that is
// linked against OpenMPI may have a copy of the variable (the linker's copy relocation), and
// OpenMPI then uses the copy too. So the search begins with the program's symbols.
void* find_handle(void* library, const char* name, const std::string& path) {
  void* found = dlsym(RTLD_DEFAULT, name);
  return found != nullptr ? found : find(library, name, path);
}

// Opened with global symbols, because OpenMPI's plug-ins look for its symbols there.
void* open(std::string& path) {
  path = env::text(env::Var::mpi_path);
  const char* const names[] = {path.c_str(), "libmpi.so.40", "libmpi.so"};
  std::string tried;
  for (const char* name : std::span(names).subspan(path.empty() ? 1 : 0, path.empty() ? 2 : 1)) {
    if (void* library = dlopen(name, RTLD_NOW | RTLD_GLOBAL)) {
      path = name;
      return library;
    }
    const char* said = dlerror();
    tried += std::string("\n  ") + name + ": " + (said != nullptr ? said : "no reason given");
  }
  throw DeviceError("OpenMPI is wanted and cannot be opened. Tried:" + tried + "\n" + kRemedy);
}

void (*at_finalize)() noexcept = nullptr;

// OpenMPI's own record of how far it has come, the variable ompi_mpi_state of its versions 4 and 5,
// and two of its values. (MPI_Finalized is true already while MPI_Finalize waits for the others.)
constexpr int kFinalizeStarted = 3, kFinalizeCompleted = 5;
const int* mpi_state = nullptr;
std::atomic<bool> state_shows_the_end{false};

int state_now() noexcept { return __atomic_load_n(mpi_state, __ATOMIC_ACQUIRE); }

class OpenMpi final : public MessagePassing {
 public:
  explicit OpenMpi(const Job& job) {
    std::string path;
    void* library = open(path);
#define SHMAP_FIND(name) \
  f_.name = reinterpret_cast<decltype(f_.name)>(find(library, "MPI_" #name, path));
    SHMAP_MPI_FUNCTIONS(SHMAP_FIND)
#undef SHMAP_FIND
    f_.world = static_cast<MPI_Comm>(find_handle(library, "ompi_mpi_comm_world", path));
    f_.self = static_cast<MPI_Comm>(find_handle(library, "ompi_mpi_comm_self", path));
    f_.byte = static_cast<MPI_Datatype>(find_handle(library, "ompi_mpi_byte", path));
    f_.errors_return =
        static_cast<MPI_Errhandler>(find_handle(library, "ompi_mpi_errors_return", path));
    mpi_state = static_cast<const int*>(dlsym(library, "ompi_mpi_state"));
    join(job);
  }

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return size_; }

  std::string version() const override {
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    f_.Get_library_version(text, &length);
    const std::string whole(text, static_cast<std::size_t>(length));
    std::string shown = whole.substr(0, whole.find(','));
    if (shown.starts_with("Open MPI v")) shown.erase(9, 1);
    return shown;
  }

  void all_gather(const void* mine, std::size_t bytes, void* all) override {
    check(f_.Allgather(mine, static_cast<int>(bytes), f_.byte, all, static_cast<int>(bytes),
                       f_.byte, comm_),
          "MPI_Allgather");
  }

  Request send(const void* data, std::int64_t bytes, int to, int tag) override {
    MPI_Request request = nullptr;
    check(f_.Isend(data, count(bytes), f_.byte, to, tag, comm_, &request), "MPI_Isend");
    return request;
  }

  Request receive(void* data, std::int64_t bytes, int from, int tag) override {
    MPI_Request request = nullptr;
    check(f_.Irecv(data, count(bytes), f_.byte, from == kAnyone ? MPI_ANY_SOURCE : from, tag, comm_,
                   &request),
          "MPI_Irecv");
    return request;
  }

  bool test(Request& request, Arrival* arrival) override {
    auto* pending = static_cast<MPI_Request>(request);
    int done = 0;
    MPI_Status status;
    check(f_.Test(&pending, &done, &status), "MPI_Test");
    if (!done) return false;
    request = nullptr;
    if (arrival != nullptr) {
      int n = 0;
      check(f_.Get_count(&status, f_.byte, &n), "MPI_Get_count");
      *arrival = {status.MPI_SOURCE, n};
    }
    return true;
  }

  void cancel(Request& request) noexcept override {
    auto* pending = static_cast<MPI_Request>(request);
    int done = 0;
    f_.Cancel(&pending);
    if (f_.Test(&pending, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done) request = nullptr;
  }

  void call_at_finalize(void (*run)() noexcept) override {
    at_finalize = run;
    int key = MPI_KEYVAL_INVALID;
    const auto run_it = [](MPI_Comm, int, void*, void*) {
      // Another version may have other values.
      state_shows_the_end = mpi_state != nullptr && state_now() == kFinalizeStarted;
      at_finalize();
      return MPI_SUCCESS;
    };
    // MPI_Finalize first deletes the attributes of MPI_COMM_SELF.
    check(f_.Comm_create_keyval(
              [](MPI_Comm, int, void*, void*, void*, int* copied) {
                *copied = 0;
                return MPI_SUCCESS;
              },
              run_it, &key, nullptr),
          "MPI_Comm_create_keyval");
    check(f_.Comm_set_attr(f_.self, key, nullptr), "MPI_Comm_set_attr");
  }

  Ending finalize_ending() const noexcept override {
    if (!state_shows_the_end) return Ending::unknown;
    return state_now() == kFinalizeCompleted ? Ending::over : Ending::under_way;
  }

  void finalize() noexcept override {
    int over = 0;
    f_.Finalized(&over);
    if (ours_ && !over) f_.Finalize();
  }

 private:
  void join(const Job& job) {
    int begun = 0, over = 0, level = MPI_THREAD_SINGLE;
    check(f_.Initialized(&begun), "MPI_Initialized");
    check(f_.Finalized(&over), "MPI_Finalized");
    if (over) {
      throw DeviceError(job.text() +
                        ", and the program has called MPI_Finalize: use devices before that");
    }
    if (begun) {
      check(f_.Query_thread(&level), "MPI_Query_thread");
    } else {
      check(f_.Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level), "MPI_Init_thread");
      ours_ = true;
    }
    if (level < MPI_THREAD_MULTIPLE) {
      throw DeviceError(std::string("MPI was initialised ") + (ours_ ? "here" : "by the program") +
                        " without MPI_THREAD_MULTIPLE, which this library's own thread needs: " +
                        (ours_ ? "this MPI does not have it" : "call MPI_Init_thread with it") +
                        ", or leave it to this library to initialise MPI");
    }
    check(f_.Comm_dup(f_.world, &comm_), "MPI_Comm_dup");
    check(f_.Comm_set_errhandler(comm_, f_.errors_return), "MPI_Comm_set_errhandler");
    check(f_.Comm_rank(comm_, &rank_), "MPI_Comm_rank");
    check(f_.Comm_size(comm_, &size_), "MPI_Comm_size");
    if (job.size > 0 && size_ != job.size) {
      throw DeviceError(job.text() + ", but " + version() + " finds " + std::to_string(size_) +
                        ": the launcher is another MPI's. Start the program with the mpirun of "
                        "the OpenMPI that it finds, or name the other's library in "
                        "SHMAP_MPI_PATH; or set SHMAP_ALONE=1 where each process is to work for "
                        "itself.");
    }
  }

  static int count(std::int64_t bytes) {
    if (bytes > INT_MAX) throw Error("a message of more than 2 GiB was not cut in pieces");
    return static_cast<int>(bytes);
  }

  void check(int code, const char* what) const {
    if (code == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    f_.Error_string(code, text, &length);
    throw CollectiveError(std::string(what) +
                          " failed: " + std::string(text, static_cast<std::size_t>(length)));
  }

  Functions f_{};
  MPI_Comm comm_ = nullptr;
  int rank_ = 0, size_ = 1;
  bool ours_ = false;
};

}  // namespace

std::unique_ptr<MessagePassing> open_mpi_message_passing(const Job& job) {
  return std::make_unique<OpenMpi>(job);
}

}  // namespace shmap
