// The one header of a program that uses the library, with the standard headers whose names stand in
// the interface, or beside it in most programs (std::function holds a mapped function).
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "shmap/array.h"
#include "shmap/axes.h"
#include "shmap/collectives.h"
#include "shmap/control_flow.h"
#include "shmap/counters.h"
#include "shmap/debug.h"
#include "shmap/device.h"
#include "shmap/dtype.h"
#include "shmap/error.h"
#include "shmap/half.h"
#include "shmap/io.h"
#include "shmap/jaxpr.h"
#include "shmap/jit.h"
#include "shmap/make_jaxpr.h"
#include "shmap/mesh.h"
#include "shmap/ops.h"
#include "shmap/partition_spec.h"
#include "shmap/profiler.h"
#include "shmap/shape.h"
#include "shmap/shaped_array.h"
#include "shmap/shard_map.h"
#include "shmap/slice.h"
#include "shmap/tree.h"
