// Sizes of the rows on one GPU, which our programs and the raw CUDA calls share.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace shmap::bench {

// An extent divided by SHMAP_BENCH_SCALE (default 1), but at least 16 if the extent was: to check
// on a slow machine that the programs run. Throws std::runtime_error unless the variable is a
// positive whole number.
std::int64_t scaled(std::int64_t extent);

struct ProductSize {
  std::int64_t m, k, n;
  std::string name() const;  // "matmul_4096x1024x512": m, k, n, unscaled
  double flops() const { return 2.0 * double(m) * double(k) * double(n); }
  ProductSize small() const { return {scaled(m), scaled(k), scaled(n)}; }
};

std::vector<ProductSize> square_products();  // 4096, 8192, 16384
std::vector<ProductSize> odd_products();     // 20 that no tile size divides, or that are long in
                                             // one direction

// The collective matmul: `devices` shards of `rows` × kInner, and kInner columns per device.
struct RingProduct {
  std::int64_t devices, rows;
  static constexpr std::int64_t kInner = 4096;
  std::string name() const;  // "cm_8_1024": devices, rows
  ProductSize whole() const { return {devices * rows, kInner, devices * kInner}; }
};
std::vector<RingProduct> ring_products();  // 2, 4, 8 devices by 1024, 2048, 4096 rows

// The ring whose products should take a little longer than its copies if these go over PCIe. (With
// two thirds of the columns an H200 took 5.5 ms for the products and 6.8 ms for the copies.) Each
// device's block of lhs moves 4 MiB per step and is multiplied with many columns.
struct StagedRing {
  static constexpr std::int64_t kDevices = 8, kRows = 1024, kInner = 2048, kColumns = 24576;
  static ProductSize whole() { return {kDevices * kRows, kInner, kDevices * kColumns}; }
};

// Memory-bound rows: matrices of float with kColumns columns.
constexpr std::int64_t kColumns = 4096;
std::vector<std::int64_t> matrix_rows();  // 4096, 8192, 16384

// Attention: batch, heads, rows of q and of k, features of each.
struct AttentionSize {
  std::int64_t batch, heads, rows, depth;
  double flops() const { return 4.0 * double(batch * heads) * double(rows) * double(rows * depth); }
};
AttentionSize attention_size();  // 4, 16, 4096, 128; the rows scaled

// The forward pass in other sizes and dtypes: 16 heads of depth 128, 16384 rows of q or fewer in
// all.
struct AttentionRow {
  bool is_f16;  // else bf16
  std::int64_t batch, rows;
  std::string name() const;  // "attention_bf16_1024", unscaled
  AttentionSize size() const { return {batch, 16, scaled(rows), 128}; }
};
std::vector<AttentionRow> attention_rows();  // 1024 to 8192, and three that no tile size divides

// A chain of kSmallChained products of `rows` × `side` by `side` × `side`, small enough for the
// library's own kernel.
struct SmallProduct {
  const char* dtype;  // "f32"
  std::int64_t rows, side;
  std::string name() const;  // "small_f32_64x64": dtype, rows, side
};
std::vector<SmallProduct> small_products();

constexpr std::int64_t kSummands = 8, kSummandFloats = std::int64_t{16} << 20;  // psum, 64 MB each
constexpr std::int64_t kRandoms = std::int64_t{16} << 20;                       // of bits, and of
                                                                                // normals
constexpr std::uint32_t kRandomKey[2] = {0, 42};                                // the key of both
constexpr std::int64_t kKeys = std::int64_t{1} << 20, kOfKey = 16;  // of bits of many keys
constexpr std::int64_t kPoints = 2000, kCoordinates = 64;           // of distances, of each side
constexpr int kChained = 100, kBranches = 8;                        // in the replays
constexpr int kSmallChained = 50;                                   // in the small products

}  // namespace shmap::bench
