// The microscope without a network: a request for anything the page shows of a run's heads in, a response out (docs/http-api.md has all
// requests). The server carries them; a self-contained file is the page with some of them recorded.
//
//   mha::view::Microscope microscope({.transformer = &model, .tokenizer = &tokenizer, .name = "all-MiniLM-L6-v2"});
//   mha::view::Response run = microscope.answer({.method = "POST", .target = "/api/runs", .body = R"({"text": "The bank raised its
//   rates."})"});
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "mha/analysis/capture_file.h"
#include "mha/analysis/usual.h"
#include "mha/model/tokenizer.h"
#include "mha/model/transformer.h"
#include "mha/workspace.h"

namespace mha::view {

struct Request {
  std::string method = "GET";
  std::string target = {};  // path and query, "/api/runs/9f3c/row?unit=word&index=2"
  std::string body = {};
};

struct Response {
  int status = 200;
  std::string type = {};  // of the body: "application/json", ...
  std::string body = {};
  std::vector<std::pair<std::string, std::string>> headers = {};  // what else heads it: X-Mha-Shape, X-Mha-Dtype, ...
};

/// {"error", "remedy"} as every error is answered.
Response error_response(int status, const std::string& error, const std::string& remedy);

/// What new texts are run on. Absent pointers: nothing, and texts are refused. All must outlive the Microscope.
struct MicroscopeModel {
  const Transformer* transformer = nullptr;
  const Tokenizer* tokenizer = nullptr;
  std::string name = {};
  // From a cache, say; absent: computed from the plain sentences when first asked for. What it returns once executor.stop says so is
  // dropped.
  std::function<UsualWeights(const Executor& executor)> usual = {};
};

struct MicroscopeOptions {
  Executor executor = default_executor();
  double seconds = 60;                                       // a request's computation may take
  std::size_t body_bytes = std::size_t{1} << 20;             // of a request
  std::size_t answer_bytes = std::size_t{64} << 20;          // of a response's numbers
  std::size_t kept_bytes = std::size_t{512} << 20;           // of runs; the one that was asked for longest ago goes first
  std::function<std::string(const std::string&)> page = {};  // a file of the page by name ("index.html"), instead of the embedded ones
};

class Microscope {
 public:
  /// `tensors`, where given, are shown too: its entries are runs from the start.
  explicit Microscope(MicroscopeModel model, MicroscopeOptions options = {}, std::shared_ptr<const CaptureFile> tensors = nullptr);
  Microscope(Microscope&&) noexcept;
  Microscope& operator=(Microscope&&) noexcept;
  ~Microscope();

  const MicroscopeOptions& options() const;
  /// Answers any request, errors included; from several threads at once. `gone`, where given, is asked between tasks: once it is true the
  /// computation ends soon and the response (503) is of use to nobody. Throws nothing.
  Response answer(const Request& request, const std::atomic<bool>* gone = nullptr) const noexcept;
  /// Roughly what the request costs to answer, in bytes of a text whose run costs as much: for whoever orders requests.
  std::size_t cost(const Request& request) const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace mha::view
