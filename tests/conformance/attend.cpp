// Test helper of the conformance scripts (attend.py writes its input and reads its output): computes many attention problems with
// attention_forward, under every ISA this CPU has or under the one named. It knows nothing of other systems' rules: those are the scripts'.
//
// Usage: attend TENSORS SPECS RESULTS [ISA]. TENSORS is a safetensors file with i/q, i/k, i/v and, where there are any, i/allowed, i/bias
// (a DenseBias), i/sinks (f32, one per head) and i/kv_lengths (i64) of problem i. SPECS is JSON, an object with the list "problems", each
// with "mask" (a list of rules), "align", "scale" and so on. RESULTS gets <isa>/i/out and, where asked, <isa>/i/lse and <isa>/i/weights.
// Bad input: exit code 2.
#include <algorithm>
#include <fstream>
#include <initializer_list>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "mha/attention.h"
#include "mha/cpu.h"
#include "mha/error.h"
#include "mha/model/safetensors.h"

namespace {

using mha::Index;
using nlohmann::json;

/// A misspelt key must not pass for an absent one.
void require_known_keys(const json& object, std::initializer_list<std::string_view> known, const std::string& what) {
  if (!object.is_object()) throw mha::FormatError(what + " is not an object: " + object.dump());
  for (const auto& item : object.items()) {
    if (std::find(known.begin(), known.end(), item.key()) == known.end()) throw mha::FormatError(what + ": unknown key " + item.key());
  }
}

mha::Mask rule_of(const json& rule) {
  require_known_keys(rule, {"rule", "left", "right", "sinks", "length", "size", "starts"}, "mask rule");
  const std::string name = rule.at("rule");
  if (name == "causal") return mha::causal();
  if (name == "window") return mha::window(rule.at("left"), rule.at("right"), rule.value("sinks", Index{0}));
  if (name == "prefix") return mha::prefix(rule.at("length"));
  if (name == "chunk") return mha::chunk(rule.at("size"));
  if (name == "segments") return mha::segments(rule.at("starts").get<std::vector<Index>>());
  throw mha::FormatError("unknown mask rule " + name);
}

mha::Align align_of(const std::string& name) {
  if (name == "unset") return mha::Align::Unset;
  if (name == "top_left") return mha::Align::TopLeft;
  if (name == "bottom_right") return mha::Align::BottomRight;
  throw mha::FormatError("unknown align " + name);
}

/// Tensors are views into the file.
class Problem {
 public:
  Problem(const json& description, const mha::SafetensorsFile& file, Index number)
      : description_(description), file_(file), prefix_(std::to_string(number) + "/") {
    require_known_keys(description, {"mask", "align", "scale", "softcap", "alibi_slopes", "heads_first", "lse", "weights"}, "problem");
    inputs_ = {.q = tensor("q"), .k = tensor("k"), .v = tensor("v"), .allowed = optional("allowed")};
    if (const mha::ConstTensorView lengths = optional("kv_lengths")) {
      kv_lengths_.assign(lengths.as<Index>(), lengths.as<Index>() + mha::element_count(lengths.shape));
    }
    read_spec();
    lse_ = description.value("lse", false);
    weights_ = description.value("weights", false);
  }

  /// Computes under the ISA in use; the results' names start with `prefix`.
  void compute(const std::string& prefix, mha::Workspace& workspace, std::vector<std::string>& names, std::vector<mha::Tensor>& results) {
    inputs_.kv_lengths = kv_lengths_;
    const mha::ConstTensorView& q = inputs_.q;
    const mha::DType dtype = q.dtype == mha::DType::F64 ? mha::DType::F64 : mha::DType::F32;
    mha::Tensor out(q.dtype, {q.size(0), q.size(1), q.size(2), inputs_.v.size(3)});
    mha::Tensor lse, weights;
    if (lse_) lse = mha::Tensor(dtype, {q.size(0), q.size(2), q.size(1)});
    if (weights_) weights = mha::Tensor(dtype, {q.size(0), q.size(2), q.size(1), inputs_.k.size(1)});
    mha::attention_forward(spec_, inputs_, {.out = out, .lse = lse, .weights = weights}, workspace);
    keep(prefix + "out", std::move(out), names, results);
    if (lse_) keep(prefix + "lse", std::move(lse), names, results);
    if (weights_) keep(prefix + "weights", std::move(weights), names, results);
  }

 private:
  static void keep(const std::string& name, mha::Tensor tensor, std::vector<std::string>& names, std::vector<mha::Tensor>& results) {
    names.push_back(name);
    results.push_back(std::move(tensor));
  }

  void read_spec() {
    for (const json& rule : description_.value("mask", json::array())) spec_.mask = spec_.mask & rule_of(rule);
    spec_.align = align_of(description_.value("align", "unset"));
    if (description_.contains("scale")) spec_.scale = description_.at("scale").get<double>();
    if (description_.contains("softcap")) spec_.softcap = description_.at("softcap").get<double>();
    const mha::ConstTensorView bias = optional("bias");
    if (bias) spec_.bias = mha::DenseBias{bias};
    if (description_.contains("alibi_slopes")) {
      if (bias) throw mha::FormatError("both a bias tensor and alibi_slopes");
      spec_.bias = mha::AlibiBias{description_.at("alibi_slopes").get<std::vector<float>>()};
    }
    if (const mha::ConstTensorView sinks = optional("sinks")) {
      spec_.sink_logits.assign(sinks.as<float>(), sinks.as<float>() + mha::element_count(sinks.shape));
    }
  }

  mha::ConstTensorView optional(const std::string& name) const {
    return file_.contains(prefix_ + name) ? file_.tensor(prefix_ + name) : mha::ConstTensorView();
  }

  /// q, k or v as [batch, length, heads, dim]; what the file holds as [batch, heads, length, dim] is read through its strides.
  mha::ConstTensorView tensor(const std::string& name) const {
    const mha::ConstTensorView view = file_.tensor(prefix_ + name);
    if (view.rank() != 4) throw mha::FormatError(name + " has shape " + mha::to_string(view.shape) + ", must have four axes");
    const auto turned = description_.value("heads_first", std::vector<std::string>());
    return std::find(turned.begin(), turned.end(), name) == turned.end() ? view : view.transpose(1, 2);
  }

  const json& description_;
  const mha::SafetensorsFile& file_;
  std::string prefix_;
  mha::AttentionSpec spec_;
  mha::AttentionInputs inputs_;
  std::vector<Index> kv_lengths_;
  bool lse_ = false;
  bool weights_ = false;
};

std::vector<std::string> isas_to_run(int count, char** arguments) {
  if (count == 5) return {arguments[4]};
  std::vector<std::string> names;
  for (const mha::Isa& isa : mha::isas()) {
    if (isa.supported) names.emplace_back(isa.name);
  }
  return names;
}

void run(int count, char** arguments) {
  const mha::SafetensorsFile file(arguments[1]);
  std::ifstream stream(arguments[2]);
  if (!stream) throw mha::IoError(std::string(arguments[2]) + ": cannot be opened");
  const json specs = json::parse(stream);
  require_known_keys(specs, {"problems"}, arguments[2]);
  mha::Workspace workspace(mha::serial_executor());
  std::vector<std::string> names;
  std::vector<mha::Tensor> results;
  for (const std::string& isa : isas_to_run(count, arguments)) {
    mha::use_isa(isa);
    Index number = 0;
    for (const json& description : specs.at("problems")) {
      try {
        Problem(description, file, number).compute(isa + "/" + std::to_string(number) + "/", workspace, names, results);
      } catch (const std::exception& error) {
        throw mha::FormatError("problem " + std::to_string(number) + ", " + isa + ": " + error.what());
      }
      ++number;
    }
  }
  std::vector<mha::NamedTensor> tensors;
  for (std::size_t i = 0; i < names.size(); ++i) tensors.push_back({names[i], results[i]});
  mha::save_safetensors(arguments[3], tensors);
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 4 && count != 5) {
    std::cerr << "usage: attend TENSORS SPECS RESULTS [ISA]\n";
    return 2;
  }
  try {
    run(count, arguments);
  } catch (const std::exception& error) {
    std::cerr << "attend: " << error.what() << '\n';
    return 2;
  }
  return 0;
}
