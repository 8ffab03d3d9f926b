// Bindings of mask.h, bias.h and attention.h; see attention.h.
#include "mha/attention.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <initializer_list>

#include "arrays.h"
#include "attention.h"
#include "interrupt.h"
#include "mha/error.h"

namespace mha::python {

namespace {

using MaybeArray = std::optional<Array>;

/// The arrays of one call, [..., batch, length, heads, dim] and [..., batch, heads, q, k].
struct Operands {
  Array q, k, v, out;
  MaybeArray lse = {}, weights = {}, allowed = {}, bias = {};
  MaybeArray max_score = {}, max_key = {}, entropy = {}, distance = {}, distance_variance = {}, first_weight = {}, chosen_weight = {};
  MaybeArray link_weights = {}, link_keys = {};
  MaybeArray chosen = {};  // [..., batch | 1, keys]
  std::vector<Index> kv_lengths = {};

  /// The results of RowStatistics.
  struct Number {
    const char* name;
    MaybeArray Operands::* array;
    TensorView RowStatistics::* view;
    int rank;
    const char* text;
  };
  static const std::array<Number, 9> kNumbers;

  /// Calls fn(array, the number of axes the library knows) for each that is there.
  template <class Self, class Fn>
  static void for_each(Self& self, Fn&& fn) {
    for (auto* array : {&self.q, &self.k, &self.v, &self.out}) fn(*array, 4);
    for (auto* array : {&self.weights, &self.allowed, &self.bias}) {
      if (*array) fn(**array, 4);
    }
    if (self.lse) fn(*self.lse, 3);
    for (const Number& number : kNumbers) {
      if (self.*number.array) fn(*(self.*number.array), number.rank);
    }
    if (self.chosen) fn(*self.chosen, 2);
  }
  /// Those that are written.
  std::vector<const Array*> results() const {
    std::vector<const Array*> all{&out};
    for (const MaybeArray* array : {&lse, &weights}) {
      if (*array) all.push_back(&**array);
    }
    for (const Number& number : kNumbers) {
      if (this->*number.array) all.push_back(&*(this->*number.array));
    }
    return all;
  }
};

const std::array<Operands::Number, 9> Operands::kNumbers = {{
    {"max_score", &Operands::max_score, &RowStatistics::max_score, 3,
     "[..., batch, heads, q], as numbers of rows are. Written where given."},
    {"max_key", &Operands::max_key, &RowStatistics::max_key, 3, "i64. Written where given."},
    {"entropy", &Operands::entropy, &RowStatistics::entropy, 3, "Written where given."},
    {"distance", &Operands::distance, &RowStatistics::distance, 3, "Written where given."},
    {"distance_variance", &Operands::distance_variance, &RowStatistics::distance_variance, 3, "Written where given."},
    {"first_weight", &Operands::first_weight, &RowStatistics::first_weight, 3, "Written where given."},
    {"chosen_weight", &Operands::chosen_weight, &RowStatistics::chosen_weight, 3, "Written where given, with chosen."},
    {"link_weights", &Operands::link_weights, &RowStatistics::link_weights, 4, "[..., batch, heads, q, links]. Written where given."},
    {"link_keys", &Operands::link_keys, &RowStatistics::link_keys, 4, "i64, [..., batch, heads, q, links]. Written where given."},
}};

Align align_from(const std::string& text) {
  if (text == "top_left") return Align::TopLeft;
  if (text == "bottom_right") return Align::BottomRight;
  if (text == "unset") return Align::Unset;
  throw ShapeError("align is \"" + text + "\", must be \"top_left\" or \"bottom_right\"");
}

/// Axes before the last four (of lse: the last three), which all arrays must share. Each index of them is a call of its own.
std::vector<Index> outer_shape(const Operands& arrays) {
  const auto outer_of = [](const Array& array, int rank) {
    if (array.rank() < rank)
      throw ShapeError(array.name() + " has shape " + to_string(array.shape()) + ", must have at least " + std::to_string(rank) + " axes");
    return std::vector<Index>(array.shape().begin(), array.shape().end() - rank);
  };
  const std::vector<Index> outer = outer_of(arrays.q, 4);
  Operands::for_each(arrays, [&](const Array& array, int rank) {
    if (outer_of(array, rank) != outer) {
      throw ShapeError("attention: " + array.name() + " has leading axes " + to_string(outer_of(array, rank)) + ", " + arrays.q.name() +
                       " has " + to_string(outer));
    }
  });
  return outer;
}

/// Leading axes that lie in memory as one with batch become batch: fewer and larger calls.
void join_outer(Operands& arrays, std::vector<Index>& outer) {
  const auto can_join = [&] {
    bool all = !outer.empty();
    const Index batch = all ? arrays.q.shape()[outer.size()] : 0;
    Operands::for_each(
        arrays, [&](const Array& array, int) { all = all && array.shape()[outer.size()] == batch && array.can_join(outer.size() - 1); });
    return all;
  };
  while (can_join()) {
    Operands::for_each(arrays, [&](Array& array, int) { array.join(outer.size() - 1); });
    outer.pop_back();
  }
}

struct Extent {
  const std::byte* lo;
  const std::byte* hi;
};

std::optional<Extent> extent(const Array& array) {
  const auto* lo = static_cast<const std::byte*>(array.view(0).data);
  Extent bytes{lo, lo + size_of(array.dtype())};
  for (std::size_t axis = 0; axis < array.shape().size(); ++axis) {
    if (array.shape()[axis] == 0) return std::nullopt;
    const Index reach = (array.shape()[axis] - 1) * array.strides()[axis] * static_cast<Index>(size_of(array.dtype()));
    (reach < 0 ? bytes.lo : bytes.hi) += reach;
  }
  return bytes;
}

/// The library looks at one call at a time; where there are several, no output may overlap an array of another.
void check_overlaps(const Operands& arrays) {
  const auto overlap = [](const Array& a, const Array& b) {
    const auto x = extent(a);
    const auto y = extent(b);
    return x && y && x->lo < y->hi && y->lo < x->hi;
  };
  for (const Array* target : arrays.results()) {
    Operands::for_each(arrays, [&](const Array& other, int) {
      if (target != &other && overlap(*target, other)) throw ShapeError("attention: " + target->name() + " overlaps " + other.name());
    });
  }
}

/// A seed of its own for each call after the first (splitmix64).
std::uint64_t seed_of(std::uint64_t seed, std::uint64_t call) {
  if (call == 0) return seed;
  std::uint64_t z = seed + call * 0x9E3779B97F4A7C15U;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31);
}

/// A table whose batch entries are one and the same is one of batch size 1, which the library looks at once.
ConstTensorView table_view(const MaybeArray& array, const std::vector<Index>& at) {
  if (!array) return {};
  ConstTensorView view = array->view(4, at);
  if (view.strides[0] == 0 && view.shape[0] > 1) view.shape[0] = 1;
  return view;
}

void forward_all(AttentionSpec spec, const Operands& arrays, const std::vector<Index>& outer, Workspace& workspace) {
  const bool any = std::find(outer.begin(), outer.end(), 0) == outer.end();
  const std::uint64_t seed = spec.dropout.seed;
  std::vector<Index> at(outer.size(), 0);
  for (std::uint64_t call = 0; any; ++call) {
    spec.dropout.seed = seed_of(seed, call);
    if (arrays.bias) spec.bias = DenseBias{table_view(arrays.bias, at)};
    const AttentionInputs inputs{.q = arrays.q.view(4, at),
                                 .k = arrays.k.view(4, at),
                                 .v = arrays.v.view(4, at),
                                 .allowed = table_view(arrays.allowed, at),
                                 .kv_lengths = arrays.kv_lengths};
    const auto view = [&](const MaybeArray& array, int rank) { return array ? array->writable_view(rank, at) : TensorView{}; };
    RowStatistics statistics{.chosen = arrays.chosen ? arrays.chosen->view(2, at) : ConstTensorView{}};
    for (const Operands::Number& number : Operands::kNumbers) statistics.*number.view = view(arrays.*number.array, number.rank);
    attention_forward(
        spec, inputs,
        {.out = arrays.out.writable_view(4, at), .lse = view(arrays.lse, 3), .weights = view(arrays.weights, 4), .statistics = statistics},
        workspace);
    std::size_t axis = at.size();
    while (axis > 0 && ++at[axis - 1] == outer[axis - 1]) at[--axis] = 0;
    if (axis == 0 || (workspace.executor().stop != nullptr && workspace.executor().stop(workspace.executor().context))) return;
  }
}

void bind_masks(nb::module_& module) {
  nb::class_<Mask>(module, "Mask", "Which keys a query may see: rules, joined by `&`; without any, all.")
      .def(nb::init<>())
      .def(
          "__and__", [](const Mask& a, const Mask& b) { return a & b; }, nb::arg("other"), "Keys that both let a query see.")
      .def("__repr__", [](const Mask& mask) { return to_string(mask); });
  module.def("causal", &causal, "Keys at or before the query's position.");
  module.def("window", &window, nb::arg("left"), nb::arg("right") = 0, nb::arg("sinks") = 0,
             "Keys from `left` before to `right` after the query's position, inclusive, -1 = no limit, and the first `sinks`. ValueError.");
  module.def("prefix", &prefix, nb::arg("length"), "The first `length` keys, the others causally. ValueError.");
  module.def("chunk", &chunk, nb::arg("size"), "Keys of the query's own chunk of `size` positions. ValueError.");
  module.def("segments", &segments, nb::arg("starts"), "Keys of the query's own segment; `starts`: 0, then ascending. ValueError.");
}

void bind_spec(nb::module_& module) {
  nb::class_<AttentionSpec>(module, "AttentionSpec", "What to compute, sizes apart. Every field has a default that leaves it out.")
      .def(nb::init<>())
      .def_rw("mask", &AttentionSpec::mask)
      .def_prop_rw(
          "align",
          [](const AttentionSpec& spec) {
            return spec.align == Align::TopLeft ? "top_left" : spec.align == Align::BottomRight ? "bottom_right" : "unset";
          },
          [](AttentionSpec& spec, const std::string& text) { spec.align = align_from(text); },
          "\"top_left\", \"bottom_right\", or \"unset\" where no mask needs it. ValueError.")
      .def_prop_rw(
          "alibi_slopes",
          [](const AttentionSpec& spec) {
            const auto* alibi = std::get_if<AlibiBias>(&spec.bias);
            return alibi != nullptr ? alibi->slopes : std::vector<float>{};
          },
          [](AttentionSpec& spec, std::vector<float> slopes) { spec.bias = AlibiBias{std::move(slopes)}; }, "One per head: ALiBi.")
      .def_rw("scale", &AttentionSpec::scale, nb::none(), "None: 1 / sqrt(head_dim).")
      .def_rw("softcap", &AttentionSpec::softcap, nb::none(), "None: off.")
      .def_rw("sink_logits", &AttentionSpec::sink_logits, "None, or one per head.")
      .def_prop_rw(
          "dropout", [](const AttentionSpec& spec) { return spec.dropout.probability; },
          [](AttentionSpec& spec, float probability) { spec.dropout.probability = probability; }, "Probability of dropping a weight.")
      .def_prop_rw(
          "seed", [](const AttentionSpec& spec) { return spec.dropout.seed; },
          [](AttentionSpec& spec, std::uint64_t seed) { spec.dropout.seed = seed; }, "Of the dropout.");
}

}  // namespace

void bind_attention(nb::module_& module) {
  bind_masks(module);
  bind_spec(module);
  nb::class_<Operands> operands(
      module, "AttentionArrays",
      "The arrays of a call: q, k, v, out [..., batch, length, heads, dim], lse [..., batch, heads, q], and weights, allowed (bool) "
      "and bias [..., batch | 1, heads | 1, q | 1, keys | 1]. Leading axes are the same in all.");
  for (const Operands::Number& number : Operands::kNumbers) operands.def_rw(number.name, number.array, nb::none(), number.text);
  operands
      .def(
          "__init__",
          [](Operands* self, const Array& q, const Array& k, const Array& v, const Array& out) { new (self) Operands{q, k, v, out}; },
          nb::arg("q"), nb::arg("k"), nb::arg("v"), nb::arg("out"))
      .def_rw("lse", &Operands::lse, nb::none(), "Written where given.")
      .def_rw("weights", &Operands::weights, nb::none(), "Written where given, before dropout.")
      .def_rw("chosen", &Operands::chosen, nb::none(), "bool, [..., batch | 1, keys]: the keys of chosen_weight.")
      .def_rw("allowed", &Operands::allowed, nb::none(), "True = may attend.")
      .def_rw("bias", &Operands::bias, nb::none(), "Added to the scores.")
      .def_rw("kv_lengths", &Operands::kv_lengths, "None, or per batch entry: keys at and beyond it do not exist.");
  module.def(
      "attention_forward",
      [](AttentionSpec spec, Operands arrays, std::optional<Index> num_threads) {
        if (arrays.bias && !std::holds_alternative<NoBias>(spec.bias)) throw ShapeError("attention: bias and alibi_slopes are both given");
        std::vector<Index> outer = outer_shape(arrays);
        // What dropout drops goes by the index within a call, which must not depend on strides.
        if (spec.dropout.probability == 0 && arrays.kv_lengths.empty()) join_outer(arrays, outer);
        if (!outer.empty()) check_overlaps(arrays);
        compute(num_threads, [&](Workspace& workspace) { forward_all(spec, arrays, outer, workspace); });
      },
      nb::arg("spec"), nb::arg("arrays"), nb::arg("num_threads") = nb::none(),
      "Exact attention into arrays.out (and the other results given), without the GIL. ValueError or TypeError before anything is "
      "written.");
  module.def("alibi_slopes", &alibi_slopes, nb::arg("heads"), "The slopes of the ALiBi paper, one per head. ValueError for heads < 1.");
}

}  // namespace mha::python
