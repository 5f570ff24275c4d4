// `fused` on GPUs: each program is one kernel, compiled at its first run.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>

#include "core/base/inline_vector.h"
#include "core/runtime/fused_program.h"
#include "core/runtime/kernel.h"
#include "cuda/driver/error.h"
#include "cuda/fused/fused_source.h"
#include "cuda/fused/fused_stages.h"
#include "cuda/fused/kernel_image.h"
#include "cuda/fused/module_cache.h"

namespace shmap {

namespace cuda {

namespace {

// A source, and its kernel on each GPU where it has run.
class FusedVariant {
 public:
  FusedVariant(const FusedProgram& program, bool aligned)
      : source_(make_fused_source(program, aligned)) {}

  const FusedSource& source() const { return source_; }
  LoadedKernel kernel() const {
    int gpu = 0;
    check(cudaGetDevice(&gpu), "cudaGetDevice");
    if (gpu >= kGpus) return loaded_kernel(source_.text, kFusedKernel);
    std::atomic<void*>& slot = functions_[static_cast<std::size_t>(gpu)];
    LoadedKernel kernel{slot.load(std::memory_order_acquire)};
    if (kernel.function == nullptr) {
      kernel = loaded_kernel(source_.text, kFusedKernel);
      slot.store(kernel.function, std::memory_order_release);
    }
    return kernel;
  }

 private:
  static constexpr int kGpus = 16;  // GPUs whose kernels are found without the table
  FusedSource source_;
  mutable std::array<std::atomic<void*>, kGpus> functions_ = {};
};

class CudaFusedPlan final : public FusedPlan {
 public:
  explicit CudaFusedPlan(const FusedProgram& program)
      : program_(program), wide_(program, true), overwrites_(FusedStages(program).overwrites()) {}
  ~CudaFusedPlan() override { delete narrow_.load(std::memory_order_acquire); }

  const FusedVariant& wide() const { return wide_; }
  std::uint32_t overwrites(std::size_t result) const { return overwrites_[result]; }
  // For operands and results at any address.
  const FusedVariant& narrow() const {
    if (const FusedVariant* ready = narrow_.load(std::memory_order_acquire)) return *ready;
    auto made = std::make_unique<const FusedVariant>(program_, false);
    const FusedVariant* expected = nullptr;
    if (narrow_.compare_exchange_strong(expected, made.get(), std::memory_order_acq_rel))
      return *made.release();
    return *expected;
  }

 private:
  const FusedProgram& program_;
  FusedVariant wide_;
  std::vector<std::uint32_t> overwrites_;
  mutable std::atomic<const FusedVariant*> narrow_ = nullptr;
};

const FusedProgram& program_of(const Params& params) {
  return *params_as<FusedParams>(params).program;
}
const CudaFusedPlan& plan_of(const Params& params) {
  return static_cast<const CudaFusedPlan&>(program_of(params).plan(
      DeviceKind::cuda, [](const FusedProgram& p) -> std::unique_ptr<const FusedPlan> {
        return std::make_unique<const CudaFusedPlan>(p);
      }));
}

std::uint32_t overwrites(const Params& params, std::size_t result) {
  return plan_of(params).overwrites(result);
}

bool fits(const void* address, int alignment) {
  return reinterpret_cast<std::uintptr_t>(address) % static_cast<std::uintptr_t>(alignment) == 0;
}

// The most blocks of a launch. In a larger grid further blocks would only start when others have
// ended, and repeat the work at a block's start.
constexpr std::int64_t kMostBlocks = 1 << 14;

void run_fused(const KernelCall& call) {
  const CudaFusedPlan& plan = plan_of(call.params);
  const std::span<const void* const> in = call.in;
  bool wide = true;
  const FusedSource& wanted = plan.wide().source();
  for (std::size_t i = 0; i < in.size(); ++i)
    wide &= (call.literals >> i & 1u) || fits(in[i], wanted.operand_alignment[i]);
  for (std::size_t o = 0; o < call.out.size(); ++o)
    wide &= fits(call.out[o], wanted.result_alignment[o]);
  const FusedVariant& variant = wide ? plan.wide() : plan.narrow();
  const FusedSource& source = variant.source();
  if (source.blocks == 0) return;

  InlineVector<std::uint64_t, 32> args(1 + 2 * in.size() + call.out.size());
  std::uint64_t* word = args.data();
  *word++ = static_cast<std::uint64_t>(source.count);
  std::size_t next = 0;
  for (const FusedProgram::Input& input : program_of(call.params).inputs()) {
    if (input.literal) continue;
    const bool literal = call.literals >> next & 1u;
    *word++ = literal ? 0 : reinterpret_cast<std::uintptr_t>(in[next]);
    if (source.scalars[next]) {
      *word = 0;
      if (literal) std::memcpy(word, in[next], static_cast<std::size_t>(itemsize(input.dtype)));
      ++word;
    }
    ++next;
  }
  for (void* out : call.out) *word++ = reinterpret_cast<std::uintptr_t>(out);
  launch_loaded(variant.kernel(), std::min(source.blocks, kMostBlocks), source.threads, args.data(),
                true, call.native);
}

}  // namespace

}  // namespace cuda

void register_cuda_fused_kernels() {
  fused_p.kernel(DeviceKind::cuda) = {.run = cuda::run_fused, .overwrites = cuda::overwrites};
  set_fused_ability(DeviceKind::cuda, {.available = cuda::can_compile_kernels});
}

}  // namespace shmap
