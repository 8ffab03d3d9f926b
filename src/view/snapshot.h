// Recording of answers into the page; see mha/view/snapshot.h. Called there and by the microscope's own /page.html. Knows what the page
// asks for (web/src/run_data.ts, tiles.ts), which targets must be spelled alike.
#pragma once

#include <functional>
#include <string>

#include "mha/view/snapshot.h"

namespace mha::view {

/// Answers a GET of a target, errors as responses.
using Ask = std::function<Response(const std::string& target)>;

/// Throws Error where the run is not there or an answer says 503.
std::string record_page(const Ask& ask, const std::string& run, const SnapshotOptions& options);

/// The same as what a browser saves.
Response page_file(const Ask& ask, const std::string& run, const std::string& state);

}  // namespace mha::view
