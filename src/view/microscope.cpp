// Microscope: which request is answered by what. Numbers come from tables.h, runs from run.h; every error becomes JSON here.
#include "mha/view/microscope.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <new>
#include <optional>
#include <thread>

#include "core/check.h"
#include "mha/analysis/measures.h"
#include "mha/version.h"
#include "mha/view/page.h"
#include "model/json_fields.h"
#include "view/request.h"
#include "view/respond.h"
#include "view/run.h"
#include "view/run_store.h"
#include "view/snapshot.h"
#include "view/stop.h"
#include "view/tables.h"

namespace mha::view {
namespace {

using core::join;

constexpr std::chrono::milliseconds kUsualWait{10};
constexpr Index kMostLinks = 2000;
constexpr Index kMostMapSide = 512;
constexpr std::size_t kPieceBytes = 4;                    // of a text, about
constexpr std::size_t kUsualCost = std::size_t{1} << 16;  // all plain sentences
constexpr double kMostNormPairs = 2e9;                    // pairs of pieces that a column of norms may cost, all heads together

/// The sentence the page opens on, and what its readings look like in a head.
Json examples() {
  const Json first = {{"name", "the man has the telescope"}, {"links", Json::array({Json::array({"man", "telescope"})})}};
  const Json second = {{"name", "the astronomer has the telescope"},
                       {"links", Json::array({Json::array({"man", "astronomer"}), Json::array({"astronomer", "telescope"})})}};
  return Json::array({{{"text", "The man saw the astronomer with a telescope."}, {"readings", {first, second}}}});
}

[[noreturn]] void not_found(const std::string& what) {
  throw RequestError(404, what, "docs/http-api.md lists what there is; /api/info says what is open");
}

}  // namespace

struct Microscope::Impl {
  Impl(MicroscopeModel given, MicroscopeOptions chosen, std::shared_ptr<const CaptureFile> file)
      : model(std::move(given)), options(std::move(chosen)), tensors(std::move(file)), runs(options.kept_bytes) {
    if (tensors) entries = runs_of(*tensors);
  }

  Response route(const Request& request, const Target& target, Stop& stop);
  Response route_run(const Request& request, const Target& target, Stop& stop);
  Response page(const std::string& name, std::string_view embedded, const char* type) const;
  Response self_contained(const Target& target, const std::string& run, Stop& stop);
  Response info() const;
  Response post(const Request& request, Stop& stop);
  std::shared_ptr<const Run> known_run(const std::string& id);
  std::size_t cost(const Request& request, const Target& target);
  std::shared_ptr<const Run> run_of(const RunWish& wish, Stop& stop);
  Response usual(Stop& stop);
  Response weights(const Target& target, Lens lens) const;
  Response row(const Target& target, Lens lens) const;
  Response rollout(const Target& target, const Lens& lens) const;
  Response map(const Target& target, const Lens& lens) const;
  Response links(const Target& target, const Lens& lens) const;
  HeadId head_of(const Target& target, const Run& run) const;

  MicroscopeModel model;
  MicroscopeOptions options;
  std::shared_ptr<const CaptureFile> tensors;
  std::vector<std::shared_ptr<const Run>> entries;  // of the file
  RunStore runs;
  std::mutex usual_mutex;
  std::atomic<bool> usual_known{false};
  std::optional<UsualWeights> usual_weights;
};

Response Microscope::Impl::page(const std::string& name, std::string_view embedded, const char* type) const {
  return {.type = type, .body = options.page ? options.page(name) : std::string(embedded)};
}

Response Microscope::Impl::route(const Request& request, const Target& target, Stop& stop) {
  const std::vector<std::string>& path = target.path();
  const auto is = [&](std::initializer_list<const char*> names) {
    return std::equal(path.begin(), path.end(), names.begin(), names.end());
  };
  if (is({"api", "runs"})) {
    if (request.method != "POST") throw RequestError(405, join("/api/runs takes POST, not ", request.method), "post {\"text\": \"...\"}");
    return post(request, stop);
  }
  if (request.method != "GET") {
    throw RequestError(405, join("this address takes GET, not ", request.method.substr(0, 16)), "only /api/runs takes POST");
  }
  if (is({}) || is({"index.html"})) return page("index.html", page_html(), "text/html; charset=utf-8");
  if (is({"notices.txt"})) return page("notices.txt", notices(), "text/plain; charset=utf-8");
  if (is({"api", "info"})) return info();
  if (is({"api", "usual"})) return usual(stop);
  if (path.size() >= 3 && path[0] == "api" && path[1] == "runs") return route_run(request, target, stop);
  not_found(join("there is nothing at ", model::printable(request.target)));
}

std::shared_ptr<const Run> Microscope::Impl::known_run(const std::string& id) {
  const auto entry = std::find_if(entries.begin(), entries.end(), [&](const auto& e) { return e->id == id; });
  return entry != entries.end() ? *entry : runs.find(id);
}

std::size_t Microscope::Impl::cost(const Request& request, const Target& target) {
  const std::vector<std::string>& path = target.path();
  if (path.size() == 2 && path[0] == "api" && path[1] == "usual") return usual_known ? 0 : kUsualCost;
  if (path.size() != 4 || path[0] != "api" || path[1] != "runs") return request.body.size();
  const std::shared_ptr<const Run> run = known_run(path[2]);
  if (run == nullptr) return 0;
  const std::size_t bytes = kPieceBytes * (run->queries.pieces.size() + (run->keys ? run->keys->pieces.size() : 0));
  const bool head_by_head = path[3] == "effects" || path[3] == "page.html";
  return head_by_head ? bytes * static_cast<std::size_t>(run->heads()) : bytes;
}

Response Microscope::Impl::route_run(const Request& request, const Target& target, Stop& stop) {
  const std::vector<std::string>& path = target.path();
  const std::shared_ptr<const Run> run = known_run(path[2]);
  if (run == nullptr) {
    throw RequestError(404, join("run ", model::printable(path[2]), " is not kept (any more)"), "post its text to /api/runs again");
  }
  if (path.size() == 3) return json_response(run->json);
  Workspace workspace(stop.executor());
  Lens lens{.run = *run, .stop = stop, .workspace = workspace, .unit = target.unit()};
  if (path.size() == 4) {
    if (path[3] == "weights") return weights(target, lens);
    if (path[3] == "row") return row(target, lens);
    if (path[3] == "map") return map(target, lens);
    if (path[3] == "links") return links(target, lens);
    if (path[3] == "rollout") return rollout(target, lens);
    if (path[3] == "effects") return json_response(effect_values(model, lens, target.choice("by", {"zero", "mean"}) == "mean"));
    if (path[3] == "measures") return json_response(measure_values(lens));
    if (path[3] == "page.html") return self_contained(target, path[2], stop);
  }
  not_found(join("there is nothing at ", model::printable(request.target)));
}

Response Microscope::Impl::self_contained(const Target& target, const std::string& run, Stop& stop) {
  const auto ask = [&](const std::string& wanted) {
    try {
      return route({.target = wanted}, Target(wanted), stop);
    } catch (const RequestError& error) {
      return error_response(error.status(), error.what(), error.remedy());
    }
  };
  return page_file(ask, run, target.text("state", ""));
}

Response Microscope::Impl::info() const {
  Json json = {{"version", kVersion}, {"model", nullptr}, {"tensors", nullptr}, {"examples", examples()}};
  Json tokens = nullptr;
  if (model.transformer != nullptr) {
    const TransformerConfig& config = model.transformer->config();
    tokens = config.max_positions;
    Json removed = Json::array();
    for (const auto& [layer, heads] : config.pruned_heads) {
      for (const Index head : heads) removed.push_back(Json::array({layer, head}));
    }
    json["model"] = {{"name", model.name},           {"family", config.family},     {"layers", config.layers},
                     {"heads", config.heads},        {"head_dim", config.head_dim}, {"max_positions", config.max_positions},
                     {"removed", std::move(removed)}};
  }
  if (tensors) {
    Json list = Json::array();
    for (const auto& entry : entries) list.push_back({{"run", entry->id}, {"name", entry->name}});
    json["tensors"] = {{"file", tensors->path.substr(tensors->path.rfind('/') + 1)}, {"runs", std::move(list)}};
  }
  json["measures"] = Json::array();
  for (const MeasureInfo& measure : measures()) {
    json["measures"].push_back({{"name", measure.name}, {"meaning", measure.meaning}, {"share", measure.share}});
  }
  json["limits"] = {{"body", options.body_bytes}, {"tokens", tokens}, {"seconds", options.seconds}};
  return json_response(json);
}

std::shared_ptr<const Run> Microscope::Impl::run_of(const RunWish& wish, Stop& stop) {
  const std::string key = wish.key();
  std::shared_ptr<const Run> run = runs.find(content_id(key));
  if (run != nullptr && run->key == key) return run;
  std::shared_ptr<const Run> unchanged;
  if (wish.changes()) unchanged = run_of({.text = wish.text}, stop);
  run = make_run(model, wish, unchanged.get(), stop);
  runs.keep(run);
  return run;
}

Response Microscope::Impl::post(const Request& request, Stop& stop) {
  if (model.transformer == nullptr) {
    throw RequestError(404, "no model is open: texts cannot be run", "start `mha serve --model DIR`, or look at the runs of /api/info");
  }
  return json_response(run_of(read_wish(request.body), stop)->json);
}

Response Microscope::Impl::usual(Stop& stop) {
  if (model.transformer == nullptr) not_found("no model is open: nothing is known of what its heads usually do");
  std::unique_lock lock(usual_mutex, std::try_to_lock);
  while (!lock.owns_lock()) {  // who waits for another's computation can leave, too
    stop.check();
    std::this_thread::sleep_for(kUsualWait);
    lock.try_lock();
  }
  if (!usual_weights) {
    UsualWeights computed;
    if (model.usual) {
      computed = model.usual(stop.executor());
    } else {
      Workspace workspace(stop.executor());
      computed = mha::usual_weights(*model.transformer, *model.tokenizer, plain_sentences(), workspace);
    }
    stop.check();
    usual_weights = std::move(computed);
    usual_known = true;
  }
  const UsualWeights& kept = *usual_weights;
  std::vector<float> numbers;
  for (Index layer = 0; layer < kept.layers; ++layer) {
    for (Index head = 0; head < kept.heads; ++head) {
      for (Index distance = -UsualWeights::kReach; distance <= UsualWeights::kReach; ++distance) {
        const std::optional<double> mean = kept.at({layer, head}, distance);
        numbers.push_back(mean ? static_cast<float>(*mean) : std::numeric_limits<float>::quiet_NaN());
      }
    }
  }
  return numbers_response(numbers, {kept.layers, kept.heads, 2 * UsualWeights::kReach + 1}, Numbers::F32);
}

Response Microscope::Impl::weights(const Target& target, Lens lens) const {
  const Index layer = target.index("layer", static_cast<Index>(lens.run.capture.layers.size()), "layers");
  const Numbers dtype = target.choice("dtype", {"u8", "f16"}) == "u8" ? Numbers::U8 : Numbers::F16;
  lens.kind = target.choice("kind", {"weight", "norm"}) == "weight" ? WeightKind::Weight : WeightKind::Norm;
  const Index heads = lens.layer(layer).heads();
  const auto rows = static_cast<Index>(lens.rows().size());
  const auto columns = static_cast<Index>(lens.columns().size());
  check_answer(heads * rows * columns, dtype, options, "ask for /map, which pools, or for /row");
  return numbers_response(layer_table(lens, layer), {heads, rows, columns}, dtype);
}

Response Microscope::Impl::row(const Target& target, Lens lens) const {
  if (!lens.run.is_self()) {
    throw RequestError(400, "rows and columns of this run are of different texts: no unit has both", "ask for /weights or /map");
  }
  const auto units = static_cast<Index>(lens.rows().size());
  const Index index = target.index("index", units, lens.unit == UnitKind::Word ? "words" : "pieces");
  lens.kind = target.choice("kind", {"weight", "norm"}) == "weight" ? WeightKind::Weight : WeightKind::Norm;
  check_answer(lens.run.heads() * 2 * units, Numbers::F16, options, "ask for /map, a head at a time");
  const double pieces = static_cast<double>(lens.run.queries.pieces.size());
  if (lens.kind == WeightKind::Norm && pieces * pieces * static_cast<double>(lens.run.heads()) > kMostNormPairs) {
    throw RequestError(413, join("who attends to a unit, by norms, wants all of ", lens.run.heads(), " tables of ", pieces, " rows"),
                       "ask for kind=weight, or a shorter text");
  }
  return numbers_response(row_and_column(lens, index), {lens.run.heads(), 2, units}, Numbers::F16);
}

Response Microscope::Impl::rollout(const Target& target, const Lens& lens) const {
  const auto units = static_cast<Index>(lens.rows().size());
  const Index index = target.index("index", units, lens.unit == UnitKind::Word ? "words" : "pieces");
  return numbers_response(rollout_shares(lens, index), {units}, Numbers::F16);
}

HeadId Microscope::Impl::head_of(const Target& target, const Run& run) const {
  const Index layer = target.index("layer", static_cast<Index>(run.capture.layers.size()), "layers");
  return {layer, target.index("head", run.capture.layers[static_cast<std::size_t>(layer)].heads(), "heads in this layer")};
}

Response Microscope::Impl::map(const Target& target, const Lens& lens) const {
  MapTile tile{.id = head_of(target, lens.run)};
  tile.queries = target.range("queries", lens.layer(tile.id.layer).q_len());
  tile.keys = target.range("keys", lens.layer(tile.id.layer).kv_len());
  const Index queries = tile.queries.hi - tile.queries.lo;
  const Index keys = tile.keys.hi - tile.keys.lo;
  tile.rows = target.number("rows", std::min(queries, kMostMapSide), 1, std::min(queries, kMostMapSide));
  tile.columns = target.number("columns", std::min(keys, kMostMapSide), 1, std::min(keys, kMostMapSide));
  tile.max = target.choice("pool", {"mean", "max"}) == "max";
  return numbers_response(map_tile(lens, tile), {tile.rows, tile.columns}, Numbers::F16);
}

Response Microscope::Impl::links(const Target& target, const Lens& lens) const {
  return json_response(strongest_links(lens, head_of(target, lens.run), target.number("top", 200, 1, kMostLinks)));
}

Microscope::Microscope(MicroscopeModel model, MicroscopeOptions options, std::shared_ptr<const CaptureFile> tensors)
    : impl_(std::make_unique<Impl>(std::move(model), std::move(options), std::move(tensors))) {}
Microscope::Microscope(Microscope&&) noexcept = default;
Microscope& Microscope::operator=(Microscope&&) noexcept = default;
Microscope::~Microscope() = default;

const MicroscopeOptions& Microscope::options() const { return impl_->options; }

std::size_t Microscope::cost(const Request& request) const noexcept {
  try {
    return impl_->cost(request, Target(request.target));
  } catch (const std::exception&) {  // refused soon
    return 0;
  }
}

Response Microscope::answer(const Request& request, const std::atomic<bool>* gone) const noexcept {
  try {
    if (request.body.size() > impl_->options.body_bytes) {
      return error_response(413, join("the request has ", request.body.size(), " bytes, at most ", impl_->options.body_bytes, " are read"),
                            "send a shorter text");
    }
    Stop stop(impl_->options.executor, impl_->options.seconds, gone);
    return impl_->route(request, Target(request.target), stop);
  } catch (const RequestError& error) {
    return error_response(error.status(), error.what(), error.remedy());
  } catch (const Error& error) {
    return error_response(400, error.what(), "change the request");
  } catch (const std::bad_alloc&) {
    return {.status = 503, .type = "application/json", .body = R"({"error":"out of memory","remedy":"ask for less, or a shorter text"})"};
  } catch (const std::exception& error) {
    return error_response(500, error.what(), "this is a fault of mha: please report it");
  }
}

}  // namespace mha::view
