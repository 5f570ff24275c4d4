// A custom primitive: softplus(x) = log(1 + exp(x)), with a CPU kernel in plain C++ and the rules
// by which it can be differentiated, mapped and split over devices. After that it works wherever
// the library's operations do: in eager code, shard_map bodies, jit, grad, vmap.
//
// Values are compared with the C++ library's, derivatives with finite differences of those. The
// exit code is 1 if they differ.
#include <shmap/shmap.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

using namespace shmap;

template <class T>
T softplus_of(T x) {
  return std::max(x, T(0)) + std::log1p(std::exp(-std::abs(x)));
}

extend::Primitive make_softplus() {
  extend::Primitive p("softplus");
  p.def_abstract_eval([](ShapedArray x) {
     if (x.dtype() != f32)  // bind converts nothing, and the kernel reads floats
       throw TypeError("softplus: wanted f32, and " + to_string(x) + " was given");
     return x;  // the result's type is the operand's
   })
      .def_cpu_kernel([](const extend::KernelArgs& k) {
        const float* x = k.input<float>(0);
        float* y = k.output<float>();
        const std::int64_t n = k.out_types[0].dims().num_elements();
        for (std::int64_t e = 0; e < n; ++e) y[e] = softplus_of(x[e]);
      })
      // For devices without a kernel: the same in operations of the library.
      .def_impl([](Array x) { return maximum(x, 0.f) + log1p(exp(-abs(x))); })
      .def_jvp([p](extend::Arrays x, extend::Arrays x_dot) {
        return std::pair{p.bind(x[0]), logistic(x[0]) * x_dot[0]};
      })
      .def_batching([p](extend::Arrays x, std::vector<int> dims) {
        return std::pair{p.bind(x[0]), dims[0]};  // elementwise: the batch dim stays where it is
      })
      // A letter for each dim, "ab->ab" for a matrix: every dim may be split over devices.
      .def_sharding_rule([](extend::ArrayTypes in, extend::ArrayTypes) {
        const std::string dims = std::string("abcdefgh").substr(0, std::size_t(in[0].rank()));
        return dims + "->" + dims;
      });
  return p;
}

int main() {
  const extend::Primitive softplus = make_softplus();
  const Mesh mesh = make_mesh({devices().size()}, {"i"});
  const Array x = linspace(-5.f, 5.f, 16 * mesh.size());
  auto f = shard_map([=](Array block) { return softplus.bind(block); }, mesh, P("i"), P("i"));

  const Array y = jit(f)(x);
  const Array slope = grad([&](Array v) { return sum(f(v)); })(x);
  const Array slopes = vmap(grad([&](Array v) { return softplus.bind(v); }))(x);
  std::cout << make_jaxpr(f)(x) << "\n";

  double value_error = 0, slope_error = 0;
  const std::vector<float> xs = x.to_vector<float>(), ys = process_allgather(y).to_vector<float>(),
                           ds = process_allgather(slope).to_vector<float>(),
                           vs = slopes.to_vector<float>();
  for (std::size_t k = 0; k < xs.size(); ++k) {
    const double at = xs[k], h = 1e-5;
    const double want = (softplus_of(at + h) - softplus_of(at - h)) / (2 * h);
    value_error = std::max(value_error, std::abs(ys[k] - softplus_of(at)));
    slope_error = std::max({slope_error, std::abs(ds[k] - want), std::abs(vs[k] - want)});
  }
  std::cout << xs.size() << " values, at most " << value_error << " off the C++ library's; slopes "
            << slope_error << " off finite differences\n";
  return value_error < 1e-6 && slope_error < 1e-6 ? 0 : 1;
}
