// DLPack: arrays from and to other libraries, without copying them (the struct of dlpack.h 1.x and
// the older one without a version).
//
// Neither call says anything of streams: what is handed over is complete. to_dlpack waits for the
// value; whoever calls from_dlpack has waited for theirs.
#pragma once
#include "shmap/array.h"

struct DLManagedTensor;
struct DLManagedTensorVersioned;

namespace shmap {

using ::DLManagedTensor;
using ::DLManagedTensorVersioned;

// An uncommitted array on the device that holds the tensor, over the tensor's memory; its deleter
// is called when the last array (or task) that uses that memory is done with it, on any thread. The
// array takes the tensor over, where it throws too. Nothing is ever written to that memory, a
// donated array's neither; who handed it over may go on reading it, and should not write to it
// before the deleter was called. Copied instead, at once, is what is not row-major without gaps or
// not aligned to its elements.
//
// ValueErrors: a null pointer, another major version, a dtype that arrays have not (complex,
// vectors, floats of 8 bits and fewer), more dims than an array may have, negative extents, no
// data. DeviceError: memory of a device that this process does not drive.
Array from_dlpack(DLManagedTensor* tensor, SourceLine source = SourceLine::current());
Array from_dlpack(DLManagedTensorVersioned* tensor, SourceLine source = SourceLine::current());

// A tensor over an array's memory, which lives until its deleter is called; read-only to whom it is
// handed (the versioned form says so), since arrays are immutable. It is an owner of the array as
// any other: until it is deleted the array is not overwritten, though it be donated. The array lies
// whole on one device: of a replicated one it is that of the first. ValueError for an array that is
// split: gather it with device_put(x, device) first; TypeError for a traced value, a block in a
// body, and random keys.
DLManagedTensor* to_dlpack(const Array& x);
DLManagedTensorVersioned* to_dlpack_versioned(const Array& x);

}  // namespace shmap
