// The dtypes that an operation takes: a column of the lists of operations.
#pragma once
#include <cstdint>
#include <vector>

#include "shmap/dtype.h"

namespace shmap {

enum class Domain : std::uint8_t {
  floats,
  integers,
  numbers,  // integers and floats
  bits,     // integers and bool
  plain,    // all of these: every dtype but prng_key
};

constexpr bool in_domain(DType t, Domain domain) {
  switch (domain) {
    case Domain::floats:
      return is_floating(t);
    case Domain::integers:
      return is_integer(t);
    case Domain::numbers:
      return is_integer(t) || is_floating(t);
    case Domain::bits:
      return is_integer(t) || t == DType::bool_;
    case Domain::plain:
      return t != DType::prng_key;
  }
  return false;
}

std::vector<DType> dtypes_of(Domain domain);

// The dtypes of a domain in words, for errors.
constexpr const char* domain_words(Domain domain) {
  switch (domain) {
    case Domain::floats:
      return "floats";
    case Domain::integers:
      return "integers";
    case Domain::numbers:
      return "integers or floats";
    case Domain::bits:
      return "bools or integers";
    case Domain::plain:
      return "bools, integers or floats";
  }
  return "";
}

// Called when a backend registers the kernels of the primitive of that name: throws Error if `has`
// is false for a dtype of the domain.
void check_kernels(const char* primitive, Domain domain, bool (*has)(DType dtype));
// The same for a primitive whose kernel also depends on the dtype of its result, which is one of
// `outs`.
void check_kernels(const char* primitive, Domain domain, const std::vector<DType>& outs,
                   bool (*has)(DType in, DType out));

}  // namespace shmap
