#include <algorithm>
#include <mutex>
#include <ostream>

#include "shmap/error.h"
#include "shmap/shaped_array.h"

namespace shmap {

namespace detail {

void throw_null_name() {
  throw ValueError(
      "the name of a mesh axis is a null pointer: give a string, or `none` for a dim that is not "
      "split");
}

int AxisEnv::find(std::string_view name) const {
  for (std::size_t i = 0; i < names.size(); ++i)
    if (names[i] == name) return static_cast<int>(i);
  return -1;
}

const AxisEnv* AxisEnv::intern(const std::vector<std::string>& names,
                               const std::vector<std::int64_t>& sizes) {
  static std::mutex mutex;
  static auto* table = new std::vector<const AxisEnv*>();  // lives for ever, as do its entries
  std::lock_guard lock(mutex);
  for (const AxisEnv* e : *table)
    if (e->names == names && e->sizes == sizes) return e;
  table->push_back(new AxisEnv{names, sizes});
  return table->back();
}

const AxisEnv* AxisEnv::empty() {
  static const AxisEnv* env = intern({}, {});
  return env;
}

}  // namespace detail

std::string to_string(const Axes& axes) {
  if (axes.size() == 1) return "'" + axes[0] + "'";
  std::string s = "(";
  for (std::size_t i = 0; i < axes.size(); ++i) s += (i ? ", '" : "'") + axes[i] + "'";
  return s + ")";
}

std::vector<std::string> AxisSet::names() const {
  std::vector<std::string> out;
  for (std::uint32_t m = mask_, i = 0; m; m >>= 1, ++i)
    if (m & 1u) out.push_back(env_->names[i]);
  return out;
}

bool operator==(const AxisSet& a, const AxisSet& b) {
  if (a.env_ == b.env_ || a.mask_ == 0 || b.mask_ == 0) return a.mask_ == b.mask_;
  const std::vector<std::string> x = a.names(), y = b.names();
  if (x.size() != y.size()) return false;
  for (const std::string& name : y)
    if (std::find(x.begin(), x.end(), name) == x.end()) return false;
  return true;
}

ShapedArray::ShapedArray(Shape shape, DType dtype, Axes vma) : shape_(shape), dtype_(dtype) {
  shape_.num_elements();
  if (vma.empty()) return;
  const detail::AxisEnv* env =
      detail::AxisEnv::intern(vma.names(), std::vector<std::int64_t>(vma.size(), 0));
  vma_ = AxisSet(env, (1u << vma.size()) - 1u);
}

std::string to_string(const ShapedArray& type) {
  std::string s = short_name(type.dtype());
  s += '[';
  for (std::size_t i = 0; i < type.dims().size(); ++i) {
    if (i) s += ',';
    s += std::to_string(type.dims()[i]);
  }
  s += ']';
  if (!type.axes().empty()) {
    s += '{';
    bool first = true;
    for (const std::string& name : type.axes().names()) {
      if (!first) s += ',';
      first = false;
      s += name;
    }
    s += '}';
  }
  return s;
}

std::ostream& operator<<(std::ostream& out, const ShapedArray& type) {
  return out << to_string(type);
}

}  // namespace shmap
