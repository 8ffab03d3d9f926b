// A user of the installed model library: it links, and says so when there is no model. Built by check.sh.
#include <cstdio>

#include "mha/error.h"
#include "mha/model/transformer.h"

int main() {
  try {
    mha::Transformer::load("no-such-folder");
  } catch (const mha::Error& error) {
    std::printf("%s\n", error.what());
    return 0;
  }
  return 1;
}
