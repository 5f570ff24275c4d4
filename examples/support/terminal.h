// Output of the examples for people: quantities with units that can be read, and a progress bar.
#pragma once
#include <shmap/device.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <string>
#include <thread>

namespace examples {

// Three digits: "0.512", "43.8", "2160".
inline std::string three_digits(double x) {
  const int decimals = x < 10 ? 2 : x < 100 ? 1 : 0;
  char text[32];
  std::snprintf(text, sizeof text, "%.*f", decimals, x);
  return text;
}
inline std::string time_text(double seconds) {
  if (seconds >= 1) return three_digits(seconds) + " s";
  if (seconds >= 1e-3) return three_digits(seconds * 1e3) + " ms";
  return three_digits(seconds * 1e6) + " us";
}
inline std::string bytes_text(double bytes) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  for (; bytes >= 1024 && unit < 4; ++unit) bytes /= 1024;
  return (bytes == std::floor(bytes) ? std::to_string(static_cast<long long>(bytes))
                                     : three_digits(bytes)) +
         " " + units[unit];
}

// Returns "", or a note about times that are measured on virtual devices.
inline std::string virtual_devices_note() {
  const std::size_t n = shmap::devices().size(), cores = std::thread::hardware_concurrency();
  if (shmap::devices()[0].kind() != shmap::DeviceKind::cpu || n < 2) return "";
  return "The " + std::to_string(n) + " devices are virtual and share " + std::to_string(cores) +
         (cores == 1 ? " core" : " cores") +
         ": they show what a program computes and communicates; more\nof them make nothing faster, "
         "since one device may use all cores already.\n";
}

// A bar on standard error, if that is a terminal: the progress, the time left, and a text of the
// caller. If standard output or error is not a terminal (a file, a pipe, mpirun's), also lines that
// the caller chooses on standard output.
class Progress {
 public:
  // `first` of the steps were taken before.
  Progress(std::string name, int steps, bool wanted = true, int first = 0)
      : name_(std::move(name)),
        steps_(steps),
        first_(first),
        shown_(wanted && isatty(STDERR_FILENO)),
        in_lines_(wanted && !(isatty(STDERR_FILENO) && isatty(STDOUT_FILENO))) {}
  ~Progress() {
    if (shown_) std::fprintf(stderr, "\r\033[K");  // clears the bar; others print the result
  }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  bool shown() const { return shown_; }
  // Shows the state after so many steps. Draws at most ten times a second.
  void at(int step, const std::string& text) {
    const auto now = std::chrono::steady_clock::now();
    if (!shown_ || step <= first_ || now - drawn_ < std::chrono::milliseconds(100)) return;
    drawn_ = now;
    constexpr int kWidth = 30;
    const int full = kWidth * step / steps_;
    std::fprintf(stderr, "\r%-14s [%s%s] step %d/%d  %s  %s left\033[K", name_.c_str(),
                 std::string(full, '=').c_str(), std::string(kWidth - full, ' ').c_str(), step,
                 steps_, text.c_str(), time_text(left_after(step)).c_str());
    std::fflush(stderr);
  }
  // Prints the same as a line if no terminal shows the bar. Flushes it at once, also into a pipe.
  void line(int step, const std::string& text) const {
    if (!in_lines_ || step <= first_) return;
    std::printf("%-14s step %d/%d  %s  %s left\n", name_.c_str(), step, steps_, text.c_str(),
                time_text(left_after(step)).c_str());
    std::fflush(stdout);
  }

 private:
  double left_after(int step) const {
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin_;
    return passed.count() / (step - first_) * (steps_ - step);
  }

  std::string name_;
  int steps_, first_;
  bool shown_, in_lines_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now(), drawn_ = {};
};

}  // namespace examples
