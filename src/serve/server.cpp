// Connections: Boost.Beast on one thread that never computes; answers come from the threads of computations.h. The only file that knows
// Beast. A connection is reading a request, computing (its socket watched for the client leaving), or writing an answer.
#include "mha/serve/server.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/udp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <csignal>
#include <list>
#include <mutex>
#include <new>
#include <optional>
#include <utility>

#include "core/check.h"
#include "serve/computations.h"
#include "serve/guard.h"

namespace mha::serve {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;
using tcp = asio::ip::tcp;
using core::join;

constexpr std::chrono::seconds kFarewell{2};        // for answers under way when the server ends, and for clients that still send
constexpr std::chrono::milliseconds kNextTry{100};  // after an accept that failed, for want of file handles say
constexpr std::size_t kDrainBytes = std::size_t{64} << 10;
constexpr int kBacklog = 4096;  // connections the kernel holds until they are taken: one too many waits a second for its next try
constexpr int kAtOnce = 64;     // taken before others are served again
constexpr std::size_t kSmallAnswer = std::size_t{64} << 10;  // always sent, however much is being read
constexpr std::size_t kMostDrained = std::size_t{4} << 20;

std::chrono::milliseconds milliseconds(double seconds) { return std::chrono::milliseconds(static_cast<long>(seconds * 1000)); }

std::string_view text_of(beast::string_view text) { return {text.data(), text.size()}; }

/// Requests that cost nothing are answered where they are read.
bool is_cheap(std::string_view target) { return !target.starts_with("/api/runs") && !target.starts_with("/api/usual"); }

view::Response busy(const char* what) {
  view::Response response = view::error_response(429, what, "ask again in a second");
  response.headers.emplace_back("Retry-After", "1");
  return response;
}

/// Of this machine, as others reach it: the one that the way out begins at. A datagram socket that is connected sends nothing.
std::string outward_address(const asio::ip::address& any) {
  asio::io_context io;
  asio::ip::udp::socket socket(io);
  error_code error;
  const char* const elsewhere = any.is_v6() ? "2001:db8::1" : "192.0.2.1";  // addresses of documentation: nobody's
  socket.connect({asio::ip::make_address(elsewhere), 9}, error);
  const asio::ip::udp::endpoint own = error ? asio::ip::udp::endpoint() : socket.local_endpoint(error);
  if (error || own.address().is_unspecified()) return any.is_v6() ? "::1" : "127.0.0.1";
  return own.address().to_string();
}

}  // namespace

struct Server::Impl {
  class Session;

  Impl(Answer given, ServerOptions chosen);
  void accept();
  bool take();
  void make_room();
  void room_made();
  void begin_end();

  Answer answer;
  ServerOptions options;
  std::list<std::weak_ptr<Session>> sessions;  // the one active longest ago first; outlives io, whose handlers hold sessions
  asio::io_context io{1};
  tcp::acceptor acceptor{io};
  asio::steady_timer timer{io};
  std::optional<Guard> guard;
  bool ending = false;
  bool full = false;           // nobody is taken until a connection ends or is idle; the kernel holds who comes
  std::size_t being_read = 0;  // bytes of answers
  std::optional<Computations> computations;
};

/// One connection. Lives as long as something of it is under way.
class Server::Impl::Session : public std::enable_shared_from_this<Session> {
 public:
  Session(Impl& server, tcp::socket socket) : server_(server), stream_(std::move(socket)) {}
  ~Session() {
    server_.being_read -= being_read_;
    leave();
  }

  void start() {
    place_ = server_.sessions.insert(server_.sessions.end(), weak_from_this());
    placed_ = true;
    read();
  }
  bool is_idle() const { return !computing_ && !writing_; }
  /// Off the list of connections at once.
  void close() {
    gone_ = true;
    error_code ignored;
    stream_.socket().close(ignored);
    leave();
  }
  /// Lets a computation end that nobody waits for.
  void forget() { gone_ = true; }
  /// Ends what it does, as soon as that goes.
  void end() {
    gone_ = true;
    if (is_idle()) close();
  }

 private:
  void leave();
  void read();
  void on_header(error_code error);
  void on_body(error_code error);
  void compute(view::Request request);
  void watch();
  void respond(view::Response answer);
  void refuse_unread(view::Response answer);
  void write();
  void on_written(error_code error);
  void drain();

  Impl& server_;
  beast::tcp_stream stream_;
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::string_body>> parser_;
  http::response<http::string_body> response_;
  std::optional<http::response_serializer<http::string_body>> serializer_;  // of response_
  std::size_t being_read_ = 0;                                              // bytes of it, as the server counts them
  std::list<std::weak_ptr<Session>>::iterator place_;
  bool placed_ = false;
  bool computing_ = false, writing_ = false, keep_ = false, head_only_ = false;
  std::size_t drained_ = 0;
  std::atomic<bool> gone_{false};
};

/// Off the list of connections; the last one of a server that ends lets it go.
void Server::Impl::Session::leave() {
  if (!placed_) return;
  placed_ = false;
  server_.sessions.erase(place_);
  if (server_.ending && server_.sessions.empty()) server_.io.stop();
  server_.room_made();
}

void Server::Impl::Session::read() {
  server_.sessions.splice(server_.sessions.end(), server_.sessions, place_);
  parser_.emplace();
  parser_->header_limit(static_cast<std::uint32_t>(server_.options.header_bytes));
  parser_->body_limit(server_.options.body_bytes);
  stream_.expires_after(milliseconds(server_.options.read_seconds));
  http::async_read_header(stream_, buffer_, *parser_,
                          [self = shared_from_this()](error_code error, std::size_t) { self->on_header(error); });
}

void Server::Impl::Session::on_header(error_code error) {
  keep_ = head_only_ = false;
  if (error == http::error::body_limit) {
    return refuse_unread(view::error_response(
        413, join("the request is larger than the ", server_.options.body_bytes, " bytes that are read"), "send a shorter text"));
  }
  if (error == http::error::header_limit) {
    return refuse_unread(
        view::error_response(431, join("the header is larger than ", server_.options.header_bytes, " bytes"), "send less of it"));
  }
  const bool left = error == http::error::end_of_stream || error == http::error::partial_message;
  if (error && !left && error.category() == http::make_error_code(http::error::bad_method).category()) {
    return refuse_unread(view::error_response(400, join("this is no HTTP request: ", error.message()), "open the address in a browser"));
  }
  if (error) return close();
  const auto& request = parser_->get();
  head_only_ = request.method() == http::verb::head;
  const auto field = [&](auto name) { return text_of(request[name]); };
  const Visitor visitor{.method = text_of(request.method_string()),
                        .target = text_of(request.target()),
                        .host = field(http::field::host),
                        .origin = field(http::field::origin),
                        .fetch_site = field("Sec-Fetch-Site"),
                        .content_type = field(http::field::content_type),
                        .cookie = field(http::field::cookie),
                        .token = field("X-Mha-Token")};
  if (std::optional<view::Response> refusal = server_.guard->refusal(visitor)) return refuse_unread(std::move(*refusal));
  stream_.expires_after(milliseconds(server_.options.read_seconds));
  http::async_read(stream_, buffer_, *parser_, [self = shared_from_this()](error_code failed, std::size_t) { self->on_body(failed); });
}

void Server::Impl::Session::on_body(error_code error) {
  if (error == http::error::body_limit) {
    return refuse_unread(view::error_response(
        413, join("the request is larger than the ", server_.options.body_bytes, " bytes that are read"), "send a shorter text"));
  }
  if (error) return close();
  http::request<http::string_body> read = parser_->release();
  keep_ = read.keep_alive() && !server_.ending;
  view::Request request{.method = head_only_ ? "GET" : std::string(text_of(read.method_string())),
                        .target = std::string(text_of(read.target())),
                        .body = std::move(read.body())};
  if (is_cheap(request.target)) return respond(server_.answer(request, gone_));
  compute(std::move(request));
}

void Server::Impl::Session::compute(view::Request request) {
  computing_ = true;
  watch();
  const auto hand_back = [self = shared_from_this()](view::Response answer) {
    asio::post(self->server_.io, [self, answer = std::move(answer)]() mutable {
      self->computing_ = false;
      error_code ignored;
      self->stream_.socket().cancel(ignored);  // the watch
      self->respond(std::move(answer));
    });
  };
  const std::size_t cost = server_.options.cost ? server_.options.cost(request) : request.body.size();
  server_.computations->add({.cost = cost,
                             .run =
                                 [self = shared_from_this(), hand_back, request = std::move(request)] {
                                   hand_back(self->gone_ ? view::Response{.status = 503} : self->server_.answer(request, self->gone_));
                                 },
                             .refuse = [hand_back] { hand_back(busy("more is asked than can be computed now")); }});
}

/// Whether the client leaves while its answer is computed: then the socket can be read, and there is nothing. What it sends meanwhile is
/// its next request's beginning; who sends more than a header of that is not waited for.
void Server::Impl::Session::watch() {
  stream_.socket().async_wait(tcp::socket::wait_read, [self = shared_from_this()](error_code error) {
    if (error || !self->computing_) return;
    error_code failed;
    self->stream_.socket().non_blocking(true, failed);
    const std::size_t bytes = self->stream_.socket().receive(self->buffer_.prepare(self->server_.options.header_bytes), 0, failed);
    self->buffer_.commit(bytes);
    if ((failed && failed != asio::error::would_block) || self->buffer_.size() > self->server_.options.header_bytes) {
      self->gone_ = true;
      return;
    }
    self->watch();
  });
}

void Server::Impl::Session::refuse_unread(view::Response answer) {
  keep_ = false;  // what follows on the connection is the rest of a request nobody reads
  respond(std::move(answer));
}

void Server::Impl::Session::respond(view::Response answer) {
  if (!stream_.socket().is_open()) return;
  if (answer.body.size() > kSmallAnswer && answer.body.size() + server_.being_read > server_.options.answer_bytes) {
    answer = busy("more answers are being read than there is memory for");
  }
  writing_ = true;
  const bool is_page = answer.type.starts_with("text/html");
  const std::string nonce = is_page ? random_token() : std::string();
  response_ = {};
  response_.version(11);
  response_.result(static_cast<unsigned>(answer.status));
  if (!answer.type.empty()) response_.set(http::field::content_type, answer.type);
  response_.set(http::field::cache_control, "no-store");
  response_.set("Content-Security-Policy", content_policy(nonce));
  response_.set("X-Content-Type-Options", "nosniff");
  response_.set("X-Frame-Options", "DENY");
  response_.set("Referrer-Policy", "no-referrer");
  response_.set("Cross-Origin-Resource-Policy", "same-origin");
  response_.set("Cross-Origin-Opener-Policy", "same-origin");
  for (const auto& [name, value] : answer.headers) response_.set(name, value);
  response_.body() = is_page ? with_nonce(answer.body, nonce) : std::move(answer.body);
  response_.keep_alive(keep_);
  response_.prepare_payload();
  if (head_only_) response_.body() = {};  // its length stays in the header
  being_read_ = response_.body().size();
  server_.being_read += being_read_;
  serializer_.emplace(response_);
  write();
}

/// A part at a time: the clock starts anew with each, so that a slow client may take what time it needs but none may stand still.
void Server::Impl::Session::write() {
  stream_.expires_after(milliseconds(server_.options.write_seconds));
  http::async_write_some(stream_, *serializer_, [self = shared_from_this()](error_code error, std::size_t) {
    if (error || self->serializer_->is_done()) return self->on_written(error);
    self->write();
  });
}

void Server::Impl::Session::on_written(error_code error) {
  writing_ = false;
  serializer_.reset();
  response_ = {};
  server_.being_read -= std::exchange(being_read_, 0);
  if (error || gone_) return close();
  server_.room_made();
  if (keep_ && !server_.ending) return read();
  error_code ignored;
  stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
  drained_ = 0;
  buffer_.clear();
  stream_.expires_after(kFarewell);
  drain();
}

/// Reads what a client still sends, for a while: closing with unread bytes would take the answer away from it.
void Server::Impl::Session::drain() {
  stream_.async_read_some(buffer_.prepare(kDrainBytes), [self = shared_from_this()](error_code error, std::size_t bytes) {
    self->drained_ += bytes;
    if (error || self->drained_ > kMostDrained || self->server_.ending) return self->close();
    self->drain();
  });
}

Server::Impl::Impl(Answer given, ServerOptions chosen) : answer(std::move(given)), options(std::move(chosen)) {
  const std::string host = options.host == "localhost" ? "127.0.0.1" : options.host;
  error_code error;
  const asio::ip::address address = asio::ip::make_address(host, error);
  MHA_CHECK(IoError, !error, "host is \"", options.host, "\", must be an address of this machine, as 127.0.0.1");
  MHA_CHECK(IoError, options.port >= 0 && options.port <= 65535, "port is ", options.port, ", must be 0 to 65535");
  const tcp::endpoint endpoint(address, static_cast<unsigned short>(options.port));
  const auto check = [&](const char* what) {
    MHA_CHECK(IoError, error != asio::error::address_in_use, "port ", options.port, " of ", options.host,
              " is taken: end what listens there, or choose another port (0: any free one)");
    MHA_CHECK(IoError, !error, "cannot ", what, " port ", options.port, " of ", options.host, ": ", error.message());
  };
  acceptor.open(endpoint.protocol(), error);
  check("open");
  acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  check("open");
  acceptor.bind(endpoint, error);
  check("bind");
  acceptor.listen(kBacklog, error);
  check("listen on");
  acceptor.non_blocking(true, error);
  check("listen on");
  options.port = acceptor.local_endpoint().port();
  guard.emplace(host, options.port, is_loopback(host) ? std::string() : random_token());
  computations.emplace(options.computations, options.waiting, options.dear);
}

void Server::Impl::accept() {
  acceptor.async_wait(tcp::socket::wait_read, [this](error_code) {
    if (ending) return;
    for (int taken = 0; taken < kAtOnce; ++taken) {
      if (!take()) return;
    }
    accept();
  });
}

/// One connection of those that wait. False where it is not to be gone on with now; what goes on then is seen to.
bool Server::Impl::take() {
  make_room();
  full = static_cast<int>(sessions.size()) >= options.connections;
  if (full) return false;  // room_made() goes on
  tcp::socket socket(io);
  error_code error;
  if (acceptor.accept(socket, error); error == asio::error::would_block) {
    accept();
    return false;
  }
  if (error) {
    timer.expires_after(kNextTry);
    timer.async_wait([this](error_code) {
      if (!ending) accept();
    });
    return false;
  }
  error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  std::make_shared<Session>(*this, std::move(socket))->start();
  return true;
}

/// A connection has ended, or is idle and can make room: whoever waits may come.
void Server::Impl::room_made() {
  if (!full || ending) return;
  full = false;
  accept();
}

/// Closes the connections that have waited longest for a request, where there are too many.
void Server::Impl::make_room() {
  for (auto place = sessions.begin(); place != sessions.end() && static_cast<int>(sessions.size()) >= options.connections;) {
    const std::shared_ptr<Session> session = (place++)->lock();
    if (session && session->is_idle()) session->close();
  }
}

void Server::Impl::begin_end() {
  if (ending) return;
  ending = true;
  error_code ignored;
  acceptor.close(ignored);
  for (auto place = sessions.begin(); place != sessions.end();) {
    const std::shared_ptr<Session> session = (place++)->lock();
    if (session) session->end();
  }
  if (sessions.empty()) io.stop();
  timer.expires_after(kFarewell);
  timer.async_wait([this](error_code) { io.stop(); });
}

Server::Server(Answer answer, ServerOptions options) : impl_(std::make_unique<Impl>(std::move(answer), std::move(options))) {}

Server::~Server() {
  impl_->full = false;
  for (const std::weak_ptr<Impl::Session>& place : impl_->sessions) {
    if (const auto session = place.lock()) session->forget();
  }
  impl_->io.stop();
  impl_->computations.reset();
}

int Server::port() const { return impl_->options.port; }

std::string Server::address() const {
  std::string host = impl_->options.host;
  error_code error;
  const asio::ip::address address = asio::ip::make_address(host, error);
  if (!error && address.is_unspecified()) host = outward_address(address);
  const std::string shown = host.find(':') != std::string::npos ? '[' + host + ']' : host;
  const std::string& token = impl_->guard->token();
  return join("http://", shown, ':', impl_->options.port, "/", token.empty() ? "" : "?token=", token);
}

void Server::run(bool until_signal) {
  std::optional<asio::signal_set> signals;
  if (until_signal) {
    signals.emplace(impl_->io, SIGINT, SIGTERM);
    signals->async_wait([this](error_code error, int) {
      if (!error) impl_->begin_end();
    });
  }
  impl_->accept();
  for (;;) {
    try {
      impl_->io.run();
      return;
    } catch (const std::bad_alloc&) {  // one connection's misfortune: the others go on
    }
  }
}

void Server::stop() {
  asio::post(impl_->io, [this] { impl_->begin_end(); });
}

}  // namespace mha::serve
