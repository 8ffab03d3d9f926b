// Rows and columns of heads cut out of a checkpoint. Reads the folder as Transformer::load does, and writes what that reads again.
#include "mha/model/prune.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "core/check.h"
#include "mha/model/safetensors.h"
#include "mha/model/transformer.h"
#include "model/config.h"
#include "model/encoder_weights.h"
#include "model/family.h"
#include "model/json_fields.h"

namespace mha {
namespace {

namespace fs = std::filesystem;

// Of the folder's other files, what a tokenizer is read from, and what its weights may be used for.
constexpr const char* kOtherFiles[] = {
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.txt", "LICENSE"};

using HeadsByLayer = std::map<Index, std::vector<Index>>;

/// What the model has lost, and is to lose, together.
HeadsByLayer all_removed(const TransformerConfig& config, const HeadsByLayer& removed) {
  HeadsByLayer all = config.pruned_heads;
  for (const auto& [layer, heads] : removed) {
    for (const Index head : heads) {
      if (config.has_head(layer, head)) all[layer].push_back(head);  // throws where there is none such
    }
  }
  for (auto& [layer, heads] : all) {
    std::sort(heads.begin(), heads.end());
    heads.erase(std::unique(heads.begin(), heads.end()), heads.end());
  }
  std::erase_if(all, [](const auto& item) { return item.second.empty(); });
  return all;
}

/// Which heads of a layer's tensors stay, as they lie there.
struct Cut {
  std::vector<Index> places;
  Index head_dim;
};

/// The rows (axis 0) or columns (axis 1) of the heads that stay.
Tensor kept_part(const ConstTensorView& view, int axis, const Cut& cut) {
  Dims shape = view.shape;
  shape[axis] = static_cast<Index>(cut.places.size()) * cut.head_dim;
  Tensor part(view.dtype, shape);
  for (std::size_t i = 0; i < cut.places.size(); ++i) {
    const Index from = cut.places[i] * cut.head_dim;
    const Index to = static_cast<Index>(i) * cut.head_dim;
    copy(view.slice(axis, from, from + cut.head_dim), part.view().slice(axis, to, to + cut.head_dim));
  }
  return part;
}

class Pruner {
 public:
  Pruner(const std::string& folder, const HeadsByLayer& removed)
      : config_(model::read_config((fs::path(folder) / "config.json").string())),
        file_((fs::path(folder) / "model.safetensors").string()),
        removed_(all_removed(config_, removed)) {
    model::find_encoder_weights(file_, config_);  // throws where they contradict the config
    for (Index layer = 0; layer < config_.layers; ++layer) cut_layer(layer);
  }

  const HeadsByLayer& removed() const { return removed_; }
  void save(const std::string& path) const {
    std::vector<NamedTensor> tensors;
    for (const std::string& name : file_.names()) {
      const auto part = parts_.find(name);
      tensors.push_back({name, part == parts_.end() ? file_.tensor(name) : part->second.view()});
    }
    save_safetensors(path, tensors, file_.metadata());
  }

 private:
  void cut_layer(Index layer) {
    if (!removed_.contains(layer)) return;
    const std::vector<Index> before = config_.heads_of(layer);
    const std::vector<Index>& lost = removed_.at(layer);
    Cut cut{.places = {}, .head_dim = config_.head_dim};
    for (std::size_t place = 0; place < before.size(); ++place) {
      if (!std::binary_search(lost.begin(), lost.end(), before[place])) cut.places.push_back(static_cast<Index>(place));
    }
    const model::TensorNames& names = model::family_named(config_.family)->names;
    const std::string prefix = model::tensor_prefix(file_, config_) + names.layer + std::to_string(layer) + ".";
    for (const char* const module : {names.query, names.key, names.value}) {
      for (const char* const tensor : {".weight", ".bias"}) cut_tensor(prefix + module + tensor, 0, cut);
    }
    cut_tensor(prefix + names.out + ".weight", 1, cut);
  }
  void cut_tensor(const std::string& name, int axis, const Cut& cut) { parts_.emplace(name, kept_part(file_.tensor(name), axis, cut)); }

  TransformerConfig config_;
  SafetensorsFile file_;
  HeadsByLayer removed_;
  std::map<std::string, Tensor> parts_;
};

void write_config(const fs::path& from, const fs::path& to, const HeadsByLayer& removed) {
  model::Json json = model::read_json_file(from.string());
  json["pruned_heads"] = model::Json::object();
  for (const auto& [layer, heads] : removed) json["pruned_heads"][std::to_string(layer)] = heads;
  std::ofstream file(to, std::ios::binary);
  file << json.dump(2) << '\n';
  file.close();
  MHA_CHECK(IoError, file.good(), to.string(), ": cannot be written");
}

/// "x/" is "x".
fs::path without_slash(const fs::path& place) { return place.has_filename() ? place : place.parent_path(); }

/// A folder that becomes `to` when all is written, or goes.
class Draft {
 public:
  explicit Draft(const std::string& to) : place_(without_slash(to)), draft_(place_) {
    check_new_folder(to);
    draft_ += "." + std::to_string(getpid()) + ".part";
    std::error_code error;
    fs::create_directory(draft_, error);
    MHA_CHECK(IoError, !error, place_.string(), ": cannot be written: ", error.message());
  }
  Draft(const Draft&) = delete;
  Draft& operator=(const Draft&) = delete;
  ~Draft() {
    std::error_code ignored;
    if (!done_) fs::remove_all(draft_, ignored);
  }

  const fs::path& path() const { return draft_; }
  void commit() {
    std::error_code error;
    fs::rename(draft_, place_, error);
    MHA_CHECK(IoError, !error, place_.string(), ": cannot be written: ", error.message());
    done_ = true;
  }

 private:
  fs::path place_;
  fs::path draft_;
  bool done_ = false;
};

}  // namespace

void check_new_folder(const std::string& to) {
  const fs::path place = without_slash(to);
  MHA_CHECK(IoError, !place.empty(), "the folder to write has no name");
  std::error_code error;
  const bool there = fs::exists(fs::symlink_status(place, error));
  const bool empty_folder = fs::is_directory(place, error) && fs::is_empty(place, error);
  MHA_CHECK(IoError, !there || empty_folder, place.string(), ": is there already, and is not overwritten");
}

void save_without_heads(const std::string& folder, const std::string& to, const std::map<Index, std::vector<Index>>& removed) {
  const Pruner pruner(folder, removed);
  const fs::path from(folder);
  Draft draft(to);
  pruner.save((draft.path() / "model.safetensors").string());
  write_config(from / "config.json", draft.path() / "config.json", pruner.removed());
  for (const char* const name : kOtherFiles) {
    std::error_code error;
    if (!fs::exists(from / name, error)) continue;
    fs::copy_file(from / name, draft.path() / name, error);
    MHA_CHECK(IoError, !error, (from / name).string(), ": cannot be copied: ", error.message());
  }
  draft.commit();
}

}  // namespace mha
