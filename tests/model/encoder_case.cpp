#include "model/encoder_case.h"

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <random>
#include <sstream>

namespace mha::test {

std::string test_data(const std::string& name) { return std::string(MHA_TEST_SOURCE_DIR) + "/tests/data/" + name; }

std::string default_model_folder() {
  std::filesystem::path folder;
  if (const char* given = std::getenv("MHA_TEST_MODEL")) {
    folder = given;
  } else if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != '\0') {
    folder = std::filesystem::path(cache) / "mha/models/all-MiniLM-L6-v2";
  } else if (const char* home = std::getenv("HOME")) {
    folder = std::filesystem::path(home) / ".cache/mha/models/all-MiniLM-L6-v2";
  }
  return std::filesystem::exists(folder / "config.json") ? folder.string() : "";
}

TempFolder::TempFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "mha_test_XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder: " + name);
  path_ = name;
}
TempFolder::~TempFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void write_text(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

std::string read_bytes(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

Tensor converted(const ConstTensorView& view, DType dtype) {
  Tensor tensor(dtype, view.shape);
  copy(view, tensor);
  return tensor;
}

ModelFiles ModelFiles::read(const std::string& folder) {
  ModelFiles files;
  files.config = nlohmann::json::parse(read_bytes(folder + "/config.json"));
  const SafetensorsFile weights(folder + "/model.safetensors");
  for (const std::string& name : weights.names()) {
    const ConstTensorView view = weights.tensor(name);
    files.tensors[name] = converted(view, view.dtype);
  }
  return files;
}

void ModelFiles::write(const TempFolder& folder) const {
  write_text(folder.file("config.json"), config.dump());
  std::vector<NamedTensor> list;
  for (const auto& [name, tensor] : tensors) list.push_back({name, tensor});
  save_safetensors(folder.file("model.safetensors"), list);
}

Transformer ModelFiles::load() const {
  const TempFolder folder;
  write(folder);
  return Transformer::load(folder.path());  // the mapping outlives the file's name
}

ModelFiles random_model(Index d_model, Index heads, Index hidden_width, Index layers) {
  std::mt19937 generator(1);
  const auto tensor = [&](Dims shape, float mean, float deviation) {
    std::normal_distribution<float> normal(mean, deviation);
    Tensor made(DType::F32, shape);
    for (Index i = 0; i < element_count(shape); ++i) made.data<float>()[i] = normal(generator);
    return made;
  };
  ModelFiles files;
  files.config = {{"model_type", "bert"},          {"vocab_size", 30},
                  {"hidden_size", d_model},        {"num_hidden_layers", layers},
                  {"num_attention_heads", heads},  {"intermediate_size", hidden_width},
                  {"max_position_embeddings", 64}, {"type_vocab_size", 2}};
  const auto norm = [&](const std::string& name) {
    files.tensors[name + ".weight"] = tensor({d_model}, 1, 0.2F);
    files.tensors[name + ".bias"] = tensor({d_model}, 0, 0.2F);
  };
  const auto linear = [&](const std::string& name, Index outputs, Index inputs) {
    files.tensors[name + ".weight"] = tensor({outputs, inputs}, 0, 1.5F / std::sqrt(static_cast<float>(inputs)));
    files.tensors[name + ".bias"] = tensor({outputs}, 0, 0.2F);
  };
  files.tensors["embeddings.word_embeddings.weight"] = tensor({30, d_model}, 0, 1);
  files.tensors["embeddings.position_embeddings.weight"] = tensor({64, d_model}, 0, 1);
  files.tensors["embeddings.token_type_embeddings.weight"] = tensor({2, d_model}, 0, 1);
  norm("embeddings.LayerNorm");
  for (Index layer = 0; layer < layers; ++layer) {
    const std::string prefix = "encoder.layer." + std::to_string(layer) + ".";
    for (const char* const role : {"query", "key", "value"}) linear(prefix + "attention.self." + role, d_model, d_model);
    linear(prefix + "attention.output.dense", d_model, d_model);
    norm(prefix + "attention.output.LayerNorm");
    linear(prefix + "intermediate.dense", hidden_width, d_model);
    linear(prefix + "output.dense", d_model, hidden_width);
    norm(prefix + "output.LayerNorm");
  }
  return files;
}

std::vector<Index> golden_numbers(const SafetensorsFile& file, const std::string& name) {
  const ConstTensorView view = file.tensor(name);
  return {view.as<Index>(), view.as<Index>() + element_count(view.shape)};
}

GoldenText golden_text(const SafetensorsFile& file, const std::string& name) {
  return {.ids = golden_numbers(file, name + ".ids"),
          .token_types = golden_numbers(file, name + ".token_types"),
          .rows = golden_numbers(file, name + ".rows"),
          .hidden = file.tensor(name + ".hidden"),
          .weights = file.tensor(name + ".weights")};
}

EncoderRun run_encoder(const Transformer& model, const TransformerInputs& inputs, Workspace& workspace, const LayerHook& hook) {
  const Index length = static_cast<Index>(inputs.ids.size()) / inputs.batch;
  EncoderRun run;
  run.hidden = Tensor(DType::F32, {inputs.batch, length, model.config().d_model});
  const auto keep = [&](Index layer, const MhaTrace& trace) {
    EXPECT_EQ(layer, static_cast<Index>(run.weights.size())) << "layers come in order, each once";
    const Index heads = trace.q.size(2);
    Tensor weights(DType::F32, {inputs.batch, heads, length, length});
    const AttentionInputs attended{.q = trace.q, .k = trace.k, .v = {}, .allowed = trace.allowed, .kv_lengths = trace.kv_lengths};
    for (Index b = 0; b < inputs.batch; ++b) {
      for (Index h = 0; h < heads; ++h) {
        const WeightsRegion region{.batch = b, .head = h, .queries = {0, length}, .keys = {0, length}};
        const TensorView table = weights.view().slice(0, b, b + 1).slice(1, h, h + 1).reshape({length, length});
        attention_weights(trace.spec, attended, trace.lse, region, table, workspace);
      }
    }
    run.weights.push_back(std::move(weights));
    if (hook) hook(layer, trace);
  };
  model.forward(inputs, run.hidden, workspace, keep);
  return run;
}

Tensor hidden_states(const Transformer& model, const TransformerInputs& inputs, Workspace& workspace) {
  const Index length = static_cast<Index>(inputs.ids.size()) / inputs.batch;
  Tensor hidden(DType::F32, {inputs.batch, length, model.config().d_model});
  model.forward(inputs, hidden, workspace);
  return hidden;
}

std::vector<Index> some_ids(Index count, Index vocabulary, std::uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::uniform_int_distribution<Index> id(0, vocabulary - 1);
  std::vector<Index> ids(static_cast<std::size_t>(count));
  for (Index& each : ids) each = id(generator);
  return ids;
}

}  // namespace mha::test
