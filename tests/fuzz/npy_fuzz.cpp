// The .npy header parser: any bytes give a ValueError, or a header that agrees with the file and
// reads back the same when written. One accepted input in 64 is also read as a file.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/npy_file.h"
#include "core/io/npy_format.h"
#include "shmap/error.h"
#include "tests/fuzz/fuzz.h"

namespace shmap::fuzz {

namespace {

struct Tally {
  long long accepted = 0, refused = 0, files = 0;
  ~Tally() {
    std::printf("%lld inputs accepted, %lld refused; %lld read as files\n", accepted, refused,
                files);
  }
};
Tally tally;

void read_as_file(const std::uint8_t* data, std::size_t size) {
  const int fd = memfd_create("npy_fuzz", MFD_CLOEXEC);
  require(fd >= 0, "memfd_create works");
  require(write(fd, data, size) == static_cast<ssize_t>(size), "a memory file can be written");
  {
    const io::NpyFile file("/proc/self/fd/" + std::to_string(fd));
    const Shape& shape = file.header().shape;
    const auto bytes =
        static_cast<std::size_t>(checked_bytes(shape, itemsize(file.header().dtype)));
    std::vector<std::byte> whole(bytes);
    file.read_all(whole.data());
    require(file.data_bytes_read() == static_cast<std::int64_t>(bytes), "every byte is read once");
  }
  close(fd);
}

}  // namespace

std::vector<std::string> seeds() {
  std::vector<std::string> all;
  for (DType t : {bool_, i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32, f64}) {
    for (const Shape& shape : {Shape{}, Shape{0}, Shape{5}, Shape{2, 3}, Shape{1, 2, 3, 4}}) {
      std::string file = io::make_npy_header(t, shape, shape.rank() == 2);
      file.resize(file.size() + static_cast<std::size_t>(checked_bytes(shape, itemsize(t))), '\1');
      all.push_back(file);
    }
  }
  // Short ones, as most of a header is padding; versions 2.0 and 3.0; longs; big endian.
  for (char version : {1, 2, 3}) {
    for (std::string text :
         {"{'descr':'<f4','fortran_order':False,'shape':(2,)}",
          "{'shape': (1L, 2L), 'descr': '>i4', 'fortran_order': True}\n",
          "{\"descr\": \"|V2\", \"fortran_order\": False, \"shape\": (4,), } "}) {
      std::string file("\x93NUMPY", 6);
      file += version;
      file += '\0';
      file += static_cast<char>(text.size());
      file.append(version == 1 ? 1 : 3, '\0');
      all.push_back(file + text + std::string(8, '\2'));
    }
  }
  return all;
}

std::vector<std::string> dictionary() {
  return {"{",
          "}",
          "(",
          ")",
          ",",
          ":",
          "'",
          "\"",
          "L",
          "-",
          "0",
          "[",
          "\\",
          "\n",
          " ",
          "True",
          "False",
          "'descr'",
          "'fortran_order'",
          "'shape'",
          "<",
          ">",
          "|",
          "=",
          "f2",
          "f4",
          "f8",
          "V2",
          "b1",
          "i1",
          "u8",
          "O",
          "c16",
          "?",
          "bfloat16",
          "(2,)",
          "(0, 0)",
          "()",
          "9223372036854775807",
          "9223372036854775808",
          "18446744073709551616",
          "4294967296",
          std::string("\x93NUMPY\x01\x00", 8),
          std::string("\x93NUMPY\x02\x00", 8),
          std::string("\xff\xff\xff\xff", 4),
          std::string("\0\0\0\0", 4),
          "1, 1, 1, 1, 1, 1, 1, 1, "};
}

}  // namespace shmap::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace shmap;
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  io::NpyHeader header;
  try {
    header = io::parse_npy_header(bytes, static_cast<std::int64_t>(size));
  } catch (const ValueError& e) {
    fuzz::require_one_line(e.what());
    ++fuzz::tally.refused;
    return 0;
  }
  const std::int64_t count = checked_bytes(header.shape, itemsize(header.dtype));
  fuzz::require(header.data_offset >= 10, "the data comes after the header");
  fuzz::require(header.data_offset + count == static_cast<std::int64_t>(size),
                "the data takes up the rest of the file");
  const std::string text = io::make_npy_header(header.dtype, header.shape, header.fortran_order);
  const io::NpyHeader again = io::parse_npy_header(std::as_bytes(std::span(text)),
                                                   static_cast<std::int64_t>(text.size()) + count);
  fuzz::require(again.dtype == header.dtype && again.shape == header.shape &&
                    again.fortran_order == header.fortran_order && !again.big_endian,
                "a written header reads back the same");
  if (fuzz::tally.accepted++ % 64 == 0) {
    fuzz::read_as_file(data, size);
    ++fuzz::tally.files;
  }
  return 0;
}
