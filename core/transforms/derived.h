// Derivatives of programs, each made once: differentiating the same program again, as a training
// loop does at every step, finds it made. Usable from several threads.
#pragma once
#include <memory>

#include "core/transforms/jvp.h"
#include "core/transforms/linearize.h"
#include "core/transforms/transpose.h"

namespace shmap {

std::shared_ptr<const JvpProgram> derived_jvp(const JaxprRef& jaxpr,
                                              const std::vector<bool>& active);
std::shared_ptr<const LinearizedProgram> derived_linearization(const JaxprRef& jaxpr,
                                                               const std::vector<bool>& active);
std::shared_ptr<const TransposedProgram> derived_transpose(const JaxprRef& jaxpr,
                                                           const std::vector<bool>& linear,
                                                           const std::vector<bool>& given);

// Which of the values are not empty.
std::vector<bool> given_mask(std::span<const Array> values);

}  // namespace shmap
