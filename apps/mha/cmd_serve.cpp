// mha serve: the microscope as a page on this machine, until Ctrl-C.
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <thread>

#include "command.h"
#include "mha/analysis/capture_file.h"
#include "mha/error.h"
#include "mha/serve/server.h"
#include "mha/view/microscope.h"
#include "model_folder.h"
#include "usual_cache.h"

extern char** environ;

namespace mha::app {
namespace {

struct Options {
  std::string host = "127.0.0.1";
  Index port = 8642;
  std::string model;
  std::string tensors;
  std::string web_root;
  bool open = false;
};

constexpr const char* kFooter = R"(The page works without a network; nothing is loaded from elsewhere. It shows
every head of the model on any text: who attends to whom, as arcs, tables and
maps, what heads usually do, and what changes without some of them.

Only this machine can reach it. With --host, an address of this machine, others
can too; a token is then demanded, which the printed address contains.

Examples:
  mha serve
  mha serve --open
  mha serve --port 0                        any free port
  mha serve --model DIR                     another model
  mha serve --tensors FILE.safetensors      heads that another program computed
  mha serve --host 192.168.1.7              for the machines around

docs/http-api.md lists what programs can ask it.)";

constexpr std::chrono::milliseconds kLookAgain{100};

/// Opens the address in the user's browser by the desktop's xdg-open, and says so where that fails. The thread takes the child's leave,
/// which may be long in coming: xdg-open stays as long as a browser that it starts.
std::jthread open_browser(const std::string& address, const Output& output) {
  return std::jthread([address, print = output.print_now](const std::stop_token& stop) {
    std::string program = "xdg-open";
    std::string argument = address;
    char* arguments[] = {program.data(), argument.data(), nullptr};
    pid_t child = 0;
    if (posix_spawnp(&child, program.c_str(), nullptr, nullptr, arguments, environ) != 0) {
      return print("--open: no xdg-open here, open the address yourself\n");
    }
    int status = 0;
    pid_t ended = 0;
    while ((ended = waitpid(child, &status, WNOHANG)) == 0 && !stop.stop_requested()) std::this_thread::sleep_for(kLookAgain);
    if (ended == child && status != 0) print("--open: xdg-open found no browser, open the address yourself\n");
  });
}

/// A file of the page from a folder: for those who work on the page.
std::string page_file(const std::string& folder, const std::string& name) {
  std::ifstream file(folder + '/' + name, std::ios::binary);
  if (!file) throw IoError(fmt::format("{}/{}: cannot be read", folder, name));
  return {std::istreambuf_iterator<char>(file), {}};
}

void run(const Options& options, Output& output) {
  if (options.port < 0 || options.port > 65535) throw Error(fmt::format("--port is {}, must be 0 to 65535", options.port));
  // With a file of tensors a model is open only where one was named: the file may be of any model.
  std::optional<OpenModel> model;
  if (options.tensors.empty() || !options.model.empty()) model = open_model(options.model);
  view::MicroscopeModel shown;
  if (model) {
    shown = {
        .transformer = &model->transformer, .tokenizer = &model->tokenizer, .name = model->name, .usual = [&](const Executor& executor) {
          return cached_usual_weights(*model, executor);
        }};
  }
  std::shared_ptr<const CaptureFile> tensors;
  if (!options.tensors.empty()) tensors = std::make_shared<const CaptureFile>(load_capture(options.tensors));
  view::MicroscopeOptions microscope_options;
  if (!options.web_root.empty()) {
    microscope_options.page = [&](const std::string& name) { return page_file(options.web_root, name); };
  }
  const view::Microscope microscope(shown, microscope_options, tensors);
  serve::Server server([&](const view::Request& request, const std::atomic<bool>& gone) { return microscope.answer(request, &gone); },
                       {.host = options.host,
                        .port = static_cast<int>(options.port),
                        .cost = [&](const view::Request& request) { return microscope.cost(request); },
                        .body_bytes = microscope.options().body_bytes});
  output.print_now(fmt::format("{}\n", server.address()));
  std::jthread browser;
  if (options.open) browser = open_browser(server.address(), output);
  server.run(true);
}

}  // namespace

void add_serve(CLI::App& app, Output& output) {
  CLI::App* command = app.add_subcommand("serve", "The microscope as a page in the browser, until Ctrl-C");
  auto options = std::make_shared<Options>();
  command->footer(kFooter);
  add_model_option(*command, options->model);
  command->add_option("--tensors", options->tensors, "Show the heads of this file, of any model (docs/formats.md), instead of a model")
      ->type_name("FILE");
  add_number(*command, "--port", options->port, "The port; 0: any free one (default: 8642)");
  command->add_option("--host", options->host, "The address to listen on (default: 127.0.0.1, this machine only)")->type_name("ADDRESS");
  command->add_flag("--open", options->open, "Open the page in the browser");
  command->add_option("--web-root", options->web_root, "Take index.html and notices.txt from this folder, for work on the page")
      ->type_name("DIR");
  command->callback([options, &output] { run(*options, output); });
}

}  // namespace mha::app
