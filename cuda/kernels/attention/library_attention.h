// Attention by cuDNN's fused kernels instead of this library's own (attention.h), for calls that
// cuDNN can compute and if SHMAP_ATTENTION_KERNEL asks for it:
//
//   auto             the own kernel and cuDNN's proposals are timed at the first call of a form
//                    outside of a capture (unless SHMAP_TIME_GEMMS is off), which blocks meanwhile;
//                    the fastest is kept on disk for that version of cuDNN and that GPU. Only what
//                    repeats its bits, and treats NaNs and infinities of scores as the own kernel
//                    does, is timed: no bias, no backward pass whose sums have no order. Calls with
//                    fewer than 16 rows of q are not timed either, nor more than 64 forms in a
//                    process, because timing one form can take seconds.
//   own              the own kernel
//   own_wgmma        the own kernels; forward on GPUs of compute capability 9.0 the one that uses
//                    wgmma (attention_warpgroups.cu), where it can
//   cudnn            cuDNN's first proposal, wherever it has one
//   cudnn_unordered  likewise; the cotangent of q is added up atomically, in any order
//
// If sums are kept, cuDNN's forward pass writes the logarithm of a row's sum in place of the
// greatest score, and 1 in place of the sum: the weights that are computed from these are the same.
//
// The own kernels compute what cuDNN does not: f32, a result of another dtype, masks (except causal
// masks whose rows all see a column), scales that are not positive, depths that are no multiples of
// 8, operands whose rows are not at multiples of 16 bytes, sums over heads that are added to
// earlier ones, and an ordered backward pass that needs more memory than both 256 MiB and a 32nd of
// the GPU's.
#pragma once
#include <string>
#include <vector>

#include "cuda/kernels/attention/attention_grad.h"

namespace shmap::cuda {

// Returns false, and enqueues nothing, if the own kernel is to be used. attention() must take the
// call, which must not be empty.
bool library_attention(const Attention& attention, void* native_stream);
bool library_attention_grad(const AttentionGrad& grad, void* native_stream);

// attention() and attention_grad() by this library's kernels; the call must not be empty.
void own_attention(const Attention& attention, void* native_stream);
void own_attention_grad(const AttentionGrad& grad, void* native_stream);

// Frees the workspace of a stream that is about to be destroyed; its work must be done.
void drop_attention_workspace(void* native_stream) noexcept;

// The choices since the process started, a line for each form in the order of their first calls,
// with times or the reason: "attention bf16 …: cuDNN 9.19.0, 0: engine 2, 0.031 ms; own kernel
// 0.045 ms". With SHMAP_DUMP they are written to attention.txt too.
std::vector<std::string> attention_choices();

}  // namespace shmap::cuda
