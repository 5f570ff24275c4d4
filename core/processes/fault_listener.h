// Code that waits for other processes by other means than exchanges.
#pragma once
#include <string>

namespace shmap {

class FaultListener {
 public:
  // Ends the waits, because the job has failed. Called once, by the thread of Exchanges, which
  // holds no lock.
  virtual void job_failed(const std::string& text) noexcept = 0;

 protected:
  ~FaultListener() = default;

 private:
  friend class Exchanges;
  FaultListener* next_ = nullptr;
};

}  // namespace shmap
