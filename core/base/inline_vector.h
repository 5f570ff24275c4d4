// InlineVector: a list that holds its first N elements itself, for argument lists on the hot path.
#pragma once
#include <cstddef>
#include <memory>
#include <span>

namespace shmap {

// Sized once, at construction; elements are value-initialised only where T has a constructor that
// does so.
template <class T, std::size_t N>
class InlineVector {
 public:
  explicit InlineVector(std::size_t n) : n_(n) {
    if (n > N) heap_ = std::make_unique<T[]>(n);
  }
  InlineVector(const InlineVector&) = delete;
  InlineVector& operator=(const InlineVector&) = delete;
  std::size_t size() const { return n_; }
  T* data() { return n_ > N ? heap_.get() : few_; }
  const T* data() const { return n_ > N ? heap_.get() : few_; }
  T& operator[](std::size_t i) { return data()[i]; }
  const T& operator[](std::size_t i) const { return data()[i]; }
  T* begin() { return data(); }
  T* end() { return data() + n_; }
  operator std::span<T>() { return {data(), n_}; }
  operator std::span<const T>() const { return {data(), n_}; }
  std::span<T> span() { return {data(), n_}; }
  std::span<const T> span() const { return {data(), n_}; }

 private:
  std::size_t n_;
  T few_[N];
  std::unique_ptr<T[]> heap_;
};

}  // namespace shmap
