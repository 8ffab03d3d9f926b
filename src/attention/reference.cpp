// The oracle: one query row at a time, one element at a time, every key looked at. Follows semantics.md part 1 line by line and shares no
// code with the tiled path, so that the two can disagree. Must stay readable; speed is no aim.
#include "attention/reference.h"

#include <algorithm>
#include <array>
#include <cfloat>
#include <cmath>
#include <limits>
#include <variant>
#include <vector>

#include "attention/dropout.h"
#include "core/executor.h"

namespace mha::attention {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

using Position = std::array<Index, 4>;  // one number per axis of a view

/// An axis of size 1 broadcasts. Rank may be below 4: the numbers are counted from the first axis.
Index offset_of_element(const Dims& shape, const Dims& strides, const Position& at) {
  Index offset = 0;
  for (int axis = 0; axis < shape.rank(); ++axis) offset += shape[axis] == 1 ? 0 : at[static_cast<std::size_t>(axis)] * strides[axis];
  return offset;
}

double load(const ConstTensorView& view, const Position& at) {
  const Index i = offset_of_element(view.shape, view.strides, at);
  switch (view.dtype) {
    case DType::F32:
      return view.as<float>()[i];
    case DType::F64:
      return view.as<double>()[i];
    case DType::Bf16:
      return view.as<Bf16>()[i].to_float();
    case DType::F16:
      return view.as<F16>()[i].to_float();
    case DType::Bool:
      return view.as<bool>()[i] ? 1 : 0;
    case DType::I64:
      return static_cast<double>(view.as<Index>()[i]);
  }
  return 0;
}

void store(const TensorView& view, const Position& at, double value) {
  const Index i = offset_of_element(view.shape, view.strides, at);
  if (view.dtype == DType::F32) view.as<float>()[i] = static_cast<float>(value);
  if (view.dtype == DType::F64) view.as<double>()[i] = value;
  if (view.dtype == DType::I64) view.as<Index>()[i] = static_cast<Index>(value);
  if (view.dtype == DType::Bf16) view.as<Bf16>()[i] = Bf16::from_float(static_cast<float>(value));
  if (view.dtype == DType::F16) view.as<F16>()[i] = F16::from_float(static_cast<float>(value));
}

struct Row {
  Index b, h, q;
  Index kv_head;
};

/// One row of the table of weights, before dropout.
struct WeightsRow {
  std::vector<bool> visible;    // per key: the row may see it
  std::vector<double> scores;   // per key: before softmax, -inf where hidden
  std::vector<double> weights;  // per key: 0 where hidden
  double lse = -kInf;
};

Row row_of(const AttentionInputs& in, Index b, Index h, Index q) {
  return {b, h, q, h / (in.q.size(2) / in.k.size(2))};  // rule 8: GQA
}

MaskContext context_of(const AttentionSpec& spec, const AttentionInputs& in, Index b) {
  const Index keys = in.kv_lengths.empty() ? in.k.size(1) : in.kv_lengths[static_cast<std::size_t>(b)];
  return {in.q.size(1), keys, spec.align == Align::BottomRight ? keys - in.q.size(1) : 0};  // rule 6: alignment
}

/// What a position bias adds to the score of one pair.
double added_to(const Bias& bias, const Position& pair, Index offset) {
  if (const auto* dense = std::get_if<DenseBias>(&bias)) return load(dense->values, pair);
  if (const auto* alibi = std::get_if<AlibiBias>(&bias)) {  // rule 11: distance in absolute positions
    const Index distance = pair[3] - (pair[2] + offset);
    return -static_cast<double>(alibi->slopes[static_cast<std::size_t>(pair[1])]) * static_cast<double>(std::abs(distance));
  }
  return 0;
}

/// Rule 3, first half: scores of one row, with what is hidden decided by select. A NaN is a score like any other.
std::vector<double> scores_of(const AttentionSpec& spec, const AttentionInputs& in, const Row& row, std::vector<bool>& visible) {
  const Index keys = in.k.size(1);
  const MaskContext context = context_of(spec, in, row.b);
  const double scale = spec.scale ? *spec.scale : 1 / std::sqrt(static_cast<double>(in.q.size(3)));  // rule 2
  std::vector<double> scores(static_cast<std::size_t>(keys), -kInf);
  visible.assign(static_cast<std::size_t>(keys), false);
  if (in.q.size(3) == 0) return scores;               // rule 5: of zero-size q and k there are no scores
  for (Index key = 0; key < context.kv_len; ++key) {  // keys at and beyond kv_lengths[b] do not exist
    const Position pair = {row.b, row.h, row.q, key};
    const double added = added_to(spec.bias, pair, context.offset);
    if (!spec.mask.sees(row.q, key, context)) continue;       // rule 4: all masks intersect
    if (in.allowed && load(in.allowed, pair) == 0) continue;  // True = may attend
    if (added == -kInf) continue;                             // rule 5: a bias of -inf hides
    double product = 0;
    for (Index d = 0; d < in.q.size(3); ++d) {
      product += load(in.q, {row.b, row.q, row.h, d}) * load(in.k, {row.b, key, row.kv_head, d});
    }
    double score = product * scale;
    if (spec.softcap) score = *spec.softcap * std::tanh(score / *spec.softcap);
    scores[static_cast<std::size_t>(key)] = score + added;
    visible[static_cast<std::size_t>(key)] = true;
  }
  return scores;
}

WeightsRow weights_of(const AttentionSpec& spec, const AttentionInputs& in, const Row& row) {
  WeightsRow result;
  result.scores = scores_of(spec, in, row, result.visible);
  result.weights = result.scores;
  const double sink = spec.sink_logits.empty() ? -kInf : spec.sink_logits[static_cast<std::size_t>(row.h)];
  double max = sink;
  for (const double score : result.weights) max = std::isnan(max) || score <= max ? max : score;  // a NaN wins
  if (max == -kInf) {  // rule 5: sees nothing, or nothing above -inf
    result.visible.assign(result.visible.size(), false);
    result.weights.assign(result.weights.size(), 0);
    return result;
  }
  double sum = std::exp(sink - max);  // rule 3: the sink joins the denominator only
  for (double& weight : result.weights) {
    weight = std::exp(weight - max);
    sum += weight;
  }
  for (std::size_t key = 0; key < result.weights.size(); ++key) {
    double& weight = result.weights[key];
    weight = result.visible[key] ? weight / sum : 0;  // a hidden key weighs 0 even where the row is NaN
    if (weight < FLT_MIN) weight = 0;                 // rule 12
  }
  result.lse = max + std::log(sum);
  return result;
}

/// The strongest links of one row: its keys in the order of their scores, as many as there is room for.
void write_links_of(const WeightsRow& table, const RowStatistics& wanted, const Row& row) {
  std::vector<Index> keys;
  for (std::size_t key = 0; key < table.scores.size(); ++key) {
    if (table.scores[key] > -kInf) keys.push_back(static_cast<Index>(key));
  }
  const auto score = [&](Index key) { return table.scores[static_cast<std::size_t>(key)]; };
  std::stable_sort(keys.begin(), keys.end(), [&](Index a, Index b) { return score(a) > score(b); });
  const bool nan = std::any_of(table.weights.begin(), table.weights.end(), [](double weight) { return std::isnan(weight); });
  const auto links = static_cast<Index>(keys.size());
  for (Index i = 0; wanted.link_keys && i < wanted.link_keys.size(3); ++i) {
    store(wanted.link_keys, {row.b, row.h, row.q, i}, i < links ? static_cast<double>(keys[static_cast<std::size_t>(i)]) : -1);
  }
  for (Index i = 0; wanted.link_weights && i < wanted.link_weights.size(3); ++i) {
    const double weight = i < links ? table.weights[static_cast<std::size_t>(keys[static_cast<std::size_t>(i)])] : 0;
    store(wanted.link_weights, {row.b, row.h, row.q, i}, nan ? std::numeric_limits<double>::quiet_NaN() : weight);
  }
}

/// The formulas of mha/statistics.h, literally.
void write_statistics_of(const WeightsRow& table, Index offset, const RowStatistics& wanted, const Row& row) {
  const auto keys = static_cast<Index>(table.weights.size());
  double top = -kInf, entropy = 0, total = 0, mean = 0, variance = 0, chosen = 0;
  Index top_key = -1;
  const auto distance = [&](Index key) { return static_cast<double>(std::abs(row.q + offset - key)); };
  for (Index key = 0; key < keys; ++key) {
    const double score = table.scores[static_cast<std::size_t>(key)];
    const double weight = table.weights[static_cast<std::size_t>(key)];
    if (score > top) {
      top = score;
      top_key = key;
    }
    if (weight != 0) entropy -= weight * std::log(weight);
    total += weight;
    mean += weight * distance(key);
    if (wanted.chosen && load(wanted.chosen, {wanted.chosen.size(0) == 1 ? 0 : row.b, key, 0, 0}) != 0) chosen += weight;
  }
  mean = total == 0 ? 0 : mean / total;
  for (Index key = 0; key < keys && total != 0; ++key) {
    variance += table.weights[static_cast<std::size_t>(key)] / total * (distance(key) - mean) * (distance(key) - mean);
  }
  const auto put = [&](const TensorView& view, double value) {
    if (view) store(view, {row.b, row.h, row.q, 0}, value);
  };
  put(wanted.max_score, top);
  put(wanted.max_key, static_cast<double>(top_key));
  put(wanted.entropy, entropy);
  put(wanted.distance, mean);
  put(wanted.distance_variance, variance);
  // A row that meets a NaN says so, even of keys that are hidden from it.
  put(wanted.first_weight, std::isnan(total) ? total : keys == 0 ? 0 : table.weights[0]);
  put(wanted.chosen_weight, std::isnan(total) ? total : chosen);
}

/// Rule 3, second half: dropout after the normaliser, then times V. Hidden keys take no part, whatever V holds there.
void write_row(const AttentionSpec& spec, const AttentionInputs& in, const AttentionOutputs& outputs, const Row& row) {
  const WeightsRow table = weights_of(spec, in, row);
  for (Index d = 0; d < in.v.size(3); ++d) {
    double sum = 0;
    for (Index key = 0; key < in.v.size(1); ++key) {
      if (!table.visible[static_cast<std::size_t>(key)]) continue;
      const double factor = spec.dropout.probability > 0 ? dropout_factor(spec.dropout, row.b, row.h, row.q, key) : 1;
      sum += table.weights[static_cast<std::size_t>(key)] * factor * load(in.v, {row.b, key, row.kv_head, d});
    }
    store(outputs.out, {row.b, row.q, row.h, d}, sum);
  }
  if (outputs.lse) store(outputs.lse, {row.b, row.h, row.q, 0}, table.lse);
  for (Index key = 0; outputs.weights && key < in.k.size(1); ++key) {
    store(outputs.weights, {row.b, row.h, row.q, key}, table.weights[static_cast<std::size_t>(key)]);  // rule 13: before dropout
  }
  if (!outputs.statistics) return;
  write_statistics_of(table, context_of(spec, in, row.b).offset, outputs.statistics, row);
  write_links_of(table, outputs.statistics, row);
}

}  // namespace

void reference_forward(const AttentionSpec& spec, const AttentionInputs& inputs, const AttentionOutputs& outputs, Workspace& workspace) {
  const Index heads = inputs.q.size(2);
  const Index q_len = inputs.q.size(1);
  // On the caller, through run_tasks so that the executor can stop it.
  core::run_tasks(workspace.executor(), 1, inputs.q.size(0) * heads * q_len, [&](int, Index row) {
    write_row(spec, inputs, outputs, row_of(inputs, row / q_len / heads, row / q_len % heads, row % q_len));
  });
}

void reference_weights(const AttentionSpec& spec, const AttentionInputs& inputs, const WeightsRegion& region, TensorView weights,
                       Workspace&) {
  for (Index q = region.queries.lo; q < region.queries.hi; ++q) {
    const WeightsRow table = weights_of(spec, inputs, row_of(inputs, region.batch, region.head, q));
    for (Index key = region.keys.lo; key < region.keys.hi; ++key) {
      store(weights, {q - region.queries.lo, key - region.keys.lo, 0, 0}, table.weights[static_cast<std::size_t>(key)]);
    }
  }
}

void reference_received(const AttentionSpec& spec, const AttentionInputs& inputs, TensorView received) {
  for (Index b = 0; b < received.size(0); ++b) {
    for (Index h = 0; h < received.size(1); ++h) {
      std::vector<double> sums(static_cast<std::size_t>(received.size(2)), 0.0);
      for (Index q = 0; q < inputs.q.size(1); ++q) {
        const WeightsRow table = weights_of(spec, inputs, row_of(inputs, b, h, q));
        for (std::size_t key = 0; key < sums.size(); ++key) sums[key] += table.weights[key];
      }
      for (std::size_t key = 0; key < sums.size(); ++key) store(received, {b, h, static_cast<Index>(key), 0}, sums[key]);
    }
  }
}

void reference_map(const AttentionSpec& spec, const AttentionInputs& inputs, const WeightsRegion& region, const WeightsMap& map) {
  const Dims shape = map.mean.rank() > 0 ? map.mean.shape : map.max.shape;
  const Index queries = region.queries.hi - region.queries.lo;
  const Index keys = region.keys.hi - region.keys.lo;
  for (Index r = 0; r < shape[0]; ++r) {
    std::vector<double> sums(static_cast<std::size_t>(shape[1]), 0.0);
    std::vector<double> tops = sums;
    const Index first = r * queries / shape[0];
    const Index end = (r + 1) * queries / shape[0];
    for (Index q = first; q < end; ++q) {
      const WeightsRow table = weights_of(spec, inputs, row_of(inputs, region.batch, region.head, region.queries.lo + q));
      for (Index c = 0; c < shape[1]; ++c) {
        for (Index key = c * keys / shape[1]; key < (c + 1) * keys / shape[1]; ++key) {
          const double weight = table.weights[static_cast<std::size_t>(region.keys.lo + key)];
          sums[static_cast<std::size_t>(c)] += weight;
          double& top = tops[static_cast<std::size_t>(c)];
          top = std::isnan(top) || weight <= top ? top : weight;  // a NaN wins
        }
      }
    }
    for (Index c = 0; c < shape[1]; ++c) {
      const auto pairs = static_cast<double>((end - first) * ((c + 1) * keys / shape[1] - c * keys / shape[1]));
      if (map.mean) store(map.mean, {r, c, 0, 0}, sums[static_cast<std::size_t>(c)] / pairs);
      if (map.max) store(map.max, {r, c, 0, 0}, tops[static_cast<std::size_t>(c)]);
    }
  }
}

}  // namespace mha::attention
