// gpu_smoke [--list | LOOK [SIZE]]: one look at one part of the library on the devices of
// SHMAP_DEVICES, its values beside a plain loop on the host. Says "LOOK ok" with its time, or what
// is wrong and exits with 1. scripts/gpu_check runs each look before it relies on any, and profiles
// some.
#include <shmap/shmap.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

namespace {

using namespace shmap;

// Values in [-1, 1), the same at every run.
std::vector<float> values(std::int64_t n, std::uint32_t seed) {
  std::vector<float> out(static_cast<std::size_t>(n));
  for (float& v : out) {
    seed = seed * 1664525u + 1013904223u;
    v = static_cast<float>(seed >> 8) * 0x1p-23f - 1.f;
  }
  return out;
}

// Returns what is wrong, or "": compares got[k] with want(k), within `tolerance` of 1 + |want|.
std::string compare(const std::vector<float>& got, const std::function<double(std::size_t)>& want,
                    double tolerance, std::size_t every = 1) {
  for (std::size_t k = 0; k < got.size(); k += every) {
    const double w = want(k);
    if (!(std::abs(got[k] - w) <= tolerance * (1 + std::abs(w)))) {
      return "element " + std::to_string(k) + " is " + std::to_string(got[k]) + ", wanted " +
             std::to_string(w);
    }
  }
  return "";
}

std::string elementwise(std::int64_t n) {
  const std::vector<float> a = values(n * n, 1);
  const Array y = tanh(array<float>(a, {n * n})) * 2.f + 1.f;
  return compare(
      y.to_vector<float>(), [&](std::size_t k) { return std::tanh(a[k]) * 2.0 + 1; }, 1e-6, 97);
}

std::string fused_replays(std::int64_t n) {
  const std::vector<float> a = values(n * n, 2);
  const Array x = array<float>(a, {n * n});
  const auto f = jit([](Array v) { return sin(v) * exp(v) + v / 3.f; });
  std::string wrong;
  for (int call = 0; call < 4 && wrong.empty(); ++call) {
    wrong = compare(
        f(x).to_vector<float>(),
        [&](std::size_t k) { return std::sin(a[k]) * std::exp(a[k]) + a[k] / 3.0; }, 1e-6, 97);
  }
  return wrong;
}

std::string reductions(std::int64_t n) {
  const std::vector<float> a = values(n * n, 3);
  const Array x = array<float>(a, {n, n});
  const auto item = [&](std::size_t r, std::size_t c) {
    return a[r * static_cast<std::size_t>(n) + c];
  };
  const auto count = static_cast<std::size_t>(n);
  std::string wrong = compare(
      sum(x, 0).to_vector<float>(),
      [&](std::size_t c) {
        double s = 0;
        for (std::size_t r = 0; r < count; ++r) s += item(r, c);
        return s;
      },
      1e-4);
  if (!wrong.empty()) return "of columns: " + wrong;
  wrong = compare(
      max(x, 1).to_vector<float>(),
      [&](std::size_t r) {
        float m = item(r, 0);
        for (std::size_t c = 1; c < count; ++c) m = std::max(m, item(r, c));
        return static_cast<double>(m);
      },
      0);
  return wrong.empty() ? "" : "of rows: " + wrong;
}

std::string products(std::int64_t n) {
  const std::vector<float> a = values(n * n, 4), b = values(n * n, 5);
  const Array x = array<float>(a, {n, n}), y = array<float>(b, {n, n});
  const auto want = [&](std::size_t k) {
    const auto count = static_cast<std::size_t>(n);
    double s = 0;
    for (std::size_t i = 0; i < count; ++i)
      s += static_cast<double>(a[k / count * count + i]) * b[i * count + k % count];
    return s;
  };
  std::string wrong = compare(matmul(x, y).to_vector<float>(), want, 1e-3, 9973);
  if (!wrong.empty()) return "f32: " + wrong;
  const Array half = matmul(astype(x, bf16), astype(y, bf16));
  wrong = compare(astype(half, f32).to_vector<float>(), want, 0.15, 9973);
  return wrong.empty() ? "" : "bf16: " + wrong;
}

std::string transposes(std::int64_t n) {
  const std::vector<float> a = values(2 * n * n, 6);
  const auto count = static_cast<std::size_t>(n);
  return compare(
      transpose(array<float>(a, {2 * n, n})).to_vector<float>(),
      [&](std::size_t k) { return a[k % (2 * count) * count + k / (2 * count)]; }, 0, 97);
}

std::string softmaxes(std::int64_t n) {
  const std::vector<float> a = values(n * n, 7);
  const auto count = static_cast<std::size_t>(n);
  const auto f = jit([](Array x) { return softmax(x * 4.f); });
  const Array x = array<float>(a, {n, n});
  f(x).block_until_ready();
  return compare(
      f(x).to_vector<float>(),
      [&](std::size_t k) {
        double total = 0;
        for (std::size_t c = 0; c < count; ++c) total += std::exp(4.0 * a[k / count * count + c]);
        return std::exp(4.0 * a[k]) / total;
      },
      1e-6, 9973);
}

std::string attentions(std::int64_t n) {
  const std::int64_t heads = 4, depth = 128;
  const std::vector<float> q = values(heads * n * depth, 8), k = values(heads * n * depth, 9),
                           v = values(heads * n * depth, 10);
  const Shape shape = {heads, n, depth};
  const auto half = [&](const std::vector<float>& from) {
    return astype(array<float>(from, shape), bf16);
  };
  const auto f = jit([](Array a, Array b, Array c) {
    const Array scores = einsum("hqd,hkd->hqk", a, b) * 0.0883883476f;
    return einsum("hqk,hkd->hqd", softmax(scores), c);
  });
  const Array a = half(q), b = half(k), c = half(v);
  f(a, b, c).block_until_ready();
  const auto rows = static_cast<std::size_t>(n), width = static_cast<std::size_t>(depth);
  return compare(
      astype(f(a, b, c), f32).to_vector<float>(),
      [&](std::size_t at) {
        const std::size_t head = at / (rows * width), row = at / width, d = at % width;
        double total = 0, out = 0;
        for (std::size_t key = 0; key < rows; ++key) {
          const std::size_t other = (head * rows + key) * width;
          double score = 0;
          for (std::size_t i = 0; i < width; ++i)
            score += static_cast<double>(q[row * width + i]) * k[other + i];
          const double weight = std::exp(score * 0.0883883476);
          total += weight;
          out += weight * v[other + d];
        }
        return out / total;
      },
      0.02, 99991);
}

std::string sorts(std::int64_t n) {
  std::vector<float> a = values(n * n, 11);
  const std::vector<float> got = sort(array<float>(a, {n * n})).to_vector<float>();
  std::sort(a.begin(), a.end());
  return compare(
      got, [&](std::size_t k) { return a[k]; }, 0);
}

std::string gathers(std::int64_t n) {
  const std::vector<float> a = values(n * n, 12);
  std::vector<std::int32_t> index(static_cast<std::size_t>(n));
  for (std::size_t k = 0; k < index.size(); ++k)
    index[k] = static_cast<std::int32_t>((k * 7919) % static_cast<std::size_t>(n));
  const Array rows = take(array<float>(a, {n, n}), array<std::int32_t>(index, {n}), 0);
  const auto count = static_cast<std::size_t>(n);
  return compare(
      rows.to_vector<float>(),
      [&](std::size_t k) {
        return a[static_cast<std::size_t>(index[k / count]) * count + k % count];
      },
      0, 97);
}

std::string collectives(std::int64_t n) {
  const int count = static_cast<int>(devices().size());
  const Mesh mesh = make_mesh({count}, {"i"});
  const std::vector<float> a = values(n * count, 13);
  const auto f = shard_map(
      [count](Array x) {
        std::vector<std::pair<int, int>> ring;
        for (int k = 0; k < count; ++k) ring.emplace_back(k, (k + 1) % count);
        return psum(ppermute(x, "i", ring), "i");
      },
      mesh, P("i"), P());
  const auto want = [&](std::size_t k) {
    double s = 0;
    for (int d = 0; d < count; ++d)
      s += a[static_cast<std::size_t>(d) * static_cast<std::size_t>(n) + k];
    return s;
  };
  const Array x = array<float>(a, {n * count});
  std::string wrong = compare(f(x).to_vector<float>(), want, 1e-5);
  if (!wrong.empty()) return "eager: " + wrong;
  const auto replayed = jit(f);
  for (int call = 0; call < 3 && wrong.empty(); ++call)
    wrong = compare(replayed(x).to_vector<float>(), want, 1e-5);
  return wrong.empty() ? "" : "jit: " + wrong;
}

struct Look {
  const char* name;
  std::string (*run)(std::int64_t size);
};
constexpr Look kLooks[] = {
    {"elementwise", elementwise}, {"fused", fused_replays},  {"reduction", reductions},
    {"matmul", products},         {"transpose", transposes}, {"softmax", softmaxes},
    {"attention", attentions},    {"sort", sorts},           {"gather", gathers},
    {"collectives", collectives},
};

int run(const Look& look, std::int64_t size) {
  const auto start = std::chrono::steady_clock::now();
  std::string wrong;
  try {
    wrong = look.run(size);
  } catch (const std::exception& error) {
    wrong = error.what();
  }
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  std::printf("%s %s (%.0f ms)\n", look.name, wrong.empty() ? "ok" : wrong.c_str(), took.count());
  std::fflush(stdout);
  return wrong.empty() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "--list") == 0) {
    for (const Look& look : kLooks) std::printf("%s\n", look.name);
    return 0;
  }
  const std::int64_t size = argc > 2 ? std::atoll(argv[2]) : 1024;
  int status = 0, found = 0;
  for (const Look& look : kLooks) {
    if (argc > 1 && std::strcmp(argv[1], look.name) != 0) continue;
    ++found;
    status |= run(look, size);
  }
  if (found == 0) {
    std::fprintf(stderr, "gpu_smoke: no look %s; --list names them\n", argv[1]);
    return 2;
  }
  return status;
}
