#include "overlap/model.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/link_model.h"
#include "core/array/node_order.h"
#include "core/base/env.h"
#include "core/base/float_format.h"
#include "core/device/memory_space.h"
#include "core/device/runtime.h"
#include "core/processes/processes.h"

namespace shmap {

namespace {

// One core of a CPU.
constexpr double kCoreFlops = 2e5, kCoreHalfFlops = 4e5;  // per microsecond, f32 and bf16
constexpr double kCoreBytes = 1.2e4;                      // of copies that miss the caches
constexpr double kCoreCallUs = 4;  // the overhead of a product or a collective
// A message between nodes: an assumption for MPI over TCP, with a receiver that may have to wake
// up. It decides only about products of less than a millisecond or so.
constexpr double kNetworkUs = 50;
// A GPU.
constexpr double kWaves = 132;       // tiles at a time: one for each multiprocessor
constexpr double kTile = 128 * 128;  // elements of a result
constexpr double kGpuFlops = 4e7, kGpuHalfFlops = 6.5e8;
constexpr double kGpuBytes = 2e6, kGpuCallUs = 2.5;
constexpr double kGpuStepUs = 2;        // overhead of a ring's step: waits among streams
constexpr double kStagedBytes = 2.5e4;  // through the host's memory

// The flops of the product on one device, and the bytes that it reads, writes and sends.
struct ProductSizes {
  double flops = 2, result = 1;  // elements of the whole product
  double moved = 0;              // bytes that a rank sends in a step
  double result_bytes = 0;       // bytes of the product
  double sum_bytes = 0;          // bytes of a partial sum, which is in f32 for half dtypes
  bool placed = true;            // the product of a step is a slice of the result; else a term of
                                 // the sum that is the result
};

ProductSizes sizes_of(const OverlapSpec& spec, const ShapedArray& a, const ShapedArray& b) {
  ProductSizes w;
  std::string all = spec.a;
  for (char l : spec.b)
    if (place_of(all, l) < 0) all += l;
  for (char l : all) {
    const auto extent = static_cast<double>(extent_of(spec, l, a.dims(), b.dims()));
    w.flops *= extent;
    if (place_of(spec.out, l) >= 0) w.result *= extent;
  }
  const double item = itemsize(a.dtype()), n = spec.ranks;
  w.result_bytes = w.result * item;
  w.placed = place_of(spec.out, spec.cut()) >= 0;
  w.sum_bytes = w.result * (is_half(a.dtype()) ? 4 : item);
  const auto block = static_cast<double>((spec.operand == 0 ? a : b).size()) * item;
  switch (spec.kind) {
    case OverlapKind::gather:
      w.moved = block;
      break;
    case OverlapKind::exchange:
      w.moved = block / n;
      break;
    case OverlapKind::scatter:
      w.sum_bytes /= n;
      w.moved = w.sum_bytes;
      break;
    default:
      w.moved = w.result_bytes / n;
  }
  return w;
}

double cpu_us(const OverlapSpec& spec, const ProductSizes& w, DType dtype, bool shared,
              Overlap form) {
  const double n = spec.ranks;
  const double product = w.flops / (is_half(dtype) ? kCoreHalfFlops : kCoreFlops);
  double bytes = 0;
  if (form == Overlap::none) {
    switch (spec.kind) {
      case OverlapKind::gather:  // in one memory space all ranks share what is gathered
        bytes = 2 * w.moved * (shared ? 1 : n);
        break;
      case OverlapKind::scatter:  // written, and read by those that add it up
        bytes = 2 * w.result_bytes;
        break;
      case OverlapKind::exchange:
      case OverlapKind::exchange_result:
        bytes = 2 * w.moved * n;
        break;
    }
    return product + bytes / kCoreBytes + 2 * kCoreCallUs;
  }
  const double steps = form == Overlap::ring ? n : 2 * n;
  if (!shared) bytes += 2 * (n - 1) * w.moved;
  switch (spec.kind) {
    case OverlapKind::gather:
      bytes += w.placed ? 3 * w.result_bytes : 2 * (n - 1) * w.sum_bytes;
      break;
    case OverlapKind::exchange:
      bytes += 2 * n * w.moved + (w.placed ? 3 * w.result_bytes : 2 * (n - 1) * w.sum_bytes);
      break;
    case OverlapKind::exchange_result:
      bytes += 3 * w.result_bytes;
      break;
    case OverlapKind::scatter:
      bytes += 2 * n * w.sum_bytes;
      break;
  }
  return product + bytes / kCoreBytes + 4 * steps * kCoreCallUs;
}

// A node's link carries the data for all ranks on the node. Gathered blocks and partial sums are
// received once per process; exchanged pieces once per rank. In a ring a node has one neighbour on
// each side, whatever the number of its ranks.
double network_us(const OverlapMachine& machine, const OverlapSpec& spec, const ProductSizes& w,
                  DType dtype, Overlap form) {
  const double n = spec.ranks, elsewhere = n - machine.nodes.ranks;
  const bool exchanges =
      spec.kind == OverlapKind::exchange || spec.kind == OverlapKind::exchange_result;
  const auto wire_us = [&](double bytes) {
    return kNetworkUs + machine.nodes.cliques * bytes / machine.network_bytes;
  };
  const double on_cores = cpu_us(spec, w, dtype, /*shared=*/false, form);
  if (form == Overlap::none) {
    const double piece = spec.kind == OverlapKind::scatter ? w.result_bytes / n : w.moved;
    const int times = exchanges ? machine.nodes.ranks : machine.nodes.processes;
    return on_cores + wire_us(times * elsewhere * piece);
  }
  // The core that multiplies also copies outgoing data into the system's buffers and incoming data
  // out of them.
  const double step = (on_cores + 2 * (n - 1) * w.moved / kCoreBytes) / n;
  const double hop =
      wire_us(w.moved * (exchanges ? machine.nodes.ranks * elsewhere / (n - 1) : 1)) +
      (form == Overlap::ring ? 0 : kNetworkUs);
  return step + (n - 1) * std::max(step, hop);
}

double gpu_us(const OverlapMachine& machine, const OverlapSpec& spec, const ProductSizes& w,
              DType dtype, Overlap form) {
  const double n = spec.ranks, rate = is_half(dtype) ? kGpuHalfFlops : kGpuFlops;
  // The time of 1 / `share` of the product, in whole waves, on each device that shares the GPU.
  const auto product = [&](double share) {
    const bool cuts_result = w.placed;
    const double result = w.result / (cuts_result ? share : 1);
    const double flops = w.flops / share;
    const double tiles = std::max(1.0, std::ceil(result / kTile));
    const double full = std::ceil(tiles / kWaves) * kWaves;
    return machine.sharing * (kGpuCallUs + flops / rate * full / tiles);
  };
  const auto in = static_cast<std::int64_t>(w.moved);
  const int ranks = spec.ranks;
  const auto link_us = [&](CollectiveKind kind, std::int64_t in_bytes, std::int64_t out_bytes,
                           double moved) {
    if (machine.link == OverlapLink::staged) return link_model::kCopyUs + moved / kStagedBytes;
    return std::min(in_process_us(kind, ranks, in_bytes, out_bytes),
                    nccl_us(kind, ranks, in_bytes, out_bytes));
  };
  const bool shared = machine.link == OverlapLink::shared;
  if (form == Overlap::none) {
    double moving = 0;
    const double all = w.moved * n;
    switch (spec.kind) {
      case OverlapKind::gather:
        moving = shared ? w.moved * 2 / kGpuBytes * machine.sharing
                        : link_us(CollectiveKind::all_gather, in, in * ranks, w.moved * (n - 1));
        break;
      case OverlapKind::scatter: {
        const auto whole = static_cast<std::int64_t>(w.result_bytes);
        moving = shared ? 2 * w.result_bytes / kGpuBytes * machine.sharing
                        : link_us(CollectiveKind::reduce_scatter, whole, whole / ranks,
                                  w.result_bytes * (n - 1) / n);
        break;
      }
      default:
        moving =
            shared ? 2 * all / kGpuBytes * machine.sharing
                   : link_us(CollectiveKind::all_to_all, in * ranks, in * ranks, w.moved * (n - 1));
    }
    return product(1) + moving + kGpuCallUs;
  }
  // A step multiplies while the next block is sent. It also reads and writes the partial sum, if
  // there is one.
  const int halves = form == Overlap::ring ? 1 : 2;
  const double step =
      halves * product(n * halves) + (w.placed && spec.kind != OverlapKind::scatter
                                          ? 0
                                          : 2 * w.sum_bytes / kGpuBytes * machine.sharing);
  // Behind a switch a GPU has one link, whichever direction the parts come from.
  const double hop = shared ? 0
                            : (halves - 1) * link_model::kCopyUs +
                                  link_us(CollectiveKind::permute, in, in, w.moved);
  return step + (n - 1) * std::max(step, hop) + n * halves * kGpuStepUs;
}

}  // namespace

namespace {

// The machine without its network.
const OverlapMachine& machine_of_node() {
  static const OverlapMachine machine = [] {
    OverlapMachine m;
    const auto devices = runtime().local_devices();
    m.kind = runtime().backend().kind();
    std::set<const MemorySpace*> spaces;
    for (const LocalDevice& d : devices) spaces.insert(d.space);
    const bool shared = spaces.size() == 1 && devices.size() > 1;
    if (row_of(m.kind).host_memory) {
      m.link = shared ? OverlapLink::shared : OverlapLink::cores;
      return m;
    }
    m.link = shared                                  ? OverlapLink::shared
             : env::text(env::Var::link) == "staged" ? OverlapLink::staged
                                                     : OverlapLink::peers;
    // "cuda:0x8": eight devices of one GPU.
    const bool is_virtual = runtime().device_string().find('x') != std::string::npos;
    m.sharing = is_virtual ? static_cast<int>(devices.size()) : 1;
    return m;
  }();
  return machine;
}

// Of the devices of all processes, in the order of make_mesh; empty where all are on one node.
struct DevicePlaces {
  std::vector<int> nodes, processes;
};
const DevicePlaces& device_places() {
  static const DevicePlaces places = [] {
    DevicePlaces p;
    const Processes* const joined = Processes::joined();
    if (joined == nullptr) return p;
    std::vector<int> nodes;
    const std::vector<Device>& devices = runtime().devices();
    for (const Device& d : devices) nodes.push_back(joined->peers().node_of(d.process_index()));
    if (std::set<int>(nodes.begin(), nodes.end()).size() == 1) return p;
    for (const std::size_t i : node_order(nodes)) {
      p.nodes.push_back(nodes[i]);
      p.processes.push_back(devices[i].process_index());
    }
    return p;
  }();
  return places;
}

}  // namespace

std::optional<OverlapNodes> nodes_of_cliques(const detail::AxisEnv& env, const Axes& axes,
                                             std::span<const int> nodes,
                                             std::span<const int> processes) {
  std::vector<bool> over(env.sizes.size(), false);
  for (const std::string& name : axes) {
    const int axis = env.find(name);
    if (axis < 0) return std::nullopt;
    over[static_cast<std::size_t>(axis)] = true;
  }
  std::size_t size = 1;
  for (const std::int64_t s : env.sizes) size *= static_cast<std::size_t>(s);
  if (size > nodes.size()) return std::nullopt;
  struct OnNode {
    int ranks = 0;
    std::set<int> processes;
  };
  std::map<std::size_t, std::map<int, OnNode>> cliques;  // by their first position, and by node
  for (std::size_t position = 0; position < size; ++position) {
    std::size_t first = position, stride = 1;
    for (std::size_t a = env.sizes.size(); a-- > 0;) {
      const auto extent = static_cast<std::size_t>(env.sizes[a]);
      if (over[a]) first -= position / stride % extent * stride;
      stride *= extent;
    }
    OnNode& here = cliques[first][nodes[position]];
    ++here.ranks;
    here.processes.insert(processes[position]);
  }
  OverlapNodes most{0, 0, 0};
  std::map<int, int> leaving;  // by node
  for (const auto& [first, by_node] : cliques) {
    if (by_node.size() == 1) continue;
    for (const auto& [node, here] : by_node) {
      most.ranks = std::max(most.ranks, here.ranks);
      most.processes = std::max(most.processes, static_cast<int>(here.processes.size()));
      most.cliques = std::max(most.cliques, ++leaving[node]);
    }
  }
  return most.cliques == 0 ? std::nullopt : std::optional(most);
}

OverlapMachine overlap_machine(const detail::AxisEnv* env, const Axes& axes) {
  const OverlapMachine& node = machine_of_node();
  const DevicePlaces& places = device_places();
  if (env == nullptr || places.nodes.empty() || !row_of(node.kind).host_memory) return node;
  static std::mutex mutex;
  static auto* known =
      new std::map<std::pair<const detail::AxisEnv*, std::vector<std::string>>, OverlapMachine>();
  std::lock_guard lock(mutex);
  const auto [it, fresh] = known->try_emplace({env, axes.names()}, node);
  if (fresh) {
    if (const auto nodes = nodes_of_cliques(*env, axes, places.nodes, places.processes)) {
      it->second.link = OverlapLink::network;
      it->second.nodes = *nodes;
    }
  }
  return it->second;
}

OverlapChoice model_overlap(const OverlapMachine& machine, const OverlapSpec& spec,
                            const ShapedArray& a, const ShapedArray& b) {
  const ProductSizes w = sizes_of(spec, a, b);
  const auto us = [&](Overlap form) {
    if (!row_of(machine.kind).host_memory) return gpu_us(machine, spec, w, a.dtype(), form);
    if (machine.link == OverlapLink::network) return network_us(machine, spec, w, a.dtype(), form);
    return cpu_us(spec, w, a.dtype(), machine.link == OverlapLink::shared, form);
  };
  OverlapChoice choice{Overlap::automatic, us(Overlap::none), us(Overlap::ring),
                       us(Overlap::two_rings)};
  // The product of a step must fill the GPU at least once: smaller products are dominated by
  // latencies, which the model does not know well enough.
  const double part = w.result / (w.placed ? spec.ranks : 1);
  if (!row_of(machine.kind).host_memory && part < kWaves * kTile) {
    choice.ring_us = std::max(choice.ring_us, choice.none_us);
    choice.two_rings_us = std::max(choice.two_rings_us, choice.none_us);
  }
  return choice;
}

OverlapChoice model_overlap(const OverlapSpec& spec, const detail::AxisEnv* env,
                            const ShapedArray& a, const ShapedArray& b) {
  return model_overlap(overlap_machine(env, spec.axes), spec, a, b);
}

Overlap forced_overlap() {
  static const Overlap forced = [] {
    const std::string name = env::text(env::Var::overlap);
    for (const Overlap form : {Overlap::none, Overlap::ring, Overlap::two_rings})
      if (name == to_text(form)) return form;
    return Overlap::automatic;
  }();
  return forced;
}

}  // namespace shmap
