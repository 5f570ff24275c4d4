// The parts of the library for programs that extend it (jax.extend): programs as data,
// interpreters, and primitives with kernels of one's own. Names in these headers may change between
// versions.
#pragma once
#include "shmap/extend/core.h"
#include "shmap/extend/interpreters.h"
#include "shmap/extend/params.h"
#include "shmap/extend/primitive.h"
#include "shmap/extend/random.h"
#include "shmap/extend/sharding.h"
