#include "layer_case.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <ostream>

#include "support/gen.h"
#include "support/near.h"

namespace mha::test {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

Dims broadcast_shape(const Dims& full, const Broadcast& b) {
  return {b.batch ? 1 : full[0], b.heads ? 1 : full[1], b.q ? 1 : full[2], b.k ? 1 : full[3]};
}

Tensor converted(const Tensor& from, DType dtype) {
  if (!from) return {};
  Tensor to(dtype, from.shape());
  copy(from, to);
  return to;
}

double at_broadcast(const ConstTensorView& view, Index b, Index h, Index q, Index k) {
  return element(view, view.size(0) == 1 ? 0 : b, view.size(1) == 1 ? 0 : h, view.size(2) == 1 ? 0 : q, view.size(3) == 1 ? 0 : k);
}

}  // namespace

MhaConfig LayerCase::config() const {
  return {.d_model = d_model,
          .heads = heads,
          .kv_heads = kv_heads,
          .head_dim = head_dim,
          .key_width = key_width,
          .value_width = value_width,
          .bias = bias,
          .learned_key = learned_key,
          .zero_key = zero_key,
          .attention = {.mask = mask, .align = align, .dropout = {dropout.probability, seed_of_call ? 0 : dropout.seed}}};
}

std::ostream& operator<<(std::ostream& stream, const LayerCase& c) {
  stream << "batch " << c.batch << ", q_len " << c.q_len << ", keys " << c.keys() << ", d_model " << c.d_model << ", heads " << c.heads
         << ", kv_heads " << c.kv_heads << ", head_dim " << c.head_dim << ", key_width " << c.key_width << ", value_width " << c.value_width
         << ", bias " << c.bias << ", learned_key " << c.learned_key << ", zero_key " << c.zero_key << ", memory "
         << static_cast<int>(c.memory) << ", layout " << static_cast<int>(c.layout) << ", weights " << name_of(c.weights) << ", mask "
         << to_string(c.mask) << ", align " << static_cast<int>(c.align) << ", position bias " << static_cast<int>(c.position_bias.content)
         << (c.bias_of_call ? " of the call" : "") << ", allowed " << c.allowed.present << ", kv_lengths ";
  for (const Index length : c.kv_lengths) stream << length << ' ';
  return stream << ", dropout " << c.dropout.probability << ", seed " << c.seed;
}

LayerInstance::LayerInstance(const LayerCase& layer_case) : case_(layer_case) {
  const LayerCase& c = case_;
  parameters_ = xavier_parameters(c.config(), c.seed);
  std::uint64_t seed = 1000 * c.seed;
  for (Tensor* b : {&parameters_.bq, &parameters_.bk, &parameters_.bv, &parameters_.bo, &parameters_.learned_k, &parameters_.learned_v}) {
    if (*b) fill_normal(*b, ++seed);
  }
  for (Tensor* t : {&parameters_.wq, &parameters_.wk, &parameters_.wv, &parameters_.wo, &parameters_.bq, &parameters_.bk, &parameters_.bv,
                    &parameters_.bo, &parameters_.learned_k, &parameters_.learned_v}) {
    *t = converted(*t, c.weights);
  }
  x_ = place(c.q_len, c.d_model, ++seed);
  if (c.memory != Memory::Self) key_ = place(c.kv_len, c.key_width, ++seed);
  if (c.memory == Memory::KeyAndValue) value_ = place(c.kv_len, c.value_width, ++seed);
  const Dims table = {c.batch, c.heads, c.q_len, c.keys()};
  if (c.position_bias.content != BiasData::Content::None) {
    position_bias_ = Tensor(DType::F32, broadcast_shape(table, c.position_bias.broadcast));
    fill_normal(position_bias_, ++seed);
  }
  if (c.allowed.present) {
    allowed_ = Tensor(DType::Bool, broadcast_shape(table, c.allowed.broadcast));
    Tensor draws(DType::F32, allowed_.shape());
    fill_normal(draws, ++seed);
    for (Index i = 0; i < element_count(draws.shape()); ++i) allowed_.data<bool>()[i] = draws.data<float>()[i] < 0.5F;
  }
}

TensorView LayerInstance::place(Index length, Index width, std::uint64_t seed) {
  const LayerCase& c = case_;
  const Dims shape = {c.batch, length, width};
  const Index offset = c.layout == InputLayout::Unaligned ? 1 : 0;
  Dims strides = contiguous_strides(shape);
  if (c.layout == InputLayout::Unaligned) strides = {length * (width + 3) + 5, width + 3, 1};
  if (c.layout == InputLayout::Strided) strides = {length * width * 2, width * 2, 2};
  if (c.layout == InputLayout::LengthFirst) strides = {width, c.batch * width, 1};
  Tensor memory(c.dtype(), {2 * c.batch * (length + 1) * (width + 8) + 1});
  fill(memory, std::numeric_limits<double>::quiet_NaN());
  auto* first = static_cast<std::byte*>(memory.view().data) + offset * static_cast<Index>(size_of(c.dtype()));
  storage_.push_back(std::move(memory));
  TensorView view(first, c.dtype(), shape, strides);
  fill_normal(view, seed);
  return view;
}

MhaConfig LayerInstance::config() const {
  MhaConfig config = case_.config();
  if (position_bias_ && !case_.bias_of_call) config.attention.bias = DenseBias{position_bias_};
  return config;
}

MhaInputs LayerInstance::inputs() const {
  return {.x = x_,
          .key = key_,
          .value = value_,
          .allowed = allowed_,
          .kv_lengths = case_.kv_lengths,
          .bias = case_.bias_of_call ? position_bias_.view() : ConstTensorView(),
          .training = case_.training,
          .dropout_seed = case_.seed_of_call ? std::optional(case_.dropout.seed) : std::nullopt};
}

template <class Layer>
LayerResults run_layer(const Layer& layer, const LayerInstance& instance, Workspace& workspace) {
  const LayerCase& c = instance.layer_case();
  LayerResults results;
  results.y = Tensor(c.dtype(), {c.batch, c.q_len, c.d_model});
  results.weights = Tensor(c.dtype(), {c.batch, c.heads, c.q_len, c.keys()});
  fill(results.y, kMark);
  fill(results.weights, kMark);
  int calls = 0;
  const auto kept = [](const ConstTensorView& view) {
    Tensor tensor(view.dtype, view.shape);
    copy(view, tensor);
    return tensor;
  };
  const MhaHook hook = [&](const MhaTrace& trace) {
    ++calls;
    results.q = kept(trace.q);
    results.k = kept(trace.k);
    results.v = kept(trace.v);
    results.lse = kept(trace.lse);
    results.head_out = kept(trace.head_out);
  };
  layer.forward(instance.inputs(), {.y = results.y, .weights = results.weights, .hook = hook}, workspace);
  EXPECT_EQ(calls, 1) << "the hook is called once";
  return results;
}
template LayerResults run_layer(const MultiHeadAttention&, const LayerInstance&, Workspace&);
template LayerResults run_layer(const NaiveMultiHeadAttention&, const LayerInstance&, Workspace&);

namespace {

/// A number and how far rounding may move it.
struct Bounded {
  double value = 0;
  double error = 0;
};

/// The layer in double, one element at a time. Error bounds are the usual first-order ones: a sum of n products, in any order, is off by at
/// most (n + 1) roundings of the sum of absolute values (Higham 2002, section 3.1), plus what its terms bring along.
class Oracle {
 public:
  explicit Oracle(const LayerInstance& instance)
      : c_(instance.layer_case()),
        in_(instance.inputs()),
        p_(instance.parameters()),
        config_(instance.config()),
        u_(unit_roundoff(c_.dtype())) {}

  LayerOracle compute() {
    const Dims table = {c_.batch, c_.heads, c_.q_len, c_.keys()};
    const Dims shape = {c_.batch, c_.q_len, c_.d_model};
    LayerOracle result{Tensor(DType::F64, shape), Tensor(DType::F64, shape), Tensor(DType::F64, table), Tensor(DType::F64, table)};
    const ConstTensorView key = in_.key ? in_.key : in_.x;
    const ConstTensorView value = in_.value ? in_.value : key;
    for (Index b = 0; b < c_.batch; ++b) {
      std::vector<std::vector<Bounded>> z(static_cast<std::size_t>(c_.q_len));
      for (Index h = 0; h < c_.heads; ++h) {
        const Index kv = h / (c_.heads / c_.kv_heads);
        const auto q = project(in_.x, b, p_.wq, p_.bq, h);
        const auto k = with_appended(project(key, b, p_.wk, p_.bk, kv), p_.learned_k, kv);
        const auto v = with_appended(project(value, b, p_.wv, p_.bv, kv), p_.learned_v, kv);
        for (Index row = 0; row < c_.q_len; ++row) {
          const std::vector<Bounded> weights = weights_of(b, h, row, q[static_cast<std::size_t>(row)], k);
          for (Index i = 0; i < c_.keys(); ++i) {
            set_element(result.weights, b, h, row, i, weights[static_cast<std::size_t>(i)].value);
            set_element(result.weights_error, b, h, row, i, weights[static_cast<std::size_t>(i)].error);
          }
          append_average(weights, v, z[static_cast<std::size_t>(row)]);
        }
      }
      for (Index row = 0; row < c_.q_len; ++row) {
        for (Index n = 0; n < c_.d_model; ++n) {
          const Bounded y = dot(z[static_cast<std::size_t>(row)], p_.wo, n, p_.bo);
          set_element(result.y, b, row, n, 0, y.value);
          set_element(result.y_error, b, row, n, 0, y.error);
        }
      }
    }
    return result;
  }

 private:
  using Vector = std::vector<Bounded>;

  Bounded dot(const Vector& x, const Tensor& w, Index n, const Tensor& bias) const {
    Bounded sum{bias ? element(bias, n) : 0, 0};
    double magnitude = std::abs(sum.value);
    for (Index d = 0; d < w.size(1); ++d) {
      const Bounded& term = x[static_cast<std::size_t>(d)];
      const double weight = element(w, n, d);
      sum.value += term.value * weight;
      sum.error += term.error * std::abs(weight);
      magnitude += (std::abs(term.value) + term.error) * std::abs(weight);
    }
    sum.error += static_cast<double>(w.size(1) + 2) * u_ * magnitude + kTiny;
    return sum;
  }

  /// [length][head_dim] of head h.
  std::vector<Vector> project(const ConstTensorView& x, Index b, const Tensor& w, const Tensor& bias, Index h) const {
    std::vector<Vector> rows;
    for (Index r = 0; r < x.size(1); ++r) {
      Vector in;
      for (Index d = 0; d < x.size(2); ++d) in.push_back({element(x, b, r, d), 0});
      Vector out;
      for (Index d = 0; d < c_.head_dim; ++d) out.push_back(dot(in, w, h * c_.head_dim + d, bias));
      rows.push_back(std::move(out));
    }
    return rows;
  }

  /// What follows the projected rows of kv head `kv`: the learned one, then zeros. Neither has an error.
  std::vector<Vector> with_appended(std::vector<Vector> rows, const Tensor& learned, Index kv) const {
    const auto append = [&](auto&& value_of) {
      Vector row;
      for (Index d = 0; d < c_.head_dim; ++d) row.push_back({value_of(kv * c_.head_dim + d), 0});
      rows.push_back(std::move(row));
    };
    if (c_.learned_key) append([&](Index n) { return element(learned, n); });
    if (c_.zero_key) append([](Index) { return 0.0; });
    return rows;
  }

  bool visible(Index b, Index h, Index row, Index key) const {
    const Index keys = c_.kv_lengths.empty() ? c_.keys() : c_.kv_lengths[static_cast<std::size_t>(b)];
    const Index offset = c_.align == Align::BottomRight ? keys - c_.q_len : 0;
    if (key >= keys || !c_.mask.sees(row, key, {c_.q_len, keys, offset})) return false;
    return !in_.allowed || at_broadcast(in_.allowed, b, h, row, key) != 0;
  }

  Vector weights_of(Index b, Index h, Index row, const Vector& q, const std::vector<Vector>& k) const {
    const double scale = 1 / std::sqrt(static_cast<double>(c_.head_dim));
    const auto* of_config = std::get_if<DenseBias>(&config_.attention.bias);
    const ConstTensorView bias = of_config != nullptr ? of_config->values : in_.bias;
    Vector scores(static_cast<std::size_t>(c_.keys()), {-kInf, 0});
    double highest = -kInf;
    double error = 0;  // of any visible score
    for (Index key = 0; key < c_.keys(); ++key) {
      if (!visible(b, h, row, key)) continue;
      Bounded score;
      double magnitude = 0;
      for (std::size_t d = 0; d < q.size(); ++d) {
        const Bounded& other = k[static_cast<std::size_t>(key)][d];
        score.value += q[d].value * other.value;
        score.error += q[d].error * std::abs(other.value) + (std::abs(q[d].value) + q[d].error) * other.error;
        magnitude += (std::abs(q[d].value) + q[d].error) * (std::abs(other.value) + other.error);
      }
      const double added = bias ? at_broadcast(bias, b, h, row, key) : 0;
      score.value = score.value * scale + added;
      score.error = scale * (score.error + static_cast<double>(c_.head_dim + 4) * u_ * magnitude) +
                    2 * u_ * (std::abs(added) + std::abs(score.value));
      scores[static_cast<std::size_t>(key)] = score;
      highest = std::max(highest, score.value);
      error = std::max(error, score.error);
    }
    if (highest == -kInf) return Vector(scores.size());
    double sum = 0;
    for (const Bounded& score : scores) sum += std::exp(score.value - highest);
    // A score off by e moves a weight by the factor exp(2 e) at most (numerator and denominator); exp and the sums add their own.
    const double relative = std::expm1(2 * error) + 2 * static_cast<double>(c_.keys() + 16) * u_;
    for (Bounded& score : scores) {
      const double weight = std::exp(score.value - highest) / sum;
      // What lies below the smallest normal number before the normaliser may be 0.
      score = {weight, score.value == -kInf ? 0 : relative * weight + static_cast<double>(std::numeric_limits<float>::min())};
    }
    return scores;
  }

  void append_average(const Vector& weights, const std::vector<Vector>& v, Vector& z) const {
    for (Index d = 0; d < c_.head_dim; ++d) {
      Bounded sum;
      double magnitude = 0;
      for (std::size_t key = 0; key < weights.size(); ++key) {
        const Bounded& value = v[key][static_cast<std::size_t>(d)];
        sum.value += weights[key].value * value.value;
        sum.error += weights[key].error * std::abs(value.value) + (weights[key].value + weights[key].error) * value.error;
        magnitude += (weights[key].value + weights[key].error) * (std::abs(value.value) + value.error);
      }
      sum.error += static_cast<double>(c_.keys() + 4) * u_ * magnitude + kTiny;
      z.push_back(sum);
    }
  }

  static constexpr double kTiny = 1e-37;  // underflow of f32

  const LayerCase& c_;
  MhaInputs in_;
  const MhaParameters& p_;
  MhaConfig config_;
  double u_;
};

}  // namespace

LayerOracle oracle(const LayerInstance& instance) { return Oracle(instance).compute(); }

std::string beyond(const ConstTensorView& got, const ConstTensorView& expected, const ConstTensorView& error, double factor) {
  if (!(got.shape == expected.shape)) return "shape " + to_string(got.shape) + " instead of " + to_string(expected.shape);
  std::string worst;
  double excess = 1;
  for_each_position(expected.shape, [&](Index i, Index j, Index k, Index l) {
    const double a = element(got, i, j, k, l);
    const double b = element(expected, i, j, k, l);
    if (a == b) return;
    const double ratio = std::abs(a - b) / (factor * element(error, i, j, k, l));
    if (ratio <= excess) return;
    excess = std::isnan(ratio) ? kInf : ratio;
    worst = "at " + to_string(Dims{i, j, k, l}) + ": " + std::to_string(a) + " instead of " + std::to_string(b) + ", " +
            std::to_string(ratio) + " times the bound";
  });
  return worst;
}

LayerCase some_layer_case(bool with_dropout) {
  using rc::gen::element;
  using rc::gen::inRange;
  LayerCase c;
  c.batch = *inRange<Index>(1, 4);
  c.q_len = *element<Index>(1, 2, 3, 7, 9, 17, 33);
  c.kv_len = *rc::gen::oneOf(rc::gen::just(c.q_len), element<Index>(1, 2, 5, 16, 19, 34));
  c.kv_heads = *inRange<Index>(1, 4);
  c.heads = c.kv_heads * *inRange<Index>(1, 4);
  c.head_dim = *element<Index>(1, 2, 3, 5, 8, 11, 16, 20);
  c.d_model = *element<Index>(1, 3, 8, 16, 29, 50);
  c.bias = *rc::gen::arbitrary<bool>();
  c.memory = *element(Memory::Self, Memory::Key, Memory::KeyAndValue);
  c.key_width = c.memory == Memory::Self ? c.d_model : *element<Index>(1, 4, c.d_model, 21);
  c.value_width = c.memory == Memory::KeyAndValue ? *element<Index>(1, 6, c.d_model, 23) : c.key_width;
  c.layout = *element(InputLayout::Dense, InputLayout::Unaligned, InputLayout::Strided, InputLayout::LengthFirst);
  c.weights = *element(DType::F32, DType::F32, DType::Bf16, DType::F16);
  c.mask = *gen::mask();
  c.align = *element(Align::TopLeft, Align::BottomRight);
  if (*inRange(0, 3) == 0) c.position_bias = {BiasData::Content::Finite, gen::some_broadcast(), DType::F32};
  if (*inRange(0, 3) == 0) c.allowed = {true, gen::some_broadcast(), 0.7};
  c.bias_of_call = *rc::gen::arbitrary<bool>();
  c.learned_key = c.mask.empty() && *inRange(0, 3) == 0;  // rules are refused beside appended keys
  c.zero_key = c.mask.empty() && *inRange(0, 3) == 0;
  if (c.keys() == c.input_keys() && *inRange(0, 3) == 0) {
    for (Index b = 0; b < c.batch; ++b) c.kv_lengths.push_back(*inRange<Index>(0, c.keys() + 1));
  }
  if (with_dropout) {
    c.dropout = {*element(0.1F, 0.5F), 17};
    c.seed_of_call = *rc::gen::arbitrary<bool>();
    c.training = true;
  }
  c.seed = *inRange<std::uint64_t>(1, 1000);
  return c;
}

}  // namespace mha::test
