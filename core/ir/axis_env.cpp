#include <algorithm>
#include <mutex>
#include <ostream>

#include "core/ir/trace.h"
#include "shmap/error.h"
#include "shmap/shaped_array.h"

namespace shmap {

namespace detail {

void throw_null_name(const char* what, SourceLine source) {
  throw ValueError(
      std::string(what) + (*what != 0 ? ": " : "") +
      "the name of a mesh axis is a null pointer: give a string, or `none` for a dim that is not "
      "split" +
      at_line(source));
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

const AxisEnv* AxisEnv::join(const AxisEnv* a, const AxisEnv* b) {
  const auto has_all = [](const AxisEnv* env, const AxisEnv* of) {
    return std::all_of(of->names.begin(), of->names.end(),
                       [&](const std::string& name) { return env->find(name) >= 0; });
  };
  if (has_all(a, b)) return a;
  if (has_all(b, a)) return b;
  std::vector<std::string> names = a->names;
  std::vector<std::int64_t> sizes = a->sizes;
  for (std::size_t i = 0; i < b->names.size(); ++i) {
    if (a->find(b->names[i]) >= 0) continue;
    names.push_back(b->names[i]);
    sizes.push_back(b->sizes[i]);
  }
  return intern(names, sizes);
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
  if (a.is_like(b)) return a.mask_ == b.mask_;
  return a.contains(b) && b.contains(a);
}

std::uint32_t AxisSet::translated(const detail::AxisEnv& env) const {
  std::uint32_t mask = 0;
  for (const std::string& name : names()) {
    const int axis = env.find(name);
    if (axis < 0) {
      throw TypeError("a type varies over the mesh axis '" + name +
                      "', and the axes in scope are " + to_string(Axes(env.names)) +
                      ": unbound axis name");
    }
    mask |= 1u << axis;
  }
  return mask;
}

AxisSet AxisSet::joined(const AxisSet& a, const AxisSet& b) {
  const detail::AxisEnv* env = detail::AxisEnv::join(a.env_, b.env_);
  return AxisSet(env, a.mask_in(*env) | b.mask_in(*env));
}

AxisSet AxisSet::without(const AxisSet& a, const AxisSet& b) {
  std::uint32_t mask = a.mask_;
  for (const std::string& name : b.names())
    if (const int axis = a.env_->find(name); axis >= 0) mask &= ~(1u << axis);
  return AxisSet(a.env_, mask);
}

ShapedArray::ShapedArray(Shape shape, DType dtype, Axes vma) : shape_(shape), dtype_(dtype) {
  shape_.num_elements();
  if (vma.empty()) return;
  for (std::size_t i = 0; i < vma.size(); ++i) {
    if (std::find(vma.begin(), vma.begin() + static_cast<std::ptrdiff_t>(i), vma[i]) !=
        vma.begin() + static_cast<std::ptrdiff_t>(i)) {
      throw ValueError("ShapedArray: axis '" + vma[i] + "' is named twice in " + to_string(vma) +
                       ": name each mesh axis once");
    }
  }
  if (vma.size() > 31) {
    throw ValueError("ShapedArray: " + std::to_string(vma.size()) +
                     " mesh axes, and 31 are the most that a mesh has");
  }
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
