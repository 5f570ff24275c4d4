// The forms in which programs write shapes, names, specs and host data.
#include <array>
#include <concepts>
#include <sstream>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shmap/shmap.h"

namespace shmap {
namespace {

template <class A>
concept ElementsAreAssignable = requires(A x, A y) {
  x[0] = y;
}
|| requires(A x) { x[0] = 2.f; }
|| requires(A x, A y) { x[{0, 1}] += y; };
static_assert(!ElementsAreAssignable<Array>);
static_assert(std::copyable<Array> && std::default_initializable<Array>);

TEST(WrittenForms, ShapesEqualListsOfIntegers) {
  const Array x = zeros({2, 3});
  EXPECT_TRUE(x.shape() == (std::vector<int>{2, 3}));
  EXPECT_TRUE(x.shape() != (std::vector<std::size_t>{2}));
  EXPECT_TRUE((std::array<std::int64_t, 2>{2, 3}) == x.shape());
}

TEST(WrittenForms, NamesInBracesAreTheAxesOfOneDim) {
  const std::string i = "i", j = "j";
  const std::string_view k = "k", l = "l";
  EXPECT_EQ(P({"i", "j"}), P(axes("i", "j")));
  EXPECT_EQ(P({i, j}), P(axes("i", "j")));
  EXPECT_EQ(P({k, l}, none, "m"), P(axes("k", "l"), none, "m"));
  EXPECT_EQ(P({"i"}), P("i"));
  EXPECT_EQ((P{"i", "j"}), P("i", "j"));
  EXPECT_EQ((P{{"i", "j"}, none}), P(axes("i", "j"), none));
  const char letters[] = "i";
  EXPECT_EQ(P(letters), P("i"));
  const char* names[] = {"i", "j"};
  EXPECT_EQ(P(names), P(axes("i", "j")));
  names[1] = nullptr;
  EXPECT_THROW(P{names}, ValueError);
}

TEST(WrittenForms, SpecsAreMadeOfArraysToo) {
  const std::array<P, 2> list{P("i"), P()};
  const Specs specs = list;
  EXPECT_EQ(specs.kind(), Specs::list);
  ASSERT_EQ(specs.size(), 2u);
  EXPECT_EQ(specs[0].spec(), P("i"));
}

TEST(WrittenForms, AbstractMeshesPrint) {
  std::ostringstream text;
  text << AbstractMesh({256, 64}, {"p", "q"});
  EXPECT_EQ(text.str(), "AbstractMesh('p': 256, 'q': 64)");
}

TEST(WrittenForms, ArraysAreMadeOfVectorsOfBools) {
  const std::vector<bool> bits{true, false, true};
  const Array x = array(bits, {3});
  EXPECT_EQ(x.dtype(), bool_);
  EXPECT_EQ(x.to_vector<bool>(), bits);
  EXPECT_EQ(array<bool>(bits, {3, 1}).shape(), (Shape{3, 1}));
  EXPECT_EQ(array(std::vector<bool>(), {0}).size(), 0);
  EXPECT_THROW(array(bits, {2}), ValueError);
}

TEST(WrittenForms, ARangeOfOneNumberStopsThere) {
  EXPECT_EQ(arange(5)[range(3)].to_vector<float>(), (std::vector<float>{0, 1, 2}));
  EXPECT_EQ(arange(3)[range(-1)].to_vector<float>(), (std::vector<float>{0, 1}));
}

TEST(WrittenForms, ScansWithoutAnAxis) {
  const Array x = array<float>({1, 3, 2, 4}, {2, 2});
  EXPECT_EQ(cumsum(x).to_vector<float>(), (std::vector<float>{1, 4, 6, 10}));
  EXPECT_EQ(cumprod(x).to_vector<float>(), (std::vector<float>{1, 3, 6, 24}));
  EXPECT_EQ(cummax(x).to_vector<float>(), (std::vector<float>{1, 3, 2, 4}));
  EXPECT_EQ(cummin(x).to_vector<float>(), (std::vector<float>{1, 3, 1, 3}));
  EXPECT_EQ(cumlogsumexp(x)[0].to_vector<float>(), (std::vector<float>{1, 3}));
  EXPECT_EQ(repeat(array<int>({1, 2}, {2, 1}), 2).to_vector<int>(), (std::vector<int>{1, 1, 2, 2}));
  try {
    repeat(x, -1);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const ValueError& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("written_forms_test.cpp:"));
  }
}

TEST(WrittenForms, AnAtomIsAVariableOrALiteral) {
  const auto jaxpr = make_jaxpr([](Array x) { return x * 2.f; })(3.f);
  const std::vector<extend::Atom> inputs = extend::eqns(jaxpr)[0].inputs();
  EXPECT_TRUE(inputs[0].is_var() && !inputs[1].is_var());
  const Array two = inputs[1].literal();
  EXPECT_EQ(two.item<float>(), 2);
}

}  // namespace
}  // namespace shmap
