// The runs that are kept: the one asked for longest ago goes first once they need more memory than allowed. Used by microscope.cpp.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "view/run.h"

namespace mha::view {

class RunStore {
 public:
  explicit RunStore(std::size_t most_bytes) : most_bytes_(most_bytes) {}

  /// The run, now the last to go; nullptr where it is not kept.
  std::shared_ptr<const Run> find(const std::string& id);
  /// Keeps it in place of one of the same id. The newest is kept however large it is.
  void keep(std::shared_ptr<const Run> run);

 private:
  void drop(std::list<std::shared_ptr<const Run>>::iterator place);

  std::mutex mutex_;
  std::size_t most_bytes_;
  std::size_t bytes_ = 0;
  std::list<std::shared_ptr<const Run>> runs_;  // asked for last first
  std::unordered_map<std::string, std::list<std::shared_ptr<const Run>>::iterator> places_;
};

}  // namespace mha::view
