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
  int lanes;
  Interval keys;
};

bool truly_visible(const Setting& s, int lane, Index key) {
  const AttentionInputs in = s.instance.inputs();
  const AttentionSpec spec = s.instance.spec();
  const RowPlace at = place_of(s.lowered, s.rows.batch, s.rows.kv_head, s.rows.first_row + lane);
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
  const RowPlace at = place_of(s.lowered, s.rows.batch, s.rows.kv_head, s.rows.first_row + lane);
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
    attention::find_summed(s.lowered, s.rows, s.lanes, v, s.keys, bits.data());
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
    const Index tile = *rc::gen::element<Index>(128, 64, 256);
    const Index rows = p.q_len * p.group;
    const auto mask = std::make_unique<TileMask>();
    const Index batch = p.batch - 1;
    const Index kv_head = p.kv_heads - 1;
    std::vector<RowIntervals> visible(static_cast<std::size_t>(rows));
    attention::find_visible(lowered,
                            {.batch = batch, .kv_head = kv_head, .first_row = 0, .rows = rows, .split = 0, .keys = {0, lowered.kv_len}},
                            visible.data());
    const bool plain = p.mask.empty() && p.kv_lengths.empty();
    for (Index first = 0; first < rows; first += 3 * lanes) {
      const int panel = static_cast<int>(std::min<Index>(3 * lanes, rows - first));
      for (Index lo = 0; lo < p.kv_len; lo += tile) {
        for (const bool with_intervals : {true, false}) {
          if (!with_intervals && !plain) continue;
          attention::VectorSight sight[kernels::kMaxPanelVectors];
          attention::find_sight(visible.data() + first, panel, lanes, sight);
          const MaskRows with = {batch, kv_head, first, panel, visible.data() + first, sight};
          const MaskRows without = {batch, kv_head, first, panel, nullptr, nullptr};
          const Setting s = {instance, lowered, with_intervals ? with : without, lanes, {lo, std::min(lo + tile, p.kv_len)}};
          attention::classify(lowered, s.rows, lanes, s.keys, *mask);
          RC_ASSERT(fault(s, *mask) == "");
          RC_ASSERT(wrong_bits(s) == "");
        }
      }
    }
  });
}

}  // namespace
}  // namespace mha::test
