// A pretrained encoder of the BERT family (bert, distilbert), read from a Hugging Face folder (config.json, model.safetensors), with a
// hook on every layer's heads. The model never keeps weights of attention: whoever wants them asks `attention_weights` with what the hook
// is given.
//
//   mha::Transformer model = mha::Transformer::load(folder);
//   model.forward({.ids = encoding.ids}, hidden, workspace, [](mha::Index layer, const mha::MhaTrace& trace) { ... });
//
// Const models may be used from several threads at once, each with its own Workspace.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mha/layer.h"
#include "mha/tensor.h"
#include "mha/workspace.h"

namespace mha {

/// What config.json says, in our vocabulary. Heads are numbered as before any was removed, everywhere.
struct TransformerConfig {
  std::string family;  // model_type: "bert" or "distilbert"
  Index vocabulary = 0;
  Index layers = 0;
  Index d_model = 0;
  Index heads = 0;  // of a layer, those removed from it included
  Index head_dim = 0;
  Index hidden_width = 0;  // of the feed-forward part
  Index max_positions = 0;
  Index token_types = 0;  // 0: the model has no such embedding
  double norm_eps = 1e-12;
  std::string activation;  // "gelu", ...
  /// Heads whose rows and columns are no longer in W_q, W_k, W_v and W_O, ascending, by layer; layers that lost none are not in it.
  std::map<Index, std::vector<Index>> pruned_heads = {};

  /// Whether that layer still has that head. Throws ShapeError for one that never was.
  bool has_head(Index layer, Index head) const;
  /// The heads that layer still has, ascending. It may have lost all: its attention then gives b_O. Throws ShapeError as above.
  std::vector<Index> heads_of(Index layer) const;
};

struct TransformerInputs {
  std::span<const Index> ids;  // batch * length token ids, row by row
  Index batch = 1;
  std::span<const Index> lengths = {};      // per batch entry, tokens that exist; absent: all
  std::span<const Index> token_types = {};  // like ids; absent: 0
  ConstTensorView allowed = {};             // who may attend to whom, in every layer; as in AttentionInputs
  float temperature = 1.0F;                 // of every layer's heads; as in MhaInputs
  bool statistics = false;  // whether the hook is given the numbers of mha/statistics.h; tokens beyond `lengths` as rows that see no key
  Index links = 0;          // so many strongest links of each row besides, at most kMaxLinks
  ConstTensorView chosen = {};  // bool, [batch | 1, length]: the keys of their chosen_weight; absent: they have none
};

/// Called once per layer, between attention and its output projection. `trace.head_out` may be written (ablation). `trace.statistics` is
/// there where TransformerInputs asks for it. A removed head is there as one that attends to nothing: its q, k, v and output are 0, its lse
/// is +infinity, so that its weights come out as 0, its statistics are those of rows that see no key; what is written to it is not read.
using LayerHook = std::function<void(Index layer, const MhaTrace& trace)>;

class Transformer {
 public:
  /// Throws IoError where a file is missing, FormatError where one is malformed or the weights contradict the config (name and both
  /// shapes).
  static Transformer load(const std::string& folder);
  Transformer(Transformer&&) noexcept;
  Transformer& operator=(Transformer&&) noexcept;
  ~Transformer();

  const TransformerConfig& config() const;
  /// W_O of one layer as the file has it, [d_model, heads * head_dim]: head h reads columns [h * head_dim, (h + 1) * head_dim), which are 0
  /// for one that was removed. A view into the model. Throws ShapeError for a layer that is not there.
  ConstTensorView output_projection(Index layer) const;
  /// `hidden` receives the last layer's hidden states, [batch, length, d_model], f32. Throws ShapeError, before anything is written, for
  /// an id outside the vocabulary, a length beyond max_positions, or inputs that attention refuses.
  void forward(const TransformerInputs& inputs, TensorView hidden, Workspace& workspace, const LayerHook& hook = {}) const;

 private:
  struct Impl;
  explicit Transformer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace mha
