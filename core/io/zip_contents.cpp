#include "core/io/zip_contents.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/base/crc.h"
#include "shmap/error.h"

namespace shmap::io {

ZipContents::ZipContents(const ReadAt& read, const ZipMember& member, std::string name)
    : read_(read), member_(member), name_(std::move(name)) {
  if (!member_.deflated) return;
  const ReadNext next = [this](std::byte* dst, std::int64_t count) {
    read_(member_.offset + taken_, dst, count);
    taken_ += count;
  };
  inflater_ = std::make_unique<Inflater>(next, member_.packed, name_);
}

void ZipContents::read(std::byte* dst, std::int64_t count) {
  // Pieces are checksummed while they are in the cache.
  constexpr std::int64_t kPiece = std::int64_t{256} << 10;
  while (count > 0) {
    const std::int64_t n = std::min(count, kPiece);
    if (inflater_) {
      const std::int64_t got = inflater_->read(dst, n);
      if (got < n) {
        throw ValueError(name_ + ": it is damaged: it holds " + std::to_string(at_ + got) +
                         " bytes, and the archive declares " + std::to_string(member_.bytes));
      }
    } else {
      read_(member_.offset + at_, dst, n);
    }
    crc_ = crc32(dst, static_cast<std::size_t>(n), crc_);
    dst += n;
    at_ += n;
    count -= n;
  }
}

void ZipContents::skip(std::int64_t count) {
  std::vector<std::byte> piece(
      static_cast<std::size_t>(std::min<std::int64_t>(count, std::int64_t{256} << 10)));
  while (count > 0) {
    const std::int64_t n = std::min(count, static_cast<std::int64_t>(piece.size()));
    read(piece.data(), n);
    count -= n;
  }
}

void ZipContents::finish() {
  std::byte more;
  if (inflater_ && inflater_->read(&more, 1) > 0) {
    throw ValueError(name_ + ": it is damaged: it holds more than the " +
                     std::to_string(member_.bytes) + " bytes that the archive declares");
  }
  if (crc_ != member_.crc) throw ValueError(name_ + ": it is damaged: its CRC-32 does not match");
}

std::unique_ptr<std::byte[]> ZipContents::read_all() {
  const std::int64_t left = member_.bytes - at_;
  std::unique_ptr<std::byte[]> all(new std::byte[static_cast<std::size_t>(left)]);
  read(all.get(), left);
  finish();
  return all;
}

}  // namespace shmap::io
