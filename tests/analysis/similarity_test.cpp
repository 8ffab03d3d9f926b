// Linear CKA against its other form, centred Gram matrices of all rows (Kornblith et al. 2019, eq. 3), and on outputs whose answer is
// plain.
#include "mha/analysis/similarity.h"

#include <gtest/gtest.h>

#include <cmath>

#include "analysis/synthetic.h"
#include "mha/error.h"
#include "model/encoder_case.h"
#include "support/errors.h"
#include "support/near.h"

namespace mha {
namespace {

using Rows = std::vector<std::vector<double>>;

/// One head's outputs over all texts.
Rows rows_of(const std::vector<Capture>& texts, HeadId id) {
  Rows rows;
  for (const Capture& text : texts) {
    const ConstTensorView& out = text.layers[static_cast<std::size_t>(id.layer)].head_out;
    for (Index row = 0; row < out.size(1); ++row) {
      rows.emplace_back();
      for (Index d = 0; d < out.size(3); ++d) rows.back().push_back(test::element(out, 0, row, id.head, d));
    }
  }
  return rows;
}

/// H X X' H.
Rows centred_gram(const Rows& x) {
  const std::size_t n = x.size();
  Rows gram(n, std::vector<double>(n));
  std::vector<double> mean(n);
  double all = 0.0;
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < n; ++j) {
      for (std::size_t d = 0; d < x[i].size(); ++d) gram[i][j] += x[i][d] * x[j][d];
      mean[i] += gram[i][j] / static_cast<double>(n);
    }
    all += mean[i] / static_cast<double>(n);
  }
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < n; ++j) gram[i][j] += all - mean[i] - mean[j];
  }
  return gram;
}

double inner(const Rows& a, const Rows& b) {
  double sum = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t j = 0; j < a.size(); ++j) sum += a[i][j] * b[i][j];
  }
  return sum;
}

TEST(HeadSimilarities, AreThoseOfCentredGramMatrices) {
  const Transformer model = Transformer::load(test::test_data("tiny_bert"));
  Workspace workspace;
  std::vector<Capture> texts;
  for (const Index length : {13, 20}) {
    texts.push_back(capture_heads(model, test::some_ids(length, model.config().vocabulary, static_cast<std::uint64_t>(length)), workspace));
  }
  const HeadMatrix got = head_similarities(texts, workspace);
  EXPECT_EQ(got.rows, 33);
  std::vector<Rows> grams;
  for (const HeadId& id : got.heads) grams.push_back(centred_gram(rows_of(texts, id)));
  for (Index a = 0; a < got.size(); ++a) {
    for (Index b = 0; b < got.size(); ++b) {
      const Rows& k = grams[static_cast<std::size_t>(a)];
      const Rows& l = grams[static_cast<std::size_t>(b)];
      const double expected = inner(k, l) / std::sqrt(inner(k, k) * inner(l, l));
      EXPECT_NEAR(got.at(a, b), expected, 33 * 33 * 8 * test::unit_roundoff(DType::F64)) << a << " " << b;
    }
  }
  Workspace serial(serial_executor());
  EXPECT_EQ(head_similarities(texts, serial).values, got.values);
}

/// Heads of 8 rows and two numbers each: plain; turned, scaled and moved; unrelated; the same in every row.
class KnownOutputs : public testing::Test {
 protected:
  KnownOutputs() {
    const auto nothing = test::self_head();
    CapturedLayer& layer = synthetic_.add_layer({nothing, nothing, nothing, nothing});
    Tensor& out = synthetic_.keep(Tensor(DType::F32, {1, 8, 4, 2}));
    float* x = out.data<float>();
    for (int row = 0; row < 8; ++row) {
      const float a = (row & 1) != 0 ? 1.0F : -1.0F;
      const float b = (row & 2) != 0 ? 1.0F : -1.0F;
      const float c = (row & 4) != 0 ? 1.0F : -1.0F;
      for (const float value : {a, b, 3 * b + 7, -3 * a - 2, c, a * b, 0.3F, 1e8F}) *x++ = value;
    }
    layer.head_out = out;
  }
  test::SyntheticCapture synthetic_{8};
  Workspace workspace_;
};

TEST_F(KnownOutputs, EqualTurnedUnrelatedConstant) {
  const HeadMatrix got = head_similarities({&synthetic_.capture(), 1}, workspace_);
  EXPECT_NEAR(got.at(0, 0), 1.0, 4 * test::unit_roundoff(DType::F64));
  EXPECT_NEAR(got.at(0, 1), 1.0, 4 * test::unit_roundoff(DType::F64));
  EXPECT_EQ(got.at(0, 2), 0.0);
  EXPECT_TRUE(std::isnan(got.at(0, 3)));
  EXPECT_TRUE(std::isnan(got.at(3, 3)));
}

TEST_F(KnownOutputs, RefusesWhatDoesNotFit) {
  Capture bare = synthetic_.capture();
  bare.layers[0].head_out = {};
  EXPECT_TRUE(test::mentions(test::text_of<ShapeError>([&] { head_similarities({&bare, 1}, workspace_); }), "no head_out"));
  Capture other = synthetic_.capture();
  const Tensor wider(DType::F32, {1, 8, 4, 3});
  other.layers[0].head_out = wider;
  const std::vector<Capture> both = {synthetic_.capture(), other};
  EXPECT_TRUE(test::mentions(test::text_of<ShapeError>([&] { head_similarities(both, workspace_); }), "2 and of 3 numbers"));
  EXPECT_THROW(head_similarities({}, workspace_), ShapeError);
}

}  // namespace
}  // namespace mha
