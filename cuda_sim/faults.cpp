// Injected faults and the log of calls.
#include "cuda_sim.h"
#include "runtime.h"

namespace shmap_sim {

cudaError_t fault_of_call(Runtime& r, const char* function) {
  for (auto fault = r.faults.begin(); fault != r.faults.end(); ++fault) {
    if (fault->name != function || --fault->left > 0) continue;
    const cudaError_t error = fault->error;
    r.faults.erase(fault);
    return error;
  }
  return cudaSuccess;
}

cudaError_t fault_of_work(Runtime& r, const std::string& name) {
  for (auto fault = r.kernel_faults.begin(); fault != r.kernel_faults.end(); ++fault) {
    if (name.find(fault->name) == std::string::npos || --fault->left > 0) continue;
    const cudaError_t error = fault->error;
    r.kernel_faults.erase(fault);
    return error;
  }
  return cudaSuccess;
}

void inject(const std::string& function, cudaError_t error, int nth) {
  Runtime& r = runtime();
  Lock lock(r.mutex);
  r.faults.push_back({function, error, nth});
}

void inject_kernel_fault(const std::string& name, cudaError_t error, int nth) {
  Runtime& r = runtime();
  Lock lock(r.mutex);
  r.kernel_faults.push_back({name, error, nth});
}

void clear_faults() {
  Runtime& r = runtime();
  Lock lock(r.mutex);
  r.faults.clear();
  r.kernel_faults.clear();
}

cudaError_t injected(const char* function) {
  Runtime& r = runtime();
  Lock lock(r.mutex);
  return fault_of_call(r, function);
}

void record_calls(bool on) {
  Runtime& r = runtime();
  Lock lock(r.mutex);
  r.logging = on;
  if (on) {
    r.calls.clear();
    r.executed.clear();
  }
}

std::vector<std::string> calls() {
  Runtime& r = runtime();
  Lock lock(r.mutex);
  return r.calls;
}

std::vector<std::string> executed() {
  Runtime& r = runtime();
  Lock lock(r.mutex);
  return r.executed;
}

void log_call(const std::string& text) {
  Runtime& r = runtime();
  Lock lock(r.mutex);
  if (r.logging) r.calls.push_back(text);
}

}  // namespace shmap_sim
