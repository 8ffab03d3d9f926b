// The microscope's answers against the library's own functions, and what it refuses. On the small model of tests/data.
#include "mha/view/microscope.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <thread>

#include "analysis/tiny_tokenizer.h"
#include "mha/analysis/ablation.h"
#include "mha/analysis/head_table.h"
#include "mha/analysis/measures.h"
#include "mha/analysis/norms.h"
#include "support/errors.h"
#include "support/near.h"

namespace mha::view {
namespace {

using nlohmann::json;

constexpr const char* kText = "The man saw astronomers with a telescope.";

struct Numbers {
  std::vector<Index> shape;
  std::string dtype;
  std::vector<double> values;
};

class MicroscopeTest : public testing::Test {
 protected:
  Response get(const std::string& target) const { return microscope_.answer({.target = target}); }
  json get_json(const std::string& target) const {
    const Response response = get(target);
    EXPECT_EQ(response.status, 200) << target << ": " << response.body;
    return json::parse(response.body);
  }
  Response post(const json& body) const { return microscope_.answer({.method = "POST", .target = "/api/runs", .body = body.dump()}); }
  json run(const json& body) const {
    const Response response = post(body);
    EXPECT_EQ(response.status, 200) << response.body;
    return json::parse(response.body);
  }
  std::string run_of(const std::string& text) const { return "/api/runs/" + run({{"text", text}})["run"].get<std::string>(); }

  Numbers numbers(const std::string& target) const {
    const Response response = get(target);
    EXPECT_EQ(response.status, 200) << target << ": " << response.body;
    Numbers found;
    for (const auto& [name, value] : response.headers) {
      if (name == "X-Mha-Dtype") found.dtype = value;
      if (name == "X-Mha-Shape") {
        for (const json& size : json::parse('[' + value + ']')) found.shape.push_back(size.get<Index>());
      }
    }
    const std::size_t size = found.dtype == "u8" ? 1 : found.dtype == "f16" ? 2 : 4;
    for (std::size_t at = 0; at < response.body.size(); at += size) {
      if (size == 1) {
        found.values.push_back(static_cast<unsigned char>(response.body[at]) / 255.0);
      } else if (size == 2) {
        F16 half;
        std::memcpy(&half.bits, response.body.data() + at, 2);
        found.values.push_back(static_cast<double>(half.to_float()));
      } else {
        float single = 0;
        std::memcpy(&single, response.body.data() + at, 4);
        found.values.push_back(static_cast<double>(single));
      }
    }
    Index count = 1;
    for (const Index n : found.shape) count *= n;
    EXPECT_EQ(count, static_cast<Index>(found.values.size())) << target;
    return found;
  }
  /// Half a step of the dtype at weights up to 1.
  static double step(const std::string& dtype) { return dtype == "u8" ? 0.5 / 255 : test::unit_roundoff(DType::F16); }

  HeadTable table(const std::vector<Unit>& units) { return read_heads(model_, sentence_.ids, units, workspace_); }

  Transformer model_ = Transformer::load(test::test_data("tiny_bert"));
  Tokenizer tokenizer_ = test::tiny_tokenizer();
  Sentence sentence_ = read_sentence(tokenizer_, kText);
  Workspace workspace_;
  Microscope microscope_{{.transformer = &model_, .tokenizer = &tokenizer_, .name = "tiny"}};
};

TEST_F(MicroscopeTest, InfoTellsModelLimitsAndMeasures) {
  const json info = get_json("/api/info");
  EXPECT_EQ(info["model"]["name"], "tiny");
  EXPECT_EQ(info["model"]["layers"], 2);
  EXPECT_EQ(info["model"]["heads"], 4);
  EXPECT_EQ(info["limits"]["tokens"], 40);
  EXPECT_EQ(info["measures"].size(), measures().size());
  EXPECT_EQ(info["examples"][0]["readings"][1]["links"], json::parse(R"([["man", "astronomer"], ["astronomer", "telescope"]])"));
  EXPECT_TRUE(info["tensors"].is_null());
}

TEST_F(MicroscopeTest, RunTellsUnitsAsTheyStandInTheText) {
  const json got = run({{"text", kText}});
  EXPECT_EQ(got["layers"].size(), 2U);
  EXPECT_TRUE(got["cut"].is_null());
  std::vector<std::string> words, pieces;
  for (const json& word : got["queries"]["words"]) words.push_back(word["text"]);
  for (const json& piece : got["queries"]["pieces"]) pieces.push_back(piece["text"]);
  EXPECT_EQ(words, (std::vector<std::string>{"[CLS]", "The", "man", "saw", "astronomers", "with", "a", "telescope", ".", "[SEP]"}));
  EXPECT_EQ(pieces,
            (std::vector<std::string>{"[CLS]", "The", "man", "saw", "astronom", "er", "s", "with", "a", "tele", "scope", ".", "[SEP]"}));
  EXPECT_EQ(got["queries"]["pieces"][5]["word"], 4);
  json again = get_json("/api/runs/" + got["run"].get<std::string>());
  EXPECT_EQ(again, got);
}

TEST_F(MicroscopeTest, TheSameWishIsTheSameRun) {
  const json a = run({{"text", kText}, {"zeroed", {{1, 2}, {0, 3}}}});
  const json b = run({{"zeroed", {{0, 3}, {1, 2}, {0, 3}}}, {"text", kText}, {"temperature", 1}});
  EXPECT_EQ(a, b);  // the milliseconds too: it was not run again
  EXPECT_NE(a["run"], run({{"text", kText}, {"zeroed", {{0, 3}}}})["run"]);
  EXPECT_NE(a["run"], run({{"text", kText}})["run"]);
}

TEST_F(MicroscopeTest, WeightsAreTheTable) {
  const std::string id = run_of(kText);
  for (const std::string unit : {"word", "piece"}) {
    const std::vector<Unit>& units = unit == "word" ? sentence_.words : sentence_.pieces;
    const auto count = static_cast<Index>(units.size());
    HeadTable expected = table(units);
    for (const std::string dtype : {"u8", "f16"}) {
      for (Index layer = 0; layer < 2; ++layer) {
        const Numbers got = numbers(id + "/weights?layer=" + std::to_string(layer) + "&unit=" + unit + "&dtype=" + dtype);
        ASSERT_EQ(got.shape, (std::vector<Index>{4, count, count}));
        EXPECT_EQ(got.dtype, dtype);
        for (Index i = 0; i < 4 * count * count; ++i) {
          const double weight = expected.weight({layer, i / (count * count)}, i / count % count, i % count);
          EXPECT_NEAR(got.values[static_cast<std::size_t>(i)], weight, step(dtype));
        }
      }
    }
  }
}

TEST_F(MicroscopeTest, RowIsRowAndColumnOfEveryTable) {
  const std::string id = run_of(kText);
  for (const std::string kind : {"weight", "norm"}) {
    const Numbers got = numbers(id + "/row?unit=word&index=4&kind=" + kind);
    const auto units = static_cast<Index>(sentence_.words.size());
    ASSERT_EQ(got.shape, (std::vector<Index>{8, 2, units}));
    for (Index layer = 0; layer < 2; ++layer) {
      const Numbers whole = numbers(id + "/weights?dtype=f16&layer=" + std::to_string(layer) + "&kind=" + kind);
      for (Index head = 0; head < 4; ++head) {
        for (Index u = 0; u < units; ++u) {
          const auto at = [&](Index from, Index to) { return whole.values[static_cast<std::size_t>((head * units + from) * units + to)]; };
          const auto row = static_cast<std::size_t>(((layer * 4 + head) * 2) * units + u);
          EXPECT_EQ(got.values[row], at(4, u));
          EXPECT_NEAR(got.values[row + static_cast<std::size_t>(units)], at(u, 4), step("f16"));
        }
      }
    }
  }
}

TEST_F(MicroscopeTest, NormsAreSharesOfWhatIsCarried) {
  const Numbers got = numbers(run_of(kText) + "/weights?layer=1&unit=piece&dtype=f16&kind=norm");
  const Capture capture = capture_heads(model_, sentence_.ids, workspace_);
  const auto n = static_cast<Index>(sentence_.ids.size());
  Tensor carried(DType::F32, {n, n});
  for (Index head = 0; head < 4; ++head) {
    captured_norms(capture.layers[1], value_norms(capture.layers[1], model_.output_projection(1), head),
                   {.batch = 0, .head = head, .queries = {0, n}, .keys = {0, n}}, carried, workspace_);
    for (Index q = 0; q < n; ++q) {
      const float* row = carried.data<float>() + q * n;
      double sum = 0;
      for (Index k = 0; k < n; ++k) sum += static_cast<double>(row[k]);
      for (Index k = 0; k < n; ++k) {
        EXPECT_NEAR(got.values[static_cast<std::size_t>((head * n + q) * n + k)], static_cast<double>(row[k]) / sum, step("f16"));
      }
    }
  }
}

TEST_F(MicroscopeTest, MapPools) {
  const std::string id = run_of(kText);
  const auto n = static_cast<Index>(sentence_.pieces.size());
  const Numbers pieces = numbers(id + "/weights?layer=1&unit=piece&dtype=f16");
  const auto weight = [&](Index q, Index k) { return pieces.values[static_cast<std::size_t>((2 * n + q) * n + k)]; };
  const Numbers near = numbers(id + "/map?layer=1&head=2&queries=3:7&keys=2:9");
  ASSERT_EQ(near.shape, (std::vector<Index>{4, 7}));
  for (Index i = 0; i < 28; ++i) EXPECT_NEAR(near.values[static_cast<std::size_t>(i)], weight(3 + i / 7, 2 + i % 7), step("f16"));
  for (const std::string pool : {"mean", "max"}) {
    const Numbers far = numbers(id + "/map?layer=1&head=2&rows=2&columns=3&pool=" + pool);
    ASSERT_EQ(far.shape, (std::vector<Index>{2, 3}));
    double sum = 0, most = 0;  // the last cell
    const Index q0 = n / 2, k0 = 2 * n / 3;
    for (Index q = q0; q < n; ++q) {
      for (Index k = k0; k < n; ++k) {
        sum += weight(q, k);
        most = std::max(most, weight(q, k));
      }
    }
    EXPECT_NEAR(far.values.back(), pool == "max" ? most : sum / static_cast<double>((n - q0) * (n - k0)), 2 * step("f16"));
  }
}

TEST_F(MicroscopeTest, WhatNobodyMayLookAtIsNoZero) {
  const json changed = run({{"text", kText}, {"hidden", {4}}});
  const std::string id = "/api/runs/" + changed["run"].get<std::string>();
  EXPECT_LT(changed["output"]["cosine"].get<double>(), 1.0);
  const auto words = static_cast<std::size_t>(sentence_.words.size());
  const Numbers exact = numbers(id + "/weights?layer=0&dtype=f16");
  const Numbers coarse = numbers(id + "/weights?layer=0");
  for (std::size_t i = 0; i < exact.values.size(); ++i) {
    EXPECT_EQ(std::isnan(exact.values[i]), i % words == 4);
    if (i % words == 4) {
      EXPECT_EQ(coarse.values[i], 0.0);
    }
  }
  const Numbers map = numbers(id + "/map?layer=0&head=0&rows=1&columns=1");
  EXPECT_FALSE(std::isnan(map.values[0]));  // some pairs of the cell are seen
  EXPECT_TRUE(std::isnan(numbers(id + "/map?layer=0&head=0&keys=4:6").values[0]));
  const Numbers row = numbers(id + "/row?index=4");
  EXPECT_FALSE(std::isnan(row.values[0]));
  EXPECT_TRUE(std::isnan(row.values[words]));  // the column
}

TEST_F(MicroscopeTest, ChangesMoveTheOutput) {
  EXPECT_TRUE(run({{"text", kText}})["output"].is_null());
  const auto cosine_of = [&](const json& body) { return run(body)["output"]["cosine"].get<double>(); };
  const double zero = cosine_of({{"text", kText}, {"zeroed", {{1, 2}}}});
  const double mean = cosine_of({{"text", kText}, {"mean", {{1, 2}}}});
  EXPECT_LT(zero, 1.0);
  EXPECT_LT(mean, 1.0);
  EXPECT_NE(zero, mean);
  EXPECT_LT(cosine_of({{"text", kText}, {"temperature", 3}}), 1.0);
  const json effects = get_json(run_of(kText) + "/effects?by=zero");
  EXPECT_NEAR(effects["values"][1][2].get<double>(), 1 - zero, 1e-6);
  const json by_mean = get_json(run_of(kText) + "/effects?by=mean");
  EXPECT_NEAR(by_mean["values"][1][2].get<double>(), 1 - mean, 1e-6);
}

TEST_F(MicroscopeTest, MeasuresAreThoseOfTheTable) {
  const json got = get_json(run_of(kText) + "/measures?unit=word");
  const HeadTable words = table(sentence_.words);
  const std::vector<Index> rows = plain_units(sentence_.words);
  EXPECT_EQ(got["rows"], json({{"read", rows.size()}, {"of", rows.size()}}));
  for (const MeasureInfo& info : measures()) {
    for (Index layer = 0; layer < 2; ++layer) {
      for (Index head = 0; head < 4; ++head) {
        const double value = got["values"][std::string(info.name)][static_cast<std::size_t>(layer)][static_cast<std::size_t>(head)];
        EXPECT_DOUBLE_EQ(value, measure(info.measure, words, {layer, head}, sentence_.words, rows)) << info.name;
      }
    }
  }
}

TEST_F(MicroscopeTest, LinksAreTheStrongest) {
  const json got = get_json(run_of(kText) + "/links?layer=0&head=1&top=7");
  ASSERT_EQ(got["links"].size(), 7U);
  const HeadTable words = table(sentence_.words);
  std::vector<float> all;
  for (Index from = 0; from < words.units(); ++from) {
    const auto row = words.row({0, 1}, from);
    all.insert(all.end(), row.begin(), row.end());
  }
  std::sort(all.rbegin(), all.rend());
  for (std::size_t i = 0; i < 7; ++i) {
    const json& link = got["links"][i];
    EXPECT_EQ(link[2].get<float>(), all[i]);
    EXPECT_EQ(link[2].get<float>(), words.weight({0, 1}, link[0], link[1]));
  }
}

TEST_F(MicroscopeTest, RolloutSharesSumToOne) {
  const Numbers got = numbers(run_of(kText) + "/rollout?index=2");
  double sum = 0;
  for (const double share : got.values) sum += share;
  EXPECT_NEAR(sum, 1.0, static_cast<double>(got.values.size()) * step("f16"));
}

TEST_F(MicroscopeTest, UsualIsWhatHeadsUsuallyDo) {
  UsualWeights kept(2, 4);
  kept.add(table(sentence_.words), sentence_.words);
  const Microscope microscope(
      {.transformer = &model_, .tokenizer = &tokenizer_, .name = "tiny", .usual = [&](const Executor&) { return kept; }});
  const Response response = microscope.answer({.target = "/api/usual"});
  ASSERT_EQ(response.body.size(), 2U * 4 * 65 * 4);
  float before = 0;
  std::memcpy(&before, response.body.data() + (65 * 5 + 31) * 4, 4);
  EXPECT_FLOAT_EQ(before, static_cast<float>(*kept.at({1, 1}, -1)));
  EXPECT_EQ(response.headers[0].second, "2,4,65");
}

TEST_F(MicroscopeTest, UsualEndsWhereNobodyWaitsAndIsNotKeptThen) {
  std::atomic<bool> gone{false};
  int asked = 0;
  const auto usual = [&](const Executor& executor) {
    gone = ++asked == 1;
    EXPECT_EQ(executor.stop(executor.context), asked == 1);
    UsualWeights whole(2, 4);
    if (asked == 2) whole.add(table(sentence_.words), sentence_.words);
    return whole;
  };
  const Microscope microscope({.transformer = &model_, .tokenizer = &tokenizer_, .name = "tiny", .usual = usual});
  EXPECT_EQ(microscope.answer({.target = "/api/usual"}, &gone).status, 503);
  EXPECT_GT(microscope.cost({.target = "/api/usual"}), 0U);
  gone = false;
  EXPECT_EQ(microscope.answer({.target = "/api/usual"}, &gone).status, 200);
  EXPECT_EQ(microscope.cost({.target = "/api/usual"}), 0U) << "it is there now";
  EXPECT_EQ(asked, 2);
}

TEST_F(MicroscopeTest, CostGrowsWithTheRunAndWithWhatIsDoneToIt) {
  const auto cost = [&](const std::string& target) { return microscope_.cost({.target = target}); };
  const std::string shorter = run_of("The man"), longer = run_of(kText);
  EXPECT_EQ(cost(longer), 0U);
  for (const char* what :
       {"/measures", "/links?layer=0&head=0", "/map?layer=0&head=0", "/row?index=1", "/rollout?index=1", "/weights?layer=0"}) {
    EXPECT_GT(cost(shorter + what), 0U) << what;
    EXPECT_GT(cost(longer + what), cost(shorter + what)) << what;
    EXPECT_GT(cost(longer + "/effects"), cost(longer + what)) << what;
  }
  EXPECT_EQ(microscope_.cost({.method = "POST", .target = "/api/runs", .body = "1234"}), 4U);
  EXPECT_EQ(cost("nonsense"), 0U);
}

TEST_F(MicroscopeTest, ALongTextIsCutAndSaysSo) {
  std::string text;
  for (int i = 0; i < 60; ++i) text += "man ";
  const json got = run({{"text", text}});
  EXPECT_EQ(got["cut"], json({{"read", 40}, {"of", 62}}));
  EXPECT_EQ(got["queries"]["words"].size(), 40U);
  EXPECT_EQ(got["queries"]["words"][39]["text"], "[SEP]");
}

TEST_F(MicroscopeTest, AnyTextComesBackAsItIs) {
  using namespace std::string_literals;
  const std::vector<std::pair<std::string, std::vector<std::string>>> cases = {
      {"<b>man</b> &amp; \"a\"", {"<", "b", ">", "man", "<", "/", "b", ">", "&", "amp", ";", "\"", "a", "\""}},
      {"רָאָה человек", {"רָאָה", "человек"}},
      {"天文 man", {"天", "文", "man"}},
      {"👩‍🔬", {"👩‍🔬"}},
      {"cafe\u0301 man\u0300\u0301", {"cafe\u0301", "man\u0300\u0301"}},
      {"\u202eman", {"man"}},
      {"a\0b"s, {"a\0b"s}}};
  for (const auto& [text, words] : cases) {
    const json got = run({{"text", text}});
    EXPECT_EQ(got["text"], text);
    std::vector<std::string> plain;
    for (const json& word : got["queries"]["words"]) {
      if (!word["special"]) plain.push_back(word["text"]);
    }
    EXPECT_EQ(plain, words) << text;
  }
  const std::string long_word(512, 'x');
  EXPECT_EQ(run({{"text", long_word}})["queries"]["words"][1]["text"], long_word);
}

TEST_F(MicroscopeTest, WrongRequestsAreAnsweredWithWhatToDo) {
  const std::string id = run_of(kText);
  const auto expect = [&](int status, const Request& request, const std::string& mentioned) {
    const Response response = microscope_.answer(request);
    EXPECT_EQ(response.status, status) << request.target << ' ' << response.body;
    const json error = json::parse(response.body);
    EXPECT_FALSE(error["remedy"].get<std::string>().empty());
    EXPECT_TRUE(test::mentions(error["error"].get<std::string>(), mentioned));
  };
  expect(404, {.target = "/api/nothing"}, "/api/nothing");
  expect(404, {.target = "/../../etc/passwd"}, "etc/passwd");
  expect(404, {.target = "/api/runs/0123456789abcdef"}, "0123456789abcdef");
  expect(404, {.target = id + "/nothing"}, "nothing");
  expect(405, {.method = "DELETE", .target = "/api/info"}, "DELETE");
  expect(405, {.target = "/api/runs"}, "GET");
  expect(400, {.target = "api/info"}, "api/info");
  expect(400, {.target = "/api/info%zz"}, "%");
  expect(400, {.target = id + "/weights"}, "layer");
  expect(400, {.target = id + "/weights?layer=2"}, "2 layers");
  expect(400, {.target = id + "/weights?layer=-1"}, "-1");
  expect(400, {.target = id + "/weights?layer=0&layer=1"}, "twice");
  expect(400, {.target = id + "/weights?layer=0&dtype=f64"}, "f64");
  expect(400, {.target = id + "/weights?layer=0&unit=letter"}, "letter");
  expect(400, {.target = id + "/row?index=10"}, "10 words");
  expect(400, {.target = id + "/row?index=99999999999999999999"}, "99999999999999999999");
  expect(400, {.target = id + "/map?layer=0&head=4"}, "4 heads");
  expect(400, {.target = id + "/map?layer=0&head=0&queries=5:5"}, "5:5");
  expect(400, {.target = id + "/map?layer=0&head=0&rows=14"}, "14");
  expect(400, {.target = id + "/links?layer=0&head=0&top=0"}, "top");
  for (const auto& [body, mentioned] :
       std::vector<std::pair<std::string, std::string>>{{"", "JSON"},
                                                        {"{", "JSON"},
                                                        {"[]", "object"},
                                                        {"{}", "text"},
                                                        {R"({"text": 1})", "text"},
                                                        {R"({"text": "   "})", "no word"},
                                                        {R"({"text": "man", "more": 1})", "more"},
                                                        {R"({"text": "man", "text": "a"})", "twice"},
                                                        {R"({"text": "man", "zeroed": [[2, 0]]})", "2 layers"},
                                                        {R"({"text": "man", "mean": [[0, 4]]})", "4 heads"},
                                                        {R"({"text": "man", "zeroed": [[0, 1], [1, 2]], "mean": [[1, 2]]})", "[1, 2]"},
                                                        {R"({"text": "man", "zeroed": [[0.5, 1]]})", "zeroed"},
                                                        {R"({"text": "man", "zeroed": 5})", "zeroed"},
                                                        {R"({"text": "man", "hidden": [3]})", "3 words"},
                                                        {R"({"text": "man", "temperature": 0})", "temperature"},
                                                        {R"({"text": "man", "temperature": 1e999})", "JSON"},
                                                        {"{\"text\": \"\xff\"}", "JSON"}}) {
    expect(400, {.method = "POST", .target = "/api/runs", .body = body}, mentioned);
  }
  expect(413, {.method = "POST", .target = "/api/runs", .body = std::string((1U << 20) + 1, ' ')}, "1048577");
}

TEST_F(MicroscopeTest, TooLargeAnswersAreRefused) {
  const Microscope microscope({.transformer = &model_, .tokenizer = &tokenizer_, .name = "tiny"}, {.answer_bytes = 300});
  const json got = json::parse(microscope.answer({.method = "POST", .target = "/api/runs", .body = json{{"text", kText}}.dump()}).body);
  const Response response = microscope.answer({.target = "/api/runs/" + got["run"].get<std::string>() + "/weights?layer=0"});
  EXPECT_EQ(response.status, 413);
  EXPECT_TRUE(test::mentions(response.body, "400", "300", "/map"));
}

TEST_F(MicroscopeTest, OldRunsMakeRoom) {
  const Microscope microscope({.transformer = &model_, .tokenizer = &tokenizer_, .name = "tiny"}, {.kept_bytes = 1});
  const auto id_of = [&](const std::string& text) {
    return json::parse(microscope.answer({.method = "POST", .target = "/api/runs", .body = json{{"text", text}}.dump()}).body)["run"]
        .get<std::string>();
  };
  const std::string first = id_of("man");
  EXPECT_EQ(microscope.answer({.target = "/api/runs/" + first}).status, 200);
  id_of("telescope");
  EXPECT_EQ(microscope.answer({.target = "/api/runs/" + first}).status, 404);
}

TEST_F(MicroscopeTest, WorkEndsWhenTheClientIsGoneOrTimeIsUp) {
  const std::atomic<bool> gone{true};
  EXPECT_EQ(microscope_.answer({.method = "POST", .target = "/api/runs", .body = json{{"text", kText}}.dump()}, &gone).status, 503);
  const Microscope hasty({.transformer = &model_, .tokenizer = &tokenizer_, .name = "tiny"}, {.seconds = 0});
  const Response response = hasty.answer({.method = "POST", .target = "/api/runs", .body = json{{"text", kText}}.dump()});
  EXPECT_EQ(response.status, 503);
  EXPECT_EQ(post({{"text", kText}}).status, 200);  // what was stopped is not kept for an answer
}

TEST_F(MicroscopeTest, SeveralThreadsMayAsk) {
  const std::string id = run_of(kText);
  const std::string expected = get(id + "/weights?layer=1").body;
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 5; ++i) {
        if (get(id + "/weights?layer=1").body != expected) ++wrong;
        if (post({{"text", "the man " + std::to_string(10 * t + i)}}).status != 200) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(MicroscopeTest, WithoutAModelTextsAreRefused) {
  const Microscope microscope({});
  EXPECT_TRUE(json::parse(microscope.answer({.target = "/api/info"}).body)["model"].is_null());
  EXPECT_EQ(microscope.answer({.method = "POST", .target = "/api/runs", .body = R"({"text": "man"})"}).status, 404);
  EXPECT_EQ(microscope.answer({.target = "/api/usual"}).status, 404);
}

}  // namespace
}  // namespace mha::view
