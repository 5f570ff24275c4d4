// Streams and events.
#include "cuda_sim.h"
#include "runtime.h"

namespace shmap_sim {

Stream* stream_of(Runtime& r, cudaStream_t handle) {
  if (handle == nullptr || handle == cudaStreamLegacy) {
    return r.devices.empty() ? nullptr : r.devices[this_thread.device]->legacy.get();
  }
  const auto found = r.streams.find(handle);
  return found == r.streams.end() ? nullptr : found->second.get();
}

namespace {

Event* event_of(Runtime& r, cudaEvent_t handle) {
  const auto found = r.events.find(handle);
  return found == r.events.end() ? nullptr : found->second.get();
}

cudaError_t create(Runtime& r, cudaStream_t* handle, unsigned flags, int priority) {
  if (handle == nullptr || flags > cudaStreamNonBlocking) return cudaErrorInvalidValue;
  auto stream = std::make_shared<Stream>();
  stream->id = r.next_id++;
  stream->device = this_thread.device;
  stream->flags = flags;
  stream->priority = priority > 0 ? 0 : priority < -5 ? -5 : priority;
  *handle = handle_of(stream.get());
  r.streams.emplace(stream.get(), std::move(stream));
  return cudaSuccess;
}

// The error of waiting for, or querying, an event under capture.
cudaError_t check_captured(Event& event) {
  if (event.capture == nullptr) return cudaSuccess;
  if (!event.capture->ended) invalidate(*event.capture);
  return cudaErrorCapturedEvent;
}

cudaError_t check_capturing(Stream& stream) {
  if (stream.capture == nullptr) return cudaSuccess;
  const bool was_invalid = stream.capture->invalid;
  invalidate(*stream.capture);
  return was_invalid ? cudaErrorStreamCaptureInvalidated : cudaErrorStreamCaptureUnsupported;
}

cudaError_t wait_under_capture(Runtime& r, Stream& stream, Event& event) {
  if (event.capture == nullptr) {
    if (event.op == nullptr) return cudaSuccess;
    invalidate(*stream.capture);
    return cudaErrorStreamCaptureIsolation;
  }
  if (event.capture->ended) {
    if (stream.capture == nullptr) return cudaErrorCapturedEvent;
    invalidate(*stream.capture);
    return cudaErrorStreamCaptureIsolation;
  }
  if (event.capture->invalid) return cudaErrorStreamCaptureInvalidated;
  if (stream.capture == nullptr) {
    if (stream.legacy) {
      invalidate(*event.capture);
      return cudaErrorStreamCaptureImplicit;
    }
    stream.capture = event.capture;
    stream.tails.clear();
    event.capture->streams.push_back(stream.shared_from_this());
  } else if (stream.capture != event.capture) {
    invalidate(*stream.capture);
    invalidate(*event.capture);
    return cudaErrorStreamCaptureMerge;
  } else if (stream.capture->invalid) {
    return cudaErrorStreamCaptureInvalidated;
  }
  for (const int node : event.tails) {
    bool known = false;
    for (const int tail : stream.tails) known |= tail == node;
    if (!known) stream.tails.push_back(node);
  }
  static_cast<void>(r);
  return cudaSuccess;
}

}  // namespace
}  // namespace shmap_sim

using namespace shmap_sim;

cudaError_t cudaStreamCreate(cudaStream_t* pStream) {
  return api("cudaStreamCreate", 0, [&](Runtime& r, Lock&) { return create(r, pStream, 0, 0); });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* pStream, unsigned int flags) {
  return api("cudaStreamCreateWithFlags", 0,
             [&](Runtime& r, Lock&) { return create(r, pStream, flags, 0); });
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* pStream, unsigned int flags, int priority) {
  return api("cudaStreamCreateWithPriority", 0,
             [&](Runtime& r, Lock&) { return create(r, pStream, flags, priority); });
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* leastPriority, int* greatestPriority) {
  return api("cudaDeviceGetStreamPriorityRange", 0, [&](Runtime&, Lock&) {
    if (leastPriority != nullptr) *leastPriority = 0;
    if (greatestPriority != nullptr) *greatestPriority = -5;
    return cudaSuccess;
  });
}

// Returns at once; queued work still runs.
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return api("cudaStreamDestroy", kEvenIfLost, [&](Runtime& r, Lock&) {
    const auto found = r.streams.find(stream);
    if (found == r.streams.end()) return cudaErrorInvalidResourceHandle;
    if (const cudaError_t error = check_capturing(*found->second); error != cudaSuccess)
      return error;
    r.streams.erase(found);
    return r.devices[this_thread.device]->lost;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return api("cudaStreamSynchronize", kUnsafe, [&](Runtime& r, Lock& lock) {
    Stream* s = stream_of(r, stream);
    if (s == nullptr) return cudaErrorInvalidResourceHandle;
    if (const cudaError_t error = check_capturing(*s); error != cudaSuccess) return error;
    if (const cudaError_t error = check_implicit(r, *s); error != cudaSuccess) return error;
    const int device = s->device;
    Ops ops;
    if (!s->queue.empty()) ops.push_back(s->queue.back());
    wait_for(r, lock, ops);
    return r.devices[device]->lost;
  });
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return api("cudaStreamQuery", kUnsafe, [&](Runtime& r, Lock& lock) {
    Stream* s = stream_of(r, stream);
    if (s == nullptr) return cudaErrorInvalidResourceHandle;
    if (const cudaError_t error = check_capturing(*s); error != cudaSuccess) return error;
    if (const cudaError_t error = check_implicit(r, *s); error != cudaSuccess) return error;
    const int device = s->device;
    Ops ops;
    if (!s->queue.empty()) ops.push_back(s->queue.back());
    if (!is_done(ops)) poll(r, lock);
    if (r.devices[device]->lost != cudaSuccess) return r.devices[device]->lost;
    return is_done(ops) ? cudaSuccess : cudaErrorNotReady;
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
  return api("cudaStreamWaitEvent", 0, [&](Runtime& r, Lock& lock) {
    Stream* s = stream_of(r, stream);
    Event* e = event_of(r, event);
    if (s == nullptr || e == nullptr) return cudaErrorInvalidResourceHandle;
    if (flags != cudaEventWaitDefault) return cudaErrorInvalidValue;
    if (s->capture != nullptr || e->capture != nullptr) return wait_under_capture(r, *s, *e);
    if (const cudaError_t error = check_implicit(r, *s); error != cudaSuccess) return error;
    if (e->op == nullptr || e->op->state == Op::State::done) return cudaSuccess;
    Work work;
    work.device = s->device;
    work.name = "wait";
    push(r, *s, std::make_shared<const Work>(std::move(work)), {e->op});
    drain_if_full(r, lock);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamGetPriority(cudaStream_t hStream, int* priority) {
  return api("cudaStreamGetPriority", 0, [&](Runtime& r, Lock&) {
    const Stream* s = stream_of(r, hStream);
    if (s == nullptr) return cudaErrorInvalidResourceHandle;
    if (priority == nullptr) return cudaErrorInvalidValue;
    *priority = s->priority;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamGetFlags(cudaStream_t hStream, unsigned int* flags) {
  return api("cudaStreamGetFlags", 0, [&](Runtime& r, Lock&) {
    const Stream* s = stream_of(r, hStream);
    if (s == nullptr) return cudaErrorInvalidResourceHandle;
    if (flags == nullptr) return cudaErrorInvalidValue;
    *flags = s->flags;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamGetId(cudaStream_t hStream, unsigned long long* streamId) {
  return api("cudaStreamGetId", 0, [&](Runtime& r, Lock&) {
    const Stream* s = stream_of(r, hStream);
    if (s == nullptr) return cudaErrorInvalidResourceHandle;
    if (streamId == nullptr) return cudaErrorInvalidValue;
    *streamId = s->id;
    return cudaSuccess;
  });
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  return api("cudaEventCreateWithFlags", 0, [&](Runtime& r, Lock&) {
    if (event == nullptr || flags > (cudaEventBlockingSync | cudaEventDisableTiming)) {
      return cudaErrorInvalidValue;
    }
    auto made = std::make_shared<Event>();
    made->device = this_thread.device;
    made->flags = flags;
    *event = reinterpret_cast<cudaEvent_t>(made.get());
    r.events.emplace(made.get(), std::move(made));
    return cudaSuccess;
  });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return api("cudaEventRecord", 0, [&](Runtime& r, Lock& lock) {
    Stream* s = stream_of(r, stream);
    Event* e = event_of(r, event);
    if (s == nullptr || e == nullptr || s->device != e->device) {
      return cudaErrorInvalidResourceHandle;
    }
    if (s->capture != nullptr) {
      if (s->capture->invalid) return cudaErrorStreamCaptureInvalidated;
      e->capture = s->capture;
      e->tails = s->tails;
      e->op = nullptr;
      return cudaSuccess;
    }
    if (const cudaError_t error = check_implicit(r, *s); error != cudaSuccess) return error;
    Work work;
    work.device = s->device;
    work.name = "event";
    e->capture = nullptr;
    e->tails.clear();
    e->op = push(r, *s, std::make_shared<const Work>(std::move(work)));
    drain_if_full(r, lock);
    return cudaSuccess;
  });
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int flags) {
  if (flags == cudaEventRecordDefault) return cudaEventRecord(event, stream);
  return api("cudaEventRecordWithFlags", 0, [&](Runtime& r, Lock&) {
    Stream* s = stream_of(r, stream);
    const auto found = r.events.find(event);
    if (s == nullptr || found == r.events.end() || s->device != found->second->device) {
      return cudaErrorInvalidResourceHandle;
    }
    if (flags != cudaEventRecordExternal || s->capture == nullptr) return cudaErrorInvalidValue;
    Work work;
    work.kind = Work::Kind::event;
    work.device = s->device;
    work.name = "event";
    work.event = found->second;
    return submit(r, *s, std::move(work));
  });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return api("cudaEventQuery", kUnsafe, [&](Runtime& r, Lock& lock) {
    Event* e = event_of(r, event);
    if (e == nullptr) return cudaErrorInvalidResourceHandle;
    if (const cudaError_t error = check_captured(*e); error != cudaSuccess) return error;
    if (e->op == nullptr) return cudaSuccess;
    const std::shared_ptr<Op> op = e->op;
    const int device = e->device;
    if (op->state != Op::State::done) poll(r, lock);
    if (r.devices[device]->lost != cudaSuccess) return r.devices[device]->lost;
    return op->state == Op::State::done ? cudaSuccess : cudaErrorNotReady;
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return api("cudaEventSynchronize", kUnsafe, [&](Runtime& r, Lock& lock) {
    Event* e = event_of(r, event);
    if (e == nullptr) return cudaErrorInvalidResourceHandle;
    if (const cudaError_t error = check_captured(*e); error != cudaSuccess) return error;
    const int device = e->device;
    if (e->op != nullptr) wait_for(r, lock, {e->op});
    return r.devices[device]->lost;
  });
}

cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
  return api("cudaEventElapsedTime", 0, [&](Runtime& r, Lock&) {
    Event* a = event_of(r, start);
    Event* b = event_of(r, end);
    if (a == nullptr || b == nullptr || a->device != b->device) {
      return cudaErrorInvalidResourceHandle;
    }
    if (ms == nullptr) return cudaErrorInvalidValue;
    for (Event* e : {a, b}) {
      if (const cudaError_t error = check_captured(*e); error != cudaSuccess) return error;
      if (e->op == nullptr || (e->flags & cudaEventDisableTiming) != 0) {
        return cudaErrorInvalidResourceHandle;
      }
    }
    if (a->op->state != Op::State::done || b->op->state != Op::State::done) {
      return cudaErrorNotReady;
    }
    *ms = std::chrono::duration<float, std::milli>(b->op->time - a->op->time).count();
    return cudaSuccess;
  });
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return api("cudaEventDestroy", kEvenIfLost, [&](Runtime& r, Lock&) {
    if (r.events.erase(event) == 0) return cudaErrorInvalidResourceHandle;
    return r.devices[this_thread.device]->lost;
  });
}
