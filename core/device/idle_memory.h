// IdleMemory: an owner of memory that no array uses at the moment, such as the results' places of a
// plan between its calls. Before an allocation fails, all owners are asked to give such memory up.
#pragma once

namespace shmap {

// Asks all owners; returns whether any gave memory up. May wait for work of devices. The caller
// neither captures nor runs a task, and may hold a submit mutex.
bool give_up_idle_memory() noexcept;

class IdleMemory {
 public:
  IdleMemory() = default;
  virtual ~IdleMemory() = default;
  IdleMemory(const IdleMemory&) = delete;
  IdleMemory& operator=(const IdleMemory&) = delete;

  // Gives up what is not in use; returns whether there was any. Called on any thread between
  // register_idle() and forget_idle(), one call at a time. The thread may be using this owner, and
  // may hold a submit mutex: waits for no lock.
  virtual bool give_up() noexcept = 0;

 protected:
  // To be called once the object is complete, and before its destruction begins.
  void register_idle() noexcept;
  void forget_idle() noexcept;

 private:
  friend bool give_up_idle_memory() noexcept;
  IdleMemory *before_ = nullptr, *after_ = nullptr;  // in the list of all
};

}  // namespace shmap
