// The log of the errors of tasks.
#include "core/device/failure_log.h"

#include <gtest/gtest.h>

#include <exception>
#include <string>

#include "shmap/error.h"

namespace shmap {
namespace {

// Adds an error to a log with a note, and returns the text with which it is rethrown as an E.
template <class E, class Thrown>
std::string text_as(const Thrown& error) {
  FailureLog log(" (seed 7)");
  log.add(std::make_exception_ptr(error));
  try {
    log.rethrow_unreported();
  } catch (const E& e) {
    return e.what();
  }
  return "another class, or none";
}

TEST(FailureLog, AddsItsNoteAndKeepsTheClass) {
  EXPECT_EQ((text_as<ValueError>(ValueError("bad"))), "bad (seed 7)");
  EXPECT_EQ((text_as<OutOfMemory>(OutOfMemory("full"))), "full (seed 7)");
  EXPECT_EQ((text_as<Error>(Error("other"))), "other (seed 7)");
  struct Own : ValueError {  // of a user
    using ValueError::ValueError;
  };
  EXPECT_EQ((text_as<Own>(Own("mine"))), "mine");
  EXPECT_EQ((text_as<std::bad_alloc>(std::bad_alloc())), std::bad_alloc().what());
}

}  // namespace
}  // namespace shmap
