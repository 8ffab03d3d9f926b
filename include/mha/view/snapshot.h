// The page of the microscope with what it asks for already in it: one HTML file that shows a run's heads without a server and without a
// network. Written by `mha export --form html`, by the page's own save menu and by mha.view in Python.
//
//   std::string file = mha::view::snapshot_html(microscope, run_id, {.state = "layer=5&head=11"});
#pragma once

#include <cstddef>
#include <string>

#include "mha/view/microscope.h"

namespace mha::view {

struct SnapshotOptions {
  std::string state = {};                     // what the page shows first, as in its address after '#'
  std::size_t bytes = std::size_t{32} << 20;  // of recorded numbers, at most; the selected head's come first. In the file a third more
};

/// The recorded answers are those of one run: its words, measures and usual weights, all heads' tables by word and by piece as far as
/// `bytes` goes, and where they are too large to be sent whole, the selected head's map at its three coarsest zooms. Texts are escaped, and
/// the file forbids itself to load anything. Throws Error, with the remedy, where there is no such run or the computation was stopped.
std::string snapshot_html(const Microscope& microscope, const std::string& run, const SnapshotOptions& options = {});

/// The same of a new run: `body` is what POST /api/runs takes, {"text": "..."} and what is to be changed. Throws Error where it is refused.
std::string snapshot_of_text(const Microscope& microscope, const std::string& body, const SnapshotOptions& options = {});

/// Whether this build has the page; otherwise a snapshot holds a note that says how to get one.
bool has_page();

}  // namespace mha::view
