// Bindings of mha/model/safetensors.h; see files.h.
#include "files.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <string>
#include <vector>

#include "arrays.h"
#include "layer.h"
#include "mha/model/safetensors.h"

namespace mha::python {

namespace {

nb::dlpack::dtype dtype_of(DType dtype) {
  switch (dtype) {
    case DType::F32:
      return nb::dtype<float>();
    case DType::F64:
      return nb::dtype<double>();
    case DType::F16:
      return {static_cast<std::uint8_t>(nb::dlpack::dtype_code::Float), 16, 1};
    case DType::Bf16:
      return nb::dtype<std::uint16_t>();  // NumPy has no name for it: its bits
    case DType::Bool:
      return nb::dtype<bool>();
    case DType::I64:
      return nb::dtype<std::int64_t>();
  }
  return nb::dtype<std::byte>();
}

/// A read-only NumPy array of the mapped file, which `self` keeps mapped.
nb::object tensor_of(const nb::handle& self, const std::string& name) {
  const ConstTensorView view = nb::cast<const SafetensorsFile&>(self).tensor(name);
  std::vector<std::size_t> shape;
  for (const Index size : view.shape) shape.push_back(static_cast<std::size_t>(size));
  return nb::cast(
      nb::ndarray<nb::numpy, nb::ro>(view.data, shape.size(), shape.data(), self, nullptr, dtype_of(view.dtype), nb::device::cpu::value));
}

}  // namespace

void bind_files(nb::module_& module) {
  nb::class_<SafetensorsFile>(module, "SafetensorsFile",
                              "A safetensors file, mapped, and checked as a whole before anything is handed out.")
      .def(nb::init<const std::string&>(), nb::arg("path"), "OSError where it cannot be opened, ValueError for what the format forbids.")
      .def("names", &SafetensorsFile::names, "All tensors, sorted by name.")
      .def("metadata", &SafetensorsFile::metadata, "The file's free-form texts.")
      .def(
          "dtype", [](const SafetensorsFile& file, const std::string& name) { return file.info(name).dtype; }, nb::arg("name"),
          "\"F32\", \"BF16\", ... ValueError where there is no such tensor.")
      .def("tensor", &tensor_of, nb::arg("name"),
           "A read-only NumPy array straight into the file; of BF16 the bits, as uint16. ValueError where there is no such tensor, its "
           "rank is "
           "above 4; TypeError for a dtype the library does not compute with.");
  module.def(
      "save_safetensors",
      [](const std::string& path, const std::map<std::string, Array>& arrays, const std::map<std::string, std::string>& metadata) {
        std::vector<NamedTensor> tensors;
        for (const auto& [name, array] : arrays) tensors.push_back({name, whole(array, "save_safetensors")});
        const nb::gil_scoped_release no_gil;
        save_safetensors(path, tensors, metadata);
      },
      nb::arg("path"), nb::arg("arrays"), nb::arg("metadata"), "Writes the file at once or not at all. OSError, ValueError.");
}

}  // namespace mha::python
