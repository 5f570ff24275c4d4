// Tasks that end when a test says so, on devices whose executor takes such tasks (Task::later).
#pragma once
#include <algorithm>
#include <exception>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/array/mesh_impl.h"
#include "core/device/runtime.h"
#include "core/ir/node.h"
#include "core/runtime/launch.h"
#include "shmap/array.h"

namespace shmap::test {

// A gate behind which tasks wait until it is opened. The executor `inline` has no pending tasks:
// there they end at once.
class Gate {
 public:
  Gate() : state_(std::make_shared<State>()) {}
  ~Gate() { open(); }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  // From now on the stream's next tasks wait for the gate. A task of nobody's memory may fail
  // without a consequence.
  void close(Stream* stream, const std::string& error) { launch_at(stream, {}, error); }

  // Makes the blocks of x, of which nobody knows but its owner, come through the gate. With an
  // error the task of each block, or of every second one (`some`), fails. Returns how many tasks
  // there are.
  std::size_t delay(const Array& x, StreamRole role, const std::string& error, bool some) {
    StoredNode& node = *stored_of(x);
    std::vector<Buffer*> buffers;
    for (std::uint32_t p = 0; p < node.count; ++p) {
      Buffer* const buffer = node.blocks()[p].buffer.get();
      if (std::ranges::find(buffers, buffer) != buffers.end()) continue;
      const LocalDevice& device = node.mesh->local(p);
      launch_at(role == StreamRole::comm ? device.comm : device.compute, {buffer},
                some && buffers.size() % 2 == 1 ? "" : error);
      buffers.push_back(buffer);
    }
    return buffers.size();
  }

  void open() {
    std::vector<std::pair<TaskEnd*, std::string>> waiting;
    {
      std::lock_guard lock(state_->mutex);
      state_->is_open = true;
      waiting.swap(state_->waiting);
    }
    for (const auto& [end, error] : waiting) end->end(exception(error));
  }

 private:
  struct State {
    std::mutex mutex;
    bool is_open = false;
    std::vector<std::pair<TaskEnd*, std::string>> waiting;
  };

  static std::exception_ptr exception(const std::string& error) {
    return error.empty() ? nullptr : std::make_exception_ptr(std::runtime_error(error));
  }

  void launch_at(Stream* stream, std::vector<Buffer*> writes, const std::string& error) {
    LaunchSpec spec;
    spec.stream = stream;
    spec.name = "gate";
    std::lock_guard lock(runtime().backend().submit_mutex());
    launch_later(spec, {}, writes, [state = state_, error](TaskEnd* end) {
      if (end == nullptr) {
        if (!error.empty()) throw std::runtime_error(error);
        return;
      }
      // The task's end frees this function.
      const std::shared_ptr<State> kept = state;
      const std::string text = error;
      {
        std::lock_guard held(kept->mutex);
        if (!kept->is_open) return kept->waiting.emplace_back(end, text), void();
      }
      end->end(exception(text));
    });
  }

  const std::shared_ptr<State> state_;
};

}  // namespace shmap::test
