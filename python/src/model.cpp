// Bindings of mha/model/transformer.h and tokenizer.h; see model.h of this folder.
#include "model.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "interrupt.h"
#include "layer.h"
#include "mha/error.h"
#include "mha/model/tokenizer.h"
#include "mha/model/transformer.h"

namespace mha::python {

namespace {

using MaybeArray = std::optional<Array>;

/// All of a call of the encoder.
struct TransformerCall {
  Array ids;     // i64 [batch, length], dense
  Array hidden;  // f32 [batch, length, d_model]
  MaybeArray token_types = {}, allowed = {};
  std::vector<Index> lengths = {};
  float temperature = 1.0F;
};

/// The numbers of a dense i64 array of shape [batch, length].
std::span<const Index> numbers_of(const Array& array) {
  const ConstTensorView view = whole(array, "model");
  if (view.dtype != DType::I64) throw DTypeError("model: " + array.name() + " is " + name_of(view.dtype) + ", must be i64");
  if (view.rank() != 2 || !view.is_contiguous()) {
    throw ShapeError("model: " + array.name() + " has shape " + to_string(array.shape()) + ", must be dense and [batch, length]");
  }
  return {view.as<Index>(), static_cast<std::size_t>(element_count(view.shape))};
}

void run_model(const Transformer& model, const TransformerCall& given, const std::optional<nb::callable>& hook,
               std::optional<Index> num_threads) {
  const TransformerCall call = given;  // as in layer.cpp
  TransformerInputs inputs{.ids = numbers_of(call.ids),
                           .batch = call.ids.shape()[0],
                           .lengths = call.lengths,
                           .token_types = {},
                           .allowed = whole(call.allowed, "model"),
                           .temperature = call.temperature};
  if (call.token_types) {
    inputs.token_types = numbers_of(*call.token_types);
    if (call.token_types->shape() != call.ids.shape()) {
      throw ShapeError("model: token_types has shape " + to_string(call.token_types->shape()) + ", ids has " + to_string(call.ids.shape()));
    }
  }
  const TensorView hidden = whole_writable(call.hidden, "model");
  compute(num_threads, [&](Workspace& workspace) {
    const LayerHook run = [&](Index layer, const MhaTrace& trace) { call_hook(*hook, layer, trace, workspace); };
    model.forward(inputs, hidden, workspace, hook ? run : LayerHook());
  });
}

template <class Loaded>
Loaded load_without_gil(const std::string& path) {
  const nb::gil_scoped_release no_gil;
  return Loaded::load(path);
}

std::vector<std::pair<Index, Index>> pairs_of(const std::vector<TextSpan>& spans) {
  std::vector<std::pair<Index, Index>> pairs;
  for (const TextSpan& span : spans) pairs.emplace_back(span.begin, span.end);
  return pairs;
}

void bind_transformer(nb::module_& module) {
  nb::class_<TransformerConfig>(module, "TransformerConfig", "What a model's config.json says.")
      .def_ro("family", &TransformerConfig::family, "\"bert\" or \"distilbert\".")
      .def_ro("vocabulary", &TransformerConfig::vocabulary)
      .def_ro("layers", &TransformerConfig::layers)
      .def_ro("d_model", &TransformerConfig::d_model)
      .def_ro("heads", &TransformerConfig::heads)
      .def_ro("head_dim", &TransformerConfig::head_dim)
      .def_ro("hidden_width", &TransformerConfig::hidden_width, "Of the feed-forward part.")
      .def_ro("max_positions", &TransformerConfig::max_positions)
      .def_ro("token_types", &TransformerConfig::token_types, "0: the model has no such embedding.")
      .def_ro("norm_eps", &TransformerConfig::norm_eps)
      .def_ro("activation", &TransformerConfig::activation)
      .def_ro("pruned_heads", &TransformerConfig::pruned_heads, "Heads removed from the weights, by layer, in the numbers they had.");
  nb::class_<TransformerCall>(module, "TransformerCall",
                              "The arrays and options of one call: ids i64 [batch, length], hidden f32 [batch, length, d_model].")
      .def(
          "__init__",
          [](TransformerCall* self, const Array& ids, const Array& hidden) { new (self) TransformerCall{.ids = ids, .hidden = hidden}; },
          nb::arg("ids"), nb::arg("hidden"))
      .def_rw("token_types", &TransformerCall::token_types, nb::none(), "Like ids; None: 0.")
      .def_rw("allowed", &TransformerCall::allowed, nb::none(), "bool, True = may attend, in every layer.")
      .def_rw("lengths", &TransformerCall::lengths, "Empty, or tokens that exist, per batch entry.")
      .def_rw("temperature", &TransformerCall::temperature, "Of every layer's heads.");
  nb::class_<Transformer>(module, "Transformer", "A pretrained encoder of the BERT family.")
      .def_static("load", &load_without_gil<Transformer>, nb::arg("folder"), "OSError or ValueError.")
      .def_prop_ro(
          "config", [](const Transformer& model) { return model.config(); }, "A copy.")
      .def(
          "output_projection",
          [](const Transformer& model, Index layer, const Array& out) {
            copy(model.output_projection(layer), whole_writable(out, "output_projection"));
          },
          nb::arg("layer"), nb::arg("out"), "Into out [d_model, heads * head_dim], f32. ValueError.")
      .def("forward", &run_model, nb::arg("call"), nb::arg("hook") = nb::none(), nb::arg("num_threads") = nb::none(),
           nb::sig("def forward(self, call: TransformerCall, hook: collections.abc.Callable[[int, Trace], object] | None = None, "
                   "num_threads: int | None = None) "
                   "-> None"),
           "Computes into call.hidden, without the GIL. ValueError or TypeError before it is written.");
}

}  // namespace

void bind_model(nb::module_& module) {
  bind_transformer(module);
  nb::class_<Encoding>(module, "Encoding", "The tokens of a text; all lists have the same length.")
      .def_ro("ids", &Encoding::ids)
      .def_ro("tokens", &Encoding::tokens)
      .def_prop_ro(
          "chars", [](const Encoding& e) { return pairs_of(e.chars); }, "(begin, end) in characters of the text; (0, 0): of the frame.")
      .def_prop_ro(
          "bytes", [](const Encoding& e) { return pairs_of(e.bytes); }, "The same in bytes of UTF-8.")
      .def_ro("words", &Encoding::words, "Which word a token is a piece of, from 0; -1: of the frame.")
      .def_ro("special", &Encoding::special, "True for the frame.")
      .def_ro("token_types", &Encoding::token_types)
      .def("__len__", &Encoding::size);
  nb::class_<Tokenizer>(module, "Tokenizer",
                        "Text to token ids as the package `tokenizers` does it, from a tokenizer.json of the BERT family.")
      .def_static("load", &load_without_gil<Tokenizer>, nb::arg("path"), "OSError or ValueError.")
      .def("encode", &Tokenizer::encode, nb::arg("text"), nb::arg("add_special") = true, nb::call_guard<nb::gil_scoped_release>(),
           "The tokens of a text, with the frame ([CLS], [SEP]) around them where asked for.")
      .def(
          "token",
          [](const Tokenizer& t, Index id) -> std::optional<std::string> {
            const auto found = t.token(id);
            return found ? std::optional<std::string>(*found) : std::nullopt;
          },
          nb::arg("id"), "The token of an id, or None.")
      .def("id", &Tokenizer::id, nb::arg("token"), "The id of a token, or None.")
      .def("__len__", &Tokenizer::size);
}

}  // namespace mha::python
