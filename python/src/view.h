// The microscope's self-contained page for Python. Called by module.cpp; what is shown where, microscope.py knows.
#pragma once

#include <nanobind/nanobind.h>

namespace mha::python {

/// Adds text_page, capture_page and has_page to the module.
void bind_view(nanobind::module_& module);

}  // namespace mha::python
