// Bindings of attention_weights, attention_received and attention_map; see tables.h.
#include "tables.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "interrupt.h"
#include "layer.h"
#include "mha/error.h"

namespace mha::python {

namespace {

/// fn(spec, inputs, lse, workspace) without the GIL, with a spec that has the call's bias.
template <class Fn>
void come_back(const FormerCall& given, const char* who, std::optional<Index> num_threads, Fn&& fn) {
  const FormerCall call = given;  // its arrays stay while the GIL is released, whatever becomes of `given`
  const AttentionSpec spec = call.whole_spec(who);
  const AttentionInputs inputs{
      .q = whole(call.q, who), .k = whole(call.k, who), .allowed = whole(call.allowed, who), .kv_lengths = call.kv_lengths};
  const ConstTensorView lse = whole(call.lse, who);
  compute(num_threads, [&](Workspace& workspace) { fn(spec, inputs, lse, workspace); });
}

WeightsRegion region_from(const std::vector<Index>& numbers) {
  if (numbers.size() != 6) throw ShapeError("region has " + std::to_string(numbers.size()) + " numbers, must have 6");
  return {.batch = numbers[0], .head = numbers[1], .queries = {numbers[2], numbers[3]}, .keys = {numbers[4], numbers[5]}};
}

void weights(const FormerCall& call, const std::vector<Index>& region, const Array& out, std::optional<Index> num_threads) {
  const TensorView target = whole_writable(out, "attention_weights");
  come_back(call, "attention_weights", num_threads, [&](const auto& spec, const auto& inputs, const auto& lse, Workspace& workspace) {
    attention_weights(spec, inputs, lse, region_from(region), target, workspace);
  });
}

void received(const FormerCall& call, const Array& out, std::optional<Index> num_threads) {
  const TensorView target = whole_writable(out, "attention_received");
  come_back(call, "attention_received", num_threads, [&](const auto& spec, const auto& inputs, const auto& lse, Workspace& workspace) {
    attention_received(spec, inputs, lse, target, workspace);
  });
}

void map(const FormerCall& call, const std::vector<Index>& region, const Array& mean, const Array& max, std::optional<Index> num_threads) {
  const WeightsMap target{.mean = whole_writable(mean, "attention_map"), .max = whole_writable(max, "attention_map")};
  come_back(call, "attention_map", num_threads, [&](const auto& spec, const auto& inputs, const auto& lse, Workspace& workspace) {
    attention_map(spec, inputs, lse, region_from(region), target, workspace);
  });
}

}  // namespace

AttentionSpec FormerCall::whole_spec(const char* who) const {
  AttentionSpec with_bias = spec;
  if (bias) {
    if (!std::holds_alternative<NoBias>(spec.bias)) throw ShapeError(std::string(who) + ": bias and alibi_slopes are both given");
    with_bias.bias = DenseBias{whole(bias, who)};
  }
  return with_bias;
}

void bind_tables(nb::module_& module) {
  nb::class_<FormerCall>(module, "FormerCall", "A call of attention by its spec, q, k and the lse it gave, [batch, heads, q_len].")
      .def(
          "__init__",
          [](FormerCall* self, const AttentionSpec& spec, const Array& q, const Array& k, const Array& lse) {
            new (self) FormerCall{.spec = spec, .q = q, .k = k, .lse = lse};
          },
          nb::arg("spec"), nb::arg("q"), nb::arg("k"), nb::arg("lse"))
      .def_rw("allowed", &FormerCall::allowed, nb::none(), "bool, True = may attend.")
      .def_rw("bias", &FormerCall::bias, nb::none(), "Added to the scores.")
      .def_rw("kv_lengths", &FormerCall::kv_lengths, "Empty, or one per batch entry.");
  module.def(
      "attention_weights", &weights, nb::arg("call"), nb::arg("region"), nb::arg("out"), nb::arg("num_threads") = nb::none(),
      "Weights into out [queries, keys]; region: batch, head, first and end of queries, first and end of keys. ValueError or TypeError.");
  module.def("attention_received", &received, nb::arg("call"), nb::arg("out"), nb::arg("num_threads") = nb::none(),
             "Sums over queries into out [batch, heads, keys]. ValueError or TypeError.");
  module.def("attention_map", &map, nb::arg("call"), nb::arg("region"), nb::arg("mean"), nb::arg("max"),
             nb::arg("num_threads") = nb::none(), "Mean and maximum of cells into mean and max [rows, columns]. ValueError or TypeError.");
}

}  // namespace mha::python
