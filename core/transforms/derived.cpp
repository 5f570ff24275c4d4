#include "core/transforms/derived.h"

#include <algorithm>
#include <list>
#include <mutex>

namespace shmap {

namespace {

// What was made last, up to a number: programs are kept by what is made of them, and so are those
// that those are made of.
template <class Derived>
class Made {
 public:
  template <class Make>
  std::shared_ptr<const Derived> get(const JaxprRef& jaxpr, const std::vector<bool>& a,
                                     const std::vector<bool>& b, Make make) {
    {
      std::lock_guard lock(mutex_);
      const auto it = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) {
        return e.jaxpr == jaxpr && e.a == a && e.b == b;
      });
      if (it != entries_.end()) {
        entries_.splice(entries_.begin(), entries_, it);
        return it->derived;
      }
    }
    auto derived = std::make_shared<const Derived>(make());
    // Consts of traces around are of use for this once only.
    if (!reusable(*derived)) return derived;
    std::lock_guard lock(mutex_);
    entries_.push_front({jaxpr, a, b, derived});
    if (entries_.size() > kEntries) entries_.pop_back();
    return derived;
  }

 private:
  static constexpr std::size_t kEntries = 256;
  struct Entry {
    JaxprRef jaxpr;
    std::vector<bool> a, b;
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

// Never destroyed: arrays may be used until the very end.
template <class Derived>
Made<Derived>& made() {
  static auto* table = new Made<Derived>();
  return *table;
}

}  // namespace

std::shared_ptr<const JvpProgram> derived_jvp(const JaxprRef& jaxpr,
                                              const std::vector<bool>& active) {
  return made<JvpProgram>().get(jaxpr, active, {}, [&] { return jvp_program(*jaxpr, active); });
}

std::shared_ptr<const LinearizedProgram> derived_linearization(const JaxprRef& jaxpr,
                                                               const std::vector<bool>& active) {
  return made<LinearizedProgram>().get(jaxpr, active, {},
                                       [&] { return linearize_program(*jaxpr, active); });
}

std::shared_ptr<const TransposedProgram> derived_transpose(const JaxprRef& jaxpr,
                                                           const std::vector<bool>& linear,
                                                           const std::vector<bool>& given) {
  return made<TransposedProgram>().get(jaxpr, linear, given,
                                       [&] { return transpose_program(*jaxpr, linear, given); });
}

std::shared_ptr<const BatchedProgram> derived_batch(const JaxprRef& jaxpr, std::int64_t size,
                                                    const std::vector<bool>& batched) {
  std::vector<bool> bits;
  for (std::int64_t rest = size; rest > 0; rest >>= 1) bits.push_back(rest & 1);
  return made<BatchedProgram>().get(jaxpr, batched, bits,
                                    [&] { return batch_program(*jaxpr, size, batched); });
}

std::vector<bool> given_mask(std::span<const Array> values) {
  std::vector<bool> mask;
  for (const Array& x : values) mask.push_back(x.node() != nullptr);
  return mask;
}

}  // namespace shmap
