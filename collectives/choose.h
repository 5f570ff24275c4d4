// The registry of communicators other than InProcessCommunicator, which always exists: the folder
// of a library such as NCCL registers an option.
#pragma once
#include <string>

#include "collectives/communicator.h"

namespace shmap {

struct CommunicatorOption {
  const char* name;  // its value of SHMAP_COMMUNICATOR
  // Returns the communicator where it can carry this call and, unless `demanded`, where it is the
  // better one for this clique and these bytes. Otherwise null; where `demanded`, with a reason in
  // *why_not. Called for each collective, so it must be fast.
  Communicator* (*find)(const GroupBlocks& blocks, CollectiveKind kind, bool demanded,
                        std::string* why_not);
  // Why the in-process communicator cannot carry this call; "" where it can.
  std::string (*in_process_cannot)(const GroupBlocks& blocks, CollectiveKind kind) = nullptr;
};

// To be called at registration, once per option.
void register_communicator(const CommunicatorOption& option);

}  // namespace shmap
