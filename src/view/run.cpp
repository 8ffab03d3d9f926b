// From a request's body to a run of the model, and what is said of it in JSON.
#include "view/run.h"

#include <utf8proc.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "core/check.h"
#include "mha/analysis/norms.h"
#include "model/json_fields.h"

namespace mha::view {
namespace {

using core::join;

constexpr double kMostTemperature = 1e4;

std::vector<HeadId> read_heads_field(const model::JsonFields& body, const std::string& name) {
  std::vector<HeadId> heads;
  if (!body.has(name)) return heads;
  const model::Json& list = body.at(name);
  if (!list.is_array()) body.fail(name, "must be a list of [layer, head]");
  for (const model::Json& pair : list) {
    constexpr Index kMost = 1 << 20;
    const bool is_pair = pair.is_array() && pair.size() == 2;
    const auto layer = is_pair ? model::to_integer(pair[0], 0, kMost) : std::nullopt;
    const auto head = is_pair ? model::to_integer(pair[1], 0, kMost) : std::nullopt;
    if (!layer || !head) body.fail(name, join("must be a list of [layer, head], counted from 0; it holds ", model::printable(pair.dump())));
    heads.push_back({*layer, *head});
  }
  std::sort(heads.begin(), heads.end());
  heads.erase(std::unique(heads.begin(), heads.end()), heads.end());
  return heads;
}

Json heads_json(const std::vector<HeadId>& heads) {
  Json list = Json::array();
  for (const HeadId& id : heads) list.push_back({id.layer, id.head});
  return list;
}

/// Where the marks end that follow a place in a text: accents and the like, which tokenizers drop, belong to the letter before them.
Index marks_end(const std::string& text, Index place) {
  for (auto at = static_cast<std::size_t>(place);;) {
    utf8proc_int32_t point = 0;
    const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data() + at);
    const utf8proc_ssize_t size = utf8proc_iterate(bytes, static_cast<utf8proc_ssize_t>(text.size() - at), &point);
    const utf8proc_category_t category = size > 0 ? utf8proc_category(point) : UTF8PROC_CATEGORY_CN;
    if (category != UTF8PROC_CATEGORY_MN && category != UTF8PROC_CATEGORY_MC && category != UTF8PROC_CATEGORY_ME)
      return static_cast<Index>(at);
    at += static_cast<std::size_t>(size);
  }
}

/// Units whose texts are the text's own, the pieces' too, with the marks after them.
UnitLists lists_of(const Sentence& sentence) {
  UnitLists lists{.pieces = sentence.pieces, .words = sentence.words};
  for (std::vector<Unit>* units : {&lists.pieces, &lists.words}) {
    for (Unit& unit : *units) {
      if (unit.special || unit.bytes.end <= unit.bytes.begin) continue;
      unit.bytes.end = marks_end(sentence.text, unit.bytes.end);
      unit.text =
          sentence.text.substr(static_cast<std::size_t>(unit.bytes.begin), static_cast<std::size_t>(unit.bytes.end - unit.bytes.begin));
    }
  }
  return lists;
}

/// The mean over all pieces of one head's output, [1, head_dim].
Tensor mean_output(const CapturedLayer& layer, Index head) {
  const ConstTensorView& out = layer.head_out;  // [1, q_len, heads, value_dim]
  Tensor mean(DType::F32, {1, out.size(3)});
  for (Index d = 0; d < out.size(3); ++d) {
    double sum = 0.0;
    for (Index q = 0; q < out.size(1); ++q) {
      sum += static_cast<double>(out.as<float>()[q * out.stride(1) + head * out.stride(2) + d * out.stride(3)]);
    }
    mean.data<float>()[d] = static_cast<float>(sum / static_cast<double>(out.size(1)));
  }
  return mean;
}

void check_heads(const std::vector<HeadId>& heads, const TransformerConfig& config, const char* name) {
  for (const HeadId& id : heads) {
    if (id.layer < config.layers && id.head < config.heads) continue;
    throw RequestError(400,
                       join(name, " has [", id.layer, ", ", id.head, "], the model has ", config.layers, " layers of ", config.heads,
                            " heads, counted from 0"),
                       "give heads that are there");
  }
}

/// Fills run.intervention.
void change(Run& run, const RunWish& wish, const Run& unchanged, const TransformerConfig& config) {
  check_heads(wish.zeroed, config, "zeroed");
  check_heads(wish.mean, config, "mean");
  run.intervention.temperature = static_cast<float>(wish.temperature);
  run.intervention.zeroed = wish.zeroed;
  const auto means = std::make_shared<std::vector<Tensor>>();
  for (const HeadId& id : wish.mean) {
    means->push_back(mean_output(unchanged.capture.layers[static_cast<std::size_t>(id.layer)], id.head));
    run.intervention.replaced.push_back({id, means->back().view()});
  }
  run.owner = means;
  for (const Index word : wish.hidden) {
    const auto count = static_cast<Index>(run.queries.words.size());
    if (word >= count) {
      throw RequestError(400, join("hidden has word ", word, ", the text has ", count, " words, counted from 0"),
                         "give words that are there");
    }
    const Unit& unit = run.queries.words[static_cast<std::size_t>(word)];
    for (Index piece = unit.first; piece < unit.first + unit.count; ++piece) run.intervention.hidden.push_back(piece);
  }
}

Json run_json(const Run& run, const RunWish& wish, const Run* unchanged, Index left_out) {
  Json json = {{"run", run.id}, {"text", run.text}};
  const auto read = static_cast<Index>(run.ids.size());
  json["cut"] = left_out > 0 ? Json{{"read", read}, {"of", read + left_out}} : Json(nullptr);
  json["layers"] = layers_json(run.capture);
  json["queries"] = units_json(run.queries);
  json["keys"] = nullptr;
  json["output"] = unchanged != nullptr ? Json{{"cosine", cosine(run.vector, unchanged->vector)}} : Json(nullptr);
  json["changed"] = wish.changed();
  return json;
}

}  // namespace

RunWish read_wish(const std::string& body) {
  const model::Json parsed = model::parse_json(body, "the request", 0, {.depth = 8, .values = 100'000});
  const model::JsonFields fields(parsed, "the request");
  for (const auto& [name, value] : parsed.items()) {
    if (name != "text" && name != "zeroed" && name != "mean" && name != "hidden" && name != "temperature") {
      fields.fail(name, "there is no such field: there are text, zeroed, mean, hidden and temperature");
    }
  }
  RunWish wish{.text = fields.text("text"),
               .zeroed = read_heads_field(fields, "zeroed"),
               .mean = read_heads_field(fields, "mean"),
               .hidden = {},
               .temperature = fields.number_or("temperature", 1.0)};
  for (const HeadId& id : wish.zeroed) {
    if (std::binary_search(wish.mean.begin(), wish.mean.end(), id)) {
      fields.fail("mean", join("has [", id.layer, ", ", id.head, "], which is in zeroed too: a head gives 0 or its mean"));
    }
  }
  if (!(wish.temperature > 1 / kMostTemperature && wish.temperature < kMostTemperature)) {
    fields.fail("temperature", join("is ", wish.temperature, ", must lie between ", 1 / kMostTemperature, " and ", kMostTemperature));
  }
  if (fields.has("hidden")) {
    const model::Json& list = fields.at("hidden");
    if (!list.is_array()) fields.fail("hidden", "must be a list of words, counted from 0");
    for (const model::Json& entry : list) {
      const auto word = model::to_integer(entry, 0, Index{1} << 40);
      if (!word) fields.fail("hidden", "must be a list of words, counted from 0");
      wish.hidden.push_back(*word);
    }
    std::sort(wish.hidden.begin(), wish.hidden.end());
    wish.hidden.erase(std::unique(wish.hidden.begin(), wish.hidden.end()), wish.hidden.end());
  }
  return wish;
}

Json RunWish::changed() const {
  return {{"zeroed", heads_json(zeroed)}, {"mean", heads_json(mean)}, {"hidden", hidden}, {"temperature", temperature}};
}

std::string RunWish::key() const { return changed().dump() + text; }

Index Run::heads() const {
  Index count = 0;
  for (const CapturedLayer& layer : capture.layers) count += layer.heads();
  return count;
}

std::size_t Run::bytes() const {
  std::size_t sum = text.size() * 8;
  for (const CapturedLayer& layer : capture.layers) {
    for (const ConstTensorView& view : {layer.q, layer.k, layer.v, layer.lse, layer.head_out, layer.weights}) {
      if (view) sum += static_cast<std::size_t>(element_count(view.shape)) * size_of(view.dtype);
    }
  }
  return sum + (queries.pieces.size() + queries.words.size()) * 512;  // strings, and their JSON
}

std::string content_id(std::string_view key) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;  // FNV-1a
  for (const char c : key) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  std::string text;
  for (int shift = 60; shift >= 0; shift -= 4) text += "0123456789abcdef"[(hash >> shift) & 15];
  return text;
}

Json units_json(const UnitLists& units) {
  std::vector<Index> word_of(units.pieces.size(), -1);
  Json words = Json::array();
  for (std::size_t w = 0; w < units.words.size(); ++w) {
    const Unit& word = units.words[w];
    words.push_back({{"text", word.text}, {"first", word.first}, {"count", word.count}, {"special", word.special}});
    for (Index piece = word.first; piece < word.first + word.count; ++piece)
      word_of[static_cast<std::size_t>(piece)] = static_cast<Index>(w);
  }
  Json pieces = Json::array();
  for (std::size_t p = 0; p < units.pieces.size(); ++p) {
    pieces.push_back({{"text", units.pieces[p].text}, {"word", word_of[p]}, {"special", units.pieces[p].special}});
  }
  return {{"pieces", std::move(pieces)}, {"words", std::move(words)}};
}

Json layers_json(const Capture& capture) {
  Json list = Json::array();
  for (const CapturedLayer& layer : capture.layers) {
    Json window = nullptr;
    bool causal = false;
    for (const Rule& rule : layer.spec.mask.rules()) {
      causal |= std::holds_alternative<Causal>(rule);
      if (const auto* bounds = std::get_if<Window>(&rule)) window = Json::array({bounds->left, bounds->right});
    }
    list.push_back({{"name", layer.name},
                    {"heads", layer.heads()},
                    {"kv_heads", layer.kv_heads()},
                    {"q_len", layer.q_len()},
                    {"kv_len", layer.kv_len()},
                    {"causal", causal},
                    {"window", window},
                    {"align", layer.spec.align == Align::BottomRight ? "bottom_right" : "top_left"}});
  }
  return list;
}

std::shared_ptr<const Run> make_run(const MicroscopeModel& model, const RunWish& wish, const Run* unchanged, Stop& stop) {
  const TransformerConfig& config = model.transformer->config();
  const auto began = std::chrono::steady_clock::now();
  const Sentence sentence = read_sentence(*model.tokenizer, wish.text, config.max_positions);
  const auto run = std::make_shared<Run>();
  run->key = wish.key();
  run->id = content_id(run->key);
  run->text = wish.text;
  run->queries = lists_of(sentence);
  run->ids = sentence.ids;
  if (unchanged != nullptr) change(*run, wish, *unchanged, config);
  Workspace workspace(stop.executor());
  Tensor hidden(DType::F32, {1, static_cast<Index>(run->ids.size()), config.d_model});
  run->capture = capture_heads(*model.transformer, run->ids, workspace, run->intervention, hidden);
  stop.check();
  for (std::size_t i = 0; i < run->capture.layers.size(); ++i) {
    if (run->capture.layers[i].name.empty()) run->capture.layers[i].name = join("layer ", i);
  }
  run->vector = sentence_vector(hidden);
  run->projections = output_projections(*model.transformer);
  for (const auto& [layer, heads] : config.pruned_heads) {
    for (const Index head : heads) run->removed.push_back({layer, head});
  }
  run->json = run_json(*run, wish, unchanged, sentence.left_out);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - began;
  run->json["milliseconds"] = std::round(took.count() * 1000) / 1000;
  return run;
}

}  // namespace mha::view
