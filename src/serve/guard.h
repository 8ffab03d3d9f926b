// Who may ask: Host, Origin, Sec-Fetch-Site and the token, against pages of other sites, DNS rebinding and the neighbours; and what
// browsers are told to allow the page. Pure; called by server.cpp.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mha/view/microscope.h"

namespace mha::serve {

/// What of a request the guard looks at. Header fields as they came, empty where absent.
struct Visitor {
  std::string_view method, target, host, origin, fetch_site, content_type, cookie, token;
};

class Guard {
 public:
  /// `token` empty: none is demanded.
  Guard(const std::string& host, int port, std::string token);

  /// The answer to who may not ask, or to the first visit with the token in its address; nothing where the request may go on.
  std::optional<view::Response> refusal(const Visitor& visitor) const;
  const std::string& token() const { return token_; }

 private:
  bool is_own_host(std::string_view host) const;
  bool knows_token(const Visitor& visitor) const;
  std::string cookie_name() const;

  std::vector<std::string> hosts_;  // with port
  bool any_address_;                // bound to all: whatever address it is reached by
  int port_;
  std::string token_;
};

/// Whether only this machine reaches the address.
bool is_loopback(const std::string& host);
/// 32 hexadecimal digits from the system's source of randomness.
std::string random_token();
/// Whether two texts are the same, in a time that tells nothing of where they differ.
bool same_secret(std::string_view a, std::string_view b);

/// HTML with `nonce` on its own <script> and <style> elements, those that a text inside of one only looks like left out.
std::string with_nonce(std::string_view html, const std::string& nonce);
/// The Content-Security-Policy of an answer; `nonce` empty: of one that is no page.
std::string content_policy(const std::string& nonce);

}  // namespace mha::serve
