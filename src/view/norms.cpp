// How much heads carry, beside how much weight they give (mha/analysis/norms.h).
#include "view/tables.h"

namespace mha::view {

std::vector<double> key_norms(const Lens& lens, HeadId) {
  throw RequestError(400, "run " + lens.run.id + " knows no values and output projections: norms cannot be told", "ask for kind=weight");
}

}  // namespace mha::view
