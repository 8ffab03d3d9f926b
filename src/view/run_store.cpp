// A list by time of asking, and where each run stands in it.
#include "view/run_store.h"

namespace mha::view {

std::shared_ptr<const Run> RunStore::find(const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto found = places_.find(id);
  if (found == places_.end()) return nullptr;
  runs_.splice(runs_.begin(), runs_, found->second);
  return *found->second;
}

void RunStore::keep(std::shared_ptr<const Run> run) {
  const std::lock_guard lock(mutex_);
  if (const auto found = places_.find(run->id); found != places_.end()) drop(found->second);
  bytes_ += run->bytes();
  runs_.push_front(std::move(run));
  places_[runs_.front()->id] = runs_.begin();
  while (bytes_ > most_bytes_ && runs_.size() > 1) drop(std::prev(runs_.end()));
}

void RunStore::drop(std::list<std::shared_ptr<const Run>>::iterator place) {
  bytes_ -= (*place)->bytes();
  places_.erase((*place)->id);
  runs_.erase(place);
}

}  // namespace mha::view
