#include "attention/validate.h"

#include <cmath>
#include <string>
#include <utility>

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
  const bool by_position = !spec.mask.empty() || std::holds_alternative<AlibiBias>(spec.bias);
  if (!by_position || spec.align != Align::Unset) return;
  for (Index b = 0; b < batch; ++b) {
    MHA_CHECK(ShapeError, kv_len_of(in, b) == in.q.size(1),
              "attention: ", spec.mask.empty() ? "an ALiBi bias" : "mask " + to_string(spec.mask), " needs align, since batch entry ", b,
              " has ", in.q.size(1), " queries and ", kv_len_of(in, b), " keys: say Align::TopLeft or Align::BottomRight");
    if (in.kv_lengths.empty()) break;
  }
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

void check_overlaps(const AttentionSpec& spec, const AttentionInputs& in, const AttentionOutputs& out) {
  const auto* dense = std::get_if<DenseBias>(&spec.bias);
  const std::pair<const char*, ConstTensorView> written[] = {{"out", out.out}, {"lse", out.lse}, {"weights", out.weights}};
  const std::pair<const char*, ConstTensorView> read[] = {
      {"q", in.q}, {"k", in.k}, {"v", in.v}, {"allowed", in.allowed}, {"bias", dense != nullptr ? dense->values : ConstTensorView{}}};
  for (const auto& [name, view] : written) {
    for (const auto& [other, source] : read) MHA_CHECK(ShapeError, !may_overlap(view, source), "attention: ", name, " overlaps ", other);
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
  check_overlaps(spec, in, out);
}

void validate_weights(const AttentionSpec& spec, const AttentionInputs& in, ConstTensorView lse, const WeightsRegion& region,
                      ConstTensorView weights) {
  check_queries_and_keys(in);
  check_masks(spec, in);
  check_options(spec, in);
  MHA_CHECK(DTypeError, in.q.dtype != DType::F64, "attention_weights: q is f64; ask attention_forward for weights instead");
  const Dims table = table_shape(in);
  const auto inside = [](const Interval& part, Index size) { return 0 <= part.lo && part.lo <= part.hi && part.hi <= size; };
  MHA_CHECK(ShapeError, 0 <= region.batch && region.batch < table[0], "attention_weights: batch entry ", region.batch, " of ", table[0]);
  MHA_CHECK(ShapeError, 0 <= region.head && region.head < table[1], "attention_weights: head ", region.head, " of ", table[1]);
  MHA_CHECK(ShapeError, inside(region.queries, table[2]), "attention_weights: queries [", region.queries.lo, ", ", region.queries.hi,
            ") of ", table[2]);
  MHA_CHECK(ShapeError, inside(region.keys, table[3]), "attention_weights: keys [", region.keys.lo, ", ", region.keys.hi, ") of ",
            table[3]);
  const Dims lse_shape{table[0], table[1], table[2]};
  MHA_CHECK(ShapeError, lse.shape == lse_shape, "attention_weights: lse has shape ", to_string(lse.shape), ", must be ",
            to_string(lse_shape));
  MHA_CHECK(DTypeError, lse.dtype == DType::F32, "attention_weights: lse is ", name_of(lse.dtype), ", must be f32");
  const Dims shape{region.queries.hi - region.queries.lo, region.keys.hi - region.keys.lo};
  MHA_CHECK(ShapeError, weights || element_count(shape) == 0, "attention_weights: weights has no data");
  MHA_CHECK(ShapeError, weights.shape == shape, "attention_weights: weights has shape ", to_string(weights.shape), ", must be ",
            to_string(shape));
  MHA_CHECK(DTypeError, weights.dtype == DType::F32, "attention_weights: weights is ", name_of(weights.dtype), ", must be f32");
  for (const auto& [name, source] : {std::pair{"q", in.q}, std::pair{"k", in.k}, std::pair{"lse", lse}}) {
    MHA_CHECK(ShapeError, !may_overlap(weights, source), "attention_weights: weights overlaps ", name);
  }
}

}  // namespace mha::attention
