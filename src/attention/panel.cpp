#include "attention/panel.h"

#include <algorithm>
#include <limits>

#include "attention/biases.h"

namespace mha::attention {

namespace {

constexpr float kNegInf = -std::numeric_limits<float>::infinity();

RowPlace place_in(const TaskContext& c, const Panel& panel, int lane) {
  return place_of(c.p, c.task.batch, c.task.kv_head, c.task.first_row + panel.first + lane);
}

/// Adds the bias to one strip, vector by vector.
void add_bias(const TaskContext& c, const Panel& panel, const KeyTile& tile, const kernels::Strip& strip, Scored& out) {
  const int lanes = c.plan.lanes;
  const Interval keys{tile.keys.lo + strip.key, tile.keys.lo + strip.key + strip.count};
  for (int v = strip.first_vector; v < strip.first_vector + strip.vectors; ++v) {
    const float* rows[kernels::kMaxLanes];
    find_bias_rows(c, panel, v, keys, out.rows, rows);
    c.kernels.add_bias(out.scores + strip.key * panel.ld + v * lanes, panel.ld, strip.count, rows);
  }
}

/// Sets the hidden scores of a partial strip to -inf and takes its maxima.
void hide(const TaskContext& c, const Panel& panel, const kernels::Strip& strip, Scored& out) {
  const int lanes = c.plan.lanes;
  const TileMask& mask = *out.mask;
  const int first_lane = strip.first_vector * lanes;
  float* scores = out.scores + strip.key * panel.ld;
  if (mask.by_bits) {
    for (int v = strip.first_vector; v < strip.first_vector + strip.vectors; ++v) {
      c.kernels.hide_bits(scores + v * lanes, panel.ld, strip.count, mask.bits[v] + strip.key, out.max + v * lanes);
    }
    return;
  }
  std::int32_t lo[kernels::kMaxPanelLanes];
  std::int32_t hi[kernels::kMaxPanelLanes];
  for (int l = 0; l < strip.vectors * lanes; ++l) {
    lo[l] = mask.lo[first_lane + l] - strip.key;
    hi[l] = mask.hi[first_lane + l] - strip.key;
  }
  c.kernels.hide_outside(scores + first_lane, panel.ld, strip.vectors, strip.count, lo, hi, out.max + first_lane);
}

}  // namespace

int cut_panels(const TaskContext& c, Panel* panels) {
  const int lanes = c.plan.lanes;
  const int full = c.plan.panel_lanes / lanes;
  int left = static_cast<int>((c.task.rows + lanes - 1) / lanes);
  int count = 0;
  for (int row = 0; left > 0; ++count) {
    // Two panels of two vectors rather than three and one: the lone vector would run at half speed.
    const int vectors = left == full + 1 && full > 2 ? full - 1 : std::min(left, full);
    const int rows = static_cast<int>(std::min<Index>(vectors * lanes, c.task.rows - row));
    panels[count] = {.first = row,
                     .rows = rows,
                     .vectors = vectors,
                     .ld = vectors * lanes,
                     .queries = nullptr,
                     .query_stride = (c.p.head_dim + lanes - 1) / lanes * lanes};
    row += rows;
    left -= vectors;
  }
  return count;
}

Index query_floats(const TaskContext& c, const Panel& panel) {
  return c.plan.few_rows ? panel.rows * panel.query_stride : panel.ld * c.p.head_dim;
}

namespace {

/// Rows as they are, scaled, padded with zeros.
void load_few_rows(const TaskContext& c, const Panel& panel, float* rows) {
  for (int lane = 0; lane < panel.rows; ++lane) {
    const RowPlace at = place_in(c, panel, lane);
    const Block block{&c.p.q, c.p.q.at(at.batch, at.query, at.head, 0), 0, 1, c.p.head_dim};
    const float* row = fetch(c.kernels, block, rows).data;
    float* query = panel.queries + lane * panel.query_stride;
    for (Index d = 0; d < c.p.head_dim; ++d) query[d] = row[d] * c.p.scale;
    std::fill(query + c.p.head_dim, query + panel.query_stride, 0.0F);
  }
}

}  // namespace

void load_panel(const TaskContext& c, Panel& panel, float* rows) {
  const int lanes = c.plan.lanes;
  if (c.plan.few_rows) {
    load_few_rows(c, panel, rows);
    return;
  }
  for (int v = 0; v < panel.vectors; ++v) {
    const float* lane_rows[kernels::kMaxLanes];
    const int count = std::min(lanes, panel.rows - v * lanes);
    for (int lane = 0; lane < count; ++lane) {
      const RowPlace at = place_in(c, panel, v * lanes + lane);
      const std::byte* query = c.p.q.at(at.batch, at.query, at.head, 0);
      lane_rows[lane] = c.p.q.plain() ? reinterpret_cast<const float*>(query)
                                      : fetch(c.kernels, {&c.p.q, query, 0, 1, c.p.head_dim}, rows + lane * c.p.head_dim).data;
    }
    c.kernels.load_queries(lane_rows, count, c.p.head_dim, c.p.scale, panel.queries + v * lanes, panel.ld);
  }
}

void ask_for_rows(const TaskContext& c, const Panel& panel, const Operand& operand, Index dim) {
  for (int lane = 0; lane < panel.rows; ++lane) {
    const RowPlace at = place_in(c, panel, lane);
    ask_for({&operand, operand.at(at.batch, at.query, at.head, 0), 0, 1, dim});
  }
}

Block key_block(const TaskContext& c, Interval keys) {
  return {&c.p.k, c.p.k.at(c.task.batch, keys.lo, c.task.kv_head, 0), c.p.k.stride[1], keys.hi - keys.lo, c.p.head_dim};
}

KeyTile load_keys(const TaskContext& c, Interval keys, float* copy) {
  look_at_keys(c.p, keys, *c.sight);
  const Block block = key_block(c, keys);
  if (c.plan.few_rows) return {keys, {}, fetch_stored(c.kernels, block, copy)};
  return {keys, fetch(c.kernels, block, copy, c.plan.copy_keys), {}};
}

MaskRows mask_rows(const TaskContext& c, const Panel& panel) { return {c.sight, panel.first, panel.rows, c.plan.lanes}; }

Scored take_scored(const TaskContext& c, Arena& arena, float* max, float* rows) {
  const Index scores = c.plan.key_tile * (c.plan.few_rows ? c.plan.lanes : c.plan.panel_lanes);
  Scored scored{arena.take<TileMask>(1), arena.take<float>(scores), max, rows, nullptr};
  if (c.plan.copy_keys) scored.key_copy = arena.take<float>(c.plan.key_tile * c.p.head_dim);
  return scored;
}

bool score_tile(const TaskContext& c, const Panel& panel, const KeyTile& tile, Scored& out) {
  const kernels::KernelTable& k = c.kernels;
  classify(mask_rows(c, panel), tile.keys, *out.mask);
  std::fill(out.max, out.max + panel.ld, kNegInf);
  for (int s = 0; s < out.mask->strip_count; ++s) {
    const kernels::Strip& strip = out.mask->strips[s];
    const int first_lane = strip.first_vector * c.plan.lanes;
    float* scores = out.scores + strip.key * panel.ld + first_lane;
    // The last step that changes scores takes the maximum.
    const bool final = !c.plan.few_rows && !c.p.spec->softcap && !c.p.biased() && !strip.partial;
    if (c.plan.few_rows) {
      const StoredBlock keys = tile.stored.slice(strip.key, strip.count);
      std::fill(scores, scores + strip.count * panel.ld, 0.0F);  // lanes beyond the rows go through the softmax with the others
      k.scores_few[static_cast<int>(keys.storage)](keys.rows, panel.queries, panel.query_stride, panel.rows, scores, panel.ld);
    } else {
      const kernels::Rows keys{tile.rows.data + strip.key * tile.rows.stride, tile.rows.stride, strip.count, tile.rows.dim};
      k.scores(keys, panel.queries + first_lane, panel.ld, strip.vectors, scores, final ? out.max + first_lane : nullptr);
    }
    if (c.p.spec->softcap) k.softcap(scores, panel.ld, strip.vectors, strip.count, static_cast<float>(*c.p.spec->softcap));
    if (c.p.biased()) add_bias(c, panel, tile, strip, out);
    if (strip.partial) {
      hide(c, panel, strip, out);
    } else if (!final) {
      k.row_max(scores, panel.ld, strip.vectors, strip.count, out.max + first_lane);
    }
  }
  return out.mask->strip_count > 0;
}

void write_weights(const TaskContext& c, const Panel& panel, Interval keys, const RowScale& scale, const WeightsTarget& target,
                   Scored& scratch) {
  const int lanes = c.plan.lanes;
  const auto row_at = [&](int lane, Index key) {
    const RowPlace at = place_in(c, panel, lane);
    return target.to.at(at.batch, at.head, at.query - target.first_query, key - target.first_key);
  };
  std::fill(scratch.rows, scratch.rows + c.plan.key_tile, 0.0F);
  for (Index key = keys.lo; key < keys.hi; key += c.plan.key_tile) {
    const Interval part{key, std::min(key + c.plan.key_tile, keys.hi)};
    for (int lane = 0; lane < panel.rows; ++lane) deliver(c.kernels, scratch.rows, part.hi - part.lo, target.to, row_at(lane, key));
  }
  for (Index key = keys.lo; key < keys.hi; key += c.plan.key_tile) {
    const KeyTile tile = load_keys(c, {key, std::min(key + c.plan.key_tile, keys.hi)}, scratch.key_copy);
    if (!score_tile(c, panel, tile, scratch)) continue;
    for (int s = 0; s < scratch.mask->strip_count; ++s) {
      const kernels::Strip& strip = scratch.mask->strips[s];
      for (int v = strip.first_vector; v < strip.first_vector + strip.vectors; ++v) {
        float* scores = scratch.scores + strip.key * panel.ld + v * lanes;
        c.kernels.exp_minus(scores, panel.ld, 1, strip.count, scale.max + v * lanes);
        const int count = std::min(lanes, panel.rows - v * lanes);
        float* out[kernels::kMaxLanes];
        for (int l = 0; l < count; ++l) {
          out[l] =
              target.to.plain() ? reinterpret_cast<float*>(row_at(v * lanes + l, key + strip.key)) : scratch.rows + l * c.plan.key_tile;
        }
        c.kernels.store_rows(scores, panel.ld, count, strip.count, scale.factor + v * lanes, out);
        for (int l = 0; l < count && !target.to.plain(); ++l) {
          deliver(c.kernels, out[l], strip.count, target.to, row_at(v * lanes + l, key + strip.key));
        }
      }
    }
  }
}

}  // namespace mha::attention
