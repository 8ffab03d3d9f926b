// Reads and checks capture files. JSON by the room model's limited parser, tensors by its safetensors reader; here, whether they fit.
#include "mha/analysis/capture_file.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <optional>
#include <span>

#include "core/check.h"
#include "mha/error.h"
#include "mha/model/safetensors.h"
#include "model/json_fields.h"

namespace mha {
namespace {

using core::join;
using model::Json;
using model::JsonFields;

constexpr Index kMostBound = Index{1} << 40;

/// One file while it is read.
class Reader {
 public:
  explicit Reader(const std::string& path) : file_(std::make_shared<const SafetensorsFile>(path)) {}

  CaptureFile read();

 private:
  [[noreturn]] void fail(const std::string& what) const { throw FormatError(join(file_->path(), ": ", what)); }
  Json metadata_json(const std::string& key, const char* absent) const;
  ConstTensorView tensor(const std::string& name, int rank, std::initializer_list<DType> dtypes) const;
  ConstTensorView table(const JsonFields& said, const std::string& key, std::initializer_list<DType> dtypes) const;
  CapturedLayer layer(std::size_t index, const JsonFields& said);
  void scored(CapturedLayer& layer, const std::string& prefix, const JsonFields& said);
  void rules(AttentionSpec& spec, const JsonFields& said) const;
  void check_sizes(const CapturedLayer& layer, const JsonFields& said) const;
  void check_lse(const CapturedLayer& layer, const std::string& name) const;
  void check_ready(const ConstTensorView& weights, const std::string& name) const;
  void check_rows(const CapturedLayer& layer, const std::string& place) const;
  CapturedSides sides(const CapturedLayer& layer, const JsonFields& said) const;
  CapturedTokens tokens(const std::string& name, const Json& pieces) const;
  void check_batch() const;
  void check_text(const std::string& name, const CapturedTokens& tokens, const std::vector<std::string>& texts) const;

  std::shared_ptr<const SafetensorsFile> file_;
  CaptureFile found_;
};

Json Reader::metadata_json(const std::string& key, const char* absent) const {
  const auto entry = file_->metadata().find(key);
  return model::parse_json(entry == file_->metadata().end() ? absent : entry->second, join(file_->path(), ": metadata ", key));
}

ConstTensorView Reader::tensor(const std::string& name, int rank, std::initializer_list<DType> dtypes) const {
  if (!file_->contains(name)) fail(join("tensor ", model::printable(name), " is missing"));
  const SafetensorsFile::Info info = file_->info(name);
  if (static_cast<int>(info.shape.size()) != rank) {
    fail(join("tensor ", model::printable(name), " has ", info.shape.size(), " axes, ", rank, " are wanted"));
  }
  ConstTensorView view;
  try {
    view = file_->tensor(name);
  } catch (const DTypeError& error) {
    fail(error.what());
  }
  std::string wanted;
  for (const DType dtype : dtypes) wanted += join(wanted.empty() ? "" : " or ", name_of(dtype));
  if (std::find(dtypes.begin(), dtypes.end(), view.dtype) == dtypes.end()) {
    fail(join("tensor ", model::printable(name), " is ", name_of(view.dtype), ", must be ", wanted));
  }
  if (element_count(view.shape) == 0) fail(join("tensor ", model::printable(name), " is ", to_string(view.shape), ", which holds nothing"));
  return view;
}

ConstTensorView Reader::table(const JsonFields& said, const std::string& key, std::initializer_list<DType> dtypes) const {
  return said.has(key) ? tensor(said.text(key), key == "sinks" ? 1 : 4, dtypes) : ConstTensorView();
}

void Reader::rules(AttentionSpec& spec, const JsonFields& said) const {
  if (said.flag_or("causal", false)) spec.mask = causal();
  if (said.has("window")) {
    const Json& bounds = said.at("window");
    const bool is_pair = bounds.is_array() && bounds.size() == 2;
    const auto left = is_pair ? model::to_integer(bounds[0], kUnbounded, kMostBound) : std::nullopt;
    const auto right = is_pair ? model::to_integer(bounds[1], kUnbounded, kMostBound) : std::nullopt;
    if (!left || !right) said.fail("window", "must be [left, right], each -1 or more");
    spec.mask = spec.mask & window(*left, *right);
  }
  const std::string align = said.text_or("align", "top_left");
  if (align != "top_left" && align != "bottom_right")
    said.fail("align", join("is ", model::printable(align), ", must be top_left or bottom_right"));
  spec.align = align == "top_left" ? Align::TopLeft : Align::BottomRight;
}

/// What a layer of q, k and lse has besides them.
void Reader::scored(CapturedLayer& layer, const std::string& prefix, const JsonFields& said) {
  const auto floats = {DType::F32, DType::F16, DType::Bf16};
  layer.q = tensor(prefix + "q", 4, floats).transpose(1, 2);
  layer.k = tensor(prefix + "k", 4, {layer.q.dtype}).transpose(1, 2);
  layer.lse = tensor(prefix + "lse", 3, {DType::F32});
  if (file_->contains(prefix + "v")) layer.v = tensor(prefix + "v", 4, floats).transpose(1, 2);
  layer.spec.scale = said.number("scale");
  if (!std::isfinite(*layer.spec.scale)) said.fail("scale", "is not finite");
  if (said.has("softcap")) {
    layer.spec.softcap = said.number("softcap");
    if (!(std::isfinite(*layer.spec.softcap) && *layer.spec.softcap > 0)) said.fail("softcap", "must be above 0");
  }
  rules(layer.spec, said);
  layer.allowed = table(said, "allowed", {DType::Bool});
  if (const ConstTensorView bias = table(said, "bias", floats)) layer.spec.bias = DenseBias{bias};
  if (const ConstTensorView sinks = table(said, "sinks", floats)) {
    Tensor logits(DType::F32, sinks.shape);
    copy(sinks, logits);
    layer.spec.sink_logits.assign(logits.data<float>(), logits.data<float>() + sinks.size(0));
    for (const float logit : layer.spec.sink_logits) {
      if (std::isnan(logit)) said.fail("sinks", "has a NaN");
    }
  }
}

void Reader::check_sizes(const CapturedLayer& layer, const JsonFields& said) const {
  const std::pair<const char*, Index> sizes[] = {
      {"heads", layer.heads()}, {"kv_heads", layer.kv_heads()}, {"q_len", layer.q_len()}, {"kv_len", layer.kv_len()}};
  for (const auto& [key, size] : sizes) {
    if (said.has(key) && said.integer(key, 0, kMostBound) != size)
      said.fail(key, join("is ", said.integer(key, 0, kMostBound), ", its tensors have ", size));
  }
  if (layer.weights) return;
  const Dims lse = {layer.batch(), layer.heads(), layer.q_len()};
  if (!(layer.lse.shape == lse)) fail(join(said.place(), ": lse is ", to_string(layer.lse.shape), ", must be ", to_string(lse)));
  if (layer.v && (layer.v.size(0) != layer.batch() || layer.v.size(1) != layer.kv_len() || layer.v.size(2) != layer.kv_heads())) {
    fail(join(said.place(), ": v is ", to_string(layer.v.transpose(1, 2).shape), " for k of ", to_string(layer.k.transpose(1, 2).shape)));
  }
  check_lse(layer, said.place());
}

void Reader::check_lse(const CapturedLayer& layer, const std::string& name) const {
  const float* lse = layer.lse.as<float>();
  for (Index i = 0; i < element_count(layer.lse.shape); ++i) {
    if (std::isnan(lse[i]) || lse[i] == std::numeric_limits<float>::infinity()) fail(join(name, ": lse is ", lse[i], " at element ", i));
  }
}

CapturedLayer Reader::layer(std::size_t index, const JsonFields& said) {
  const std::string prefix = join("layers.", index, ".");
  CapturedLayer layer;
  layer.name = said.text("name");
  if (file_->contains(prefix + "weights")) {
    layer.weights = tensor(prefix + "weights", 4, {DType::F32, DType::F16, DType::Bf16});
    rules(layer.spec, said);
    layer.allowed = table(said, "allowed", {DType::Bool});
    check_sizes(layer, said);
    check_ready(layer.weights, prefix + "weights");
    if (layer.allowed) {
      for (int axis = 0; axis < 4; ++axis) {
        const Index size = layer.allowed.size(axis);
        if (size != 1 && size != layer.weights.size(axis))
          said.fail("allowed", join("is ", to_string(layer.allowed.shape), " for weights of ", to_string(layer.weights.shape)));
      }
    }
    return layer;
  }
  scored(layer, prefix, said);
  check_sizes(layer, said);
  check_rows(layer, said.place());
  return layer;
}

/// Ready weights are a softmax's. NaN may stand in rows that see no key, which is what 0 / 0 gives.
void Reader::check_ready(const ConstTensorView& weights, const std::string& name) const {
  const Index keys = weights.size(3);
  const Index rows = element_count(weights.shape) / keys;
  const ConstTensorView table(weights.data, weights.dtype, {rows, keys});
  Tensor row(DType::F32, {1, keys});
  for (Index r = 0; r < rows; ++r) {
    copy(table.slice(0, r, r + 1), row);
    for (Index k = 0; k < keys; ++k) {
      const float weight = row.data<float>()[k];
      if (weight < 0 || std::isinf(weight)) fail(join("tensor ", name, " is ", weight, " at element ", r * keys + k, ", no weight"));
    }
  }
}

/// A few rows, computed as they will be shown: attention finds what contradicts q and k, the sums whether lse is theirs.
void Reader::check_rows(const CapturedLayer& layer, const std::string& place) const {
  struct Row {
    Index batch, head, query;
  };
  const Index heads = layer.heads(), q_len = layer.q_len();
  std::vector<Row> rows = {{0, 0, q_len - 1}, {layer.batch() - 1, heads - 1, q_len / 2}, {0, heads - 1, 0}};
  const float* lse = layer.lse.as<float>();
  const auto all = std::span(lse, static_cast<std::size_t>(element_count(layer.lse.shape)));
  const auto is_unseen = [](float one) { return std::isinf(one); };
  const auto add = [&](Index i) { rows.push_back({i / (heads * q_len), i / q_len % heads, i % q_len}); };
  if (const auto first = std::find_if(all.begin(), all.end(), is_unseen); first != all.end()) {
    add(first - all.begin());
    add(all.rend() - std::find_if(all.rbegin(), all.rend(), is_unseen) - 1);
  }
  CapturedLayer unscaled = layer;  // exp(score): above 0 where a key is seen
  const Tensor zeros(DType::F32, layer.lse.shape);
  unscaled.lse = zeros;
  Workspace workspace(serial_executor());
  Tensor weights(DType::F32, {1, layer.kv_len()});
  for (const Row& row : rows) {
    const auto own = static_cast<double>(lse[(row.batch * heads + row.head) * q_len + row.query]);
    const WeightsRegion region{.batch = row.batch, .head = row.head, .queries = {row.query, row.query + 1}, .keys = {0, layer.kv_len()}};
    try {
      captured_weights(std::isinf(own) ? unscaled : layer, region, weights, workspace);
    } catch (const Error& error) {
      fail(join(place, ": ", error.what()));
    }
    const float* first = weights.data<float>();
    const double sum = std::accumulate(first, first + layer.kv_len(), 0.0);
    // As far as a logarithm of the coarsest dtype, bf16, would be off, and the scores with it.
    const double tolerance = std::expm1(2 * 0x1p-8 * (1 + std::abs(own)));
    const double least = layer.spec.sink_logits.empty() ? 1 - tolerance : 0;
    if (std::isinf(own) ? sum > 0 : !(sum >= least && sum <= 1 + tolerance)) {
      fail(join(place, ": the weights of batch ", row.batch, ", head ", row.head, ", query ", row.query, " add up to ",
                std::isinf(own) ? "more than 0" : join(sum), " with an lse of ", own,
                ": lse does not fit q and k (is it a natural logarithm, with the scale, mask and bias that the file names?)"));
    }
  }
}

CapturedSides Reader::sides(const CapturedLayer& layer, const JsonFields& said) const {
  CapturedSides sides{said.text_or("queries", ""), said.text_or("keys", "")};
  const auto check = [&](const char* key, const std::string& side, Index length) {
    if (side.empty()) return;
    const auto tokens = found_.tokens.find(side);
    if (tokens == found_.tokens.end()) said.fail(key, join("is ", model::printable(side), ", the file has no such tokens"));
    const ConstTensorView& ids = tokens->second.ids;
    if (ids.size(0) != layer.batch() || ids.size(1) != length) {
      said.fail(key, join("is ", model::printable(side), ", which is ", to_string(ids.shape), " for a batch of ", layer.batch(),
                          " and a length of ", length));
    }
  };
  check("queries", sides.queries, layer.q_len());
  check("keys", sides.keys, layer.kv_len());
  return sides;
}

CapturedTokens Reader::tokens(const std::string& name, const Json& pieces) const {
  CapturedTokens tokens{.ids = tensor(name, 2, {DType::I64})};
  const Index batch = tokens.ids.size(0);
  const Index length = tokens.ids.size(1);
  const auto part = [&](const char* suffix, int rank, DType dtype) {
    const std::string whole = name + suffix;
    if (!file_->contains(whole)) return ConstTensorView();
    const ConstTensorView view = tensor(whole, rank, {dtype});
    if (view.size(0) != batch || view.size(1) != length || (rank == 3 && view.size(2) != 2)) {
      fail(join("tensor ", whole, " is ", to_string(view.shape), " for tokens of ", to_string(tokens.ids.shape)));
    }
    return view;
  };
  tokens.mask = part(".mask", 2, DType::Bool);
  tokens.offsets = part(".offsets", 3, DType::I64);
  tokens.words = part(".words", 2, DType::I64);
  const auto listed = pieces.find(name);
  if (listed == pieces.end() || listed->is_null()) return tokens;
  const auto refuse = [&] { fail(join("metadata pieces: ", name, " must be ", batch, " lists of ", length, " texts")); };
  if (!listed->is_array() || static_cast<Index>(listed->size()) != batch) refuse();
  for (const Json& entry : *listed) {
    if (!entry.is_array() || static_cast<Index>(entry.size()) != length) refuse();
    std::vector<std::string>& row = tokens.pieces.emplace_back();
    for (const Json& piece : entry) {
      if (!piece.is_string()) refuse();
      row.push_back(piece.get<std::string>());
    }
  }
  return tokens;
}

/// Offsets within their texts, words not below -1.
void Reader::check_text(const std::string& name, const CapturedTokens& tokens, const std::vector<std::string>& texts) const {
  const Index length = tokens.ids.size(1);
  for (Index i = 0; tokens.words && i < element_count(tokens.words.shape); ++i) {
    const Index word = tokens.words.as<Index>()[i];
    if (word < -1) fail(join("tensor ", name, ".words is ", word, " at element ", i, ", must be -1 or more"));
  }
  if (!tokens.offsets) return;
  for (Index b = 0; b < tokens.ids.size(0); ++b) {
    Index most = std::numeric_limits<Index>::max();
    if (name == "tokens" && !texts.empty()) {
      const std::string& text = texts[static_cast<std::size_t>(b)];
      most = std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; });
    }
    for (Index i = 0; i < length; ++i) {
      const Index* span = tokens.offsets.as<Index>() + (b * length + i) * 2;
      if (span[0] < 0 || span[1] < span[0] || span[1] > most) {
        fail(join("tensor ", name, ".offsets is [", span[0], ", ", span[1], ") at batch ", b, ", token ", i, ", its text has ", most,
                  " characters"));
      }
    }
  }
}

CaptureFile Reader::read() {
  const auto said = [&](const std::string& key) {
    const auto entry = file_->metadata().find(key);
    return entry == file_->metadata().end() ? std::string() : entry->second;
  };
  if (said("format") != "mha.capture") fail("no capture: its metadata has no format=\"mha.capture\" (docs/formats.md)");
  if (said("version") != "1") fail(join("a capture of version ", model::printable(said("version")), ", version 1 is read"));
  found_.path = file_->path();
  found_.model = said("model");
  found_.architecture = said("architecture");
  const Json texts = metadata_json("texts", "null");
  const Json pieces = metadata_json("pieces", "{}");
  if (!pieces.is_object()) fail("metadata pieces: must be an object");
  if (!texts.is_null() && !texts.is_array()) fail("metadata texts: must be a list of texts");
  for (const Json& text : texts) {
    if (!text.is_string()) fail("metadata texts: must be a list of texts");
    found_.texts.push_back(text.get<std::string>());
  }
  for (const char* name : {"tokens", "decoder_tokens"}) {
    if (!file_->contains(name)) continue;
    const CapturedTokens& tokens = found_.tokens.emplace(name, this->tokens(name, pieces)).first->second;
    if (!found_.texts.empty() && static_cast<Index>(found_.texts.size()) != tokens.ids.size(0)) {
      fail(join("metadata texts: ", found_.texts.size(), " texts for ", name, " of ", to_string(tokens.ids.shape)));
    }
    check_text(name, tokens, found_.texts);
  }
  const Json layers = metadata_json("layers", "null");
  if (!layers.is_array() || layers.empty()) fail("metadata layers: must be a list of at least one layer");
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const JsonFields fields(layers[i], file_->path(), join("layers[", i, "]"));
    found_.capture.layers.push_back(layer(i, fields));
    const CapturedLayer& added = found_.capture.layers.back();
    if (added.batch() != found_.capture.layers.front().batch()) {
      fail(join("layers[", i, "] has a batch of ", added.batch(), ", the first one of ", found_.capture.layers.front().batch()));
    }
    found_.sides.push_back(sides(added, fields));
  }
  check_batch();
  found_.capture.owner = file_;
  return std::move(found_);
}

/// Texts and tokens are looked up by batch entry.
void Reader::check_batch() const {
  const Index batch = found_.capture.layers.front().batch();
  if (!found_.texts.empty() && static_cast<Index>(found_.texts.size()) != batch) {
    fail(join("metadata texts: ", found_.texts.size(), " texts for layers of a batch of ", batch));
  }
  for (const auto& [name, tokens] : found_.tokens) {
    if (tokens.ids.size(0) != batch) fail(join("tensor ", name, " is ", to_string(tokens.ids.shape), " for layers of a batch of ", batch));
  }
}

/// Byte positions of every code point of a text, and its end.
std::vector<std::size_t> code_points(const std::string& text) {
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xC0U) != 0x80U) places.push_back(i);
  }
  places.push_back(text.size());
  return places;
}

/// A run of pieces that are one word.
Unit joined(const std::vector<Unit>& pieces, std::size_t first, std::size_t end, const std::string& text) {
  Unit word = pieces[first];
  word.count = static_cast<Index>(end - first);
  if (end == first + 1) return word;
  const Unit& last = pieces[end - 1];
  if (!text.empty() && last.bytes.end > word.bytes.begin) {
    word.bytes.end = last.bytes.end;
    word.text = text.substr(static_cast<std::size_t>(word.bytes.begin), static_cast<std::size_t>(word.bytes.end - word.bytes.begin));
  } else {
    for (std::size_t i = first + 1; i < end; ++i) word.text += pieces[i].text;
  }
  word.key = word.text;
  return word;
}

}  // namespace

CaptureFile load_capture(const std::string& path) { return Reader(path).read(); }

Interval captured_tokens(const CaptureFile& file, const std::string& side, Index entry, Index length) {
  const auto found = file.tokens.find(side);
  if (found == file.tokens.end() || !found->second.mask) return {0, length};
  const bool* mask = found->second.mask.as<bool>() + entry * length;
  const bool* first = std::find(mask, mask + length, true);
  if (first == mask + length) return {0, length};
  Interval part{first - mask, length};
  while (!mask[part.hi - 1]) --part.hi;
  return part;
}

CapturedUnits captured_units(const CaptureFile& file, const std::string& side, Index entry, Interval part) {
  CapturedUnits units;
  const auto found = file.tokens.find(side);
  const CapturedTokens tokens = found == file.tokens.end() ? CapturedTokens() : found->second;
  const bool has_text = tokens.offsets && side == "tokens" && !file.texts.empty();
  const std::string text = has_text ? file.texts[static_cast<std::size_t>(entry)] : std::string();
  const std::vector<std::size_t> places = code_points(text);
  const Index length = tokens.ids ? tokens.ids.size(1) : part.hi;
  const auto word_of = [&](Index i) { return tokens.words ? tokens.words.as<Index>()[entry * length + i] : -1; };
  for (Index i = part.lo; i < part.hi; ++i) {
    Unit piece{.text = {}, .key = {}, .first = i - part.lo};
    const Index* span = tokens.offsets ? tokens.offsets.as<Index>() + (entry * length + i) * 2 : nullptr;
    piece.special = tokens.words ? word_of(i) < 0 : span != nullptr && span[0] == span[1];
    if (has_text && span[1] > span[0]) {
      const std::size_t begin = places[static_cast<std::size_t>(span[0])];
      const std::size_t end = places[static_cast<std::size_t>(span[1])];
      piece.bytes = {static_cast<Index>(begin), static_cast<Index>(end)};
      piece.text = text.substr(begin, end - begin);
    } else if (!tokens.pieces.empty()) {
      piece.text = tokens.pieces[static_cast<std::size_t>(entry)][static_cast<std::size_t>(i)];
    } else {
      piece.text = std::to_string(tokens.ids ? tokens.ids.as<Index>()[entry * length + i] : i);
    }
    piece.key = piece.text;
    units.pieces.push_back(std::move(piece));
  }
  for (std::size_t i = 0; i < units.pieces.size();) {
    std::size_t end = i + 1;
    const Index word = word_of(part.lo + static_cast<Index>(i));
    while (word >= 0 && end < units.pieces.size() && word_of(part.lo + static_cast<Index>(end)) == word) ++end;
    units.words.push_back(joined(units.pieces, i, end, text));
    i = end;
  }
  return units;
}

}  // namespace mha
