#include "core/io/npy_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "shmap/error.h"

namespace shmap::io {
namespace {

using ::testing::HasSubstr;

NpyHeader parse(const std::string& file, std::int64_t file_size = -1) {
  // A heap block of exactly the size, so that a sanitizer sees a read past the end.
  const std::vector<std::byte> copy(reinterpret_cast<const std::byte*>(file.data()),
                                    reinterpret_cast<const std::byte*>(file.data()) + file.size());
  return parse_npy_header(copy, file_size < 0 ? static_cast<std::int64_t>(file.size()) : file_size,
                          "f.npy");
}

// A whole file: the header text as it is, and `data` bytes after it.
std::string file_of(const std::string& text, std::size_t data, int version = 1) {
  std::string s("\x93NUMPY", 6);
  s += static_cast<char>(version);
  s += '\0';
  for (int i = 0; i < (version == 1 ? 2 : 4); ++i)
    s += static_cast<char>(text.size() >> (8 * i) & 0xff);
  return s + text + std::string(data, '\1');
}

std::string dict(const std::string& descr, const std::string& shape,
                 const std::string& order = "False") {
  return "{'descr': " + descr + ", 'fortran_order': " + order + ", 'shape': " + shape + ", }";
}

std::string error_of(const std::string& file, std::int64_t file_size = -1) {
  try {
    parse(file, file_size);
  } catch (const ValueError& e) {
    EXPECT_EQ(std::string(e.what()).rfind("f.npy: ", 0), 0u) << e.what();
    return e.what();
  }
  return "accepted";
}

TEST(NpyFormat, AcceptsWhatPythonAccepts) {
  const NpyHeader h = parse(file_of(dict("'<f4'", "(2, 3)"), 24));
  EXPECT_EQ(h.dtype, f32);
  EXPECT_FALSE(h.fortran_order);
  EXPECT_FALSE(h.big_endian);
  EXPECT_EQ(h.shape, Shape({2, 3}));
  EXPECT_EQ(h.data_offset, static_cast<std::int64_t>(10 + dict("'<f4'", "(2, 3)").size()));

  EXPECT_EQ(parse(file_of("{'shape':(3,),'fortran_order':True,'descr':'>i8'}\n", 24)).shape,
            Shape({3}));
  EXPECT_TRUE(parse(file_of(dict("'>i8'", "(3,)", "True"), 24)).big_endian);
  EXPECT_TRUE(parse(file_of(dict("'>i8'", "(3,)", "True"), 24)).fortran_order);
  EXPECT_EQ(
      parse(file_of(
                " {\n\"descr\" : \"<f4\", \t\"fortran_order\": False ,\r'shape': ( 2 , 3 , ) }  \n",
                24))
          .shape,
      Shape({2, 3}));
  EXPECT_EQ(parse(file_of(dict("'<f4'", "(2L, 3L)"), 24)).shape, Shape({2, 3}));  // Python 2
  EXPECT_EQ(parse(file_of(dict("'<f4'", "()"), 4)).shape, Shape());
  EXPECT_EQ(parse(file_of(dict("'<f4'", "(0, 9223372036854775807, 5)"), 0)).shape.size(), 3u);
  for (int version : {1, 2, 3})
    EXPECT_EQ(parse(file_of(dict("'<f4'", "(2, 3)"), 24, version)).shape, Shape({2, 3}));
}

TEST(NpyFormat, EveryDtype) {
  const struct {
    const char* descr;
    DType dtype;
    bool big;
  } cases[] = {
      {"|b1", bool_, false}, {"?", bool_, false},  {"|?", bool_, false}, {"|i1", i8, false},
      {">i1", i8, false},    {"<u1", u8, false},   {"<i2", i16, false},  {">i2", i16, true},
      {"=i4", i32, false},   {">i4", i32, true},   {"<i8", i64, false},  {">i8", i64, true},
      {"<u2", u16, false},   {">u2", u16, true},   {"<u4", u32, false},  {">u4", u32, true},
      {"<u8", u64, false},   {">u8", u64, true},   {"<f2", f16, false},  {">f2", f16, true},
      {"<f4", f32, false},   {">f4", f32, true},   {"f8", f64, false},   {">f8", f64, true},
      {"<V2", bf16, false},  {"|V2", bf16, false}, {">V2", bf16, true},  {"bfloat16", bf16, false}};
  for (const auto& c : cases) {
    const NpyHeader h = parse(file_of(dict(std::string("'") + c.descr + "'", "(2,)"),
                                      static_cast<std::size_t>(2 * itemsize(c.dtype))));
    EXPECT_EQ(h.dtype, c.dtype) << c.descr;
    EXPECT_EQ(h.big_endian, c.big) << c.descr;
  }
}

TEST(NpyFormat, RefusesOtherDtypesAndSaysWhy) {
  const auto of = [](const std::string& descr) {
    return error_of(file_of(dict(descr, "(2,)"), 16));
  };
  EXPECT_THAT(of("'|O'"), HasSubstr("pickled Python objects"));
  EXPECT_THAT(of("[('a', '<f4'), ('b', '<i4')]"), HasSubstr("structured dtype"));
  EXPECT_THAT(of("('<f4', (2,))"), HasSubstr("structured dtype"));
  EXPECT_THAT(of("'<c8'"), HasSubstr("complex"));
  EXPECT_THAT(of("'<U3'"), HasSubstr("strings"));
  EXPECT_THAT(of("'|S3'"), HasSubstr("strings"));
  EXPECT_THAT(of("'<M8[ns]'"), HasSubstr("dates"));
  EXPECT_THAT(of("'|V8'"), HasSubstr("raw bytes"));
  EXPECT_THAT(of("'<f16'"), HasSubstr("wider than 64 bits"));
  EXPECT_THAT(of("'<i3'"), HasSubstr("is not a dtype"));
  EXPECT_THAT(of("''"), HasSubstr("is not a dtype"));
  EXPECT_THAT(of("'<'"), HasSubstr("is not a dtype"));
  EXPECT_THAT(of("'<<f4'"), HasSubstr("is not a dtype"));
  EXPECT_THAT(of("'<f4 '"), HasSubstr("float"));
  EXPECT_THAT(of("'<f\\x34'"), HasSubstr("byte that no name has"));
  EXPECT_THAT(of("4"), HasSubstr("dtype code"));
}

TEST(NpyFormat, RefusesMalformedHeaders) {
  const auto of = [](const std::string& text) { return error_of(file_of(text, 24)); };
  EXPECT_THAT(of(""), HasSubstr("wanted a dict"));
  EXPECT_THAT(of("{}"), HasSubstr("'descr' is missing"));
  EXPECT_THAT(of("{"), HasSubstr("a key in quotes"));
  EXPECT_THAT(of("{'descr': '<f4', 'shape': (2, 3)}"), HasSubstr("'fortran_order' is missing"));
  EXPECT_THAT(of("{'descr': '<f4', 'fortran_order': False}"), HasSubstr("'shape' is missing"));
  EXPECT_THAT(of("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), 'descr': '<f4'}"),
              HasSubstr("'descr' is given twice"));
  EXPECT_THAT(of("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), 'x': 1}"),
              HasSubstr("key 'x' is unknown"));
  EXPECT_THAT(of("{'descr': '<f4', 'fortran_order': 0, 'shape': (2, 3)}"),
              HasSubstr("True or False"));
  EXPECT_THAT(of("{'descr': '<f4' 'fortran_order': False, 'shape': (2, 3)}"), HasSubstr("','"));
  EXPECT_THAT(of("{'descr' '<f4'}"), HasSubstr("':' after a key"));
  EXPECT_THAT(of("{'descr': '<f4"), HasSubstr("has no end"));
  EXPECT_THAT(of(dict("'<f4'", "(2, 3)") + "x"), HasSubstr("more text after the dict"));
  EXPECT_THAT(of(dict("'<f4'", "(2, 3)") + std::string(1, '\0')), HasSubstr("more text"));
  EXPECT_THAT(of(dict("'<f4'", "[2, 3]")), HasSubstr("a tuple for 'shape'"));
  EXPECT_THAT(of(dict("'<f4'", "(6)")), HasSubstr("wanted (n,)"));
  EXPECT_THAT(of(dict("'<f4'", "(2, -3)")), HasSubstr("negative"));
  EXPECT_THAT(of(dict("'<f4'", "(2, 3")), HasSubstr("extent"));
  EXPECT_THAT(of(dict("'<f4'", "(2 3)")), HasSubstr("',' or ')'"));
  EXPECT_THAT(of(dict("'<f4'", "(,)")), HasSubstr("wanted an extent"));
  EXPECT_THAT(of(dict("'<f4'", "(2, 03)")), HasSubstr("starts with 0"));
  EXPECT_THAT(of(dict("'<f4'", "(2, 3.0)")), HasSubstr("','"));
  EXPECT_THAT(of(dict("'<f4'", "(9223372036854775808,)")), HasSubstr("passes 2^63 - 1"));
  EXPECT_THAT(of(dict("'<f4'", "(99999999999999999999999999,)")), HasSubstr("passes 2^63 - 1"));
  EXPECT_THAT(of(dict("'<f4'", "(4294967296, 4294967296)")), HasSubstr("2^63 - 1"));
  EXPECT_THAT(of(dict("'<f4'", "(4611686018427387904,)")), HasSubstr("2^63 - 1"));
  EXPECT_THAT(of(dict("'<f4'", "(1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1)")), HasSubstr("16 dims"));
  // Text of the file that a message quotes is printable and short.
  const std::string binary = of("{'descr': '<f4', \x01\xff" + std::string(500, 'a'));
  EXPECT_THAT(binary, HasSubstr("\\x01\\xff"));
  EXPECT_LT(binary.size(), 300u);
}

TEST(NpyFormat, RefusesSizesThatDiffer) {
  const std::string good = file_of(dict("'<f4'", "(2, 3)"), 24);
  EXPECT_EQ(error_of(good), "accepted");
  EXPECT_THAT(error_of(good + "x"), HasSubstr("1 bytes follow the 24"));
  EXPECT_THAT(error_of(good.substr(0, good.size() - 1)), HasSubstr("truncated"));
  // Every prefix of a file is an error, and none reads past its end.
  for (std::size_t n = 0; n < good.size(); ++n) EXPECT_NE(error_of(good.substr(0, n)), "accepted");
  EXPECT_THAT(error_of(""), HasSubstr("no .npy file"));
  EXPECT_THAT(error_of("\x89PNG\r\n\x1a\n"), HasSubstr("no .npy file"));
  EXPECT_THAT(error_of("PK\3\4"), HasSubstr("no .npy file"));  // .npz
  EXPECT_THAT(error_of(std::string("\x93NUMPY\x04\x00\x10\x00", 10)), HasSubstr("version 4.0"));
  EXPECT_THAT(error_of(std::string("\x93NUMPY\x01\x01\x10\x00", 10)), HasSubstr("version 1.1"));
  // Lengths that lie.
  EXPECT_THAT(error_of(std::string("\x93NUMPY\x01\x00\xff\xff{}", 12)), HasSubstr("truncated"));
  EXPECT_THAT(error_of(std::string("\x93NUMPY\x02\x00\xff\xff\xff\xff{}", 14)),
              HasSubstr("the limit is 65535"));
  EXPECT_THAT(error_of(good.substr(0, 40), static_cast<std::int64_t>(good.size())),
              HasSubstr("the first 40 bytes were given"));
  std::string shorter = good;
  shorter[8] = static_cast<char>(shorter[8] - 1);  // the dict's last bracket becomes data
  EXPECT_NE(error_of(shorter), "accepted");
}

TEST(NpyFormat, WrittenHeadersReadBack) {
  for (DType t : {bool_, i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32, f64}) {
    for (const Shape& shape : {Shape{}, Shape{0}, Shape{7}, Shape{2, 3}, Shape{1, 2, 3, 4, 5}}) {
      for (bool fortran : {false, true}) {
        const std::string header = make_npy_header(t, shape, fortran);
        EXPECT_EQ(header.size() % 64, 0u);
        const NpyHeader h = parse(
            header + std::string(static_cast<std::size_t>(checked_bytes(shape, itemsize(t))), 'x'));
        EXPECT_EQ(h.dtype, t);
        EXPECT_EQ(h.shape, shape);
        EXPECT_EQ(h.fortran_order, fortran);
        EXPECT_FALSE(h.big_endian);
        EXPECT_EQ(h.data_offset, static_cast<std::int64_t>(header.size()));
      }
    }
  }
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  const Shape longest{kMax, kMax, kMax, kMax, kMax, kMax, kMax, kMax,
                      kMax, kMax, kMax, kMax, kMax, kMax, kMax, 0};
  EXPECT_EQ(parse(make_npy_header(f32, longest)).shape, longest);
  EXPECT_THROW(make_npy_header(prng_key, {2}), TypeError);
}

}  // namespace
}  // namespace shmap::io
