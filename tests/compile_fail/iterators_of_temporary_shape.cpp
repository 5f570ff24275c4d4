// wanted: begin, end and data of a temporary shape would point to what is gone
#include <shmap/shmap.h>
using namespace shmap;

std::vector<std::int64_t> extents(const Array& x) { return {x.shape().begin(), x.shape().end()}; }
