// Runs out of a file of captured tensors: one per batch entry and kind of table (an encoder-decoder has three), padding at both ends left
// out, so that what is shown are tokens.
#include <algorithm>

#include "core/check.h"
#include "view/run.h"

namespace mha::view {
namespace {

using core::join;

constexpr std::size_t kNameBytes = 80;

/// What all layers of a run have in common.
struct Kind {
  CapturedSides sides;
  Index q_len, kv_len;
  std::vector<std::size_t> layers;
  bool is(const CapturedSides& other, const CapturedLayer& layer) const {
    return sides.queries == other.queries && sides.keys == other.keys && q_len == layer.q_len() && kv_len == layer.kv_len();
  }
};

std::vector<Kind> kinds_of(const CaptureFile& file) {
  std::vector<Kind> kinds;
  for (std::size_t i = 0; i < file.capture.layers.size(); ++i) {
    const CapturedLayer& layer = file.capture.layers[i];
    auto kind = std::find_if(kinds.begin(), kinds.end(), [&](const Kind& k) { return k.is(file.sides[i], layer); });
    if (kind == kinds.end()) kind = kinds.insert(kinds.end(), {file.sides[i], layer.q_len(), layer.kv_len(), {}});
    kind->layers.push_back(i);
  }
  return kinds;
}

/// One entry's part of a view; axes of size 1 are broadcast and stay.
ConstTensorView part_of(ConstTensorView view, int axis, Interval part) {
  return view && view.size(axis) > 1 ? view.slice(axis, part.lo, part.hi) : view;
}

struct Parts {
  Interval entry, queries, keys;
};

ConstTensorView table_part(const ConstTensorView& table, const Parts& parts) {
  return part_of(part_of(part_of(table, 0, parts.entry), 2, parts.queries), 3, parts.keys);
}

CapturedLayer layer_part(const CapturedLayer& whole, const Parts& parts) {
  CapturedLayer layer = whole;
  layer.q = part_of(part_of(whole.q, 0, parts.entry), 1, parts.queries);
  layer.k = part_of(part_of(whole.k, 0, parts.entry), 1, parts.keys);
  layer.v = part_of(part_of(whole.v, 0, parts.entry), 1, parts.keys);
  layer.lse = part_of(part_of(whole.lse, 0, parts.entry), 2, parts.queries);
  layer.weights = table_part(whole.weights, parts);
  layer.allowed = table_part(whole.allowed, parts);
  if (const auto* bias = std::get_if<DenseBias>(&whole.spec.bias)) layer.spec.bias = DenseBias{table_part(bias->values, parts)};
  if (whole.q_len() == whole.kv_len()) layer.spec.align = Align::TopLeft;  // the same, also for a part
  return layer;
}

/// Whether rules that go by positions mean the same of these parts: both sides must begin at the same position.
bool keeps_positions(const CaptureFile& file, const Kind& kind, const Parts& parts) {
  const bool by_position =
      std::any_of(kind.layers.begin(), kind.layers.end(), [&](std::size_t i) { return !file.capture.layers[i].spec.mask.empty(); });
  return !by_position || (kind.q_len == kind.kv_len && parts.queries == parts.keys);
}

std::string name_of(const CaptureFile& file, const Kind& kind, Index entry) {
  std::string name = join("entry ", entry);
  if (!file.texts.empty()) {
    name = file.texts[static_cast<std::size_t>(entry)];
    std::size_t end = std::min(name.size(), kNameBytes);
    while (end > 0 && end < name.size() && (static_cast<unsigned char>(name[end]) & 0xC0U) == 0x80U) --end;  // a whole character
    if (end < name.size()) name = name.substr(0, end) + "…";
  }
  if (kind.sides.queries == kind.sides.keys && (kind.sides.queries.empty() || kind.sides.queries == "tokens")) return name;
  const auto called = [](const std::string& side) {
    return side == "tokens" ? "tokens" : side == "decoder_tokens" ? "decoder" : "unnamed";
  };
  return join(name, " (", called(kind.sides.queries), " to ", called(kind.sides.keys), ")");
}

std::shared_ptr<const Run> run_of(const CaptureFile& file, const Kind& kind, Index entry, const std::string& id) {
  Parts parts{{entry, entry + 1},
              captured_tokens(file, kind.sides.queries, entry, kind.q_len),
              captured_tokens(file, kind.sides.keys, entry, kind.kv_len)};
  if (!keeps_positions(file, kind, parts)) {
    parts.queries = {0, kind.q_len};
    parts.keys = {0, kind.kv_len};
  }
  const auto run = std::make_shared<Run>();
  run->id = id;
  run->name = name_of(file, kind, entry);
  if (!file.texts.empty()) run->text = file.texts[static_cast<std::size_t>(entry)];
  for (const std::size_t i : kind.layers) run->capture.layers.push_back(layer_part(file.capture.layers[i], parts));
  run->capture.owner = file.capture.owner;
  CapturedUnits queries = captured_units(file, kind.sides.queries, entry, parts.queries);
  run->queries = {std::move(queries.pieces), std::move(queries.words)};
  const bool is_self = kind.sides.queries == kind.sides.keys && parts.queries == parts.keys;
  if (!is_self) {
    CapturedUnits keys = captured_units(file, kind.sides.keys, entry, parts.keys);
    run->keys = UnitLists{std::move(keys.pieces), std::move(keys.words)};
  }
  run->json = {{"run", id}, {"text", run->text}, {"cut", nullptr}, {"layers", layers_json(run->capture)}};
  run->json["queries"] = units_json(run->queries);
  run->json["keys"] = run->keys ? units_json(*run->keys) : Json(nullptr);
  run->json["output"] = nullptr;
  run->json["changed"] = RunWish().changed();
  run->json["milliseconds"] = nullptr;
  return run;
}

}  // namespace

std::vector<std::shared_ptr<const Run>> runs_of(const CaptureFile& file) {
  std::vector<std::shared_ptr<const Run>> runs;
  const std::vector<Kind> kinds = kinds_of(file);
  for (Index entry = 0; entry < file.capture.layers.front().batch(); ++entry) {
    for (const Kind& kind : kinds) runs.push_back(run_of(file, kind, entry, join("t", runs.size())));
  }
  return runs;
}

}  // namespace mha::view
