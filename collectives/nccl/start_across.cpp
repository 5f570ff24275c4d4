#include "collectives/nccl/start_across.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "collectives/cross_table.h"
#include "collectives/nccl/nccl_api.h"
#include "core/base/hash_text.h"
#include "core/ir/trace.h"
#include "core/processes/exchanges.h"
#include "core/processes/peers.h"
#include "core/processes/process_exchange.h"
#include "core/processes/processes.h"
#include "cuda/driver/error.h"
#include "cuda/driver/gpus.h"
#include "shmap/error.h"

namespace shmap::nccl {

namespace {

constexpr int kSharesGpus = 23000;  // from here on two ranks may have one GPU

// The data that a process sends the others for each of its ranks.
struct RankCard {
  ncclUniqueId id{};  // the id of the clique, if this is its rank 0
  std::uint64_t machine = 0;
  char gpu[32] = {};  // the GPU's address on the machine's bus
};

class Start {
 public:
  Start(const detail::MeshImpl& mesh, const CliqueTable& table, const std::vector<int>& gpus)
      : mesh_(mesh), table_(table), gpus_(gpus), self_(Processes::joined()->rank()) {
    for (const CrossTable::Clique& clique : table.cross->cliques) {
      cards_.emplace_back(clique.process.size());
      for (std::size_t r = 0; r < clique.process.size(); ++r)
        if (clique.process[r] == self_) fill(cards_.back()[r], position(clique, r), r == 0);
    }
  }

  // After the exchange all processes of a clique know the cards of all its ranks.
  void exchange_cards(const Primitive& primitive, SourceLine source) {
    ProcessExchange exchange;
    exchange.space =
        HashText().add("communicators").add(mesh_.name()).add(table_.cross->key).value();
    exchange.check = exchange.space;
    exchange.label.set(primitive.name, table_.cross->axes, "", source.file,
                       static_cast<std::uint32_t>(source.line), 0);
    for (const int peer : table_.cross->partners) {
      for (std::size_t c = 0; c < cards_.size(); ++c) {
        const std::vector<int>& process = table_.cross->cliques[c].process;
        if (std::find(process.begin(), process.end(), peer) == process.end()) continue;
        for (std::size_t r = 0; r < process.size(); ++r) {
          auto* card = reinterpret_cast<std::byte*>(&cards_[c][r]);
          if (process[r] == self_) exchange.sends.push_back({peer, card, sizeof(RankCard)});
          if (process[r] == peer) exchange.receives.push_back({peer, card, sizeof(RankCard)});
        }
      }
    }
    Processes::joined()->exchanges().run(exchange);
  }

  void refuse_shared_gpus(const Primitive& primitive, SourceLine source) const {
    std::string why_not;
    if (gpus_may_be_shared(&why_not)) return;
    for (std::size_t c = 0; c < cards_.size(); ++c) {
      const std::vector<int>& process = table_.cross->cliques[c].process;
      std::map<std::pair<std::uint64_t, std::string>, int> holder;
      for (std::size_t r = 0; r < process.size(); ++r) {
        const RankCard& card = cards_[c][r];
        const auto [it, fresh] = holder.emplace(std::pair(card.machine, card.gpu), process[r]);
        if (fresh) continue;
        const Peers& peers = Processes::joined()->peers();
        throw CollectiveError(
            std::string(primitive.name) + ": " + peers.text(it->second) + " and " +
            peers.text(process[r]) + " have devices on one GPU (" + card.gpu + "), and " + why_not +
            ". SHMAP_DEVICES=cuda gives each process of a node a GPU of its own." +
            at_line(source));
      }
    }
  }

  std::vector<ncclComm_t> comms() {
    std::vector<ncclComm_t> made(mesh_.local_count(), nullptr);
    // The communicators that NCCL has begun to make. It may have begun some although a call of the
    // group failed.
    const auto begun = [&] {
      std::vector<ncclComm_t> comms;
      for (const ncclComm_t comm : made)
        if (comm != nullptr) comms.push_back(comm);
      return comms;
    };
    try {
      Group group;
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = 0;
      for (std::size_t c = 0; c < cards_.size(); ++c) {
        const CrossTable::Clique& clique = table_.cross->cliques[c];
        for (std::size_t r = 0; r < clique.process.size(); ++r) {
          if (clique.process[r] != self_) continue;
          const std::uint32_t p = position(clique, r);
          const cuda::GpuScope gpu(gpus_[p]);
          check(api().init_rank_config(&made[p], static_cast<int>(clique.process.size()),
                                       cards_[c][0].id, static_cast<int>(r), &config),
                "ncclCommInitRankConfig");
        }
      }
      group.end();
      settle(begun(), "ncclCommInitRankConfig");
    } catch (const std::exception& e) {
      abort(begun(), e.what());
      throw;
    }
    return made;
  }

 private:
  std::uint32_t position(const CrossTable::Clique& clique, std::size_t rank) const {
    return table_.cliques[clique.index][rank];
  }
  void fill(RankCard& card, std::uint32_t position, bool first) const {
    if (first) check(api().unique_id(&card.id), "ncclGetUniqueId");
    card.machine = PeerCard::of_this_process().boot;
    cuda::check(cudaDeviceGetPCIBusId(card.gpu, sizeof card.gpu, gpus_[position]),
                "cudaDeviceGetPCIBusId");
  }

  const detail::MeshImpl& mesh_;
  const CliqueTable& table_;
  const std::vector<int>& gpus_;
  const int self_;
  std::vector<std::vector<RankCard>> cards_;  // by clique and rank
};

}  // namespace

bool gpus_may_be_shared(std::string* why_not) {
  const char* set = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  const int version = api().version;
  if (version >= kSharesGpus && set != nullptr && std::string_view(set) == "1") return true;
  *why_not = "two ranks on one GPU need NCCL " + version_text(kSharesGpus) + " or newer (this is " +
             version_text(version) + ") and NCCL_MULTI_RANK_GPU_ENABLE=1";
  return false;
}

std::vector<ncclComm_t> start_across(const detail::MeshImpl& mesh, const CliqueTable& table,
                                     const std::vector<int>& gpus, const Primitive& primitive,
                                     SourceLine source) {
  Start start(mesh, table, gpus);
  start.exchange_cards(primitive, source);
  start.refuse_shared_gpus(primitive, source);
  return start.comms();
}

}  // namespace shmap::nccl
