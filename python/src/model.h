// The pretrained encoder and its tokenizer for Python. Called by module.cpp.
#pragma once

#include <nanobind/nanobind.h>

namespace mha::python {

/// Adds Transformer, TransformerConfig, TransformerCall, Tokenizer and Encoding to the module.
void bind_model(nanobind::module_& module);

}  // namespace mha::python
