// Trace files are JSON in every locale and for all names, or a warning says that they are
// incomplete.
#include "core/debug/trace_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <clocale>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "core/base/warning.h"
#include "shmap/extend.h"
#include "shmap/shmap.h"
#include "tests/support/temp_folder.h"

#if __has_include(<nlohmann/json.hpp>)
#define SHMAP_TEST_PARSES_JSON 1
#include <nlohmann/json.hpp>
#endif

namespace shmap {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr std::int64_t kBegin = 400857, kDuration = 1500;

TEST(TraceJson, Spans) {
  EXPECT_EQ(
      trace_span(1, 0, "add", kBegin, kDuration, R"("bytes":64)"),
      R"({"ph":"X","pid":1,"tid":0,"name":"add","ts":400.857,"dur":1.500,"args":{"bytes":64}})");
  EXPECT_EQ(trace_span(0, 0, "scope", -kBegin, 0),
            R"({"ph":"X","pid":0,"tid":0,"name":"scope","ts":-400.857,"dur":0.000})");
  EXPECT_EQ(trace_process_name(2, "CpuDevice(id=1)"),
            R"j({"ph":"M","pid":2,"name":"process_name","args":{"name":"CpuDevice(id=1)"}})j");
  EXPECT_EQ(trace_thread_name(2, 1, "communication"),
            R"({"ph":"M","pid":2,"tid":1,"name":"thread_name","args":{"name":"communication"}})");
  EXPECT_EQ(
      trace_flow(true, "0.7", "psum", 1, 1, kBegin),
      R"({"ph":"s","cat":"collective","id":"0.7","pid":1,"tid":1,"name":"psum","ts":400.857})");
  EXPECT_EQ(
      trace_flow(false, "0.7", "psum", 2, 1, kBegin),
      R"({"ph":"f","cat":"collective","id":"0.7","pid":2,"tid":1,"name":"psum","ts":400.857,"bp":"e"})");
  EXPECT_EQ(trace_counter(3, "memory in use", kBegin, 4096),
            R"({"ph":"C","pid":3,"name":"memory in use","ts":400.857,"args":{"bytes":4096}})");
}

TEST(TraceJson, AnyNameIsAString) {
  EXPECT_EQ(json_string("plain"), "\"plain\"");
  EXPECT_EQ(json_string("\"\\\n\x01\x7f"), R"("\"\\\u000a\u0001\u007f")");
  EXPECT_EQ(json_string(std::string("a\0b", 3)), R"("a\u0000b")");
  EXPECT_EQ(json_string("größer, 軸, 🜁"), "\"größer, 軸, 🜁\"");
  // Latin-1; cut off; a stray continuation; too long a form; a surrogate; beyond Unicode.
  EXPECT_EQ(json_string("gr\xf6\xdf"
                        "er"),
            R"("gr\\xf6\\xdfer")");
  EXPECT_EQ(json_string("\xe8\xbb"), R"("\\xe8\\xbb")");
  EXPECT_EQ(json_string("\x80"), R"("\\x80")");
  EXPECT_EQ(json_string("\xc0\xaf"), R"("\\xc0\\xaf")");
  EXPECT_EQ(json_string("\xed\xa0\x80"), R"("\\xed\\xa0\\x80")");
  EXPECT_EQ(json_string("\xf5\x80\x80\x80"), R"("\\xf5\\x80\\x80\\x80")");
#ifdef SHMAP_TEST_PARSES_JSON
  for (int first = 0; first < 256; ++first) {
    for (int second = 0; second < 256; ++second) {
      const std::string name = {static_cast<char>(first), static_cast<char>(second), 'x'};
      EXPECT_TRUE(nlohmann::json::accept(json_string(name))) << first << " " << second;
    }
  }
#endif
}

// A locale that writes 1,5 for 1.5; made where the machine has none. "" where that cannot be.
class CommaLocale {
 public:
  CommaLocale() {
    const std::string command =
        "localedef -i de_DE -f UTF-8 " + folder_ / "de_DE.UTF-8" + " >/dev/null 2>&1";
    if (std::system(command.c_str()) == 0) setenv("LOCPATH", folder_.path().c_str(), 1);
    const char* set = std::setlocale(LC_ALL, "de_DE.UTF-8");
    stands_ = set != nullptr && *std::localeconv()->decimal_point == ',';
  }
  ~CommaLocale() {
    std::setlocale(LC_ALL, "C");
    unsetenv("LOCPATH");
  }
  bool stands() const { return stands_; }

 private:
  test::TempFolder folder_{"comma_locale"};
  bool stands_ = false;
};

class TraceFile : public testing::Test {
 protected:
  std::string path() const { return folder_ / "trace.json"; }
  test::TempFolder folder_{"trace_json"};
};

void work() {
  const named_scope outer(
      "gr\xf6\xdf"
      "er \"quoted\"");
  const Mesh mesh = make_mesh({8}, "i");
  const auto f = shard_map([](Array x) { return psum(x * 2.f, "i"); }, mesh, {P("i")}, P());
  for (int k = 0; k < 3; ++k) f(arange(64) + 0.5f).block_until_ready();
}

TEST_F(TraceFile, IsJsonUnderALocaleWithADecimalComma) {
  const CommaLocale locale;
  EXPECT_EQ(trace_span(1, 0, "add", kBegin, kDuration),
            R"({"ph":"X","pid":1,"tid":0,"name":"add","ts":400.857,"dur":1.500})");
  // Other code that prints numbers for machines, or relies on the decimal point.
  EXPECT_THAT(to_string(make_jaxpr([](Array x) { return x * 1.5f; })(ShapedArray({2}, f32))),
              HasSubstr("1.5"));
  const ShapedArray type({2, 3, 1, 8}, f32);
  const ClosedJaxpr product = make_jaxpr([](Array q, Array k, Array v) {
    return shmap::attention(q, k, v, {.scale = 0.375});
  })(type, type, type);
  EXPECT_EQ(to_string(extend::parse_jaxpr(to_string(product))), to_string(product));
  if (!locale.stands()) GTEST_SKIP() << "there is no such locale here, and localedef makes none";
#ifdef SHMAP_TEST_PARSES_JSON
  profiler::Trace trace(path());
  work();
  trace.close();
  std::ifstream in(path());
  const nlohmann::json parsed = nlohmann::json::parse(in);
  std::size_t spans = 0;
  bool scope = false;
  for (const auto& event : parsed.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    ++spans;
    EXPECT_GE(event.at("dur").get<double>(), 0);
    EXPECT_TRUE(event.at("ts").is_number_float());
    scope = scope || event.at("name") == "gr\\xf6\\xdfer \"quoted\"";
  }
  EXPECT_GE(spans, 24u);
  EXPECT_TRUE(scope);
#else
  GTEST_SKIP() << "nlohmann_json is missing (nlohmann-json3-dev)";
#endif
}

std::string warnings;  // what warn() was given

TEST_F(TraceFile, ToAFullDiskIsNotLostSilently) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  warnings.clear();
  set_warning_handler([](std::string_view text) noexcept { warnings += text; });
  {
    profiler::Trace trace("/dev/full");
    work();
    try {
      trace.close();
      ADD_FAILURE() << "no error";
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), HasSubstr("\"/dev/full\" could not be written in full"));
      EXPECT_THAT(e.what(), HasSubstr("No space left"));
    }
  }
  EXPECT_EQ(warnings, "");  // it was said
  {
    profiler::Trace trace("/dev/full");
    work();
  }
  set_warning_handler(nullptr);
  EXPECT_THAT(warnings, HasSubstr("\"/dev/full\" could not be written in full"));
}

}  // namespace
}  // namespace shmap
