// The registry of communicators other than InProcessCommunicator, which always exists: the folder
// of a library such as NCCL registers an option.
#pragma once
#include <string>

#include "collectives/communicator.h"

namespace shmap {

struct CommunicatorOption {
  const char* name;  // the value of SHMAP_COMMUNICATOR that names it
  // Returns the communicator if it can carry this call and, unless `demanded`, is the better one
  // for this clique and these bytes. Otherwise null; if `demanded`, with a reason in *why_not.
  // Called for each collective, so it must be fast.
  Communicator* (*find)(const GroupBlocks& blocks, CollectiveKind kind, bool demanded,
                        std::string* why_not);
  // Returns why the in-process communicator cannot carry this call; "" if it can.
  std::string (*in_process_cannot)(const GroupBlocks& blocks, CollectiveKind kind) = nullptr;
};

// To be called at registration, once per option.
void register_communicator(const CommunicatorOption& option);

}  // namespace shmap
