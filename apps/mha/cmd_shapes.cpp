// mha shapes: runs the multi-head attention layer on random numbers and prints the shape of everything on the way. Every shape is that of
// a tensor that exists: inputs, weights, what the layer's hook shows, outputs. Nothing is derived from the options.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <random>

#include "command.h"
#include "json_numbers.h"
#include "mha/error.h"
#include "mha/layer.h"
#include "terminal.h"

namespace mha::app {
namespace {

struct Options {
  Index d_model = 0;
  Index heads = 0;
  Index tokens = 0;
  std::optional<Index> head_dim;
  std::optional<Index> kv_heads;
  bool json = false;
};

/// One line of the walk: the tensor of all heads, and one head's part of it where there is one.
struct Step {
  std::string name;
  std::string formula;
  Dims shape;
  std::optional<Dims> one_head = {};
};

struct Walk {
  MhaConfig config;
  std::vector<Step> steps;
  double row_sums_off = 0.0;  // largest distance of a row of weights from sum 1
  double weights_off = 0.0;   // largest difference between the layer's weights and a softmax over the scores shown
  double output_off = 0.0;    // largest difference between the layer's output and the concatenation shown times W_O
};

constexpr std::uint64_t kSeed = 1;
constexpr double kMostBytes = 1024.0 * 1024 * 1024;

constexpr const char* kFooter = R"(Weights are Xavier-initialised from a fixed seed, X is random. One head's part is
what textbooks call W_q^h, Q^h, ...

Examples:
  mha shapes --d-model 512 --heads 8 --tokens 2
  mha shapes --d-model 512 --heads 8 --kv-heads 2 --tokens 2 --json
  mha shapes --d-model 1024 --heads 16 --head-dim 128 --kv-heads 8 --tokens 4)";

/// Throws where a size cannot be meant. Whether sizes fit each other is the library's to say.
MhaConfig checked_config(const Options& options) {
  for (const auto& [name, value] : {std::pair{"--d-model", options.d_model},
                                    {"--heads", options.heads},
                                    {"--tokens", options.tokens},
                                    {"--head-dim", options.head_dim.value_or(1)},
                                    {"--kv-heads", options.kv_heads.value_or(1)}}) {
    if (value < 1) throw Error(fmt::format("{} is {}, must be at least 1", name, value));
  }
  MhaConfig config{.d_model = options.d_model,
                   .heads = options.heads,
                   .kv_heads = options.kv_heads.value_or(0),
                   .head_dim = options.head_dim.value_or(0)};
  config.bias = false;
  config = resolved(config);
  const auto d_model = static_cast<double>(config.d_model);
  const auto heads = static_cast<double>(config.heads);
  const auto tokens = static_cast<double>(options.tokens);
  const double width = heads * static_cast<double>(config.head_dim);
  // Weights three times (torch's form, packed, split into heads) and twice the table of weights and scores.
  const double bytes = 4.0 * (3.0 * 4.0 * d_model * width + 2.0 * heads * tokens * tokens + 6.0 * tokens * (d_model + width));
  if (bytes > kMostBytes) {
    throw Error(fmt::format("these sizes need about {:.3g} GiB; mha shapes takes up to {:.3g}", bytes / (1 << 30), kMostBytes / (1 << 30)));
  }
  return config;
}

void fill_normal(TensorView x) {
  std::mt19937_64 random(kSeed);
  std::normal_distribution<float> normal;
  std::generate_n(x.as<float>(), element_count(x.shape), [&] { return normal(random); });
}

/// Q K^T / sqrt(head_dim) of all heads, from the layer's own q and k: the layer itself never holds more than a tile of it.
Tensor scores_of(const MhaTrace& trace) {
  const Index length = trace.q.size(1);
  const Index heads = trace.q.size(2);
  const Index dim = trace.q.size(3);
  const Index group = heads / trace.k.size(2);
  Tensor scores(DType::F32, {trace.q.size(0), heads, length, trace.k.size(1)});
  float* out = scores.data<float>();
  const double scale = 1.0 / std::sqrt(static_cast<double>(dim));
  for (Index h = 0; h < heads; ++h) {
    for (Index q = 0; q < length; ++q) {
      const float* query = trace.q.as<float>() + q * trace.q.stride(1) + h * trace.q.stride(2);
      for (Index k = 0; k < trace.k.size(1); ++k) {
        const float* key = trace.k.as<float>() + k * trace.k.stride(1) + (h / group) * trace.k.stride(2);
        double sum = 0.0;
        for (Index d = 0; d < dim; ++d)
          sum += static_cast<double>(query[d * trace.q.stride(3)]) * static_cast<double>(key[d * trace.k.stride(3)]);
        *out++ = static_cast<float>(sum * scale);
      }
    }
  }
  return scores;
}

/// Z of all heads side by side, dense: [batch, length, heads * head_dim].
Tensor concatenate(ConstTensorView heads) {
  Tensor concat(DType::F32, {heads.size(0), heads.size(1), heads.size(2) * heads.size(3)});
  copy(heads, concat.view().reshape(heads.shape));
  return concat;
}

/// How far the output is from concat W_O, recomputed in double.
double output_difference(ConstTensorView concat, ConstTensorView wo, ConstTensorView y) {
  const Index width = wo.size(1);
  double largest = 0.0;
  for (Index row = 0; row < y.size(1); ++row) {
    const float* z = concat.as<float>() + row * width;
    for (Index column = 0; column < y.size(2); ++column) {
      const float* weights = wo.as<float>() + column * width;
      double sum = 0.0;
      for (Index i = 0; i < width; ++i) sum += static_cast<double>(z[i]) * static_cast<double>(weights[i]);
      largest = std::max(largest, std::abs(sum - static_cast<double>(y.as<float>()[row * y.size(2) + column])));
    }
  }
  return largest;
}

/// How far the weights' rows are from sum 1, and from the softmax of the scores.
void compare(ConstTensorView scores, ConstTensorView weights, Walk& walk) {
  const Index keys = weights.size(3);
  const Index rows = element_count(weights.shape) / keys;
  for (Index row = 0; row < rows; ++row) {
    const float* score = scores.as<float>() + row * keys;
    const float* weight = weights.as<float>() + row * keys;
    const double top = static_cast<double>(*std::max_element(score, score + keys));
    double denominator = 0.0;
    double sum = 0.0;
    for (Index k = 0; k < keys; ++k) denominator += std::exp(static_cast<double>(score[k]) - top);
    for (Index k = 0; k < keys; ++k) {
      sum += static_cast<double>(weight[k]);
      const double expected = std::exp(static_cast<double>(score[k]) - top) / denominator;
      walk.weights_off = std::max(walk.weights_off, std::abs(static_cast<double>(weight[k]) - expected));
    }
    walk.row_sums_off = std::max(walk.row_sums_off, std::abs(sum - 1.0));
  }
}

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

void add_projections(Walk& walk, const MhaWeights& weights, const NaiveHead& head, const MhaTrace& trace) {
  walk.steps.push_back({"W_q", "", weights.wq.transpose(0, 1).shape, head.wq.shape()});
  walk.steps.push_back({"W_k", "", weights.wk.transpose(0, 1).shape, head.wk.shape()});
  walk.steps.push_back({"W_v", "", weights.wv.transpose(0, 1).shape, head.wv.shape()});
  walk.steps.push_back({"Q", "X W_q", trace.q.shape, part(trace.q, {0, 2})});
  walk.steps.push_back({"K", "X W_k", trace.k.shape, part(trace.k, {0, 2})});
  walk.steps.push_back({"V", "X W_v", trace.v.shape, part(trace.v, {0, 2})});
}

Walk walk_through(const Options& options) {
  Walk walk{.config = checked_config(options), .steps = {}};
  const MhaParameters parameters = xavier_parameters(walk.config, kSeed);
  const MhaWeights weights = parameters.view();
  const NaiveParameters naive = to_naive(walk.config, weights);
  const MultiHeadAttention layer(walk.config, weights);
  Tensor x(DType::F32, {1, options.tokens, walk.config.d_model});
  Tensor y(DType::F32, x.shape());
  Tensor table(DType::F32, {1, walk.config.heads, options.tokens, options.tokens});
  Tensor scores;
  Tensor concat;
  Dims per_head;
  Dims one_head;
  fill_normal(x);
  walk.steps.push_back({"X", "input", x.shape()});
  Workspace workspace;
  layer.forward({.x = x},
                {.y = y,
                 .weights = table,
                 .hook =
                     [&](const MhaTrace& trace) {
                       add_projections(walk, weights, naive.heads.front(), trace);
                       scores = scores_of(trace);
                       per_head = trace.head_out.shape;
                       one_head = part(trace.head_out, {0, 2});
                       concat = concatenate(trace.head_out);
                     }},
                workspace);
  compare(scores, table, walk);
  walk.output_off = output_difference(concat, weights.wo, y);
  walk.steps.push_back({"scores", "Q K^T / sqrt(head_dim)", scores.shape(), part(scores, {0, 1})});
  walk.steps.push_back({"weights", "softmax(scores)", table.shape(), part(table, {0, 1})});
  walk.steps.push_back({"Z", "weights V", per_head, one_head});
  walk.steps.push_back({"concat", "Z of all heads side by side", concat.shape()});
  walk.steps.push_back({"W_O", "", weights.wo.transpose(0, 1).shape});
  walk.steps.push_back({"output", "concat W_O", y.shape()});
  return walk;
}

std::string walk_text(const Walk& walk, const Options& options, const Terminal& terminal) {
  std::string out = bold("multi-head attention, shape by shape", terminal) + "\n";
  out += fmt::format("d_model {}, heads {}, kv_heads {}, head_dim {}, tokens {}, batch 1\n\n", walk.config.d_model, walk.config.heads,
                     walk.config.kv_heads, walk.config.head_dim, options.tokens);
  out += bold(fmt::format("{:<9}{:<31}{:<20}{}", "", "", "all heads", "one head"), terminal) + "\n";
  for (const Step& step : walk.steps) {
    const std::string formula = step.formula.empty() ? "weight" : step.name == "X" ? step.formula : fmt::format("= {}", step.formula);
    out += fmt::format("{:<9}{:<31}", step.name, formula);
    out += step.one_head ? fmt::format("{:<20}{}\n", to_string(step.shape), to_string(*step.one_head)) : to_string(step.shape) + "\n";
  }
  out += '\n';
  const bool same = walk.steps.front().shape == walk.steps.back().shape;
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

std::string walk_json(const Walk& walk) {
  Json steps = Json::array();
  for (const Step& step : walk.steps) {
    Json json = {{"name", step.name}, {"shape", shape_json(step.shape)}};
    if (step.one_head) json["one_head"] = shape_json(*step.one_head);
    steps.push_back(std::move(json));
  }
  return steps.dump(2) + "\n";
}

std::string run(const Options& options) {
  const Walk walk = walk_through(options);
  return options.json ? walk_json(walk) : walk_text(walk, options, this_terminal());
}

}  // namespace

void add_shapes(CLI::App& app, std::string& output) {
  CLI::App* command = app.add_subcommand("shapes", "The multi-head attention layer as a walk of shapes, from tensors of a real run");
  auto options = std::make_shared<Options>();
  command->footer(kFooter);
  add_number(*command, "--d-model", options->d_model, "Width of the input and of the output")->required();
  add_number(*command, "--heads", options->heads, "Query heads")->required();
  add_number(*command, "--tokens", options->tokens, "Length of the input")->required();
  add_number(*command, "--head-dim", options->head_dim, "Width of one head (default: d_model / heads)");
  add_number(*command, "--kv-heads", options->kv_heads, "Key and value heads, shared by groups of query heads (default: heads)");
  command->add_flag("--json", options->json, "Print JSON");
  command->callback([options, &output] { output = run(*options); });
}

}  // namespace mha::app
