// Safetensors files for Python: mapped arrays out, arrays in. Called by module.cpp; what is in a capture, captures.py knows.
#pragma once

#include <nanobind/nanobind.h>

namespace mha::python {

/// Adds SafetensorsFile and save_safetensors to the module.
void bind_files(nanobind::module_& module);

}  // namespace mha::python
