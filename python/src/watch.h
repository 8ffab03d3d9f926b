// For Python: the health of heads over many texts. Called by module.cpp.
#pragma once

#include <nanobind/nanobind.h>

namespace mha::python {

/// Adds HealthWatch, HeadHealth, WatchedText and watch_text to the module.
void bind_watch(nanobind::module_& module);

}  // namespace mha::python
