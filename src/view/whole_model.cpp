// What looks beyond one head's weights: how much heads carry (norms), from where a hidden state has come (rollout), what is lost without a
// head (leave one out).
#include <algorithm>

#include "core/check.h"
#include "mha/analysis/ablation.h"
#include "mha/analysis/norms.h"
#include "mha/analysis/rollout.h"
#include "view/tables.h"

namespace mha::view {
namespace {

constexpr double kMostRolloutPairs = 4e9;

}  // namespace

std::vector<double> key_norms(const Lens& lens, HeadId id) {
  const CapturedLayer& layer = lens.layer(id.layer);
  if (!layer.v || id.layer >= static_cast<Index>(lens.run.projections.size())) {
    throw RequestError(400, core::join("run ", lens.run.id, " knows no values and output projections: norms cannot be told"),
                       "ask for kind=weight");
  }
  return value_norms(layer, lens.run.projections[static_cast<std::size_t>(id.layer)], id.head);
}

std::vector<float> rollout_shares(const Lens& lens, Index unit) {
  const auto pieces = static_cast<double>(lens.run.queries.pieces.size());
  if (!lens.run.is_self()) {
    throw RequestError(400, "rollout wants attention of a text to itself", "ask for a run whose rows and columns are the same tokens");
  }
  if (pieces * pieces * static_cast<double>(lens.run.heads()) > kMostRolloutPairs) {
    throw RequestError(413, core::join("rollout goes through all of ", lens.run.heads(), " tables of ", pieces, " rows"),
                       "ask for a shorter text");
  }
  const Unit& start = lens.rows()[static_cast<std::size_t>(unit)];
  const std::vector<double> shares =
      summed_by_unit(rollout(lens.run.capture, {.first = start.first, .count = start.count}, lens.workspace), lens.rows());
  lens.stop.check();
  return {shares.begin(), shares.end()};
}

Json effect_values(const MicroscopeModel& model, const Lens& lens, bool by_mean) {
  if (model.transformer == nullptr || lens.run.ids.empty()) {
    throw RequestError(400, "effects want a model to take heads from: this run is of a file",
                       "start `mha serve --model DIR` and post the text");
  }
  const std::vector<TextIds> texts = {lens.run.ids};
  const std::vector<HeadEffect> effects =
      head_effects(*model.transformer, texts, by_mean ? Ablation::Mean : Ablation::Zero, lens.workspace);
  lens.stop.check();
  const TransformerConfig& config = model.transformer->config();
  Json values = Json::array();
  for (Index layer = 0; layer < config.layers; ++layer) values.push_back(Json(static_cast<std::size_t>(config.heads), nullptr));
  for (const HeadEffect& effect : effects) {
    values[static_cast<std::size_t>(effect.id.layer)][static_cast<std::size_t>(effect.id.head)] = effect.vector;
  }
  return {{"values", std::move(values)}};
}

}  // namespace mha::view
