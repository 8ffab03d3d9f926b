// How the problems are drawn: sizes on a logarithmic scale, odd ones included, every rule, bias and dtype often enough that a few hundred
// problems meet most pairs of them.
#include "random_problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace mha::app {

constexpr double kMostProducts = 8e6;  // multiply-adds of one problem: the reference takes a few milliseconds

class RandomProblem::Dice {
 public:
  Dice(std::uint64_t seed, Index number) {
    const auto n = static_cast<std::uint64_t>(number);
    std::seed_seq sequence{seed & 0xffffffffU, seed >> 32U, n & 0xffffffffU, n >> 32U};
    random_.seed(sequence);
  }
  /// lo..hi, both possible.
  Index between(Index lo, Index hi) { return std::uniform_int_distribution<Index>(lo, hi)(random_); }
  /// 1..hi, every power of two as likely as the next.
  Index size(Index hi) {
    const double bits = std::uniform_real_distribution<double>(0.0, std::log2(static_cast<double>(hi) + 1.0))(random_);
    return std::clamp<Index>(static_cast<Index>(std::exp2(bits)), 1, hi);
  }
  bool chance(double share) { return std::bernoulli_distribution(share)(random_); }
  float normal() { return std::normal_distribution<float>()(random_); }
  template <class T>
  T one_of(std::initializer_list<T> choices) {
    return *(choices.begin() + between(0, static_cast<Index>(choices.size()) - 1));
  }

 private:
  std::mt19937_64 random_;
};

namespace {

/// One random rule for keys 0..kv_len - 1.
template <class Dice>
Mask some_rule(Dice& dice, Index kv_len) {
  switch (dice.between(0, 5)) {
    case 0:
    case 1:
      return causal();
    case 2:
      return window(dice.between(-1, kv_len), dice.between(-1, kv_len), dice.chance(0.3) ? dice.between(0, 4) : 0);
    case 3:
      return prefix(dice.between(0, kv_len));
    case 4:
      return chunk(dice.between(1, kv_len));
    default:
      return segments({0, dice.between(1, kv_len), 2 * kv_len});
  }
}

}  // namespace

RandomProblem::RandomProblem(std::uint64_t seed, Index number) {
  Dice dice(seed, number);
  dtype_ = dice.one_of({DType::F32, DType::F32, DType::Bf16, DType::F16});
  choose_sizes(dice);
  q_ = make(dice, {sizes_.batch, sizes_.q_len, sizes_.heads, sizes_.head_dim});
  k_ = make(dice, {sizes_.batch, sizes_.kv_len, sizes_.kv_heads, sizes_.head_dim});
  v_ = make(dice, {sizes_.batch, sizes_.kv_len, sizes_.kv_heads, sizes_.value_dim});
  description_ = fmt::format("{} batch {} q_len {} kv_len {} heads {} kv_heads {} head_dim {} value_dim {}", name_of(dtype_), sizes_.batch,
                             sizes_.q_len, sizes_.kv_len, sizes_.heads, sizes_.kv_heads, sizes_.head_dim, sizes_.value_dim);
  choose_spec(dice);
  choose_hidden(dice);
}

void RandomProblem::choose_sizes(Dice& dice) {
  do {
    sizes_.batch = dice.between(1, 3);
    sizes_.q_len = dice.size(400);
    sizes_.kv_len = dice.chance(0.5) ? sizes_.q_len : dice.size(3000);
    sizes_.kv_heads = dice.between(1, 4);
    sizes_.heads = sizes_.kv_heads * (dice.chance(0.5) ? 1 : dice.between(2, 8));
    sizes_.head_dim = dice.chance(0.5) ? dice.one_of<Index>({32, 64, 80, 96, 128}) : dice.size(260);
    sizes_.value_dim = dice.chance(0.7) ? sizes_.head_dim : dice.size(260);
  } while (static_cast<double>(sizes_.batch * sizes_.heads * sizes_.q_len) * static_cast<double>(sizes_.kv_len) *
               static_cast<double>(sizes_.head_dim + sizes_.value_dim) >
           kMostProducts);
}

void RandomProblem::choose_spec(Dice& dice) {
  for (Index rules = dice.one_of<Index>({0, 1, 1, 2}); rules > 0; --rules) spec_.mask = spec_.mask & some_rule(dice, sizes_.kv_len);
  spec_.align = dice.one_of({Align::TopLeft, Align::BottomRight});
  description_ += fmt::format(" mask {}{}", to_string(spec_.mask), spec_.align == Align::TopLeft ? "" : " (bottom right)");
  if (dice.chance(0.2)) {
    spec_.scale = dice.one_of({0.0F, 0.5F, -1.0F, 1.5F}) / std::sqrt(static_cast<float>(sizes_.head_dim));
    description_ += fmt::format(" scale {}", *spec_.scale);
  }
  if (dice.chance(0.15)) {
    spec_.softcap = dice.one_of({0.5F, 5.0F, 50.0F});
    description_ += fmt::format(" softcap {}", *spec_.softcap);
  }
  if (dice.chance(0.15)) {
    for (Index h = 0; h < sizes_.heads; ++h) spec_.sink_logits.push_back(3.0F * dice.normal());
    description_ += " sinks";
  }
  if (dice.chance(0.15)) {
    spec_.bias = AlibiBias{alibi_slopes(sizes_.heads)};
    description_ += " alibi";
  } else if (dice.chance(0.3)) {
    const bool hides = dice.chance(0.5);
    spec_.bias = DenseBias{
        make_table<float>(dice, [&] { return hides && dice.chance(0.2) ? -std::numeric_limits<float>::infinity() : dice.normal(); })};
    description_ += hides ? " dense bias with -inf" : " dense bias";
  }
}

void RandomProblem::choose_hidden(Dice& dice) {
  if (dice.chance(0.25)) {
    const double share = dice.one_of({0.1, 0.5, 0.9});
    allowed_ = make_table<bool>(dice, [&] { return dice.chance(share); });
    description_ += " allowed " + to_string(allowed_.shape);
  }
  if (dice.chance(0.25)) {
    for (Index b = 0; b < sizes_.batch; ++b) kv_lengths_.push_back(dice.between(0, sizes_.kv_len));
    description_ += fmt::format(" kv_lengths {}..", kv_lengths_.front());
  }
}

ConstTensorView RandomProblem::make(Dice& dice, const Dims& shape) {
  const bool heads_first = dice.chance(0.5);
  const Index step = dice.chance(0.15) ? 2 : 1;  // elements from one number of the last axis to the next
  const Dims memory =
      heads_first ? Dims{shape[0], shape[2], shape[1], shape[3] * step} : Dims{shape[0], shape[1], shape[2], shape[3] * step};
  Tensor normal(DType::F32, memory);
  std::generate_n(normal.data<float>(), element_count(memory), [&] { return dice.normal(); });
  storage_.emplace_back(dtype_, memory);
  copy(normal, storage_.back());
  ConstTensorView view = storage_.back().view();
  if (heads_first) view = view.transpose(1, 2);
  return {view.data, view.dtype, shape, {view.stride(0), view.stride(1), view.stride(2), step}};
}

template <class T, class Element>
ConstTensorView RandomProblem::make_table(Dice& dice, Element&& element) {
  Dims shape = weights_shape();
  for (int axis = 0; axis < 4; ++axis) {
    if (dice.chance(0.4)) shape[axis] = 1;
  }
  storage_.emplace_back(dtype_of<T>, shape);
  std::generate_n(storage_.back().data<T>(), element_count(shape), element);
  return storage_.back();
}

AttentionInputs RandomProblem::inputs() const { return {.q = q_, .k = k_, .v = v_, .allowed = allowed_, .kv_lengths = kv_lengths_}; }

AttentionInputs RandomProblem::double_inputs() {
  const auto as_double = [&](const ConstTensorView& view) {
    storage_.emplace_back(DType::F64, view.shape);
    copy(view, storage_.back());
    return ConstTensorView(storage_.back());
  };
  return {.q = as_double(q_), .k = as_double(k_), .v = as_double(v_), .allowed = allowed_, .kv_lengths = kv_lengths_};
}

}  // namespace mha::app
