#include "core/tracing/trace_function.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "core/array/mesh_impl.h"
#include "core/base/scope_names.h"
#include "core/device/host_log.h"
#include "core/ir/nesting.h"
#include "shmap/make_jaxpr.h"

namespace shmap {

void append_type_key(const ShapedArray& type, std::string& key) {
  const auto raw = [&](const auto& v) { key.append(reinterpret_cast<const char*>(&v), sizeof v); };
  raw(type.dtype());
  raw(type.weak());
  raw(type.dims().size());
  for (std::int64_t e : type.dims()) raw(e);
  const detail::AxisEnv* env = type.axes().env();
  raw(env);
  if (env) raw(type.axes().mask_in(*env));
}

Traced trace_function(const char* name, std::span<const ShapedArray> types, detail::BodyRef body,
                      detail::FlatTree& result, StagingOptions options, SourceLine source) {
  ensure_started();
  check_nesting(name, source);
  JaxprTrace trace(name, env_for(types), options, source);
  std::vector<Array> arguments;
  for (const ShapedArray& t : types) arguments.push_back(trace.argument(t));
  TraceScope scope(trace);
  body(arguments, result);
  arguments.clear();
  return trace.build(result.leaves, name, source);
}

namespace detail {

struct JaxprCacheImpl {
  std::mutex mutex;
  std::map<std::string, ClosedJaxpr> entries;
};

JaxprCache::JaxprCache() : impl_(std::make_unique<JaxprCacheImpl>()) {}
JaxprCache::~JaxprCache() = default;

ClosedJaxpr JaxprCache::get(const void* tag, const FlatTree& arguments, BodyRef body,
                            const MakeJaxprOptions& options, SourceLine source) {
  std::vector<ShapedArray> types;
  std::vector<const Sharding*> shardings;
  bool any_split = false;
  for (const Array& x : arguments.leaves) {
    types.push_back(checked_node(x, "make_jaxpr", source).type);
    const StoredNode* node = stored_of(x);
    const bool split = node && node->committed && node->sharding && !node->mesh->is_single();
    shardings.push_back(split ? node->sharding : nullptr);
    any_split = any_split || split;
  }
  if (!any_split) shardings.clear();
  std::string key(reinterpret_cast<const char*>(&tag), sizeof tag);
  key += options.omnistaging ? '1' : '0';
  for (const ShapedArray& t : types) append_type_key(t, key);
  key += arguments.key;
  const AxisEnv* env = env_for(types);
  key.append(reinterpret_cast<const char*>(&env), sizeof env);
  StagingOptions staging = inherited_options();
  key += staging.check_variance ? '1' : '0';
  key += staging.auto_pbroadcast ? '1' : '0';
  for (const Sharding* s : shardings) key.append(reinterpret_cast<const char*>(&s), sizeof s);
  {
    std::lock_guard lock(impl_->mutex);
    const auto it = impl_->entries.find(key);
    if (it != impl_->entries.end()) return it->second;
  }
  const HostSpanScope logged("trace", "make_jaxpr");
  const ScopesHidden hidden;
  FlatTree result;
  if (!options.omnistaging) staging.below = &base_trace();
  Traced traced = trace_function("make_jaxpr", types, body, result, staging, source);
  // A program that uses a value of a surrounding trace cannot be used again after that trace.
  const bool is_closed = std::all_of(traced.consts.begin(), traced.consts.end(),
                                     [](const Array& x) { return node_of(x)->trace == 0; });
  const ClosedJaxpr closed =
      close_jaxpr(std::move(traced.jaxpr), std::move(traced.consts), std::move(shardings));
  if (!is_closed) return closed;
  std::lock_guard lock(impl_->mutex);
  return impl_->entries.emplace(std::move(key), closed).first->second;
}

}  // namespace detail
}  // namespace shmap
