// What is recorded, in the order in which it is given up last: what the page shows first comes first.
#include "view/snapshot.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "core/check.h"
#include "mha/error.h"
#include "mha/view/page.h"
#include "view/base64.h"
#include "view/request.h"
#include "view/respond.h"

namespace mha::view {
namespace {

using core::join;

constexpr Index kWholeCells = Index{1} << 24;  // the page's: a layer of more is shown as a map
constexpr Index kExactCells = Index{1} << 19;  // the page's: a layer of more is shown in u8
constexpr Index kTile = 256;                   // the page's: cells a side of a tile of a map
constexpr int kZooms = 3;

/// The file loads nothing, whatever is written into it.
constexpr std::string_view kPolicy =
    R"(<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:">)";

/// JSON inside a script element: no '<' may stand in it.
std::string in_script(std::string text) {
  for (std::size_t at = text.find('<'); at != std::string::npos; at = text.find('<', at)) text.replace(at, 1, "\\u003c");
  return text;
}

std::string quoted(const std::string& text) { return in_script(Json(text).dump(-1, ' ', true, Json::error_handler_t::replace)); }

Json header_of(const Response& response, std::string_view name) {
  for (const auto& [key, value] : response.headers) {
    if (key == name) return value;
  }
  return nullptr;
}

class Recorder {
 public:
  Recorder(const Ask& ask, std::size_t bytes) : ask_(ask), left_(bytes) {}

  /// Asks and keeps; what is refused (no norms in this run, say) is left out. Returns the body, empty where there is none.
  std::string keep(const std::string& target) {
    Response response = ask_(target);
    MHA_CHECK(Error, response.status != 503, told(response));
    if (response.status != 200 || response.body.size() > left_) {
      ++left_out_;
      return {};
    }
    left_ -= response.body.size();
    entries_ += join(entries_.empty() ? "" : ",\n", quoted("GET " + target), ": {\"type\": ", quoted(response.type),
                     ", \"shape\": ", header_of(response, "X-Mha-Shape").dump(), ", \"dtype\": ", header_of(response, "X-Mha-Dtype").dump(),
                     ", \"body\": \"", base64(response.body), "\"}");
    return std::move(response.body);
  }
  /// The same for something whose size is known; not computed where there is no room for it.
  void keep(const std::string& target, Index bytes) {
    if (static_cast<std::size_t>(bytes) > left_) {
      ++left_out_;
    } else {
      keep(target);
    }
  }

  std::string json(const std::string& state) const {
    return join("{\"responses\": {", entries_, "},\n\"left_out\": ", left_out_, ", \"state\": ", quoted(state), '}');
  }
  static std::string told(const Response& response) {
    const Json json = Json::parse(response.body, nullptr, false);
    if (!json.is_object()) return join("the microscope answered ", response.status);
    return join(json.value("error", std::string("it failed")), " (", json.value("remedy", std::string()), ')');
  }

 private:
  const Ask& ask_;
  std::size_t left_;
  std::string entries_;
  int left_out_ = 0;
};

/// What the run's own answer says of it.
struct About {
  std::string path;                                 // "/api/runs/ID/"
  std::vector<Index> heads = {};                    // per layer
  std::vector<std::pair<Index, Index>> sizes = {};  // per layer: q_len, kv_len
  Index rows[2] = {0, 0};                           // by word, by piece
  Index columns[2] = {0, 0};
  Index cells(std::size_t layer, int unit) const { return heads[layer] * rows[unit] * columns[unit]; }
};

About about(const Json& run, const std::string& path) {
  About found{.path = path};
  for (const Json& layer : run.at("layers")) {
    found.heads.push_back(layer.at("heads").get<Index>());
    found.sizes.emplace_back(layer.at("q_len").get<Index>(), layer.at("kv_len").get<Index>());
  }
  const Json& queries = run.at("queries");
  const Json& keys = run.at("keys").is_null() ? queries : run.at("keys");
  for (int unit = 0; unit < 2; ++unit) {
    const char* name = unit == 0 ? "words" : "pieces";
    found.rows[unit] = static_cast<Index>(queries.at(name).size());
    found.columns[unit] = static_cast<Index>(keys.at(name).size());
  }
  return found;
}

/// What the page shows first, out of its state.
struct Shown {
  std::size_t layer = 0;
  Index head = 0;
  int unit = 0;          // 0: words, 1: pieces
  bool effects = false;  // of taking heads away; not recorded unasked: the model runs once for every head
};

Shown shown_of(const std::string& state, const About& run) {
  Shown shown;
  try {
    const Target target("/?" + state);
    const auto layers = static_cast<Index>(run.heads.size());
    shown.layer =
        static_cast<std::size_t>(std::clamp<Index>(target.number("layer", 0, 0, Index{1} << 30), 0, std::max<Index>(layers - 1, 0)));
    shown.head = std::clamp<Index>(target.number("head", 0, 0, Index{1} << 30), 0, layers > 0 ? run.heads[shown.layer] - 1 : 0);
    shown.unit = target.text("unit", "word") == "piece" ? 1 : 0;
    shown.effects = target.text("atlas", "") == "effect";
  } catch (const RequestError&) {  // a state that says nothing: the page falls back to its defaults, and so does this
  }
  return shown;
}

void keep_tables(Recorder& recorder, const About& run, std::size_t layer, int unit, const char* kind) {
  const Index cells = run.cells(layer, unit);
  if (cells > kWholeCells) return;
  const auto target = [&](const char* dtype) {
    return join(run.path, "weights?layer=", layer, "&unit=", unit == 0 ? "word" : "piece", "&dtype=", dtype, "&kind=", kind);
  };
  const bool norm = std::string_view(kind) == "norm";
  if (!norm) recorder.keep(target("u8"), cells);
  if (norm || cells <= kExactCells) recorder.keep(target("f16"), 2 * cells);
}

/// Tiles of the selected head's map, the coarsest zoom first.
void keep_map(Recorder& recorder, const About& run, const Shown& shown) {
  const auto [rows, columns] = run.sizes[shown.layer];
  const auto whole = static_cast<int>(std::lround(std::log2(std::max(static_cast<double>(std::max(rows, columns)) / kTile, 1.0))));
  for (int zoom = whole; zoom >= std::max(0, whole - kZooms + 1); --zoom) {
    const Index span = kTile << zoom;
    const Index cell = Index{1} << zoom;
    for (Index top = 0; top < rows; top += span) {
      for (Index left = 0; left < columns; left += span) {
        const Index bottom = std::min(rows, top + span);
        const Index right = std::min(columns, left + span);
        const Index tall = (bottom - top + cell - 1) / cell;
        const Index wide = (right - left + cell - 1) / cell;
        recorder.keep(join(run.path, "map?layer=", shown.layer, "&head=", shown.head, "&queries=", top, ':', bottom, "&keys=", left, ':',
                           right, "&rows=", tall, "&columns=", wide, "&pool=max"),
                      2 * tall * wide);
      }
    }
  }
}

void keep_run(Recorder& recorder, const About& run, const Shown& shown) {
  if (run.heads.empty()) return;
  keep_tables(recorder, run, shown.layer, shown.unit, "weight");
  if (run.cells(shown.layer, shown.unit) > kWholeCells) keep_map(recorder, run, shown);
  recorder.keep(run.path + (shown.unit == 0 ? "measures?unit=word" : "measures?unit=piece"));
  recorder.keep("/api/usual");
  if (shown.effects) recorder.keep(run.path + "effects?by=zero");
  for (int unit : {shown.unit, 1 - shown.unit}) {
    for (const char* kind : {"weight", "norm"}) {
      for (std::size_t layer = 0; layer < run.heads.size(); ++layer) {
        const bool kept = layer == shown.layer && unit == shown.unit && std::string_view(kind) == "weight";
        if (!kept) keep_tables(recorder, run, layer, unit, kind);
      }
    }
    if (unit != shown.unit) recorder.keep(run.path + (unit == 0 ? "measures?unit=word" : "measures?unit=piece"));
  }
}

/// The state with what was changed in the run, so that the page says it; unless it says something of that itself.
std::string with_changes(std::string state, const Json& run) {
  const Json changed = run.value("changed", Json());
  const auto add = [&](const std::string& name, const std::string& value) {
    if (!value.empty() && state.find(name + '=') == std::string::npos) state += (state.empty() ? "" : "&") + name + '=' + value;
  };
  const auto listed = [&](const char* name, const auto& written) {
    std::string text;
    for (const Json& item : changed.value(name, Json::array())) text += (text.empty() ? "" : ",") + written(item);
    add(name, text);
  };
  if (!changed.is_object()) return state;
  const auto head = [](const Json& pair) { return join(pair.at(0).get<Index>(), '.', pair.at(1).get<Index>()); };
  listed("zeroed", head);
  listed("mean", head);
  listed("hidden", [](const Json& word) { return std::to_string(word.get<Index>()); });
  const double temperature = changed.value("temperature", 1.0);
  if (temperature != 1.0) add("temperature", Json(temperature).dump());
  return state;
}

std::size_t after(const std::string& text, std::string_view mark, std::size_t from = 0) {
  const std::size_t found = text.find(mark, from);
  return found == std::string::npos ? found : found + mark.size();
}

}  // namespace

bool has_page() { return page_html().find("<script") != std::string_view::npos; }

std::string record_page(const Ask& ask, const std::string& run, const SnapshotOptions& options) {
  Recorder recorder(ask, options.bytes);
  const std::string path = "/api/runs/" + run;
  const Response told = ask(path);
  MHA_CHECK(Error, told.status == 200, Recorder::told(told));
  recorder.keep("/api/info");
  recorder.keep(path);
  const Json told_run = Json::parse(told.body);
  const About found = about(told_run, path + '/');
  const std::string state = with_changes(options.state, told_run);
  keep_run(recorder, found, shown_of(state, found));
  std::string page = ask("/").body;
  const std::string snapshot = "<script type=\"application/json\" id=\"mha-snapshot\">" + recorder.json(state) + "</script>\n";
  // Before the page's own script; a page without one shows what it has to say.
  const std::size_t head = after(page, "<head>");
  if (head != std::string::npos) page.insert(head, kPolicy);
  std::size_t place = page.find("<script");
  if (place == std::string::npos) place = page.find("</body>");
  page.insert(place == std::string::npos ? page.size() : place, snapshot);
  return page;
}

Response page_file(const Ask& ask, const std::string& run, const std::string& state) {
  return {.type = "text/html; charset=utf-8",
          .body = record_page(ask, run, {.state = state}),
          .headers = {{"Content-Disposition", "attachment; filename=\"mha-" + run.substr(0, 16) + ".html\""}}};
}

std::string snapshot_html(const Microscope& microscope, const std::string& run, const SnapshotOptions& options) {
  return record_page([&](const std::string& target) { return microscope.answer({.target = target}); }, run, options);
}

std::string snapshot_of_text(const Microscope& microscope, const std::string& body, const SnapshotOptions& options) {
  const Response run = microscope.answer({.method = "POST", .target = "/api/runs", .body = body});
  MHA_CHECK(Error, run.status == 200, Recorder::told(run));
  return snapshot_html(microscope, Json::parse(run.body).at("run").get<std::string>(), options);
}

}  // namespace mha::view
