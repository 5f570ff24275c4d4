// Llama: decoder layers with RMS norms, rotary positions (element d turns with d + D / 2), grouped
// queries and a gated MLP, by the names and shapes that its weights are published under; so they
// are loaded as they are. Extents: V vocabulary, E embed, N heads of D, M heads of keys and values,
// F.
#pragma once
#include <shmap/shmap.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "layer.h"

namespace transformer {

// Parameters of config.json that the shapes of a model do not tell.
struct LlamaConfig {
  std::int64_t layers = 2;    // num_hidden_layers
  std::int64_t heads = 8;     // num_attention_heads, N
  std::int64_t kv_heads = 8;  // num_key_value_heads, M; as many as heads where it is not given
  double theta = 10000;       // rope_theta
  double eps = 1e-6;          // rms_norm_eps
  bool tied = false;          // tie_word_embeddings: the table is the head too
};
// ValueError where the text has no layers or heads, or asks for scaled rotations (rope_scaling).
LlamaConfig parse_llama_config(const std::string& json);
std::string llama_config_json(const LlamaConfig& config);

struct LlamaLayer {      // model.layers.K.…
  Array attention_norm;  // input_layernorm.weight [E]
  Array q, k, v;         // self_attn.{q,k,v}_proj.weight [N D, E], [M D, E], [M D, E]
  Array o;               // self_attn.o_proj.weight [E, N D]
  Array mlp_norm;        // post_attention_layernorm.weight [E]
  Array gate, up;        // mlp.{gate,up}_proj.weight [F, E]
  Array down;            // mlp.down_proj.weight [E, F]
};
struct Llama {
  LlamaConfig config;
  Array table;  // model.embed_tokens.weight [V, E]
  std::vector<LlamaLayer> layers;
  Array norm;  // model.norm.weight [E]
  Array head;  // lm_head.weight [V, E]
};

// The tensors by their names, and back. ValueError: one is missing, or of another shape than its
// neighbours ask for.
Llama llama_from(const LlamaConfig& config, const std::map<std::string, Array>& tensors);
std::map<std::string, Array> llama_tensors(const Llama& model);

// The folder's config.json and model.safetensors, or the files of model.safetensors.index.json.
// With a mesh of one axis the products are split over it, as Megatron does: heads, the MLP's width
// and the vocabulary; each device reads its slices alone. ValueError where these are no multiples.
Llama load_llama(const std::string& folder, const std::optional<Mesh>& mesh = {});
void save_llama(const std::string& folder, const Llama& model);

// Random weights, normal by 1 / sqrt(what a product sums over).
struct LlamaSizes {
  std::int64_t vocab = 512, embed = 256, head = 32, ff = 688;
};
Llama random_llama(const LlamaConfig& config, const LlamaSizes& sizes, const Array& key,
                   shmap::DType dtype);

// Keys and values of each layer, [B, S, M, D], of the weights' dtype.
std::vector<Cache> llama_caches(const Llama& model, std::int64_t batch, std::int64_t capacity);

// ValueError where a token is none of the model's vocabulary: llama_step would read no row for it.
void check_tokens(const Llama& model, const std::vector<std::int32_t>& tokens);

struct LlamaStep {
  Array logits;  // [B, T, V], f32
  std::vector<Cache> caches;
};
// Computes the logits of tokens[B, T], i32, which are the sequences' rows from `start` on, or,
// without caches, the whole sequences. Written for whole arrays: under jit, split weights split the
// work. Products have the weights' dtype, norms and softmax f32.
LlamaStep llama_step(const Llama& model, const Array& tokens, const Array& start = 0,
                     const std::vector<Cache>& caches = {});

}  // namespace transformer
