#include "attention/validate.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "attention/row_numbers.h"
#include "core/check.h"

namespace mha::attention {

namespace {

bool finite_as_f32(double value) { return std::isfinite(static_cast<float>(value)); }

bool computable(DType dtype) { return dtype == DType::F32 || dtype == DType::F64 || dtype == DType::Bf16 || dtype == DType::F16; }

void check_rank(const ConstTensorView& view, const char* name, const char* axes) {
  MHA_CHECK(ShapeError, view.rank() == 4, "attention: ", name, " has shape ", to_string(view.shape), ", must be ", axes);
  MHA_CHECK(ShapeError, view || element_count(view.shape) == 0, "attention: ", name, " has no data");
}

void check_size(const char* name, const char* what, Index found, Index wanted, const char* as) {
  MHA_CHECK(ShapeError, found == wanted, "attention: ", name, " has ", what, " ", found, ", ", as, " has ", wanted);
}

void check_result(const TensorView& view, const char* name, DType dtype, const Dims& shape) {
  MHA_CHECK(ShapeError, view.shape == shape, "attention: ", name, " has shape ", to_string(view.shape), ", must be ", to_string(shape));
  MHA_CHECK(DTypeError, view.dtype == dtype, "attention: ", name, " is ", name_of(view.dtype), ", must be ", name_of(dtype));
  for (int axis = 0; axis < view.rank() && element_count(shape) > 0; ++axis) {
    MHA_CHECK(ShapeError, view.stride(axis) != 0 || view.size(axis) <= 1, "attention: ", name, " has stride 0 along axis ", axis,
              " of size ", view.size(axis), ": its elements would share memory");
  }
}

/// [batch | 1, heads | 1, q_len | 1, kv_len | 1]
void check_broadcastable(const ConstTensorView& view, const char* name, const Dims& full) {
  MHA_CHECK(ShapeError, view.rank() == 4, "attention: ", name, " has shape ", to_string(view.shape),
            ", must have 4 axes: [batch, heads, q, k]");
  for (int axis = 0; axis < 4; ++axis) {
    MHA_CHECK(ShapeError, view.size(axis) == full[axis] || view.size(axis) == 1, "attention: ", name, " has shape ", to_string(view.shape),
              ", which does not broadcast to ", to_string(full), " (axis ", axis, ")");
  }
}

Dims table_shape(const AttentionInputs& in) { return {in.q.size(0), in.q.size(2), in.q.size(1), in.k.size(1)}; }

void check_queries_and_keys(const AttentionInputs& in) {
  check_rank(in.q, "q", "[batch, length, heads, head_dim]");
  check_rank(in.k, "k", "[batch, length, kv_heads, head_dim]");
  MHA_CHECK(DTypeError, computable(in.q.dtype), "attention: q is ", name_of(in.q.dtype), ", must be f32, bf16, f16 or f64");
  MHA_CHECK(DTypeError, in.k.dtype == in.q.dtype, "attention: k is ", name_of(in.k.dtype), ", q is ", name_of(in.q.dtype));
  check_size("k", "batch", in.k.size(0), in.q.size(0), "q");
  check_size("k", "head_dim", in.k.size(3), in.q.size(3), "q");
  const Index heads = in.q.size(2);
  const Index kv_heads = in.k.size(2);
  MHA_CHECK(ShapeError, kv_heads > 0 ? heads % kv_heads == 0 : heads == 0, "attention: k has ", kv_heads, " heads, q has ", heads,
            ": heads of q must be a multiple of heads of k");
}

void check_values(const AttentionInputs& in) {
  check_rank(in.v, "v", "[batch, length, kv_heads, value_dim]");
  MHA_CHECK(DTypeError, in.v.dtype == in.q.dtype, "attention: v is ", name_of(in.v.dtype), ", q is ", name_of(in.q.dtype));
  check_size("v", "batch", in.v.size(0), in.q.size(0), "q");
  check_size("v", "length", in.v.size(1), in.k.size(1), "k");
  check_size("v", "heads", in.v.size(2), in.k.size(2), "k");
}

/// Of what depends on where queries sit among the keys.
void check_aligned(const AttentionSpec& spec, const AttentionInputs& in, const std::string& what) {
  if (spec.align != Align::Unset) return;
  for (Index b = 0; b < in.q.size(0); ++b) {
    MHA_CHECK(ShapeError, kv_len_of(in, b) == in.q.size(1), "attention: ", what, " needs align, since batch entry ", b, " has ",
              in.q.size(1), " queries and ", kv_len_of(in, b), " keys: say Align::TopLeft or Align::BottomRight");
    if (in.kv_lengths.empty()) break;
  }
}

void check_masks(const AttentionSpec& spec, const AttentionInputs& in) {
  if (in.allowed) {
    check_broadcastable(in.allowed, "allowed", table_shape(in));
    MHA_CHECK(DTypeError, in.allowed.dtype == DType::Bool, "attention: allowed is ", name_of(in.allowed.dtype),
              ", must be bool (a float mask is a DenseBias)");
  }
  const Index batch = in.q.size(0);
  MHA_CHECK(ShapeError, in.kv_lengths.empty() || static_cast<Index>(in.kv_lengths.size()) == batch, "attention: kv_lengths has ",
            in.kv_lengths.size(), " entries, batch is ", batch);
  for (Index b = 0; b < batch && !in.kv_lengths.empty(); ++b) {
    const Index length = in.kv_lengths[static_cast<std::size_t>(b)];
    MHA_CHECK(ShapeError, 0 <= length && length <= in.k.size(1), "attention: kv_lengths[", b, "] is ", length, ", k has length ",
              in.k.size(1));
  }
  if (!spec.mask.empty()) check_aligned(spec, in, "mask " + to_string(spec.mask));
  if (std::holds_alternative<AlibiBias>(spec.bias)) check_aligned(spec, in, "an ALiBi bias");
}

void check_options(const AttentionSpec& spec, const AttentionInputs& in) {
  if (const auto* dense = std::get_if<DenseBias>(&spec.bias)) {
    MHA_CHECK(ShapeError, dense->values, "attention: bias has no data");
    check_broadcastable(dense->values, "bias", table_shape(in));
    const bool fits = computable(dense->values.dtype) && (dense->values.dtype != DType::F64 || in.q.dtype == DType::F64);
    MHA_CHECK(DTypeError, fits, "attention: bias is ", name_of(dense->values.dtype), ", must be f32, bf16 or f16 (f64 with f64 inputs)");
  }
  const auto heads = static_cast<std::size_t>(in.q.size(2));
  if (const auto* alibi = std::get_if<AlibiBias>(&spec.bias)) {
    MHA_CHECK(ShapeError, alibi->slopes.size() == heads, "attention: ALiBi has ", alibi->slopes.size(), " slopes, q has ", heads, " heads");
    for (std::size_t h = 0; h < heads; ++h) {
      MHA_CHECK(ShapeError, std::isfinite(alibi->slopes[h]), "attention: ALiBi's slope of head ", h, " is ", alibi->slopes[h],
                ", must be finite");
    }
  }
  MHA_CHECK(ShapeError, spec.sink_logits.empty() || spec.sink_logits.size() == heads, "attention: sink_logits has ",
            spec.sink_logits.size(), " entries, q has ", heads, " heads");
  MHA_CHECK(ShapeError, !spec.softcap || (finite_as_f32(*spec.softcap) && static_cast<float>(*spec.softcap) > 0.0F),
            "attention: softcap is ", spec.softcap.value_or(0.0), ", must be finite and above 0 as f32");
  MHA_CHECK(ShapeError, !spec.scale || finite_as_f32(*spec.scale), "attention: scale is ", spec.scale.value_or(0.0),
            ", must be finite as f32");
  MHA_CHECK(ShapeError, spec.dropout.probability >= 0.0F && spec.dropout.probability <= 1.0F, "attention: dropout's probability is ",
            spec.dropout.probability, ", must lie in [0, 1]");
}

/// An absent view has no data and no axes; one of no elements may have no data either.
bool is_given(const ConstTensorView& view) { return view || view.rank() > 0; }

void check_links(const AttentionInputs& in, const RowStatistics& s) {
  if (!is_given(s.link_weights) && !is_given(s.link_keys)) return;
  const TensorView& any = is_given(s.link_keys) ? s.link_keys : s.link_weights;
  const char* name = is_given(s.link_keys) ? "link_keys" : "link_weights";
  MHA_CHECK(ShapeError, any.rank() == 4 && 1 <= any.size(3) && any.size(3) <= kMaxLinks, "attention: ", name, " has shape ",
            to_string(any.shape), ", must be [batch, heads, q_len, links] of 1 to ", kMaxLinks, " links");
  MHA_CHECK(ShapeError, !is_given(s.link_weights) || s.link_weights.shape == any.shape, "attention: link_weights has shape ",
            to_string(s.link_weights.shape), ", link_keys has ", to_string(any.shape));
  constexpr Index kMost = std::numeric_limits<std::int32_t>::max();
  MHA_CHECK(ShapeError, in.k.size(1) <= kMost, "attention: ", name, " are asked of ", in.k.size(1), " keys, at most ", kMost, " can be");
}

void check_statistics(const AttentionSpec& spec, const AttentionInputs& in, const RowStatistics& statistics, DType wide) {
  const Index batch = in.q.size(0);
  check_links(in, statistics);
  for (const RowNumber& number : kRowNumbers) {
    const TensorView& view = statistics.*number.view;
    const Dims rows{batch, in.q.size(2), in.q.size(1)};
    if (view) check_result(view, number.name, number.dtype(wide), number.links ? Dims{rows[0], rows[1], rows[2], view.size(3)} : rows);
  }
  if (statistics.distance || statistics.distance_variance) check_aligned(spec, in, "a distance");
  const ConstTensorView& chosen = statistics.chosen;
  MHA_CHECK(ShapeError, is_given(statistics.chosen_weight) == is_given(chosen), "attention: chosen_weight and chosen go together, ",
            is_given(chosen) ? "chosen_weight" : "chosen", " is absent");
  if (!is_given(chosen)) return;
  MHA_CHECK(ShapeError, chosen.rank() == 2 && (chosen.size(0) == batch || chosen.size(0) == 1) && chosen.size(1) == in.k.size(1),
            "attention: chosen has shape ", to_string(chosen.shape), ", must be [", batch, " or 1, ", in.k.size(1), "]");
  MHA_CHECK(DTypeError, chosen.dtype == DType::Bool, "attention: chosen is ", name_of(chosen.dtype), ", must be bool");
}

/// Throws where a result that is written shares memory with something that is read.
void check_apart(const char* who, const char* name, const ConstTensorView& view, const AttentionSpec& spec, const AttentionInputs& in) {
  const auto* dense = std::get_if<DenseBias>(&spec.bias);
  const std::pair<const char*, ConstTensorView> read[] = {
      {"q", in.q}, {"k", in.k}, {"v", in.v}, {"allowed", in.allowed}, {"bias", dense != nullptr ? dense->values : ConstTensorView{}}};
  for (const auto& [other, source] : read) MHA_CHECK(ShapeError, !may_overlap(view, source), who, ": ", name, " overlaps ", other);
}

void check_overlaps(const AttentionSpec& spec, const AttentionInputs& in, const AttentionOutputs& out) {
  std::array<std::pair<const char*, ConstTensorView>, 3 + kRowNumbers.size()> written{
      {{"out", out.out}, {"lse", out.lse}, {"weights", out.weights}}};
  std::size_t count = 3;
  for (const RowNumber& number : kRowNumbers) written[count++] = {number.name, out.statistics.*number.view};
  for (const auto& [name, view] : written) {
    if (!view) continue;
    check_apart("attention", name, view, spec, in);
    MHA_CHECK(ShapeError, !may_overlap(view, out.statistics.chosen), "attention: ", name, " overlaps chosen");
    for (const auto& [other, target] : written) {
      MHA_CHECK(ShapeError, name == other || !may_overlap(view, target), "attention: ", name, " overlaps ", other);
    }
  }
}

}  // namespace

Index kv_len_of(const AttentionInputs& inputs, Index b) {
  return inputs.kv_lengths.empty() ? inputs.k.size(1) : inputs.kv_lengths[static_cast<std::size_t>(b)];
}

Index offset_of(const AttentionSpec& spec, const AttentionInputs& inputs, Index b) {
  return spec.align == Align::BottomRight ? kv_len_of(inputs, b) - inputs.q.size(1) : 0;
}

void validate(const AttentionSpec& spec, const AttentionInputs& in, const AttentionOutputs& out) {
  check_queries_and_keys(in);
  check_values(in);
  check_masks(spec, in);
  check_options(spec, in);
  const DType wide = in.q.dtype == DType::F64 ? DType::F64 : DType::F32;
  const Dims table = table_shape(in);
  const Dims out_shape{in.q.size(0), in.q.size(1), in.q.size(2), in.v.size(3)};
  MHA_CHECK(ShapeError, out.out || element_count(out_shape) == 0, "attention: out has no data");
  check_result(out.out, "out", in.q.dtype, out_shape);
  if (out.lse) check_result(out.lse, "lse", wide, {table[0], table[1], table[2]});
  if (out.weights) check_result(out.weights, "weights", wide, table);
  check_statistics(spec, in, out.statistics, wide);
  check_overlaps(spec, in, out);
}

namespace {

/// What every function that comes back to a former call needs of it; `who` is its name.
void check_former(const char* who, const AttentionSpec& spec, const AttentionInputs& in, const ConstTensorView& lse) {
  check_queries_and_keys(in);
  check_masks(spec, in);
  check_options(spec, in);
  MHA_CHECK(DTypeError, in.q.dtype != DType::F64, who, ": q is f64; ask attention_forward for weights instead");
  const Dims table = table_shape(in);
  const Dims lse_shape{table[0], table[1], table[2]};
  MHA_CHECK(ShapeError, lse.shape == lse_shape, who, ": lse has shape ", to_string(lse.shape), ", must be ", to_string(lse_shape));
  MHA_CHECK(DTypeError, lse.dtype == DType::F32, who, ": lse is ", name_of(lse.dtype), ", must be f32");
}

void check_region(const char* who, const AttentionInputs& in, const WeightsRegion& region) {
  const Dims table = table_shape(in);
  const auto inside = [](const Interval& part, Index size) { return 0 <= part.lo && part.lo <= part.hi && part.hi <= size; };
  MHA_CHECK(ShapeError, 0 <= region.batch && region.batch < table[0], who, ": batch entry ", region.batch, " of ", table[0]);
  MHA_CHECK(ShapeError, 0 <= region.head && region.head < table[1], who, ": head ", region.head, " of ", table[1]);
  MHA_CHECK(ShapeError, inside(region.queries, table[2]), who, ": queries [", region.queries.lo, ", ", region.queries.hi, ") of ",
            table[2]);
  MHA_CHECK(ShapeError, inside(region.keys, table[3]), who, ": keys [", region.keys.lo, ", ", region.keys.hi, ") of ", table[3]);
}

/// A result that is written: its shape is right already.
void check_written(const char* who, const char* name, const TensorView& view, const ConstTensorView& lse) {
  MHA_CHECK(ShapeError, view || element_count(view.shape) == 0, who, ": ", name, " has no data");
  MHA_CHECK(DTypeError, view.dtype == DType::F32, who, ": ", name, " is ", name_of(view.dtype), ", must be f32");
  for (int axis = 0; axis < view.rank(); ++axis) {
    MHA_CHECK(ShapeError, view.stride(axis) != 0 || view.size(axis) <= 1, who, ": ", name, " has stride 0 along axis ", axis, " of size ",
              view.size(axis), ": its elements would share memory");
  }
  MHA_CHECK(ShapeError, !may_overlap(view, lse), who, ": ", name, " overlaps lse");
}

}  // namespace

void validate_weights(const AttentionSpec& spec, const AttentionInputs& in, ConstTensorView lse, const WeightsRegion& region,
                      const TensorView& weights) {
  constexpr const char* kWho = "attention_weights";
  check_former(kWho, spec, in, lse);
  check_region(kWho, in, region);
  const Dims shape{region.queries.hi - region.queries.lo, region.keys.hi - region.keys.lo};
  MHA_CHECK(ShapeError, weights.shape == shape, kWho, ": weights has shape ", to_string(weights.shape), ", must be ", to_string(shape));
  check_written(kWho, "weights", weights, lse);
  check_apart(kWho, "weights", weights, spec, in);
}

void validate_received(const AttentionSpec& spec, const AttentionInputs& in, ConstTensorView lse, const TensorView& received) {
  constexpr const char* kWho = "attention_received";
  check_former(kWho, spec, in, lse);
  const Dims table = table_shape(in);
  const Dims shape{table[0], table[1], table[3]};
  MHA_CHECK(ShapeError, received.shape == shape, kWho, ": received has shape ", to_string(received.shape), ", must be ", to_string(shape));
  check_written(kWho, "received", received, lse);
  check_apart(kWho, "received", received, spec, in);
}

void validate_map(const AttentionSpec& spec, const AttentionInputs& in, ConstTensorView lse, const WeightsRegion& region,
                  const WeightsMap& map) {
  constexpr const char* kWho = "attention_map";
  check_former(kWho, spec, in, lse);
  check_region(kWho, in, region);
  MHA_CHECK(ShapeError, is_given(map.mean) || is_given(map.max), kWho, ": neither mean nor max is given");
  const Index queries = region.queries.hi - region.queries.lo;
  const Index keys = region.keys.hi - region.keys.lo;
  for (const auto& [name, view] : {std::pair{"mean", map.mean}, std::pair{"max", map.max}}) {
    if (!is_given(view)) continue;
    MHA_CHECK(ShapeError, view.rank() == 2 && view.size(0) <= queries && view.size(1) <= keys, kWho, ": ", name, " has shape ",
              to_string(view.shape), ", must be [rows, columns] of at most [", queries, ", ", keys, "]");
    static_cast<void>(element_count({view.size(0), queries}));  // what places of cells are computed from must fit in 64 bits
    static_cast<void>(element_count({view.size(1) + 1, keys + 1}));
    check_written(kWho, name, view, lse);
    check_apart(kWho, name, view, spec, in);
  }
  if (!is_given(map.mean) || !is_given(map.max)) return;
  MHA_CHECK(ShapeError, map.mean.shape == map.max.shape, kWho, ": max has shape ", to_string(map.max.shape), ", mean has ",
            to_string(map.mean.shape));
  MHA_CHECK(ShapeError, !may_overlap(map.mean, map.max), kWho, ": max overlaps mean");
}

}  // namespace mha::attention
