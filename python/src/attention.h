// Masks and attention for Python: arrays in the library's own axis order in, the library's call, arrays out.
// Called by module.cpp. Torch's conventions are not known here: mha/attention.py translates them.
#pragma once

#include <nanobind/nanobind.h>

namespace mha::python {

/// Adds Mask, AttentionSpec and attention_forward to the module.
void bind_attention(nanobind::module_& module);

}  // namespace mha::python
