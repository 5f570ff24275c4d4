// Compiled with -Wshadow, -Wconversion and -Wsign-conversion, and with the headers as the program's
// own.
#include <shmap/shmap.h>

#include <cstddef>
#include <cstdint>
#include <vector>

// Extents, dims and counts of the types that programs have them in.
shmap::Array calls(const shmap::Array& x, std::int64_t n, std::size_t count) {
  const std::vector<float> rows(count);
  shmap::Array y = shmap::sum(x, n) + shmap::sum(x, count) + shmap::sum(x, rows.size());
  y = shmap::reshape(y, {n, count, -1});
  y = shmap::tile(shmap::roll(y, n), n);
  y = shmap::repeat(y, n, 0) + shmap::tril(y, n) + shmap::diagonal(y, n);
  y = shmap::one_hot(y, n) + shmap::top_k(y, n).first + shmap::slice(y, n, 2 * n);
  return y[{shmap::ellipsis, n, shmap::none, shmap::range(count)}];
}

int main() { return shmap::AllGatherEinsumOptions{.form = shmap::Overlap::none}.axis; }
