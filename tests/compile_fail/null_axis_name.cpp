// wanted: nullptr names no mesh axis: a dim that is not split is `none`
#include <shmap/shmap.h>
using namespace shmap;

P spec() { return P("i", nullptr); }
