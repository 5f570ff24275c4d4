#include "core/io/save_file.h"

#include <optional>
#include <vector>

#include "core/base/hash_text.h"
#include "core/io/joint_save.h"
#include "core/io/output_file.h"
#include "core/ir/node.h"
#include "core/runtime/launch.h"

namespace shmap::io {

namespace {

void write_arrays(const FileToSave& to, OutputFile& file, std::span<const PlacedArray> arrays,
                  const JointSave* joint, ProgressCount& progress) {
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const PlacedArray& placed = arrays[i];
    const ShapedArray type = checked_node(placed.array, to.what).type;
    const WriteBox write = [&](std::span<const Slice> box, const void* src) {
      file.write_box(placed.at, type.dims(), box, itemsize(type.dtype()), src);
    };
    if (joint != nullptr)
      joint->write(i, placed.array, progress, write);
    else
      write_blocks(placed.array, to.what, progress, write);
  }
}

}  // namespace

void save_file(const FileToSave& to, const std::string& head, std::span<const PlacedArray> arrays,
               std::int64_t bytes, const FileOptions& options) {
  detail::refuse_in_task(to.what);
  std::vector<Array> all;
  for (const PlacedArray& placed : arrays) all.push_back(placed.array);
  std::optional<JointSave> joint;
  if (JointSave::wanted(all)) {
    const std::uint64_t check = HashText().add(to.path).add(head).value();
    joint.emplace(to.what, all, check, to.source);
  }
  std::optional<OutputFile> file;
  const auto begin = [&] {
    // Waits before the draft is made, so that errors of the values leave no draft.
    for (const Array& x : all) x.block_until_ready(to.source);
    file.emplace(to.kind, to.path);
    file->set_size(bytes);
    file->write(0, head.data(), static_cast<std::int64_t>(head.size()));
  };
  if (!joint) {
    std::int64_t total = 0;
    for (const Array& x : all) total += checked_node(x, to.what).type.nbytes();
    ProgressCount progress(options, total);
    begin();
    write_arrays(to, *file, arrays, nullptr, progress);
    return file->commit();
  }
  JointSave::Steps steps;
  steps.begin = [&] {
    begin();
    return file->draft();
  };
  steps.write = [&](const std::string& draft) {
    std::int64_t total = 0;
    for (std::size_t i = 0; i < all.size(); ++i) total += joint->bytes(i, all[i]);
    ProgressCount progress(options, total);
    if (!file) {
      for (const Array& x : all) x.block_until_ready(to.source);
      file.emplace(to.kind, to.path, draft);
    }
    write_arrays(to, *file, arrays, &*joint, progress);
    if (!joint->leads()) file->sync();
  };
  steps.commit = [&] { file->commit(); };
  joint->run(steps, {});
}

}  // namespace shmap::io
