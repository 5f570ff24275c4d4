// Llama from files under its published names: makes a random one of any size, and generates tokens
// behind a cache, on one device or with the weights split over several.
//
//   llama random --out DIR [--layers N --embed N --heads N --kv-heads N --head N --ff N --vocab N]
//   llama generate --model DIR [--tokens 1 5 7] [--count N] [--shards N]
//
// Tokens are numbers: there is no tokenizer here.
#include <shmap/shmap.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "../support/processes.h"
#include "../support/terminal.h"
#include "llama_model.h"

namespace {

using namespace shmap;
using namespace transformer;

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

struct Arguments {
  std::string folder, devices, dtype = "bf16";
  LlamaConfig config;
  LlamaSizes sizes;
  std::vector<std::int32_t> tokens{1};
  int count = 64, shards = 1;
  std::int64_t seed = 0;
  float temperature = 0;
};

int make_random(const Arguments& args) {
  const DType dtype = args.dtype == "f32" ? f32 : bf16;
  const Llama model = random_llama(args.config, args.sizes, random::key(args.seed), dtype);
  save_llama(args.folder, model);
  std::int64_t count = 0, bytes = 0;
  for (const auto& [name, x] : llama_tensors(model)) {
    count += x.size();
    bytes += x.nbytes();
  }
  std::printf("%s: %lld parameters, %s\n", args.folder.c_str(), static_cast<long long>(count),
              examples::bytes_text(static_cast<double>(bytes)).c_str());
  return 0;
}

int generate(const Arguments& args) {
  auto begin = std::chrono::steady_clock::now();
  std::optional<Mesh> mesh;
  if (args.shards > 1) {
    const std::vector<Device> all = devices();
    if (args.shards > static_cast<int>(all.size()))
      throw ValueError("llama: --shards " + std::to_string(args.shards) + " of " +
                       std::to_string(all.size()) + " devices: give more by --devices");
    mesh = make_mesh({args.shards}, {"model"}, {all.begin(), all.begin() + args.shards});
  }
  const Llama model = load_llama(args.folder, mesh);
  check_tokens(model, args.tokens);
  model.head.block_until_ready();
  std::printf("loaded in %s\n", examples::time_text(seconds_since(begin)).c_str());

  const auto length = static_cast<std::int64_t>(args.tokens.size());
  const float temperature = args.temperature;
  const auto next =
      jit([temperature](Llama m, Array tokens, Array start, std::vector<Cache> before, Array key) {
        const LlamaStep step = llama_step(m, tokens, start, before);
        const Array logits = step.logits[{0, -1}];
        const Array token =
            temperature > 0 ? random::categorical(key, logits / temperature) : argmax(logits, 0);
        return std::pair{astype(token, i32), step.caches};
      });
  std::vector<Cache> caches = llama_caches(model, 1, length + args.count);
  Array tokens = array<std::int32_t>(args.tokens, {1, length});
  const Array key = random::key(args.seed);
  double prompt_seconds = 0;
  begin = std::chrono::steady_clock::now();
  for (int k = 0; k < args.count; ++k) {
    const auto start = static_cast<std::int32_t>(k == 0 ? 0 : length + k - 1);
    auto [token, after] = next(model, tokens, start, std::move(caches), random::fold_in(key, k));
    caches = std::move(after);
    std::printf("%d ", token.template item<std::int32_t>());
    std::fflush(stdout);
    tokens = reshape(token, {1, 1});
    if (k == 0) prompt_seconds = seconds_since(begin);
  }
  const double rest = seconds_since(begin) - prompt_seconds;
  std::printf("\nprompt of %lld in %s", static_cast<long long>(length),
              examples::time_text(prompt_seconds).c_str());
  if (args.count > 1)
    std::printf(", then %s tokens/s", examples::three_digits((args.count - 1) / rest).c_str());
  std::printf("\n");
  return 0;
}

int run(int argc, char** argv) {
  Arguments args;
  args.config.kv_heads = 2;
  CLI::App app{"Llama, from safetensors files."};
  app.require_subcommand(1);
  app.add_option("--devices", args.devices, "as SHMAP_DEVICES: cpu:8, cpu:8/8 …");
  CLI::App* const random = app.add_subcommand("random", "writes random weights");
  random->add_option("--out", args.folder, "the folder to write")->required();
  const auto size = [&](const char* name, std::int64_t& value, const char* text) {
    random->add_option(name, value, text)->check(CLI::PositiveNumber)->capture_default_str();
  };
  size("--layers", args.config.layers, "");
  size("--heads", args.config.heads, "");
  size("--kv-heads", args.config.kv_heads, "");
  size("--head", args.sizes.head, "extent of a head");
  size("--embed", args.sizes.embed, "");
  size("--ff", args.sizes.ff, "width of the MLP");
  size("--vocab", args.sizes.vocab, "");
  random->add_option("--theta", args.config.theta, "of the rotations")->capture_default_str();
  random->add_option("--dtype", args.dtype)
      ->check(CLI::IsMember({"f32", "bf16"}))
      ->capture_default_str();
  random->add_option("--seed", args.seed)->capture_default_str();
  random->add_flag("--tied", args.config.tied, "the table of tokens is the head too");
  CLI::App* const generator = app.add_subcommand("generate", "goes on from some tokens");
  generator->add_option("--model", args.folder, "the folder of config.json and the weights")
      ->required();
  generator->add_option("--tokens", args.tokens, "the prompt, as numbers")->capture_default_str();
  generator->add_option("--count", args.count)->check(CLI::PositiveNumber)->capture_default_str();
  generator->add_option("--shards", args.shards, "devices to split the weights over")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  generator->add_option("--temperature", args.temperature, "0: always the likeliest token")
      ->capture_default_str();
  generator->add_option("--seed", args.seed)->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  init(argc, argv, {.devices = args.devices});
  examples::print_in_process_0();
  return random->parsed() ? make_random(args) : generate(args);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
