// NoUserCode: marks parts of a thread's work in which the library calls no function of users that
// was not meant to be called there, such as the release function of memory that a user handed over:
// where an array's last reference goes is unknown, and such a function may use arrays itself. It
// would wait for a lock that its own thread holds, or its operations would become a part of the
// program that is being traced.
#pragma once

namespace shmap {

class NoUserCode {
 public:
  NoUserCode() noexcept { begin(); }
  ~NoUserCode() { end(); }
  NoUserCode(const NoUserCode&) = delete;
  NoUserCode& operator=(const NoUserCode&) = delete;

  // Each begin() is followed by an end() on the same thread.
  static void begin() noexcept;
  static void end() noexcept;
  // Whether this thread is in such a part.
  static bool here() noexcept;
};

}  // namespace shmap
