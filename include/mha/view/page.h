// The page of the microscope and the notices of what it is made of, as they were when this was built: one file each, embedded.
#pragma once

#include <string_view>

namespace mha::view {

/// The whole page, HTML that loads nothing from elsewhere.
std::string_view page_html();
/// Licences of third parties whose code is in the page; plain text.
std::string_view notices();

}  // namespace mha::view
