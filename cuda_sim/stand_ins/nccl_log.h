// The log of calls of the simulator's NCCL, for tests.
#pragma once
#include <string>
#include <vector>

#pragma GCC visibility push(default)
namespace shmap_sim {

// Calls of all threads since the last clear_nccl_log(), in order; a call's line:
//   InitAll 0,1,2,3                      the GPUs of the ranks
//   Split 0/4 color 1 key 0              of rank 0 of 4
//   GroupStart, GroupEnd
//   AllReduce 1/4 count 6 f32 sum        by rank 1 of 4, likewise AllGather, ReduceScatter,
//   Broadcast 0/4 count 8 u8 root 2      Broadcast;
//   Send 0/4 count 8 u8 to 1             and Recv … from 1
//   Destroy 0/4, Abort 0/4
// A call in a stream that captures ends with " captured".
std::vector<std::string> nccl_log();
void clear_nccl_log();

// Texts of mistakes: a group that would block forever, a communicator that was destroyed while a
// graph kept work of it, a stream of another GPU. Each such call also fails.
std::vector<std::string> nccl_mistakes();

int nccl_communicators();         // live
void set_nccl_version(int code);  // returned by ncclGetVersion; set before the library asks
// Makes the next ncclCommGetAsyncError of each existing communicator return ncclInternalError.
void fail_nccl_communicators();

}  // namespace shmap_sim
#pragma GCC visibility pop
