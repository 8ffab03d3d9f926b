// Shares of yeses and their intervals, where questions come in sentences. No attention here.
#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "mha/analysis/relation_scores.h"
#include "mha/error.h"

namespace mha {
namespace {

constexpr double kZ = 1.959963984540054;  // 97.5 % of the normal distribution lie below

Tally sum_of(std::span<const Tally> sentences) {
  Tally sum;
  for (const Tally& sentence : sentences) {
    sum.yes += sentence.yes;
    sum.of += sentence.of;
  }
  return sum;
}

double rate(const Tally& tally) { return static_cast<double>(tally.yes) / static_cast<double>(tally.of); }

/// How far one sentence is off what the overall share lets expect.
double residual(const Tally& sentence, double share) {
  return static_cast<double>(sentence.yes) - share * static_cast<double>(sentence.of);
}

/// Variance of the share over sentences (ratio estimator) over p (1 - p) / (n - 1), at least 1.
double design_effect(std::span<const Tally> sentences, const Tally& sum) {
  const auto clusters = static_cast<double>(sentences.size());
  const double n = static_cast<double>(sum.of);
  const double p = rate(sum);
  if (sum.yes == 0 || sum.yes == sum.of || sum.of < 2) return 1;
  if (sentences.size() == 1) return n;
  double squares = 0;
  for (const Tally& sentence : sentences) squares += residual(sentence, p) * residual(sentence, p);
  const double variance = clusters / (clusters - 1) * squares / (n * n);
  return std::max(1.0, variance / (p * (1 - p) / (n - 1)));
}

}  // namespace

Share share_of(std::span<const Tally> sentences) {
  const Tally sum = sum_of(sentences);
  Share share{.yes = sum.yes, .of = sum.of};
  if (sum.of == 0) return share;
  const double n = static_cast<double>(sum.of) / design_effect(sentences, sum);
  const double p = share.value();
  const double centre = (p + kZ * kZ / (2 * n)) / (1 + kZ * kZ / n);
  const double half = kZ / (1 + kZ * kZ / n) * std::sqrt(p * (1 - p) / n + kZ * kZ / (4 * n * n));
  share.low = sum.yes == 0 ? 0 : centre - half;
  share.high = sum.yes == sum.of ? 1 : centre + half;
  return share;
}

Lift lift_of(std::span<const Tally> a, std::span<const Tally> b) {
  MHA_CHECK(ShapeError, a.size() == b.size(), "lift: ", a.size(), " and ", b.size(), " sentences");
  const Share left = share_of(a);
  const Share right = share_of(b);
  double together = 0;
  double of_a = 0;
  double of_b = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    MHA_CHECK(ShapeError, a[i].of == b[i].of, "lift: ", a[i].of, " and ", b[i].of, " questions of sentence ", i);
    const double x = residual(a[i], left.value());
    const double y = residual(b[i], right.value());
    together += x * y;
    of_a += x * x;
    of_b += y * y;
  }
  const double correlation = of_a > 0 && of_b > 0 ? together / std::sqrt(of_a * of_b) : 0;
  const double p = left.value();
  const double q = right.value();
  const auto reach = [correlation](double x, double y) { return std::sqrt(std::max(0.0, x * x + y * y - 2 * correlation * x * y)); };
  return {.value = p - q,
          .low = std::max(-1.0, p - q - reach(p - left.low, right.high - q)),
          .high = std::min(1.0, p - q + reach(left.high - p, q - right.low))};
}

}  // namespace mha
