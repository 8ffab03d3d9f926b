// The extension mha._core: the library's errors as Python's, and what each file of this folder binds.
// Imported by the package mha, which is what users see. Must hold no semantics of its own.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string_view.h>

#include "arrays.h"
#include "attention.h"
#include "files.h"
#include "heads.h"
#include "layer.h"
#include "mha/cpu.h"
#include "mha/error.h"
#include "mha/version.h"
#include "mha/workspace.h"
#include "model.h"
#include "openmp.h"
#include "tables.h"
#include "view.h"
#include "watch.h"

namespace nb = nanobind;

namespace {

/// ValueError, TypeError for dtypes, OSError for files that cannot be read or written; the text is the library's.
void translate(const std::exception_ptr& error, void*) {
  try {
    std::rethrow_exception(error);
  } catch (const mha::DTypeError& wrong) {
    PyErr_SetString(PyExc_TypeError, wrong.what());
  } catch (const mha::IoError& wrong) {
    PyErr_SetString(PyExc_OSError, wrong.what());
  } catch (const mha::Error& wrong) {
    PyErr_SetString(PyExc_ValueError, wrong.what());
  }
}

}  // namespace

NB_MODULE(_core, module) {
  module.doc() = "The C++ part of mha; see the package's own documentation.";
  nb::set_leak_warnings(false);  // what a program's own globals hold at exit is no fault, and the library prints nothing
  nb::register_exception_translator(translate);
  module.def("current_isa", &mha::current_isa, "The instruction set in use: \"avx512\", \"avx2\", \"scalar\" or \"reference\".");
  module.def("max_threads", [] { return mha::default_executor().concurrency; }, "Cores this process may use: what num_threads=None means.");
  mha::python::bind_arrays(module);
  mha::python::bind_attention(module);
  mha::python::bind_layer(module);
  mha::python::bind_tables(module);
  mha::python::bind_model(module);
  mha::python::bind_heads(module);
  mha::python::bind_watch(module);
  mha::python::bind_files(module);
  mha::python::bind_openmp(module);
  mha::python::bind_view(module);
}
