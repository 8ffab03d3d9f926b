// Classical scaling of a matrix of distances to the plane: eigenvectors by Jacobi's rotations, which are exact enough and quick enough for
// the some hundred heads of a model.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/check.h"
#include "mha/analysis/distances.h"
#include "mha/error.h"

namespace mha {
namespace {

/// A symmetric matrix and, after `diagonalise`, its eigenvalues on the diagonal and eigenvectors as rows of `vectors`.
class Symmetric {
 public:
  explicit Symmetric(std::size_t size) : size_(size), values_(size * size), vectors_(size * size) {
    for (std::size_t i = 0; i < size; ++i) vectors_[i * size + i] = 1.0;
  }

  double& at(std::size_t i, std::size_t j) { return values_[i * size_ + j]; }
  double value(std::size_t i) const { return values_[i * size_ + i]; }
  double vector(std::size_t i, std::size_t at) const { return vectors_[i * size_ + at]; }

  /// Rotates until nothing is left beside the diagonal (Golub & Van Loan, Matrix Computations, 8.5): each round squares what is left.
  void diagonalise() {
    constexpr int kRounds = 50;
    for (int round = 0; round < kRounds && beside_diagonal() > 0.0; ++round) {
      for (std::size_t p = 0; p < size_; ++p) {
        for (std::size_t q = p + 1; q < size_; ++q) rotate(p, q);
      }
    }
  }

 private:
  /// Sum of squares beside the diagonal; 0 where rounding hides them.
  double beside_diagonal() const {
    double beside = 0.0;
    double all = 0.0;
    for (std::size_t i = 0; i < size_; ++i) {
      for (std::size_t j = 0; j < size_; ++j) {
        const double square = values_[i * size_ + j] * values_[i * size_ + j];
        all += square;
        beside += i == j ? 0.0 : square;
      }
    }
    constexpr double kRounding = 1e-30;
    return beside <= kRounding * all ? 0.0 : beside;
  }

  void rotate(std::size_t p, std::size_t q) {
    if (at(p, q) == 0.0) return;
    const double theta = (at(q, q) - at(p, p)) / (2 * at(p, q));
    const double tangent = std::copysign(1.0, theta) / (std::abs(theta) + std::hypot(1.0, theta));
    const double cosine = 1 / std::hypot(1.0, tangent);
    const double sine = tangent * cosine;
    const auto turn = [&](double& a, double& b) {
      const double old = a;
      a = cosine * old - sine * b;
      b = sine * old + cosine * b;
    };
    for (std::size_t k = 0; k < size_; ++k) turn(at(k, p), at(k, q));
    for (std::size_t k = 0; k < size_; ++k) turn(at(p, k), at(q, k));
    for (std::size_t k = 0; k < size_; ++k) turn(vectors_[p * size_ + k], vectors_[q * size_ + k]);
    at(p, q) = at(q, p) = 0.0;
  }

  std::size_t size_;
  std::vector<double> values_;
  std::vector<double> vectors_;
};

/// -J D^2 J / 2.
Symmetric centred_squares(const HeadMatrix& distances) {
  const std::size_t size = distances.heads.size();
  Symmetric matrix(size);
  std::vector<double> mean(size);
  for (std::size_t i = 0; i < size; ++i) {
    for (std::size_t j = 0; j < size; ++j) {
      const double distance = distances.values[i * size + j];
      MHA_CHECK(Error, std::isfinite(distance), "plane_map: the distance of heads ", i, " and ", j, " is ", distance);
      mean[i] += distance * distance / static_cast<double>(size);
    }
  }
  const double all = std::accumulate(mean.begin(), mean.end(), 0.0) / static_cast<double>(size);
  for (std::size_t i = 0; i < size; ++i) {
    for (std::size_t j = 0; j < size; ++j) {
      const double distance = distances.values[i * size + j];
      matrix.at(i, j) = -(distance * distance - mean[i] - mean[j] + all) / 2;
    }
  }
  return matrix;
}

/// Whether the axis is to be turned round: its first point among those farthest out (but for rounding) is negative.
bool is_turned(const Symmetric& matrix, std::size_t axis, std::size_t size) {
  double farthest = 0.0;
  for (std::size_t i = 0; i < size; ++i) farthest = std::max(farthest, std::abs(matrix.vector(axis, i)));
  constexpr double kNearly = 0.999;
  for (std::size_t i = 0; i < size; ++i) {
    if (std::abs(matrix.vector(axis, i)) >= kNearly * farthest) return matrix.vector(axis, i) < 0.0;
  }
  return false;
}

}  // namespace

PlaneMap plane_map(const HeadMatrix& distances) {
  const std::size_t size = distances.heads.size();
  MHA_CHECK(ShapeError, distances.values.size() == size * size, "plane_map: ", distances.values.size(), " distances for ", size, " heads");
  Symmetric matrix = centred_squares(distances);
  matrix.diagonalise();
  std::vector<std::size_t> order(size);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return matrix.value(a) > matrix.value(b); });

  PlaneMap map{.points = std::vector<std::array<double, 2>>(size)};
  double shown = 0.0;
  double all = 0.0;
  for (std::size_t i = 0; i < size; ++i) all += std::max(matrix.value(i), 0.0);
  for (std::size_t dimension = 0; dimension < std::min<std::size_t>(size, 2); ++dimension) {
    const std::size_t axis = order[dimension];
    const double variance = std::max(matrix.value(axis), 0.0);
    const double scale = (is_turned(matrix, axis, size) ? -1.0 : 1.0) * std::sqrt(variance);
    for (std::size_t i = 0; i < size; ++i) map.points[i][dimension] = scale * matrix.vector(axis, i);
    shown += variance;
  }
  map.shown = all > 0.0 ? shown / all : 1.0;
  return map;
}

}  // namespace mha
