// shmap-test: devices
// Functions that move elements against JAX's values: on plain arrays, and on arrays split over a
// mesh.
#include <gtest/gtest.h>

#include <charconv>
#include <map>
#include <sstream>

#include "shmap/ops.h"
#include "tests/support/golden_array.h"

namespace shmap {
namespace {

using testing::expect_golden;
using testing::GoldenCase;
using Arrays = std::vector<Array>;

Dims dims(const std::vector<std::int64_t>& list) { return Dims(list); }

std::vector<int> narrow(const std::vector<std::int64_t>& list) {
  return std::vector<int>(list.begin(), list.end());
}

DType dtype_named(const std::string& name) {
  for (int t = 0; t < kDTypeCount; ++t)
    if (name == short_name(static_cast<DType>(t))) return static_cast<DType>(t);
  throw ValueError("no dtype is called " + name);
}

std::int64_t to_int(const std::string& text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    throw ValueError("not an integer: " + text);
  return value;
}

// "1:5:2" of a dim; a bound left out is the one that NumPy means.
Range parse_range(const std::string& text, std::int64_t extent) {
  std::vector<std::string> parts;
  std::istringstream in(text + ":");
  for (std::string part; std::getline(in, part, ':');) parts.push_back(part);
  if (text == ":") return range();
  const auto part = [&](std::size_t k, std::int64_t otherwise) {
    return k < parts.size() && !parts[k].empty() ? to_int(parts[k]) : otherwise;
  };
  const std::int64_t step = part(2, 1);
  return range(part(0, step > 0 ? 0 : extent - 1), part(1, step > 0 ? extent : -extent - 1), step);
}

Array index(const Array& x, const std::string& text, const Arrays& arrays) {
  std::vector<Index> terms;
  std::istringstream in(text);
  std::size_t dim = 0;
  const Shape shape = x.shape();
  for (std::string term; std::getline(in, term, ',');) {
    if (term == "none") {
      terms.emplace_back(none);
      continue;
    }
    if (term[0] == 'i') {
      terms.emplace_back(arrays.at(static_cast<std::size_t>(to_int(term.substr(1)))));
    } else if (term.find(':') != std::string::npos) {
      terms.emplace_back(parse_range(term, shape[dim]));
    } else {
      terms.emplace_back(to_int(term));
    }
    ++dim;
  }
  switch (terms.size()) {
    case 1:
      return x[terms[0]];
    case 2:
      return x[{terms[0], terms[1]}];
    case 3:
      return x[{terms[0], terms[1], terms[2]}];
    case 4:
      return x[{terms[0], terms[1], terms[2], terms[3]}];
    case 5:
      return x[{terms[0], terms[1], terms[2], terms[3], terms[4]}];
    default:
      throw ValueError("an index of " + std::to_string(terms.size()) + " terms");
  }
}

using Run = Arrays (*)(const GoldenCase&, const Arrays&);
const std::map<std::string, Run>& shape_ops() {
  static const std::map<std::string, Run> ops = {
      {"reshape",
       [](const GoldenCase& c, const Arrays& in) {
         return Arrays{reshape(in[0], Shape(c.params.ints("shape")))};
       }},
      {"transpose",
       [](const GoldenCase& c, const Arrays& in) {
         return Arrays{c.params.has("axes") ? transpose(in[0], dims(c.params.ints("axes")))
                                            : transpose(in[0])};
       }},
      {"swapaxes",
       [](const GoldenCase& c, const Arrays& in) {
         const std::vector<int> axes = narrow(c.params.ints("axes"));
         return Arrays{swapaxes(in[0], axes.at(0), axes.at(1))};
       }},
      {"broadcast_to",
       [](const GoldenCase& c, const Arrays& in) {
         return Arrays{broadcast_to(in[0], Shape(c.params.ints("shape")))};
       }},
      {"broadcast_in_dim",
       [](const GoldenCase& c, const Arrays& in) {
         return Arrays{
             broadcast_in_dim(in[0], Shape(c.params.ints("shape")), dims(c.params.ints("dims")))};
       }},
      {"expand_dims",
       [](const GoldenCase& c, const Arrays& in) {
         return Arrays{expand_dims(in[0], dims(c.params.ints("axes")))};
       }},
      {"squeeze",
       [](const GoldenCase& c, const Arrays& in) {
         return Arrays{c.params.has("axes") ? squeeze(in[0], dims(c.params.ints("axes")))
                                            : squeeze(in[0])};
       }},
      {"tile", [](const GoldenCase& c,
                  const Arrays& in) { return Arrays{tile(in[0], dims(c.params.ints("reps")))}; }},
      {"repeat",
       [](const GoldenCase& c, const Arrays& in) {
         return Arrays{repeat(in[0], static_cast<int>(c.params.integer("repeats")),
                              static_cast<int>(c.params.integer("axis")))};
       }},
      {"flip",
       [](const GoldenCase& c, const Arrays& in) {
         return Arrays{c.params.has("axes") ? flip(in[0], dims(c.params.ints("axes")))
                                            : flip(in[0])};
       }},
      {"roll",
       [](const GoldenCase& c, const Arrays& in) {
         const Dims shift = dims(c.params.ints("shift"));
         return Arrays{c.params.has("axes") ? roll(in[0], shift, dims(c.params.ints("axes")))
                                            : roll(in[0], shift)};
       }},
      {"concatenate",
       [](const GoldenCase& c, const Arrays& in) {
         return Arrays{concatenate(in, static_cast<int>(c.params.integer("axis")))};
       }},
      {"stack",
       [](const GoldenCase& c, const Arrays& in) {
         return Arrays{stack(in, static_cast<int>(c.params.integer("axis")))};
       }},
      {"split",
       [](const GoldenCase& c, const Arrays& in) {
         const int axis = static_cast<int>(c.params.integer("axis"));
         if (c.params.has("sections"))
           return split(in[0], static_cast<int>(c.params.integer("sections")), axis);
         return split(in[0], dims(c.params.ints("indices")), axis);
       }},
      {"unstack",
       [](const GoldenCase& c, const Arrays& in) {
         return unstack(in[0], static_cast<int>(c.params.integer("axis")));
       }},
      {"pad",
       [](const GoldenCase& c, const Arrays& in) {
         std::vector<std::pair<std::int64_t, std::int64_t>> widths;
         for (const auto& w : c.params.int_lists("widths")) widths.emplace_back(w.at(0), w.at(1));
         return Arrays{pad(in[0], widths, c.params.integer("value"))};
       }},
      {"slice",
       [](const GoldenCase& c, const Arrays& in) {
         const Dims start = dims(c.params.ints("start")), limit = dims(c.params.ints("limit"));
         return Arrays{c.params.has("strides")
                           ? slice(in[0], start, limit, dims(c.params.ints("strides")))
                           : slice(in[0], start, limit)};
       }},
      {"dynamic_slice",
       [](const GoldenCase& c, const Arrays& in) {
         return Arrays{
             dynamic_slice(in[0], {in.begin() + 1, in.end()}, Shape(c.params.ints("sizes")))};
       }},
      {"dynamic_update_slice",
       [](const GoldenCase&, const Arrays& in) {
         return Arrays{dynamic_update_slice(in[0], in[1], {in.begin() + 2, in.end()})};
       }},
      {"dynamic_index_in_dim",
       [](const GoldenCase& c, const Arrays& in) {
         return Arrays{dynamic_index_in_dim(
             in[0], in[1], static_cast<int>(c.params.integer("axis")), c.params.flag("keepdims"))};
       }},
      {"take",
       [](const GoldenCase& c, const Arrays& in) {
         return Arrays{c.params.has("axis")
                           ? take(in[0], in[1], static_cast<int>(c.params.integer("axis")))
                           : take(in[0], in[1])};
       }},
      {"gather",
       [](const GoldenCase& c, const Arrays& in) {
         const GatherDimensionNumbers numbers{narrow(c.params.ints("offset_dims")),
                                              narrow(c.params.ints("collapsed_slice_dims")),
                                              narrow(c.params.ints("start_index_map"))};
         return Arrays{gather(in[0], in[1], numbers, Shape(c.params.ints("slice_sizes")))};
       }},
      {"one_hot",
       [](const GoldenCase& c, const Arrays& in) {
         return Arrays{one_hot(in[0], static_cast<int>(c.params.integer("num_classes")),
                               dtype_named(c.params.text("dtype")))};
       }},
      {"where",
       [](const GoldenCase&, const Arrays& in) { return Arrays{where(in[0], in[1], in[2])}; }},
      {"select",
       [](const GoldenCase&, const Arrays& in) { return Arrays{select(in[0], in[1], in[2])}; }},
      {"astype",
       [](const GoldenCase& c, const Arrays& in) {
         return Arrays{astype(in[0], dtype_named(c.params.text("dtype")))};
       }},
      {"bitcast",
       [](const GoldenCase& c, const Arrays& in) {
         return Arrays{bitcast(in[0], dtype_named(c.params.text("dtype")))};
       }},
      {"index",
       [](const GoldenCase& c, const Arrays& in) {
         return Arrays{index(in[0], c.params.text("index"), {in.begin() + 1, in.end()})};
       }},
  };
  return ops;
}

Arrays run(const GoldenCase& c, const Arrays& in) {
  return shape_ops().at(c.params.text("op"))(c, in);
}

TEST(GoldenShape, PlainArrays) { expect_golden("ops_shape", run); }

// Eagerly an operand that several operations gather is gathered for each of them.
TEST(GoldenShape, SplitOverAMesh) {
  expect_golden("ops_shape", run, testing::split_over_mesh, test::Communication::no_more);
}

}  // namespace
}  // namespace shmap
