// HeadTable, and how it is filled from a model: one head at a time, folded from pieces to units at once.
#include "mha/analysis/head_table.h"

#include <algorithm>

#include "core/check.h"
#include "mha/error.h"

namespace mha {

HeadTable::HeadTable(Index layers, Index heads, Index units) : layers_(layers), heads_(heads), units_(units) {
  weights_.resize(static_cast<std::size_t>(element_count({layers, heads, units, units})));
}

std::size_t HeadTable::start(HeadId id, Index from) const {
  MHA_CHECK(ShapeError, id.layer >= 0 && id.layer < layers_, "layer is ", id.layer, ", the model has ", layers_, " layers counted from 0");
  MHA_CHECK(ShapeError, id.head >= 0 && id.head < heads_, "head is ", id.head, ", the model has ", heads_, " heads counted from 0");
  MHA_CHECK(ShapeError, from >= 0 && from < units_, "row is ", from, ", the table has ", units_);
  return static_cast<std::size_t>(((id.layer * heads_ + id.head) * units_ + from) * units_);
}

float HeadTable::weight(HeadId id, Index from, Index to) const {
  MHA_CHECK(ShapeError, to >= 0 && to < units_, "column is ", to, ", the table has ", units_);
  return weights_[start(id, from) + static_cast<std::size_t>(to)];
}

std::span<const float> HeadTable::row(HeadId id, Index from) const {
  return std::span(weights_).subspan(start(id, from), static_cast<std::size_t>(units_));
}

bool HeadTable::present(HeadId id) const {
  for (Index from = 0; from < units_; ++from) {
    const std::span<const float> weights = row(id, from);
    if (std::any_of(weights.begin(), weights.end(), [](float weight) { return weight != 0.0F; })) return true;
  }
  return false;
}

TensorView HeadTable::head(HeadId id) { return {weights_.data() + start(id, 0), {units_, units_}}; }

void fold_pieces(ConstTensorView pieces, std::span<const Unit> units, TensorView folded) {
  MHA_CHECK(ShapeError, pieces.rank() == 2 && pieces.size(0) == pieces.size(1), "fold_pieces: pieces is ", to_string(pieces.shape),
            ", not square");
  fold_pieces(pieces, units, units, folded);
}

void fold_pieces(ConstTensorView pieces, std::span<const Unit> rows, std::span<const Unit> columns, TensorView folded) {
  const auto row_count = static_cast<Index>(rows.size());
  const auto column_count = static_cast<Index>(columns.size());
  MHA_CHECK(ShapeError, pieces.rank() == 2, "fold_pieces: pieces is ", to_string(pieces.shape), ", not a table");
  MHA_CHECK(ShapeError, folded.rank() == 2 && folded.size(0) == row_count && folded.size(1) == column_count, "fold_pieces: folded is ",
            to_string(folded.shape), " for ", row_count, " x ", column_count, " units");
  const auto check = [](std::span<const Unit> units, Index size) {
    for (const Unit& unit : units) {
      MHA_CHECK(ShapeError, unit.first >= 0 && unit.count >= 1 && unit.first + unit.count <= size, "fold_pieces: unit \"", unit.text,
                "\" ends at piece ", unit.first + unit.count, " of ", size);
    }
  };
  check(rows, pieces.size(0));
  check(columns, pieces.size(1));
  const float* weights = pieces.as<float>();
  float* out = folded.as<float>();
  for (Index from = 0; from < row_count; ++from) {
    const Unit& row = rows[static_cast<std::size_t>(from)];
    for (Index to = 0; to < column_count; ++to) {
      const Unit& column = columns[static_cast<std::size_t>(to)];
      double sum = 0.0;
      for (Index q = row.first; q < row.first + row.count; ++q) {
        for (Index k = column.first; k < column.first + column.count; ++k) sum += weights[q * pieces.stride(0) + k * pieces.stride(1)];
      }
      out[from * folded.stride(0) + to * folded.stride(1)] = static_cast<float>(sum / static_cast<double>(row.count));
    }
  }
}

HeadTable read_heads(const Transformer& model, std::span<const Index> ids, std::span<const Unit> units, Workspace& workspace,
                     const Intervention& intervention, TensorView hidden) {
  const TransformerConfig& config = model.config();
  const Index length = static_cast<Index>(ids.size());
  MHA_CHECK(ShapeError, length <= config.max_positions, "text has ", length, " pieces, the model reads at most ", config.max_positions);
  HeadTable table(config.layers, config.heads, static_cast<Index>(units.size()));
  Tensor unwanted = hidden ? Tensor() : Tensor(DType::F32, {1, length, config.d_model});
  Tensor pieces(DType::F32, {length, length});
  Workspace hook_workspace(workspace.executor());  // the model is still using the other one when it calls the hook
  run_with(model, ids, intervention, hidden ? hidden : unwanted.view(), workspace, [&](Index layer, const MhaTrace& trace) {
    for (Index head = 0; head < config.heads; ++head) {
      const AttentionInputs inputs{.q = trace.q, .k = trace.k, .v = {}, .allowed = trace.allowed, .kv_lengths = trace.kv_lengths};
      const WeightsRegion region{.batch = 0, .head = head, .queries = {0, length}, .keys = {0, length}};
      attention_weights(trace.spec, inputs, trace.lse, region, pieces, hook_workspace);
      fold_pieces(pieces, units, table.head({layer, head}));
    }
  });
  return table;
}

}  // namespace mha
