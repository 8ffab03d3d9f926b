// For Python: what comes back to a former call's table of weights by its lse - rectangles, sums over queries, maps.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <vector>

#include "arrays.h"
#include "mha/attention.h"

namespace mha::python {

/// What a former call was given, and the lse it gave, [batch, heads, q_len]; the rest as in attention.h.
struct FormerCall {
  AttentionSpec spec;
  Array q, k, lse;
  std::optional<Array> allowed = {}, bias = {};
  std::vector<Index> kv_lengths = {};

  /// The spec with the call's bias. Throws ShapeError where it has one already.
  AttentionSpec whole_spec(const char* who) const;
};

/// Adds FormerCall, attention_weights, attention_received and attention_map to the module.
void bind_tables(nanobind::module_& module);

}  // namespace mha::python
