// Gradients, training steps, and programs that transforms make.
#include "bench/wide/wide.h"

namespace shmap::bench {
namespace {

// The loss of logits for classes, by label.
Array cross_entropy(const Array& logits, const Array& labels) {
  const int classes = static_cast<int>(logits.shape()[1]);
  return -mean(sum(log_softmax(logits) * one_hot(labels, classes, logits.dtype()), 1));
}

struct Net {
  Array w1, b1, w2, b2, w3, b3;
};

Array net_loss(Net n, Array x, Array labels) {
  const Array h = relu(matmul(x, n.w1) + n.b1);
  return cross_entropy(matmul(relu(matmul(h, n.w2) + n.b2), n.w3) + n.b3, labels);
}

// The operations of a step on so many examples of so many features, with two hidden layers. The
// first layer has two products, since nothing asks for the cotangent of x; the others have three.
double step_flops(double examples, double features, double first, double second, double classes) {
  return 2 * examples * (2 * features * first + 3 * first * second + 3 * second * classes);
}

// One step of gradient descent.
Leaves net_step(Array w1, Array b1, Array w2, Array b2, Array w3, Array b3, Array x, Array labels) {
  const Net net{w1, b1, w2, b2, w3, b3};
  const auto [loss, g] = value_and_grad(net_loss)(net, x, labels);
  return {loss,
          w1 - 0.1f * g.w1,
          b1 - 0.1f * g.b1,
          w2 - 0.1f * g.w2,
          b2 - 0.1f * g.b2,
          w3 - 0.1f * g.w3,
          b3 - 0.1f * g.b3};
}

Array attention(const Array& q, const Array& k, const Array& v) {
  const Array scores = einsum("bqhd,bkhd->bhqk", q, k) * 0.125f;
  return einsum("bhqk,bkhd->bqhd", softmax(scores), v);
}

// Attention as one operation, on sequences whose scores do not fit in the cache.
void add_long_attention(WideRows& rows) {
  const char* const args = "f32[1,2048,8,64] f32[1,2048,8,64] f32[1,2048,8,64]";
  constexpr double product = 2. * 8 * 2048 * 2048 * 64;
  for (const bool causal : {false, true}) {
    const std::string name = causal ? "attention_causal_2048" : "attention_2048";
    const double share = causal ? 0.5 : 1;
    const auto attend = [causal](Array q, Array k, Array v) {
      return shmap::attention(q, k, v, {.is_causal = causal});
    };
    rows.jit(name, args, attend).flops(2 * product * share);
    rows.jit(name + "_grad", args,
             [attend](Array q, Array k, Array v) {
               return grad<0, 1, 2>([attend](Array q, Array k, Array v) {
                 return mean(square(attend(q, k, v)));
               })(q, k, v);
             })
        .flops(6 * product * share);
  }
}

}  // namespace

void add_training(WideRows& rows) {
  rows.jit("mlp_step",
           "f32[784,256]*0.05 f32[256] f32[256,128]*0.05 f32[128] f32[128,10]*0.1 f32[10] "
           "f32[128,784] i32[128]<10",
           net_step)
      .flops(step_flops(128, 784, 256, 128, 10));
  rows.jit("mlp_step_odd",
           "f32[301,203]*0.05 f32[203] f32[203,97]*0.05 f32[97] f32[97,13]*0.1 f32[13] "
           "f32[111,301] i32[111]<13",
           net_step)
      .flops(step_flops(111, 301, 203, 97, 13));
  rows.jit("mlp_step_f64",
           "f64[256,256]*0.05 f64[256] f64[256,128]*0.05 f64[128] f64[128,10]*0.1 f64[10] "
           "f64[256,256] i32[256]<10",
           net_step)
      .flops(step_flops(256, 256, 256, 128, 10));
  rows.jit("mlp_step_bf16",
           "bf16[512,256]*0.05 bf16[256] bf16[256,256]*0.05 bf16[256] bf16[256,16]*0.1 bf16[16] "
           "bf16[128,512] i32[128]<16",
           net_step);
  rows.jit("mlp_step_tiny",
           "f32[10,32] f32[32] f32[32,32]*0.2 f32[32] f32[32,2] f32[2] f32[16,10] i32[16]<2",
           net_step);
  rows.eager("eager_mlp_forward", "f32[64,100]*0.1 f32[64] f32[32,100]",
             [](Array w, Array b, Array x) { return tanh(matmul(x, transpose(w)) + b); });
  rows.jit("logistic_regression_grad", "f64[100]*0.1 f64[5000,100] i32[5000]<2",
           [](Array w, Array x, Array y) {
             return value_and_grad([&](Array w) {
               const Array p = logistic(matmul(x, w));
               return -mean(where(y > 0, log(p + 1e-9), log(1. - p + 1e-9)));
             })(w);
           });
  rows.jit("cross_entropy_grad", "f32[1024,1000] i32[1024]<1000",
           [](Array x, Array labels) { return value_and_grad(cross_entropy)(x, labels); });
  rows.jit("layer_norm_grad", "f32[1024,768] f32[768] f32[768] f32[1024,768]",
           [](Array x, Array scale, Array bias, Array bar) {
             return grad<0, 1, 2>([&](Array x, Array scale, Array bias) {
               return sum(layer_norm(x, scale, bias) * bar);
             })(x, scale, bias);
           });
  rows.jit("softmax_grad", "f32[1024,1024] f32[1024,1024]", [](Array x, Array bar) {
    return grad([&](Array x) { return sum(softmax(x) * bar); })(x);
  });
  rows.jit("gelu_grad_bf16", "bf16[1024,1024] bf16[1024,1024]",
           [](Array x, Array bar) { return grad([&](Array x) { return sum(gelu(x) * bar); })(x); });
  rows.jit("adam_1m", "f32[1000003] f32[1000003] f32[1000003]*0.1 f32[1000003]+",
           [](Array w, Array g, Array m, Array v) {
             m = 0.9f * m + 0.1f * g;
             v = 0.999f * v + 0.001f * square(g);
             return std::tuple{w - 0.001f * m / (sqrt(v) + 1e-8f), m, v};
           });
  rows.jit("attention", "f32[4,128,8,64] f32[4,128,8,64] f32[4,128,8,64]",
           [](Array q, Array k, Array v) { return attention(q, k, v); })
      .flops(4.0 * 32 * 128 * 128 * 64);
  rows.jit("attention_grad", "f32[4,128,8,64] f32[4,128,8,64] f32[4,128,8,64]",
           [](Array q, Array k, Array v) {
             return grad<0, 1, 2>([](Array q, Array k, Array v) {
               return mean(square(attention(q, k, v)));
             })(q, k, v);
           })
      .flops(12.0 * 32 * 128 * 128 * 64);
  rows.jit("attention_odd", "f32[2,77,12,64] f32[2,77,12,64] f32[2,77,12,64]",
           [](Array q, Array k, Array v) { return attention(q, k, v); })
      .flops(4.0 * 24 * 77 * 77 * 64);
  add_long_attention(rows);
  rows.jit("examples_gradients", "f32[50,20] f32[256,50] f32[256,20]",
           [](Array w, Array x, Array y) {
             const auto loss = [](Array w, Array x, Array y) {
               return sum(square(tanh(matmul(x, w)) - y));
             };
             return vmap(grad(loss), {none, 0, 0})(w, x, y);
           });
  rows.jit("hessian_40", "f32[40] f32[40,40]", [](Array x, Array a) {
    return hessian([&](Array x) { return sum(sin(matmul(a, x)) * x); })(x);
  });
  rows.jit("jvp_chain", "f32[500,501] f32[500,501]", [](Array x, Array x_dot) {
    return jvp([](Array x) { return exp(sin(x)) * x; }, std::tuple{x}, std::tuple{x_dot});
  });
  rows.eager("eager_grad", "f32[100,100] f32[32,100]", [](Array w, Array x) {
    return grad([&](Array w) { return mean(square(tanh(matmul(x, w)))); })(w);
  });
  rows.jit("checkpoint_grad", "f32[256,256]*0.1 f32[256,256]", [](Array w, Array x) {
    const auto layer = checkpoint([](Array w, Array x) { return tanh(matmul(x, w)); });
    return grad([&](Array w) { return sum(layer(w, layer(w, layer(w, x)))); })(w);
  });
}

}  // namespace shmap::bench
