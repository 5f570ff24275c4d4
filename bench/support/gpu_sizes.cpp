#include "bench/support/gpu_sizes.h"

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

namespace shmap::bench {

std::int64_t scaled(std::int64_t extent) {
  static const std::int64_t divisor = [] {
    const char* text = std::getenv("SHMAP_BENCH_SCALE");
    if (text == nullptr || *text == 0) return std::int64_t{1};
    char* end = nullptr;
    const std::int64_t value = std::strtoll(text, &end, 10);
    if (*end != 0 || value < 1)
      throw std::runtime_error("SHMAP_BENCH_SCALE is '" + std::string(text) +
                               "': a whole number from 1 on is wanted");
    return value;
  }();
  return std::max(std::min<std::int64_t>(extent, 16), extent / divisor);
}

std::string ProductSize::name() const {
  return "matmul_" + std::to_string(m) + "x" + std::to_string(k) + "x" + std::to_string(n);
}

std::vector<ProductSize> square_products() {
  return {{4096, 4096, 4096}, {8192, 8192, 8192}, {16384, 16384, 16384}};
}

std::vector<ProductSize> odd_products() {
  return {{1000, 1000, 1000},  {1111, 3333, 2222}, {2047, 2047, 2047}, {2049, 2049, 2049},
          {3000, 3000, 3000},  {4095, 4096, 4097}, {5000, 5000, 5000}, {6000, 1536, 1536},
          {8191, 1024, 8193},  {16, 8192, 8192},   {64, 4096, 14336},  {128, 8192, 8192},
          {8192, 127, 8192},   {8192, 8192, 64},   {12288, 768, 3072}, {2560, 2560, 10240},
          {4096, 11008, 4096}, {7168, 7168, 2112}, {512, 16384, 512},  {333, 9999, 777}};
}

std::string RingProduct::name() const {
  return "cm_" + std::to_string(devices) + "_" + std::to_string(rows);
}

std::vector<RingProduct> ring_products() {
  std::vector<RingProduct> all;
  for (const std::int64_t devices : {2, 4, 8})
    for (const std::int64_t rows : {1024, 2048, 4096}) all.push_back({devices, rows});
  return all;
}

AttentionSize attention_size() { return {4, 16, scaled(4096), 128}; }

std::string AttentionRow::name() const {
  return (is_f16 ? "attention_f16_" : "attention_bf16_") + std::to_string(rows);
}

std::vector<AttentionRow> attention_rows() {
  return {{false, 16, 1024}, {false, 8, 2048},  {false, 4, 4096},
          {false, 2, 8192},  {false, 16, 1000}, {false, 4, 4095},
          {false, 2, 8191},  {true, 16, 1000},  {true, 4, 4096}};
}

std::string SmallProduct::name() const {
  return std::string("small_") + dtype + "_" + std::to_string(rows) + "x" + std::to_string(side);
}

std::vector<SmallProduct> small_products() {
  return {{"f32", 64, 64},  {"f32", 128, 128}, {"f32", 256, 256},
          {"f32", 16, 512}, {"bf16", 64, 64},  {"bf16", 128, 128},
          {"f16", 64, 64},  {"f64", 64, 64},   {"f64", 128, 128}};
}

std::vector<std::int64_t> matrix_rows() { return {4096, 8192, 16384}; }

}  // namespace shmap::bench
