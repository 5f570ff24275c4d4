// The header of a .npy file (NumPy's array file format, versions 1.0, 2.0 and 3.0), from bytes that
// nobody vouches for: whatever they are, the result is a header that the file's size bears out, or
// a ValueError that says what is wrong.
//
// bfloat16 has no code of its own in the format: NumPy with ml_dtypes, and JAX, write '<V2' (two
// raw bytes an element), and so does make_npy_header; reading takes V2 as bf16. NumPy gives such a
// file back as dtype('V2'): `numpy.load(path).view(ml_dtypes.bfloat16)`.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "shmap/dtype.h"
#include "shmap/shape.h"

namespace shmap::io {

struct NpyHeader {
  DType dtype = DType::f32;
  bool fortran_order = false;
  Shape shape;
  std::int64_t data_offset = 0;  // of the first element, in bytes
  bool big_endian = false;       // always false for one-byte elements
};

// A header is at most as long as version 1.0 allows, whatever the version: this many first bytes of
// a file always suffice.
inline constexpr std::int64_t kNpyMaxPrefix = 12 + 65535;

// `prefix` is the file's first bytes: all of its header at least, or the whole file where that is
// shorter. `file_size` is the whole file's. What the header says takes up the file exactly:
// shape.num_elements() × itemsize bytes from data_offset on, then the end. `name` starts the
// messages of the ValueErrors: malformed or repeated keys, object, structured and other dtypes that
// have no DType, bad extents, more dims than kMaxRank, products past 63 bits, a size that differs.
NpyHeader parse_npy_header(std::span<const std::byte> prefix, std::int64_t file_size,
                           std::string_view name = "npy");

// Version 1.0, padded with spaces to a multiple of 64 bytes: to the letter what NumPy writes.
// TypeError for prng_key.
std::string make_npy_header(DType dtype, const Shape& shape, bool fortran_order = false);

}  // namespace shmap::io
