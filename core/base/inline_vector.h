// InlineVector: a list whose elements are inside the object if there are at most N, and otherwise
// all on the heap; for argument lists on the hot path.
#pragma once
#include <cstddef>
#include <memory>
#include <new>
#include <span>

namespace shmap {

// The size is set at construction. The elements are default-initialised; memory inside the object
// beyond the elements is not touched.
template <class T, std::size_t N>
class InlineVector {
 public:
  explicit InlineVector(std::size_t n) : n_(n) {
    data_ = n > N ? static_cast<T*>(::operator new(n * sizeof(T), std::align_val_t(alignof(T))))
                  : reinterpret_cast<T*>(few_);
    for (std::size_t i = 0; i < n; ++i) ::new (data_ + i) T;
  }
  ~InlineVector() {
    for (std::size_t i = n_; i-- > 0;) data_[i].~T();
    if (n_ > N) ::operator delete(data_, std::align_val_t(alignof(T)));
  }
  InlineVector(const InlineVector&) = delete;
  InlineVector& operator=(const InlineVector&) = delete;
  std::size_t size() const { return n_; }
  T* data() { return data_; }
  const T* data() const { return data_; }
  T& operator[](std::size_t i) { return data_[i]; }
  const T& operator[](std::size_t i) const { return data_[i]; }
  T* begin() { return data_; }
  T* end() { return data_ + n_; }
  operator std::span<T>() { return {data_, n_}; }
  operator std::span<const T>() const { return {data_, n_}; }
  std::span<T> span() { return {data_, n_}; }
  std::span<const T> span() const { return {data_, n_}; }

 private:
  std::size_t n_;
  T* data_;
  alignas(T) std::byte few_[N * sizeof(T)];
};

}  // namespace shmap
