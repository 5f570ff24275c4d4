// Every environment variable of the library, in one table.
#pragma once
#include <cstdint>
#include <span>
#include <string>

namespace shmap::env {

enum class Var : std::uint8_t {
  devices,
  executor,
  workers,
  instruction_set,
  memory_limit,
  collective_warn_sec,
  collective_timeout_sec,
  fault,
  check_nans,
  check_captures,
  check_keys,
  explain_retrace,
  dump,
  jit_cache,
  cublaslt_path,
  nccl_path,
  nvrtc_path,
  cudnn_path,
  mpi_path,
  cache_dir,
  communicator,
  graphs,
  link,
  tf32,
  time_gemms,
  small_products,
  dependent_launch,
  attention,
  attention_kernel,
  fuse_products,
  overlap,
  find_overlap,
  rematerialize,
  alone,
  shared_memory,
};

enum class Kind : std::uint8_t { text, choice, flag, integer, bytes, seconds };

struct Variable {
  Var var;
  const char* name;           // SHMAP_…
  Kind kind;                  // how its value is read
  const char* default_value;  // as the user would write it; "" if it depends on the machine
  const char* forms;          // the accepted forms, for error texts; of a choice, one of its words
  const char* doc;
  double min, max;  // of integer, bytes, seconds
  // Whether the value must be the same in all processes of a job, because the variable changes what
  // programs compute or communicate.
  bool same = false;
};

std::span<const Variable> table();

// Each function returns the variable's value, or its default if the variable is unset or empty, and
// throws ValueError, which quotes the value and names the accepted forms, if the value cannot be
// read. The variable's kind must be the one that the function is for.
std::string text(Var);      // for a text or a choice
bool flag(Var);             // 0 1 false true off on no yes
std::int64_t integer(Var);  // -1 if unset and without a default
std::int64_t bytes(Var);    // 1048576, 64K, 512M, 2G, 2GiB; -1 if unset
double seconds(Var);
// "NAME=value", with the default value if the variable is unset. Flags are written as 0 or 1, so
// that equal settings have equal texts.
std::string setting(const Variable& variable);

// Throws ValueError if the environment has a SHMAP_ variable that is not in the table (and names
// the nearest one) or a value that cannot be parsed. Names that start with SHMAP_TEST_,
// SHMAP_BENCH_ or SHMAP_SIM_ belong to other programs and are ignored.
void check();

}  // namespace shmap::env
