// wanted: x[...] is a new array, and assigning to it would change nothing
#include <shmap/shmap.h>
using namespace shmap;

void change(Array x, Array y) { x[0] = y; }
