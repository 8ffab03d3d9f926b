// Bindings of layer.h; see layer.h of this folder.
#include "layer.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "interrupt.h"
#include "mha/error.h"

namespace mha::python {

namespace {

using MaybeArray = std::optional<Array>;
using MaybeRange = std::optional<std::pair<Index, Index>>;

/// A new NumPy array of `tensor`'s elements (f32 or f64), which it owns.
nb::object to_numpy(Tensor tensor) {
  auto held = std::make_unique<Tensor>(std::move(tensor));
  std::vector<std::size_t> shape;
  for (const Index size : held->shape()) shape.push_back(static_cast<std::size_t>(size));
  void* const data = held->view().data;
  const nb::dlpack::dtype dtype = held->dtype() == DType::F64 ? nb::dtype<double>() : nb::dtype<float>();
  const nb::capsule owner(held.get(), [](void* memory) noexcept { delete static_cast<Tensor*>(memory); });
  held.release();
  return nb::cast(nb::ndarray<nb::numpy>(data, shape.size(), shape.data(), owner, nullptr, dtype, nb::device::cpu::value));
}

nb::object copied_to_numpy(const ConstTensorView& view) {
  Tensor tensor(view.dtype, view.shape);
  copy(view, tensor);
  return to_numpy(std::move(tensor));
}

Interval interval_of(const MaybeRange& range, Index length) { return range ? Interval{range->first, range->second} : Interval{0, length}; }

bool inside(const Interval& range, Index length) { return 0 <= range.lo && range.lo <= range.hi && range.hi <= length; }

/// What a Python hook sees of one call. Arrays are copies, made when first asked for, so they outlive the call; the library's own memory
/// is out of reach once `finish` has been called. Everything happens under the GIL.
class Trace {
 public:
  Trace(const MhaTrace& trace, Workspace& workspace) : trace_(&trace), workspace_(&workspace) {}

  nb::object q() {
    return kept(q_, [](const MhaTrace& t) { return t.q; });
  }
  nb::object k() {
    return kept(k_, [](const MhaTrace& t) { return t.k; });
  }
  nb::object v() {
    return kept(v_, [](const MhaTrace& t) { return t.v; });
  }
  nb::object lse() {
    return kept(lse_, [](const MhaTrace& t) { return t.lse; });
  }
  nb::object head_out() {
    return kept(head_out_, [](const MhaTrace& t) { return ConstTensorView(t.head_out); });
  }

  nb::object weights(Index head, Index batch, const MaybeRange& queries, const MaybeRange& keys) const {
    const MhaTrace& trace = running();
    const WeightsRegion region{
        .batch = batch, .head = head, .queries = interval_of(queries, trace.q.size(1)), .keys = interval_of(keys, trace.k.size(1))};
    const AttentionInputs inputs{.q = trace.q, .k = trace.k, .allowed = trace.allowed, .kv_lengths = trace.kv_lengths};
    // Ranges that cannot be are attention_weights' to refuse, which looks at them before it looks at where it writes.
    const bool possible = inside(region.queries, trace.q.size(1)) && inside(region.keys, trace.k.size(1));
    Tensor weights(DType::F32, possible ? Dims{region.queries.hi - region.queries.lo, region.keys.hi - region.keys.lo} : Dims{0, 0});
    attention_weights(trace.spec, inputs, trace.lse, region, weights, *workspace_);
    const Executor& executor = workspace_->executor();
    if (executor.stop != nullptr && executor.stop(executor.context)) throw std::runtime_error("interrupted: the weights are unfinished");
    return to_numpy(std::move(weights));
  }

  /// Hands head_out back to the library and forgets its memory.
  void finish() {
    const MhaTrace& trace = running();
    trace_ = nullptr;
    if (!head_out_) return;
    const Array written(head_out_, "head_out", false, std::nullopt);
    copy(written.view(4), trace.head_out);
  }
  void abandon() { trace_ = nullptr; }

 private:
  const MhaTrace& running() const {
    if (trace_ == nullptr) throw std::runtime_error("the hook has returned: what it did not look at is gone");
    return *trace_;
  }

  template <class Select>
  nb::object kept(nb::object& slot, Select&& select) {
    if (!slot) slot = copied_to_numpy(select(running()));
    return slot;
  }

  const MhaTrace* trace_;
  Workspace* workspace_;
  nb::object q_, k_, v_, lse_, head_out_;
};

/// All of a call of the layer. Absent arrays are what the library takes them to be.
struct LayerCall {
  Array x;
  Array y;
  MaybeArray key = {}, value = {}, allowed = {}, bias = {}, weights = {};
  std::vector<Index> kv_lengths = {};
  bool training = false;
  std::optional<std::uint64_t> seed = {};
  float temperature = 1.0F;
};

void run_layer(const MultiHeadAttention& layer, const LayerCall& given, const std::optional<nb::callable>& hook,
               std::optional<Index> num_threads) {
  const LayerCall call = given;  // holds the arrays, whatever another thread does to `given` while the GIL is released
  const MhaInputs inputs{.x = whole(call.x, "layer"),
                         .key = whole(call.key, "layer"),
                         .value = whole(call.value, "layer"),
                         .allowed = whole(call.allowed, "layer"),
                         .kv_lengths = call.kv_lengths,
                         .bias = whole(call.bias, "layer"),
                         .training = call.training,
                         .dropout_seed = call.seed,
                         .temperature = call.temperature};
  const TensorView y = whole_writable(call.y, "layer");
  const TensorView weights = call.weights ? whole_writable(*call.weights, "layer") : TensorView();
  compute(num_threads, [&](Workspace& workspace) {
    const MhaHook run = [&](const MhaTrace& trace) { call_hook(*hook, std::nullopt, trace, workspace); };
    layer.forward(inputs, {.y = y, .weights = weights, .hook = hook ? run : MhaHook()}, workspace);
  });
}

struct Role {
  const char* name;
  ConstTensorView MhaWeights::* view;
  Tensor MhaParameters::* tensor;
};
constexpr Role kRoles[] = {{"wq", &MhaWeights::wq, &MhaParameters::wq},
                           {"wk", &MhaWeights::wk, &MhaParameters::wk},
                           {"wv", &MhaWeights::wv, &MhaParameters::wv},
                           {"wo", &MhaWeights::wo, &MhaParameters::wo},
                           {"bq", &MhaWeights::bq, &MhaParameters::bq},
                           {"bk", &MhaWeights::bk, &MhaParameters::bk},
                           {"bv", &MhaWeights::bv, &MhaParameters::bv},
                           {"bo", &MhaWeights::bo, &MhaParameters::bo},
                           {"learned_k", &MhaWeights::learned_k, &MhaParameters::learned_k},
                           {"learned_v", &MhaWeights::learned_v, &MhaParameters::learned_v}};

MultiHeadAttention make_layer(const MhaConfig& config, const std::map<std::string, Array>& arrays) {
  MhaWeights weights{};
  std::size_t found = 0;
  for (const Role& role : kRoles) {
    const auto entry = arrays.find(role.name);
    if (entry == arrays.end()) continue;
    weights.*role.view = whole(entry->second, "layer");
    ++found;
  }
  if (found != arrays.size()) {
    std::string known, given;
    for (const Role& role : kRoles) known += (known.empty() ? "" : ", ") + std::string(role.name);
    for (const auto& [name, unused] : arrays) given += (given.empty() ? "" : ", ") + name;
    throw ShapeError("layer: weights have the names " + given + ", of which all must be of " + known);
  }
  const nb::gil_scoped_release no_gil;  // packing takes time
  return {config, weights};
}

nb::dict to_dict(MhaParameters parameters) {
  nb::dict arrays;
  for (const Role& role : kRoles) {
    Tensor& tensor = parameters.*role.tensor;
    if (tensor) arrays[role.name] = to_numpy(std::move(tensor));
  }
  return arrays;
}

}  // namespace

ConstTensorView whole(const Array& array, const char* room) {
  if (array.rank() > Dims::kMaxRank) {
    throw ShapeError(std::string(room) + ": " + array.name() + " has shape " + to_string(array.shape()) + ", at most 4 axes are possible");
  }
  return array.view(array.rank());
}

TensorView whole_writable(const Array& array, const char* room) {
  whole(array, room);
  return array.writable_view(array.rank());
}

ConstTensorView whole(const std::optional<Array>& array, const char* room) { return array ? whole(*array, room) : ConstTensorView(); }

void call_hook(const nb::callable& hook, std::optional<Index> layer, const MhaTrace& trace, Workspace& workspace) {
  const Executor& executor = workspace.executor();
  if (executor.stop != nullptr && executor.stop(executor.context)) return;  // Ctrl-C: there is nothing of use to see
  const nb::gil_scoped_acquire gil;
  const auto shown = std::make_shared<Trace>(trace, workspace);
  try {
    if (layer) {
      hook(*layer, shown);
    } else {
      hook(shown);
    }
    shown->finish();
  } catch (...) {
    shown->abandon();
    throw;
  }
}

namespace {

void bind_config(nb::module_& module) {
  nb::class_<MhaConfig>(module, "MhaConfig", "Sizes and rules of a layer; 0 stands for what layer.h says.")
      .def(nb::init<>())
      .def_rw("d_model", &MhaConfig::d_model)
      .def_rw("heads", &MhaConfig::heads)
      .def_rw("kv_heads", &MhaConfig::kv_heads, "0: heads.")
      .def_rw("head_dim", &MhaConfig::head_dim, "0: d_model / heads.")
      .def_rw("key_width", &MhaConfig::key_width, "Of the array keys are projected from; 0: d_model.")
      .def_rw("value_width", &MhaConfig::value_width, "Of the array values are projected from; 0: key_width.")
      .def_rw("bias", &MhaConfig::bias, "Whether all four projections have one.")
      .def_rw("learned_key", &MhaConfig::learned_key, "Whether a learned key and value follow those of the input.")
      .def_rw("zero_key", &MhaConfig::zero_key, "Whether a key and a value of zeros follow, last of all.")
      .def_rw("attention", &MhaConfig::attention, "Its dropout acts in training only.")
      .def_prop_ro("appended_keys", &MhaConfig::appended_keys, "Keys that follow those of the input.");
  module.def("resolved", &resolved, nb::arg("config"), "The config with every 0 replaced by what it stands for. ValueError.");
  module.def(
      "xavier_parameters", [](const MhaConfig& config, std::uint64_t seed) { return to_dict(xavier_parameters(config, seed)); },
      nb::arg("config"), nb::arg("seed"),
      nb::sig("def xavier_parameters(config: MhaConfig, seed: int) -> dict[str, numpy.typing.NDArray[numpy.float32]]"),
      "Xavier uniform weights by name, f32. ValueError.");
}

void bind_trace(nb::module_& module) {
  nb::class_<Trace>(module, "Trace",
                    "What a hook sees between attention and the output projection. Arrays are copies made when first asked for and outlive "
                    "the call; what was not asked for is gone once the hook has returned (RuntimeError).")
      .def_prop_ro("q", &Trace::q, nb::sig("def q(self) -> numpy.typing.NDArray[typing.Any]"), "[batch, q_len, heads, head_dim].")
      .def_prop_ro("k", &Trace::k, nb::sig("def k(self) -> numpy.typing.NDArray[typing.Any]"),
                   "[batch, kv_len + appended keys, kv_heads, head_dim].")
      .def_prop_ro("v", &Trace::v, nb::sig("def v(self) -> numpy.typing.NDArray[typing.Any]"), "The same.")
      .def_prop_ro("lse", &Trace::lse, nb::sig("def lse(self) -> numpy.typing.NDArray[typing.Any]"), "[batch, heads, q_len].")
      .def_prop_ro("head_out", &Trace::head_out, nb::sig("def head_out(self) -> numpy.typing.NDArray[typing.Any]"),
                   "[batch, q_len, heads, head_dim], before W_O. What the hook writes into it is what W_O gets: zeros ablate a head.")
      .def("weights", &Trace::weights, nb::arg("head"), nb::arg("batch") = 0, nb::arg("queries") = nb::none(), nb::arg("keys") = nb::none(),
           nb::sig(
               "def weights(self, head: int, batch: int = 0, queries: tuple[int, int] | None = None, keys: tuple[int, int] | None = None) "
               "-> numpy.typing.NDArray[numpy.float32]"),
           "Exact weights (before dropout) of a rectangle, [queries, keys], f32; ranges are (begin, end), None: all. ValueError outside.");
}

}  // namespace

void bind_layer(nb::module_& module) {
  bind_config(module);
  bind_trace(module);
  nb::class_<LayerCall>(module, "LayerCall", "The arrays and options of one call of a layer, axes as in layer.h.")
      .def(
          "__init__", [](LayerCall* self, const Array& x, const Array& y) { new (self) LayerCall{.x = x, .y = y}; }, nb::arg("x"),
          nb::arg("y"))
      .def_rw("key", &LayerCall::key, nb::none(), "None: x.")
      .def_rw("value", &LayerCall::value, nb::none(), "None: key.")
      .def_rw("allowed", &LayerCall::allowed, nb::none(), "bool, True = may attend.")
      .def_rw("bias", &LayerCall::bias, nb::none(), "Added to the scores.")
      .def_rw("weights", &LayerCall::weights, nb::none(), "Written where given, before dropout.")
      .def_rw("kv_lengths", &LayerCall::kv_lengths, "Empty, or one per batch entry.")
      .def_rw("training", &LayerCall::training, "Whether dropout acts.")
      .def_rw("seed", &LayerCall::seed, nb::none(), "Of this call's dropout; None: the config's.")
      .def_rw("temperature", &LayerCall::temperature, "Scores are divided by it.");
  nb::class_<MultiHeadAttention>(module, "MultiHeadAttention", "The layer, with weights packed at construction.")
      .def(
          "__init__",
          [](MultiHeadAttention* self, const MhaConfig& config, const std::map<std::string, Array>& weights) {
            new (self) MultiHeadAttention(make_layer(config, weights));
          },
          nb::arg("config"), nb::arg("weights"), "ValueError or TypeError where weights contradict the config.")
      .def_prop_ro(
          "config", [](const MultiHeadAttention& layer) { return layer.config(); }, "A copy, every size resolved.")
      .def("forward", &run_layer, nb::arg("call"), nb::arg("hook") = nb::none(), nb::arg("num_threads") = nb::none(),
           nb::sig("def forward(self, call: LayerCall, hook: collections.abc.Callable[[Trace], object] | None = None, num_threads: int | "
                   "None = None) "
                   "-> None"),
           "Computes into call.y (and call.weights), without the GIL. ValueError or TypeError before y is written.");
}

}  // namespace mha::python
