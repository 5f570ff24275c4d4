#include "core/extend/cuda_source.h"

#include <algorithm>

#include "core/runtime/device_ops.h"
#include "shmap/error.h"

namespace shmap {

namespace {

constexpr std::size_t kMostArrays = 16;
constexpr std::int64_t kMostBlocks = (std::int64_t{1} << 31) - 1;

// Must have the layout of the struct Kernel in the source text.
struct CudaSourceArgs {
  const void* in[kMostArrays] = {};
  void* out[kMostArrays] = {};
  std::int64_t in_size[kMostArrays] = {};
  std::int64_t out_size[kMostArrays] = {};
};

constexpr const char* kHead =
    "struct Kernel {\n"
    "  const void* in[16];\n"
    "  void* out[16];\n"
    "  long long in_size[16];\n"
    "  long long out_size[16];\n"
    "};\n";

}  // namespace

std::string whole_cuda_source(const std::string& source, const extend::Params& params) {
  std::string text;
  for (const auto& [name, value] : params) {
    const auto* flag = std::get_if<bool>(&value.variant());
    const bool is_number = std::holds_alternative<std::int64_t>(value.variant()) ||
                           std::holds_alternative<double>(value.variant());
    if (!flag && !is_number) continue;
    text += "#define PARAM_" + name + " (" +
            (flag ? *flag ? "true" : "false" : extend::to_string(value)) + ")\n";
  }
  return text + kHead + source;
}

void run_cuda_source(const std::string& primitive, const std::string& source,
                     const std::string& kernel, int threads, const extend::KernelArgs& k) {
  if (k.in.size() > kMostArrays || k.out.size() > kMostArrays) {
    throw ValueError(primitive + ": a kernel of def_cuda_source takes up to " +
                     std::to_string(kMostArrays) +
                     " operands and as many results: use "
                     "def_cuda_kernel");
  }
  auto* const launch = device_ops(DeviceKind::cuda).launch_source;
  if (!launch)
    throw DeviceError(primitive + ": this build has no CUDA backend for its def_cuda_source");
  CudaSourceArgs args;
  for (std::size_t i = 0; i < k.in.size(); ++i) {
    args.in[i] = k.in[i];
    args.in_size[i] = k.in_types[i].size();
  }
  for (std::size_t o = 0; o < k.out.size(); ++o) {
    args.out[o] = k.out[o];
    args.out_size[o] = k.out_types[o].size();
  }
  const std::int64_t elements = k.out.empty() ? 1 : args.out_size[0];
  if (elements == 0) return;
  const std::int64_t blocks = std::min((elements + threads - 1) / threads, kMostBlocks);
  launch(whole_cuda_source(source, *k.params), kernel.c_str(), blocks, threads, &args, k.stream);
}

}  // namespace shmap
