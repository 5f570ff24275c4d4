// files_bench [--mib N] [--rounds N] [--dir DIR] [--rows TEXT]: reads and writes safetensors files
// and checkpoints, in turns with plain read, and write + fsync, of the same bytes. Each row gives
// the median over rounds of the ratio ours / plain. Files are in the page cache when they are read,
// which is the hardest case: there is no disk to wait for. The bytes that were read are compared.
// --rows runs the rows whose names contain the text.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "shmap/shmap.h"

namespace {

using namespace shmap;

double seconds_of(const std::function<void()>& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

[[noreturn]] void fail(const char* what) {
  std::perror(what);
  std::exit(1);
}

// Memory in the state of an array's: its pages exist, and the allocator keeps them.
std::vector<char> buffer;

void plain_read(const std::string& path, std::size_t bytes) {
  const int fd = open(path.c_str(), O_RDONLY);
  if (fd < 0) fail("open");
  for (std::size_t at = 0; at < bytes;) {
    const ssize_t n = read(fd, buffer.data() + at, bytes - at);
    if (n <= 0) fail("read");
    at += static_cast<std::size_t>(n);
  }
  close(fd);
}

void plain_write(const std::string& path, std::size_t bytes) {
  const std::string draft = path + ".draft";
  const int fd = open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  if (fd < 0) fail("open");
  for (std::size_t at = 0; at < bytes;) {
    const ssize_t n = write(fd, buffer.data() + at, bytes - at);
    if (n <= 0) fail("write");
    at += static_cast<std::size_t>(n);
  }
  if (fsync(fd) != 0) fail("fsync");
  close(fd);
  if (rename(draft.c_str(), path.c_str()) != 0) fail("rename");
}

struct Options {
  std::int64_t mib = 256;
  int rounds = 15;
  std::string dir = std::filesystem::temp_directory_path().string();
  std::string rows;  // those whose names contain this
};

// The options, or nothing where one means nothing.
std::optional<Options> options_of(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string option = argv[i];
    if (i + 1 == argc) return std::nullopt;
    const std::string value = argv[i + 1];
    const std::int64_t whole = std::atoll(value.c_str());
    if (option == "--dir") {
      options.dir = value;
    } else if (option == "--rows") {
      options.rows = value;
    } else if (option == "--mib" && whole >= 1) {
      options.mib = whole;
    } else if (option == "--rounds" && whole >= 1 && whole <= 1'000'000) {
      options.rounds = static_cast<int>(whole);
    } else {
      return std::nullopt;
    }
  }
  return options;
}

// Random bits, so that no file system can compress them.
std::vector<std::uint32_t> random_bits(std::size_t n) {
  std::vector<std::uint32_t> bits(n);
  std::uint64_t state = 88172645463325252u;
  for (std::uint32_t& b : bits) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    b = static_cast<std::uint32_t>(state);
  }
  return bits;
}

class FilesBench {
 public:
  explicit FilesBench(const Options& options)
      : options_(options), dir_(options.dir + "/shmap_files_bench") {
    std::filesystem::create_directories(dir_);
    const std::vector<std::uint32_t> bits =
        random_bits(static_cast<std::size_t>(options.mib) << 18);
    whole_ = array(bits, {8, static_cast<std::int64_t>(bits.size() / 8)});
    split_ = device_put(whole_, sharding_).block_until_ready();
    buffer.resize(bytes());
    std::memcpy(buffer.data(), bits.data(), bytes());
  }
  ~FilesBench() { std::filesystem::remove_all(dir_); }

  int timed() const { return timed_; }  // the number of rows that were timed

  // Returns false if an array that was read is not the one that was written.
  bool run() {
    writes("safetensors, write", [&] { save_safetensors(safetensors_, {{"x", whole_}}); });
    writes("safetensors, write, sharded", [&] { save_safetensors(safetensors_, {{"x", split_}}); });
    writes("checkpoint, write", [&] { save_checkpoint(checkpoint_, whole_); });
    writes("checkpoint, write, sharded", [&] { save_checkpoint(checkpoint_, split_); });
    bool same = reads("safetensors, read", [&] { return load_safetensors(safetensors_).at("x"); });
    same &= reads("safetensors, read, sharded", [&] {
      return load_safetensors(safetensors_, {{"x", sharding_}}).at("x");
    });
    same &= reads("checkpoint, read", [&] { return load_checkpoint(checkpoint_, whole_); });
    same &=
        reads("checkpoint, read, sharded", [&] { return load_checkpoint(checkpoint_, split_); });
    return same;
  }

 private:
  std::size_t bytes() const { return static_cast<std::size_t>(whole_.nbytes()); }

  void writes(const char* name, const std::function<void()>& ours) {
    row(name, ours, [&] { plain_write(plain_, bytes()); });
  }

  // Returns whether the array that was read last is the one that was written.
  bool reads(const char* name, const std::function<Array()>& ours) {
    Array got;
    row(
        name,
        [&] {
          got = Array();  // its memory is used again
          got = ours();
        },
        [&] { plain_read(plain_, bytes()); });
    return all(got == whole_).item<bool>();
  }

  // Once without measuring, as later rows read what this one writes; then rounds, in turns.
  void row(const std::string& name, const std::function<void()>& ours,
           const std::function<void()>& plain) {
    ours();
    plain();
    if (name.find(options_.rows) == std::string::npos) return;
    ++timed_;
    std::vector<double> ratios, times;
    for (int r = 0; r < options_.rounds; ++r) {
      const bool ours_first = r % 2 == 0;
      const double first = seconds_of(ours_first ? ours : plain);
      const double second = seconds_of(ours_first ? plain : ours);
      times.push_back(ours_first ? first : second);
      ratios.push_back(times.back() / (ours_first ? second : first));
    }
    print(name, std::move(ratios), std::move(times));
  }

  void print(const std::string& name, std::vector<double> ratios, std::vector<double> times) const {
    std::sort(ratios.begin(), ratios.end());
    std::sort(times.begin(), times.end());
    const auto n = ratios.size();
    std::printf("%-26s %6.2f GB/s   time ours / plain: median %.3f, from %.3f to %.3f\n",
                name.c_str(), static_cast<double>(bytes()) / times[n / 2] / 1e9, ratios[n / 2],
                ratios[n / 4], ratios[n - 1 - n / 4]);
    std::fflush(stdout);
  }

  const Options options_;
  const std::string dir_;
  const std::string safetensors_ = dir_ + "/x.safetensors", plain_ = dir_ + "/plain",
                    checkpoint_ = dir_ + "/run";
  const NamedSharding sharding_{make_mesh({8}, {"i"}), P("i")};
  Array whole_, split_;
  int timed_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  const auto options = options_of(argc, argv);
  if (!options) {
    std::fprintf(stderr,
                 "files_bench [--mib N, from 1] [--rounds N, from 1] [--dir DIR] [--rows TEXT]\n");
    return 2;
  }
  FilesBench bench(*options);
  const bool same = bench.run();
  if (!same) std::printf("#wrong\n");
  if (bench.timed() == 0) std::fprintf(stderr, "no row has '%s'\n", options->rows.c_str());
  return same && bench.timed() > 0 ? 0 : 1;
}
