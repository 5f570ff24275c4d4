// The operation that CONTRIBUTING.md adds as an example: its values, derivative, batching, name in
// programs, text and fused form, on the devices of SHMAP_DEVICES. Built by scripts/check_recipe.
#include <gtest/gtest.h>

#include <cmath>

#include "shmap/shmap.h"

using namespace shmap;

namespace {

const std::vector<float> kValues = {0.1f, 1.f, 2.f, 10.f, 12345.f};

Array values() { return array(kValues, {5}); }

TEST(AddedOperation, ComputesItsValueInEveryForm) {
  const Array x = values();
  const std::vector<float> eager = log10(x).to_vector<float>();
  const std::vector<float> batched = vmap([](Array v) { return log10(v); })(x).to_vector<float>();
  const std::vector<float> fused =
      jit([](Array v) { return log10(v * 2.f) - 1.f; })(x).to_vector<float>();
  for (std::size_t i = 0; i < kValues.size(); ++i) {
    EXPECT_NEAR(eager[i], std::log10(kValues[i]), 1e-6f * std::fabs(eager[i]) + 1e-7f);
    EXPECT_EQ(batched[i], eager[i]);
    EXPECT_NEAR(fused[i], std::log10(2 * kValues[i]) - 1, 1e-6f * std::fabs(fused[i]) + 1e-6f);
  }
  EXPECT_EQ(log10(array<std::int32_t>({1000}, {1})).dtype(), f32);
}

TEST(AddedOperation, HasItsDerivative) {
  const Array slope = grad([](Array v) { return sum(log10(v)); })(values());
  const std::vector<float> got = slope.to_vector<float>();
  for (std::size_t i = 0; i < kValues.size(); ++i)
    EXPECT_NEAR(got[i] * kValues[i] * std::log(10.f), 1, 1e-5);
}

TEST(AddedOperation, IsPartOfProgramsAndTheirTexts) {
  const std::string text = to_string(make_jaxpr([](Array v) { return log10(v); })(values()));
  EXPECT_NE(text.find("= log10 "), std::string::npos) << text;
}

}  // namespace
