// Tensors for problems, and the comparison of results with the oracle.
#include "support/problem.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <ostream>
#include <random>
#include <sstream>

#include "attention/reference.h"
#include "support/near.h"

namespace mha::test {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

void* at_element(const TensorView& view, Index offset) {
  return static_cast<char*>(view.data) + offset * static_cast<Index>(size_of(view.dtype));
}

Tensor nan_filled(DType dtype, const Dims& shape) {
  Tensor tensor(dtype, shape);
  fill(tensor.view(), kNaN);
  return tensor;
}

/// [b, l, h, d] with the last axis at `step`, inside a tensor whose gaps hold NaN.
TensorView strided(Tensor& tensor, const Dims& shape, Index step) {
  const TensorView whole = tensor.view();
  const Dims strides = {whole.stride(0), whole.stride(1), whole.stride(2), step};
  return {at_element(whole, shape[3] > 0 ? 1 : 0), whole.dtype, shape, strides};
}

Dims bias_shape(const Problem& p, const Broadcast& broadcast) {
  return {broadcast.batch ? 1 : p.batch, broadcast.heads ? 1 : p.heads(), broadcast.q ? 1 : p.q_len, broadcast.k ? 1 : p.kv_len};
}

/// Largest Euclidean length of a row along the last axis.
double longest_row(const ConstTensorView& view) {
  double longest = 0;
  double sum = 0;
  for_each_position(view.shape, [&](Index i, Index j, Index k, Index l) {
    if (l == 0) sum = 0;
    sum += std::pow(element(view, i, j, k, l), 2);
    longest = std::max(longest, sum);
  });
  return std::sqrt(longest);
}

double score_magnitude(const AttentionSpec& spec, const AttentionInputs& in) {
  double largest_bias = 0;
  if (const auto* bias = std::get_if<DenseBias>(&spec.bias)) {
    for (const double value : elements(bias->values)) {
      if (std::isfinite(value)) largest_bias = std::max(largest_bias, std::abs(value));
    }
  }
  if (const auto* alibi = std::get_if<AlibiBias>(&spec.bias)) {
    const double farthest = static_cast<double>(in.q.size(1) + in.k.size(1));
    for (const float slope : alibi->slopes) largest_bias = std::max(largest_bias, std::abs(static_cast<double>(slope)) * farthest);
  }
  for (const float sink : spec.sink_logits) largest_bias = std::max(largest_bias, std::abs(static_cast<double>(sink)));
  const double scale = spec.scale ? std::abs(static_cast<double>(*spec.scale)) : 1 / std::sqrt(static_cast<double>(in.q.size(3)));
  return scale * longest_row(in.q) * longest_row(in.k) + largest_bias;
}

struct Comparison {
  const char* what;
  const ConstTensorView& got;
  const ConstTensorView& expected;
};

/// First element whose error exceeds bound(i, j, k, l), in words.
template <class Bound>
std::string first_beyond(const Comparison& c, Bound&& bound) {
  std::ostringstream text;
  bool found = false;
  for_each_position(c.expected.shape, [&](Index i, Index j, Index k, Index l) {
    if (found) return;
    const double a = element(c.got, i, j, k, l);
    const double b = element(c.expected, i, j, k, l);
    if (a == b || (std::isnan(a) && std::isnan(b)) || std::abs(a - b) <= bound(i, j, k, l)) return;
    found = true;
    text.precision(10);
    text << c.what << "[" << i << ", " << j << ", " << k << ", " << l << "] is " << a << ", the oracle says " << b << ", allowed is "
         << bound(i, j, k, l);
  });
  return text.str();
}

/// Each number against the oracle's, when every weight may be off by `relative` of itself and every score by `relative`.
std::string statistics_mismatch(const RowStatistics& got, const Results& expected, double relative) {
  const RowStatistics& exact = expected.statistics();
  const double u = unit_roundoff(exact.entropy.dtype == DType::F64 && got.entropy.dtype == DType::F64 ? DType::F64 : DType::F32);
  std::string wrong;
  const auto compare = [&](const char* what, const ConstTensorView& ours, const ConstTensorView& theirs, auto&& bound) {
    if (!wrong.empty() || !ours) return;
    wrong = first_beyond({what, ours, theirs}, [&](Index b, Index h, Index q, Index) {
      return bound(b, h, q) + 2 * u * std::abs(element(theirs, b, h, q)) + std::ldexp(1.0, -126);
    });
  };
  compare("max_score", got.max_score, exact.max_score, [&](Index, Index, Index) { return relative; });
  // Each weight w moves -w ln w by at most relative * w * (|ln w| + 1).
  compare("entropy", got.entropy, exact.entropy,
          [&](Index b, Index h, Index q) { return 2 * relative * (element(exact.entropy, b, h, q) + 1); });
  compare("distance", got.distance, exact.distance,
          [&](Index b, Index h, Index q) { return 2 * relative * element(exact.distance, b, h, q); });
  // Squares are summed from the row's own place, or from the edge of a tile of 128 keys.
  compare("distance_variance", got.distance_variance, exact.distance_variance, [&](Index b, Index h, Index q) {
    const double variance = element(exact.distance_variance, b, h, q);
    const double square = variance + std::pow(element(exact.distance, b, h, q), 2);
    return 4 * relative * (variance + std::min(square, 128.0 * 128.0));
  });
  compare("first_weight", got.first_weight, exact.first_weight,
          [&](Index b, Index h, Index q) { return relative * element(exact.first_weight, b, h, q); });
  compare("chosen_weight", got.chosen_weight, exact.chosen_weight,
          [&](Index b, Index h, Index q) { return relative * element(exact.chosen_weight, b, h, q); });
  // Scores that are equal to rounding may change places.
  for_each_position(exact.max_key.shape, [&](Index b, Index h, Index q, Index) {
    const Index ours = static_cast<Index>(element(got.max_key, b, h, q));
    const Index theirs = static_cast<Index>(element(exact.max_key, b, h, q));
    if (!wrong.empty() || ours == theirs) return;
    const auto weight = [&](Index key) {
      return key < 0 || key >= expected.weights().size(3) ? -1 : element(expected.weights(), b, h, q, key);
    };
    if (weight(ours) >= weight(theirs) * (1 - 4 * relative)) return;
    wrong = "max_key[" + std::to_string(b) + ", " + std::to_string(h) + ", " + std::to_string(q) + "] is " + std::to_string(ours) +
            ", the oracle says " + std::to_string(theirs);
  });
  return wrong;
}

/// Each row's links against the oracle's table, when every weight may be off by `relative` of itself: the i-th largest weight is then off
/// by no more, and keys may only change places with keys that weigh as much to rounding.
std::string links_mismatch(const RowStatistics& got, const Results& expected, double relative) {
  const RowStatistics& exact = expected.statistics();
  std::string wrong = first_beyond({"link_weights", got.link_weights, exact.link_weights}, [&](Index b, Index h, Index q, Index i) {
    return relative * element(exact.link_weights, b, h, q, i) + std::ldexp(1.0, -126);
  });
  for_each_position(exact.link_keys.shape, [&](Index b, Index h, Index q, Index i) {
    const auto key_of = [&](const RowStatistics& s, Index at) { return static_cast<Index>(element(s.link_keys, b, h, q, at)); };
    const Index ours = key_of(got, i);
    const Index theirs = key_of(exact, i);
    bool right = ours == theirs;
    if (!right && ours >= 0 && theirs >= 0 && ours < expected.weights().size(3)) {
      const auto weight = [&](Index key) { return element(expected.weights(), b, h, q, key); };
      right = weight(ours) >= weight(theirs) * (1 - 4 * relative) && weight(theirs) >= weight(ours) * (1 - 4 * relative);
      for (Index before = 0; before < i; ++before) right = right && key_of(got, before) != ours;
    }
    if (right || !wrong.empty()) return;
    std::ostringstream text;
    text << "link_keys[" << b << ", " << h << ", " << q << ", " << i << "] is " << ours << ", the oracle says " << theirs;
    wrong = text.str();
  });
  return wrong;
}

}  // namespace

const char* name_of(Layout layout) {
  switch (layout) {
    case Layout::Dense:
      return "dense";
    case Layout::HeadsFirst:
      return "heads_first";
    case Layout::FusedQkv:
      return "fused_qkv";
    case Layout::SharedBatch:
      return "shared_batch";
    case Layout::SharedHeads:
      return "shared_heads";
    case Layout::Strided:
      return "strided";
  }
  return "?";
}

std::ostream& operator<<(std::ostream& stream, const Problem& p) {
  const auto axes = [](const Broadcast& b) {
    return std::string(b.batch ? "1" : "b") + (b.heads ? "1" : "h") + (b.q ? "1" : "q") + (b.k ? "1" : "k");
  };
  stream << "Problem{" << p.name << " batch=" << p.batch << " q_len=" << p.q_len << " kv_len=" << p.kv_len << " kv_heads=" << p.kv_heads
         << " group=" << p.group << " head_dim=" << p.head_dim << " value_dim=" << p.value_dim << " " << name_of(p.dtype) << " "
         << name_of(p.layout) << " mask=" << to_string(p.mask) << " align=" << static_cast<int>(p.align);
  if (p.softcap) stream << " softcap=" << *p.softcap;
  if (p.first_sink) stream << " first_sink=" << *p.first_sink;
  if (p.bias.content == BiasData::Content::Alibi) stream << " bias=alibi";
  if (p.bias.has_tensor()) {
    stream << " bias=" << axes(p.bias.broadcast) << "/" << name_of(p.bias.dtype)
           << (p.bias.content == BiasData::Content::SomeHidden ? "/some -inf" : "");
  }
  if (p.allowed.present) stream << " allowed=" << axes(p.allowed.broadcast) << "/" << p.allowed.density;
  for (std::size_t b = 0; b < p.kv_lengths.size(); ++b) stream << (b == 0 ? " kv_lengths=" : ",") << p.kv_lengths[b];
  if (p.scale) stream << " scale=" << *p.scale;
  if (p.dropout.probability > 0) stream << " dropout=" << p.dropout.probability;
  return stream << " seed=" << p.seed << "}";
}

void set_element(const TensorView& view, Index i0, Index i1, Index i2, Index i3, double value) {
  const Index at[4] = {i0, i1, i2, i3};
  Index i = 0;
  for (int axis = 0; axis < view.rank(); ++axis) i += at[axis] * view.stride(axis);
  if (view.dtype == DType::F32) view.as<float>()[i] = static_cast<float>(value);
  if (view.dtype == DType::F64) view.as<double>()[i] = value;
  if (view.dtype == DType::Bf16) view.as<Bf16>()[i] = Bf16::from_float(static_cast<float>(value));
  if (view.dtype == DType::F16) view.as<F16>()[i] = F16::from_float(static_cast<float>(value));
  if (view.dtype == DType::Bool) view.as<bool>()[i] = value != 0;
  if (view.dtype == DType::I64) view.as<Index>()[i] = static_cast<Index>(value);
}

void fill(const TensorView& view, double value) {
  for_each_position(view.shape, [&](Index i, Index j, Index k, Index l) { set_element(view, i, j, k, l, value); });
}

void fill_normal(const TensorView& view, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  for_each_position(view.shape, [&](Index i, Index j, Index k, Index l) { set_element(view, i, j, k, l, normal(random)); });
}

TensorView Instance::make(const Dims& shape) {
  const DType dtype = problem_.dtype;
  if (problem_.layout == Layout::HeadsFirst) {
    storage_.emplace_back(dtype, Dims{shape[0], shape[2], shape[1], shape[3]});
    return storage_.back().view().transpose(1, 2);
  }
  if (problem_.layout == Layout::Strided) {
    storage_.push_back(nan_filled(dtype, {shape[0], shape[1], shape[2], 3 * shape[3] + 2}));
    return strided(storage_.back(), shape, 3);
  }
  storage_.emplace_back(dtype, shape);
  return storage_.back().view();
}

TensorView Instance::share(const Dims& shape, int axis) {
  Dims one = shape;
  one[axis] = std::min<Index>(shape[axis], 1);
  storage_.emplace_back(problem_.dtype, one);
  Dims strides = storage_.back().view().strides;
  strides[axis] = 0;
  return {storage_.back().view().data, problem_.dtype, shape, strides};
}

void Instance::make_fused(const Dims& q_shape, const Dims& k_shape, const Dims& v_shape) {
  const Problem& p = problem_;
  const Index columns = p.heads() * p.head_dim + p.kv_heads * (p.head_dim + p.value_dim);
  const Index rows = std::max(p.q_len, p.kv_len);
  storage_.push_back(nan_filled(p.dtype, {p.batch, rows, columns}));
  Index column = 0;
  const auto columns_of = [&](const Dims& shape) {
    const TensorView view(at_element(storage_.back().view(), column), p.dtype, shape, {rows * columns, columns, shape[3], 1});
    column += shape[2] * shape[3];
    return view;
  };
  q_ = columns_of(q_shape);
  k_ = columns_of(k_shape);
  v_ = columns_of(v_shape);
}

void Instance::make_masks() {
  const Problem& p = problem_;
  std::mt19937_64 random(p.seed + 77);
  std::uniform_real_distribution<double> uniform;
  if (p.bias.has_tensor()) {
    storage_.emplace_back(p.bias.dtype, bias_shape(p, p.bias.broadcast));
    bias_ = storage_.back().view();
    fill_normal(bias_, p.seed + 99);
    for_each_position(bias_.shape, [&](Index i, Index j, Index k, Index l) {
      if (p.bias.content == BiasData::Content::SomeHidden && uniform(random) < 0.2) set_element(bias_, i, j, k, l, -kInf);
    });
  }
  if (p.allowed.present) {
    storage_.emplace_back(DType::Bool, bias_shape(p, p.allowed.broadcast));
    allowed_ = storage_.back().view();
    for_each_position(allowed_.shape,
                      [&](Index i, Index j, Index k, Index l) { set_element(allowed_, i, j, k, l, uniform(random) < p.allowed.density); });
  }
}

Instance::Instance(const Problem& problem) : problem_(problem) {
  const Problem& p = problem;
  const Dims q_shape = {p.batch, p.q_len, p.heads(), p.head_dim};
  const Dims k_shape = {p.batch, p.kv_len, p.kv_heads, p.head_dim};
  const Dims v_shape = {p.batch, p.kv_len, p.kv_heads, p.value_dim};
  if (p.layout == Layout::FusedQkv) {
    make_fused(q_shape, k_shape, v_shape);
  } else {
    const bool shared = p.layout == Layout::SharedBatch || p.layout == Layout::SharedHeads;
    const int axis = p.layout == Layout::SharedBatch ? 0 : 2;
    q_ = make(q_shape);
    k_ = shared ? share(k_shape, axis) : make(k_shape);
    v_ = shared ? share(v_shape, axis) : make(v_shape);
  }
  fill_normal(q_, 3 * p.seed);
  fill_normal(k_, 3 * p.seed + 1);
  fill_normal(v_, 3 * p.seed + 2);
  make_masks();
}

AttentionSpec Instance::spec() const {
  AttentionSpec spec{
      .mask = problem_.mask, .align = problem_.align, .scale = problem_.scale, .softcap = problem_.softcap, .dropout = problem_.dropout};
  if (problem_.bias.has_tensor()) spec.bias = DenseBias{bias_};
  if (problem_.bias.content == BiasData::Content::Alibi) spec.bias = AlibiBias{alibi_slopes(problem_.heads())};
  for (Index h = 0; problem_.first_sink && h < problem_.heads(); ++h) {
    spec.sink_logits.push_back(*problem_.first_sink + 0.7F * static_cast<float>(h));
  }
  return spec;
}

AttentionInputs Instance::inputs() const { return {.q = q_, .k = k_, .v = v_, .allowed = allowed_, .kv_lengths = problem_.kv_lengths}; }

Results::Results(const Problem& p, DType out, DType statistics, Ask ask) {
  const Dims shape = {p.batch, p.q_len, p.heads(), p.value_dim};
  if (p.layout == Layout::HeadsFirst) {
    out_storage_ = Tensor(out, {p.batch, p.heads(), p.q_len, p.value_dim});
    out_ = out_storage_.view().transpose(1, 2);
  } else if (p.layout == Layout::Strided) {
    out_storage_ = Tensor(out, {p.batch, p.q_len, p.heads(), 2 * p.value_dim + 2});
    out_ = strided(out_storage_, shape, 2);
  } else {
    out_storage_ = Tensor(out, shape);
    out_ = out_storage_.view();
  }
  if (ask.lse) lse_ = Tensor(statistics, {p.batch, p.heads(), p.q_len});
  if (ask.weights) weights_ = Tensor(statistics, {p.batch, p.heads(), p.q_len, p.kv_len});
  fill(out_storage_.view(), kMark);
  if (ask.lse) fill(lse_.view(), kMark);
  if (ask.weights) fill(weights_.view(), kMark);
  if (ask.statistics) ask_statistics(p, statistics);
}

void Results::ask_statistics(const Problem& p, DType dtype) {
  const auto make = [&](DType type, Index links = 0) {
    const Dims rows = {p.batch, p.heads(), p.q_len};
    statistics_storage_.emplace_back(type, links == 0 ? rows : Dims{p.batch, p.heads(), p.q_len, links});
    fill(statistics_storage_.back().view(), kMark);
    return statistics_storage_.back().view();
  };
  for (TensorView* view : {&statistics_.max_score, &statistics_.entropy, &statistics_.first_weight, &statistics_.chosen_weight}) {
    *view = make(dtype);
  }
  statistics_.max_key = make(DType::I64);
  const Index links = 1 + static_cast<Index>(p.seed * 7 % static_cast<std::uint64_t>(kMaxLinks));  // 8 where the seed is 1
  statistics_.link_weights = make(dtype, links);
  statistics_.link_keys = make(DType::I64, links);
  const bool placed = p.align != Align::Unset || (p.q_len == p.kv_len && p.kv_lengths.empty());
  if (placed) statistics_.distance = make(dtype);
  if (placed) statistics_.distance_variance = make(dtype);
  statistics_storage_.emplace_back(DType::Bool, Dims{p.seed % 2 == 0 ? p.batch : 1, p.kv_len});
  const TensorView chosen = statistics_storage_.back().view();
  for_each_position(chosen.shape, [&](Index b, Index k, Index, Index) { set_element(chosen, b, k, 0, 0, (b + k) % 3 == 1 ? 1 : 0); });
  statistics_.chosen = chosen;
}

AttentionOutputs Results::outputs() { return {.out = out_, .lse = lse_.view(), .weights = weights_.view(), .statistics = statistics_}; }

bool Results::gaps_untouched() const {
  Tensor copy = out_storage_.clone();
  const Index begin =
      (static_cast<const char*>(out_.data) - static_cast<const char*>(out_storage_.view().data)) / static_cast<Index>(size_of(out_.dtype));
  fill(TensorView(at_element(copy.view(), begin), out_.dtype, out_.shape, out_.strides), kMark);
  const Tensor mark = [&] {
    Tensor tensor(out_.dtype, out_storage_.shape());
    fill(tensor.view(), kMark);
    return tensor;
  }();
  return bitwise_equal(copy.view(), mark.view());
}

Results run(const Instance& instance, Workspace& workspace, Ask ask) {
  const Problem& p = instance.problem();
  Results results(p, p.dtype, arithmetic(p.dtype), ask);
  attention_forward(instance.spec(), instance.inputs(), results.outputs(), workspace);
  return results;
}

Results run(const Instance& instance, Ask ask) {
  Workspace workspace(serial_executor());
  return run(instance, workspace, ask);
}

Results oracle(const Instance& instance, Ask ask) {
  Workspace workspace(serial_executor());
  Results results(instance.problem(), DType::F64, DType::F64, ask);
  attention::reference_forward(instance.spec(), instance.inputs(), results.outputs(), workspace);
  return results;
}

std::string mismatch(const Instance& instance, const Results& got) {
  const Problem& p = instance.problem();
  const Results expected = oracle(instance, {.statistics = static_cast<bool>(got.statistics())});
  const AttentionInputs in = instance.inputs();
  const double scores = score_magnitude(instance.spec(), in);
  const double relative = element_tolerance(p.head_dim, p.kv_len, scores, arithmetic(p.dtype));
  if (!got.gaps_untouched()) return "something outside the view of out was written";
  std::string wrong = first_beyond({"out", got.out(), expected.out()}, [&](Index b, Index q, Index h, Index d) {
    double magnitude = 0;  // sum over keys of weight * |v|
    for (Index key = 0; key < p.kv_len; ++key) {
      const double weight = element(expected.weights(), b, h, q, key);
      if (weight > 0) magnitude += weight * std::abs(element(in.v, b, key, h / p.group, d));
    }
    if (p.dropout.probability > 0) magnitude /= 1 - static_cast<double>(p.dropout.probability);
    const double rounding = p.dtype == arithmetic(p.dtype) ? 0 : unit_roundoff(p.dtype);
    return (relative + rounding) * magnitude + subnormal_roundoff(p.dtype);
  });
  if (wrong.empty() && got.lse()) {
    wrong = first_beyond({"lse", got.lse(), expected.lse()}, [&](Index b, Index h, Index q, Index) {
      return relative + 2 * unit_roundoff(arithmetic(p.dtype)) * std::abs(element(expected.lse(), b, h, q));
    });
  }
  if (wrong.empty() && got.weights()) {
    wrong = first_beyond({"weights", got.weights(), expected.weights()}, [&](Index b, Index h, Index q, Index key) {
      return relative * element(expected.weights(), b, h, q, key) + std::ldexp(1.0, -126);  // below the smallest normal f32 is 0
    });
  }
  if (wrong.empty() && got.statistics()) wrong = statistics_mismatch(got.statistics(), expected, relative);
  if (wrong.empty() && got.statistics().link_keys) wrong = links_mismatch(got.statistics(), expected, relative);
  return wrong;
}

}  // namespace mha::test
