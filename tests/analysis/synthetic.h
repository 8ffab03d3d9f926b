// Captures whose answers are known: heads built by a rule, as tables or as q, k and v, no model. Used by the tests of the measures of
// captures.
#pragma once

#include <cmath>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "mha/analysis/capture.h"

namespace mha::test {

/// A weight by (row, key), of a head of n tokens.
using HeadRule = std::function<double(Index row, Index key)>;

/// All on the token before; the first row on itself.
inline HeadRule previous_head() {
  return [](Index row, Index key) { return key == std::max<Index>(row - 1, 0) ? 1.0 : 0.0; };
}
/// All on the first key: a sink.
inline HeadRule sink_head() {
  return [](Index, Index key) { return key == 0 ? 1.0 : 0.0; };
}
inline HeadRule uniform_head(Index length) {
  return [length](Index, Index) { return 1.0 / static_cast<double>(length); };
}
inline HeadRule self_head() {
  return [](Index row, Index key) { return row == key ? 1.0 : 0.0; };
}
/// All on the token `back` places before, rows without one on the first key: with back = period, or period - 1 (induction), of a text of
/// repeated tokens.
inline HeadRule back_head(Index back) {
  return [back](Index row, Index key) { return key == (row >= back ? row - back : 0) ? 1.0 : 0.0; };
}

/// A capture that owns its tensors. Every layer gets ready weights [1, heads, n, n].
class SyntheticCapture {
 public:
  explicit SyntheticCapture(Index length) : length_(length) {}

  CapturedLayer& add_layer(const std::vector<HeadRule>& heads) {
    Tensor& weights = keep(Tensor(DType::F32, {1, static_cast<Index>(heads.size()), length_, length_}));
    float* out = weights.data<float>();
    for (const HeadRule& rule : heads) {
      for (Index row = 0; row < length_; ++row) {
        for (Index key = 0; key < length_; ++key) *out++ = static_cast<float>(rule(row, key));
      }
    }
    CapturedLayer layer;
    layer.weights = weights;
    capture_.layers.push_back(layer);
    return capture_.layers.back();
  }
  /// The same heads computed by attention: q holds the logarithms of the rules' weights, k the unit vectors, so that rows of them come out
  /// but for the roundings of exp and of lse; 0 becomes a score of -100, whose weight f32 does not hold. v is [1, n, heads, dim].
  CapturedLayer& add_attended_layer(const std::vector<HeadRule>& heads, Tensor&& values) {
    const auto count = static_cast<Index>(heads.size());
    Tensor& q = keep(Tensor(DType::F32, {1, length_, count, length_}));
    Tensor& k = keep(Tensor(DType::F32, {1, length_, count, length_}));
    for (Index row = 0; row < length_; ++row) {
      for (Index h = 0; h < count; ++h) {
        const Index at = (row * count + h) * length_;
        k.data<float>()[at + row] = 1.0F;
        for (Index key = 0; key < length_; ++key) {
          const double weight = heads[static_cast<std::size_t>(h)](row, key);
          q.data<float>()[at + key] = weight > 0 ? static_cast<float>(std::log(weight)) : -100.0F;
        }
      }
    }
    Tensor& v = keep(std::move(values));
    Tensor& out = keep(Tensor(DType::F32, {1, length_, count, v.size(3)}));
    Tensor& lse = keep(Tensor(DType::F32, {1, count, length_}));
    CapturedLayer layer{.spec = {.scale = 1.0}, .q = q, .k = k, .v = v, .lse = lse, .head_out = out};
    Workspace workspace(serial_executor());
    attention_forward(layer.spec, layer.inputs(), {.out = out, .lse = lse}, workspace);
    capture_.layers.push_back(layer);
    return capture_.layers.back();
  }
  Tensor& keep(Tensor&& tensor) { return tensors_.emplace_back(std::move(tensor)); }
  const Capture& capture() const { return capture_; }

 private:
  Index length_;
  Capture capture_;
  std::deque<Tensor> tensors_;
};

}  // namespace mha::test
