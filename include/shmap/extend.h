// The library's inside for those who build on it (jax.extend): programs as data, interpreters,
// primitives and kernels of one's own. Names here may change from one version to the next.
#pragma once
#include "shmap/extend/core.h"
#include "shmap/extend/interpreters.h"
#include "shmap/extend/params.h"
#include "shmap/extend/primitive.h"
#include "shmap/extend/random.h"
#include "shmap/extend/sharding.h"
