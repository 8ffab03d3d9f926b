// The microscope over HTTP: one port, this machine only unless told otherwise. What is answered is not known here (mha/view/microscope.h);
// who may ask, how much, and for how long is.
//
//   mha::serve::Server server([&](const auto& request, const auto& gone) { return microscope.answer(request, &gone); }, {.port = 0});
//   std::puts(server.address().c_str());
//   server.run();
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "mha/view/microscope.h"

namespace mha::serve {

struct ServerOptions {
  std::string host = "127.0.0.1";  // an address of this machine; any but a loopback address makes the server demand a token
  int port = 8642;                 // 0: any free one
  int computations = 2;            // at once; each shares its own work out among threads
  int waiting = 64;                // requests that may wait for them; the cheapest go first, what does not fit is answered 429
  // What a request costs, in bytes of a text about; absent: the size of its body. Those of `dear` or more leave a computation to others.
  std::function<std::size_t(const view::Request& request)> cost = {};
  std::size_t dear = std::size_t{8} << 10;
  int connections = 256;  // at once; the one idle longest makes room for a new one; while all are busy, new ones wait or are closed
  std::size_t answer_bytes = std::size_t{512} << 20;  // of all answers that are being read; large ones beyond are answered 429
  std::size_t header_bytes = std::size_t{16} << 10;
  std::size_t body_bytes = std::size_t{1} << 20;
  double read_seconds = 15;   // a request's header may take, the wait for it included; its body the same again
  double write_seconds = 30;  // an answer may stand still
};

class Server {
 public:
  /// Called on threads of the server, several at once; `gone` turns true once nobody waits for the answer any more. Must not throw.
  using Answer = std::function<view::Response(const view::Request& request, const std::atomic<bool>& gone)>;

  /// Listens at once. Throws IoError where the address is none of this machine's or the port is taken.
  Server(Answer answer, ServerOptions options = {});
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  int port() const;
  /// "http://127.0.0.1:8642/", with the token where one is demanded; of a server on all addresses, one that other machines reach.
  std::string address() const;
  /// Answers until `stop` is called or, with `until_signal`, SIGINT or SIGTERM arrives; then ends what is under way. Once only.
  void run(bool until_signal = false);
  /// From any thread.
  void stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace mha::serve
