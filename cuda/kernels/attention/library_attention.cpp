#include "cuda/kernels/attention/library_attention.h"

#include <bit>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "core/base/disk_cache.h"
#include "core/base/env.h"
#include "cuda/driver/error.h"
#include "cuda/driver/gpus.h"
#include "cuda/kernels/attention/attention_logs.h"
#include "cuda/kernels/attention/library_form.h"
#include "cuda/kernels/matmul/timed_choice.h"
#include "cuda/kernels/matmul/workspaces.h"
#include "cuda/libraries/late_library.h"
#include "shmap/error.h"

namespace shmap::cuda {

namespace {

// The number of cuDNN's proposals that are compiled and timed. Each takes up to a second to
// compile.
constexpr std::size_t kProposals = 3;
// The most forms that a process compiles and times, so that a program whose lengths vary does not
// compile all the time.
constexpr int kMostTimed = 64;
// Calls with fewer rows of q are not timed, because each step of decoding has another number of
// keys.
constexpr std::int64_t kFewestRows = 16;
// A plan may need this much memory, or this share of the GPU's memory if that is more. Plans that
// need more (the ordered backward pass keeps all scores) are not used.
constexpr std::int64_t kMostWorkspace = std::int64_t{256} << 20;
constexpr std::int64_t kWorkspaceShare = 32;
constexpr std::int64_t kAligned = 256;  // each part of a workspace begins at a multiple of it

std::int64_t aligned(std::int64_t bytes) { return (bytes + kAligned - 1) / kAligned * kAligned; }

// Throws if the GPU is lost, because another kernel would not work either. Other errors are
// cleared.
void throw_if_lost(const char* what) {
  if (const cudaError_t last = cudaGetLastError(); is_sticky(last)) check(last, what);
}

enum class Mode { automatic, own, cudnn, unordered };
Mode mode() {
  const std::string text = env::text(env::Var::attention_kernel);
  return text == "own" || text == "own_wgmma" ? Mode::own
         : text == "cudnn"                    ? Mode::cudnn
         : text == "auto"                     ? Mode::automatic
                                              : Mode::unordered;
}

struct Gpu {
  GpuKind kind;
  cudnn::Handle handle = nullptr;
  std::int64_t most_workspace = kMostWorkspace;
};

// The two passes differ in this library's kernel and in the tensors of cuDNN's graph.
struct Forward {
  const Attention& a;
  static constexpr const char* kName = "attention";
  static constexpr bool kIsForward = true;
  const Attention& whole() const { return a; }
  bool needs_logs() const { return a.sums != nullptr; }
  void run_own(void* stream) const { own_attention(a, stream); }
  CudnnGraph graph(const CudnnAttention& f) const { return cudnn_attention(f, needs_logs()); }
};
struct Backward {
  const AttentionGrad& g;
  static constexpr const char* kName = "attention_grad";
  static constexpr bool kIsForward = false;
  const Attention& whole() const { return g.a; }
  bool needs_logs() const { return true; }
  void run_own(void* stream) const { own_attention_grad(g, stream); }
  CudnnGraph graph(const CudnnAttention& f) const { return cudnn_attention_grad(f); }
};
std::optional<CudnnAttention> form_of(const Forward& call, const char** why) {
  return library_form(call.a, why);
}
std::optional<CudnnAttention> form_of(const Backward& call, const char** why) {
  return library_form(call.g, why);
}

struct Choice {
  std::unique_ptr<CudnnPlan> plan;  // null: the own kernel
  std::string text;
};

// Everything that a choice depends on except the GPU, as numbers.
using FormKey = std::vector<std::int64_t>;

FormKey key_of(const CudnnAttention& f, bool is_forward, bool logs) {
  FormKey key{is_forward,
              logs,
              static_cast<std::int64_t>(f.type),
              f.batch,
              f.heads,
              f.k_heads,
              f.q_rows,
              f.k_rows,
              f.depth,
              f.v_depth,
              f.causal,
              f.causal_offset,
              f.has_bias,
              static_cast<std::int64_t>(f.bias_type),
              f.ordered};
  const auto add = [&](const auto& numbers) {
    key.insert(key.end(), numbers.begin(), numbers.end());
  };
  for (const HeadStrides* s :
       {&f.q, &f.k, &f.v, &f.out, &f.cotangent, &f.q_bar, &f.k_bar, &f.v_bar})
    add(*s);
  add(f.bias_dims);
  add(f.bias_strides);
  // The scale is a number in a graph.
  key.push_back(std::bit_cast<std::int32_t>(f.scale));
  return key;
}

// Plans, workspaces and handles. Never destroyed, as the plans of cuBLASLt are not.
class Choices {
 public:
  static Choices& get() {
    static auto* choices = new Choices;
    return *choices;
  }

  template <class Call>
  bool run(const Call& call, cudaStream_t stream) {
    const Mode wanted = mode();
    if (wanted == Mode::own) return false;
    std::lock_guard lock(mutex_);
    if (!absent_.empty()) return false;
    const char* refused = nullptr;
    std::optional<CudnnAttention> form = form_of(call, &refused);
    if (form && wanted == Mode::automatic) {
      if (form->has_bias) refused = "there is a bias";
      if (form->q_rows < kFewestRows) refused = "there are few queries";
      if (refused != nullptr) form.reset();
    }
    if (!form) {
      if (refused_.emplace(Call::kName, refused).second)
        say(std::string(Call::kName) + ": own kernel where " + refused);
      return false;
    }
    form->ordered = wanted != Mode::unordered;
    int index = 0;
    check(cudaGetDevice(&index), "cudaGetDevice");
    std::string why;
    // cuDNN makes its handle, and loads the code of its plans, at their first use, which may be in
    // a capture.
    const UncapturedCalls uncaptured;
    const Gpu* gpu = gpu_at(index);
    if (gpu == nullptr) return false;
    FormKey key = key_of(*form, Call::kIsForward, call.needs_logs());
    key.push_back(static_cast<std::int64_t>(wanted == Mode::automatic));
    key.push_back(index);
    auto it = choices_.find(key);
    if (it == choices_.end()) {
      std::optional<Choice> made = make(call, *form, wanted, key, *gpu, index, stream);
      if (!made) return false;  // for this call alone
      say(std::string(Call::kName) + " " + describe(*form) + ": " + made->text);
      it = choices_.emplace(key, std::move(*made)).first;
    }
    Choice& choice = it->second;
    if (choice.plan == nullptr) return false;
    if (run_plan(call, *form, *choice.plan, *gpu, index, stream, &why)) return true;
    choice = {nullptr, "own kernel, since " + why};
    say(std::string(Call::kName) + " " + describe(*form) + ": " + choice.text);
    return false;
  }

  void drop(cudaStream_t stream) noexcept {
    std::lock_guard lock(mutex_);
    workspaces_.drop(stream);
  }
  std::vector<std::string> texts() {
    std::lock_guard lock(mutex_);
    return texts_;
  }

 private:
  // Adds a line to texts(), and to a file in the folder that SHMAP_DUMP names.
  void say(std::string text) {
    if (const std::string folder = env::text(env::Var::dump); !folder.empty())
      std::ofstream(folder + "/attention.txt", std::ios::app) << text << "\n";
    texts_.push_back(std::move(text));
  }

  // Null where there is no cuDNN.
  const Gpu* gpu_at(int index) {
    const auto it = gpus_.find(index);
    if (it != gpus_.end()) return &it->second;
    try {
      Gpu gpu{kind_of(index)};
      std::size_t free = 0, total = 0;
      check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
      gpu.most_workspace =
          std::max(kMostWorkspace, static_cast<std::int64_t>(total) / kWorkspaceShare);
      check_cudnn(cudnn_api().create(&gpu.handle), "cudnnCreate");
      return &gpus_.emplace(index, std::move(gpu)).first->second;
    } catch (const DeviceError& error) {
      absent_ = error.what();
      say("all attention: own kernels, since " + absent_);
      return nullptr;
    }
  }

  static Choice own_kernel(const std::string& why) { return {nullptr, "own kernel" + why}; }

  // Returns nothing if a later call should make the choice.
  template <class Call>
  std::optional<Choice> make(const Call& call, const CudnnAttention& form, Mode wanted,
                             const FormKey& key, const Gpu& gpu, int index, cudaStream_t stream) {
    const bool measures = wanted == Mode::automatic;
    if (const std::string why = refusal<Call>(form, measures, gpu); !why.empty())
      return own_kernel(why);
    const DiskCache cache("attention", DiskCache::default_folder());
    const std::string on_disk = disk_key(key, gpu);
    std::string& known = decided_[on_disk];  // GPUs of one kind have one choice
    if (!measures) return first_plan(call, form, gpu, "");
    if (known.empty()) cache.load(on_disk, &known);
    if (known == kOwn) return own_kernel(", as measured before");
    if (!known.empty()) return first_plan(call, form, gpu, known);
    if (is_capturing(stream)) return std::nullopt;
    if (timed_++ >= kMostTimed) return own_kernel(", since many others were timed");
    Choice best = fastest(call, form, gpu, index, stream, &known);
    if (!known.empty()) cache.store(on_disk, known);
    return best;
  }

  // Why cuDNN is not asked at all; "" where it is.
  template <class Call>
  static std::string refusal(const CudnnAttention& form, bool measures, const Gpu& gpu) {
    if constexpr (!Call::kIsForward)
      if (const char* fault = cudnn_grad_fault(form, cudnn_api().version))
        return std::string(", since ") + fault;
    if (measures && !Call::kIsForward && gpu.kind.major >= 10)
      return ": whether cuDNN repeats its bits on this GPU is not known";
    if (measures && !env::flag(env::Var::time_gemms))
      return ", since nothing is timed (SHMAP_TIME_GEMMS)";
    return "";
  }

  // Calls f(plan) for each plan that cuDNN proposes and that can be run, and for which `is_wanted`,
  // until f returns true. Returns why there was none, or no further one.
  template <class Call, class Wanted, class F>
  static std::string for_each_plan(const Call& call, const CudnnAttention& form, const Gpu& gpu,
                                   const Wanted& is_wanted, const F& f) {
    const CudnnTarget target{gpu.handle};
    std::string why = "cuDNN has no kernel for it";
    try {
      for (CudnnPlan& plan : call.graph(form).plans(target, kProposals)) {
        if (!is_wanted(plan) || !plan.compile(target, &why)) continue;
        if (const std::int64_t bytes = bytes_of(call, form, plan); bytes > gpu.most_workspace) {
          why = "cuDNN wants a workspace of " + std::to_string(bytes) + " bytes";
          continue;
        }
        if (f(plan, &why)) break;
      }
    } catch (const Error& error) {
      why = error.what();
      throw_if_lost(Call::kName);
    }
    return why;
  }

  static std::string name_of(const CudnnPlan& plan) {
    return "cuDNN " + version_text(cudnn_api().version) + ", " + plan.name();
  }

  // The first plan that can be run, without timing it; that of the name `known`, unless it is "".
  template <class Call>
  static Choice first_plan(const Call& call, const CudnnAttention& form, const Gpu& gpu,
                           const std::string& known) {
    Choice first;
    const std::string why = for_each_plan(
        call, form, gpu,
        [&](const CudnnPlan& plan) { return known.empty() || plan.name() == known; },
        [&](CudnnPlan& plan, std::string*) {
          first.text = name_of(plan) + (known.empty() ? "" : ", as measured before");
          first.plan = std::make_unique<CudnnPlan>(std::move(plan));
          return true;
        });
    return first.plan != nullptr ? std::move(first) : own_kernel(", since " + why);
  }

  // The fastest of the plans and the own kernel. *known: the name of what was found; unchanged
  // where no plan could be timed.
  template <class Call>
  Choice fastest(const Call& call, const CudnnAttention& form, const Gpu& gpu, int index,
                 cudaStream_t stream, std::string* known) {
    const auto milliseconds = [](float time) { return " " + std::to_string(time) + " ms"; };
    float least = time_of_run(
        stream, [&] { return call.run_own(stream), true; }, 0);
    std::string times = "own kernel" + milliseconds(least);
    bool any = false;
    Choice best;
    const std::string why = for_each_plan(
        call, form, gpu, [](const CudnnPlan&) { return true; },
        [&](CudnnPlan& plan, std::string* fault) {
          const float time = time_of_run(
              stream, [&] { return run_plan(call, form, plan, gpu, index, stream, fault); }, least);
          if (time < 0) return false;
          any = true;
          times += "; " + name_of(plan) + milliseconds(time);
          if (time > least * kWorthwhile) return false;
          least = time;
          best.text = name_of(plan);
          *known = plan.name();
          best.plan = std::make_unique<CudnnPlan>(std::move(plan));
          return false;
        });
    if (best.plan != nullptr) {
      best.text += " (" + times + ")";
      return best;
    }
    if (!any) return own_kernel(", since " + why);
    *known = kOwn;
    return own_kernel(" (" + times + ")");
  }

  std::string disk_key(const FormKey& key, const Gpu& gpu) const {
    std::string text = "attention, cuDNN " + std::to_string(cudnn_api().version) + ", " +
                       gpu.kind.name + ", " + std::to_string(gpu.kind.processors) + " processors:";
    // The last number of the key, the GPU's, is left out.
    for (std::size_t i = 0; i + 1 < key.size(); ++i) text += " " + std::to_string(key[i]);
    return text;
  }

  // A plan's own workspace, the logarithms, and the further memory of the backward graph.
  template <class Call>
  static std::int64_t bytes_of(const Call& call, const CudnnAttention& form,
                               const CudnnPlan& plan) {
    const std::int64_t rows = aligned(cudnn_means_bytes(form));
    return aligned(plan.workspace()) + (call.needs_logs() ? rows : 0) +
           (Call::kIsForward ? 0 : rows + aligned(cudnn_q_sums_bytes(form)));
  }

  template <class Call>
  bool run_plan(const Call& call, const CudnnAttention& form, const CudnnPlan& plan, const Gpu& gpu,
                int index, cudaStream_t stream, std::string* why) {
    const Attention& a = call.whole();
    std::byte* memory = nullptr;
    try {
      memory = static_cast<std::byte*>(workspaces_.at_least(
          static_cast<std::size_t>(bytes_of(call, form, plan)), index, stream));
    } catch (const Error& error) {
      throw_if_lost(Call::kName);
      *why = error.what();
      return false;
    }
    const auto part = [&](std::int64_t at) { return memory == nullptr ? nullptr : memory + at; };
    const std::int64_t rows = aligned(cudnn_means_bytes(form));
    std::byte* const logs = part(aligned(plan.workspace()));
    std::vector<CudnnPlan::Address> tensors{
        {q_id, a.q.data}, {k_id, a.k.data}, {v_id, a.v.data}, {out_id, a.out}};
    if (form.has_bias) tensors.push_back({bias_id, a.bias.data});
    if (call.needs_logs()) tensors.push_back({logs_id, logs});
    if constexpr (!Call::kIsForward) {
      attention_logs(a, reinterpret_cast<float*>(logs), stream);
      tensors.insert(tensors.end(), {{cotangent_id, call.g.cotangent.data},
                                     {q_bar_id, call.g.q_bar.data},
                                     {k_bar_id, call.g.k_bar.data},
                                     {v_bar_id, call.g.v_bar.data},
                                     {means_id, part(aligned(plan.workspace()) + rows)}});
      if (!form.ordered) tensors.push_back({q_sums_id, part(aligned(plan.workspace()) + 2 * rows)});
    }
    try {
      check_cudnn(cudnn_api().set_stream(gpu.handle, stream), "cudnnSetStream");
      check_cudnn(plan.run(gpu.handle, tensors, memory), "cudnnBackendExecute");
    } catch (const DeviceError& error) {
      throw_if_lost(Call::kName);
      *why = error.what();
      return false;
    }
    if (Call::kIsForward && call.needs_logs())
      sums_of_logs(a, reinterpret_cast<float*>(logs), stream);
    return true;
  }

  static constexpr const char* kOwn = "own kernel";

  std::mutex mutex_;
  std::string absent_;  // why there is no cuDNN
  std::map<int, Gpu> gpus_;
  std::map<FormKey, Choice> choices_;
  int timed_ = 0;                               // the number of forms that were timed
  std::map<std::string, std::string> decided_;  // measured choices, as they are kept on disk
  std::vector<std::string> texts_;
  std::set<std::pair<const char*, const char*>> refused_;  // reasons that texts_ has already
  Workspaces workspaces_{"cuDNN"};
};

}  // namespace

bool library_attention(const Attention& a, void* native_stream) {
  return Choices::get().run(Forward{a}, static_cast<cudaStream_t>(native_stream));
}

bool library_attention_grad(const AttentionGrad& g, void* native_stream) {
  return Choices::get().run(Backward{g}, static_cast<cudaStream_t>(native_stream));
}

void drop_attention_workspace(void* native_stream) noexcept {
  Choices::get().drop(static_cast<cudaStream_t>(native_stream));
}

std::vector<std::string> attention_choices() { return Choices::get().texts(); }

}  // namespace shmap::cuda
