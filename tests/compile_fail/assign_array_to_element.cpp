// wanted: x[...] is a new array: to change x
#include <shmap/shmap.h>
using namespace shmap;

void change(Array x, Array y) { x[0] = y; }
