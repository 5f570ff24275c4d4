// Assertions on the text of an error: it must contain every fragment.
#pragma once
#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

namespace shmap::test {

// Runs `f`, which must throw an E whose text holds each of `fragments`.
template <class E, class F>
void expect_error(F&& f, std::initializer_list<const char*> fragments) {
  try {
    f();
  } catch (const E& e) {
    const std::string text = e.what();
    for (const char* fragment : fragments)
      EXPECT_NE(text.find(fragment), std::string::npos)
          << "wanted: " << fragment << "\nin: " << text;
    return;
  } catch (const std::exception& e) {
    ADD_FAILURE() << "an error of another kind: " << e.what();
    return;
  }
  ADD_FAILURE() << "nothing was thrown";
}

}  // namespace shmap::test
