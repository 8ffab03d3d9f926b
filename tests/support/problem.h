// A Problem says in plain values what one call of attention_forward is about; an Instance holds tensors made for it, a Results what came
// out. Used by every attention test and by the generators; the oracle is src/attention/reference.cpp with f64 outputs.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "mha/attention.h"

namespace mha::test {

/// How q, k, v and out lie in memory.
enum class Layout : std::uint8_t {
  Dense,        // [b, l, h, d]
  HeadsFirst,   // memory [b, h, l, d]
  FusedQkv,     // q, k and v are column ranges of one [b, l, columns] tensor
  SharedBatch,  // k and v have stride 0 over the batch
  SharedHeads,  // k and v have stride 0 over kv_heads
  Strided,      // the last axis has stride 3 (out: 2), with NaN in the gaps
};
inline constexpr Layout kLayouts[] = {Layout::Dense,       Layout::HeadsFirst,  Layout::FusedQkv,
                                      Layout::SharedBatch, Layout::SharedHeads, Layout::Strided};
const char* name_of(Layout layout);

/// Which axes of a [batch, heads, q, k] tensor have size 1.
struct Broadcast {
  bool batch = false;
  bool heads = false;
  bool q = false;
  bool k = false;
};

struct BiasData {
  enum class Content : std::uint8_t { None, Finite, SomeHidden /* one in five is -inf */, Alibi /* no tensor: slopes */ };
  Content content = Content::None;
  Broadcast broadcast = {};
  DType dtype = DType::F32;

  bool has_tensor() const { return content == Content::Finite || content == Content::SomeHidden; }
};

struct AllowedData {
  bool present = false;
  Broadcast broadcast = {};
  double density = 0.7;
};

struct Problem {
  std::string name = {};
  Index batch = 2;
  Index q_len = 5;
  Index kv_len = 5;
  Index kv_heads = 2;
  Index group = 1;
  Index head_dim = 8;
  Index value_dim = 8;
  DType dtype = DType::F32;
  Layout layout = Layout::Dense;
  Mask mask = {};
  Align align = Align::Unset;
  BiasData bias = {};
  AllowedData allowed = {};
  std::vector<Index> kv_lengths = {};  // empty, or one per batch entry
  std::optional<double> scale = {};
  Dropout dropout = {};
  std::optional<double> softcap = {};
  std::optional<float> first_sink = {};  // logit of head 0; each next head's is 0.7 more. Absent: no sinks
  std::uint64_t seed = 1;

  Index heads() const { return kv_heads * group; }
};
std::ostream& operator<<(std::ostream& stream, const Problem& problem);

/// Standard normal numbers (or what `bias` and `allowed` say), a pure function of the problem.
class Instance {
 public:
  explicit Instance(const Problem& problem);

  const Problem& problem() const { return problem_; }
  AttentionSpec spec() const;
  AttentionInputs inputs() const;
  TensorView q() { return q_; }
  TensorView k() { return k_; }
  TensorView v() { return v_; }
  TensorView bias() { return bias_; }
  TensorView allowed() { return allowed_; }

 private:
  TensorView make(const Dims& shape);
  TensorView share(const Dims& shape, int axis);
  void make_fused(const Dims& q_shape, const Dims& k_shape, const Dims& v_shape);
  void make_masks();

  Problem problem_;
  std::vector<Tensor> storage_;
  TensorView q_, k_, v_, bias_, allowed_;
};

struct Ask {
  bool lse = true;
  bool weights = true;
  bool statistics = false;  // all of them, links too; distances where the problem says where queries sit among the keys
};

/// Outputs of the problem's shapes, filled with a mark before the call.
class Results {
 public:
  Results(const Problem& problem, DType out, DType statistics, Ask ask = {});
  AttentionOutputs outputs();
  ConstTensorView out() const { return out_; }
  ConstTensorView lse() const { return lse_.view(); }
  ConstTensorView weights() const { return weights_.view(); }
  const RowStatistics& statistics() const { return statistics_; }
  /// Whether everything outside the view `out` still holds the mark.
  bool gaps_untouched() const;

 private:
  void ask_statistics(const Problem& problem, DType dtype);

  Tensor out_storage_, lse_, weights_;
  TensorView out_;
  std::vector<Tensor> statistics_storage_;
  RowStatistics statistics_;
};

/// The value outputs hold before a call.
inline constexpr float kMark = 777.0F;

void set_element(const TensorView& view, Index i0, Index i1, Index i2, Index i3, double value);
void fill(const TensorView& view, double value);
void fill_normal(const TensorView& view, std::uint64_t seed);

/// attention_forward under the ISA in use.
Results run(const Instance& instance, Workspace& workspace, Ask ask = {});
Results run(const Instance& instance, Ask ask = {});
/// The same by the double reference, outputs f64.
Results oracle(const Instance& instance, Ask ask = {});

/// Empty where `got` is as near to the oracle as near.h demands, element by element; else what is wrong, and where.
std::string mismatch(const Instance& instance, const Results& got);

}  // namespace mha::test
