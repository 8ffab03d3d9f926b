// The layer for Python: weights and arrays in, the library's call, arrays out; and what a Python hook sees of it.
// Called by module.cpp; model.cpp shares the hook. Torch's conventions are not known here: mha/multihead_attention.py translates them.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>

#include "arrays.h"
#include "mha/layer.h"

namespace mha::python {

/// Adds MhaConfig, LayerCall, MultiHeadAttention, Trace, xavier_parameters and attention_weights to the module.
void bind_layer(nanobind::module_& module);

/// Takes the GIL, calls hook(trace) or hook(layer, trace) with a Trace of `trace`, and writes back what the hook left in head_out. What the
/// hook raises is thrown as nanobind::python_error. A call that Ctrl-C has stopped calls no hook. `workspace` is that of the call the trace
/// comes from.
void call_hook(const nanobind::callable& hook, std::optional<Index> layer, const MhaTrace& trace, Workspace& workspace);

/// A view of all of an array of rank 4 or less. Throws ShapeError for a higher rank, as `room` would.
ConstTensorView whole(const Array& array, const char* room);
TensorView whole_writable(const Array& array, const char* room);

/// An absent view for an absent array.
ConstTensorView whole(const std::optional<Array>& array, const char* room);

}  // namespace mha::python
