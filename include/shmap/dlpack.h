// DLPack: exchanges arrays with other libraries without copying them (the struct of dlpack.h 1.x,
// and the older struct without a version).
//
// Neither direction passes a stream: data is complete when it is handed over. to_dlpack waits for
// the array's value; the caller of from_dlpack must have waited for the tensor's data.
#pragma once
#include "shmap/array.h"

struct DLManagedTensor;
struct DLManagedTensorVersioned;

namespace shmap {

using ::DLManagedTensor;
using ::DLManagedTensorVersioned;

// An uncommitted array over the tensor's memory, on the device that holds the tensor. The array
// takes ownership of the tensor, also where from_dlpack throws; the tensor's deleter is called on
// any thread, after the last array (or task) that uses the memory is done with it. The library
// never writes to that memory, also not where the array is donated. The producer may go on reading
// the memory, and should not write to it before the deleter is called. A tensor that is not
// row-major without gaps, or not aligned for its elements, is copied at once instead.
//
// Throws ValueError for a null pointer, for another major version of DLPack, for a dtype that
// arrays do not have (complex numbers, vectors, floats of 8 bits or fewer), for more dims than an
// array may have, for negative extents, and for a tensor without data. Throws DeviceError where the
// memory belongs to a device that this process does not drive.
Array from_dlpack(DLManagedTensor* tensor, SourceLine source = SourceLine::current());
Array from_dlpack(DLManagedTensorVersioned* tensor, SourceLine source = SourceLine::current());

// A tensor over the array's memory, which stays alive until the tensor's deleter is called. The
// consumer must not write to it (the versioned struct has the read-only flag), since arrays are
// immutable. The tensor is an owner of the array like any other: until it is deleted, a donation of
// the array does not overwrite the memory. One device must hold the whole array; for a replicated
// array the tensor is the first device's copy. Waits for the array's value. ValueError for an array
// that is split over devices (gather it with device_put(x, device) first); TypeError for a traced
// value, a block in a body, and random keys.
DLManagedTensor* to_dlpack(const Array& x);
DLManagedTensorVersioned* to_dlpack_versioned(const Array& x);

}  // namespace shmap
