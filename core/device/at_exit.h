// The end of the process, before which the devices stop.
#pragma once

namespace shmap::detail {

// At exit the backends are stopped, so that none of their threads runs a task, before objects are
// destroyed that tasks may use. Which objects are destroyed, and in what order, changes while the
// process runs: the variables of libraries that were opened late are destroyed first. There are
// therefore two ways to stop, both idempotent.
//
// If the main thread returns from main or calls exit(), the backends stop before any such object is
// destroyed. For this, stop_when_main_ends() registers a destructor for the end of the calling
// thread, which stops the backends if that thread is the main thread; on other threads the
// destructor does nothing.
void stop_when_main_ends() noexcept;
// If another thread calls exit(), the backends stop before the destruction of all objects that were
// registered for destruction before the last call of stop_first_at_exit(). To be called after
// opening a library that tasks call, and after such a library has created new objects.
void stop_first_at_exit() noexcept;

// An object that is called before the backends stop.
class BeforeStop {
 public:
  // Called on the thread that ends the process, while everything that tasks use still exists, so
  // that the object can report errors that no wait has reported. May be called more than once.
  virtual void before_stop() noexcept = 0;

 protected:
  ~BeforeStop() = default;

 private:
  friend struct BeforeStopList;
  BeforeStop* next_ = nullptr;
};
// Registers `object`, which must never be destroyed: its before_stop() is called before the
// backends stop, after those of the objects that were registered earlier. To be called once for
// each object; any thread.
void call_before_stop(BeforeStop& object) noexcept;

}  // namespace shmap::detail
