// The loops of elementwise kernels of two operands, for the .cpp files of those kernels.
//
// Included after targets-inl.h, once for each instruction set.
HWY_BEFORE_NAMESPACE();
namespace shmap::cpu::HWY_NAMESPACE {
namespace {

// A BinaryFn: Op::run(T, T) -> R.
template <class Op, class T, class R = T>
void map_binary(const void* a, bool a_scalar, const void* b, bool b_scalar, void* out,
                std::int64_t n) {
  if (n <= 0) return;
  const T* x = static_cast<const T*>(a);
  const T* y = static_cast<const T*>(b);
  R* o = static_cast<R*>(out);
  if (a_scalar && b_scalar) {
    const R value = Op::run(*x, *y);
    for (std::int64_t i = 0; i < n; ++i) o[i] = value;
  } else if (a_scalar) {
    const T value = *x;
    SHMAP_INDEPENDENT
    for (std::int64_t i = 0; i < n; ++i) o[i] = Op::run(value, y[i]);
  } else if (b_scalar) {
    const T value = *y;
    SHMAP_INDEPENDENT
    for (std::int64_t i = 0; i < n; ++i) o[i] = Op::run(x[i], value);
  } else {
    SHMAP_INDEPENDENT
    for (std::int64_t i = 0; i < n; ++i) o[i] = Op::run(x[i], y[i]);
  }
}

}  // namespace
}  // namespace shmap::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
