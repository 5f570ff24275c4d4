// The items that sorts order, and their sort by digits (radix sort), for the .cpp files of sorts.
//
// Included after targets-inl.h, once for each instruction set.
HWY_BEFORE_NAMESPACE();
namespace shmap::cpu::HWY_NAMESPACE {
namespace {

constexpr int kWidestDigit = 11;  // bits

// The key in 32 or 64 bits, so that dtypes share the code that sorts.
template <class T>
using WideKey = UnsignedOf<sizeof(T) <= 4 ? 4 : 8>;

// A key and the position of its element. Sorting compares both, so that no two items are equal and
// every sort is stable.
template <class Key>
struct Item {
  Item() = default;
  Item(Key k, std::uint32_t i) : key_(k), index_(i) {}
  Key key() const { return key_; }
  std::uint32_t index() const { return index_; }
  friend bool operator<(const Item& a, const Item& b) {
    return a.key_ != b.key_ ? a.key_ < b.key_ : a.index_ < b.index_;
  }

 private:
  Key key_;
  std::uint32_t index_;
};
// Key and index in one number, so that one comparison orders both.
template <>
struct Item<std::uint32_t> {
  Item() = default;
  Item(std::uint32_t k, std::uint32_t i) : both_(std::uint64_t{k} << 32 | i) {}
  std::uint32_t key() const { return static_cast<std::uint32_t>(both_ >> 32); }
  std::uint32_t index() const { return static_cast<std::uint32_t>(both_); }
  friend bool operator<(Item a, Item b) { return a.both_ < b.both_; }

 private:
  std::uint64_t both_;
};

// Sorts by kDigits digits of `width` bits of key - least, least significant digit first; items with
// equal keys stay in their order. Returns the array that has the result: `items` or `other`.
template <int kDigits, class Key>
Item<Key>* sort_by_digits(Item<Key>* items, Item<Key>* other, std::int64_t count, Key least,
                          int width, std::uint32_t* counts) {
  const std::uint64_t mask = (std::uint64_t{1} << width) - 1;
  const auto digit_of = [=](Item<Key> item, int d) {
    return static_cast<std::size_t>(
        static_cast<std::uint64_t>(static_cast<Key>(item.key() - least)) >> (width * d) & mask);
  };
  const std::size_t values = static_cast<std::size_t>(mask) + 1;
  std::fill(counts, counts + static_cast<std::size_t>(kDigits) * values, 0u);
  for (std::int64_t i = 0; i < count; ++i) {
    const Item<Key> item = items[i];
    for (int d = 0; d < kDigits; ++d)
      ++counts[static_cast<std::size_t>(d) * values + digit_of(item, d)];
  }
  for (int d = 0; d < kDigits; ++d) {
    std::uint32_t* const place = counts + static_cast<std::size_t>(d) * values;
    std::uint32_t sum = 0;
    for (std::size_t v = 0; v < values; ++v) sum += std::exchange(place[v], sum);
    for (std::int64_t i = 0; i < count; ++i) other[place[digit_of(items[i], d)]++] = items[i];
    std::swap(items, other);
  }
  return items;
}

// Sorts items that are in the order of their indices. Only the bits in which keys differ from the
// least key are looked at. Returns the array that has the result: `items` or `other`.
template <class Key>
Item<Key>* radix_sort(Item<Key>* items, Item<Key>* other, std::int64_t count,
                      std::uint32_t* counts) {
  if (count < 2) return items;
  Key least = items[0].key(), most = least;
  for (std::int64_t i = 1; i < count; ++i) {
    const Key key = items[i].key();
    least = key < least ? key : least;
    most = key > most ? key : most;
  }
  const int bits = std::bit_width(static_cast<std::uint64_t>(static_cast<Key>(most - least)));
  // Wide digits pay if there are many more items than values of a digit.
  const int widest = count >= (16 << 10) ? kWidestDigit : 8;
  const int digits = (bits + widest - 1) / widest;
  if (digits == 0) return items;
  const int width = (bits + digits - 1) / digits;
  switch (digits) {
    case 1:
      return sort_by_digits<1>(items, other, count, least, width, counts);
    case 2:
      return sort_by_digits<2>(items, other, count, least, width, counts);
    case 3:
      return sort_by_digits<3>(items, other, count, least, width, counts);
    case 4:
      return sort_by_digits<4>(items, other, count, least, width, counts);
    default:
      if constexpr (sizeof(Key) == 8) {
        switch (digits) {
          case 5:
            return sort_by_digits<5>(items, other, count, least, width, counts);
          case 6:
            return sort_by_digits<6>(items, other, count, least, width, counts);
          case 7:
            return sort_by_digits<7>(items, other, count, least, width, counts);
          default:
            return sort_by_digits<8>(items, other, count, least, width, counts);
        }
      }
      return items;  // unreachable: four digits of eight bits hold a key
  }
}

}  // namespace
}  // namespace shmap::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
