// Derivatives of programs and batched programs, which are kept with the program that they are
// derived from (Jaxpr::derived) and destroyed with it. A training loop differentiates the same
// program at every step; the rules of loops ask for a derivative several times, until it is known
// which carries have tangents, and so does each level of a nest. Thread-safe.
#pragma once
#include <memory>

#include "core/transforms/autodiff/jvp.h"
#include "core/transforms/autodiff/linearize.h"
#include "core/transforms/autodiff/transpose.h"
#include "core/transforms/vmap/batch.h"

namespace shmap {

// The arguments are those of jvp_program, linearize_program, transpose_program and batch_program.
std::shared_ptr<const JvpProgram> derived_jvp(const JaxprRef& jaxpr,
                                              const std::vector<bool>& active,
                                              const std::vector<bool>& wanted = {});
std::shared_ptr<const LinearizedProgram> derived_linearization(
    const JaxprRef& jaxpr, const std::vector<bool>& active, const std::vector<bool>& wanted = {});
std::shared_ptr<const TransposedProgram> derived_transpose(const JaxprRef& jaxpr,
                                                           const std::vector<bool>& linear,
                                                           const std::vector<bool>& given,
                                                           const std::vector<bool>& wanted = {});
std::shared_ptr<const BatchedProgram> derived_batch(const JaxprRef& jaxpr, std::int64_t size,
                                                    const std::vector<bool>& batched,
                                                    const std::vector<bool>& wanted = {},
                                                    const std::vector<ShapedArray>& as = {});

// An entry for each value: true if the value is not empty.
std::vector<bool> given_mask(std::span<const Array> values);

}  // namespace shmap
