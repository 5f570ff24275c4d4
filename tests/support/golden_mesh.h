// The mesh and specs of a golden case of shard_map.
#pragma once
#include <string>
#include <vector>

#include "shmap/mesh.h"
#include "shmap/partition_spec.h"
#include "tests/support/golden.h"

namespace shmap::testing {

// "i,none,(j,i)": an entry a dim; "" is P().
PartitionSpec parse_spec(const std::string& text);

// The case's mesh, over the first devices or, with the parameter `devices`, over those numbers.
Mesh case_mesh(const GoldenCase& c);

Specs case_in_specs(const GoldenCase& c);   // a list, one entry an argument
Specs case_out_specs(const GoldenCase& c);  // one P, or a list where there are several results

}  // namespace shmap::testing
