// parse_json and JsonFields: values, limits, and errors that name file and field.
#include "model/json_fields.h"

#include <gtest/gtest.h>

#include <limits>

#include "mha/error.h"
#include "support/errors.h"

namespace mha::model {
namespace {

using test::mentions;
using test::text_of;

TEST(JsonFields, BuildsWhatTheLibraryBuilds) {
  const std::string text = R"( {"a":[1,-2,3.5,true,null,"x\u00e9",[],{}],"b":{"c":{"d":[[1],[2,[3]]]}},"":18446744073709551615} )";
  EXPECT_EQ(parse_json(text, "f"), Json::parse(text));
  EXPECT_EQ(parse_json("7", "f"), Json(7));
  EXPECT_TRUE(mentions(text_of<FormatError>([] { parse_json(std::string_view("{}\0{", 4), "f"); }), "f: broken JSON at byte 2"));
}

TEST(JsonFields, Limits) {
  EXPECT_EQ(parse_json("[[1]]", "f", 0, {.depth = 2}).size(), 1U);
  EXPECT_TRUE(mentions(text_of<FormatError>([] { parse_json("[[1]]", "f", 0, {.depth = 1}); }), "f: ", "deeper than 1"));
  EXPECT_EQ(parse_json("[1,2]", "f", 0, {.values = 3}).size(), 2U);
  EXPECT_TRUE(mentions(text_of<FormatError>([] { parse_json("[1,2]", "f", 0, {.values = 2}); }), "more than 2 values"));
  EXPECT_TRUE(mentions(text_of<FormatError>([] { parse_json("[1,]", "f", 100); }), "byte 103"));
}

TEST(JsonFields, TypedAccess) {
  const Json json = parse_json(R"({"t":"x","b":true,"i":-3,"n":1.5,"z":null,"o":{"i":"no"},"big":9223372036854775808})", "f.json");
  const JsonFields fields(json, "f.json");
  EXPECT_EQ(fields.text("t"), "x");
  EXPECT_TRUE(fields.flag("b"));
  EXPECT_EQ(fields.integer("i", -5, 5), -3);
  EXPECT_EQ(fields.number("n"), 1.5);
  EXPECT_EQ(fields.number("i"), -3.0);
  EXPECT_FALSE(fields.has("z"));
  EXPECT_EQ(fields.text_or("z", "d"), "d");
  EXPECT_EQ(fields.integer_or("none", 0, 9, 4), 4);
  EXPECT_FALSE(fields.flag_or("none", false));
  EXPECT_EQ(fields.number_or("n", 2.0), 1.5);
  EXPECT_TRUE(mentions(text_of<FormatError>([&] { fields.text("none"); }), "f.json: none: is missing"));
  EXPECT_TRUE(mentions(text_of<FormatError>([&] { fields.text("z"); }), "missing"));
  EXPECT_TRUE(mentions(text_of<FormatError>([&] { fields.text("i"); }), "f.json: i: is number, a string"));
  EXPECT_TRUE(mentions(text_of<FormatError>([&] { fields.flag_or("t", true); }), "true or false"));
  EXPECT_TRUE(mentions(text_of<FormatError>([&] { fields.integer("n", 0, 9); }), "1.5"));
  EXPECT_TRUE(mentions(text_of<FormatError>([&] { fields.integer("i", 0, 9); }), "-3", "0 to 9"));
  EXPECT_TRUE(mentions(text_of<FormatError>([&] { fields.integer("big", 0, std::numeric_limits<Index>::max()); }), "9223372036854775808"));
  EXPECT_TRUE(mentions(text_of<FormatError>([&] { fields.object("o").integer("i", 0, 9); }), "f.json: o.i: is string"));
  EXPECT_TRUE(mentions(text_of<FormatError>([&] { fields.object("t"); }), "f.json: t is string"));
}

TEST(JsonFields, Printable) {
  EXPECT_EQ(printable("a\nb\x1B\xC3"), "'a\\x0ab\\x1b\\xc3'");
  EXPECT_EQ(printable(std::string(100, 'x')), "'" + std::string(80, 'x') + "'...");
}

}  // namespace
}  // namespace mha::model
