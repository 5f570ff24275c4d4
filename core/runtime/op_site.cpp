#include "core/runtime/op_site.h"

#include <cmath>
#include <cstring>
#include <string>

#include "core/base/element_type.h"
#include "core/base/env.h"
#include "core/base/fault.h"
#include "core/ir/trace.h"
#include "core/runtime/device_ops.h"
#include "core/runtime/host_transfer.h"

namespace shmap {

namespace {

// The index of the first NaN of a float dtype, or -1.
std::int64_t find_nan(std::span<const std::byte> data, DType dtype) {
  return with_float(dtype, [data]<class T>() -> std::int64_t {
    for (std::size_t at = 0; at < data.size(); at += sizeof(T)) {
      T value;
      std::memcpy(static_cast<void*>(&value), data.data() + at, sizeof(T));
      if (std::isnan(static_cast<double>(value))) return static_cast<std::int64_t>(at / sizeof(T));
    }
    return -1;
  });
}

void poison(const KernelCall& call, const Backend& backend) {
  // All ones is a NaN in each float dtype. Static: a captured copy reads it at every replay.
  static const std::uint64_t kOnes = ~std::uint64_t{0};
  const DType t = call.out_types[0].dtype();
  if (!is_floating(t) || call.out_types[0].size() == 0) return;
  device_ops(backend).copy(call.out[0], &kOnes, itemsize(t), call.native);
}

}  // namespace

std::string describe(const OpSite& site) {
  std::string names, values;
  const std::vector<std::int64_t> at = site.mesh->coordinates(site.position);
  for (std::size_t a = 0; a < at.size(); ++a) {
    names += (a ? " " : "") + site.mesh->env()->names[a] + ",";
    values += (a ? " " : "") + std::to_string(at[a]) + ",";
  }
  return std::string(site.primitive->name) + " (op " + std::to_string(site.number) + ") on " +
         site.mesh->local(site.position).device.str() +
         (at.empty() ? "" : " at mesh coordinates (" + names + ") = (" + values + ")");
}

void run_kernel(KernelFn run, const KernelCall& call, const OpSite& site) {
  const auto context = [&](const char* what) {
    return what + ("\n  in " + describe(site)) + at_line(site.source);
  };
  try {
    const fault::Action action = fault::point("kernel", site.mesh->local(site.position).index);
    run(call);
    if (action == fault::Action::nan) [[unlikely]]
      poison(call, site.mesh->backend());
  } catch (const ValueError& e) {
    throw ValueError(context(e.what()));
  } catch (const TypeError& e) {
    throw TypeError(context(e.what()));
  } catch (const OutOfMemory& e) {
    throw OutOfMemory(context(e.what()));
  } catch (const CollectiveError& e) {
    throw CollectiveError(context(e.what()));
  } catch (const std::exception& e) {
    throw DeviceError(context(e.what()));
  }
}

bool checks_nans() {
  static const bool on = env::flag(env::Var::check_nans);
  return on;
}

void refuse_nans(const OpSite& step, std::span<StoredNode* const> results) {
  for (const StoredNode* node : results) {
    const DType dtype = node->type.dtype();
    if (!is_floating(dtype)) continue;
    for (std::uint32_t p = 0; p < node->count; ++p) {
      const std::vector<std::byte> bytes = block_to_host(*node, p);
      const std::int64_t at = find_nan(bytes, dtype);
      if (at < 0) continue;
      OpSite site = step;
      site.position = p;
      throw ValueError(
          "NaN in the result of " + describe(site) + ", first at element " + std::to_string(at) +
          " of its block (row-major), of type " + to_string(node->type) +
          ": look at its operands; SHMAP_CHECK_NANS=0 turns this check off" + at_line(step.source));
    }
  }
}

}  // namespace shmap
