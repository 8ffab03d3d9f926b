// For Python: what comes back to a former call's table of weights by its lse - rectangles, sums over queries, maps.
#pragma once

#include <nanobind/nanobind.h>

namespace mha::python {

/// Adds FormerCall, attention_weights, attention_received and attention_map to the module.
void bind_tables(nanobind::module_& module);

}  // namespace mha::python
