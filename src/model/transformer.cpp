// Transformer: embeddings, then per layer attention and feed-forward part, each followed by residual sum and normalisation. Everything
// numerical is nn's and attention's; this file owns the order and the scratch memory. Called by users, apps and analysis.
#include "mha/model/transformer.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "attention/row_numbers.h"
#include "core/arena.h"
#include "core/check.h"
#include "mha/model/safetensors.h"
#include "model/config.h"
#include "model/encoder_weights.h"
#include "model/removed_heads.h"
#include "nn/activation.h"
#include "nn/linear.h"
#include "nn/norm.h"

namespace mha {
namespace {

using model::Affine;
using model::EncoderLayerWeights;
using model::EncoderWeights;

// One layer. The views point into the file that Impl keeps.
struct Block {
  std::vector<Index> kept;                      // heads that were not removed
  std::optional<MultiHeadAttention> attention;  // of those; absent where none was kept
  ConstTensorView wo;                           // of all heads
  Tensor wide_wo;                               // what it points to where heads were removed
  Tensor bo;                                    // f32, where no head was kept
  Affine attention_norm;
  nn::PackedLinear up;
  nn::PackedLinear down;
  Affine output_norm;
};

Tensor as_floats(const ConstTensorView& view) {
  if (!view) return {};
  Tensor floats(DType::F32, view.shape);
  copy(view, floats);
  return floats;
}

/// W_O of the kept heads, [d_model, kept * head_dim], as one of all heads.
Tensor with_removed_columns(const ConstTensorView& wo, const std::vector<Index>& kept, const TransformerConfig& config) {
  Tensor wide(wo.dtype, {wo.size(0), config.heads * config.head_dim});
  const Index dim = config.head_dim;
  for (std::size_t i = 0; i < kept.size(); ++i) {
    const Index from = static_cast<Index>(i) * dim;
    copy(wo.slice(1, from, from + dim), wide.view().slice(1, kept[i] * dim, (kept[i] + 1) * dim));
  }
  return wide;
}

// Texts of any length start at position 0: what distances in statistics go by.
AttentionSpec attention_spec() { return {.align = Align::TopLeft}; }

Block make_block(const TransformerConfig& config, const EncoderLayerWeights& weights, Index layer) {
  const std::string name = "transformer: layer " + std::to_string(layer);
  Block block{.kept = config.heads_of(layer),
              .attention = {},
              .wo = weights.attention.wo,
              .wide_wo = {},
              .bo = {},
              .attention_norm = weights.attention_norm,
              .up = nn::PackedLinear(weights.up.weight, weights.up.bias, name + " up"),
              .down = nn::PackedLinear(weights.down.weight, weights.down.bias, name + " down"),
              .output_norm = weights.output_norm};
  const auto heads = static_cast<Index>(block.kept.size());
  if (heads < config.heads) {
    block.wide_wo = with_removed_columns(block.wo, block.kept, config);
    block.wo = block.wide_wo;
  }
  if (heads == 0) {
    block.bo = as_floats(weights.attention.bo);
  } else {
    block.attention.emplace(
        MhaConfig{.d_model = config.d_model, .heads = heads, .head_dim = config.head_dim, .attention = attention_spec()},
        weights.attention);
  }
  return block;
}

void check_range(const char* what, std::span<const Index> values, Index limit, const char* limit_name) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    MHA_CHECK(ShapeError, values[i] >= 0 && values[i] < limit, "transformer: ", what, "[", i, "] is ", values[i], ", the model has ", limit,
              " ", limit_name);
  }
}

void check_arguments(const TransformerConfig& config, const TransformerInputs& inputs, const TensorView& hidden) {
  MHA_CHECK(ShapeError, hidden && hidden.rank() == 3, "transformer: hidden is ", to_string(hidden.shape),
            ", must be [batch, length, d_model]");
  const Index batch = hidden.size(0);
  const Index length = hidden.size(1);
  MHA_CHECK(DTypeError, hidden.dtype == DType::F32, "transformer: hidden is ", name_of(hidden.dtype), ", must be f32");
  MHA_CHECK(ShapeError, batch == inputs.batch, "transformer: hidden has batch ", batch, ", inputs.batch is ", inputs.batch);
  MHA_CHECK(ShapeError, hidden.size(2) == config.d_model, "transformer: hidden has width ", hidden.size(2), ", d_model is ",
            config.d_model);
  MHA_CHECK(ShapeError, length <= config.max_positions, "transformer: text has ", length, " tokens, the model has ", config.max_positions,
            " positions");
  MHA_CHECK(ShapeError, std::cmp_equal(inputs.ids.size(), element_count({batch, length})), "transformer: ", inputs.ids.size(),
            " ids, hidden has batch ", batch, " x length ", length);
  check_range("ids", inputs.ids, config.vocabulary, "words");
  if (!inputs.lengths.empty()) {
    MHA_CHECK(ShapeError, std::cmp_equal(inputs.lengths.size(), batch), "transformer: ", inputs.lengths.size(), " lengths, batch is ",
              batch);
    for (std::size_t b = 0; b < inputs.lengths.size(); ++b) {
      MHA_CHECK(ShapeError, inputs.lengths[b] >= 0 && inputs.lengths[b] <= length, "transformer: lengths[", b, "] is ", inputs.lengths[b],
                ", length is ", length);
    }
  }
  if (!inputs.token_types.empty()) {
    MHA_CHECK(ShapeError, inputs.token_types.size() == inputs.ids.size(), "transformer: ", inputs.token_types.size(), " token types, ",
              inputs.ids.size(), " ids");
    // A model without a table of token types knows one: 0.
    check_range("token_types", inputs.token_types, std::max<Index>(config.token_types, 1), "token types");
  }
  // A layer that lost heads would take a table for as many as it has left.
  const bool all_heads = config.pruned_heads.empty() || !inputs.allowed ||
                         (inputs.allowed.rank() == 4 && (inputs.allowed.size(1) == 1 || inputs.allowed.size(1) == config.heads));
  MHA_CHECK(ShapeError, all_heads, "transformer: allowed has shape ", to_string(inputs.allowed.shape), ", rank 4 with 1 or ", config.heads,
            " heads is wanted");
  MHA_CHECK(ShapeError, inputs.links >= 0 && inputs.links <= kMaxLinks, "transformer: ", inputs.links, " links are asked for, at most ",
            kMaxLinks, " can be");
  MHA_CHECK(ShapeError, inputs.statistics || !inputs.chosen, "transformer: chosen is given, but no statistics are asked for");
}

/// Room for all numbers of one layer that are asked for.
RowStatistics statistics_room(Arena& arena, const Dims& rows, const TransformerInputs& inputs) {
  RowStatistics room{.chosen = inputs.chosen};
  for (const attention::RowNumber& number : attention::kRowNumbers) {
    if (number.links ? inputs.links == 0 : !inputs.statistics) continue;
    if (number.view == &RowStatistics::chosen_weight && !inputs.chosen) continue;
    const Dims shape = number.links ? Dims{rows[0], rows[1], rows[2], inputs.links} : rows;
    const Index count = element_count(shape);
    room.*number.view = number.key ? TensorView(arena.take<Index>(count), shape) : TensorView(arena.take<float>(count), shape);
  }
  return room;
}

/// Tokens that do not exist become rows that see no key: nobody shall count them.
void blank_padding(const RowStatistics& statistics, std::span<const Index> lengths) {
  const auto blank = [&](const TensorView& view, auto value) {
    const Index width = view.rank() == 4 ? view.size(3) : 1;
    for (Index b = 0; b < view.size(0); ++b) {
      for (Index h = 0; h < view.size(1); ++h) {
        auto* row = view.as<decltype(value)>() + (b * view.size(1) + h) * view.size(2) * width;
        std::fill(row + lengths[static_cast<std::size_t>(b)] * width, row + view.size(2) * width, value);
      }
    }
  };
  for (const attention::RowNumber& number : attention::kRowNumbers) {
    const TensorView& view = statistics.*number.view;
    if (!view) continue;
    number.key ? blank(view, static_cast<Index>(number.blank)) : blank(view, static_cast<float>(number.blank));
  }
}

}  // namespace

struct Transformer::Impl {
  TransformerConfig config;
  SafetensorsFile file;
  nn::Activation activation;
  ConstTensorView words;  // [vocabulary, d_model], in the mapped file
  Tensor positions;       // [max_positions, d_model], f32
  Tensor token_types;     // [token_types, d_model], f32, or absent
  Affine norm;
  std::vector<Block> blocks;

  Impl(TransformerConfig read, SafetensorsFile weights_file) : config(std::move(read)), file(std::move(weights_file)) {
    activation = nn::activation_named(config.activation).value();
    const EncoderWeights weights = model::find_encoder_weights(file, config);
    words = weights.words;
    positions = as_floats(weights.positions);
    token_types = as_floats(weights.token_types);
    norm = weights.norm;
    blocks.reserve(weights.layers.size());
    for (const EncoderLayerWeights& layer : weights.layers) blocks.push_back(make_block(config, layer, static_cast<Index>(blocks.size())));
  }

  void normalise(const Affine& affine, TensorView x, Workspace& workspace) const {
    nn::layer_norm(x, affine.weight, affine.bias, config.norm_eps, x, workspace);
  }

  /// x = norm(words + positions + token types), [batch, length, d_model].
  void embed(const TransformerInputs& inputs, TensorView x, Workspace& workspace) const {
    const Index width = config.d_model;
    const Index length = x.size(1);
    float* row = x.as<float>();
    for (std::size_t i = 0; i < inputs.ids.size(); ++i, row += width) {
      copy(words.slice(0, inputs.ids[i], inputs.ids[i] + 1), TensorView(row, {1, width}));
      const float* const position = positions.data<float>() + static_cast<Index>(i) % length * width;
      for (Index d = 0; d < width; ++d) row[d] += position[d];
      if (!token_types) continue;
      const float* const type = token_types.data<float>() + (inputs.token_types.empty() ? 0 : inputs.token_types[i]) * width;
      for (Index d = 0; d < width; ++d) row[d] += type[d];
    }
    normalise(norm, x, workspace);
  }

  struct Scratch {
    TensorView x;
    TensorView branch;
    TensorView wide;
    RowStatistics statistics;
  };

  /// branch = attention(x) of a layer that lost heads; the hook sees all heads.
  void attend_with_kept(const Block& block, const Scratch& scratch, const TransformerInputs& inputs, const MhaHook& hook,
                        Workspace& workspace) const {
    MhaHook kept_hook;
    if (hook) {
      kept_hook = [&](const MhaTrace& kept) {
        const model::AllHeadsTrace all(kept, block.kept, config.heads, inputs.allowed);
        hook(all.trace());
        all.write_back(kept.head_out);
      };
    }
    if (!block.attention) {
      attend_with_none(block, scratch, inputs, kept_hook);
      return;
    }
    Arena& arena = workspace.caller_arena();
    const ArenaScope scope(arena);
    RowStatistics statistics;
    if (scratch.statistics) {
      statistics = statistics_room(arena, {scratch.x.size(0), std::ssize(block.kept), scratch.x.size(1)}, inputs);
    }
    Tensor memory;
    const ConstTensorView allowed = model::of_kept_heads(inputs.allowed, block.kept, memory);
    block.attention->forward({.x = scratch.x, .allowed = allowed, .kv_lengths = inputs.lengths, .temperature = inputs.temperature},
                             {.y = scratch.branch, .hook = kept_hook, .statistics = statistics}, workspace);
  }

  /// branch = b_O, all that is left of the attention of a layer without heads.
  void attend_with_none(const Block& block, const Scratch& scratch, const TransformerInputs& inputs, const MhaHook& hook) const {
    const Dims x = scratch.x.shape;
    if (hook) {
      AttentionSpec spec = attention_spec();
      spec.scale = 1.0 / std::sqrt(static_cast<double>(config.head_dim)) / static_cast<double>(inputs.temperature);
      const Tensor rows(DType::F32, {x[0], x[1], 0, config.head_dim});
      const Tensor lse(DType::F32, {x[0], 0, x[1]});
      Tensor out(DType::F32, rows.shape());
      RowStatistics statistics{.chosen = inputs.chosen};
      std::vector<Tensor> numbers;
      for (const attention::RowNumber& number : attention::kRowNumbers) {
        const TensorView& whole = scratch.statistics.*number.view;
        if (!whole) continue;
        Dims none = whole.shape;
        none[1] = 0;
        statistics.*number.view = numbers.emplace_back(whole.dtype, none).view();
      }
      hook({.spec = spec,
            .q = rows,
            .k = rows,
            .v = rows,
            .lse = lse,
            .head_out = out,
            .kv_lengths = inputs.lengths,
            .allowed = inputs.allowed,
            .statistics = statistics});
    }
    float* row = scratch.branch.as<float>();
    for (Index i = 0; i < x[0] * x[1]; ++i, row += x[2]) std::copy_n(block.bo.data<float>(), x[2], row);
  }

  /// x = norm(x + attention(x)); x = norm(x + down(activation(up(x)))). `branch` is shaped like x, `wide` [batch, length, hidden_width].
  void run_block(const Block& block, const Scratch& scratch, const TransformerInputs& inputs, const MhaHook& hook,
                 Workspace& workspace) const {
    if (std::cmp_less(block.kept.size(), config.heads)) {
      attend_with_kept(block, scratch, inputs, hook, workspace);
    } else {
      block.attention->forward({.x = scratch.x, .allowed = inputs.allowed, .kv_lengths = inputs.lengths, .temperature = inputs.temperature},
                               {.y = scratch.branch, .hook = hook, .statistics = scratch.statistics}, workspace);
    }
    nn::add_into(scratch.branch, scratch.x, workspace);
    normalise(block.attention_norm, scratch.x, workspace);
    block.up.forward(scratch.x, scratch.wide, workspace);
    nn::activate(activation, scratch.wide, workspace);
    block.down.forward(scratch.wide, scratch.branch, workspace);
    nn::add_into(scratch.branch, scratch.x, workspace);
    normalise(block.output_norm, scratch.x, workspace);
  }
};

Transformer::Transformer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Transformer::Transformer(Transformer&&) noexcept = default;
Transformer& Transformer::operator=(Transformer&&) noexcept = default;
Transformer::~Transformer() = default;

Transformer Transformer::load(const std::string& folder) {
  const std::filesystem::path root(folder);
  TransformerConfig config = model::read_config((root / "config.json").string());
  return Transformer(std::make_unique<Impl>(std::move(config), SafetensorsFile((root / "model.safetensors").string())));
}

const TransformerConfig& Transformer::config() const { return impl_->config; }

ConstTensorView Transformer::output_projection(Index layer) const {
  MHA_CHECK(ShapeError, layer >= 0 && layer < impl_->config.layers, "layer is ", layer, ", the model has ", impl_->config.layers,
            " layers counted from 0");
  return impl_->blocks[static_cast<std::size_t>(layer)].wo;
}

void Transformer::forward(const TransformerInputs& inputs, TensorView hidden, Workspace& workspace, const LayerHook& hook) const {
  const Impl& m = *impl_;
  check_arguments(m.config, inputs, hidden);
  const Index batch = hidden.size(0);
  const Index length = hidden.size(1);
  const Index rows = batch * length;
  if (rows == 0) return;

  Arena& arena = workspace.caller_arena();
  const ArenaScope scope(arena);
  const Dims narrow{batch, length, m.config.d_model};
  const Dims wide{batch, length, m.config.hidden_width};
  Impl::Scratch scratch{.x = {arena.take<float>(element_count(narrow)), narrow},
                        .branch = {arena.take<float>(element_count(narrow)), narrow},
                        .wide = {arena.take<float>(element_count(wide)), wide},
                        .statistics = {}};
  if (hook) scratch.statistics = statistics_room(arena, {batch, m.config.heads, length}, inputs);
  m.embed(inputs, scratch.x, workspace);
  for (std::size_t layer = 0; layer < m.blocks.size(); ++layer) {
    MhaHook layer_hook;
    if (hook) {
      layer_hook = [&hook, &inputs, layer](const MhaTrace& trace) {
        if (!inputs.lengths.empty()) blank_padding(trace.statistics, inputs.lengths);
        hook(static_cast<Index>(layer), trace);
      };
    }
    m.run_block(m.blocks[layer], scratch, inputs, layer_hook, workspace);
  }
  copy(scratch.x, hidden);
}

}  // namespace mha
