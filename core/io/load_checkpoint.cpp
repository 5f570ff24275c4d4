// Loading checkpoints.
#include "core/array/tree_paths.h"
#include "core/io/array_blocks.h"
#include "core/io/checkpoint_file.h"
#include "core/io/checkpoint_folder.h"
#include "core/io/json_reader.h"
#include "core/ir/node.h"
#include "core/runtime/launch.h"
#include "shmap/saved_checkpoint.h"

namespace shmap {

namespace {

// The shape, dtype and sharding of one leaf of `like`.
struct Wanted {
  ShapedArray type;
  const Sharding* sharding;
  bool committed;
};
Wanted wanted_of(const Array& like, const std::string& path) {
  const Node& node = checked_node(like, "load_checkpoint");
  const ShapedArray type(node.type.dims(), node.type.dtype(), false, AxisSet());
  const Sharding* const whole = detail::MeshImpl::default_device()->replicated();
  if (node.kind == NodeKind::stored && node.trace == 0) {
    const auto& stored = static_cast<const StoredNode&>(node);
    return {type, stored.sharding, stored.committed};
  }
  if (node.kind == NodeKind::literal || node.trace == TypeNode::kTrace) return {type, whole, false};
  throw TypeError("load_checkpoint: leaf " + io::quoted_bytes(path) + " of `like` has type " +
                  to_string(node.type) +
                  " and is a traced value or a block in a body: load outside of the function");
}

void check_leaf(const io::CheckpointFile& file, const io::CheckpointLeaf& leaf,
                const std::string& path, const Wanted& wanted) {
  const ShapedArray has(leaf.shape, leaf.dtype, false, AxisSet());
  if (leaf.path == path && has == wanted.type) return;
  if (leaf.path != path) {
    throw ValueError(file.name() + ": it has leaf " + io::quoted_bytes(leaf.path) +
                     " where `like` has " + io::quoted_bytes(path) +
                     ": give a tree of the structure that was saved");
  }
  throw ValueError(file.name() + ": leaf " + io::quoted_bytes(path) + " has type " +
                   to_string(has) + ", and `like` has " + to_string(wanted.type) + " there");
}

std::vector<Array> load(const std::string& path, const detail::FlatTree& like,
                        const FileOptions& options) {
  const std::vector<std::string> paths = leaf_paths(like.node, "");
  const io::CheckpointFile file(path);
  const auto& leaves = file.index().leaves;
  std::vector<Wanted> wanted;
  std::int64_t total = 0;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    wanted.push_back(wanted_of(like.leaves[i], paths[i]));
    if (i < leaves.size()) check_leaf(file, leaves[i], paths[i], wanted[i]);
    total += io::bytes_to_read(wanted[i].type, wanted[i].sharding);
  }
  if (leaves.size() != paths.size()) {
    const bool more = leaves.size() > paths.size();
    throw ValueError(file.name() + ": it has " + std::to_string(leaves.size()) +
                     " leaves, and `like` has " + std::to_string(paths.size()) + ": " +
                     io::quoted_bytes(more ? leaves[paths.size()].path : paths[leaves.size()]) +
                     " is the first leaf that the other lacks");
  }
  io::ProgressCount progress(options, total);
  std::vector<Array> out;
  // Chunks that are read directly into their arrays are collected over all leaves, and read
  // together by several threads.
  std::vector<io::CheckpointFile::WholeChunk> chunks;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const bool stays =
        wanted[i].sharding->mesh()->backend().host_addressable() && !progress.wanted();
    out.push_back(io::read_blocks(wanted[i].type, wanted[i].sharding, wanted[i].committed,
                                  "load_checkpoint: leaf '" + paths[i] + "'", /*in_pieces=*/true,
                                  progress, [&](std::span<const Slice> box, void* dst) {
                                    file.read_box(leaves[i], box, static_cast<std::byte*>(dst),
                                                  stays ? &chunks : nullptr);
                                  }));
  }
  file.read_chunks(chunks);
  return out;
}

}  // namespace

namespace detail {

std::vector<Array> load_checkpoint(const std::string& path, const FlatTree& like,
                                   const FileOptions& options, SourceLine source) {
  return io::with_line("load_checkpoint", path, source, [&]() -> std::vector<Array> {
    refuse_in_task("load_checkpoint");
    ensure_started();
    if (!io::CheckpointFolder::is_folder(path)) return load(path, like, options);
    const io::CheckpointFolder folder(path, io::CheckpointFolder::Make::no);
    const std::vector<std::int64_t> numbers = folder.numbers();
    if (numbers.empty()) {
      throw ValueError(folder.name() + ": it has no checkpoint" +
                       (folder.has_drafts() ? ", but a draft of one that was interrupted" : ""));
    }
    const auto file = [&](std::size_t back) {
      return path + "/" + io::CheckpointFolder::file_name(numbers[numbers.size() - back]);
    };
    try {
      return load(file(1), like, options);
    } catch (const ValueError& e) {
      if (numbers.size() < 2) throw;
      throw ValueError(std::string(e.what()) + "; the checkpoint before it is '" + file(2) +
                       "', which load_checkpoint takes by its path");
    }
  });
}

}  // namespace detail

}  // namespace shmap
