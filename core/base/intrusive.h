// Shared ownership by a count inside the object.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace shmap {

// Base class of objects owned by Ref<T>. When the last Ref is destroyed, T::dispose() is called if
// T has one; otherwise the object is deleted as a T, so that T needs a virtual destructor if
// classes derive from it.
class RefCounted {
 public:
  RefCounted() = default;
  RefCounted(const RefCounted&) noexcept {}  // a copy of an object starts without owners
  RefCounted& operator=(const RefCounted&) noexcept { return *this; }

  void add_ref() const noexcept { refs_.fetch_add(1, std::memory_order_relaxed); }
  // As add_ref, for an object without owners: no read-modify-write.
  void first_ref() const noexcept { refs_.store(1, std::memory_order_relaxed); }
  // Returns whether this was the last owner.
  bool drop_ref() const noexcept { return drop_refs(1); }
  // As add_ref and drop_ref, n times at once.
  void add_refs(std::int32_t n) const noexcept { refs_.fetch_add(n, std::memory_order_relaxed); }
  bool drop_refs(std::int32_t n) const noexcept {
    // The last owners need no read-modify-write, because no other thread can add an owner.
    if (refs_.load(std::memory_order_acquire) == n) {
      refs_.store(0, std::memory_order_relaxed);
      return true;
    }
    return refs_.fetch_sub(n, std::memory_order_acq_rel) == n;
  }
  std::int32_t use_count() const noexcept { return refs_.load(std::memory_order_acquire); }

 protected:
  ~RefCounted() = default;

 private:
  mutable std::atomic<std::int32_t> refs_{0};
};

template <class T>
class Ref {
 public:
  Ref() = default;
  Ref(std::nullptr_t) noexcept {}
  explicit Ref(T* object) noexcept : object_(object) {
    if (object_ != nullptr) object_->add_ref();
  }
  Ref(const Ref& other) noexcept : object_(other.object_) {
    if (object_ != nullptr) object_->add_ref();
  }
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  template <class U>
  requires(std::is_convertible_v<U*, T*> && !std::is_same_v<U, T>) Ref(Ref<U> other)
  noexcept : object_(other.detach()) {}
  Ref& operator=(const Ref& other) noexcept {
    Ref(other).swap(*this);
    return *this;
  }
  Ref& operator=(Ref&& other) noexcept {
    Ref(std::move(other)).swap(*this);
    return *this;
  }
  ~Ref() { reset(); }

  void reset() noexcept {
    T* object = std::exchange(object_, nullptr);
    if (object != nullptr && object->drop_ref()) {
      if constexpr (requires { object->dispose(); }) {
        object->dispose();
      } else {
        delete object;
      }
    }
  }
  // Passes the ownership to the caller; adopt() takes it back.
  T* detach() noexcept { return std::exchange(object_, nullptr); }
  static Ref adopt(T* object) noexcept {
    Ref r;
    r.object_ = object;
    return r;
  }
  // Makes the first Ref of an object that has no owner yet.
  static Ref first(T* object) noexcept {
    object->first_ref();
    return adopt(object);
  }
  void swap(Ref& other) noexcept { std::swap(object_, other.object_); }

  T* get() const noexcept { return object_; }
  T* operator->() const noexcept { return object_; }
  T& operator*() const noexcept { return *object_; }
  explicit operator bool() const noexcept { return object_ != nullptr; }
  // Number of owners of the object; 0 for an empty Ref.
  std::int32_t use_count() const noexcept { return object_ == nullptr ? 0 : object_->use_count(); }
  friend bool operator==(const Ref& a, const Ref& b) noexcept { return a.object_ == b.object_; }

 private:
  T* object_ = nullptr;
};

template <class T, class... Args>
Ref<T> make_ref(Args&&... args) {
  return Ref<T>(new T(std::forward<Args>(args)...));
}

}  // namespace shmap
