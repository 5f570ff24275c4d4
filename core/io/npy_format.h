// The header of a .npy file (NumPy's array file format, versions 1.0, 2.0 and 3.0). The bytes are
// not trusted: the result is a header that is consistent with the file's size, or a ValueError that
// says what is wrong.
//
// The format has no code for bfloat16. NumPy with ml_dtypes, JAX and make_npy_header write '<V2'
// (elements of two raw bytes); V2 is read as bf16. NumPy reads such a file as dtype('V2'):
// `numpy.load(path).view(ml_dtypes.bfloat16)`.
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

// parse_npy_header needs at most this many bytes. (In every version a header may be as long as
// version 1.0 allows.)
inline constexpr std::int64_t kNpyMaxPrefix = 12 + 65535;

// `prefix`: the first bytes of the file, with at least its whole header, or the whole file where it
// is shorter. `file_size`: of the whole file, which must be exactly the header and
// shape.num_elements() × itemsize bytes from data_offset on. `name` begins the messages of the
// ValueErrors: malformed or repeated keys, dtypes without a DType (object, structured and others),
// bad extents, more dims than kMaxRank, products beyond 63 bits, another size.
NpyHeader parse_npy_header(std::span<const std::byte> prefix, std::int64_t file_size,
                           std::string_view name = "npy");

// Version 1.0, padded with spaces to a multiple of 64 bytes, exactly as NumPy writes it. TypeError
// for prng_key.
std::string make_npy_header(DType dtype, const Shape& shape, bool fortran_order = false);

}  // namespace shmap::io
