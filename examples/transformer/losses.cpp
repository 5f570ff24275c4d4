#include "losses.h"

#include <shmap/shmap.h>

#include <cstdint>
#include <filesystem>
#include <map>

namespace transformer {

using namespace shmap;

namespace {

std::string file_in(const std::string& folder) { return folder + "/losses.npz"; }

template <class T>
Array one_dim(const std::vector<T>& values) {
  return array<T>(values, {static_cast<std::int64_t>(values.size())});
}

}  // namespace

void save_losses(const std::string& folder, const Losses& losses) {
  std::vector<std::int32_t> looks;
  std::vector<float> held_out;
  for (const auto& [step, loss] : losses.held_out) {
    looks.push_back(step);
    held_out.push_back(loss);
  }
  std::filesystem::create_directories(folder);
  save_npz(file_in(folder), {{"first", one_dim(std::vector<std::int32_t>{losses.first})},
                             {"batches", one_dim(losses.batches)},
                             {"held_out_steps", one_dim(looks)},
                             {"held_out", one_dim(held_out)}});
}

Losses load_losses(const std::string& folder, int steps) {
  const std::string path = file_in(folder);
  if (!std::filesystem::exists(path)) return {.first = steps};
  const std::map<std::string, Array> saved = load_npz(path);
  for (const char* const name : {"first", "batches", "held_out_steps", "held_out"})
    if (!saved.contains(name))
      throw ValueError("\"" + path + "\" has no array \"" + name +
                       "\", which every file of losses has: remove it to go on without the losses");
  Losses out;
  out.first = saved.at("first").to_vector<std::int32_t>().at(0);
  out.batches = saved.at("batches").to_vector<float>();
  if (out.first > steps || out.steps() < steps) return {.first = steps};
  // The file may be of a later step than the checkpoint: the run was stopped between the two.
  out.batches.resize(static_cast<std::size_t>(steps - out.first));
  const auto looks = saved.at("held_out_steps").to_vector<std::int32_t>();
  const auto held_out = saved.at("held_out").to_vector<float>();
  for (std::size_t k = 0; k < looks.size() && looks[k] <= steps; ++k)
    out.held_out.emplace_back(looks[k], held_out.at(k));
  return out;
}

}  // namespace transformer
