#include "attention/biases.h"

#include <algorithm>
#include <cmath>

#include "attention/validate.h"
#include "core/check.h"

namespace mha {

std::vector<float> alibi_slopes(Index heads) {
  MHA_CHECK(ShapeError, heads >= 1, "alibi_slopes: heads is ", heads, ", must be at least 1");
  Index whole = 1;
  while (2 * whole <= heads) whole *= 2;
  std::vector<float> slopes;
  for (Index i = 1; i <= whole; ++i)
    slopes.push_back(static_cast<float>(std::exp2(-8.0 * static_cast<double>(i) / static_cast<double>(whole))));
  for (Index i = 1; static_cast<Index>(slopes.size()) < heads; i += 2) {
    slopes.push_back(static_cast<float>(std::exp2(-8.0 * static_cast<double>(i) / static_cast<double>(2 * whole))));
  }
  return slopes;
}

namespace attention {

namespace {

RowPlace lane_place(const TaskContext& c, const Panel& panel, int lane) {
  return place_of(c.p, c.task.batch, c.task.kv_head, c.task.first_row + panel.first + std::min(lane, panel.rows - 1));
}

void dense_rows(const TaskContext& c, const Panel& panel, int vector, Interval keys, float* scratch, const float** rows) {
  for (int lane = 0; lane < c.plan.lanes; ++lane) {
    const RowPlace at = lane_place(c, panel, vector * c.plan.lanes + lane);
    const Block block{&c.p.bias, c.p.bias.at(at.batch, at.head, at.query, keys.lo), 0, 1, keys.hi - keys.lo};
    rows[lane] = fetch(c.kernels, block, scratch + lane * c.plan.key_tile).data;
  }
}

/// A bias of the distance alone is the same row for every query of a head, only shifted: one row a head, long enough for all of them.
template <class DistanceBias>
void distance_rows(const TaskContext& c, const Panel& panel, int vector, Interval keys, float* scratch, const float** rows) {
  const auto& bias = std::get<DistanceBias>(c.p.spec->bias);
  const int lanes = c.plan.lanes;
  const Index offset = offset_of(*c.p.spec, *c.p.inputs, c.task.batch);
  const Index last = lane_place(c, panel, vector * lanes + lanes - 1).query + offset;  // queries ascend with the lanes
  const Index span = last - (lane_place(c, panel, vector * lanes).query + offset);
  const Index length = keys.hi - keys.lo + span;
  const auto heads = static_cast<int>(std::min<Index>(c.p.group, lanes));
  for (int lane = 0; lane < lanes; ++lane) {
    const RowPlace at = lane_place(c, panel, vector * lanes + lane);
    float* row = scratch + lane % heads * length;  // heads repeat every `group` lanes
    for (Index i = 0; i < length && lane < heads; ++i) row[i] = bias.at(at.head, keys.lo - last + i);
    rows[lane] = row + (last - (at.query + offset));
  }
}

}  // namespace

void find_bias_rows(const TaskContext& c, const Panel& panel, int vector, Interval keys, float* scratch, const float** rows) {
  if (std::holds_alternative<AlibiBias>(c.p.spec->bias)) {
    distance_rows<AlibiBias>(c, panel, vector, keys, scratch, rows);
  } else {
    dense_rows(c, panel, vector, keys, scratch, rows);
  }
}

}  // namespace attention

}  // namespace mha
