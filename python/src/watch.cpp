// Bindings of mha/analysis/head_health.h; see watch.h of this folder. A watch may be shared by threads: a text is added whole, or, where
// it is refused or interrupted, not at all.
#include "watch.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <mutex>
#include <string>

#include "interrupt.h"
#include "mha/analysis/head_health.h"

namespace nb = nanobind;

namespace mha::python {

namespace {

struct Watch {
  HealthWatch sums;
  mutable std::mutex mutex = {};  // taken without the GIL only: who holds it may have to wait for the GIL
};

WatchedText add_text(const Transformer& model, const Tokenizer& tokenizer, const std::string& text, Watch& watch,
                     std::optional<Index> num_threads) {
  WatchedText read;
  compute(num_threads, [&](Workspace& workspace) {
    const std::lock_guard<std::mutex> lock(watch.mutex);
    HealthWatch next = watch.sums;
    read = watch_text(model, tokenizer, text, next, workspace);
    const Executor& executor = workspace.executor();
    if (executor.stop == nullptr || !executor.stop(executor.context)) watch.sums = std::move(next);
  });
  return read;
}

void bind_results(nb::module_& module) {
  nb::class_<HeadHealth>(
      module, "HeadHealth",
      "One head over all rows counted. Rows with a NaN or an infinity take no part in means and shares, rows that see one "
      "key none in shares. A mean or share of no row is NaN.")
      .def_ro("rows", &HeadHealth::rows, "That see a key, whatever they hold.")
      .def_ro("nan_rows", &HeadHealth::nan_rows, "With a NaN among the weights or in the head's output.")
      .def_ro("infinite_rows", &HeadHealth::infinite_rows, "With an infinite score or output.")
      .def_ro("nonfinite_rows", &HeadHealth::nonfinite_rows, "With one of both.")
      .def_ro("max_logit", &HeadHealth::max_logit, "The largest score, scaled, before softmax.")
      .def_ro("entropy", &HeadHealth::entropy, "Mean, nats.")
      .def_ro("sink", &HeadHealth::sink, "Mean weight on key 0.")
      .def_ro("special", &HeadHealth::special, "Mean weight on the tokenizer's own tokens.")
      .def_ro("collapsed", &HeadHealth::collapsed, "Share of rows of collapsed entropy.")
      .def_ro("uniform", &HeadHealth::uniform, "Share of near-uniform rows.")
      .def_ro("one_key", &HeadHealth::one_key, "Share of rows that give nearly all to one key.")
      .def_ro("dead", &HeadHealth::dead, "Share of rows that are one of both.");
  nb::class_<WatchedText>(module, "WatchedText", "What became of one text.")
      .def_ro("tokens", &WatchedText::tokens, "Read by the model; 0: the text has no word, nothing was run.")
      .def_ro("cut", &WatchedText::cut, "Longer than the model reads: its last tokens were left out.");
}

}  // namespace

void bind_watch(nb::module_& module) {
  bind_results(module);
  const HealthRules usual;
  nb::class_<Watch>(module, "HealthWatch",
                    "The health of every head over many texts, summed up from the numbers of rows; memory does not grow with the texts. "
                    "The rules: entropy of a row has collapsed below the share `collapsed` of the largest its keys allow, is near-uniform "
                    "above the share `uniform`; a row looks at one key where a weight is above `one_key`. ValueError.")
      .def(
          "__init__",
          [](Watch* self, Index layers, Index heads, double collapsed, double uniform, double one_key) {
            new (self) Watch{HealthWatch(layers, heads, {collapsed, uniform, one_key})};
          },
          nb::arg("layers"), nb::arg("heads"), nb::kw_only(), nb::arg("collapsed") = usual.collapsed, nb::arg("uniform") = usual.uniform,
          nb::arg("one_key") = usual.one_key)
      .def_prop_ro("layers", [](const Watch& watch) { return watch.sums.layers(); })
      .def_prop_ro("heads", [](const Watch& watch) { return watch.sums.heads(); })
      .def(
          "head",
          [](const Watch& watch, Index layer, Index head) {
            const std::lock_guard<std::mutex> lock(watch.mutex);
            return watch.sums.head({layer, head});
          },
          nb::arg("layer"), nb::arg("head"), nb::call_guard<nb::gil_scoped_release>(), "ValueError for a head that is not there.");
  module.def("watch_text", &add_text, nb::arg("model"), nb::arg("tokenizer"), nb::arg("text"), nb::arg("watch"),
             nb::arg("num_threads") = nb::none(), "Runs the model over one text and adds all its rows. ValueError.");
}

}  // namespace mha::python
