// What pictures do with hidden cells, keys of their own and shapes that do not fit; that what is drawn is what weighs is held by
// tests/apps/export_test.py, on whole files.
#include "mha/view/picture.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "analysis/units.h"
#include "mha/error.h"
#include "support/errors.h"
#include "view/cells.h"

namespace mha {
namespace {

constexpr float kHidden = std::numeric_limits<float>::quiet_NaN();

struct Drawn {
  std::vector<float> weights;
  Picture picture;
};

/// One head on "a b c" that sees nothing after itself.
Drawn causal_picture() {
  Drawn drawn{.weights = {1.0F, kHidden, kHidden, 0.25F, 0.75F, kHidden, 0.5F, 0.25F, 0.25F}, .picture = {.text = "a b c"}};
  drawn.picture.queries = {test::unit("a", 0), test::unit("b", 1), test::unit("c", 2)};
  drawn.picture.heads.push_back({.id = {1, 2}, .weights = ConstTensorView(drawn.weights.data(), {3, 3})});
  return drawn;
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(Picture, HiddenIsNotZero) {
  const Drawn drawn = causal_picture();
  const std::string csv = weights_csv(drawn.picture);
  EXPECT_NE(csv.find("1,2,0,1,a,b,\r\n"), std::string::npos);
  EXPECT_NE(csv.find("1,2,1,0,b,a,0.25\r\n"), std::string::npos);
  const auto json = nlohmann::json::parse(weights_json(drawn.picture));
  EXPECT_TRUE(json["heads"][0]["weights"][0][1].is_null());
  EXPECT_EQ(json["heads"][0]["weights"][2][0], 0.5);
  EXPECT_EQ(count(matrix_svg(drawn.picture), "url(#mha-hatch)"), 1U);
  EXPECT_EQ(count(arcs_svg(drawn.picture), "class=\"head\""), 3U);  // a <- b, a <- c, b <- c
}

TEST(Picture, JsonHasNoWordForInfinity) {
  Drawn drawn = causal_picture();
  drawn.weights[3] = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(nlohmann::json::parse(weights_json(drawn.picture))["heads"][0]["weights"][1][0].is_null());
}

TEST(Picture, SharesOfARowThatIsPartlyHiddenAddUp) {
  Drawn drawn = causal_picture();
  drawn.picture.heads[0].marks = {{1, 0}};
  const std::string svg = arcs_svg(drawn.picture);
  EXPECT_NE(svg.find("0.25 of its attention is drawn; the rest: 0.75 itself, 0.00 weaker links."), std::string::npos) << svg;
}

TEST(Picture, KeysOfTheirOwnAreATableNotArcs) {
  Drawn drawn = causal_picture();
  drawn.picture.keys = {test::unit("x", 0), test::unit("y", 1)};
  drawn.picture.heads[0].weights = ConstTensorView(drawn.weights.data(), {3, 2});
  EXPECT_TRUE(test::mentions(test::text_of<Error>([&] { arcs_svg(drawn.picture); }), "matrix"));
  const std::string svg = matrix_svg(drawn.picture);
  for (const char* name : {">a<", ">c<", ">x<", ">y<"}) EXPECT_NE(svg.find(name), std::string::npos) << name;
  EXPECT_EQ(nlohmann::json::parse(weights_json(drawn.picture))["keys"].size(), 2U);
}

TEST(Picture, WhatDoesNotFitIsRefusedWithTheNumbers) {
  Drawn drawn = causal_picture();
  drawn.picture.heads[0].weights = ConstTensorView(drawn.weights.data(), {3, 2});
  for (const auto& draw : {arcs_svg, matrix_svg, atlas_svg, weights_csv, weights_json}) {
    EXPECT_TRUE(test::mentions(test::text_of<ShapeError>([&] { draw(drawn.picture); }), "layer 1, head 2", "[3, 2]", "3 columns"));
  }
  drawn = causal_picture();
  drawn.picture.heads[0].marks = {{0, 3}};
  EXPECT_TRUE(test::mentions(test::text_of<ShapeError>([&] { matrix_svg(drawn.picture); }), "3"));
  EXPECT_THROW(matrix_png(causal_picture().picture, 0), Error);
  drawn.picture.heads.clear();
  EXPECT_THROW(matrix_png(drawn.picture, 1), Error);
  EXPECT_NE(matrix_svg(drawn.picture).find("</svg>"), std::string::npos);
}

TEST(Picture, ManyCellsAreAnImageAndAMapIsAPixelACell) {
  std::vector<float> weights(70 * 70, 0.0F);
  weights[69] = 1.0F;
  Picture picture{.text = "long"};
  for (Index i = 0; i < 70; ++i) picture.queries.push_back(test::unit("w", i));
  picture.heads.push_back({.id = {0, 0}, .weights = ConstTensorView(weights.data(), {70, 70})});
  EXPECT_EQ(count(matrix_svg(picture), "<image"), 1U);
  const std::string png = map_png(ConstTensorView(weights.data(), {35, 140}));
  EXPECT_EQ(png.substr(0, 8), "\x89PNG\r\n\x1a\n");
  EXPECT_EQ(static_cast<int>(static_cast<unsigned char>(png[19])), 140);  // width, then height, big endian
  EXPECT_EQ(static_cast<int>(png[23]), 35);
  EXPECT_THROW(map_png(ConstTensorView(weights.data(), {70})), ShapeError);
}

TEST(Picture, AtMostFiveHundredArcsTheStrongest) {
  std::vector<float> weights(40 * 40);
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<float>(i + 1) / 4000.0F;
  Picture picture{.text = "w", .least = 0.0};
  for (Index i = 0; i < 40; ++i) picture.queries.push_back(test::unit("w", i));
  picture.heads.push_back({.id = {0, 0}, .weights = ConstTensorView(weights.data(), {40, 40})});
  const std::string svg = arcs_svg(picture);
  EXPECT_EQ(count(svg, "class=\"head\""), 500U);
  EXPECT_NE(svg.find("0.400</title>"), std::string::npos);
  EXPECT_EQ(svg.find("0.100</title>"), std::string::npos);
}

}  // namespace
}  // namespace mha
