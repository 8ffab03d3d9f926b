// The one list of cases: mask rules and their compositions x biases x dtypes x ragged sizes x layouts. Every attention test iterates over
// it. A new alternative of mha::Rule or mha::Bias does not compile until it has examples here.
#pragma once

#include <type_traits>
#include <variant>
#include <vector>

#include "support/problem.h"

namespace mha::test {

// Examples of each rule, for kv_len around 40.
inline std::vector<Mask> examples(std::type_identity<Causal>) { return {causal()}; }
inline std::vector<Mask> examples(std::type_identity<Window>) {
  return {window(0),       window(4),       window(kUnbounded, 3), window(0, kUnbounded), window(6, 2),
          window(3, 0, 2), window(0, 0, 1), window(17, 5, 4),      window(100, 100, 100), window(kUnbounded, kUnbounded)};
}
inline std::vector<Mask> examples(std::type_identity<Prefix>) { return {prefix(0), prefix(1), prefix(11), prefix(1000)}; }
inline std::vector<Mask> examples(std::type_identity<Chunk>) { return {chunk(1), chunk(7), chunk(16), chunk(1000)}; }
inline std::vector<Mask> examples(std::type_identity<Segments>) {
  return {segments({0}), segments({0, 1, 2, 16}), segments({0, 5, 21, 33}), segments({0, 500})};
}

// Examples of each bias.
inline std::vector<BiasData> examples(std::type_identity<NoBias>) { return {BiasData{}}; }
inline std::vector<BiasData> examples(std::type_identity<DenseBias>) {
  using Content = BiasData::Content;
  return {{Content::Finite, {}, DType::F32},
          {Content::Finite, {.batch = true}, DType::F32},
          {Content::Finite, {.heads = true}, DType::F32},
          {Content::Finite, {.batch = true, .heads = true, .q = true}, DType::F32},
          {Content::Finite, {.batch = true, .q = true, .k = true}, DType::F32},
          {Content::Finite, {.batch = true, .heads = true, .q = true, .k = true}, DType::F32},
          {Content::SomeHidden, {}, DType::F32},
          {Content::SomeHidden, {.heads = true, .q = true}, DType::F32},
          {Content::SomeHidden, {.k = true}, DType::F32},
          {Content::Finite, {.batch = true}, DType::Bf16},
          {Content::SomeHidden, {.heads = true}, DType::F16},
          {Content::SomeHidden, {.heads = true}, DType::F64}};
}

inline std::vector<BiasData> examples(std::type_identity<AlibiBias>) { return {{BiasData::Content::Alibi, {}, DType::F32}}; }

template <class T>
concept HasExamples = requires { examples(std::type_identity<T>{}); };

/// examples() of every alternative of a variant, one after the other.
template <class Variant>
struct Alternatives;
template <class... T>
struct Alternatives<std::variant<T...>> {
  static constexpr bool kAllHaveExamples = (HasExamples<T> && ...);
  static auto all_examples() {
    auto all = examples(std::type_identity<std::variant_alternative_t<0, std::variant<T...>>>{});
    all.clear();
    const auto append = [&](const auto& some) { all.insert(all.end(), some.begin(), some.end()); };
    (append(examples(std::type_identity<T>{})), ...);
    return all;
  }
};
static_assert(Alternatives<Rule>::kAllHaveExamples, "a mask rule has no examples in cases.h");
static_assert(Alternatives<Bias>::kAllHaveExamples, "a bias has no examples in cases.h");

/// Every single rule's examples, and compositions of two and three.
std::vector<Mask> example_masks();
std::vector<BiasData> example_biases();

/// The list. Names are unique and say what is special.
const std::vector<Problem>& cases();

}  // namespace mha::test
