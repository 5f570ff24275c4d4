// Loading and saving safetensors files.
#include "core/io/safetensors_format.h"

#include "core/io/array_blocks.h"
#include "core/io/input_file.h"
#include "core/io/save_file.h"
#include "core/ir/node.h"
#include "shmap/io.h"

namespace shmap {

namespace {

constexpr const char* kSafetensorsFile = "safetensors file";

io::SafetensorsHeader read_header(const io::InputFile& file, std::int64_t* data) {
  unsigned char length[8] = {};
  if (file.size() < 8) {
    throw ValueError(file.name() + ": " + std::to_string(file.size()) +
                     " bytes, and the length of a header alone has 8");
  }
  file.read(0, reinterpret_cast<std::byte*>(length), 8);
  std::uint64_t bytes = 0;
  for (int k = 8; k-- > 0;) bytes = bytes << 8 | length[k];
  if (bytes > static_cast<std::uint64_t>(file.size() - 8)) {
    throw ValueError(file.name() + ": a header of " + std::to_string(bytes) +
                     " bytes in a file of " + std::to_string(file.size()));
  }
  if (bytes > static_cast<std::uint64_t>(io::kSafetensorsMaxHeader)) {
    throw ValueError(file.name() + ": a header of " + std::to_string(bytes) + " bytes: at most " +
                     std::to_string(io::kSafetensorsMaxHeader) + " are read");
  }
  *data = 8 + static_cast<std::int64_t>(bytes);
  std::string text(static_cast<std::size_t>(bytes), '\0');
  file.read(8, reinterpret_cast<std::byte*>(text.data()), static_cast<std::int64_t>(bytes));
  return io::SafetensorsHeader(std::move(text), file.size() - *data, file.name());
}

}  // namespace

std::map<std::string, Array> load_safetensors(const std::string& path,
                                              const std::map<std::string, NamedSharding>& shardings,
                                              FileOptions options, SourceLine source) {
  return io::with_line("load_safetensors", path, source, [&] {
    ensure_started();
    const io::InputFile file(kSafetensorsFile, path);
    std::int64_t data = 0;
    const io::SafetensorsHeader header = read_header(file, &data);
    const auto sharding_of = [&](const std::string& name) {
      const auto it = shardings.find(name);
      return it == shardings.end() ? detail::MeshImpl::default_device()->replicated()
                                   : it->second.mesh().impl()->sharding(it->second.spec());
    };
    std::size_t known = 0;
    std::int64_t total = 0;
    const auto each = [&](auto see) {
      for (std::size_t i = 0; i < header.size(); ++i) {
        const std::string name = header.name(i);
        const io::TensorEntry entry = header.entry(i);
        see(name, entry, ShapedArray(entry.shape, entry.dtype, false, AxisSet()), sharding_of(name),
            "load_safetensors: tensor '" + name + "' of \"" + path + "\"");
      }
    };
    each([&](const std::string& name, const io::TensorEntry&, const ShapedArray& type,
             const Sharding* sharding, const std::string& what) {
      sharding->block_shape(type.dims(), what);  // throws an error that names the tensor
      known += shardings.count(name);
      total += io::bytes_to_read(type, sharding);
    });
    if (known < shardings.size()) {
      for (const auto& [name, sharding] : shardings) {
        bool found = false;
        for (std::size_t i = 0; i < header.size(); ++i) found = found || header.name(i) == name;
        if (!found) {
          throw ValueError(file.name() + ": it has no tensor '" + name +
                           "', for which a sharding is given");
        }
      }
    }
    io::ProgressCount progress(options, total);
    std::map<std::string, Array> out;
    each([&](const std::string& name, const io::TensorEntry& entry, const ShapedArray& type,
             const Sharding* sharding, const std::string& what) {
      const int item = itemsize(entry.dtype);
      out[name] =
          io::read_blocks(type, sharding, shardings.count(name) > 0, what, /*in_pieces=*/true,
                          progress, [&](std::span<const Slice> box, void* dst) {
                            auto* bytes = static_cast<std::byte*>(dst);
                            file.read_box(data + entry.begin, entry.shape, box, item, bytes);
                            if (entry.dtype != DType::bool_) return;
                            std::int64_t n = 1;
                            for (const Slice& s : box) n *= s.stop - s.start;
                            for (std::int64_t i = 0; i < n; ++i)
                              bytes[i] = std::byte{bytes[i] != std::byte{0}};
                          });
    });
    return out;
  });
}

void save_safetensors(const std::string& path, const std::map<std::string, Array>& arrays,
                      FileOptions options, SourceLine source) {
  io::with_line("save_safetensors", path, source, [&] {
    std::map<std::string, std::pair<DType, Shape>> types;
    for (const auto& [name, x] : arrays) {
      const ShapedArray& type = checked_node(x, "save_safetensors").type;
      types.emplace(name, std::pair(type.dtype(), type.dims()));
    }
    const io::SafetensorsLayout layout =
        io::layout_safetensors(types, io::named_file(kSafetensorsFile, path));
    std::vector<io::PlacedArray> placed;
    for (const auto& [name, x] : arrays) placed.push_back({x, layout.offsets.at(name)});
    io::save_file({"save_safetensors", kSafetensorsFile, path, source}, layout.head, placed,
                  layout.bytes, options);
  });
}

}  // namespace shmap
