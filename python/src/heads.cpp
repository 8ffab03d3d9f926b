// Bindings of mha/analysis/norms.h, rollout.h, distances.h, similarity.h and repeated.h; see heads.h.
#include "heads.h"

#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <utility>
#include <vector>

#include "interrupt.h"
#include "layer.h"
#include "mha/analysis/distances.h"
#include "mha/analysis/norms.h"
#include "mha/analysis/repeated.h"
#include "mha/analysis/rollout.h"
#include "mha/analysis/similarity.h"
#include "mha/error.h"
#include "tables.h"

namespace mha::python {

namespace {

using MaybeArray = std::optional<Array>;

/// A Capture and the arrays it looks into.
class HeadCapture {
 public:
  void add(const FormerCall& call, const MaybeArray& v, const MaybeArray& head_out) {
    calls_.push_back(call);  // arrays hold on to Python's objects
    values_.insert(values_.end(), {v, head_out});
    const char* const who = "capture";
    capture_.layers.push_back({.spec = call.whole_spec(who),
                               .q = whole(call.q, who),
                               .k = whole(call.k, who),
                               .v = whole(v, who),
                               .lse = whole(call.lse, who),
                               .head_out = whole(head_out, who),
                               .allowed = whole(call.allowed, who),
                               .kv_lengths = call.kv_lengths});
    check_rank(capture_.layers.back().lse, 3, "lse");
  }
  void add_ready(const Array& weights) {
    values_.push_back(weights);
    CapturedLayer layer;
    layer.weights = whole(weights, "capture");
    check_rank(layer.weights, 4, "weights");
    capture_.layers.push_back(layer);
  }
  const Capture& capture() const { return capture_; }

 private:
  static void check_rank(const ConstTensorView& view, int rank, const char* name) {
    if (view.rank() != rank) throw ShapeError(std::string("capture: ") + name + " is " + to_string(view.shape));
  }

  std::vector<FormerCall> calls_;
  std::vector<MaybeArray> values_;
  Capture capture_;
};

std::vector<double> norms(const HeadCapture& given, const Array& projection, Index head, Index batch) {
  return value_norms(given.capture().layers.at(0), whole(projection, "value_norms"), head, batch);
}

std::vector<double> rolled_out(const HeadCapture& given, const std::vector<Index>& start, std::optional<Index> layers,
                               std::optional<Index> threads) {
  const HeadCapture held = given;  // its arrays stay while the GIL is released
  const RolloutStart from{.first = start.at(0), .count = start.at(1), .layers = layers, .batch = start.at(2)};
  std::vector<double> share;
  compute(threads, [&](Workspace& workspace) { share = rollout(held.capture(), from, workspace); });
  return share;
}

/// measure(captures, workspace) as numbers [heads, heads].
template <class Measure>
std::vector<double> between_heads(const std::vector<HeadCapture>& held, std::optional<Index> threads, Measure&& measure) {
  std::vector<Capture> captures;
  for (const HeadCapture& one : held) captures.push_back(one.capture());
  HeadMatrix matrix;
  compute(threads, [&](Workspace& workspace) { matrix = measure(captures, workspace); });
  return matrix.values;
}

std::pair<std::vector<std::array<double, 2>>, double> plane(const std::vector<double>& distances, Index heads) {
  HeadMatrix matrix{.heads = std::vector<HeadId>(static_cast<std::size_t>(heads)), .values = distances};
  PlaneMap map = plane_map(matrix);
  return {std::move(map.points), map.shown};
}

std::vector<std::array<double, 3>> scores_of(const HeadCapture& given, const std::vector<Index>& ids, Index first, Index period,
                                             std::optional<Index> threads) {
  const HeadCapture held = given;
  const RepeatedText text{.ids = ids, .first = first, .period = period};
  std::vector<std::array<double, 3>> all;
  compute(threads, [&](Workspace& workspace) {
    for (const RepeatedScores& head : repeated_scores(held.capture(), text, workspace)) {
      all.push_back({head.previous, head.duplicate, head.induction});
    }
  });
  return all;
}

}  // namespace

void bind_heads(nb::module_& module) {
  nb::class_<HeadCapture>(module, "HeadCapture", "q, k, lse, and where there are any v and outputs, of every head of a run, by layer.")
      .def(nb::init<>())
      .def("add", &HeadCapture::add, nb::arg("call"), nb::arg("v") = nb::none(), nb::arg("head_out") = nb::none(),
           "A layer: v [batch, kv_len, kv_heads, value_dim], head_out [batch, q_len, heads, value_dim]. ValueError.")
      .def("add_ready", &HeadCapture::add_ready, nb::arg("weights"),
           "A layer of ready weights, [batch, heads, q_len, kv_len]. ValueError.");
  module.def("value_norms", &norms, nb::arg("capture"), nb::arg("projection"), nb::arg("head"), nb::arg("batch"),
             "Of the capture's first layer, one per key. ValueError or TypeError.");
  module.def("rollout", &rolled_out, nb::arg("capture"), nb::arg("start"), nb::arg("layers") = nb::none(),
             nb::arg("num_threads") = nb::none(), "One per piece; start: first piece, count, batch entry. ValueError.");
  module.def(
      "head_distances",
      [](const std::vector<HeadCapture>& captures, std::optional<Index> threads) {
        return between_heads(captures, threads, [](const auto& texts, Workspace& workspace) { return head_distances(texts, workspace); });
      },
      nb::arg("captures"), nb::arg("num_threads") = nb::none(), "Row by row. ValueError.");
  module.def(
      "head_similarities",
      [](const std::vector<HeadCapture>& captures, std::optional<Index> threads) {
        return between_heads(captures, threads,
                             [](const auto& texts, Workspace& workspace) { return head_similarities(texts, workspace); });
      },
      nb::arg("captures"), nb::arg("num_threads") = nb::none(), "Row by row. ValueError.");
  module.def("plane_map", &plane, nb::arg("distances"), nb::arg("heads"), "Points, and the share of variance that they show. ValueError.");
  module.def(
      "repeated_text",
      [](const Tokenizer& tokenizer, Index period, std::uint64_t seed) {
        const RepeatedText text = repeated_text(tokenizer, period, seed);
        return std::pair(text.ids, text.first);
      },
      nb::arg("tokenizer"), nb::arg("period"), nb::arg("seed"), nb::call_guard<nb::gil_scoped_release>(),
      "Ids, and the place of the first random one. ValueError.");
  module.def("repeated_scores", &scores_of, nb::arg("capture"), nb::arg("ids"), nb::arg("first"), nb::arg("period"),
             nb::arg("num_threads") = nb::none(), "Of each head: previous, duplicate, induction. ValueError.");
}

}  // namespace mha::python
