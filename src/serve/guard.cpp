// A browser sends Host, Origin and Sec-Fetch-Site by itself and no page can forge them: a page of another site, or a name that was made to
// point here, is told by them. Programs beside the browser send what they like, and reach the port anyway.
#include "serve/guard.h"

#include <algorithm>
#include <cctype>
#include <random>

#include "core/check.h"

namespace mha::serve {
namespace {

using core::join;
using view::Response;

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

/// A header's text for a message: short, and of plain characters.
std::string shown(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 80)) out += c >= ' ' && c <= '~' ? c : '?';
  return '"' + out + '"';
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t";
  const std::size_t first = text.find_first_not_of(kBlanks);
  return first == std::string_view::npos ? std::string_view() : text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

bool is_api(std::string_view target) { return target.starts_with("/api"); }

std::string_view parameter(std::string_view target, std::string_view name) {
  std::size_t at = target.find('?');
  while (at != std::string_view::npos) {
    const std::string_view rest = target.substr(at + 1);
    const std::string_view part = rest.substr(0, rest.find('&'));
    if (part.size() > name.size() && part.starts_with(name) && part[name.size()] == '=') return part.substr(name.size() + 1);
    at = target.find('&', at + 1);
  }
  return {};
}

std::string_view cookie_value(std::string_view cookies, std::string_view name) {
  while (!cookies.empty()) {
    const std::size_t end = cookies.find(';');
    std::string_view part = cookies.substr(0, end);
    cookies = end == std::string_view::npos ? std::string_view() : cookies.substr(end + 1);
    while (part.starts_with(' ')) part.remove_prefix(1);
    if (part.size() > name.size() && part.starts_with(name) && part[name.size()] == '=') return part.substr(name.size() + 1);
  }
  return {};
}

/// An IPv4 address or one of IPv6 in brackets: what a name that points here cannot look like.
bool is_address(std::string_view host) {
  if (host.empty()) return false;
  if (host.front() == '[') return host.back() == ']' && host.find_first_not_of("0123456789abcdef:.[]") == std::string_view::npos;
  return host.find_first_not_of("0123456789.") == std::string_view::npos;
}

}  // namespace

Guard::Guard(const std::string& host, int port, std::string token)
    : any_address_(host == "0.0.0.0" || host == "::"), port_(port), token_(std::move(token)) {
  std::vector<std::string> names = {host.find(':') != std::string::npos ? '[' + lower(host) + ']' : lower(host)};
  if (is_loopback(host) || any_address_) names.insert(names.end(), {"localhost", "127.0.0.1", "[::1]"});
  for (const std::string& name : names) {
    hosts_.push_back(name + ':' + std::to_string(port));
    if (port == 80) hosts_.push_back(name);
  }
}

bool Guard::is_own_host(std::string_view host) const {
  const std::string asked = lower(host);
  if (std::find(hosts_.begin(), hosts_.end(), asked) != hosts_.end()) return true;
  if (!any_address_) return false;
  const std::string port = ':' + std::to_string(port_);
  return asked.ends_with(port) && is_address(std::string_view(asked).substr(0, asked.size() - port.size()));
}

std::string Guard::cookie_name() const { return "mha_" + std::to_string(port_); }  // cookies know no ports

bool Guard::knows_token(const Visitor& visitor) const {
  return same_secret(visitor.token, token_) || same_secret(cookie_value(visitor.cookie, cookie_name()), token_);
}

std::optional<Response> Guard::refusal(const Visitor& visitor) const {
  if (visitor.target.substr(0, visitor.target.find('?')).find('%') != std::string_view::npos) {  // "/%61pi" is /api to who decodes it
    return view::error_response(400, join("the path of the address has a %: ", shown(visitor.target)),
                                "write the path as docs/http-api.md has it; % is for what follows the ?");
  }
  if (!is_own_host(visitor.host)) {
    return view::error_response(403, join("the request is for host ", shown(visitor.host), ", this is ", hosts_.front()),
                                "open the address that `mha serve` printed");
  }
  if (!visitor.origin.empty() && lower(visitor.origin) != "http://" + lower(visitor.host)) {
    return view::error_response(403, join("the request comes from ", shown(visitor.origin), ", another site"),
                                "only its own page may ask this server");
  }
  if (is_api(visitor.target) && !visitor.fetch_site.empty() && visitor.fetch_site != "same-origin" && visitor.fetch_site != "none") {
    return view::error_response(403, join("the request comes from another site (", shown(visitor.fetch_site), ")"),
                                "only its own page may ask this server");
  }
  if (!token_.empty() && !knows_token(visitor)) {
    if (visitor.method == "GET" && !is_api(visitor.target) && same_secret(parameter(visitor.target, "token"), token_)) {
      return Response{.status = 303,
                      .type = "text/plain",
                      .headers = {{"Location", "/"}, {"Set-Cookie", cookie_name() + '=' + token_ + "; Path=/; HttpOnly; SameSite=Strict"}}};
    }
    return view::error_response(401, "this server wants a token", "open the whole address that `mha serve` printed, ?token=... included");
  }
  if (visitor.method == "POST" && lower(trimmed(visitor.content_type.substr(0, visitor.content_type.find(';')))) != "application/json") {
    return view::error_response(415, join("the body is of type ", shown(visitor.content_type)), "send Content-Type: application/json");
  }
  return std::nullopt;
}

bool is_loopback(const std::string& host) { return host == "localhost" || host == "::1" || host.starts_with("127."); }

std::string random_token() {
  std::random_device source;  // the processor's generator or the kernel's
  std::string token;
  for (int i = 0; i < 4; ++i) {
    const auto word = static_cast<unsigned>(source());
    for (int shift = 28; shift >= 0; shift -= 4) token += "0123456789abcdef"[(word >> shift) & 15U];
  }
  return token;
}

bool same_secret(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
  return difference == 0;
}

std::string with_nonce(std::string_view html, const std::string& nonce) {
  std::string out;
  while (!html.empty()) {
    const std::size_t script = html.find("<script");
    const std::size_t style = html.find("<style");
    const bool is_script = script < style;
    const std::size_t at = std::min(script, style);
    if (at == std::string_view::npos) break;
    const std::size_t name_end = at + (is_script ? std::string_view("<script") : std::string_view("<style")).size();
    out += html.substr(0, name_end);
    out += " nonce=\"" + nonce + '"';
    const std::size_t end = html.find(is_script ? "</script" : "</style", name_end);
    out += html.substr(name_end, end == std::string_view::npos ? end : end - name_end);
    html = end == std::string_view::npos ? std::string_view() : html.substr(end);
  }
  return out.append(html);
}

std::string content_policy(const std::string& nonce) {
  const std::string closed = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
  if (nonce.empty()) return closed;
  return closed + "; script-src 'nonce-" + nonce + "'; style-src 'nonce-" + nonce + "'; img-src data: blob:; connect-src 'self'";
}

}  // namespace mha::serve
