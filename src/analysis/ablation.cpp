// Leave-one-out: a text is run once for many ablations, a batch entry each, and the hook takes another head away in each entry.
#include "mha/analysis/ablation.h"

#include <cmath>

#include "analysis/variants.h"
#include "core/check.h"
#include "mha/error.h"

namespace mha {
namespace {

/// A head's output becomes its mean, or zeros where there are no means.
void take_away(TensorView head_out, HeadId id, const ConstTensorView& means) {
  for (Index q = 0; q < head_out.size(1); ++q) {
    float* row = head_out.as<float>() + q * head_out.stride(1) + id.head * head_out.stride(2);
    const float* mean = means ? means.as<float>() + id.layer * means.stride(0) + id.head * means.stride(1) : nullptr;
    for (Index d = 0; d < head_out.size(3); ++d) row[d * head_out.stride(3)] = mean == nullptr ? 0.0F : mean[d * means.stride(2)];
  }
}

void check_sets(const TransformerConfig& config, std::span<const std::vector<HeadId>> sets, const ConstTensorView& means) {
  for (const std::vector<HeadId>& set : sets) {
    for (const HeadId& id : set) {
      MHA_CHECK(ShapeError, id.layer >= 0 && id.layer < config.layers && id.head >= 0 && id.head < config.heads, "ablation: layer ",
                id.layer, ", head ", id.head, " of ", config.layers, " x ", config.heads);
    }
  }
  const Dims shape{config.layers, config.heads, config.head_dim};
  MHA_CHECK(ShapeError, !means || (means.dtype == DType::F32 && means.shape == shape), "ablation: means is ", name_of(means.dtype), " ",
            to_string(means.shape), ", must be f32 ", to_string(shape));
}

/// |a - b| / |b|; 0 where they are equal.
double relative_change(const ConstTensorView& a, const ConstTensorView& b) {
  double difference = 0.0;
  double size = 0.0;
  for (Index piece = 0; piece < a.size(1); ++piece) {
    for (Index d = 0; d < a.size(2); ++d) {
      const auto x = static_cast<double>(a.as<float>()[piece * a.stride(1) + d * a.stride(2)]);
      const auto y = static_cast<double>(b.as<float>()[piece * b.stride(1) + d * b.stride(2)]);
      difference += (x - y) * (x - y);
      size += y * y;
    }
  }
  return difference == 0.0 ? 0.0 : std::sqrt(difference / size);
}

}  // namespace

Tensor mean_outputs(const Transformer& model, std::span<const TextIds> texts, Workspace& workspace) {
  const TransformerConfig& config = model.config();
  const Dims shape{config.layers, config.heads, config.head_dim};
  std::vector<double> sums(static_cast<std::size_t>(element_count(shape)));
  Index tokens = 0;
  for (const TextIds& ids : texts) {
    tokens += static_cast<Index>(ids.size());
    Tensor hidden(DType::F32, {1, static_cast<Index>(ids.size()), config.d_model});
    run_with(model, ids, {}, hidden, workspace, [&](Index layer, const MhaTrace& trace) {
      const ConstTensorView out = trace.head_out;
      for (Index q = 0; q < out.size(1); ++q) {
        double* sum = sums.data() + layer * config.heads * config.head_dim;
        for (Index h = 0; h < config.heads; ++h) {
          const float* row = out.as<float>() + q * out.stride(1) + h * out.stride(2);
          for (Index d = 0; d < config.head_dim; ++d) *sum++ += static_cast<double>(row[d * out.stride(3)]);
        }
      }
    });
  }
  MHA_CHECK(ShapeError, tokens > 0, "ablation: the texts have no tokens to take means over");
  Tensor means(DType::F32, shape);
  for (std::size_t i = 0; i < sums.size(); ++i) means.data<float>()[i] = static_cast<float>(sums[i] / static_cast<double>(tokens));
  return means;
}

void run_without(const Transformer& model, std::span<const Index> ids, std::span<const std::vector<HeadId>> sets, ConstTensorView means,
                 const AblatedVisit& visit, Workspace& workspace) {
  check_sets(model.config(), sets, means);
  const auto change = [&](std::size_t set, Index layer, TensorView heads) {
    for (const HeadId& id : sets[set]) {
      if (id.layer == layer) take_away(heads, id, means);
    }
  };
  analysis::run_variants(model, ids, sets.size(), change, visit, workspace);
}

std::vector<HeadEffect> head_effects(const Transformer& model, std::span<const TextIds> texts, Ablation ablation, Workspace& workspace,
                                     const std::function<void()>& begin) {
  MHA_CHECK(ShapeError, !texts.empty(), "ablation: no texts to measure effects on");
  const Tensor means = ablation == Ablation::Mean ? mean_outputs(model, texts, workspace) : Tensor();
  std::vector<HeadEffect> effects;
  std::vector<std::vector<HeadId>> sets{{}};  // the whole model first
  for (const HeadId& id : all_heads(model.config())) {
    effects.push_back({.id = id});
    sets.push_back({id});
  }
  for (const TextIds& ids : texts) {
    if (begin) begin();
    Tensor whole;
    std::vector<double> vector;
    const auto visit = [&](std::size_t set, ConstTensorView hidden) {
      if (set == 0) {
        whole = Tensor(DType::F32, hidden.shape);
        copy(hidden, whole);
        vector = sentence_vector(whole);
        return;
      }
      HeadEffect& effect = effects[set - 1];
      effect.vector += (1.0 - cosine(vector, sentence_vector(hidden))) / static_cast<double>(texts.size());
      effect.hidden += relative_change(hidden, whole) / static_cast<double>(texts.size());
    };
    run_without(model, ids, sets, means, visit, workspace);
  }
  return effects;
}

}  // namespace mha
