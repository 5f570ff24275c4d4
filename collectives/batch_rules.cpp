#include "collectives/batch_rules.h"

#include "collectives/primitives.h"

namespace shmap {

namespace {

// The position at which dim `at` of one example is inserted in an array with batch dim `dim`, and
// the batch dim afterwards.
struct InsertedDim {
  int at, dim;
};
InsertedDim insert_dim(int at, int dim) {
  return at <= dim ? InsertedDim{at, dim + 1} : InsertedDim{at + 1, dim};
}

}  // namespace

void batch_gather_blocks(BatchCall& call) {
  AllGatherParams params(params_as<AllGatherParams>(call.params));
  int dim = call.dims[0];
  if (params.tiled) {
    params.dimension = static_cast<int>(past(params.dimension, dim));
  } else {
    const InsertedDim inserted = insert_dim(params.dimension, dim);
    params.dimension = inserted.at;
    dim = inserted.dim;
  }
  give(call, call.in[0], params, dim);
}

void batch_scatter_blocks(BatchCall& call) {
  ScatterParams params(params_as<ScatterParams>(call.params));
  int dim = call.dims[0];
  params.dimension = static_cast<int>(past(params.dimension, dim));
  if (!params.tiled && params.dimension < dim) --dim;
  give(call, call.in[0], params, dim);
}

void batch_all_to_all(BatchCall& call) {
  AllToAllParams params(params_as<AllToAllParams>(call.params));
  int dim = call.dims[0];
  params.split_axis = static_cast<int>(past(params.split_axis, dim));
  if (params.tiled) {
    params.concat_axis = static_cast<int>(past(params.concat_axis, dim));
  } else {
    // First the split dim is removed, then another dim is inserted.
    if (params.split_axis < dim) --dim;
    const InsertedDim inserted = insert_dim(params.concat_axis, dim);
    params.concat_axis = inserted.at;
    dim = inserted.dim;
  }
  give(call, call.in[0], params, dim);
}

}  // namespace shmap
