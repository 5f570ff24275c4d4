// The headers for programs that extend the library (jax.extend): programs as data, interpreters of
// programs, and primitives with kernels that a user writes. Names in these headers may change
// between versions.
#pragma once
#include "shmap/extend/core.h"
#include "shmap/extend/interpreters.h"
#include "shmap/extend/params.h"
#include "shmap/extend/primitive.h"
#include "shmap/extend/random.h"
#include "shmap/extend/sharding.h"
