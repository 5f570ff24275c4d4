// Llama models with published names compared with JAX: logits of whole sequences, of rows with a
// cache and of split weights, read from files; and errors of bad folders.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "examples/transformer/llama_model.h"
#include "tests/support/error_text.h"
#include "tests/support/golden_array.h"

namespace transformer {
namespace {

using namespace shmap;
using shmap::testing::GoldenCase;

// A folder that is removed in the end.
struct Folder {
  std::string path =
      (std::filesystem::temp_directory_path() / ("shmap-llama-" + std::to_string(::getpid())))
          .string();
  Folder() { std::filesystem::create_directories(path); }
  ~Folder() { std::filesystem::remove_all(path); }
};

LlamaConfig config_of(const GoldenCase& c) {
  return {c.params.integer("layers"), c.params.integer("heads"), c.params.integer("kv_heads"),
          c.params.number("theta"),   c.params.number("eps"),    c.params.flag("tied")};
}
Llama model_of(const GoldenCase& c) {
  std::map<std::string, Array> tensors;
  const std::vector<std::string> names = c.params.texts("names");
  for (std::size_t k = 0; k < names.size(); ++k)
    tensors[names[k]] = shmap::testing::to_array(c.inputs.at(k + 1));
  return llama_from(config_of(c), tensors);
}
std::string difference(const GoldenCase& c, const Array& logits) {
  return shmap::testing::golden_diff(
      c.outputs.at(0), logits, static_cast<int>(c.params.integer("ulp")), c.params.number("atol"));
}

template <class F>
void for_each_case(const F& f) {
  int count = 0;
  for (const GoldenCase& c : shmap::testing::load_golden("llama")) {
    SCOPED_TRACE(c.name);
    ++count;
    f(c, shmap::testing::to_array(c.inputs.at(0)));
  }
  EXPECT_EQ(count, 6);
}

TEST(GoldenLlama, WholeSequences) {
  for_each_case([](const GoldenCase& c, const Array& tokens) {
    const Llama model = model_of(c);
    EXPECT_EQ(difference(c, llama_step(model, tokens).logits), "");
    const auto jitted = jit([](Llama m, Array t) { return llama_step(m, t).logits; });
    EXPECT_EQ(difference(c, jitted(model, tokens)), "");
  });
}

TEST(GoldenLlama, RowsBehindACache) {
  for_each_case([](const GoldenCase& c, const Array& tokens) {
    const Llama model = model_of(c);
    const auto step = jit([](Llama m, Array t, Array start, std::vector<Cache> caches) {
      const LlamaStep result = llama_step(m, t, start, caches);
      return std::pair{result.logits, result.caches};
    });
    std::vector<Cache> caches = llama_caches(model, 2, 9);
    std::vector<Array> parts;
    for (std::int32_t start = 0; start < 7; start += start == 0 ? 3 : 1) {
      const Array rows = tokens[{range(), range(start, start == 0 ? 3 : start + 1)}];
      auto [logits, after] = step(model, rows, start, caches);
      parts.push_back(logits);
      caches = after;
    }
    EXPECT_EQ(difference(c, concatenate(parts, 1)), "");
  });
}

TEST(GoldenLlama, FromFiles) {
  for_each_case([](const GoldenCase& c, const Array& tokens) {
    const Folder folder;
    save_llama(folder.path, model_of(c));
    EXPECT_EQ(difference(c, llama_step(load_llama(folder.path), tokens).logits), "");
  });
}

// The vocabulary of the golden models is a prime: these are random ones, against themselves whole.
TEST(GoldenLlama, SplitWeightsGiveTheSameLogits) {
  const Folder folder;
  const LlamaConfig config{.layers = 2, .heads = 8, .kv_heads = 4};
  const Llama model =
      random_llama(config, {.vocab = 24, .embed = 16, .head = 4, .ff = 12}, random::key(1), f32);
  save_llama(folder.path, model);
  const Array tokens = random::randint(random::key(2), {2, 6}, 0, 24, i32);
  const Llama split = load_llama(folder.path, make_mesh({4}, {"model"}));
  EXPECT_EQ(split.layers[1].down.addressable_shards()[1].data.shape(), Shape({16, 3}));
  EXPECT_EQ(split.layers[0].q.addressable_shards()[3].data.shape(), Shape({8, 16}));
  const auto logits = jit([](Llama m, Array t) { return llama_step(m, t).logits; });
  const Array want = llama_step(model, tokens).logits;
  logits(split, tokens).block_until_ready();
  reset_counters();
  const Array split_logits = logits(split, tokens);
  split_logits.block_until_ready();
  EXPECT_EQ(counters().collectives, 1 + 2 * 2);  // of the table's rows, and two sums a layer
  const Array got = device_put(split_logits, devices()[0]);
  EXPECT_LT(max(abs(got - want)).item<float>(), 1e-4f * max(abs(want)).item<float>());
}

TEST(GoldenLlama, SeveralFilesByTheirIndex) {
  const Folder folder;
  const Llama model =
      random_llama({.layers = 1, .heads = 2, .kv_heads = 1, .tied = true},
                   {.vocab = 8, .embed = 8, .head = 4, .ff = 8}, random::key(1), bf16);
  std::map<std::string, Array> first = llama_tensors(model), second;
  std::string index = "{\"metadata\": {\"total_size\": 1}, \"weight_map\": {";
  for (const char* name : {"model.norm.weight", "model.layers.0.mlp.up_proj.weight"})
    second.insert(first.extract(name));
  for (const auto& [name, x] : first) index += "\"" + name + "\": \"a.safetensors\", ";
  for (const auto& [name, x] : second) index += "\"" + name + "\" : \"b.safetensors\",";
  index.back() = '}';
  save_safetensors(folder.path + "/a.safetensors", first);
  save_safetensors(folder.path + "/b.safetensors", second);
  std::ofstream(folder.path + "/model.safetensors.index.json") << index << "}";
  std::ofstream(folder.path + "/config.json") << llama_config_json(model.config);
  const Array tokens = array<std::int32_t>({1, 2, 3}, {1, 3});
  EXPECT_EQ(llama_step(load_llama(folder.path), tokens).logits.to_vector<float>(),
            llama_step(model, tokens).logits.to_vector<float>());
}

TEST(GoldenLlama, Config) {
  const LlamaConfig c = parse_llama_config(
      "{\"num_hidden_layers\": 3, \"num_attention_heads\":4, \"rope_theta\": 5e5, "
      "\"rope_scaling\": "
      "null, \"tie_word_embeddings\": true}");
  EXPECT_EQ(c.layers, 3);
  EXPECT_EQ(c.kv_heads, 4);
  EXPECT_EQ(c.theta, 500000);
  EXPECT_TRUE(c.tied);
  const LlamaConfig back = parse_llama_config(llama_config_json(c));
  EXPECT_EQ(back.theta, c.theta);
  EXPECT_EQ(back.eps, c.eps);
  EXPECT_EQ(back.tied, c.tied);
  test::expect_error<ValueError>([] { parse_llama_config("{\"num_hidden_layers\": 3}"); },
                                 {"num_attention_heads"});
  test::expect_error<ValueError>(
      [] {
        parse_llama_config(
            "{\"num_hidden_layers\": 3, \"num_attention_heads\": 4, \"rope_scaling\": {\"a\": 1}}");
      },
      {"rope_scaling"});
}

TEST(GoldenLlama, WhatIsWrongIsSaid) {
  const LlamaConfig config{.layers = 1, .heads = 2, .kv_heads = 1};
  const Llama model =
      random_llama(config, {.vocab = 8, .embed = 8, .head = 4, .ff = 8}, random::key(1), f32);
  std::map<std::string, Array> tensors = llama_tensors(model);
  tensors["model.layers.0.self_attn.k_proj.weight"] = zeros({8, 8});
  test::expect_error<ValueError>([&] { llama_from(config, tensors); },
                                 {"model.layers.0.self_attn.k_proj.weight", "(8, 8)", "(4, 8)"});
  tensors.erase("model.layers.0.self_attn.k_proj.weight");
  test::expect_error<ValueError>([&] { llama_from(config, tensors); },
                                 {"model.layers.0.self_attn.k_proj.weight", "missing"});
  test::expect_error<ValueError>([&] { load_llama("/nonexistent"); }, {"/nonexistent/config.json"});
}

}  // namespace
}  // namespace transformer
