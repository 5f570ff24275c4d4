#include "core/debug/ascii_sharding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "shmap/shmap.h"

namespace shmap::debug {
namespace {

using ::testing::HasSubstr;

struct Part {
  int id;
  std::vector<Slice> index;
};
struct Golden {
  Shape shape;
  std::vector<Part> parts;
  const char* text;
};

std::vector<ShardBox> boxes_of(const std::vector<Part>& parts) {
  std::vector<ShardBox> boxes;
  for (const Part& p : parts) boxes.push_back({"CPU", p.id, p.index});
  return boxes;
}

// A matrix split over a grid of rows × columns devices.
std::vector<ShardBox> grid(const Shape& shape, int rows, int columns) {
  std::vector<ShardBox> boxes;
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < columns; ++j)
      boxes.push_back({"CPU",
                       i * columns + j,
                       {{shape[0] * i / rows, shape[0] * (i + 1) / rows},
                        {shape[1] * j / columns, shape[1] * (j + 1) / columns}}});
  return boxes;
}

TEST(AsciiSharding, MatchesJax) {
  const Golden goldens[] = {
#include "tests/golden/sharding.inc"
  };
  for (const Golden& g : goldens)
    EXPECT_EQ(draw_sharding(g.shape, boxes_of(g.parts)), g.text) << g.shape;
  EXPECT_GT(std::size(goldens), 100u);
}

TEST(AsciiSharding, KeepsTheLabelsOfManyColumns) {
  EXPECT_EQ(draw_sharding({4, 32}, grid({4, 32}, 1, 8)),
            "┌────────┬────────┬────────┬────────┬────────┬────────┬────────┬────────┐\n"
            "│        │        │        │        │        │        │        │        │\n"
            "│        │        │        │        │        │        │        │        │\n"
            "│        │        │        │        │        │        │        │        │\n"
            "│        │        │        │        │        │        │        │        │\n"
            "│ CPU 0  │ CPU 1  │ CPU 2  │ CPU 3  │ CPU 4  │ CPU 5  │ CPU 6  │ CPU 7  │\n"
            "│        │        │        │        │        │        │        │        │\n"
            "│        │        │        │        │        │        │        │        │\n"
            "│        │        │        │        │        │        │        │        │\n"
            "│        │        │        │        │        │        │        │        │\n"
            "└────────┴────────┴────────┴────────┴────────┴────────┴────────┴────────┘\n");
}

TEST(AsciiSharding, ShortensWhatDoesNotFit) {
  std::vector<ShardBox> many, replicated, strided;
  for (int i = 0; i < 512; ++i) {
    many.push_back({"CPU", i, {{i, i + 1}}});
    replicated.push_back({"CPU", i, {{0, 512}}});
    strided.push_back({"CPU", i, {{i % 2 * 256, i % 2 * 256 + 256}}});
  }
  EXPECT_EQ(draw_sharding({512}, many),
            "┌─────┬─────┬─────┬─────┬─────┬───┬───────┬───────┬───────┬───────┬───────┐\n"
            "│CPU 0│CPU 1│CPU 2│CPU 3│CPU 4│...│CPU 507│CPU 508│CPU 509│CPU 510│CPU 511│\n"
            "└─────┴─────┴─────┴─────┴─────┴───┴───────┴───────┴───────┴───────┴───────┘\n");
  EXPECT_EQ(draw_sharding({512}, replicated),
            "┌─────────┐\n"
            "│CPU 0-511│\n"
            "└─────────┘\n");
  EXPECT_EQ(draw_sharding({512}, strided),
            "┌───────────────────────────────┬───────────────────────────────┐\n"
            "│CPU 0,2,4,...,510 (256 devices)│CPU 1,3,5,...,511 (256 devices)│\n"
            "└───────────────────────────────┴───────────────────────────────┘\n");
  const std::string tall = draw_sharding({512, 512}, grid({512, 512}, 512, 1));
  EXPECT_EQ(std::count(tall.begin(), tall.end(), '\n'), 2 * 33 + 1);
  EXPECT_THAT(tall, HasSubstr("│        CPU 15         │\n"));
  EXPECT_THAT(tall, HasSubstr("│          ...          │\n├───────────────────────┤\n"
                              "│        CPU 496        │\n"));
}

TEST(AsciiSharding, UnevenAndEmptyParts) {
  EXPECT_EQ(draw_sharding({10}, boxes_of({{0, {{0, 4}}}, {1, {{4, 8}}}, {2, {{8, 10}}}})),
            "┌───────┬───────┬───────┐\n"
            "│ CPU 0 │ CPU 1 │ CPU 2 │\n"
            "└───────┴───────┴───────┘\n");
  EXPECT_EQ(draw_sharding({0}, boxes_of({{0, {{0, 0}}}, {1, {{0, 0}}}})),
            "┌───────────────────────┐\n"
            "│        CPU 0,1        │\n"
            "└───────────────────────┘\n");
  EXPECT_EQ(draw_sharding({0, 4}, boxes_of({{0, {{0, 0}, {0, 4}}}})),
            draw_sharding({1, 4}, boxes_of({{0, {{0, 1}, {0, 4}}}})));
}

std::string error_of(const Shape& shape, const std::vector<Part>& parts) {
  try {
    draw_sharding(shape, boxes_of(parts));
  } catch (const ValueError& e) {
    return e.what();
  }
  return "drawn";
}

TEST(AsciiSharding, ErrorsShowTheCallersLine) {
  const NamedSharding whole(make_mesh({1}, "i"), P());
  const Array cube = device_put(zeros({2, 2, 2}), whole);
  const auto text_of = [](auto draw, const Array& x) -> std::string {
    try {
      draw(x);
    } catch (const Error& e) {
      return e.what();
    }
    return "drawn";
  };
  const auto draw = [](const Array& x) { draw_array_sharding(x); };
  const auto show = [](const Array& x) { visualize_array_sharding(x); };
  for (const std::string& text : {text_of(draw, cube), text_of(show, cube)}) {
    EXPECT_THAT(text, HasSubstr("it has rank 3"));
    EXPECT_THAT(text, HasSubstr("ascii_sharding_test.cpp:"));
  }
  EXPECT_THAT(text_of(show, Array(1.f)), HasSubstr("ascii_sharding_test.cpp:"));
}

TEST(AsciiSharding, RefusesWhatIsNoGrid) {
  EXPECT_THAT(error_of({2, 3, 4}, {{0, {{0, 2}, {0, 3}, {0, 4}}}}),
              HasSubstr("visualize_array_sharding: an array of shape (2, 3, 4): it has rank 3"));
  EXPECT_THAT(error_of({}, {{0, {}}}), HasSubstr("rank 0"));
  EXPECT_THAT(error_of({8}, {}), HasSubstr("no device holds any of it"));
  EXPECT_THAT(error_of({8}, {{3, {{0, 9}}}}), HasSubstr("CPU 3 holds [0:9]"));
  EXPECT_THAT(error_of({8}, {{3, {{0, 8}, {0, 1}}}}), HasSubstr("does not lie in the shape"));
  EXPECT_THAT(error_of({8}, {{0, {{0, 4}}}}), HasSubstr("no device holds 4:8 of dim 0"));
  EXPECT_THAT(error_of({8}, {{0, {{0, 4}}}, {1, {{5, 8}}}}), HasSubstr("parts that adjoin"));
  EXPECT_THAT(error_of({8}, {{0, {{0, 5}}}, {1, {{4, 8}}}}), HasSubstr("parts that adjoin"));
  EXPECT_THAT(error_of({2, 2}, {{0, {{0, 1}, {0, 1}}}, {1, {{1, 2}, {1, 2}}}}),
              HasSubstr("no device holds part 0, 1"));
}

}  // namespace
}  // namespace shmap::debug
