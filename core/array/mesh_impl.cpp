#include "core/array/mesh_impl.h"

#include <algorithm>

#include "core/array/sharding.h"
#include "core/base/hash_text.h"
#include "core/device/runtime.h"

namespace shmap::detail {

namespace {
// Meshes are interned and never freed: programs make few of them, and a pointer that stays valid
// needs no reference count on the hot path.
struct Table {
  std::mutex mutex;
  std::vector<const MeshImpl*> meshes;
  std::map<int, const MeshImpl*> singles;
};
Table& table() {
  static auto* t = new Table();
  return *t;
}
}  // namespace

MeshImpl::MeshImpl(const AxisEnv* env, NdArray<Device> devices)
    : env_(env), devices_(std::move(devices)) {
  Runtime& rt = runtime();
  const std::vector<Device>& all = devices_.values();
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].process_index() == rt.process_index()) {
      locals_.push_back(&rt.local_device(all[i]));
      positions_.push_back(static_cast<std::int64_t>(i));
    } else {
      fully_addressable_ = false;
    }
  }
  backend_ = &rt.backend();
  single_ = all.size() == 1;
  HashText text;
  for (std::size_t a = 0; a < env->names.size(); ++a)
    text.add(env->names[a]).add(static_cast<std::uint64_t>(env->sizes[a]));
  for (const Device& d : all) text.add(static_cast<std::uint64_t>(d.id()));
  name_ = text.value();
}

MeshImpl::MeshImpl(const AxisEnv* env)
    : env_(env), devices_({}, Shape{0}), fully_addressable_(false) {}

const MeshImpl* MeshImpl::abstract(const AxisEnv* env) {
  static std::mutex mutex;
  static auto* meshes = new std::map<const AxisEnv*, const MeshImpl*>();
  std::lock_guard lock(mutex);
  const MeshImpl*& entry = (*meshes)[env];
  if (!entry) {
    auto* mesh = new MeshImpl(env);
    mesh->replicated_ = mesh->sharding(PartitionSpec());
    entry = mesh;
  }
  return entry;
}

const MeshImpl* MeshImpl::intern(const AxisEnv* env, const NdArray<Device>& devices) {
  Table& t = table();
  std::lock_guard lock(t.mutex);
  for (const MeshImpl* m : t.meshes)
    if (m->env_ == env && m->devices_ == devices) return m;
  auto* mesh = new MeshImpl(env, devices);
  mesh->replicated_ = mesh->sharding(PartitionSpec());
  t.meshes.push_back(mesh);
  return mesh;
}

const MeshImpl* MeshImpl::single(const Device& device) {
  {
    Table& t = table();
    std::lock_guard lock(t.mutex);
    if (const auto it = t.singles.find(device.id()); it != t.singles.end()) return it->second;
  }
  const MeshImpl* mesh = intern(AxisEnv::empty(), NdArray<Device>({device}, Shape{}));
  Table& t = table();
  std::lock_guard lock(t.mutex);
  return t.singles.emplace(device.id(), mesh).first->second;
}

const MeshImpl* MeshImpl::default_device() {
  static const MeshImpl* mesh = single(runtime().local_devices().front().device);
  return mesh;
}

std::vector<int> MeshImpl::processes() const {
  std::vector<int> all;
  for (const Device& device : devices_.values()) {
    if (std::find(all.begin(), all.end(), device.process_index()) == all.end())
      all.push_back(device.process_index());
  }
  return all;
}

std::int64_t MeshImpl::coordinate_at(std::int64_t global_position, int axis) const {
  std::int64_t stride = 1;
  for (std::size_t a = env_->sizes.size(); a-- > static_cast<std::size_t>(axis) + 1;)
    stride *= env_->sizes[a];
  return global_position / stride % env_->sizes[static_cast<std::size_t>(axis)];
}

std::vector<std::int64_t> MeshImpl::coordinates(std::uint32_t local) const {
  std::vector<std::int64_t> c(env_->sizes.size());
  for (std::size_t a = 0; a < c.size(); ++a) c[a] = coordinate(local, static_cast<int>(a));
  return c;
}

const Cohorts& MeshImpl::cohorts(std::uint32_t varying) const {
  const bool cached = varying < kCachedMasks;
  if (cached) {
    if (const Cohorts* c = fast_cohorts_[varying].load(std::memory_order_acquire)) return *c;
  }
  std::lock_guard lock(mutex_);
  Cohorts*& entry = cohorts_[varying];
  if (!entry) {
    auto* c = new Cohorts();
    std::map<std::pair<int, std::vector<std::int64_t>>, std::uint32_t> first;
    for (std::uint32_t p = 0; p < local_count(); ++p) {
      std::vector<std::int64_t> key;
      for (std::size_t a = 0; a < env_->sizes.size(); ++a)
        if (varying >> a & 1u) key.push_back(coordinate(p, static_cast<int>(a)));
      const auto [it, fresh] = first.emplace(std::pair(locals_[p]->space->id(), key), p);
      c->leader.push_back(it->second);
      if (fresh) c->leaders.push_back(p);
      c->identity &= fresh;
    }
    entry = c;
  }
  if (cached) fast_cohorts_[varying].store(entry, std::memory_order_release);
  return *entry;
}

const Cliques& MeshImpl::cliques(const std::vector<int>& axes) const {
  std::lock_guard lock(mutex_);
  Cliques*& entry = cliques_[axes];
  if (!entry) {
    auto* c = new Cliques();
    std::map<std::vector<std::int64_t>, std::uint32_t> number;
    std::int64_t ranks = 1;
    for (int a : axes) ranks *= env_->sizes[static_cast<std::size_t>(a)];
    for (std::uint32_t p = 0; p < local_count(); ++p) {
      std::vector<std::int64_t> rest;
      for (std::size_t a = 0; a < env_->sizes.size(); ++a)
        if (std::find(axes.begin(), axes.end(), static_cast<int>(a)) == axes.end())
          rest.push_back(coordinate(p, static_cast<int>(a)));
      std::int64_t rank = 0;
      for (int a : axes) rank = rank * env_->sizes[static_cast<std::size_t>(a)] + coordinate(p, a);
      const auto [it, fresh] = number.emplace(rest, static_cast<std::uint32_t>(c->members.size()));
      if (fresh) c->members.emplace_back(static_cast<std::size_t>(ranks), Cliques::kElsewhere);
      c->members[it->second][static_cast<std::size_t>(rank)] = p;
      c->clique_of.push_back(it->second);
      c->rank_of.push_back(static_cast<std::uint32_t>(rank));
    }
    entry = c;
  }
  return *entry;
}

namespace {

// True if `spec` describes the sharding with these dims (trailing dims without axes are omitted).
// Axis names are compared directly, because every call of a mapped function asks.
bool says(const PartitionSpec& spec, const std::vector<std::vector<int>>& dims,
          const AxisEnv& env) {
  const auto& entries = spec.entries();
  if (entries.size() < dims.size()) return false;
  for (std::size_t d = 0; d < entries.size(); ++d) {
    const auto& names = entries[d].axes;
    if (names.size() != (d < dims.size() ? dims[d].size() : 0)) return false;
    for (std::size_t k = 0; k < names.size(); ++k)
      if (env.names[static_cast<std::size_t>(dims[d][k])] != names[k]) return false;
  }
  return true;
}

}  // namespace

const Sharding* MeshImpl::sharding(const PartitionSpec& spec) const {
  std::lock_guard lock(mutex_);
  for (const Sharding* s : shardings_)
    if (says(spec, s->dims(), *env_)) return s;
  std::vector<std::vector<int>> dims;
  for (const PartitionSpec::Entry& e : spec.entries()) {
    dims.emplace_back();
    for (const std::string& name : e.axes) dims.back().push_back(env_->find(name));
  }
  while (!dims.empty() && dims.back().empty()) dims.pop_back();
  shardings_.push_back(new Sharding(this, dims));
  return shardings_.back();
}

}  // namespace shmap::detail
