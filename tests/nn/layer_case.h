// A LayerCase says in plain values what one call of the layer is about; LayerInstance holds tensors made for it. `oracle` computes the
// layer in double from its definition, with, beside every number, a bound on what f32 arithmetic may make of it. It shares nothing with
// src/nn.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "mha/layer.h"
#include "support/problem.h"

namespace mha::test {

enum class Memory : std::uint8_t { Self, Key /* key given, value = key */, KeyAndValue };
/// How x (and key and value) lie in memory. Unaligned: one element past a cache line, rows with gaps. Strided: last axis with stride 2.
enum class InputLayout : std::uint8_t { Dense, Unaligned, Strided, LengthFirst /* memory [length, batch, width] */ };

struct LayerCase {
  Index batch = 2;
  Index q_len = 5;
  Index kv_len = 5;  // not read for Memory::Self
  Index d_model = 12;
  Index heads = 2;
  Index kv_heads = 2;
  Index head_dim = 6;
  Index key_width = 12;
  Index value_width = 12;
  bool bias = true;
  bool learned_key = false;
  bool zero_key = false;
  Memory memory = Memory::Self;
  InputLayout layout = InputLayout::Dense;
  DType weights = DType::F32;  // F64: the whole layer
  Mask mask = {};
  Align align = Align::Unset;
  BiasData position_bias = {};
  bool bias_of_call = false;  // whether position_bias comes with the call, not with the config
  AllowedData allowed = {};
  std::vector<Index> kv_lengths = {};
  Dropout dropout = {};
  bool seed_of_call = false;  // whether dropout's seed comes with the call
  bool training = false;
  std::uint64_t seed = 1;

  Index input_keys() const { return memory == Memory::Self ? q_len : kv_len; }
  Index keys() const { return input_keys() + (learned_key ? 1 : 0) + (zero_key ? 1 : 0); }
  DType dtype() const { return weights == DType::F64 ? DType::F64 : DType::F32; }
  MhaConfig config() const;  // without position_bias, whose tensor is the instance's
};
std::ostream& operator<<(std::ostream& stream, const LayerCase& layer_case);

class LayerInstance {
 public:
  explicit LayerInstance(const LayerCase& layer_case);

  const LayerCase& layer_case() const { return case_; }
  MhaConfig config() const;
  const MhaParameters& parameters() const { return parameters_; }
  MhaInputs inputs() const;

 private:
  TensorView place(Index length, Index width, std::uint64_t seed);

  LayerCase case_;
  MhaParameters parameters_;
  std::vector<Tensor> storage_;
  TensorView x_, key_, value_;
  Tensor position_bias_, allowed_;
};

/// Everything a call gives, copied out of it.
struct LayerResults {
  Tensor y, weights, q, k, v, lse, head_out;
};
template <class Layer>
LayerResults run_layer(const Layer& layer, const LayerInstance& instance, Workspace& workspace);

/// f64 tensors and, per element, the largest error f32 (or f64) arithmetic can make, whatever the order of its sums.
struct LayerOracle {
  Tensor y, y_error, weights, weights_error;
};
LayerOracle oracle(const LayerInstance& instance);

/// Empty where |got - expected| <= error everywhere (equal infinities and NaNs agree), else the worst place.
std::string beyond(const ConstTensorView& got, const ConstTensorView& expected, const ConstTensorView& error, double factor = 1);

/// Any config: groups, decoupled head_dim, own widths, masks, allowed, kv_lengths, layouts. Uses rapidcheck's current run.
LayerCase some_layer_case(bool with_dropout = false);

}  // namespace mha::test
