// Who may ask: every way in which another site, a rebound name or a neighbour could, is refused; the page itself is not.
#include "serve/guard.h"

#include <gtest/gtest.h>

#include <set>

namespace mha::serve {
namespace {

/// The status of the refusal, 0 where there is none.
int status(const Guard& guard, const Visitor& visitor) {
  const auto refusal = guard.refusal(visitor);
  return refusal ? refusal->status : 0;
}

Visitor page(std::string_view host) {
  return {.method = "GET", .target = "/", .host = host, .origin = {}, .fetch_site = {}, .content_type = {}, .cookie = {}, .token = {}};
}

Visitor api(std::string_view host, std::string_view origin, std::string_view site) {
  Visitor visitor = page(host);
  visitor.target = "/api/info";
  visitor.origin = origin;
  visitor.fetch_site = site;
  return visitor;
}

TEST(Guard, KnowsItsOwnHost) {
  const Guard guard("127.0.0.1", 8642, "");
  for (const char* host : {"127.0.0.1:8642", "localhost:8642", "LocalHost:8642", "[::1]:8642"})
    EXPECT_EQ(status(guard, page(host)), 0) << host;
  for (const char* host : {"", "127.0.0.1", "localhost", "127.0.0.1:80", "evil.example:8642", "127.0.0.1.evil.example:8642",
                           "localhost:8642.evil.example", "127.0.0.1:8642@evil.example", "0.0.0.0:8642", "[::1]"}) {
    EXPECT_EQ(status(guard, page(host)), 403) << host;
  }
  EXPECT_EQ(status(Guard("127.0.0.1", 80, ""), page("localhost")), 0);
}

TEST(Guard, BoundToAllAddressesTakesAddressesOnly) {
  const Guard guard("0.0.0.0", 8642, "");
  for (const char* host : {"192.168.1.7:8642", "[fe80::1]:8642", "localhost:8642"}) EXPECT_EQ(status(guard, page(host)), 0) << host;
  for (const char* host : {"evil.example:8642", "192.168.1.7", "192.168.1.7:80", "[evil]:8642", ":8642"}) {
    EXPECT_EQ(status(guard, page(host)), 403) << host;
  }
}

TEST(Guard, OtherSitesMayNotAsk) {
  const Guard guard("127.0.0.1", 8642, "");
  const std::string_view host = "127.0.0.1:8642";
  EXPECT_EQ(status(guard, api(host, "", "")), 0);  // a program
  EXPECT_EQ(status(guard, api(host, "http://127.0.0.1:8642", "same-origin")), 0);
  EXPECT_EQ(status(guard, api(host, "", "none")), 0);  // the address typed in
  EXPECT_EQ(status(guard, api("localhost:8642", "http://localhost:8642", "same-origin")), 0);
  for (const char* origin :
       {"null", "http://evil.example", "https://127.0.0.1:8642", "http://127.0.0.1:8643", "http://localhost:8642", "http://127.0.0.1"}) {
    EXPECT_EQ(status(guard, api(host, origin, "")), 403) << origin;
  }
  for (const char* site : {"cross-site", "same-site", "anything"}) EXPECT_EQ(status(guard, api(host, "", site)), 403) << site;
  Visitor disguised = api(host, "", "cross-site");
  for (const char* target : {"/%61pi/info", "/api%2Finfo", "/ap%69/runs/1/effects?by=zero", "/%"}) {
    disguised.target = target;
    EXPECT_EQ(status(guard, disguised), 400) << target;
  }
  disguised = api(host, "", "same-origin");
  disguised.target = "/api/runs/1/page.html?state=%7B%7D";
  EXPECT_EQ(status(guard, disguised), 0) << "what follows the ? may be encoded";
  Visitor link = page(host);
  link.fetch_site = "cross-site";
  EXPECT_EQ(status(guard, link), 0);  // a link to the page is no question to it
}

TEST(Guard, PostsAreJson) {
  const Guard guard("127.0.0.1", 8642, "");
  Visitor visitor = api("127.0.0.1:8642", "", "");
  visitor.method = "POST";
  visitor.target = "/api/runs";
  for (const char* type :
       {"", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=application/json", "application/jsonp"}) {
    visitor.content_type = type;
    EXPECT_EQ(status(guard, visitor), 415) << type;
  }
  for (const char* type :
       {"application/json", "Application/JSON; charset=utf-8", "application/json ; charset=utf-8", "\tapplication/json "}) {
    visitor.content_type = type;
    EXPECT_EQ(status(guard, visitor), 0) << type;
  }
}

TEST(Guard, TheTokenIsWantedOnceAndKeptAsACookie) {
  const std::string token = random_token();
  const Guard guard("192.168.1.7", 8642, token);
  const std::string_view host = "192.168.1.7:8642";
  EXPECT_EQ(status(guard, page(host)), 401);
  EXPECT_EQ(status(guard, api(host, "", "")), 401);
  Visitor first = page(host);
  const std::string target = "/?token=" + token;
  first.target = target;
  const auto answer = guard.refusal(first);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 303);
  EXPECT_EQ(answer->headers[0], std::pair(std::string("Location"), std::string("/")));
  const std::string cookie = answer->headers[1].second;
  EXPECT_EQ(answer->headers[1].first, "Set-Cookie");
  EXPECT_NE(cookie.find("HttpOnly; SameSite=Strict"), std::string::npos);
  Visitor second = api(host, "", "");
  const std::string cookies = "other=1; " + cookie.substr(0, cookie.find(';'));
  second.cookie = cookies;
  EXPECT_EQ(status(guard, second), 0);
  Visitor program = api(host, "", "");
  program.token = token;
  EXPECT_EQ(status(guard, program), 0);
  const std::string wrong = "mha_8642=" + token.substr(1);
  second.cookie = wrong;
  EXPECT_EQ(status(guard, second), 401);
  const std::string elsewhere = "/api/info?token=" + token;
  Visitor by_address = api(host, "", "");
  by_address.target = elsewhere;
  EXPECT_EQ(status(guard, by_address), 401);
  first.target = "/?token=";
  EXPECT_EQ(status(guard, first), 401);
}

TEST(Guard, TokensAreLongAndNew) {
  std::set<std::string> tokens;
  for (int i = 0; i < 100; ++i) tokens.insert(random_token());
  EXPECT_EQ(tokens.size(), 100U);
  EXPECT_EQ(tokens.begin()->size(), 32U);
  EXPECT_TRUE(same_secret("abc", "abc"));
  for (const char* other : {"", "ab", "abd", "bbc", "abcd"}) EXPECT_FALSE(same_secret("abc", other));
}

TEST(Guard, LoopbackIsThisMachine) {
  for (const char* host : {"127.0.0.1", "127.8.0.1", "localhost", "::1"}) EXPECT_TRUE(is_loopback(host)) << host;
  for (const char* host : {"0.0.0.0", "::", "192.168.1.7", "128.0.0.1", "1270.0.0.1"}) EXPECT_FALSE(is_loopback(host)) << host;
}

TEST(Guard, OwnScriptsGetTheNonceAndTextsThatLookLikeThemDoNot) {
  const std::string html = "<style>a</style><script>\"<script>\" + \"<style>\"</script><p>x</p><script type=\"module\">b</script>";
  EXPECT_EQ(with_nonce(html, "N"),
            "<style nonce=\"N\">a</style><script nonce=\"N\">\"<script>\" + \"<style>\"</script><p>x</p><script nonce=\"N\" "
            "type=\"module\">b</script>");
  EXPECT_EQ(with_nonce("<script", "N"), "<script nonce=\"N\"");
  EXPECT_EQ(with_nonce("", "N"), "");
  EXPECT_EQ(with_nonce("plain", "N"), "plain");
  EXPECT_NE(content_policy("N").find("script-src 'nonce-N'"), std::string::npos);
  EXPECT_EQ(content_policy("").find("nonce"), std::string::npos);
}

}  // namespace
}  // namespace mha::serve
