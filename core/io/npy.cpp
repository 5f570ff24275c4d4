// Loading and saving .npy files.
#include <cerrno>

#include "core/io/array_blocks.h"
#include "core/io/npy_file.h"
#include "core/io/save_file.h"
#include "core/ir/node.h"
#include "shmap/io.h"

namespace shmap {

namespace {

Array load(const io::NpyFile& file, const Sharding* sharding, bool committed,
           const FileOptions& options) {
  const io::NpyHeader& header = file.header();
  const ShapedArray type(header.shape, header.dtype, false, AxisSet());
  const std::string what = "load_npy: \"" + file.path() + "\"";
  sharding->block_shape(header.shape, what);  // throws an error that names the file
  io::ProgressCount progress(options, io::bytes_to_read(type, sharding));
  return io::read_blocks(type, sharding, committed, what, file.reads_rows(), progress,
                         [&](std::span<const Slice> box, void* dst) { file.read_box(box, dst); });
}

}  // namespace

Array load_npy(const std::string& path, SourceLine source) {
  return io::with_line("load_npy", path, source, [&] {
    ensure_started();
    return load(io::NpyFile(path), detail::MeshImpl::default_device()->replicated(), false, {});
  });
}

Array load_npy(const std::string& path, const NamedSharding& sharding, FileOptions options,
               SourceLine source) {
  return io::with_line("load_npy", path, source, [&] {
    ensure_started();
    return load(io::NpyFile(path), sharding.mesh().impl()->sharding(sharding.spec()), true,
                options);
  });
}

void save_npy(const std::string& path, const Array& x, FileOptions options, SourceLine source) {
  io::with_line("save_npy", path, source, [&] {
    const ShapedArray type = checked_node(x, "save_npy").type;
    const std::string head = io::make_npy_header(type.dtype(), type.dims());
    const auto at = static_cast<std::int64_t>(head.size());
    std::int64_t end = 0;
    if (__builtin_add_overflow(at, type.nbytes(), &end)) {
      errno = EFBIG;
      throw_errno(io::named_file("npy file", path), "cannot set the size");
    }
    const io::PlacedArray placed{x, at};
    io::save_file({"save_npy", "npy file", path, source}, head, {&placed, 1}, end, options);
  });
}

}  // namespace shmap
