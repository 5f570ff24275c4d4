// Our side of the wide table: rows of all families (wide.h), served or timed like those of every
// bench program (support/rows.h).
#include <algorithm>
#include <cstdlib>
#include <memory>

#include "bench/support/rows.h"
#include "bench/wide/wide.h"

namespace {

using namespace shmap;
using namespace shmap::bench;

// Compares the latest result with the first: an operation gives the same bits at every call.
std::string same_samples(const std::vector<std::vector<double>>& got,
                         const std::vector<std::vector<double>>& want) {
  return got == want ? "" : "values other than those of the first call";
}

Work work_of(const WideRow& row) {
  Leaves arguments = make_arguments(row.args, row.mesh_text);
  double bytes = 0;
  for (const Array& x : arguments) bytes += static_cast<double>(x.nbytes());
  auto result = std::make_shared<Leaves>();
  auto first = std::make_shared<std::vector<std::vector<double>>>();
  const auto call = [result, f = row.bind(std::move(arguments))] {
    result->clear();  // the next result reuses its memory
    *result = f();
    for (const Array& x : *result) x.block_until_ready();
  };
  call();
  *first = sample_of(*result);
  for (const Array& x : *result) bytes += static_cast<double>(x.nbytes());
  Work work;
  work.call = call;
  work.check = [result, first] { return same_samples(sample_of(*result), *first); };
  work.about = Json::object()
                   .set("args", row.args)
                   .set("mesh", row.mesh_text)
                   .set("flops", row.flop_count)
                   .set("bytes", row.byte_count > 0 ? row.byte_count : bytes);
  Json samples = Json::list();
  for (const std::vector<double>& leaf : *first) {
    Json values = Json::list();
    for (const double v : leaf) values.push(v);
    samples.push(values);
  }
  work.about.set("sample", samples);
  Json dtypes = Json::list();
  for (const Array& leaf : *result) dtypes.push(short_name(leaf.dtype()));
  work.about.set("dtypes", dtypes);
  return work;
}

}  // namespace

int main(int argc, char** argv) {
  const char* devices = std::getenv("SHMAP_DEVICES");
  init(argc, argv, {.devices = devices == nullptr ? "cpu:8" : devices});
  WideRows wide;
  for (auto* add : {add_elementwise, add_reductions, add_products, add_shapes, add_gathers,
                    add_loops, add_random, add_training, add_meshes})
    add(wide);
  std::vector<Row> rows;
  for (const WideRow& row : wide.all()) {
    Units units;
    units.flops = row.flop_count;
    rows.push_back({row.name, units, [&row] { return work_of(row); }});
  }
  return bench_main(argc, argv, "shmap_wide", rows,
                    {{"devices", devices == nullptr ? "cpu:8" : devices}});
}
