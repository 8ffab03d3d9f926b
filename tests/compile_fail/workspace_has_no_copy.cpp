// Scratch memory belongs to one caller: a workspace moves, and is never copied.
// error: deleted
#include <utility>

#include "mha/workspace.h"

mha::Workspace moved(mha::Workspace& workspace) { return std::move(workspace); }
#ifdef MUST_NOT_COMPILE
mha::Workspace copied(const mha::Workspace& workspace) { return workspace; }
#endif
