// The cutting of tiles into strips: every pair that a strip computes unhidden is visible, every visible pair is in a strip, and partial
// strips describe exactly the visible pairs. Against the predicates of the rules, for any lanes.
#include "attention/tile_mask.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "attention/lower.h"
#include "attention/validate.h"
#include "support/gen.h"
#include "support/near.h"

namespace mha::test {
namespace {

using attention::MaskRows;
using attention::Problem;
using attention::RowPlace;
using attention::TileMask;

struct Setting {
  const Instance& instance;
  const Problem& lowered;
  MaskRows rows;
  Interval keys;
  int lanes = rows.lanes;
};

RowPlace place_of_lane(const Setting& s, int lane) {
  const attention::Task& task = s.rows.sight->task;
  return place_of(s.lowered, task.batch, task.kv_head, task.first_row + s.rows.first + lane);
}

bool truly_visible(const Setting& s, int lane, Index key) {
  const AttentionInputs in = s.instance.inputs();
  const AttentionSpec spec = s.instance.spec();
  const RowPlace at = place_of_lane(s, lane);
  const Index keys = in.kv_lengths.empty() ? in.k.size(1) : in.kv_lengths[static_cast<std::size_t>(at.batch)];
  const MaskContext context = {in.q.size(1), keys, spec.align == Align::BottomRight ? keys - in.q.size(1) : 0};
  if (key >= keys || !spec.mask.sees(at.query, key, context)) return false;
  if (!in.allowed) return true;
  const auto i = [&](int axis, Index index) { return in.allowed.size(axis) == 1 ? 0 : index; };
  return element(in.allowed, i(0, at.batch), i(1, at.head), i(2, at.query), i(3, key)) != 0;
}

bool bias_hides(const Setting& s, int lane, Index key) {
  const auto spec = s.instance.spec();
  const auto* bias = std::get_if<DenseBias>(&spec.bias);
  if (bias == nullptr) return false;
  const RowPlace at = place_of_lane(s, lane);
  const auto i = [&](int axis, Index index) { return bias->values.size(axis) == 1 ? 0 : index; };
  return element(bias->values, i(0, at.batch), i(1, at.head), i(2, at.query), i(3, key)) == -HUGE_VAL;
}

/// What is wrong with the strips of one panel and tile; empty where nothing is.
std::string fault(const Setting& s, const TileMask& mask) {
  const int vectors = (s.rows.rows + s.lanes - 1) / s.lanes;
  const auto count = static_cast<int>(s.keys.hi - s.keys.lo);
  std::vector<int> strip_of(static_cast<std::size_t>(count), -1);
  int end = 0;
  for (int i = 0; i < mask.strip_count; ++i) {
    const kernels::Strip& strip = mask.strips[i];
    if (strip.key < end || strip.count < 1 || strip.key + strip.count > count)
      return "strips are not ascending, disjoint and inside the tile";
    if (strip.first_vector < 0 || strip.vectors < 1 || strip.first_vector + strip.vectors > vectors) return "vectors outside the panel";
    end = strip.key + strip.count;
    for (int k = strip.key; k < end; ++k) strip_of[static_cast<std::size_t>(k)] = i;
  }
  for (int lane = 0; lane < s.rows.rows; ++lane) {
    for (int k = 0; k < count; ++k) {
      const bool visible = truly_visible(s, lane, s.keys.lo + k);
      const std::string pair = " (lane " + std::to_string(lane) + ", key " + std::to_string(s.keys.lo + k) + ")";
      const int i = strip_of[static_cast<std::size_t>(k)];
      const int vector = lane / s.lanes;
      const bool computed =
          i >= 0 && vector >= mask.strips[i].first_vector && vector < mask.strips[i].first_vector + mask.strips[i].vectors;
      if (!computed) {
        if (visible) return "a visible pair is in no strip" + pair;
        continue;
      }
      bool described = true;
      if (mask.strips[i].partial && mask.by_bits) described = (mask.bits[vector][k] >> (lane % s.lanes) & 1) != 0;
      if (mask.strips[i].partial && !mask.by_bits) described = mask.lo[lane] <= k && k < mask.hi[lane];
      if (described != visible) return (visible ? "a visible pair is hidden" : "a hidden pair is not") + pair;
    }
  }
  return "";
}

std::string wrong_bits(const Setting& s) {
  const int vectors = (s.rows.rows + s.lanes - 1) / s.lanes;
  std::vector<std::uint16_t> bits(static_cast<std::size_t>(s.keys.hi - s.keys.lo));
  for (int v = 0; v < vectors; ++v) {
    attention::find_summed(s.lowered, s.rows, v, s.keys, bits.data());
    for (int lane = v * s.lanes; lane < std::min(s.rows.rows, (v + 1) * s.lanes); ++lane) {
      for (Index k = s.keys.lo; k < s.keys.hi; ++k) {
        const bool summed = (bits[static_cast<std::size_t>(k - s.keys.lo)] >> (lane % s.lanes) & 1) != 0;
        if (summed != (truly_visible(s, lane, k) && !bias_hides(s, lane, k)))
          return "lane " + std::to_string(lane) + " key " + std::to_string(k);
      }
    }
  }
  return "";
}

TEST(TileMaskTest, StripsHoldExactlyTheVisiblePairs) {
  check("every panel and tile of random problems", [] {
    test::Problem p = *gen::problem({DType::F32});
    p.kv_len = *rc::gen::oneOf(rc::gen::just(p.kv_len), rc::gen::inRange<Index>(100, 400));
    p.kv_lengths.clear();
    if (*rc::gen::arbitrary<bool>()) {
      for (Index b = 0; b < p.batch; ++b) p.kv_lengths.push_back(*rc::gen::inRange<Index>(0, p.kv_len + 1));
    }
    p.head_dim = p.value_dim = 1;
    p.layout = Layout::Dense;
    const Instance instance(p);
    const AttentionSpec spec = instance.spec();
    const AttentionInputs inputs = instance.inputs();
    const Problem lowered = attention::lower(spec, inputs, {.out = {}, .lse = {}, .weights = {}});
    const int lanes = *rc::gen::element(1, 8, 16);
    const Index tile = *rc::gen::element<Index>(128, 64, 256, 32);
    const Index rows = p.q_len * p.group;
    attention::Plan plan{};
    plan.lanes = lanes;
    plan.rows_per_task = rows;
    const auto mask = std::make_unique<TileMask>();
    Arena arena;
    const ArenaScope scope(arena);
    attention::Sight sight = attention::take_sight(lowered, plan, p.kv_len, arena);
    // One memory for several tasks, as a worker has it: what it keeps from one must be true of the next.
    for (int task = 0; task < 6; ++task) {
      const Index first_key = p.kv_len > 128 && task % 3 == 2 ? 96 : 0;
      const Index first_row = task % 2 == 1 ? std::clamp<Index>(rows - 1, 0, 2 * lanes) : 0;
      attention::look(lowered,
                      {.batch = *rc::gen::inRange<Index>(0, p.batch),
                       .kv_head = *rc::gen::inRange<Index>(0, p.kv_heads),
                       .first_row = first_row,
                       .rows = rows - first_row,
                       .split = 0,
                       .keys = {first_key, lowered.kv_len}},
                      lanes, sight);
      for (Index first = 0; first < rows - first_row; first += 3 * lanes) {
        const MaskRows panel = {&sight, first, static_cast<int>(std::min<Index>(3 * lanes, rows - first_row - first)), lanes};
        for (Index lo = first_key; lo < p.kv_len; lo += tile) {
          const Setting s = {instance, lowered, panel, {lo, std::min(lo + tile, p.kv_len)}};
          attention::look_at_keys(lowered, s.keys, sight);
          attention::classify(s.rows, s.keys, *mask);
          RC_ASSERT(fault(s, *mask) == "");
          RC_ASSERT(wrong_bits(s) == "");
        }
      }
    }
  });
}

}  // namespace
}  // namespace mha::test
