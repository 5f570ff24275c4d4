#include "core/device/span_label.h"

#include <list>
#include <mutex>
#include <new>
#include <unordered_map>

namespace shmap {

namespace detail {

struct KeptLabel {
  std::string name;
  SpanLabel label;
};

class KeptLabelsImpl {
 public:
  std::list<KeptLabel> labels;  // a list, so that addresses stay valid
};

constinit thread_local KeptLabelsImpl* kept_labels = nullptr;

}  // namespace detail

namespace {

// Never destroyed, because tasks may end while the process exits.
struct Labels {
  std::mutex mutex;
  std::unordered_map<const char*, const SpanLabel*> by_name;
  // Labels of tasks outside of graphs, and of tasks whose graph was destroyed during a recording
  // that names them.
  detail::KeptLabelsImpl unkept;
  detail::KeptLabelsImpl old;  // the unkept labels of the previous recording
  int recordings = 0;          // whose events' names may still be read
};
Labels& labels() {
  static auto* all = new Labels();
  return *all;
}

void erase_names(Labels& all, const detail::KeptLabelsImpl& list) noexcept {
  for (const detail::KeptLabel& kept : list.labels) all.by_name.erase(kept.name.c_str());
}

}  // namespace

const char* labelled_name(const char* name, SpanLabel label) noexcept {
  try {
    Labels& all = labels();
    std::list<detail::KeptLabel> made;
    made.push_back({name, std::move(label)});
    const char* const text = made.back().name.c_str();
    std::lock_guard lock(all.mutex);
    all.by_name.emplace(text, &made.back().label);
    auto& list = detail::kept_labels != nullptr ? detail::kept_labels->labels : all.unkept.labels;
    list.splice(list.end(), made);
    return text;
  } catch (const std::bad_alloc&) {
    return name;
  }
}

SpanLabel label_of(const char* name) {
  Labels& all = labels();
  std::lock_guard lock(all.mutex);
  const auto it = all.by_name.find(name);
  return it == all.by_name.end() ? SpanLabel() : *it->second;
}

LabelsInUse::LabelsInUse() noexcept {
  Labels& all = labels();
  std::lock_guard lock(all.mutex);
  ++all.recordings;
}
LabelsInUse::~LabelsInUse() {
  Labels& all = labels();
  std::lock_guard lock(all.mutex);
  --all.recordings;
}

KeptLabels::KeptLabels() : impl_(std::make_unique<detail::KeptLabelsImpl>()) {}

KeptLabels::~KeptLabels() {
  if (impl_->labels.empty()) return;
  Labels& all = labels();
  std::lock_guard lock(all.mutex);
  if (all.recordings > 0) {
    all.unkept.labels.splice(all.unkept.labels.end(), impl_->labels);
  } else {
    erase_names(all, *impl_);
  }
}

bool KeptLabels::empty() const { return impl_->labels.empty(); }

KeptLabels::Scope::Scope(KeptLabels& labels) noexcept
    : before_(std::exchange(detail::kept_labels, labels.impl_.get())) {}
KeptLabels::Scope::~Scope() { detail::kept_labels = before_; }

void forget_labels() noexcept {
  Labels& all = labels();
  std::lock_guard lock(all.mutex);
  erase_names(all, all.old);
  all.old.labels.clear();
  all.old.labels.splice(all.old.labels.end(), all.unkept.labels);
}

std::int64_t labels_alive() noexcept {
  Labels& all = labels();
  std::lock_guard lock(all.mutex);
  return static_cast<std::int64_t>(all.by_name.size());
}

}  // namespace shmap
