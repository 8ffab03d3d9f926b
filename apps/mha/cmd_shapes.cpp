// mha shapes: runs the multi-head attention layer on random numbers and prints the shape of everything on the way. Every shape is that of
// a tensor that exists: inputs, weights, what the layer's hook shows, outputs. Nothing is derived from the options.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "command.h"
#include "json_numbers.h"
#include "layer_walk.h"
#include "terminal.h"

namespace mha::app {
namespace {

struct Options {
  LayerSizes sizes;
  bool json = false;
};

/// One line of the walk: the tensor of all heads, and one head's part of it where there is one.
struct Step {
  std::string name;
  std::string formula;
  Dims shape;
  std::optional<Dims> one_head = {};
};

constexpr std::uint64_t kSeed = 1;

constexpr const char* kFooter = R"(Weights are Xavier-initialised from a fixed seed, X is random. One head's part is
what textbooks call W_q^h, Q^h, ...

Examples:
  mha shapes --d-model 512 --heads 8 --tokens 2
  mha shapes --d-model 512 --heads 8 --kv-heads 2 --tokens 2 --json
  mha shapes --d-model 1024 --heads 16 --head-dim 128 --kv-heads 8 --tokens 4)";

/// The shape without the axes of size 1 that picking one batch entry or head leaves.
Dims part(ConstTensorView view, std::initializer_list<int> picked) {
  std::vector<Index> sizes;
  for (int axis = 0; axis < view.rank(); ++axis) {
    if (std::find(picked.begin(), picked.end(), axis) == picked.end()) {
      sizes.push_back(view.size(axis));
    } else {
      view = view.slice(axis, 0, 1);
    }
  }
  return sizes.size() == 1 ? Dims{sizes[0]} : Dims{sizes[0], sizes[1]};
}

/// A weight as it stands in X W.
Dims as_written(const Tensor& weight) { return weight.view().transpose(0, 1).shape; }

std::vector<Step> steps_of(const LayerWalk& walk) {
  const NaiveHead& head = walk.by_head.heads.front();
  const Tensor& z = walk.z;
  return {{"X", "input", walk.x.shape()},
          {"W_q", "", as_written(walk.parameters.wq), head.wq.shape()},
          {"W_k", "", as_written(walk.parameters.wk), head.wk.shape()},
          {"W_v", "", as_written(walk.parameters.wv), head.wv.shape()},
          {"Q", "X W_q", walk.q.shape(), part(walk.q, {0, 2})},
          {"K", "X W_k", walk.k.shape(), part(walk.k, {0, 2})},
          {"V", "X W_v", walk.v.shape(), part(walk.v, {0, 2})},
          {"scores", "Q K^T / sqrt(head_dim)", walk.scores.shape(), part(walk.scores, {0, 1})},
          {"weights", "softmax(scores)", walk.weights.shape(), part(walk.weights, {0, 1})},
          {"Z", "weights V", z.shape(), part(z, {0, 2})},
          {"concat", "Z of all heads side by side", z.view().reshape({z.size(0), z.size(1), z.size(2) * z.size(3)}).shape},
          {"W_O", "", as_written(walk.parameters.wo)},
          {"output", "concat W_O", walk.y.shape()}};
}

std::string walk_text(const LayerWalk& walk, const Terminal& terminal) {
  std::string out = bold("multi-head attention, shape by shape", terminal) + "\n";
  out += fmt::format("d_model {}, heads {}, kv_heads {}, head_dim {}, tokens {}, batch 1\n\n", walk.config.d_model, walk.config.heads,
                     walk.config.kv_heads, walk.config.head_dim, walk.x.size(1));
  out += bold(fmt::format("{:<9}{:<31}{:<20}{}", "", "", "all heads", "one head"), terminal) + "\n";
  for (const Step& step : steps_of(walk)) {
    const std::string formula = step.formula.empty() ? "weight" : step.name == "X" ? step.formula : fmt::format("= {}", step.formula);
    out += fmt::format("{:<9}{:<31}", step.name, formula);
    out += step.one_head ? fmt::format("{:<20}{}\n", to_string(step.shape), to_string(*step.one_head)) : to_string(step.shape) + "\n";
  }
  out += '\n';
  const bool same = walk.y.shape() == walk.x.shape();
  out += fmt::format("The output's shape {} the input's.\n", same ? "equals" : "DIFFERS from");
  out += fmt::format("Every row of weights sums to 1 (largest deviation {:.1e}).\n", walk.row_sums_off);
  out += fmt::format("The weights are the softmax of the scores (largest difference {:.1e}).\n", walk.weights_off);
  return out + fmt::format("The output is the concatenation times W_O (largest difference {:.1e}).\n", walk.output_off);
}

Json shape_json(const Dims& dims) {
  Json json = Json::array();
  for (Index size : dims) json.push_back(size);
  return json;
}

std::string walk_json(const LayerWalk& walk) {
  Json steps = Json::array();
  for (const Step& step : steps_of(walk)) {
    Json json = {{"name", step.name}, {"shape", shape_json(step.shape)}};
    if (step.one_head) json["one_head"] = shape_json(*step.one_head);
    steps.push_back(std::move(json));
  }
  return steps.dump(2) + "\n";
}

std::string run(const Options& options) {
  const MhaConfig config = walk_config(options.sizes);
  Tensor x(DType::F32, {1, options.sizes.tokens, config.d_model});
  fill_normal(x, kSeed);
  const LayerWalk walk = walk_layer(config, std::move(x));
  return options.json ? walk_json(walk) : walk_text(walk, this_terminal());
}

}  // namespace

void add_shapes(CLI::App& app, Output& output) {
  CLI::App* command = app.add_subcommand("shapes", "The multi-head attention layer as a walk of shapes, from tensors of a real run");
  auto options = std::make_shared<Options>();
  command->footer(kFooter);
  add_number(*command, "--d-model", options->sizes.d_model, "Width of the input and of the output")->required();
  add_number(*command, "--heads", options->sizes.heads, "Query heads")->required();
  add_number(*command, "--tokens", options->sizes.tokens, "Length of the input")->required();
  add_number(*command, "--head-dim", options->sizes.head_dim, "Width of one head (default: d_model / heads)");
  add_number(*command, "--kv-heads", options->sizes.kv_heads, "Key and value heads, shared by groups of query heads (default: heads)");
  command->add_flag("--json", options->json, "Print JSON");
  command->callback([options, &output] { output.text = run(*options); });
}

}  // namespace mha::app
