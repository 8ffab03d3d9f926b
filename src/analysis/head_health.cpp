// HealthWatch: sums over rows of statistics, head by head; and how a text is run for it. Asks the model for statistics, never for weights.
#include "mha/analysis/head_health.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "analysis/kept_tokens.h"
#include "core/check.h"
#include "mha/error.h"

namespace mha {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// An element of an f32 or f64 tensor.
double number(const ConstTensorView& view, Index i, Index j, Index k, Index l = 0) {
  Index at = i * view.stride(0) + j * view.stride(1) + k * view.stride(2);
  if (view.rank() == 4) at += l * view.stride(3);
  return view.dtype == DType::F64 ? view.as<double>()[at] : static_cast<double>(view.as<float>()[at]);
}

bool allowed_at(const ConstTensorView& allowed, Index b, Index h, Index q, Index key) {
  const auto at = [&](int axis, Index i) { return allowed.size(axis) == 1 ? 0 : i * allowed.stride(axis); };
  return allowed.as<bool>()[at(0, b) + at(1, h) + at(2, q) + at(3, key)];
}

/// How many keys a row sees.
Index visible_keys(const MhaTrace& trace, Index b, Index h, Index q) {
  const Index keys = trace.kv_lengths.empty() ? trace.k.size(1) : trace.kv_lengths[static_cast<std::size_t>(b)];
  RowIntervals seen;
  seen.add({0, keys});
  if (!trace.spec.mask.empty()) {
    const Index q_len = trace.q.size(1);
    const Index offset = trace.spec.align == Align::BottomRight ? keys - q_len : 0;
    seen = trace.spec.mask.visible(q, {.q_len = q_len, .kv_len = keys, .offset = offset});
  }
  Index count = 0;
  for (int i = 0; i < seen.count; ++i) {
    const Interval& part = seen.items[static_cast<std::size_t>(i)];
    if (!trace.allowed) count += part.hi - part.lo;
    for (Index key = part.lo; trace.allowed && key < part.hi; ++key) count += allowed_at(trace.allowed, b, h, q, key) ? 1 : 0;
  }
  return count;
}

double mean(double sum, Index count) { return count == 0 ? kNaN : sum / static_cast<double>(count); }

}  // namespace

/// One row's numbers.
struct HealthWatch::Row {
  bool sees = false;  // any key
  bool nan = false, infinite = false;
  bool chosen = false;  // whether `special` is known
  double logit = 0, entropy = 0, sink = 0, special = 0;
  double largest = 0;  // weight
};

HealthWatch::HealthWatch(Index layers, Index heads, const HealthRules& rules)
    : layers_(layers), heads_(heads), rules_(rules), sums_(static_cast<std::size_t>(element_count({layers, heads}))) {
  for (const double share : {rules.collapsed, rules.uniform, rules.one_key}) {
    MHA_CHECK(Error, share >= 0 && share <= 1, "watch: a rule is ", share, ", must lie in [0, 1]");
  }
}

HealthWatch::Row HealthWatch::row_of(const MhaTrace& trace, Index b, Index h, Index q) {
  const RowStatistics& s = trace.statistics;
  Row row{.logit = number(s.max_score, b, h, q), .entropy = number(s.entropy, b, h, q), .sink = number(s.first_weight, b, h, q)};
  const Index max_key = s.max_key.as<Index>()[b * s.max_key.stride(0) + h * s.max_key.stride(1) + q * s.max_key.stride(2)];
  row.sees = max_key >= 0 || std::isnan(row.entropy);
  if (!row.sees) return row;
  row.chosen = static_cast<bool>(s.chosen_weight);
  if (row.chosen) row.special = number(s.chosen_weight, b, h, q);
  row.largest = std::exp(row.logit - number(trace.lse, b, h, q));
  row.nan = std::isnan(row.entropy);
  row.infinite = row.logit == std::numeric_limits<double>::infinity();
  for (Index d = 0; d < trace.head_out.size(3); ++d) {
    const double value = number(trace.head_out, b, q, h, d);
    row.nan |= std::isnan(value);
    row.infinite |= std::isinf(value);
  }
  return row;
}

void HealthWatch::add_row(Sums& sums, const Row& row, Index keys) const {
  ++sums.counts.rows;
  sums.counts.max_logit = std::max(sums.counts.max_logit, row.logit);
  sums.counts.nan_rows += row.nan ? 1 : 0;
  sums.counts.infinite_rows += row.infinite ? 1 : 0;
  sums.counts.nonfinite_rows += row.nan || row.infinite ? 1 : 0;
  if (row.nan || row.infinite) return;
  ++sums.finite;
  sums.entropy += row.entropy;
  sums.sink += row.sink;
  if (row.chosen) {
    ++sums.weighed;
    sums.special += row.special;
  }
  if (keys < 2) return;  // no choice: uniform and single at once
  ++sums.choosing;
  const double most = std::log(static_cast<double>(keys));
  const bool uniform = row.entropy > rules_.uniform * most;
  const bool one_key = row.largest > rules_.one_key;
  sums.collapsed += row.entropy < rules_.collapsed * most ? 1 : 0;
  sums.uniform += uniform ? 1 : 0;
  sums.one_key += one_key ? 1 : 0;
  sums.dead += uniform || one_key ? 1 : 0;
}

void HealthWatch::add(Index layer, const MhaTrace& trace) {
  const RowStatistics& s = trace.statistics;
  MHA_CHECK(ShapeError, layer >= 0 && layer < layers_, "watch: layer is ", layer, ", there are ", layers_, " counted from 0");
  MHA_CHECK(ShapeError, trace.q.size(2) == heads_, "watch: the layer has ", trace.q.size(2), " heads, ", heads_, " are watched");
  MHA_CHECK(ShapeError, s.max_score && s.max_key && s.entropy && s.first_weight,
            "watch: max_score, max_key, entropy or first_weight is absent: the run must ask for statistics");
  for (Index h = 0; h < heads_; ++h) {
    Sums& sums = sums_[static_cast<std::size_t>(layer * heads_ + h)];
    for (Index b = 0; b < trace.q.size(0); ++b) {
      for (Index q = 0; q < trace.q.size(1); ++q) {
        const Row row = row_of(trace, b, h, q);
        if (row.sees) add_row(sums, row, visible_keys(trace, b, h, q));
      }
    }
  }
}

HeadHealth HealthWatch::head(HeadId id) const {
  MHA_CHECK(ShapeError, id.layer >= 0 && id.layer < layers_ && id.head >= 0 && id.head < heads_, "watch: layer ", id.layer, ", head ",
            id.head, " of ", layers_, " x ", heads_);
  const Sums& sums = sums_[static_cast<std::size_t>(id.layer * heads_ + id.head)];
  HeadHealth health = sums.counts;
  health.entropy = mean(sums.entropy, sums.finite);
  health.sink = mean(sums.sink, sums.finite);
  health.special = mean(sums.special, sums.weighed);
  const auto share = [&](Index rows) { return mean(static_cast<double>(rows), sums.choosing); };
  health.collapsed = share(sums.collapsed);
  health.uniform = share(sums.uniform);
  health.one_key = share(sums.one_key);
  health.dead = share(sums.dead);
  return health;
}

WatchedText watch_text(const Transformer& model, const Tokenizer& tokenizer, const std::string& text, HealthWatch& watch,
                       Workspace& workspace) {
  const TransformerConfig& config = model.config();
  MHA_CHECK(ShapeError, watch.layers() == config.layers && watch.heads() == config.heads, "watch: ", watch.layers(), " x ", watch.heads(),
            " heads are watched, the model has ", config.layers, " x ", config.heads);
  const Encoding encoding = tokenizer.encode(text);
  if (std::find(encoding.special.begin(), encoding.special.end(), false) == encoding.special.end()) return {};
  const std::vector<std::size_t> kept = analysis::kept_tokens(encoding, static_cast<std::size_t>(config.max_positions));
  const auto length = static_cast<Index>(kept.size());
  std::vector<Index> ids;
  Tensor frame(DType::Bool, {1, length});
  for (const std::size_t i : kept) {
    frame.data<bool>()[ids.size()] = encoding.special[i];
    ids.push_back(encoding.ids[i]);
  }
  Tensor hidden(DType::F32, {1, length, config.d_model});
  model.forward({.ids = ids, .statistics = true, .chosen = frame}, hidden, workspace,
                [&](Index layer, const MhaTrace& trace) { watch.add(layer, trace); });
  return {.tokens = length, .cut = kept.size() < encoding.size()};
}

}  // namespace mha
