#include "core/transforms/autodiff/derived.h"

#include <algorithm>
#include <list>
#include <mutex>

#include "core/ir/nesting.h"

namespace shmap {

namespace {

// The key of a derived program, besides the program that it is derived from.
struct DerivedKey {
  std::vector<bool> a, b, c;
  std::int64_t size = 0;
  std::vector<ShapedArray> types;
  friend bool operator==(const DerivedKey&, const DerivedKey&) = default;
};

// The programs of one kind that are derived from one program: those that were used last, at most
// kEntries of them.
template <class Derived>
class Made {
 public:
  template <class Make>
  std::shared_ptr<const Derived> get(const Jaxpr& jaxpr, DerivedKey key, Make make) {
    {
      std::lock_guard lock(mutex_);
      const auto it = std::find_if(entries_.begin(), entries_.end(),
                                   [&](const Entry& e) { return e.key == key; });
      if (it != entries_.end()) {
        entries_.splice(entries_.begin(), entries_, it);
        return it->derived;
      }
    }
    const PassVisit visit("differentiating or mapping a program", jaxpr);
    auto derived = std::make_shared<const Derived>(make());
    // A program with constants of a surrounding trace cannot be used again after that trace.
    if (!reusable(*derived)) return derived;
    std::list<Entry> gone;  // destroyed after the lock is released, since that takes time
    std::lock_guard lock(mutex_);
    entries_.push_front({std::move(key), derived});
    if (entries_.size() > kEntries) gone.splice(gone.begin(), entries_, --entries_.end());
    return derived;
  }

 private:
  static constexpr std::size_t kEntries = 256;
  struct Entry {
    DerivedKey key;
    std::shared_ptr<const Derived> derived;
  };
  static bool are_concrete(const std::vector<Array>& consts) {
    return std::all_of(consts.begin(), consts.end(),
                       [](const Array& x) { return node_of(x)->trace == 0; });
  }
  static bool reusable(const JvpProgram& p) { return are_concrete(p.consts); }
  static bool reusable(const LinearizedProgram& p) { return are_concrete(p.primal_consts); }
  static bool reusable(const TransposedProgram& p) { return are_concrete(p.consts); }
  static bool reusable(const BatchedProgram& p) { return are_concrete(p.consts); }

  std::mutex mutex_;
  std::list<Entry> entries_;
};

// All that is derived from one program. A derived program is traced anew from the equations of the
// program; it may have the programs inside of them in common with it, but does not contain the
// program itself, as Jaxpr::derived demands.
struct DerivedPrograms : KeptWithJaxpr::Kept {
  Made<JvpProgram> jvp;
  Made<LinearizedProgram> linearized;
  Made<TransposedProgram> transposed;
  Made<BatchedProgram> batched;
};

DerivedPrograms& derived_of(const Jaxpr& jaxpr) { return jaxpr.derived.get<DerivedPrograms>(); }

}  // namespace

std::shared_ptr<const JvpProgram> derived_jvp(const JaxprRef& jaxpr,
                                              const std::vector<bool>& active,
                                              const std::vector<bool>& wanted) {
  return derived_of(*jaxpr).jvp.get(*jaxpr, {active, wanted, {}, 0, {}},
                                    [&] { return jvp_program(*jaxpr, active, wanted); });
}

std::shared_ptr<const LinearizedProgram> derived_linearization(const JaxprRef& jaxpr,
                                                               const std::vector<bool>& active,
                                                               const std::vector<bool>& wanted) {
  return derived_of(*jaxpr).linearized.get(*jaxpr, {active, wanted, {}, 0, {}}, [&] {
    return linearize_program(*jaxpr, active, wanted);
  });
}

std::shared_ptr<const TransposedProgram> derived_transpose(const JaxprRef& jaxpr,
                                                           const std::vector<bool>& linear,
                                                           const std::vector<bool>& given,
                                                           const std::vector<bool>& wanted) {
  return derived_of(*jaxpr).transposed.get(*jaxpr, {linear, given, wanted, 0, {}}, [&] {
    return transpose_program(*jaxpr, linear, given, wanted);
  });
}

std::shared_ptr<const BatchedProgram> derived_batch(const JaxprRef& jaxpr, std::int64_t size,
                                                    const std::vector<bool>& batched,
                                                    const std::vector<bool>& wanted,
                                                    const std::vector<ShapedArray>& as) {
  return derived_of(*jaxpr).batched.get(*jaxpr, {batched, wanted, {}, size, as}, [&] {
    return batch_program(*jaxpr, size, batched, wanted, as);
  });
}

std::vector<bool> given_mask(std::span<const Array> values) {
  std::vector<bool> mask;
  for (const Array& x : values) mask.push_back(x.node() != nullptr);
  return mask;
}

}  // namespace shmap
