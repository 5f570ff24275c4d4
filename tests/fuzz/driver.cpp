// X_fuzz [--runs N] [--seed S] [FILE...]: N inputs (40,000 by default) made by mutating the
// target's seeds, the same for the same S; or the files given, one by one. An input that makes the
// target fail is left in crash.bin in the working directory.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

#include "tests/fuzz/fuzz.h"

namespace shmap::fuzz {
namespace {

// xorshift64*: quick, and the same everywhere.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}
  std::uint64_t next() {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return state_ * 0x2545f4914f6cdd1du;
  }
  std::size_t below(std::size_t n) {
    return n == 0 ? 0 : static_cast<std::size_t>((next() >> 16) % n);
  }

 private:
  std::uint64_t state_;
};

class Mutator {
 public:
  Mutator(std::vector<std::string> seeds, std::vector<std::string> words, std::uint64_t seed)
      : seeds_(std::move(seeds)), words_(std::move(words)), random_(seed) {}

  const std::string& next() {
    input_ = seeds_[random_.below(seeds_.size())];
    for (std::size_t n = 1 + random_.below(4); n > 0; --n) mutate();
    return input_;
  }

 private:
  void mutate() {
    const std::size_t size = input_.size();
    const std::size_t at = random_.below(size + 1);
    switch (random_.below(10)) {
      case 0:  // a bit
        if (at < size) input_[at] = static_cast<char>(input_[at] ^ (1 << random_.below(8)));
        break;
      case 1:  // a byte
        if (at < size) input_[at] = static_cast<char>(random_.next());
        break;
      case 2:  // shorter
        input_.resize(at);
        break;
      case 3:  // longer
        input_.append(random_.below(70), static_cast<char>(random_.next()));
        break;
      case 4:  // a piece is removed
        input_.erase(at, 1 + random_.below(8));
        break;
      case 5:  // a piece is repeated
        if (at < size) input_.insert(random_.below(size), input_.substr(at, 1 + random_.below(32)));
        break;
      case 6:  // a word is inserted
        input_.insert(at, words_[random_.below(words_.size())]);
        break;
      case 7: {  // a word is replaced
        const std::string& word = words_[random_.below(words_.size())];
        input_.replace(at, std::min(word.size(), size - at), word);
        break;
      }
      case 8: {  // the end of another input
        const std::string& other = seeds_[random_.below(seeds_.size())];
        input_.resize(at);
        input_ += other.substr(random_.below(other.size()));
        break;
      }
      default:  // a digit
        for (std::size_t i = at; i < size; ++i) {
          if (input_[i] < '0' || input_[i] > '9') continue;
          input_[i] = static_cast<char>('0' + random_.below(10));
          break;
        }
        break;
    }
  }

  std::vector<std::string> seeds_, words_;
  Random random_;
  std::string input_;
};

const std::string* current_input = nullptr;

// Makes only calls that a signal handler may make.
void keep_input(int signal) {
  if (current_input != nullptr) {
    const int fd = open("crash.bin", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd >= 0) {
      const ssize_t written = write(fd, current_input->data(), current_input->size());
      static_cast<void>(written);  // nothing can be done about it here
      close(fd);
    }
  }
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void run(const std::string& input) {
  current_input = &input;
  // A block of exactly the input's size, so that a sanitizer sees a read past its end.
  std::uint8_t* block = new std::uint8_t[input.size()];
  std::memcpy(block, input.data(), input.size());
  LLVMFuzzerTestOneInput(block, input.size());
  delete[] block;
}

}  // namespace

}  // namespace shmap::fuzz

int main(int argc, char** argv) {
  using namespace shmap::fuzz;
  long long runs = 40000;
  std::uint64_t seed = 1;
  std::vector<std::string> files;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--runs" && i + 1 < argc)
      runs = std::atoll(argv[++i]);
    else if (arg == "--seed" && i + 1 < argc)
      seed = std::strtoull(argv[++i], nullptr, 10);
    else
      files.push_back(arg);
  }
  for (int s : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE}) std::signal(s, keep_input);
  if (!files.empty()) {
    for (const std::string& name : files) {
      std::ifstream in(name, std::ios::binary);
      const std::string bytes((std::istreambuf_iterator<char>(in)), {});
      std::printf("%s: %zu bytes\n", name.c_str(), bytes.size());
      run(bytes);
    }
    return 0;
  }
  for (const std::string& s : seeds()) run(s);
  Mutator mutator(seeds(), dictionary(), seed);
  const auto start = std::chrono::steady_clock::now();
  for (long long i = 0; i < runs; ++i) run(mutator.next());
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  std::printf("%lld runs, seed %llu, %.1f s, peak memory %.1f MiB\n", runs,
              static_cast<unsigned long long>(seed), seconds,
              static_cast<double>(usage.ru_maxrss) / 1024);
  return 0;
}
