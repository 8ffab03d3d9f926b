// For Python: the measures of heads (mha/analysis) that read a Capture, whose arrays are Python's. mha/heads.py is what users see.
#pragma once

#include <nanobind/nanobind.h>

namespace mha::python {

/// Adds HeadCapture and the functions over it to the module.
void bind_heads(nanobind::module_& module);

}  // namespace mha::python
