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
#include <string>
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

std::string wanted_rows;

void row(const char* name, int rounds, std::size_t bytes, const std::function<void()>& ours,
         const std::function<void()>& plain) {
  ours();
  plain();
  if (std::string(name).find(wanted_rows) == std::string::npos) return;
  std::vector<double> ratios, times;
  for (int r = 0; r < rounds; ++r) {
    double a = 0, b = 0;
    if (r % 2 == 0) {
      a = seconds_of(ours);
      b = seconds_of(plain);
    } else {
      b = seconds_of(plain);
      a = seconds_of(ours);
    }
    ratios.push_back(a / b);
    times.push_back(a);
  }
  std::sort(ratios.begin(), ratios.end());
  std::sort(times.begin(), times.end());
  const auto n = ratios.size();
  std::printf("%-26s %6.2f GB/s   time ours / plain: median %.3f, from %.3f to %.3f\n", name,
              static_cast<double>(bytes) / times[n / 2] / 1e9, ratios[n / 2], ratios[n / 4],
              ratios[n - 1 - n / 4]);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  std::int64_t mib = 256;
  int rounds = 15;
  std::string dir = std::filesystem::temp_directory_path().string();
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string option = argv[i];
    if (option == "--mib") mib = std::atoll(argv[i + 1]);
    if (option == "--rounds") rounds = std::atoi(argv[i + 1]);
    if (option == "--dir") dir = argv[i + 1];
    if (option == "--rows") wanted_rows = argv[i + 1];
  }
  dir += "/shmap_files_bench";
  std::filesystem::create_directories(dir);
  const NamedSharding sharding(make_mesh({8}, {"i"}), P("i"));
  const std::int64_t n = mib << 18;
  // The bits are random, so that no file system can compress them.
  std::vector<std::uint32_t> bits(static_cast<std::size_t>(n));
  std::uint64_t state = 88172645463325252u;
  for (std::uint32_t& b : bits) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    b = static_cast<std::uint32_t>(state);
  }
  const Array x = array(bits, {8, n / 8});
  const Array split = device_put(x, sharding);
  split.block_until_ready();
  const auto bytes = static_cast<std::size_t>(x.nbytes());
  buffer.resize(bytes);
  std::memcpy(buffer.data(), bits.data(), bytes);
  const std::string st = dir + "/x.safetensors", plain = dir + "/plain", run = dir + "/run";

  row(
      "safetensors, write", rounds, bytes,
      [&] {
        save_safetensors(st, {{"x", x}});
      },
      [&] { plain_write(plain, bytes); });
  row(
      "safetensors, write, sharded", rounds, bytes,
      [&] {
        save_safetensors(st, {{"x", split}});
      },
      [&] { plain_write(plain, bytes); });
  row(
      "checkpoint, write", rounds, bytes, [&] { save_checkpoint(run, x); },
      [&] { plain_write(plain, bytes); });
  row(
      "checkpoint, write, sharded", rounds, bytes, [&] { save_checkpoint(run, split); },
      [&] { plain_write(plain, bytes); });
  Array got;
  row(
      "safetensors, read", rounds, bytes,
      [&] {
        got = Array();
        got = load_safetensors(st).at("x");
      },
      [&] { plain_read(plain, bytes); });
  bool same = all(got == x).item<bool>();
  row(
      "safetensors, read, sharded", rounds, bytes,
      [&] {
        got = Array();
        got = load_safetensors(st, {{"x", sharding}}).at("x");
      },
      [&] { plain_read(plain, bytes); });
  same = same && all(got == split).item<bool>();
  row(
      "checkpoint, read", rounds, bytes,
      [&] {
        got = Array();
        got = load_checkpoint(run, x);
      },
      [&] { plain_read(plain, bytes); });
  same = same && all(got == x).item<bool>();
  row(
      "checkpoint, read, sharded", rounds, bytes,
      [&] {
        got = Array();
        got = load_checkpoint(run, split);
      },
      [&] { plain_read(plain, bytes); });
  same = same && all(got == split).item<bool>();
  std::filesystem::remove_all(dir);
  if (!same) std::printf("#wrong\n");
  return same ? 0 : 1;
}
