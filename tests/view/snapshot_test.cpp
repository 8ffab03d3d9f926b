// The self-contained page: what is recorded, what is given up first, and that nothing in it can become markup.
#include "view/snapshot.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "analysis/tiny_tokenizer.h"
#include "mha/error.h"
#include "model/encoder_case.h"
#include "support/errors.h"

namespace mha::view {
namespace {

using nlohmann::json;

constexpr const char* kPage = "<html><head><title>p</title></head><body><script type=\"module\">own</script></body></html>";

/// Two layers of 2 heads on three words that are four pieces. Norms are refused, as where a run has no values.
Response fake(const std::string& target) {
  if (target == "/") return {.body = kPage};
  if (target == "/api/info") return {.type = "application/json", .body = "{}"};
  if (target == "/api/runs/7") {
    const json layer = {{"heads", 2}, {"q_len", 4}, {"kv_len", 4}};
    const json run = {{"text", "</script><b>&"},
                      {"layers", {layer, layer}},
                      {"keys", nullptr},
                      {"queries", {{"words", {1, 2, 3}}, {"pieces", {1, 2, 3, 4}}}}};
    return {.type = "application/json", .body = run.dump()};
  }
  if (target.find("kind=norm") != std::string::npos || target.find("/api/runs/8") == 0)
    return error_response(404, "not there", "look elsewhere");
  if (target.find("/weights") == std::string::npos) return {.type = "application/json", .body = "{}"};
  const std::size_t cells = 2 * (target.find("word") != std::string::npos ? 9 : 16) * (target.find("f16") != std::string::npos ? 2 : 1);
  return {
      .type = "application/octet-stream", .body = std::string(cells, '<'), .headers = {{"X-Mha-Shape", "2,3,3"}, {"X-Mha-Dtype", "u8"}}};
}

json snapshot_in(const std::string& page) {
  const std::string mark = "id=\"mha-snapshot\">";
  const std::size_t begin = page.find(mark) + mark.size();
  const std::size_t end = page.find('<', begin);
  EXPECT_EQ(page.substr(end, 9), "</script>");
  return json::parse(page.substr(begin, end - begin));
}

TEST(Snapshot, HoldsWhatThePageAsksForBeforeItsOwnScript) {
  const std::string page = record_page(fake, "7", {.state = "layer=1&head=1&text=<b>"});
  EXPECT_LT(page.find("mha-snapshot"), page.find("type=\"module\""));
  EXPECT_NE(page.find("default-src 'none'"), std::string::npos);
  const json snapshot = snapshot_in(page);
  EXPECT_EQ(snapshot["state"], "layer=1&head=1&text=<b>");
  std::vector<std::string> wanted = {"GET /api/info", "GET /api/runs/7", "GET /api/usual", "GET /api/runs/7/measures?unit=word",
                                     "GET /api/runs/7/measures?unit=piece"};
  for (const char* unit : {"word", "piece"}) {
    for (const char* layer : {"0", "1"}) {
      for (const char* dtype : {"u8", "f16"})
        wanted.push_back(std::string("GET /api/runs/7/weights?layer=") + layer + "&unit=" + unit + "&dtype=" + dtype + "&kind=weight");
    }
  }
  for (const std::string& target : wanted) EXPECT_TRUE(snapshot["responses"].contains(target)) << target;
  EXPECT_EQ(snapshot["responses"].size(), wanted.size());
  EXPECT_EQ(snapshot["left_out"], 4);  // norms: two layers, two units
  const json& table = snapshot["responses"]["GET /api/runs/7/weights?layer=0&unit=word&dtype=u8&kind=weight"];
  EXPECT_EQ(table["shape"], "2,3,3");
  EXPECT_EQ(table["body"], "PDw8PDw8PDw8PDw8PDw8PDw8");  // 18 times '<'
}

TEST(Snapshot, TheSelectedLayerIsGivenUpLast) {
  const std::size_t run = fake("/api/runs/7").body.size();
  const json snapshot = snapshot_in(record_page(fake, "7", {.state = "layer=1&unit=piece", .bytes = run + 2 + 32 + 64 + 2 + 2 + 20}));
  const json& kept = snapshot["responses"];
  EXPECT_TRUE(kept.contains("GET /api/runs/7/weights?layer=1&unit=piece&dtype=u8&kind=weight"));
  EXPECT_TRUE(kept.contains("GET /api/runs/7/weights?layer=1&unit=piece&dtype=f16&kind=weight"));
  EXPECT_FALSE(kept.contains("GET /api/runs/7/weights?layer=0&unit=piece&dtype=u8&kind=weight"));
  EXPECT_TRUE(kept.contains("GET /api/runs/7/weights?layer=0&unit=word&dtype=u8&kind=weight"));  // the next that has room: 18 of 20
  EXPECT_GT(snapshot["left_out"], 4);
}

TEST(Snapshot, OfNoRunIsAnErrorWithTheRemedy) {
  EXPECT_TRUE(test::mentions(test::text_of<Error>([] { record_page(fake, "8", {}); }), "not there", "look elsewhere"));
  const auto busy = [](const std::string& target) {
    return target == "/api/usual" ? error_response(503, "time is up", "shorter") : fake(target);
  };
  EXPECT_TRUE(test::mentions(test::text_of<Error>([&] { record_page(busy, "7", {}); }), "time is up"));
}

TEST(Snapshot, SaysWhatWasChangedInTheRun) {
  const auto changed = [](const std::string& target) {
    Response response = fake(target);
    if (target != "/api/runs/7") return response;
    json run = json::parse(response.body);
    run["changed"] = {{"zeroed", {{5, 11}, {0, 3}}}, {"mean", json::array()}, {"hidden", {4}}, {"temperature", 2.5}};
    response.body = run.dump();
    return response;
  };
  EXPECT_EQ(snapshot_in(record_page(changed, "7", {.state = "layer=1"}))["state"], "layer=1&zeroed=5.11,0.3&hidden=4&temperature=2.5");
  EXPECT_EQ(snapshot_in(record_page(changed, "7", {.state = "zeroed=0.0&hidden=1&temperature=3"}))["state"],
            "zeroed=0.0&hidden=1&temperature=3");
}

TEST(Snapshot, OfARealRunHoldsWhatTheMicroscopeAnswers) {
  const Transformer model = Transformer::load(test::test_data("tiny_bert"));
  const Tokenizer tokenizer = test::tiny_tokenizer();
  const Microscope microscope({.transformer = &model, .tokenizer = &tokenizer, .name = "tiny"},
                              {.page = [](const std::string&) { return std::string(kPage); }});
  const std::string run = json::parse(
      microscope.answer({.method = "POST", .target = "/api/runs", .body = R"({"text": "the astronomer saw a man"})"}).body)["run"];
  const std::string page = snapshot_html(microscope, run, {.state = "layer=1"});
  const json snapshot = snapshot_in(page);
  // Two units; of each layer u8 and f16 weights and norms.
  const auto wanted = static_cast<std::size_t>(5 + 2 * model.config().layers * 3);
  EXPECT_EQ(snapshot["responses"].size() + snapshot["left_out"].get<std::size_t>(), wanted);
  const Response file = microscope.answer({.target = "/api/runs/" + run + "/page.html?state=layer%3D1"});
  EXPECT_EQ(file.status, 200);
  EXPECT_EQ(file.body, page);
}

}  // namespace
}  // namespace mha::view
