#include "core/io/checkpoint_file.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "core/base/crc.h"
#include "core/base/signals_blocked.h"
#include "core/io/file_box.h"
#include "core/io/json_reader.h"
#include "shmap/error.h"

namespace shmap::io {

namespace {

// Shorter chunks are read directly, because the caller may use them while they are in the caches.
constexpr std::int64_t kWorthStaging = kCheckpointPiece;

CheckpointIndex read_index(const InputFile& file) {
  const auto damaged = [&](const std::string& why) {
    throw ValueError(file.name() + ": it is damaged or no checkpoint: " + why);
  };
  constexpr std::int64_t kFront = 16;
  unsigned char front[kFront] = {};
  if (file.size() < kFront) damaged("it has " + std::to_string(file.size()) + " bytes");
  file.read(0, reinterpret_cast<std::byte*>(front), kFront);
  if (std::memcmp(front, kCheckpointMagic.data(), kCheckpointMagic.size()) != 0)
    damaged("it does not begin with '" + std::string(kCheckpointMagic) + "'");
  std::uint64_t length = 0;
  for (int k = 16; k-- > 8;) length = length << 8 | front[k];
  if (length > static_cast<std::uint64_t>(kCheckpointMaxIndex) ||
      static_cast<std::int64_t>(length) > file.size() - kFront - 4)
    damaged("an index of " + std::to_string(length) + " bytes in a file of " +
            std::to_string(file.size()));
  std::string text(static_cast<std::size_t>(length) + 4, '\0');
  file.read(kFront, reinterpret_cast<std::byte*>(text.data()),
            static_cast<std::int64_t>(text.size()));
  std::uint32_t crc = 0;
  for (std::size_t k = 4; k-- > 0;)
    crc = crc << 8 | static_cast<unsigned char>(text[static_cast<std::size_t>(length) + k]);
  text.resize(static_cast<std::size_t>(length));
  if (crc32c(text.data(), text.size()) != crc) damaged("the CRC-32C of its index does not match");
  return parse_checkpoint_index(text, file.size(), file.name());
}

// A thread's buffer for pieces.
struct alignas(64) Staging {
  std::byte piece[kCheckpointPiece];
};

// Calls f(0, s) … f(n - 1, s) on a few threads, each with a Staging s of its own. Rethrows the
// first error when all threads have stopped.
template <class F>
void on_threads(std::size_t n, const F& f) {
  if (n == 0) return;
  constexpr std::size_t kMostThreads = 4, kWorthAThread = 8;
  const std::size_t wanted =
      std::min({kMostThreads, n / kWorthAThread, std::size_t{std::thread::hardware_concurrency()}});
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::exception_ptr error;
  const auto work = [&]() noexcept {
    try {
      const auto staging = std::make_unique_for_overwrite<Staging>();
      for (std::size_t i; (i = next.fetch_add(1)) < n;) f(i, staging->piece);
    } catch (...) {
      next.store(n);
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  {
    const SignalsBlocked blocked;
    try {
      for (std::size_t t = 1; t < wanted; ++t) threads.emplace_back(work);
    } catch (const std::exception&) {
      // No more threads, or no memory for one: the threads that were started do all the work.
    }
  }
  work();
  for (std::thread& t : threads) t.join();
  if (error) std::rethrow_exception(error);
}

}  // namespace

CheckpointFile::CheckpointFile(std::string path)
    : file_("checkpoint", std::move(path)), index_(read_index(file_)) {}

std::int64_t CheckpointFile::chunk_bytes(const CheckpointLeaf& leaf, std::int64_t chunk) const {
  return std::min(index_.chunk, leaf.block_bytes() - chunk * index_.chunk);
}

// A piece is read into staging memory, which stays in the cache; its checksum is computed while it
// is copied to its destination. The copy uses streaming stores, which bypass the caches; a read
// directly into the destination would not. Together this costs no more than such a read, and the
// checksum is free.
void CheckpointFile::read_chunk(const CheckpointLeaf& leaf, std::int64_t block, std::int64_t chunk,
                                std::byte* dst, std::byte* staging) const {
  const std::int64_t at = leaf.offset + block * leaf.block_bytes() + chunk * index_.chunk;
  const std::int64_t bytes = chunk_bytes(leaf, chunk);
  const auto which = static_cast<std::size_t>(block * index_.chunks_of(leaf) + chunk);
  const bool stages =
      staging && bytes >= kWorthStaging && reinterpret_cast<std::uintptr_t>(dst) % 64 == 0;
  std::uint32_t crc = 0;
  for (std::int64_t done = 0; done < bytes;) {
    const std::int64_t n = std::min(bytes - done, kCheckpointPiece);
    const auto size = static_cast<std::size_t>(n);
    file_.read(at + done, stages ? staging : dst + done, n);
    crc = stages ? copy_crc32c(dst + done, staging, size, crc) : crc32c(dst + done, size, crc);
    done += n;
  }
  if (crc == leaf.crcs[which]) return;
  throw ValueError(name() + ": it is damaged: bytes " + std::to_string(at) + " to " +
                   std::to_string(at + bytes) + ", of leaf " + quoted_bytes(leaf.path) +
                   ": their CRC-32C does not match");
}

void CheckpointFile::read_chunks(std::span<const WholeChunk> chunks) const {
  on_threads(chunks.size(), [&](std::size_t i, std::byte* staging) {
    read_chunk(*chunks[i].leaf, chunks[i].block, chunks[i].chunk, chunks[i].dst, staging);
  });
}

void CheckpointFile::read_box(const CheckpointLeaf& leaf, std::span<const Slice> box,
                              std::byte* dst, std::vector<WholeChunk>* later) const {
  check_box(leaf.shape, box, "checkpoint read_box");
  const int item = itemsize(leaf.dtype), rank = leaf.shape.rank();
  const Shape block = leaf.block_shape();
  std::int64_t strides[kMaxRank];  // of dst, in bytes
  std::int64_t total = item;
  for (int d = rank; d-- > 0;) {
    strides[d] = total;
    total *= box[static_cast<std::size_t>(d)].stop - box[static_cast<std::size_t>(d)].start;
  }
  if (total == 0) return;

  std::vector<WholeChunk> whole;
  std::vector<std::byte> staging;
  // The blocks that intersect the box, in row-major order.
  Shape first, last, at;
  for (std::size_t d = 0; d < block.size(); ++d) {
    first.push_back(box[d].start / block[d]);
    last.push_back((box[d].stop - 1) / block[d]);
    at.push_back(first[d]);
  }
  for (;;) {
    std::int64_t number = 0;
    std::vector<Slice> part(block.size());  // of the block
    std::byte* to = dst;
    for (std::size_t d = 0; d < block.size(); ++d) {
      number = number * leaf.grid[d] + at[d];
      const std::int64_t origin = at[d] * block[d];
      part[d] = {std::max(box[d].start, origin) - origin,
                 std::min(box[d].stop, origin + block[d]) - origin};
      to += (part[d].start + origin - box[d].start) * strides[d];
    }
    // Runs that are contiguous in the file and in dst: the innermost dims that are whole in both,
    // and a range of one more dim.
    int run_dim = rank;
    std::int64_t run = item, block_stride = item;
    for (bool joins = true; run_dim > 0 && joins;) {
      const auto d = static_cast<std::size_t>(--run_dim);
      const std::int64_t n = part[d].stop - part[d].start;
      joins = n == block[d] && n == box[d].stop - box[d].start;
      run *= n;
      block_stride *= block[d];
    }
    std::int64_t loaded = -1;  // the number of the chunk in staging, or -1
    const auto copy = [&](std::int64_t from, std::byte* into) {
      for (std::int64_t left = run; left > 0;) {
        const std::int64_t chunk = from / index_.chunk, skip = from % index_.chunk;
        const std::int64_t has = chunk_bytes(leaf, chunk);
        const std::int64_t n = std::min(left, has - skip);
        if (skip == 0 && n == has) {
          whole.push_back({&leaf, number, chunk, into});
        } else {
          if (loaded != chunk) {
            staging.resize(static_cast<std::size_t>(index_.chunk));
            read_chunk(leaf, number, chunk, staging.data(), nullptr);
            loaded = chunk;
          }
          std::memcpy(into, staging.data() + skip, static_cast<std::size_t>(n));
        }
        from += n;
        into += n;
        left -= n;
      }
    };
    // The loop walks over the dims before run_dim; in the other dims the run begins at the part's
    // first element.
    std::int64_t corner = 0;
    for (std::size_t d = 0; d < block.size(); ++d) corner = corner * block[d] + part[d].start;
    corner *= item;
    std::int64_t walked[kMaxRank] = {};
    std::int64_t from_strides[kMaxRank];
    for (int d = run_dim - 1; d >= 0; --d) {
      from_strides[d] = block_stride;
      block_stride *= block[static_cast<std::size_t>(d)];
    }
    std::byte* into = to;
    for (;;) {
      copy(corner, into);
      int d = run_dim - 1;
      for (; d >= 0; --d) {
        const std::int64_t n =
            part[static_cast<std::size_t>(d)].stop - part[static_cast<std::size_t>(d)].start;
        corner += from_strides[d];
        into += strides[d];
        if (++walked[d] < n) break;
        corner -= n * from_strides[d];
        into -= n * strides[d];
        walked[d] = 0;
      }
      if (d < 0) break;
    }
    std::size_t d = block.size();
    while (d > 0 && at[d - 1] == last[d - 1]) {
      at[d - 1] = first[d - 1];
      --d;
    }
    if (d == 0) break;
    ++at[d - 1];
  }
  // Bools must be normalised to 0 or 1 after they are read, so that their chunks are read now.
  if (later && leaf.dtype != DType::bool_) {
    later->insert(later->end(), whole.begin(), whole.end());
    return;
  }
  read_chunks(whole);
  if (leaf.dtype == DType::bool_)
    for (std::int64_t i = 0; i < total; ++i) dst[i] = std::byte{dst[i] != std::byte{0}};
}

}  // namespace shmap::io
