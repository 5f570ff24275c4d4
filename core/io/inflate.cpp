#include "core/io/inflate.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <span>
#include <utility>

#include "shmap/error.h"

namespace shmap::io {

static_assert(std::endian::native == std::endian::little, "bits are loaded eight bytes at once");

namespace {

constexpr int kMaxBits = 15;      // most bits of a code
constexpr int kFastBits = 10;     // codes of up to this many bits are found in one table look-up
constexpr int kEndOfBlock = 256;  // greater symbols are lengths of matches
constexpr std::int64_t kWindow = 32 << 10;
constexpr std::int64_t kInput = 64 << 10;
constexpr std::int64_t kLongestMatch = 258;

struct Range {
  std::uint16_t base;
  std::uint8_t extra;  // the number of extra bits, whose value is added to the base
};
constexpr std::array<Range, 29> kLengths = {
    {{3, 0},  {4, 0},  {5, 0},  {6, 0},   {7, 0},   {8, 0},   {9, 0},   {10, 0},  {11, 1}, {13, 1},
     {15, 1}, {17, 1}, {19, 2}, {23, 2},  {27, 2},  {31, 2},  {35, 3},  {43, 3},  {51, 3}, {59, 3},
     {67, 4}, {83, 4}, {99, 4}, {115, 4}, {131, 5}, {163, 5}, {195, 5}, {227, 5}, {258, 0}}};
constexpr std::array<Range, 30> kDistances = {
    {{1, 0},     {2, 0},     {3, 0},     {4, 0},      {5, 1},      {7, 1},
     {9, 2},     {13, 2},    {17, 3},    {25, 3},     {33, 4},     {49, 4},
     {65, 5},    {97, 5},    {129, 6},   {193, 6},    {257, 7},    {385, 7},
     {513, 8},   {769, 8},   {1025, 9},  {1537, 9},   {2049, 10},  {3073, 10},
     {4097, 11}, {6145, 11}, {8193, 12}, {12289, 12}, {16385, 13}, {24577, 13}}};
// The order in which a block lists the lengths of the codes for code lengths (RFC 1951).
constexpr std::array<std::uint8_t, 19> kOrder = {16, 17, 18, 0, 8,  7, 9,  6, 10, 5,
                                                 11, 4,  12, 3, 13, 2, 14, 1, 15};

// A prefix code, made from the lengths of the symbols' codes.
class PrefixCode {
 public:
  enum class Fit { complete, one_symbol, none };

  // Builds the code. Returns whether every sequence of bits is a sequence of codes (a complete
  // code). `one_symbol`: there is at most one symbol, with a code of one bit.
  Fit make(std::span<const std::uint8_t> lengths) {
    count_.fill(0);
    for (const std::uint8_t n : lengths) ++count_[n];
    const int used = static_cast<int>(lengths.size()) - count_[0];
    count_[0] = 0;
    int left = 1;
    for (int n = 1; n <= kMaxBits; ++n) {
      left = 2 * left - count_[static_cast<std::size_t>(n)];
      if (left < 0) return Fit::none;
    }
    // Sorts the symbols by their codes, and enters short codes in the table, indexed by the code's
    // bits in stream order (first bit lowest).
    std::array<std::uint16_t, kMaxBits + 2> at{}, code{};
    for (std::size_t n = 1; n <= kMaxBits; ++n) {
      at[n + 1] = static_cast<std::uint16_t>(at[n] + count_[n]);
      code[n + 1] = static_cast<std::uint16_t>((code[n] + count_[n]) << 1);
    }
    fast_.fill(0);
    for (std::size_t symbol = 0; symbol < lengths.size(); ++symbol) {
      const std::size_t n = lengths[symbol];
      if (n == 0) continue;
      symbols_[at[n]++] = static_cast<std::uint16_t>(symbol);
      const unsigned bits = code[n]++;
      if (n > kFastBits) continue;
      unsigned reversed = 0;
      for (std::size_t k = 0; k < n; ++k) reversed |= (bits >> k & 1) << (n - 1 - k);
      for (unsigned i = reversed; i < 1u << kFastBits; i += 1u << n)
        fast_[i] = static_cast<std::uint16_t>(symbol << 4 | n);
    }
    if (left == 0) return Fit::complete;
    return used == 0 || (used == 1 && count_[1] == 1) ? Fit::one_symbol : Fit::none;
  }

  // Returns the symbol whose code begins `bits`, and the code's length; {0, 0} if there is none.
  std::pair<int, int> find(std::uint64_t bits) const {
    const std::uint16_t hit = fast_[bits & ((1u << kFastBits) - 1)];
    if (hit != 0) return {hit >> 4, hit & 15};
    int code = 0, first = 0, index = 0;
    for (int n = 1; n <= kMaxBits; ++n, bits >>= 1) {
      code |= static_cast<int>(bits & 1);
      const int count = count_[static_cast<std::size_t>(n)];
      if (code - first < count)
        return {symbols_[static_cast<std::size_t>(index + code - first)], n};
      index += count;
      first = (first + count) << 1;
      code <<= 1;
    }
    return {0, 0};
  }

 private:
  std::array<std::uint16_t, kMaxBits + 1> count_{};  // codes of each length
  std::array<std::uint16_t, 288> symbols_{};
  std::array<std::uint16_t, 1u << kFastBits> fast_{};  // symbol << 4 | length; 0: a longer code
};

}  // namespace

struct Inflater::Impl {
  Impl(ReadNext next, std::int64_t packed, std::string name)
      : next_(std::move(next)), left_(packed), name_(std::move(name)) {}

  std::int64_t read(std::byte* dst, std::int64_t count) {
    std::int64_t done = 0;
    while (done < count) {
      if (given_ == end_ && !fill()) break;
      const std::int64_t n = std::min(count - done, end_ - given_);
      std::memcpy(dst + done, out_.data() + given_, static_cast<std::size_t>(n));
      done += n;
      given_ += n;
    }
    return done;
  }

 private:
  enum class State { header, stored, coded, ended };

  [[noreturn]] void fail(const char* why) const {
    throw ValueError(name_ + ": it is damaged: its deflated bytes " + why);
  }

  // ---- bits, the lowest first

  // Loads at least 56 bits, or all that are left. Missing bits are zeros; drop() throws if they are
  // used.
  void refill() {
    if (in_end_ - in_at_ >= 8) {
      std::uint64_t more;
      std::memcpy(&more, in_.data() + in_at_, sizeof more);
      bits_ |= more << bit_count_;
      in_at_ += (63 - bit_count_) >> 3;
      bit_count_ |= 56;
      return;
    }
    while (bit_count_ < 56) {
      if (in_at_ == in_end_) {
        if (left_ == 0) return;
        in_end_ = std::min(left_, kInput);
        in_at_ = 0;
        next_(in_.data(), in_end_);
        left_ -= in_end_;
      }
      bits_ |= static_cast<std::uint64_t>(in_[static_cast<std::size_t>(in_at_++)]) << bit_count_;
      bit_count_ += 8;
    }
  }
  void drop(int n) {
    if (n > bit_count_) fail("end early");
    bits_ >>= n;
    bit_count_ -= n;
  }
  int take(int n) {
    const auto value = static_cast<int>(bits_ & ((std::uint64_t{1} << n) - 1));
    drop(n);
    return value;
  }
  int symbol(const PrefixCode& code) {
    const auto [value, bits] = code.find(bits_);
    if (bits == 0) fail("have an invalid code");
    drop(bits);
    return value;
  }

  // ---- blocks

  // Decodes more bytes after the window; returns false at the end of the data.
  bool fill() {
    if (end_ > kWindow) {
      std::memmove(out_.data(), out_.data() + end_ - kWindow, static_cast<std::size_t>(kWindow));
      end_ = kWindow;
    }
    given_ = end_;
    const auto room = [&] { return static_cast<std::int64_t>(out_.size()) - end_; };
    while (state_ != State::ended && room() >= kLongestMatch) {
      if (state_ == State::header)
        begin_block();
      else if (state_ == State::stored)
        copy_stored(room());
      else
        decode();
    }
    return end_ > given_;
  }

  void begin_block() {
    refill();
    if (last_) {
      if (left_ != 0 || in_at_ != in_end_ || bit_count_ >= 8) fail("go on after their end");
      state_ = State::ended;
      return;
    }
    last_ = take(1) != 0;
    switch (take(2)) {
      case 0:
        begin_stored();
        break;
      case 1:
        use_fixed_codes();
        state_ = State::coded;
        break;
      case 2:
        read_codes();
        state_ = State::coded;
        break;
      default:
        fail("have a block of no kind");
    }
  }

  void begin_stored() {
    drop(bit_count_ & 7);
    refill();
    const int count = take(16), inverse = take(16);
    if ((count ^ inverse) != 0xffff) fail("have a stored block of two lengths");
    stored_ = count;
    state_ = stored_ > 0 ? State::stored : State::header;
  }
  void copy_stored(std::int64_t room) {
    std::int64_t n = std::min<std::int64_t>(room, stored_);
    stored_ -= n;
    for (; n > 0; --n) {
      refill();
      out_[static_cast<std::size_t>(end_++)] = static_cast<std::byte>(take(8));
    }
    if (stored_ == 0) state_ = State::header;
  }

  void use_fixed_codes() {
    std::array<std::uint8_t, 288> lengths;
    for (std::size_t s = 0; s < lengths.size(); ++s)
      lengths[s] = s < 144 ? 8 : s < 256 ? 9 : s < 280 ? 7 : 8;
    literals_.make(lengths);
    std::fill(lengths.begin(), lengths.begin() + 32, std::uint8_t{5});
    distances_.make(std::span(lengths).first(32));
  }

  void read_codes() {
    const auto literals = static_cast<std::size_t>(take(5) + 257);
    const auto distances = static_cast<std::size_t>(take(5) + 1);
    const auto count = static_cast<std::size_t>(take(4) + 4);
    if (literals > 286 || distances > 30) fail("have a block of too many codes");
    std::array<std::uint8_t, 19> of_lengths{};
    for (std::size_t i = 0; i < count; ++i) {
      refill();
      of_lengths[kOrder[i]] = static_cast<std::uint8_t>(take(3));
    }
    if (lengths_.make(of_lengths) != PrefixCode::Fit::complete)
      fail("have a block whose code lengths have no code");
    std::array<std::uint8_t, 286 + 30> all{};
    for (std::size_t at = 0; at < literals + distances;) {
      refill();
      const int value = symbol(lengths_);
      if (value < 16) {
        all[at++] = static_cast<std::uint8_t>(value);
        continue;
      }
      if (value == 16 && at == 0) fail("repeat a code length before the first");
      const std::uint8_t again = value == 16 ? all[at - 1] : std::uint8_t{0};
      const auto times = static_cast<std::size_t>(value == 16   ? 3 + take(2)
                                                  : value == 17 ? 3 + take(3)
                                                                : 11 + take(7));
      if (times > literals + distances - at) fail("have a block of too many codes");
      for (std::size_t k = 0; k < times; ++k) all[at++] = again;
    }
    if (all[kEndOfBlock] == 0) fail("have a block without an end");
    if (literals_.make(std::span(all).first(literals)) == PrefixCode::Fit::none ||
        distances_.make(std::span(all).subspan(literals, distances)) == PrefixCode::Fit::none)
      fail("have a block whose lengths make no code");
  }

  void decode() {
    const auto most = static_cast<std::int64_t>(out_.size()) - kLongestMatch;
    std::byte* const out = out_.data();
    while (end_ <= most) {
      refill();  // a match takes at most 48 bits
      const int value = symbol(literals_);
      if (value < kEndOfBlock) {
        out[end_++] = static_cast<std::byte>(value);
        continue;
      }
      if (value == kEndOfBlock) {
        state_ = State::header;
        return;
      }
      const auto length_code = static_cast<std::size_t>(value - kEndOfBlock - 1);
      if (length_code >= kLengths.size()) fail("have an invalid match length");
      const std::int64_t length = kLengths[length_code].base + take(kLengths[length_code].extra);
      const auto distance_code = static_cast<std::size_t>(symbol(distances_));
      if (distance_code >= kDistances.size()) fail("have an invalid match distance");
      const std::int64_t distance =
          kDistances[distance_code].base + take(kDistances[distance_code].extra);
      if (distance > end_) fail("have a match before their beginning");
      std::byte* const to = out + end_;
      if (distance >= length) {
        std::memcpy(to, to - distance, static_cast<std::size_t>(length));
      } else if (distance == 1) {
        std::memset(to, static_cast<int>(to[-1]), static_cast<std::size_t>(length));
      } else {
        for (std::int64_t k = 0; k < length; ++k) to[k] = to[k - distance];
      }
      end_ += length;
    }
  }

  ReadNext next_;
  std::int64_t left_;  // deflated bytes that have not been read into in_
  std::string name_;

  std::uint64_t bits_ = 0;
  int bit_count_ = 0;
  std::int64_t in_at_ = 0, in_end_ = 0;
  std::array<std::byte, static_cast<std::size_t>(kInput)> in_;

  State state_ = State::header;
  bool last_ = false;  // this block is the last one
  std::int64_t stored_ = 0;
  PrefixCode lengths_, literals_, distances_;

  // The window, followed by new bytes, of which those from given_ to end_ have not been returned
  // yet.
  std::int64_t given_ = 0, end_ = 0;
  std::array<std::byte, static_cast<std::size_t>(2 * kWindow)> out_;
};

Inflater::Inflater(ReadNext next, std::int64_t packed, std::string name)
    : impl_(std::make_unique<Impl>(std::move(next), packed, std::move(name))) {}
Inflater::Inflater(Inflater&&) noexcept = default;
Inflater& Inflater::operator=(Inflater&&) noexcept = default;
Inflater::~Inflater() = default;

std::int64_t Inflater::read(std::byte* dst, std::int64_t count) { return impl_->read(dst, count); }

}  // namespace shmap::io
