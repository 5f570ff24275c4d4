// Communicators besides the one in process, which is always there: how a library's folder offers
// one.
#pragma once
#include <string>

#include "collectives/communicator.h"

namespace shmap {

struct CommunicatorOption {
  const char* name;  // as SHMAP_COMMUNICATOR asks for it
  // The communicator, where it can carry this call, and, unless it is `demanded`, where it is the
  // better one, by the clique and the bytes. Else null, with a reason in *why_not where it is
  // demanded. Called for each collective: the answer should be at hand.
  Communicator* (*find)(const GroupBlocks& blocks, CollectiveKind kind, bool demanded,
                        std::string* why_not);
  // Why the communicator in process cannot carry this call; "" where it can.
  std::string (*in_process_cannot)(const GroupBlocks& blocks, CollectiveKind kind) = nullptr;
};

// Called at registration, once an option.
void register_communicator(const CommunicatorOption& option);

}  // namespace shmap
