// Bindings of mha/view/snapshot.h; see view.h.
#include "view.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <optional>
#include <string>

#include "interrupt.h"
#include "mha/view/snapshot.h"

namespace mha::python {

namespace nb = nanobind;

namespace {

constexpr double kSeconds = 24 * 3600;  // Ctrl-C ends it, nothing else

std::string text_page(const Transformer& transformer, const Tokenizer& tokenizer, const std::string& name, const std::string& body,
                      const std::string& state, std::optional<Index> num_threads) {
  std::string page;
  compute(num_threads, [&](Workspace& workspace) {
    const view::Microscope microscope({.transformer = &transformer, .tokenizer = &tokenizer, .name = name},
                                      {.executor = workspace.executor(), .seconds = kSeconds});
    page = view::snapshot_of_text(microscope, body, {.state = state});
  });
  return page;
}

std::string capture_page(const std::string& path, const std::string& run, const std::string& state, std::optional<Index> num_threads) {
  std::string page;
  compute(num_threads, [&](Workspace& workspace) {
    const auto file = std::make_shared<const CaptureFile>(load_capture(path));
    const view::Microscope microscope({}, {.executor = workspace.executor(), .seconds = kSeconds}, file);
    page = view::snapshot_html(microscope, run, {.state = state});
  });
  return page;
}

}  // namespace

void bind_view(nb::module_& module) {
  module.def("has_page", &view::has_page, "Whether the page was built into this package.");
  module.def("text_page", &text_page, nb::arg("transformer"), nb::arg("tokenizer"), nb::arg("name"), nb::arg("body"), nb::arg("state"),
             nb::arg("num_threads") = nb::none(),
             "The self-contained page of one run, HTML. body: what POST /api/runs takes (docs/http-api.md); state: what the page shows "
             "first, as in its address after '#'. ValueError where the text cannot be run.");
  module.def("capture_page", &capture_page, nb::arg("path"), nb::arg("run"), nb::arg("state"), nb::arg("num_threads") = nb::none(),
             "The same of one run (\"t0\", \"t1\", ...) of a file of captured tensors. OSError or ValueError.");
}

}  // namespace mha::python
