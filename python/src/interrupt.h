// How a binding computes: without the GIL, on this thread's workspace, and until Ctrl-C. Every binding that takes time goes through
// `compute`. Knows nothing of what is computed.
#pragma once

#include <exception>
#include <functional>
#include <optional>

#include "mha/workspace.h"

namespace mha::python {

/// Calls work(workspace) with the GIL released. The workspace is this thread's own, kept from call to call; its executor uses `threads`
/// threads (absent: all cores) and stops where a signal handler of Python raises (Ctrl-C), in which case the exception is thrown here and
/// what was computed is of no use. Throws ShapeError where `threads` is not 1 to the number of cores this process may use.
void compute(std::optional<Index> threads, const std::function<void(Workspace&)>& work);

}  // namespace mha::python
