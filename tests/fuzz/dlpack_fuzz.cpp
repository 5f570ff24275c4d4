// DLPack tensors of any description: the result is an error, or the array that a plain loop over
// the tensor's memory gives. The deleter is called once in either case, and nothing writes to the
// memory.
#include <dlpack/dlpack.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "shmap/shmap.h"
#include "tests/fuzz/fuzz.h"

namespace shmap::fuzz {

namespace {

struct Tally {
  long long accepted = 0, refused = 0, not_tried = 0;
  ~Tally() {
    std::printf(
        "%lld tensors accepted, %lld refused, %lld not tried: they reach past their memory\n",
        accepted, refused, not_tried);
  }
};
Tally tally;

constexpr std::int64_t kMemory = 4096;
constexpr std::int64_t kOrigin = kMemory / 2;  // where tensors begin, as strides may be negative

// The contents of a fuzzed tensor description.
struct Description {
  std::vector<std::int64_t> shape, strides;
  bool has_strides = false, null_shape = false, null_data = false, versioned = false;
  std::int32_t ndim = 0;
  DLDataType dtype = {};
  DLDevice device = {};
  std::uint64_t byte_offset = 0;
  std::uint64_t flags = 0;
  std::uint32_t major = DLPACK_MAJOR_VERSION;
};

class Bytes {
 public:
  Bytes(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
  std::uint8_t next() { return at_ < size_ ? data_[at_++] : std::uint8_t{0}; }
  // Mostly small; some at the limits.
  std::int64_t number() {
    const std::uint8_t b = next();
    switch (b) {
      case 250:
        return INT64_MAX;
      case 251:
        return INT64_MIN;
      case 252:
        return std::int64_t{1} << 62;
      case 253:
        return std::int64_t{1} << 32;
      case 254:
        return -1;
      case 255:
        return -static_cast<std::int64_t>(next());
      default:
        return b % 8;
    }
  }

 private:
  const std::uint8_t* data_;
  std::size_t size_, at_ = 0;
};

Description describe(Bytes bytes) {
  Description d;
  const std::uint8_t options = bytes.next();
  d.has_strides = options & 1;
  d.null_shape = (options & 6) == 6;
  d.null_data = (options & 24) == 24;
  d.versioned = options & 32;
  if (options & 64) d.flags = bytes.next();
  if (options & 128) d.major = bytes.next();
  const std::uint8_t rank = bytes.next();
  d.ndim = rank == 255 ? -1 : rank == 254 ? INT32_MAX : rank % 6;
  const std::uint8_t type = bytes.next();
  constexpr std::uint8_t kBits[] = {8, 16, 32, 64};
  d.dtype = {static_cast<std::uint8_t>(type % 7), kBits[type / 7 % 4],
             static_cast<std::uint16_t>(type > 200 ? type % 3 : 1)};
  if (type == 255) d.dtype.bits = bytes.next();
  const std::uint8_t device = bytes.next();
  d.device = {device < 200 ? kDLCPU : static_cast<DLDeviceType>(device % 20),
              device < 230 ? 0 : device % 4};
  d.byte_offset = bytes.next() % 64;
  const int dims = d.ndim > 0 && d.ndim < 100 ? d.ndim : 0;
  for (int i = 0; i < dims; ++i) d.shape.push_back(bytes.number());
  for (int i = 0; i < dims; ++i) d.strides.push_back(bytes.number());
  return d;
}

// The byte offsets of its elements from its first, row-major; false where they leave the memory, or
// are more than it has bytes.
bool places(const Description& d, std::vector<std::int64_t>& out) {
  const __int128 item = d.dtype.bits / 8 * std::max<int>(d.dtype.lanes, 1);
  out.assign(1, 0);
  std::vector<__int128> strides(d.shape.size());
  __int128 row_major = 1;
  for (std::size_t i = d.shape.size(); i-- > 0;) {
    strides[i] = d.has_strides ? d.strides[i] : row_major;
    row_major *= d.shape[i];
    if (row_major > kMemory || row_major < 0) return false;
  }
  for (std::size_t i = 0; i < d.shape.size(); ++i) {
    std::vector<std::int64_t> longer;
    for (const std::int64_t base : out) {
      for (std::int64_t k = 0; k < d.shape[i]; ++k) {
        const __int128 at = base + k * strides[i] * item;
        if (at < -kMemory || at > kMemory) return false;
        longer.push_back(static_cast<std::int64_t>(at));
        if (longer.size() > kMemory) return false;
      }
    }
    out = std::move(longer);
  }
  for (const std::int64_t at : out) {
    const __int128 begin = kOrigin + static_cast<__int128>(d.byte_offset) + at;
    if (begin < 0 || begin + item > kMemory) return false;
  }
  return true;
}

template <class T>
std::vector<std::uint8_t> bytes_of(const Array& x) {
  const std::vector<T> values = bitcast(x, dtype_of<T>).template to_vector<T>();
  std::vector<std::uint8_t> out(values.size() * sizeof(T));
  if (!out.empty()) std::memcpy(out.data(), values.data(), out.size());
  return out;
}

// The elements' bytes. Those of bools, which are 0 or 1 where their producer made no mistake, are
// not looked at.
std::vector<std::uint8_t> bytes_of(const Array& x) {
  switch (itemsize(x.dtype())) {
    case 1:
      return bytes_of<std::uint8_t>(x);
    case 2:
      return bytes_of<std::uint16_t>(x);
    case 4:
      return bytes_of<std::uint32_t>(x);
    default:
      return bytes_of<std::uint64_t>(x);
  }
}

int deletions = 0;

template <class Tensor>
void try_tensor(Description d, const std::vector<std::int64_t>& at) {
  static const std::vector<std::uint8_t> given = [] {
    std::vector<std::uint8_t> bytes(kMemory);
    std::iota(bytes.begin(), bytes.end(), std::uint8_t{0});
    return bytes;
  }();
  static std::vector<std::uint8_t> memory = given;  // and so it stays, or the target aborts
  deletions = 0;
  Tensor tensor = {};
  if constexpr (requires { tensor.version; }) {
    tensor.version = {d.major, DLPACK_MINOR_VERSION};
    tensor.flags = d.flags;
  }
  DLTensor& t = tensor.dl_tensor;
  t.data = d.null_data ? nullptr : memory.data() + kOrigin;
  t.device = d.device;
  t.ndim = d.ndim;
  t.dtype = d.dtype;
  t.shape = d.null_shape ? nullptr : d.shape.data();
  t.strides = d.has_strides ? d.strides.data() : nullptr;
  t.byte_offset = d.byte_offset;
  tensor.deleter = [](Tensor*) { ++deletions; };
  try {
    Array x = from_dlpack(&tensor);
    ++tally.accepted;
    require(!d.null_data || at.empty(), "a null pointer has no elements");
    require(x.size() == static_cast<std::int64_t>(at.size()), "the size is the tensor's");
    if (x.dtype() != bool_) {
      const std::vector<std::uint8_t> got = bytes_of(x);
      const auto item = static_cast<std::size_t>(itemsize(x.dtype()));
      for (std::size_t i = 0; i < at.size(); ++i) {
        const std::uint8_t* from =
            memory.data() + kOrigin + static_cast<std::int64_t>(d.byte_offset) + at[i];
        require(std::memcmp(got.data() + i * item, from, item) == 0, "elements are the tensor's");
      }
    }
    (std::move(x) + 1).block_until_ready();  // donated, and still not written to
  } catch (const Error& e) {
    const std::string_view what = e.what();
    require(what.size() > 10 && what.size() < 4000, "a message is neither empty nor endless");
    ++tally.refused;
  }
  require(deletions == 1, "the deleter is called once");
  require(std::memcmp(memory.data(), given.data(), kMemory) == 0,
          "nothing writes to the tensor's memory");
}

}  // namespace

// Options, rank, type, device, offset, then the extents and strides.
std::vector<std::string> seeds() {
  const auto of = [](std::initializer_list<int> bytes) {
    std::string out;
    for (const int b : bytes) out += static_cast<char>(b);
    return out;
  };
  std::vector<std::string> all;
  for (int type = 0; type < 28; ++type) all.push_back(of({0, 2, type, 0, 0, 2, 3}));
  for (const int options : {1, 33, 32, 96}) {
    all.push_back(of({options, 2, 16, 0, 8, 2, 3, 3, 1, 1}));
    all.push_back(of({options, 2, 16, 0, 0, 3, 2, 1, 3, 1}));
    all.push_back(of({options, 1, 16, 0, 4, 4, 254, 1}));
    all.push_back(of({options, 0, 16, 0, 1}));
    all.push_back(of({options, 3, 9, 0, 2, 2, 0, 3, 1, 1, 1}));
    all.push_back(of({options, 2, 23, 0, 0, 2, 2, 0, 1}));
  }
  all.push_back(of({24, 2, 16, 0, 0, 0, 3}));
  all.push_back(of({0, 1, 16, 202, 0, 3}));
  return all;
}

std::vector<std::string> dictionary() {
  std::vector<std::string> all;
  for (int b = 248; b < 256; ++b) all.push_back(std::string(1, static_cast<char>(b)));
  for (int b = 0; b < 8; ++b) all.push_back(std::string(1, static_cast<char>(b)));
  return all;
}

}  // namespace shmap::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace shmap::fuzz;
  const Description d = describe(Bytes(data, size));
  std::vector<std::int64_t> at;
  // A consistent tensor that reaches past its memory cannot be recognised.
  if (!places(d, at)) {
    const bool refused =
        d.null_data || d.ndim < 0 || d.ndim > 100 || d.null_shape ||
        std::any_of(d.shape.begin(), d.shape.end(), [](std::int64_t e) { return e < 0; });
    if (!refused) {
      ++tally.not_tried;
      return 0;
    }
    at.clear();
  }
  if (d.versioned) {
    try_tensor<DLManagedTensorVersioned>(d, at);
  } else {
    try_tensor<DLManagedTensor>(d, at);
  }
  return 0;
}
