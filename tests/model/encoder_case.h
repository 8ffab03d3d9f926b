// What the encoder's tests share: goldens, model folders made and changed by a test, and a run that keeps everything.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "mha/model/safetensors.h"
#include "mha/model/transformer.h"

namespace mha::test {

/// What the project promises against Hugging Face transformers, largest absolute difference.
inline constexpr double kHiddenLimit = 2e-5;
inline constexpr double kWeightsLimit = 1e-5;

/// tests/data/`name`.
std::string test_data(const std::string& name);
/// The folder of all-MiniLM-L6-v2: MHA_TEST_MODEL, else where the set-up puts it. Empty where there is none.
std::string default_model_folder();

/// An empty folder, removed with all that is in it at the end of the scope.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  std::string path() const { return path_.string(); }
  std::string file(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

void write_text(const std::string& path, const std::string& text);
std::string read_bytes(const std::string& path);

/// A model's folder held in memory, to be changed and written elsewhere.
struct ModelFiles {
  nlohmann::json config;
  std::map<std::string, Tensor> tensors;

  static ModelFiles read(const std::string& folder);
  void write(const TempFolder& folder) const;
  Transformer load() const;  // by way of a folder
};
Tensor converted(const ConstTensorView& view, DType dtype);
/// Random weights of a bert whose projections are large enough to be spread over threads.
ModelFiles random_model(Index d_model, Index heads, Index hidden_width, Index layers);

/// A text of a golden file.
struct GoldenText {
  std::vector<Index> ids, token_types, rows;
  ConstTensorView hidden;   // [rows, d_model]
  ConstTensorView weights;  // [layers, heads, rows, length]
};
GoldenText golden_text(const SafetensorsFile& file, const std::string& name);
std::vector<Index> golden_numbers(const SafetensorsFile& file, const std::string& name);

struct EncoderRun {
  Tensor hidden;                // [batch, length, d_model]
  std::vector<Tensor> weights;  // per layer [batch, heads, length, length], by attention_weights from what the hook is given
};
EncoderRun run_encoder(const Transformer& model, const TransformerInputs& inputs, Workspace& workspace, const LayerHook& hook = {});
/// The same, hidden states alone and without a hook.
Tensor hidden_states(const Transformer& model, const TransformerInputs& inputs, Workspace& workspace);

/// `count` ids below `vocabulary`, the same for the same seed.
std::vector<Index> some_ids(Index count, Index vocabulary, std::uint64_t seed);

}  // namespace mha::test
