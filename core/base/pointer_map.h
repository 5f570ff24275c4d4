// PointerMap: a hash table by address, for passes over programs.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace shmap {

// Open addressing, no removal. T must be default-constructible and movable; adding a key moves
// values.
template <class T>
class PointerMap {
 public:
  PointerMap() = default;
  explicit PointerMap(std::size_t expected) {
    std::size_t n = 16;
    while (n < 2 * expected) n *= 2;
    grow(n);
  }

  bool empty() const { return size_ == 0; }
  // Null where the key is missing; valid until a key is added.
  const T* find(const void* key) const {
    return const_cast<PointerMap*>(this)->find(key);  // find does not change the map
  }
  T* find(const void* key) {
    if (size_ == 0) return nullptr;
    Slot& s = slot(key);
    return s.key ? &s.value : nullptr;
  }
  // The value of the key; adds the key if it is missing.
  T& operator[](const void* key) {
    if (2 * (size_ + 1) > capacity_) grow(capacity_ ? 2 * capacity_ : 16);
    Slot& s = slot(key);
    if (!s.key) {
      s.key = key;
      ++size_;
    }
    return s.value;
  }

 private:
  struct Slot {
    const void* key = nullptr;
    T value{};
  };

  Slot& slot(const void* key) {
    // Addresses are multiples of 16 and close together: the high bits of a product distribute them
    // well.
    std::size_t i = static_cast<std::size_t>(
        (reinterpret_cast<std::uintptr_t>(key) * std::uint64_t{0x9e3779b97f4a7c15}) >> shift_);
    while (slots_[i].key && slots_[i].key != key) i = (i + 1) & (capacity_ - 1);
    return slots_[i];
  }

  void grow(std::size_t capacity) {
    const std::size_t old_capacity = std::exchange(capacity_, capacity);
    const std::unique_ptr<Slot[]> old = std::exchange(slots_, std::make_unique<Slot[]>(capacity));
    for (shift_ = 64; capacity > 1; capacity /= 2) --shift_;
    for (std::size_t i = 0; i < old_capacity; ++i) {
      if (!old[i].key) continue;
      Slot& s = slot(old[i].key);
      s.key = old[i].key;
      s.value = std::move(old[i].value);
    }
  }

  std::unique_ptr<Slot[]> slots_;
  std::size_t capacity_ = 0, size_ = 0;
  int shift_ = 64;
};

}  // namespace shmap
