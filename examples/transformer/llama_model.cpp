#include "llama_model.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <sstream>
#include <utility>

namespace transformer {

using namespace shmap;

namespace {

const char* const kTable = "model.embed_tokens.weight";
const char* const kNorm = "model.norm.weight";
const char* const kHead = "lm_head.weight";

// The members of a layer with their names.
template <class Layer, class F>
void for_each_member(Layer& layer, const F& f) {
  f("input_layernorm", layer.attention_norm);
  f("self_attn.q_proj", layer.q);
  f("self_attn.k_proj", layer.k);
  f("self_attn.v_proj", layer.v);
  f("self_attn.o_proj", layer.o);
  f("post_attention_layernorm", layer.mlp_norm);
  f("mlp.gate_proj", layer.gate);
  f("mlp.up_proj", layer.up);
  f("mlp.down_proj", layer.down);
}
std::string name_in(std::size_t layer, const std::string& member) {
  return "model.layers." + std::to_string(layer) + "." + member + ".weight";
}

// The way in which a tensor is split over the axis: by rows, by columns, or not at all.
P spec_of(const std::string& name, const std::string& axis) {
  const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
  if (has("norm")) return P();
  if (has("o_proj") || has("down_proj")) return P(none, axis);
  return P(axis, none);
}

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw ValueError("cannot read \"" + path + "\"");
  return {std::istreambuf_iterator<char>(file), {}};
}

std::optional<double> number_in(const std::string& json, const std::string& name) {
  std::smatch found;
  const std::regex pattern("\"" + name + "\"\\s*:\\s*([-+0-9.eE]+)");
  if (!std::regex_search(json, found, pattern)) return std::nullopt;
  return std::stod(found[1]);
}
std::int64_t whole_in(const std::string& json, const std::string& name) {
  const std::optional<double> x = number_in(json, name);
  if (!x || *x < 1 || *x != std::floor(*x))
    throw ValueError("config.json: wanted a positive whole number as \"" + name + "\"");
  return static_cast<std::int64_t>(*x);
}

void want_shape(const std::string& name, const Array& x, const Shape& shape) {
  if (x.shape() == shape) return;
  std::ostringstream text;
  text << "the tensor \"" << name << "\" has shape " << x.shape() << ": wanted " << shape
       << ", by config.json and the model's other tensors";
  throw ValueError(text.str());
}

void check(const Llama& m) {
  const auto multiple = [](const Array& x, std::int64_t parts, const char* what) {
    if (x.ndim() != 2 || x.shape()[0] % parts != 0)
      throw ValueError(std::string("the rows of a layer's ") + what + " are no multiple of the " +
                       std::to_string(parts) + " heads that config.json says");
  };
  if (m.table.ndim() != 2) throw ValueError(std::string(kTable) + " is no matrix");
  const std::int64_t vocab = m.table.shape()[0], embed = m.table.shape()[1];
  want_shape(kNorm, m.norm, {embed});
  want_shape(kHead, m.head, {vocab, embed});
  if (m.config.heads % m.config.kv_heads != 0)
    throw ValueError("config.json: num_attention_heads is no multiple of num_key_value_heads");
  for (std::size_t k = 0; k < m.layers.size(); ++k) {
    const LlamaLayer& w = m.layers[k];
    multiple(w.q, m.config.heads, "q_proj");
    if (w.gate.ndim() != 2) throw ValueError(name_in(k, "mlp.gate_proj") + " is no matrix");
    const std::int64_t head = w.q.shape()[0] / m.config.heads, ff = w.gate.shape()[0];
    const std::int64_t wide = head * m.config.heads, narrow = head * m.config.kv_heads;
    const Shape shapes[] = {{embed}, {wide, embed}, {narrow, embed}, {narrow, embed}, {embed, wide},
                            {embed}, {ff, embed},   {ff, embed},     {embed, ff}};
    std::size_t at = 0;
    for_each_member(w, [&](const char* member, const Array& x) {
      want_shape(name_in(k, member), x, shapes[at++]);
    });
  }
}

std::vector<std::string> names_of(const LlamaConfig& config) {
  std::vector<std::string> names{kTable, kNorm};
  if (!config.tied) names.push_back(kHead);
  LlamaLayer none;
  for (std::int64_t k = 0; k < config.layers; ++k)
    for_each_member(none, [&](const char* member, const Array&) {
      names.push_back(name_in(static_cast<std::size_t>(k), member));
    });
  return names;
}

// The tensors of each file, by file name, if there is an index.
std::map<std::string, std::vector<std::string>> files_of(const std::string& folder) {
  const std::string index = text_of(folder + "/model.safetensors.index.json");
  const std::regex entry("\"([^\"]+)\"\\s*:\\s*\"([^\"/]+\\.safetensors)\"");
  std::map<std::string, std::vector<std::string>> files;
  for (std::sregex_iterator at(index.begin(), index.end(), entry), end; at != end; ++at)
    files[(*at)[2]].push_back((*at)[1]);
  return files;
}

// The rows of `t` as heads.
Array heads_of(const Array& t, std::int64_t heads) {
  return reshape(t, {t.shape()[0], t.shape()[1], heads, t.shape()[2] / heads});
}

Array normalised(const Llama& m, const Array& x, const Array& scale) {
  return astype(rms_norm(astype(x, f32), astype(scale, f32), m.config.eps), scale.dtype());
}

}  // namespace

LlamaConfig parse_llama_config(const std::string& json) {
  static const std::regex scaled("\"rope_scaling\"\\s*:\\s*\\{");
  if (std::regex_search(json, scaled))
    throw ValueError("config.json: rope_scaling is not understood; plain rotations (null) are");
  LlamaConfig config;
  config.layers = whole_in(json, "num_hidden_layers");
  config.heads = whole_in(json, "num_attention_heads");
  config.kv_heads =
      number_in(json, "num_key_value_heads") ? whole_in(json, "num_key_value_heads") : config.heads;
  config.theta = number_in(json, "rope_theta").value_or(config.theta);
  config.tied = std::regex_search(json, std::regex("\"tie_word_embeddings\"\\s*:\\s*true"));
  config.eps = number_in(json, "rms_norm_eps").value_or(config.eps);
  return config;
}

std::string llama_config_json(const LlamaConfig& c) {
  std::ostringstream out;
  out.precision(17);
  out << "{\n  \"model_type\": \"llama\",\n  \"num_hidden_layers\": " << c.layers
      << ",\n  \"num_attention_heads\": " << c.heads
      << ",\n  \"tie_word_embeddings\": " << (c.tied ? "true" : "false")
      << ",\n  \"num_key_value_heads\": " << c.kv_heads << ",\n  \"rope_theta\": " << c.theta
      << ",\n  \"rms_norm_eps\": " << c.eps << "\n}\n";
  return out.str();
}

Llama llama_from(const LlamaConfig& config, const std::map<std::string, Array>& tensors) {
  const auto get = [&](const std::string& name) {
    const auto found = tensors.find(name);
    if (found == tensors.end())
      throw ValueError("the tensor \"" + name + "\" is missing: wanted Llama's names, for " +
                       std::to_string(config.layers) + " layers");
    return found->second;
  };
  Llama model{config, get(kTable), {}, get(kNorm), {}};
  model.head = config.tied ? model.table : get(kHead);
  for (std::int64_t k = 0; k < config.layers; ++k) {
    LlamaLayer layer;
    for_each_member(layer, [&](const char* member, Array& x) {
      x = get(name_in(static_cast<std::size_t>(k), member));
    });
    model.layers.push_back(layer);
  }
  check(model);
  return model;
}

std::map<std::string, Array> llama_tensors(const Llama& model) {
  std::map<std::string, Array> out{{kTable, model.table}, {kNorm, model.norm}, {kHead, model.head}};
  for (std::size_t k = 0; k < model.layers.size(); ++k)
    for_each_member(model.layers[k],
                    [&](const char* member, const Array& x) { out[name_in(k, member)] = x; });
  return out;
}

Llama load_llama(const std::string& folder, const std::optional<Mesh>& mesh) {
  const LlamaConfig config = parse_llama_config(text_of(folder + "/config.json"));
  std::map<std::string, std::vector<std::string>> files;
  const std::string one = "model.safetensors";
  if (std::filesystem::exists(folder + "/" + one))
    files[one] = names_of(config);
  else
    files = files_of(folder);
  std::map<std::string, Array> tensors;
  for (const auto& [file, names] : files) {
    std::map<std::string, NamedSharding> shardings;
    if (mesh)
      for (const std::string& name : names)
        shardings.emplace(name, NamedSharding(*mesh, spec_of(name, mesh->axis_names()[0])));
    tensors.merge(load_safetensors(folder + "/" + file, shardings));
  }
  return llama_from(config, tensors);
}

void save_llama(const std::string& folder, const Llama& model) {
  std::filesystem::create_directories(folder);
  std::ofstream config(folder + "/config.json");
  config << llama_config_json(model.config);
  if (!config.flush()) throw Error("cannot write \"" + folder + "/config.json\"");
  save_safetensors(folder + "/model.safetensors", llama_tensors(model));
}

Llama random_llama(const LlamaConfig& config, const LlamaSizes& s, const Array& key, DType dtype) {
  int number = 0;
  const auto draw = [&](std::int64_t rows, std::int64_t columns) {
    const Array normal = random::normal(random::fold_in(key, number++), {rows, columns});
    return astype(normal * (1.f / std::sqrt(static_cast<float>(columns))), dtype);
  };
  const std::int64_t wide = config.heads * s.head, narrow = config.kv_heads * s.head;
  Llama model{config, draw(s.vocab, s.embed), {}, ones({s.embed}, dtype), {}};
  model.head = config.tied ? model.table : draw(s.vocab, s.embed);
  for (std::int64_t k = 0; k < config.layers; ++k) {
    model.layers.push_back({ones({s.embed}, dtype), draw(wide, s.embed), draw(narrow, s.embed),
                            draw(narrow, s.embed), draw(s.embed, wide), ones({s.embed}, dtype),
                            draw(s.ff, s.embed), draw(s.ff, s.embed), draw(s.embed, s.ff)});
  }
  check(model);
  return model;
}

std::vector<Cache> llama_caches(const Llama& m, std::int64_t batch, std::int64_t capacity) {
  const std::int64_t head = m.layers.at(0).q.shape()[0] / m.config.heads;
  const Array empty = zeros({batch, capacity, m.config.kv_heads, head}, m.layers[0].k.dtype());
  return std::vector<Cache>(m.layers.size(), {empty, empty});
}

void check_tokens(const Llama& model, const std::vector<std::int32_t>& tokens) {
  const std::int64_t vocab = model.table.shape()[0];
  for (std::size_t k = 0; k < tokens.size(); ++k)
    if (tokens[k] < 0 || tokens[k] >= vocab)
      throw ValueError("llama: token " + std::to_string(k) + " of the prompt is " +
                       std::to_string(tokens[k]) + ": the model's vocabulary is 0 to " +
                       std::to_string(vocab - 1));
}

LlamaStep llama_step(const Llama& m, const Array& tokens, const Array& start,
                     const std::vector<Cache>& caches) {
  const auto product = [](const Array& x, const Array& w) { return einsum("bti,oi->bto", x, w); };
  const std::int64_t count = tokens.shape()[1];
  const std::int64_t head = m.layers.at(0).q.shape()[0] / m.config.heads;
  const Rows rows = rows_from(start, count, head, m.config.theta);
  Array x = take(m.table, tokens, 0);
  LlamaStep out;
  for (std::size_t number = 0; number < m.layers.size(); ++number) {
    const LlamaLayer& w = m.layers[number];
    const Array own = normalised(m, x, w.attention_norm);
    const Array q = rope(rows, heads_of(product(own, w.q), m.config.heads));
    Array k = rope(rows, heads_of(product(own, w.k), m.config.kv_heads));
    Array v = heads_of(product(own, w.v), m.config.kv_heads);
    AttentionOptions options{.is_causal = caches.empty()};
    if (!caches.empty()) {
      k = dynamic_update_slice(caches[number].k, k, {0, start, 0, 0});
      v = dynamic_update_slice(caches[number].v, v, {0, start, 0, 0});
      options.mask = seen(start, count, k.shape()[1]);
    }
    out.caches.push_back({k, v});
    const Array mixed = attention(q, k, v, options);
    x = x + product(reshape(mixed, {mixed.shape()[0], count, m.config.heads * head}), w.o);
    const Array fed = normalised(m, x, w.mlp_norm);
    x = x + product(silu(product(fed, w.gate)) * product(fed, w.up), w.down);
  }
  out.logits = astype(product(normalised(m, x, m.norm), m.head), f32);
  return out;
}

}  // namespace transformer
